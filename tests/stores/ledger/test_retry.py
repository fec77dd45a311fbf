"""A retry: the same run again, with the same key and due time. Its attempts are numbered on, its turn is a new one."""

import select

import pytest

from stores.ledger.scene import DAILY
from tenure.core.keys import due_key
from tenure.core.messages import Action, ActionQuery
from tenure.core.records import Change, RunId, RunKind, RunState
from tenure.stores.notices import JobsChanged


def _retry(scene, run, by="ops"):
    (row,) = scene.ledger.retry([run], by)
    return row


def _lose(scene, worker):
    """A node dies with a run in hand."""
    dead = scene.worker("a dead node")
    run = dead.take()
    scene.session.declare(dead.id, None, "its host lock is free")
    worker.reconcile()
    return run


def _ended(scene, worker, state):
    """A run of a job that ended this way."""
    match state:
        case RunState.SKIPPED:
            scene.plan("job", scene.new(600, state=RunState.SKIPPED, reason="missed"))
        case RunState.CANCELLED:
            scene.plan("job", 600)
            (planned,) = scene.runs()
            scene.ledger.cancel(planned.id, "ops", "not now")
        case RunState.LOST:
            scene.plan("job", 600)
            _lose(scene, worker)
        case _:
            scene.plan("job", 600)
            worker.finish(worker.take().id, state, error="boom", started_at=scene.at(9), finished_at=scene.at(8))
    (run,) = scene.runs()
    assert run.state is state
    return run


@pytest.mark.parametrize("state", [RunState.FAILED, RunState.LOST, RunState.CANCELLED, RunState.SKIPPED])
def test_what_did_not_succeed_runs_again_under_its_key(scene, worker, state, about_now):
    scene.add("job", on_lost="fail")
    before = _ended(scene, worker, state)
    again = _retry(scene, before.id)
    assert scene.run(before.id) == again
    assert (again.id, again.key, again.scheduled_for) == (before.id, before.key, before.scheduled_for)
    assert (again.state, again.kind, again.by) == (RunState.PENDING, RunKind.BACKFILL, "ops")
    assert (again.failures, again.losses, again.interruptions) == (0, 0, 0)
    assert again.attempt == before.attempt
    assert about_now(again.due_at)
    run = worker.take()
    assert (run.id, run.key, run.attempt, run.failures) == (before.id, before.key, before.attempt + 1, 0)
    assert worker.finish(run.id).accepted
    assert scene.told() == ["succeeded"]


def test_what_the_last_attempt_left_stays_until_the_next_one(scene, worker):
    scene.add()
    before = _ended(scene, worker, RunState.FAILED)
    again = _retry(scene, before.id)
    left = ("attempt", "node", "reason", "claimed_at", "started_at", "finished_at")
    assert [getattr(again, name) for name in left] == [getattr(before, name) for name in left]
    assert (before.attempt, before.node, before.reason) == (1, "a worker", "boom")
    worker.take()
    (running,) = scene.runs()
    assert (running.attempt, running.reason, running.started_at, running.finished_at) == (2, "", None, None)


def test_what_it_left_stays_while_the_run_waits_or_its_job_changes(scene, worker):
    scene.add()
    before = _ended(scene, worker, RunState.FAILED)
    scene.ask()
    worker.take()
    _retry(scene, before.id)
    assert worker.claim().runs == ()
    assert scene.run(before.id).state is RunState.WAITING
    scene.pause()
    scene.resume()
    after = scene.run(before.id)
    assert (after.reason, after.finished_at, after.node) == ("boom", before.finished_at, "a worker")


def test_what_was_cancelled_ahead_of_its_time_is_due_at_its_time(scene, worker):
    scene.add()
    scene.plan("job", -600)
    (run,) = scene.runs()
    scene.ledger.cancel(run.id, "ops", "")
    again = _retry(scene, run.id)
    assert again.due_at == again.scheduled_for == scene.at(-600)
    claimed = worker.claim()
    assert (claimed.runs, claimed.next_at) == ((), scene.at(-600))


def test_what_never_began_has_no_reason_any_more(scene, worker):
    scene.add()
    run = _ended(scene, worker, RunState.SKIPPED)
    again = _retry(scene, run.id)
    assert (run.reason, again.reason, again.finished_at) == ("missed", "", None)


