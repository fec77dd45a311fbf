"""The judge of schedulers must notice what it is there to notice."""

import math

import pytest

from harness.chronicle import Blow, Line, due_times, judge, most_at_once
from tenure.ledger import JobId, RunId, RunKind, RunRow, RunState


def row(due, state=RunState.SUCCEEDED, *, attempt=1, losses=0, reason="", number=1):
    return RunRow(
        RunId(number),
        JobId(1),
        "tick",
        f"key {due}",
        RunKind.DUE,
        state,
        due,
        due,
        attempt,
        0,
        losses,
        "w0",
        reason=reason,
    )


def line(what, due, *, attempt=1, at=None, pid=1):
    return Line(what, "tick", f"key {due}", attempt, due, due + 0.01 if at is None else at, pid, f"w{pid}")


def body(due, **more):
    return [line("start", due, **more), line("end", due, **{**more, "at": more.get("at", due + 0.01) + 0.1})]


def judged(lines, rows, *, until=4.0, blows=(), may_skip=frozenset()):
    return judge(lines, rows, grid={"tick": 2.0}, since=2.0, until=until, blows=blows, may_skip=may_skip, wall=0.0)


def test_a_due_time_that_was_run_once():
    verdict = judged(body(2.0), [row(2.0)])
    assert verdict.problems == []
    assert (verdict.due, verdict.repeated, verdict.twice) == (1, 0, 0)
    assert verdict.lateness == [pytest.approx(0.01)]


@pytest.mark.parametrize(
    ("lines", "rows", "said"),
    [
        ([], [], "0 runs in the ledger"),
        (body(2.0), [row(2.0), row(2.0, number=2)], "2 runs in the ledger"),
        (body(2.0), [row(2.0, RunState.FAILED)], "did not succeed"),
        (body(2.0), [row(2.0, RunState.SKIPPED, reason="missed")], "did not succeed"),
        (body(2.0), [row(2.0, RunState.PENDING)], "did not succeed"),
        ([line("start", 2.0)], [row(2.0)], "no body of that attempt ended"),
        (body(2.0), [row(2.0, attempt=2)], "no body of that attempt ended"),
        (body(2.0) + body(2.0, pid=2, at=2.5), [row(2.0)], "began twice"),
        (body(2.0) + body(2.0, pid=2, at=2.5, attempt=2), [row(2.0, attempt=2)], "was not struck"),
        (body(2.0, at=1.5), [row(2.0)], "early"),
    ],
)
def test_what_must_not_be_is_named(lines, rows, said):
    (problem,) = {problem for problem in judged(lines, rows).problems if said in problem}
    assert problem.startswith("tick")


def test_an_attempt_in_the_hand_of_a_struck_process_may_be_repeated():
    lines = [line("start", 2.0), *body(2.0, pid=2, at=3.0, attempt=2)]
    assert judged(lines, [row(2.0, attempt=2, losses=1)], blows=[Blow(1, 2.05)]).problems == []
    assert judged(lines, [row(2.0, attempt=2, losses=1)], blows=[Blow(3, 2.05)]).problems
    assert judged(lines, [row(2.0, attempt=2, losses=1)], blows=[Blow(1, 0.5, 1.5)]).problems


def test_a_body_that_ended_twice_is_counted():
    lines = [*body(2.0), *body(2.0, pid=2, at=3.0, attempt=2)]
    verdict = judged(lines, [row(2.0, attempt=2, losses=1)], blows=[Blow(1, 2.2)])
    assert (verdict.problems, verdict.repeated, verdict.twice) == ([], 1, 1)
    assert (verdict.lateness, verdict.late_again) == ([], [pytest.approx(1.0)])


def test_a_due_time_may_be_skipped_where_that_is_the_policy():
    rows = [row(2.0, RunState.SKIPPED, reason="overlap")]
    assert judged([], rows, may_skip=frozenset({"tick"})).problems == []
    assert judged(body(2.0), rows, may_skip=frozenset({"tick"})).problems
    assert judged([], rows).problems


def test_the_grid_of_every():
    assert list(due_times(0.5, 10.2, 11.5)) == [10.5, 11.0]
    assert list(due_times(2.0, 2.0, 4.0)) == [2.0]


def test_how_many_ran_at_once():
    lines = [*body(2.0), *body(4.0, at=2.05, pid=2), *body(6.0, at=2.06, pid=3)]
    assert most_at_once(lines) == {"tick": 3}
    assert most_at_once(lines, [Blow(3, 2.06, math.inf)]) == {"tick": 2}
    assert most_at_once(lines[:1] + lines[4:]) == {"tick": 2}, "one without an end runs on"
