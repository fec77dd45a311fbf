"""Reconciliation: what nodes have in hand, and what becomes of the runs of those that are gone."""

import pytest

from tenure.core.messages import Held
from tenure.core.records import RunState


def _gone(scene, worker, how):
    match how:
        case "dead":
            assert scene.session.declare(worker.id, None, "its host lock is free")
        case "left":
            worker.session.leave(worker.id, "left")


def test_a_reconciliation_lists_what_this_node_has(scene, worker):
    scene.add("job", 60, 50, 40, max_running=3)
    first, second = worker.claim(limit=2).runs
    other = scene.worker()
    third = other.take()
    call = worker.reconcile()
    assert set(call.held) == {Held(run.id, worker.tokens[run.id]) for run in (first, second)}
    assert call.lost == ()
    assert scene.start - 1 < call.now <= scene.ledger.now()
    assert other.reconcile().held == (Held(third.id, other.tokens[third.id]),)
    worker.finish(first.id)
    assert [held.id for held in worker.reconcile().held] == [second.id]


def test_only_this_application_is_called(scene, worker):
    scene.add("job", 60)
    dead = scene.worker()
    dead.take()
    _gone(scene, dead, "dead")
    worker.application += " too"
    assert worker.reconcile().lost == ()
    assert scene.told() == ["running"]


@pytest.mark.parametrize("how", ["dead", "left"])
def test_the_run_of_a_node_that_is_gone_is_tried_again(scene, worker, how):
    scene.add("job", 60)
    gone = scene.worker("the dead one")
    run = gone.take()
    _gone(scene, gone, how)
    (lost,) = worker.reconcile().lost
    assert (lost.id, lost.job, lost.key, lost.scheduled_for) == (run.id, "job", run.key, scene.start - 60)
    assert (lost.attempt, lost.node, lost.label, lost.state) == (1, gone.id, "the dead one", RunState.PENDING)
    row = scene.run(run.id)
    assert (row.state, row.attempt, row.failures, row.losses) == (RunState.PENDING, 1, 0, 1)
    assert row.due_at == scene.start - 60, "past, whatever the clock says now"
    assert worker.reconcile().lost == (), "once"
    again = worker.take()
    assert (again.id, again.attempt) == (run.id, 2)
    late = gone.finish(run.id)
    assert (late.accepted, late.state) == (False, RunState.RUNNING)
    assert worker.finish(run.id).accepted


def test_the_run_of_a_node_without_a_row_is_tried_again(scene, worker, forget_node):
    scene.add("job", 60)
    gone = scene.worker()
    run = gone.take()
    forget_node(gone)
    (lost,) = worker.reconcile().lost
    assert (lost.id, lost.state) == (run.id, RunState.PENDING)


def test_the_runs_of_live_nodes_are_left(scene, worker):
    scene.add("job", 60)
    scene.worker().take()
    assert worker.reconcile().lost == ()
    assert scene.told() == ["running"]


def test_a_lost_run_keeps_its_place(scene, worker):
    scene.add("job", 60, overlap="wait")
    gone = scene.worker()
    run = gone.take()
    scene.plan("job", 50)
    gone.claim()
    _gone(scene, gone, "dead")
    worker.reconcile()
    assert worker.take().id == run.id
    assert scene.told() == ["running", "waiting"]


def test_what_was_lost_never_expires(scene, worker):
    scene.add("job")
    scene.plan("job", scene.expiring(60))
    gone = scene.worker()
    run = gone.take()
    _gone(scene, gone, "dead")
    worker.reconcile()
    scene.wait_for_expiry()
    assert scene.ledger.missed(scene.application, 10) == []
    assert worker.take().id == run.id


def test_after_max_lost_a_run_is_lost(scene, worker):
    scene.add("job", 60, max_lost=2)
    states = []
    for _ in range(2):
        gone = scene.worker()
        gone.take()
        _gone(scene, gone, "dead")
        states += [lost.state for lost in worker.reconcile().lost]
    assert states == [RunState.PENDING, RunState.LOST]
    (row,) = scene.runs()
    assert (row.state, row.attempt, row.losses) == (RunState.LOST, 2, 2)
    assert worker.claim().runs == ()


def test_under_on_lost_fail_the_first_loss_is_the_end(scene, worker):
    scene.add("job", 60, on_lost="fail")
    gone = scene.worker()
    gone.take()
    _gone(scene, gone, "dead")
    assert [lost.state for lost in worker.reconcile().lost] == [RunState.LOST]
    assert [run.state for run in scene.runs()] == [RunState.LOST]


def test_a_removed_job_is_not_tried_again(scene, worker):
    scene.add("job", 60)
    gone = scene.worker()
    gone.take()
    scene.remove()
    _gone(scene, gone, "dead")
    assert [lost.state for lost in worker.reconcile().lost] == [RunState.LOST]


def test_what_was_asked_to_end_is_cancelled(scene, worker):
    scene.add("job", 60)
    gone = scene.worker()
    run = gone.take()
    scene.ledger.cancel(run.id, "ops", "wrong data")
    _gone(scene, gone, "dead")
    worker.reconcile()
    row = scene.run(run.id)
    assert row.state is RunState.CANCELLED
    assert "wrong data" in row.reason
    assert worker.claim().runs == ()


def test_a_paused_job_loses_its_run_and_goes_on_after_the_resume(scene, worker):
    scene.add("job", 60)
    gone = scene.worker()
    run = gone.take()
    scene.pause()
    _gone(scene, gone, "dead")
    assert [lost.state for lost in worker.reconcile().lost] == [RunState.PENDING]
    assert worker.claim().runs == ()
    scene.resume()
    assert worker.take().id == run.id


def test_an_end_before_the_reconcile_stands(scene, worker):
    scene.add("job", 60)
    gone = scene.worker()
    run = gone.take()
    _gone(scene, gone, "dead")
    assert gone.finish(run.id).accepted, "nobody took it away yet"
    assert worker.reconcile().lost == ()
    assert scene.told() == ["succeeded"]
