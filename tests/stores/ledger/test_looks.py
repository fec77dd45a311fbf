"""Looks: attempts whose bodies raised `NotYet`. They have numbers and tokens, and count as neither failures nor losses."""

import pytest

from tenure.core.keys import due_key
from tenure.core.records import Change, RunState

DAY = 86400.0


def look(worker, run, at, *, pause=60.0, wait_up_to=DAY, took=1.0, why="file not there"):
    """The body that was called at this instant has raised `NotYet`."""
    return worker.finish(
        run.id, RunState.PENDING, error=why, again_in=pause, started_at=at, finished_at=at + took, wait_up_to=wait_up_to
    )


def test_a_look_is_an_attempt_of_its_own_and_neither_a_failure_nor_a_loss(scene, worker):
    scene.add("job", 60, retries=0, max_lost=1)
    run = worker.take()
    ended = look(worker, run, scene.at(60), pause=20.0)
    assert (ended.accepted, ended.state) == (True, RunState.PENDING)
    row = scene.run(run.id)
    assert (row.attempt, row.failures, row.losses, row.interruptions) == (1, 0, 0, 0)
    assert (row.looks, row.last_look, row.looking_since) == (1, 1, scene.at(60))
    assert (row.due_at, row.reason, row.node) == (scene.at(39), "file not there", "a worker")
    assert row.looking
    first = worker.tokens[run.id]
    again = worker.take()
    assert (again.id, again.attempt, again.failures) == (run.id, 2, 0)
    assert worker.tokens[run.id] != first
    assert not scene.run(run.id).looking, "this attempt has not raised anything"


def test_looks_are_counted_and_the_first_is_remembered(scene, worker):
    scene.add("job", 600)
    for number in range(1, 6):
        run = worker.take()
        assert run.attempt == number
        look(worker, run, scene.at(600 - 60 * number), pause=1.0, why=f"look {number}")
    row = scene.run(run.id)
    assert (row.looks, row.last_look, row.attempt) == (5, 5, 5)
    assert (row.looking_since, row.reason) == (scene.at(540), "look 5")
    assert len(scene.runs()) == 1
    assert worker.take().attempt == 6
    worker.finish(run.id)
    row = scene.run(run.id)
    assert (row.state, row.looks, row.looking, row.reason) == (RunState.SUCCEEDED, 5, False, "")


def test_what_looked_is_not_claimed_before_its_next_look_and_never_expires(scene, worker):
    scene.add("job")
    scene.plan("job", scene.expiring(60))
    run = worker.take()
    look(worker, run, scene.start, pause=3600.0)
    scene.wait_for_expiry()
    claimed = worker.claim()
    assert (claimed.runs, claimed.missed) == ((), False)
    assert claimed.next_at == pytest.approx(scene.start + 3601, abs=1e-5)
    assert scene.ledger.missed(scene.application, 10) == []


def test_the_last_look_is_when_the_wait_is_over(scene, worker):
    scene.add("job", 600)
    run = worker.take()
    look(worker, run, scene.at(500), pause=300.0, wait_up_to=100.0)
    assert scene.run(run.id).due_at == scene.at(400), "not 199 s ago"
    run = worker.take()
    ended = look(worker, run, scene.at(400), wait_up_to=100.0)
    assert (ended.accepted, ended.state) == (True, RunState.FAILED)
    row = scene.run(run.id)
    assert (row.state, row.reason) == (RunState.FAILED, "gave up waiting: file not there")
    assert (row.looks, row.last_look, row.failures, row.attempt) == (2, 2, 0, 2)
    assert row.finished_at == scene.at(399)
    assert worker.claim().runs == ()


def test_a_look_that_ends_in_time_is_not_the_last(scene, worker):
    scene.add("job", 600)
    look(worker, worker.take(), scene.at(500), pause=1.0, wait_up_to=100.0)
    run = worker.take()
    assert look(worker, run, scene.at(402), took=1.9, wait_up_to=100.0).state is RunState.PENDING
    assert scene.run(run.id).due_at == scene.at(400)


def test_looks_and_failures_are_counted_apart(scene, worker):
    scene.add("job", 600, retries=1)
    run = worker.take()
    look(worker, run, scene.at(500), pause=1.0)
    run = worker.take()
    worker.finish(
        run.id, RunState.PENDING, error="boom", again_in=1.0, started_at=scene.at(400), finished_at=scene.at(400)
    )
    row = scene.run(run.id)
    assert (row.failures, row.looks, row.last_look, row.looking) == (1, 1, 1, False), "it waits for its retry"
    assert worker.take().failures == 1
    look(worker, run, scene.at(300), pause=1.0)
    row = scene.run(run.id)
    assert (row.failures, row.looks, row.last_look, row.looking_since) == (1, 2, 3, scene.at(500))


