"""Ask, backfill and cancel: what people want of a run."""

import select

import pytest

from tenure.core.keys import due_key
from tenure.core.messages import RunRequest
from tenure.core.records import RunId, RunKind, RunState
from tenure.stores.notices import JobsChanged


def _backfill(scene, ago, **more):
    return scene.ask(key=due_key(scene.start - ago), scheduled_for=scene.start - ago, backfill=True, **more)


def test_an_asked_run_is_due_at_once(scene, worker, about_now):
    job = scene.add(kwargs='{"a": 1}')
    asked = scene.ask(key="mine", by="ops", kwargs='{"a": 2}')
    assert scene.run(asked.id) == asked
    assert (asked.job, asked.name, asked.key, asked.kind, asked.state) == (
        job.id,
        "job",
        "mine",
        RunKind.MANUAL,
        RunState.PENDING,
    )
    assert (asked.by, asked.kwargs, asked.attempt, asked.generation) == ("ops", '{"a": 2}', 0, 1)
    assert about_now(asked.scheduled_for)
    assert about_now(asked.due_at)
    assert worker.take().id == asked.id


def test_an_asked_run_may_name_a_time(scene):
    scene.add()
    asked = scene.ask(scheduled_for=scene.start - 7200)
    assert asked.scheduled_for == scene.start - 7200
    assert asked.due_at >= scene.start


def test_a_run_without_arguments_of_its_own_takes_those_of_its_job(scene, worker):
    scene.add(kwargs='{"a": 1}')
    assert scene.ask().kwargs is None
    assert worker.take().kwargs == '{"a": 1}'


def test_a_key_is_asked_for_once(scene, worker):
    scene.add()
    first = scene.ask(key="mine", by="one")
    assert scene.ask(key="mine", by="another") == first
    worker.finish(worker.take().id)
    again = scene.ask(key="mine")
    assert (again.id, again.state, again.by) == (first.id, RunState.SUCCEEDED, "one")
    assert len(scene.runs()) == 1


def test_one_key_in_two_jobs_is_two_runs(scene):
    scene.add("one")
    scene.add("other")
    assert scene.ask("one", key="mine").id != scene.ask("other", key="mine").id


def test_nothing_is_asked_of_a_job_that_is_not_there(scene):
    assert scene.ask("nobody") is None
    scene.add("removed")
    scene.remove("removed")
    assert scene.ask("removed") is None
    assert scene.runs(None) == []


def test_a_batch_is_answered_in_its_order(scene, ledger):
    scene.add("one")
    scene.add("other")
    asked = [RunRequest(scene.application, name, "k", None) for name in ("other", "nobody", "one")]
    assert [row and row.name for row in ledger.request_runs(asked)] == ["other", None, "one"]
    assert ledger.request_runs([]) == []


def test_one_key_twice_in_a_batch_is_one_run(scene, ledger):
    scene.add()
    first, second = ledger.request_runs([RunRequest(scene.application, "job", "k", None)] * 2)
    assert first == second
    assert len(scene.runs()) == 1


def test_an_asked_run_never_expires(scene, worker):
    scene.add(grace=0.0)
    asked = scene.ask()
    claimed = worker.claim()
    assert ([run.id for run in claimed.runs], claimed.missed) == ([asked.id], False)


def test_a_backfill_has_the_key_of_its_due_time(scene, worker):
    scene.add()
    filled = _backfill(scene, 7200, by="ops")
    assert (filled.kind, filled.state, filled.scheduled_for, filled.by) == (
        RunKind.BACKFILL,
        RunState.PENDING,
        scene.start - 7200,
        "ops",
    )
    assert _backfill(scene, 7200) is None, "it is there already"
    assert scene.plan("job", 7200) == 0
    assert worker.take().key == due_key(scene.start - 7200)


@pytest.mark.parametrize("state", [RunState.SKIPPED, RunState.CANCELLED, RunState.LOST])
def test_a_backfill_opens_what_did_not_happen(scene, worker, state, about_now):
    scene.add("job", on_lost="fail")
    if state is RunState.SKIPPED:
        scene.plan("job", scene.new(600, state=RunState.SKIPPED, reason="missed"))
    else:
        scene.plan("job", 600)
    (before,) = scene.runs()
    if state is RunState.CANCELLED:
        scene.ledger.cancel(before.id, "ops", "no")
    if state is RunState.LOST:
        dead = scene.worker()
        dead.take()
        scene.session.declare(dead.id, None, "its host lock is free")
        worker.reconcile()
    before = scene.run(before.id)
    assert before.state is state
    again = _backfill(scene, 600, by="ops", kwargs='{"a": 2}')
    assert scene.run(before.id) == again
    assert (again.id, again.state, again.kind) == (before.id, RunState.PENDING, RunKind.BACKFILL)
    assert (again.attempt, again.failures, again.losses, again.by) == (before.attempt, 0, 0, "ops")
    assert again.scheduled_for == scene.start - 600
    assert about_now(again.due_at)
    run = worker.take()
    assert (run.id, run.kwargs, run.attempt) == (before.id, '{"a": 2}', before.attempt + 1)
    assert worker.finish(run.id).accepted


