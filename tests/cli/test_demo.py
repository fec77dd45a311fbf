"""The demo tells the truth about real processes and leaves nothing behind."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from harness import scratch
from harness.web import Browser
from tenure.demo.summary import _calls
from tenure.demo.verdict import Body, Note, judge, judge_bodies


def start(tmp_path, *words):
    return subprocess.Popen(
        [sys.executable, "-m", "tenure", "demo", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        preexec_fn=hear_ctrl_c,  # noqa: PLW1509 - it only sets a signal, in a process that starts no threads before
    )


def hear_ctrl_c():
    """Whoever runs the tests in the background of a shell has it ignored, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_leaders_are_killed_and_others_take_over(tmp_path):
    with start(tmp_path, "--seconds", "6", "--no-web") as demo:
        out, err = demo.communicate(timeout=45)
    assert (demo.returncode, err) == (0, "")
    assert out.startswith("five processes run three jobs")
    assert "http" not in out
    assert "kill -9" in out
    assert re.search(r"leads in term 2 \(dead: its host lock is free\), after [\d.]+ m?s without a leader", out)
    assert re.search(r"\d+ processes: [1-9] kills?, 0 freezes, [2-9] terms", out)
    assert re.search(r"two leaders at once: +0 times, by \d{3,} samples", out)
    due, done = map(int, re.search(r"^(\d+) due times of 3 jobs: (\d+) succeeded$", out, re.MULTILINE).groups())
    assert due == done > 25
    assert re.search(r"^effects committed with their run: +[4-9]$", out, re.MULTILINE)
    assert re.search(r"^late: +p50 .*, p99 .*, largest ", out, re.MULTILINE)
    assert re.search(r"^run twice: +0\nlost: +0$", out, re.MULTILINE)
    assert "\033" not in out
    left_nothing(tmp_path)


def test_on_postgres_in_a_schema_of_its_own(tmp_path, postgres, database):
    with start(tmp_path, "--seconds", "4", "--postgres", database) as demo:
        out, err = demo.communicate(timeout=45)
    assert (demo.returncode, err) == (0, "")
    assert re.search(r"1 kills?, 0 freezes, 2 terms", out)
    assert re.search(r"^run twice: +0\nlost: +0$", out, re.MULTILINE)
    assert (
        postgres.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'tenure%%'", dbname=database.rpartition("/")[2]
        )
        == []
    )
    left_nothing(tmp_path)


def test_its_page_shows_what_happens_and_lets_the_planner_resign(tmp_path):
    with start(tmp_path, "--seconds", "12") as demo:
        home = re.fullmatch(
            r"watch it in a browser: (http://127\.0\.0\.1:\d+)/ \(until the demo ends\)\n", demo.stdout.readline()
        )[1]
        planners = set()
        with Browser(home) as browser:

            def planner():
                found = browser.get("/api/v1/status").json()
                planners.update({found["planner"]["label"]} if found["planner"] else set())
                return len(planners) > 1 and {job["job"] for job in found["next"]} == {"tick", "second", "invoice"}

            scratch.eventually(planner, within=30, what="a second planner, after the first was killed")
            page = browser.get("/").text
            assert "Ask it to resign" in page
            assert browser.press("/do/resign").status_code == 303
            assert browser.press("/do/remove", job="tick", typed="tick").status_code == 403
            assert browser.press("/do/run-now", job="tick").status_code == 403
            assert browser.get("/", headers={"Host": "evil.example"}).status_code == 403
        out, err = demo.communicate(timeout=60)
    assert (demo.returncode, err) == (0, "")
    assert re.search(r"^run twice: +0\nlost: +0$", out, re.MULTILINE)
    with pytest.raises(httpx.ConnectError):
        httpx.get(home)
    left_nothing(tmp_path)