def test_an_attempt_that_did_not_begin_is_no_look(scene, worker):
    scene.add("job", 600)
    run = worker.take()
    look(worker, run, scene.at(500), pause=1.0)
    worker.finish(worker.take().id, RunState.PENDING)
    row = scene.run(run.id)
    assert (row.attempt, row.looks, row.looking) == (1, 1, True)
    assert worker.take().attempt == 2


def test_a_node_that_dies_between_looks_costs_one_loss(scene, worker):
    scene.add("job", 600, max_lost=2)
    run = worker.take()
    look(worker, run, scene.at(500), pause=1.0)
    gone = scene.worker()
    assert gone.take().attempt == 2
    gone.session.declare(gone.id, None, "it died")
    assert [lost.state for lost in worker.reconcile().lost] == [RunState.PENDING]
    row = scene.run(run.id)
    assert (row.looks, row.losses, row.looking) == (1, 1, False)


def test_between_looks_a_run_keeps_the_place_of_its_job(scene, worker):
    scene.add("job", 600, 500, overlap="wait")
    (run,) = worker.claim().runs
    look(worker, run, scene.at(400), pause=3600.0)
    assert worker.claim().runs == ()
    assert scene.told() == ["pending(file not there)", "waiting"]


def test_looking_run_that_was_requested_to_end_is_cancelled(scene, worker):
    scene.add("job", 60)
    run = worker.take()
    scene.ledger.cancel(run.id, "ops", "not needed")
    assert look(worker, run, scene.start).state is RunState.CANCELLED
    assert "not needed" in scene.run(run.id).reason


def test_a_looking_run_can_be_cancelled_between_looks(scene, worker):
    scene.add("job", 60)
    run = worker.take()
    look(worker, run, scene.start)
    assert scene.ledger.cancel(run.id, "ops", "").state is RunState.CANCELLED


def test_a_look_of_a_removed_job_is_its_last(scene, worker):
    scene.add("job", 60)
    run = worker.take()
    scene.remove()
    assert look(worker, run, scene.start).state is RunState.CANCELLED
    assert scene.told() == ["cancelled(removed)"]


def test_a_pause_lets_a_looking_run_wait(scene, worker):
    scene.add("job", 60)
    run = worker.take()
    scene.pause()
    assert look(worker, run, scene.at(30), pause=1.0).state is RunState.PENDING
    assert worker.claim().runs == ()
    scene.resume()
    assert worker.take().attempt == 2


def test_a_look_of_an_old_attempt_changes_nothing(scene, worker):
    scene.add("job", 60)
    run = worker.take()
    gone = worker.tokens[run.id]
    worker.finish(run.id, RunState.PENDING)
    worker.take()
    worker.tokens[run.id] = gone
    assert not look(worker, run, scene.start).accepted
    assert scene.run(run.id).looks == 0


def test_looks_and_other_endings_in_one_batch(scene, worker):
    for name in "abcd":
        scene.add(name, 60)
    runs = {run.name: run for run in worker.claim().runs}
    at = {"started_at": scene.at(50), "finished_at": scene.at(50)}
    endings = [
        worker.ending(runs["a"].id, RunState.PENDING, error="not there", again_in=5.0, wait_up_to=DAY, **at),
        worker.ending(runs["b"].id, RunState.PENDING, error="boom", again_in=5.0, **at),
        worker.ending(runs["c"].id, RunState.SUCCEEDED, **at),
        worker.ending(runs["d"].id, RunState.PENDING),
    ]
    ended = scene.ledger.finish(endings)
    assert [one.state for one in ended] == ["pending", "pending", "succeeded", "pending"]
    rows = [scene.run(runs[name].id) for name in "abcd"]
    assert [(row.attempt, row.failures, row.looks) for row in rows] == [(1, 0, 1), (1, 1, 0), (1, 0, 0), (0, 0, 0)]


def test_a_backfill_begins_with_no_looks(scene, worker):
    scene.add("job", 60)
    run = worker.take()
    look(worker, run, scene.start)
    scene.ledger.cancel(run.id, "ops", "")
    again = scene.ask(key=due_key(scene.at(60)), scheduled_for=scene.at(60), backfill=True)
    assert (again.id, again.looks, again.looking_since, again.last_look, again.looking) == (run.id, 0, None, 0, False)


def test_a_new_definition_keeps_the_looks(scene, worker):
    scene.add("job", 60)
    run = worker.take()
    look(worker, run, scene.at(30), pause=1.0)
    scene.change(Change.UPDATED, spec=scene.spec(retries=3), next_due=scene.start + 3600)
    assert (scene.run(run.id).looks, worker.take().attempt) == (1, 2)