def test_a_requested_run_stays_one_and_keeps_its_arguments(scene, worker):
    scene.add()
    asked = scene.ask(key="mine", kwargs='{"a": 2}')
    worker.finish(worker.take().id, RunState.FAILED)
    assert _retry(scene, asked.id).kind is RunKind.MANUAL
    run = worker.take()
    assert (run.id, run.key, run.kwargs) == (asked.id, "mine", '{"a": 2}')
    assert scene.ask(key="mine").id == asked.id


@pytest.mark.parametrize("state", [RunState.PENDING, RunState.WAITING, RunState.RUNNING, RunState.SUCCEEDED])
def test_what_is_open_or_has_succeeded_is_left(scene, worker, state):
    scene.add("job", 60, 50, overlap="wait")
    if state is not RunState.PENDING:
        worker.claim()
    if state is RunState.SUCCEEDED:
        worker.finish(scene.runs()[0].id)
    run = scene.runs(states=[state])[0]
    assert _retry(scene, run.id) is None
    assert scene.run(run.id) == run


def test_a_run_of_a_removed_job_is_left(scene, worker):
    scene.add()
    run = _ended(scene, worker, RunState.FAILED)
    scene.remove()
    assert _retry(scene, run.id) is None
    assert scene.run(run.id) == run


def test_a_row_that_stands_for_several_is_left(scene):
    scene.add()
    scene.plan("job", scene.new(7200, state=RunState.SKIPPED, reason="missed", count=3, until=scene.start - 3600))
    (run,) = scene.runs()
    assert _retry(scene, run.id) is None
    assert scene.run(run.id) == run


def test_what_is_not_there_is_left_and_the_rest_is_answered_in_order(scene, worker):
    scene.add("job", 600, 500, overlap="allow", max_running=None)
    first, second = (run.id for run in worker.claim().runs)
    worker.finish(first, RunState.FAILED)
    worker.finish(second, RunState.FAILED)
    gone = RunId(2**40)
    answers = scene.ledger.retry([second, gone, first], "ops")
    assert [answer and answer.id for answer in answers] == [second, None, first]
    assert scene.ledger.retry([], "ops") == []


def test_a_retried_run_is_never_missed(scene, worker):
    scene.add("job", grace=0.0)
    scene.plan("job", scene.new(600, expired_ago=300))
    (run,) = scene.runs()
    assert scene.ledger.settle(run.job, 1, make_up=[], skip=[run.id], reason="missed")
    _retry(scene, run.id)
    claimed = worker.claim()
    assert ([one.id for one in claimed.runs], claimed.missed) == ([run.id], False)


def test_it_waits_for_a_place_whatever_its_attempt(scene, worker):
    scene.add()
    run = _ended(scene, worker, RunState.FAILED)
    scene.plan("job", 500)
    other = worker.take()
    assert _retry(scene, run.id).attempt == 1
    assert worker.claim().runs == ()
    assert scene.run(run.id).state is RunState.WAITING
    worker.finish(other.id)
    assert worker.take().id == run.id


def test_it_takes_no_place_before_it_is_claimed(scene, worker):
    scene.add("job", overlap="skip")
    run = _ended(scene, worker, RunState.FAILED)
    other = scene.ask()
    _retry(scene, run.id)
    assert [one.id for one in worker.claim(limit=1).runs] == [other.id], "the older request comes first"


def test_many_retried_runs_run_one_after_the_other(scene, worker):
    scene.add("job", *range(100, 110), overlap="allow", max_running=10)
    for run in worker.claim().runs:
        worker.finish(run.id, RunState.FAILED)
    scene.change(Change.UPDATED, spec=scene.spec(overlap="wait"), next_due=scene.start + 3600)
    scene.ledger.retry([run.id for run in scene.runs()], "ops")
    for _ in range(10):
        worker.finish(worker.take().id)
    assert scene.told() == ["succeeded"] * 10


def test_one_that_is_put_back_waits_for_a_place_again(scene, worker):
    scene.add()
    run = _ended(scene, worker, RunState.FAILED)
    _retry(scene, run.id)
    worker.take()
    worker.finish(run.id, RunState.PENDING)
    assert scene.run(run.id).attempt == 1
    other = scene.ask()
    scene.ledger.cancel(run.id, "ops", "")
    assert worker.take().id == other.id