def test_without_the_extra_it_says_how_to_get_the_page_and_goes_on(tmp_path):
    code = (
        "import sys; sys.modules['jinja2'] = None\n"  # as if it were not installed
        "from tenure.cli import main; sys.exit(main(['demo', '--seconds', '2']))"
    )
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=45, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("without the page in a browser: pip install 'tenure[web]' to have it\nfive processes")
    assert re.search(r"^lost: +0$", done.stdout, re.MULTILINE)


def test_ctrl_c_ends_it_with_the_summary(tmp_path):
    with start(tmp_path) as demo:
        for line in demo.stdout:
            if "leads in term 1" in line:
                break
        demo.send_signal(signal.SIGINT)
        out, err = demo.communicate(timeout=45)
    assert (demo.returncode, err) == (0, "")
    assert "two leaders at once:" in out
    left_nothing(tmp_path)


def test_a_killed_demo_leaves_no_processes(tmp_path):
    with start(tmp_path) as demo:
        for line in demo.stdout:
            if "leads in term 1" in line:
                break
        nodes = scratch.children(demo.pid)
        assert len(nodes) == 5
        demo.kill()
    scratch.eventually(lambda: not any(map(scratch.running, nodes)), what="all nodes are gone")


@pytest.mark.parametrize(
    ("notes", "found"),
    [
        ([Note("a", "leads", 1, 1.0, 1.1), Note("a", "sample", 1, 2.0, 2.1), Note("b", "leads", 2, 2.05, 2.06)], []),
        (
            [
                Note("a", "leads", 1, 1.0, 1.1),
                Note("a", "sample", 1, 3.0, 3.1),
                Note("b", "leads", 2, 2.0, 2.1),
                Note("b", "sample", 2, 2.5, 2.6),
            ],
            ["a (term 1) and b (term 2) both led, for 0.400000 s"],
        ),
        (
            [Note("a", "leads", 2, 1.0, 1.1), Note("b", "leads", 2, 5.0, 5.1)],
            ["a (term 2) and b (term 2) both led, for 0.000000 s"],
        ),
        (
            [Note("a", "leads", 2, 1.0, 1.1), Note("b", "leads", 1, 5.0, 5.1)],
            ["b led in term 1 after a in term 2: terms must grow"],
        ),
    ],
)
def test_the_judge_finds_two_leaders(notes, found):
    assert judge(notes).overlaps == found


def body(label, key="08:00", *, job="tick", ended=True, frozen=False, attempt=1):
    return Body(label, job, key, attempt, 1.0, ended, frozen)


@pytest.mark.parametrize(
    ("bodies", "invoices", "found"),
    [
        ([body("a"), body("b", "08:01")], ["08:00"], []),
        ([body("a", ended=False), body("b", attempt=2)], [], []),
        ([body("a", frozen=True), body("b", attempt=2)], [], []),
        ([body("a"), body("b", attempt=2)], [], ["tick 08:00 was run by a and b"]),
        ([body("a"), body("b", job="second")], [], []),
        ([body("a", job="invoice")], ["08:00", "08:00"], ["the effect of invoice 08:00 is in the database 2 times"]),
    ],
)
def test_the_judge_finds_what_was_run_twice(bodies, invoices, found):
    assert judge_bodies(bodies, invoices).duplicates == found


@pytest.mark.parametrize(
    ("attempt", "said"),
    [
        (
            1,
            "2 called, 1 cut short by a kill (1 of them after their run was committed: these are done), 0 called again",
        ),
        (2, "2 called, 1 cut short by a kill, 0 called again"),
    ],
)
def test_a_body_that_was_killed_after_its_commit_is_said_to_be_done(attempt, said):
    killed, other = body("a", ended=False), body("b", "08:01")
    runs = [SimpleNamespace(job="tick", key="08:00", state="succeeded", attempt=attempt)]
    assert _calls(judge_bodies([killed, other], []), runs) == f"{said} on another node"


def left_nothing(folder: Path) -> None:
    assert list(folder.glob("tenure-demo-*")) == []
