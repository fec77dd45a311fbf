"""What an open run waits for, and why one that runs should have ended."""

from dataclasses import replace
from datetime import UTC

import pytest

from ledgers import HOUR, NOON, run
from tenure.core.records import Rules, RunState
from tenure.core.waits import should_have_ended, waits_for

ALONE, THREE = Rules(), Rules(max_running=3)


def waits(*ahead, rules=ALONE):
    return waits_for(run(NOON + HOUR, RunState.WAITING), UTC, rules, ahead)


def test_it_names_the_run_that_has_the_place_of_its_job():
    one = run(NOON, RunState.RUNNING)
    assert waits(one) == f"run {one.id} to end, as its job has only one run at a time (max_running=1)"


def test_of_few_runs_each_is_named_and_of_many_their_number():
    ahead = [run(NOON + second, RunState.RUNNING) for second in range(3)]
    one, two, three = (one.id for one in ahead)
    rule = ", as its job has at most 3 runs at a time (max_running=3)"
    assert waits(*reversed(ahead), rules=THREE) == f"run {one}, {two} or {three} to end{rule}"
    assert waits(*ahead, run(NOON, RunState.RUNNING), rules=THREE) == f"one of 4 runs of its job to end{rule}"


@pytest.mark.parametrize(
    ("state", "more", "counts"),
    [
        (RunState.PENDING, {"attempt": 1}, True),  # between two attempts
        (RunState.PENDING, {"attempt": 0}, False),
        (RunState.WAITING, {"pool": "warehouse"}, True),
        (RunState.WAITING, {}, False),
        (RunState.SUCCEEDED, {}, False),
    ],
)
def test_the_runs_that_have_a_place_are_those_that_max_running_counts(state, more, counts):
    one = run(NOON, state, **more)
    assert (f"run {one.id} to end" in waits(one)) is counts
    assert counts or waits(one).startswith("a run of its job to end")


def test_runs_of_other_jobs_and_pools_are_not_in_the_way():
    other = replace(run(NOON, RunState.RUNNING), job=7)
    assert waits(other).startswith("a run of its job to end")
    pooled = run(NOON, RunState.WAITING, pool="warehouse")
    assert waits_for(pooled, UTC, ALONE, [run(NOON, RunState.RUNNING)]) == "a place in the pool 'warehouse'"


TIMEOUT = Rules(timeout=2.0)
RETURNED = "it was asked to end and has not returned"


def test_a_timeout_that_has_passed_says_how_long_ago():
    one = run(NOON, RunState.RUNNING, claimed_at=NOON, started_at=NOON + 1)
    assert should_have_ended(one, TIMEOUT, NOON + 14) == f"its timeout of 2.0 s passed 11.0 s ago; {RETURNED}"
    assert not should_have_ended(one, TIMEOUT, NOON + 2.9)
    assert not should_have_ended(one, TIMEOUT, NOON + 3.5), "its ending may be on its way"
    assert not should_have_ended(one, Rules(), NOON + 1e6)


def test_a_timeout_counts_from_the_claim_while_the_ledger_has_not_heard_when_the_body_began():
    one = run(NOON, RunState.RUNNING, claimed_at=NOON)
    assert should_have_ended(one, TIMEOUT, NOON + 13) == f"its timeout of 2.0 s passed 11.0 s ago; {RETURNED}"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("cancelled by ops", "cancelled by ops"),
        ("wrong file (by ops)", "cancelled: wrong file (by ops)"),
        ("replaced", "replaced"),
    ],
)
def test_a_request_to_end_says_why_and_comes_before_the_timeout(said, told):
    one = run(NOON, RunState.RUNNING, claimed_at=NOON, asked_to_end=said)
    assert should_have_ended(one, TIMEOUT, NOON + 100) == f"{told}; {RETURNED}"


@pytest.mark.parametrize("state", [state for state in RunState if state is not RunState.RUNNING])
def test_only_a_run_that_runs_should_have_ended(state):
    one = run(NOON, state, claimed_at=NOON, started_at=NOON, asked_to_end="cancelled by ops")
    assert should_have_ended(one, TIMEOUT, NOON + 100) == ""