def test_a_backfill_leaves_what_happened_or_will(scene, worker):
    scene.add("job", 600, 500, 400, 300, overlap="allow", max_running=3)
    succeeded, failed, _running = worker.claim().runs
    worker.finish(succeeded.id)
    worker.finish(failed.id, RunState.FAILED, error="boom")
    assert scene.told() == ["succeeded", "failed(boom)", "running", "waiting"]
    scene.plan("job", 200)
    before = scene.runs()
    assert [_backfill(scene, ago) for ago in (600, 500, 400, 300, 200)] == [None] * 5
    assert scene.runs() == before


def test_a_row_that_stands_for_several_is_not_opened(scene):
    scene.add()
    scene.plan("job", scene.new(7200, state=RunState.SKIPPED, reason="missed", count=3, until=scene.start - 3600))
    assert _backfill(scene, 7200) is None
    assert scene.told() == ["skipped(missed)"]
    assert _backfill(scene, 5400) is not None


def test_a_reopened_run_finds_no_place_kept_for_it(scene, worker):
    scene.add("job", 600, on_lost="fail")
    dead = scene.worker()
    lost = dead.take()
    scene.session.declare(dead.id, None, "its host lock is free")
    worker.reconcile()
    scene.plan("job", 500)
    worker.take()
    _backfill(scene, 600)
    assert worker.claim().runs == ()
    assert scene.run(lost.id).state is RunState.WAITING


@pytest.mark.parametrize("state", [RunState.PENDING, RunState.WAITING])
def test_what_does_not_run_is_cancelled_at_once(scene, worker, state):
    scene.add("job", 60, 50, overlap="wait")
    if state is RunState.WAITING:
        worker.claim()
    run = scene.runs(states=[state])[-1]
    cancelled = scene.ledger.cancel(run.id, "ops", "wrong data")
    assert scene.run(run.id) == cancelled
    assert (cancelled.id, cancelled.state) == (run.id, RunState.CANCELLED)
    assert "wrong data" in cancelled.reason


def test_what_is_between_attempts_is_cancelled_and_its_place_is_free(scene, worker):
    scene.add("job", 60, overlap="wait")
    run = worker.take()
    worker.finish(run.id, RunState.PENDING, again_in=600)
    scene.plan("job", 50)
    assert worker.claim().runs == ()
    assert scene.ledger.cancel(run.id, "ops", "enough").state is RunState.CANCELLED
    assert worker.take().scheduled_for == scene.start - 50


def test_what_runs_is_asked_to_end(scene, worker):
    scene.add("job", 60)
    run = worker.take()
    asked = scene.ledger.cancel(run.id, "ops", "wrong data")
    assert asked.state is RunState.RUNNING
    (held,) = worker.reconcile().held
    assert "wrong data" in held.asked_to_end
    ended = worker.finish(run.id, RunState.CANCELLED)
    assert (ended.accepted, ended.state) == (True, RunState.CANCELLED)
    assert "wrong data" in scene.run(run.id).reason


@pytest.mark.parametrize("state", [RunState.SUCCEEDED, RunState.FAILED])
def test_what_is_over_is_left(scene, worker, state):
    scene.add("job", 60)
    run = worker.take()
    worker.finish(run.id, state)
    before = scene.run(run.id)
    assert scene.ledger.cancel(run.id, "ops", "late") == before
    assert scene.run(run.id) == before


def test_cancelling_what_is_not_there(scene, worker):
    scene.add("job", 60)
    run = worker.take()
    worker.finish(run.id)
    scene.ledger.prune(scene.application, before=scene.start, keep=0, limit=10)
    assert scene.ledger.cancel(run.id, "ops", "why") is None


def test_many_are_cancelled_together_whatever_each_of_them_does(scene, worker):
    scene.add("a", 90, 80, overlap="wait")
    scene.add("b", 70)
    scene.add("c", 60)
    worker.claim()
    worker.finish(scene.runs("c")[0].id)
    scene.plan("c", 50)
    runs = [run.id for name in "cba" for run in scene.runs(name)]
    states = [RunState.SUCCEEDED, RunState.PENDING, RunState.RUNNING, RunState.RUNNING, RunState.WAITING]
    assert [scene.run(run).state for run in runs] == states
    after = scene.ledger.cancel_many([*runs, RunId(2**40)], "ops", "wrong month")
    cancelled = [RunState.SUCCEEDED, RunState.CANCELLED, RunState.RUNNING, RunState.RUNNING, RunState.CANCELLED]
    assert [run and run.state for run in after] == [*cancelled, None]
    assert after[:-1] == [scene.run(run) for run in runs]
    assert {held.asked_to_end for held in worker.reconcile().held} == {"wrong month (by ops)"}


@pytest.mark.parametrize("what", ["ask", "pause", "cancel"])
def test_those_who_listen_are_woken(scene, worker, what):
    scene.add("job", 60)
    run = worker.take()
    worker.session.listen(worker.id)
    worker.session.notices()
    match what:
        case "ask":
            scene.ask()
        case "pause":
            scene.pause()
        case "cancel":
            scene.ledger.cancel(run.id, "ops", "why")
    assert select.select([worker.session.fileno()], [], [], 5)[0]
    assert JobsChanged(scene.application) in worker.session.notices()