def test_between_its_attempts_it_keeps_its_place(scene, worker):
    scene.add()
    run = _ended(scene, worker, RunState.FAILED)
    _retry(scene, run.id)
    worker.take()
    worker.finish(run.id, RunState.PENDING, again_in=600)
    scene.ask()
    assert worker.claim().runs == ()
    assert (scene.run(run.id).attempt, scene.run(run.id).failures) == (2, 1)


def test_losses_count_anew(scene, worker):
    scene.add("job", 600, max_lost=2)
    _lose(scene, worker)
    run = _lose(scene, worker)
    assert scene.run(run.id).state is RunState.LOST
    assert _retry(scene, run.id).attempt == 2
    _lose(scene, worker)
    assert (scene.run(run.id).state, scene.run(run.id).losses) == (RunState.PENDING, 1)
    assert worker.take().attempt == 4


def test_a_backfill_numbers_the_attempts_on(scene, worker):
    scene.add("job", on_lost="fail")
    run = _ended(scene, worker, RunState.LOST)
    filled = scene.ask(key=due_key(run.scheduled_for), scheduled_for=run.scheduled_for, backfill=True)
    assert (filled.id, filled.attempt) == (run.id, 1)
    assert worker.take().attempt == 2


def test_while_its_job_is_paused_it_stays(scene, worker):
    scene.add()
    run = _ended(scene, worker, RunState.FAILED)
    scene.pause()
    assert _retry(scene, run.id).state is RunState.PENDING
    assert worker.claim().runs == ()
    scene.resume()
    assert worker.take().id == run.id


def test_a_change_of_the_job_leaves_it(scene, worker):
    scene.add()
    run = _ended(scene, worker, RunState.FAILED)
    _retry(scene, run.id)
    scene.change(Change.UPDATED, spec=scene.spec(trigger=DAILY), next_due=scene.start + 3600)
    assert worker.take().id == run.id


def test_retention_leaves_a_retried_run(scene, worker):
    scene.add()
    run = _ended(scene, worker, RunState.FAILED)
    _retry(scene, run.id)
    scene.ledger.prune(scene.application, before=scene.start, keep=0, limit=10)
    assert scene.run(run.id).state is RunState.PENDING


def test_those_who_listen_are_woken(scene, worker):
    scene.add()
    run = _ended(scene, worker, RunState.FAILED)
    worker.session.listen(worker.id)
    worker.session.notices()
    _retry(scene, run.id)
    assert select.select([worker.session.fileno()], [], [], 5)[0]
    assert JobsChanged(scene.application) in worker.session.notices()


def test_a_run_is_retried_once_however_many_ask(real_scene, run_together):
    scene, worker = real_scene, real_scene.worker()
    scene.add("job")
    sessions = [scene.worker(f"asks {number}") for number in range(4)]
    for number in range(10):
        asked = scene.ask(key=f"round {number}")
        worker.finish(worker.take().id, RunState.FAILED)
        answers = [None] * len(sessions)

        def ask(one, asked=asked, answers=answers):
            (answers[one],) = sessions[one].ledger.retry([asked.id], str(one))

        run_together(len(sessions), ask)
        assert sum(answer is not None for answer in answers) == 1
        run = worker.take()
        assert run.attempt == 2
        worker.finish(run.id)


def test_the_action_is_recorded_with_the_run_or_once_for_each_job(scene, worker):
    scene.add("job", overlap="allow", max_running=None)
    scene.add("other")
    asked = [scene.ask("job"), scene.ask("job"), scene.ask("other")]
    for run in worker.claim().runs:
        worker.finish(run.id, RunState.FAILED)
    action = Action("retry", "ops", "fixed", "a test")
    scene.ledger.retry([run.id for run in asked], "ops", action)
    scene.ledger.retry([run.id for run in asked], "ops", action)
    found = scene.ledger.actions(ActionQuery(scene.application))
    assert {(one.target, one.run, one.what, one.by, one.why) for one in found} == {
        ("job", None, "retry", "ops", "fixed"),
        ("other", asked[2].id, "retry", "ops", "fixed"),
    }
    assert len(found) == 2, "nothing is recorded of what was open already"
