"""Attempts that the stop of their node has interrupted: they are spent, they are no losses, and under `on_lost='fail'`
they are the last."""

import pytest

from tenure.core.keys import due_key
from tenure.core.records import STOPPED, RunState


def test_an_interrupted_attempt_keeps_its_number_and_its_place(scene, worker):
    scene.add("job", 60)
    run = worker.take()
    ended = worker.interrupt(run.id, scene.start)
    assert (ended.accepted, ended.state) == (True, RunState.PENDING)
    row = scene.run(run.id)
    assert (row.attempt, row.interruptions, row.losses, row.failures) == (1, 1, 0, 0)
    assert (row.reason, row.node, row.due_at) == (STOPPED, "a worker", run.due_at)
    assert worker.take().attempt == 2


def test_what_was_interrupted_never_expires(scene, worker):
    scene.add("job")
    scene.plan("job", scene.expiring(60))
    run = worker.take()
    worker.interrupt(run.id, scene.start)
    scene.wait_for_expiry()
    assert scene.ledger.missed(scene.application, 10) == []
    assert worker.take().id == run.id


def test_what_was_put_back_unbegun_does_not_spend_its_number(scene, worker):
    scene.add("job", 60)
    first = worker.take()
    worker.interrupt(first.id, scene.start)
    worker.finish(worker.take().id, RunState.PENDING)
    row = scene.run(first.id)
    assert (row.attempt, row.interruptions, row.reason) == (1, 1, "")
    assert worker.take().attempt == 2


@pytest.mark.parametrize("retries", [0, 5])
def test_under_on_lost_fail_an_interruption_is_the_end(scene, worker, retries):
    scene.add("job", 60, on_lost="fail", retries=retries)
    run = worker.take()
    ended = worker.interrupt(run.id, scene.start)
    assert (ended.accepted, ended.state) == (True, RunState.LOST)
    row = scene.run(run.id)
    assert (row.state, row.reason, row.attempt) == (RunState.LOST, STOPPED, 1)
    assert (row.interruptions, row.losses) == (1, 0)
    assert row.finished_at is not None
    assert worker.claim().runs == ()


def test_what_never_began_goes_back_under_on_lost_fail_too(scene, worker):
    scene.add("job", 60, on_lost="fail")
    run = worker.take()
    assert worker.finish(run.id, RunState.PENDING).state is RunState.PENDING
    assert worker.take().attempt == 1


def test_interruptions_of_many_endings_are_told_apart(scene, worker):
    for name, on_lost in (("a", "retry"), ("b", "fail"), ("c", "fail")):
        scene.add(name, 60, on_lost=on_lost)
    runs = {run.name: run for run in worker.claim().runs}
    endings = [
        worker.ending(runs["a"].id, RunState.PENDING, started_at=scene.start),
        worker.ending(runs["b"].id, RunState.PENDING, started_at=scene.start),
        worker.ending(runs["c"].id, RunState.PENDING),
    ]
    assert [ended.state for ended in scene.ledger.finish(endings)] == [
        RunState.PENDING,
        RunState.LOST,
        RunState.PENDING,
    ]
    assert [scene.run(runs[name].id).attempt for name in "abc"] == [1, 1, 0]


def test_what_was_asked_to_end_is_cancelled_by_an_interruption(scene, worker):
    scene.add("job", 60)
    run = worker.take()
    scene.ledger.cancel(run.id, "ops", "wrong data")
    assert worker.interrupt(run.id, scene.start).state is RunState.CANCELLED
    assert "wrong data" in scene.run(run.id).reason


def test_an_interrupted_run_of_a_removed_job_is_lost(scene, worker):
    scene.add("job", 60)
    run = worker.take()
    scene.remove()
    assert worker.interrupt(run.id, scene.start).state is RunState.LOST
    assert scene.run(run.id).reason == STOPPED


# A node that was asked to stop and is gone before its runs have ended


def test_a_stop_that_was_asked_for_never_counts_as_a_loss(scene, worker):
    scene.add("job", 60, max_lost=1)
    for number in (1, 2, 3):
        gone = scene.worker(f"node {number}")
        run = gone.take()
        assert run.attempt == number
        assert [held.id for held in gone.reconcile(stopping=True).held] == [run.id]
        assert scene.run(run.id).stopping
        gone.session.declare(gone.id, None, "its process ended")
        (lost,) = worker.reconcile().lost
        assert (lost.state, lost.reason) == (RunState.PENDING, STOPPED)
    row = scene.run(run.id)
    assert (row.interruptions, row.losses, row.reason, row.stopping) == (3, 0, STOPPED, False)
    last = worker.take()
    worker.session.declare(worker.id, None, "it died")
    (lost,) = scene.worker().reconcile().lost
    assert (lost.id, lost.state, lost.reason) == (last.id, RunState.LOST, "its node died"), "that was none"


def test_under_on_lost_fail_a_stop_that_did_not_wait_is_the_end(scene, worker):
    scene.add("job", 60, on_lost="fail")
    gone = scene.worker()
    run = gone.take()
    gone.reconcile(stopping=True)
    gone.session.declare(gone.id, None, "its process ended")
    assert [lost.state for lost in worker.reconcile().lost] == [RunState.LOST]
    row = scene.run(run.id)
    assert (row.reason, row.losses, row.interruptions) == (STOPPED, 0, 1)


def test_the_mark_of_a_stop_is_that_of_one_node_and_one_attempt(scene, worker):
    scene.add("a", 60)
    scene.add("b", 60)
    other = scene.worker("other")
    (mine,) = worker.claim(1).runs
    (its,) = other.claim(1).runs
    worker.reconcile(stopping=True)
    assert (scene.run(mine.id).stopping, scene.run(its.id).stopping) == (True, False)
    worker.finish(mine.id, RunState.PENDING, again_in=0.0, started_at=scene.start - 1, finished_at=scene.start - 1)
    again = other.take()
    assert again.id == mine.id
    assert not scene.run(mine.id).stopping, "the next attempt is on a node that goes on"


def test_an_ending_beside_the_mark_of_a_stop_stands(scene, worker):
    scene.add("job", 60)
    run = worker.take()
    worker.reconcile(stopping=True)
    assert worker.finish(run.id).accepted
    assert scene.run(run.id).state is RunState.SUCCEEDED
    assert not scene.run(run.id).stopping


def test_a_backfill_of_what_a_stop_cancelled_is_lost_like_any_other(scene, worker):
    scene.add("job", 60, max_lost=1)
    run = worker.take()
    worker.reconcile(stopping=True)
    assert worker.finish(run.id, RunState.CANCELLED).accepted
    assert not scene.run(run.id).stopping
    reopened = scene.ask(key=due_key(scene.at(60)), scheduled_for=scene.at(60), backfill=True)
    assert (reopened.id, reopened.stopping) == (run.id, False)
    gone = scene.worker()
    assert gone.take().id == run.id
    gone.session.declare(gone.id, None, "it died")
    assert [(lost.state, lost.reason) for lost in worker.reconcile().lost] == [(RunState.LOST, "its node died")]
