"""The judge of the peers counts right, and a cluster of ours that is struck loses nothing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.peers.judge import Grid, Line, judge, read, silence
from harness.components import need

PROGRAM = Path(__file__).resolve().parents[2] / "chaos" / "peers" / "peers.py"
GRID = Grid(["a"], 2, 100.0, 110.0)


def attempt(due, began, ended=None, job="a"):
    """The lines of one attempt."""
    lines = [Line("began", job, due, began, 1)]
    return lines if ended is None else [*lines, Line("ended", job, due, ended, 1)]


def test_each_due_time_is_counted_in_one_way():
    lines = [
        *attempt(100.0, 100.1, 100.2),
        *attempt(102.0, 102.1),
        *attempt(102.0, 105.0, 105.1),
        *attempt(104.0, 104.1, 104.2),
        *attempt(104.0, 104.3, 104.4),
        *attempt(106.0, 106.5),
        *attempt(110.0, 110.1, 110.2),
    ]
    tally = judge(lines, GRID)
    assert (tally.due, tally.once, tally.repeated, tally.twice, tally.lost, tally.cut) == (5, 1, 1, 1, 2, 1)
    assert tally.strange == 0
    assert sorted(tally.lateness) == pytest.approx([0.1, 0.1, 0.1, 0.5])


def test_a_due_time_that_no_job_has_is_told():
    lines = [*attempt(101.0, 101.1, 101.2), *attempt(102.0, 102.1, 102.2, job="b")]
    assert judge(lines, GRID).strange == 2


def test_a_grid_ends_before_its_end():
    assert Grid(["a", "b"], 2, 100.0, 104.0).points() == {("a", 100.0), ("a", 102.0), ("b", 100.0), ("b", 102.0)}
    assert Grid(["a"], 2, 100.0, 100.0).points() == set()


def test_a_body_that_is_not_told_its_due_time_worked_for_the_last_one():
    told = {"what": "ended", "job": "a", "due": 98, "asked": 13.9, "at": 14.1, "pid": 1}
    silent, early = told | {"due": None}, told | {"due": None, "asked": 13.97}
    lines = read("\n".join(map(json.dumps, (told, silent, early))), 2, 90.0)
    assert [line.due for line in lines] == [98, 102.0, 104.0]
    assert {line.at for line in lines} == {104.1}


def test_silence_lasts_until_every_job_has_begun_again():
    before, a, b = attempt(102.0, 104.5), attempt(104.0, 104.6), attempt(106.0, 107.0, job="b")
    assert silence([*before, *a, *b], ["a", "b"], 2, 103.0) == pytest.approx(3.0)
    assert silence([*before, *a], ["a", "b"], 2, 103.0) is None


@pytest.mark.timeout(120)
def test_ours_is_struck_and_loses_nothing(tmp_path):
    need("postgres")
    page = tmp_path / "peers.md"
    command = [sys.executable, PROGRAM, "--only", "tenure", "--minutes-each", "0.05", "--seed", "1", "--report", page]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    text = page.read_text()
    struck, calm = (line.split(" | ") for line in text.splitlines() if line.startswith("| tenure"))
    assert int(struck[1]) > 0, done.stdout
    assert struck[5] == calm[5] == "0", done.stdout
    assert "- Faults: 1 " in text
