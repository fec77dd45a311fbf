"""The judge of schedulers must notice what it is there to notice, from what bodies wrote alone."""

import math

import pytest

from harness.chronicle import Blow, Grid, Line, Row, disagreements, due_times, judge, most_at_once
from tenure.core.records import JobId, RunId, RunKind, RunRow, RunState

IN_TABLE = Grid(2.0, in_table=True)
IN_FILE = Grid(2.0)
SKIPS = Grid(2.0, in_table=True, may_skip=True)


def line(what, due, *, attempt=1, at=None, pid=1):
    return Line(what, "tick", f"key {due}", attempt, due, due + 0.01 if at is None else at, pid, f"w{pid}")


def body(due, **more):
    return [line("start", due, **more), line("end", due, **{**more, "at": more.get("at", due + 0.01) + 0.1})]


def row(due, attempt=1):
    return Row("tick", due, f"key {due}", attempt)


def judged(lines, rows=(), grid=IN_TABLE, *, until=4.0, blows=()):
    return judge(lines, rows, grids={"tick": grid}, since=2.0, until=until, blows=blows, wall=0.0)


def test_a_due_time_that_was_run_once():
    verdict = judged(body(2.0), [row(2.0)])
    assert verdict.problems == []
    assert (verdict.due, verdict.repeated, dict(verdict.states)) == (1, 0, {"ran": 1})
    assert verdict.lateness == [pytest.approx(0.01)]


@pytest.mark.parametrize(
    ("lines", "rows", "said", "state"),
    [
        ([], [], "lost: nothing in the table", "lost"),
        (body(2.0), [], "lost: nothing in the table", "lost"),
        ([line("start", 2.0)], [], "lost: nothing in the table", "lost"),
        (body(2.0), [row(2.0), row(2.0)], "doubled: 2 rows", "doubled"),
        (body(2.0), [row(2.0), row(2.0, 2)], "doubled: 2 rows", "doubled"),
        (body(2.0) + body(2.0, pid=2, at=2.5), [row(2.0)], "no blow hit", "doubled"),
        (body(2.0) + body(2.0, pid=2, at=2.5, attempt=2), [row(2.0, 2)], "no blow hit", "doubled"),
        (body(2.0), [row(2.0, 2)], "no body of it began", "ran"),
        (body(2.0, at=1.5), [row(2.0)], "early", "ran"),
    ],
)
def test_what_must_not_be_is_named(lines, rows, said, state):
    verdict = judged(lines, rows)
    (problem,) = {problem for problem in verdict.problems if said in problem}
    assert problem.startswith("tick at 2.000")
    assert [fate.state for fate in verdict.fates] == [state]


@pytest.mark.parametrize(("lines", "rows"), [(body(3.0), []), ([], [row(3.0)])])
def test_a_body_where_nothing_was_due_is_named(lines, rows):
    (problem,) = judged([*body(2.0), *lines], [row(2.0), *rows]).problems
    assert problem == "tick at 3.000: a body, and nothing was due"


def test_a_body_in_the_hand_of_a_struck_process_may_be_repeated():
    lines = [line("start", 2.0), *body(2.0, pid=2, at=3.0, attempt=2)]
    rows = [row(2.0, 2)]
    verdict = judged(lines, rows, blows=[Blow(1, 2.05, kind="kill -9")])
    assert (verdict.problems, verdict.repeated) == ([], 1)
    assert verdict.fates[0].causes == ("kill -9",)
    assert (verdict.lateness, verdict.late_again) == ([], [pytest.approx(1.0)])
    assert judged(lines, rows, blows=[Blow(3, 2.05)]).problems, "another process was struck"
    assert judged(lines, rows, blows=[Blow(1, 0.5, 1.5)]).problems, "it was struck before"


def test_a_blow_does_not_excuse_two_effects():
    lines = [*body(2.0), *body(2.0, pid=2, at=3.0, attempt=2)]
    verdict = judged(lines, [row(2.0), row(2.0, 2)], blows=[Blow(1, 2.05)])
    assert [fate.state for fate in verdict.fates] == ["doubled"]
    assert verdict.problems


