"""The benchmark works: everything that it counts is counted, and the counts are right.

Its times are nobody's business here.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.components import need

ROOT = Path(__file__).resolve().parents[2]


def measured(script, out):
    """Where a quick run has written its report, without the suffix.

    One test each: two would measure twice if two workers took them.
    """
    need("postgres")
    command = [sys.executable, ROOT / "bench" / script, "--quick", "--out", out]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=270)
    assert done.returncode == 0, done.stdout + done.stderr
    return out / script.replace(".py", "-benchmark")


@pytest.mark.timeout(300)
def test_a_quick_benchmark_of_elections_counts_right(tmp_path):
    report = json.loads(measured("election.py", tmp_path).with_suffix(".json").read_text())
    figures = {(figure["topic"], figure["ours"]["what"]): figure["ours"] for figure in report["figures"]}
    every_struck_leader_was_followed(figures)
    a_beat_writes_one_row_whatever_is_held_and_on_sqlite_none(figures)
    an_idle_node_has_two_connections(figures)
    a_beat_and_a_question_cost_something(figures)


def every_struck_leader_was_followed(figures):
    takeovers = [ours for (topic, _), ours in figures.items() if "leader" in topic and topic != "is_leader, per call"]
    assert len(takeovers) == 6
    takeovers += [ours for (topic, _), ours in figures.items() if topic.startswith("resign()")]
    assert all(ours["values"] and not ours["missing"] for ours in takeovers), takeovers


def a_beat_writes_one_row_whatever_is_held_and_on_sqlite_none(figures):
    written = {what: ours["values"] for (topic, what), ours in figures.items() if topic == "rows written per beat"}
    assert written == {"PostgreSQL, 50 held": [1.0], "SQLite, 50 held, changes of the file": [0]}


def an_idle_node_has_two_connections(figures):
    connections = [ours["values"][0] for (topic, _), ours in figures.items() if topic == "idle node, connections"]
    assert len(connections) == 2
    assert max(connections) <= 2


def a_beat_and_a_question_cost_something(figures):
    assert min(figures["heartbeat", "PostgreSQL"]["values"]) > 0
    assert min(figures["heartbeat", "SQLite"]["values"]) > 0
    assert figures["is_leader, per call", "a leader"]["values"]


@pytest.mark.timeout(300)
def test_a_quick_benchmark_of_the_scheduler_counts_right(tmp_path):
    report = measured("scheduler.py", tmp_path)
    assert "| what | ours | goal |" in report.with_suffix(".md").read_text()
    lines = {}
    for line in json.loads(report.with_suffix(".json").read_text())["figures"]:
        lines.setdefault(line["topic"], []).append(line)
    every_due_time_of_the_measured_rounds_ran(lines)
    the_whole_backlog_ran_on_both_stores(lines)
    an_idle_scheduler_has_at_most_three_connections(lines)
    every_goal_has_a_verdict(lines)


def every_due_time_of_the_measured_rounds_ran(lines):
    late = [line["ours"] for topic in lines if topic.startswith("lateness") for line in lines[topic]]
    lost = [line["ours"] for topic in lines if topic.startswith("due times that did not run") for line in lines[topic]]
    assert len(late) == len(lost) == 6
    assert all(ours["by"]["p99"] for ours in late), late
    assert all(ours["by"][""] == [0.0] for ours in lost), lost


def the_whole_backlog_ran_on_both_stores(lines):
    postgres, sqlite = lines["no-op runs per second, one node"], lines["no-op runs per second, SQLite"]
    assert [line["ours"]["note"].split(";")[0] for line in (*postgres, *sqlite)] == ["200 runs"] * 3
    assert all(line["limit"]["by"][""] for line in postgres)


def an_idle_scheduler_has_at_most_three_connections(lines):
    (connections,) = [line for line in lines["idle node"] if line["ours"]["what"] == "connections"]
    assert connections["ours"]["by"][""][0] in {2, 3}


def every_goal_has_a_verdict(lines):
    assert len(lines["next_after"]) == 9
    goals = [line for topic in lines for line in lines[topic] if line["goals"]]
    assert all(verdict.endswith((": met", ": MISSED")) for line in goals for verdict in line["verdicts"])


@pytest.mark.timeout(300)
def test_a_short_soak_reports_what_could_grow(tmp_path):
    need("postgres")
    command = [sys.executable, ROOT / "bench" / "soak.py", "--quick", "--snapshot", "4", "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=270)
    assert done.returncode == 0, done.stdout + done.stderr
    report = (tmp_path / "soak-snapshot.md").read_text()
    assert "snapshot held" in done.stdout
    for figure in ("rows in the table of runs", "memory of a node", "threads of a node", "lateness, p99"):
        assert f"| {figure} |" in report
