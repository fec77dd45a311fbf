"""Due times, failovers and pauses are counted under the blow that they belong to."""

from dataclasses import replace

import pytest

from harness.chronicle import Fate, Line, Verdict
from harness.tallies import CALM, Fault, Tally, Term, failovers, resumptions, tallies


def fate(due, at, **more):
    started = Line("start", "tick", f"key {due}", 1, due, at, 1, "w0")
    return Fate("tick", due, **{"state": "ran", "began": (started,), "at": at, "late": at - due, "attempt": 1, **more})


def kill(at, *, planner=False):
    return Fault("kill -9", "w0", at, on_worker=True, on_planner=planner)


RESTART = Fault("database restart", "database", 5.0)


def test_due_times_are_counted_under_the_last_blow_before_they_began():
    fates = [fate(1.0, 1.01), fate(2.0, 3.2), fate(4.0, 4.3), fate(6.0, 6.01)]
    found = tallies(Verdict(fates), [kill(3.0), RESTART], [], 0.0)
    assert {kind: tally.due for kind, tally in found.items()} == {CALM: 1, "kill -9": 2, "database restart": 1}
    assert found["kill -9"].over(0.1) == 2
    assert found["kill -9"].faults == 1


def test_what_was_repeated_is_counted_under_what_hit_it():
    first = Line("start", "tick", "key", 1, 2.0, 2.01, 1, "w0")
    again = fate(2.0, 6.0, attempt=2, causes=("kill -9",))
    again = Fate(again.job, 2.0, "ran", (first, *again.began), 6.0, 4.0, 2, ("kill -9",))
    found = tallies(Verdict([again]), [kill(3.0), RESTART], [], 0.0)["kill -9"]
    assert (found.due, found.repeated, found.lateness, found.late_again) == (1, 1, [], [4.0])


def test_what_was_lost_or_doubled_is_counted_where_it_was_due():
    lost = Fate("tick", 3.5, "lost")
    found = tallies(Verdict([lost, fate(6.0, 6.1, state="doubled")]), [kill(3.0), RESTART], [], 0.0)
    assert (found["kill -9"].lost, found["database restart"].doubled) == (1, 1)


def test_a_failover_is_from_the_blow_to_the_next_term():
    terms = [Term("w0", 0.0, 3.0), Term("w1", 3.4, 9.0)]
    assert list(failovers([kill(3.0, planner=True)], terms)) == [(kill(3.0, planner=True), pytest.approx(0.4))]
    assert not list(failovers([kill(3.0)], terms)), "it did not plan"
    alone = replace(kill(3.0, planner=True), alone=True)
    assert not list(failovers([alone], terms)), "nobody was there to follow"
    held = kill(2.0, planner=True)
    assert [fault for fault, _ in failovers([held, kill(3.0, planner=True)], terms)] != [held], "it went on planning"
    after = [kill(2.0, planner=True), Fault("database restart", "database", 2.5)]
    assert not list(failovers(after, terms)), "the restart may have ended the term"


def test_work_goes_on_with_the_first_body_of_a_later_due_time():
    fates = [fate(2.9, 3.05), fate(3.5, 5.5), fate(4.0, 4.1)]
    assert list(resumptions([kill(3.0)], fates)) == [(kill(3.0), pytest.approx(0.6))]
    assert not list(resumptions([kill(8.0)], fates))
    assert len(list(resumptions([kill(3.0), kill(3.7)], fates))) == 2
    away = Fault("database restart", "database", 3.7)
    assert [fault for fault, _ in resumptions([kill(3.0), away], fates)] == [away], "that one kept them all waiting"


def test_tallies_add_up():
    tally = Tally(faults=1, due=2, lateness=[0.1])
    tally += Tally(faults=2, due=3, lost=1, lateness=[0.3], failovers=[0.2])
    assert (tally.faults, tally.due, tally.lost, tally.lateness, tally.failovers) == (3, 5, 1, [0.1, 0.3], [0.2])