def test_one_attempt_that_began_twice_is_doubled_whatever_was_struck():
    lines = [*body(2.0), *body(2.0, pid=2, at=3.0)]
    assert judged(lines, [row(2.0)], blows=[Blow(1, 2.05)]).states == {"doubled": 1}


def test_a_job_without_a_table_is_judged_by_its_lines():
    assert judged(body(2.0), grid=IN_FILE).problems == []
    assert judged([line("start", 2.0)], grid=IN_FILE).states == {"lost": 1}
    again = [*body(2.0), *body(2.0, pid=2, at=3.0, attempt=2)]
    assert judged(again, grid=IN_FILE).states == {"doubled": 1}
    verdict = judged(again, grid=IN_FILE, blows=[Blow(1, 2.2)])
    assert (verdict.states, verdict.repeated) == ({"ran": 1}, 1)


def test_a_due_time_may_be_skipped_while_an_earlier_one_is_under_way():
    slow = [line("start", 2.0), line("end", 2.0, at=4.5)]
    assert judged(slow, [row(2.0)], SKIPS, until=6.0).states == {"ran": 1, "skipped": 1}
    assert judged(slow, [row(2.0)], IN_TABLE, until=6.0).states == {"ran": 1, "lost": 1}
    after = [*body(2.0), Line("start", "other", "key", 1, 5.0, 5.0, 9, "w9")]
    assert judged(after, [row(2.0)], SKIPS, until=6.0).states == {"ran": 1, "lost": 1}, "nothing was under way"
    late = body(4.0, at=4.3)
    assert judged(late, [row(4.0)], SKIPS, until=6.0).states == {"ran": 1, "skipped": 1}, "two were late together"
    other = Line("start", "other", "key", 1, 3.0, 3.0, 9, "w9")
    assert judged([*late, other], [row(4.0)], SKIPS, until=6.0).states == {"ran": 1, "lost": 1}, "others went on"
    began = [*slow, line("start", 4.0)]
    assert judged(began, [row(2.0)], SKIPS, until=6.0).states == {"ran": 1, "lost": 1}, "it began"


def test_a_spread_is_not_lateness():
    (fate,) = judged(body(2.0, at=2.8), [row(2.0)], Grid(2.0, spread=0.7, in_table=True)).fates
    assert fate.late == pytest.approx(0.1)


def run(due, state=RunState.SUCCEEDED, *, attempt=1, number=1, reason=""):
    known = (RunId(number), JobId(1), "tick", f"key {due}", RunKind.DUE, state, due, due, attempt, 0, 0, "w0")
    return RunRow(*known, reason=reason)


def test_a_ledger_that_agrees():
    assert list(disagreements(judged(body(2.0), [row(2.0)]), [run(2.0)])) == []


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([], "0 runs"),
        ([run(2.0), run(2.0, number=2)], "2 runs"),
        ([run(2.0, RunState.FAILED)], "failed"),
        ([run(2.0, RunState.SKIPPED, reason="missed")], "skipped(missed)"),
        ([run(2.0, attempt=2)], "attempt 2 in the ledger"),
    ],
)
def test_a_ledger_that_says_anything_else_is_named(runs, said):
    (problem,) = disagreements(judged(body(2.0), [row(2.0)]), runs)
    assert said in problem


def test_the_grid_of_every():
    assert list(due_times(0.5, 10.2, 11.5)) == [10.5, 11.0]
    assert list(due_times(2.0, 2.0, 4.0)) == [2.0]


def test_how_many_ran_at_once():
    lines = [*body(2.0), *body(4.0, at=2.05, pid=2), *body(6.0, at=2.06, pid=3)]
    assert most_at_once(lines) == {"tick": 3}
    assert most_at_once(lines, [Blow(3, 2.06, math.inf)]) == {"tick": 2}
    assert most_at_once(lines[:1] + lines[4:]) == {"tick": 2}, "one without an end runs on"
