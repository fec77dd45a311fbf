"""Backfills: due times that are fixed once, and run so many at a time, whoever takes the next step."""

import pytest

from tenure.core.backfills import BackfillState, NewBackfill, Steer
from tenure.core.keys import due_key
from tenure.core.messages import Action, ActionQuery
from tenure.core.records import Change, RunKind, RunState

AGO = (7200, 7100, 7000, 6900, 6800)


def create(scene, *ago, name="job", **more):
    """A backfill of these due times, and its first runs."""
    due = tuple(sorted(scene.at(seconds) for seconds in ago))
    wanted = NewBackfill(scene.application, name, due[0], due[-1] + 1, due, **more)
    return scene.ledger.create_backfill(wanted)


def advance(scene, limit=100):
    return scene.ledger.advance_backfills(scene.application, limit)


def seen(scene, number):
    (row,) = scene.ledger.backfills(scene.application, number=number)
    return row


def counts(scene, number):
    return dict(seen(scene, number).counts)


def steer(scene, number, word, by="", why="", **more):
    return scene.ledger.steer_backfill(scene.application, number, word, by=by, why=why, **more)


def finish_all(scene, worker, number, state=RunState.SUCCEEDED):
    """Run a backfill to its end. Returns the due times in the order in which they began."""
    begun = []
    for _ in range(100):
        for run in worker.claim(limit=100).runs:
            begun.append(run.scheduled_for)
            worker.finish(run.id, state)
        advance(scene)
        if seen(scene, number).finished_at is not None:
            return begun
    raise AssertionError(f"backfill {number} does not end: {seen(scene, number)}, {scene.told()}")


def test_all_at_once_requests_every_due_time(scene, worker):
    scene.add("job", overlap="allow", max_running=None)
    number, runs = create(scene, *AGO, by="ada", why="the printer jammed")
    assert [run.scheduled_for for run in runs] == [scene.at(ago) for ago in AGO]
    assert {(run.kind, run.state, run.by) for run in runs} == {(RunKind.BACKFILL, RunState.PENDING, "ada")}
    row = seen(scene, number)
    assert (row.state, row.by, row.why, row.at_once) == (BackfillState.RUNNING, "ada", "the printer jammed", None)
    assert (row.since, row.until, row.name) == (scene.at(7200), scene.at(6800) + 1, "job")
    assert row.counts == {"pending": 5}
    assert finish_all(scene, worker, number) == [scene.at(ago) for ago in AGO]
    assert (seen(scene, number).state, counts(scene, number)) == (BackfillState.DONE, {"succeeded": 5})


def test_only_so_many_are_open_at_once_the_oldest_first(scene, worker):
    scene.add("job", overlap="allow", max_running=None)
    number, runs = create(scene, *AGO, at_once=2)
    assert [run.scheduled_for for run in runs] == [scene.at(7200), scene.at(7100)]
    assert counts(scene, number) == {"pending": 2, "left": 3}
    assert not advance(scene).begins, "as many are open as may be"
    first, second = worker.claim().runs
    assert not advance(scene).begins, "what runs is open, too"
    assert counts(scene, number) == {"running": 2, "left": 3}
    worker.finish(second.id)
    assert advance(scene).begins
    assert counts(scene, number) == {"running": 1, "succeeded": 1, "pending": 1, "left": 2}
    third = worker.take()
    assert third.scheduled_for == scene.at(7000)
    for run in (first, third):
        worker.finish(run.id)
    assert finish_all(scene, worker, number) == [scene.at(6900), scene.at(6800)]


def test_a_run_without_a_name_is_requested_by_its_backfill(scene, worker):
    """Else `status` would call it overdue: what a person has requested takes its turn."""
    scene.add("job")
    number, (run,) = create(scene, 7200)
    assert run.by == f"backfill {number}"
    assert scene.ledger.overdue(scene.application, scene.ledger.now() + 3600, 10) == []


def test_what_has_succeeded_is_not_run_again(scene, worker):
    scene.add("job", 7200, 7100, overlap="allow", max_running=None)
    for run in worker.claim().runs:
        worker.finish(run.id)
    number, runs = create(scene, 7200, 7100, 7000, include=("missing", "lost", "failed"))
    assert [run.scheduled_for for run in runs] == [scene.at(7000)]
    assert counts(scene, number) == {"pending": 1}


def test_nothing_to_run_is_no_backfill(scene, worker):
    scene.add("job", 7200)
    worker.finish(worker.take().id)
    assert create(scene, 7200) == (None, [])
    assert create(scene, 7200, name="nobody") == (None, [])
    scene.remove()
    assert create(scene, 7100) == (None, [])
    assert scene.ledger.backfills(scene.application) == []


def _of_each_kind(scene, worker):
    """Due times whose runs ended in every way, and one without a run."""
    scene.add("job", 1000, 900, 800, 700, overlap="allow", max_running=None, on_lost="fail")
    succeeds, fails, cancelled, lost = worker.claim().runs
    worker.finish(succeeds.id)
    worker.finish(fails.id, RunState.FAILED, error="no")
    worker.finish(cancelled.id, RunState.CANCELLED)
    worker.finish(lost.id, RunState.PENDING, started_at=scene.at(10))
    scene.plan("job", scene.new(600, state=RunState.SKIPPED, reason="missed"))
    return 1000, 900, 800, 700, 600, 500


@pytest.mark.parametrize(
    ("include", "taken"),
    [
        (("missing",), [800, 600, 500]),
        (("lost",), [700]),
        (("failed",), [900, 700]),
        (("missing", "lost"), [800, 700, 600, 500]),
        (("missing", "failed"), [900, 800, 700, 600, 500]),
    ],
)
def test_a_backfill_takes_what_it_includes(scene, worker, include, taken):
    number, runs = create(scene, *_of_each_kind(scene, worker), include=include)
    assert [run.scheduled_for for run in runs] == [scene.at(ago) for ago in taken]
    assert {run.kind for run in runs} == {RunKind.BACKFILL}
    assert finish_all(scene, worker, number) == [scene.at(ago) for ago in taken]


def test_attempts_are_numbered_on(scene, worker):
    scene.add("job", 7200)
    worker.finish(worker.take().id, RunState.FAILED, error="no")
    number, (again,) = create(scene, 7200, include=("failed",))
    taken = worker.take()
    assert (taken.id, taken.attempt, taken.failures) == (again.id, 2, 0)
    worker.finish(taken.id)
    advance(scene)
    assert counts(scene, number) == {"succeeded": 1}


def test_a_row_for_several_due_times_is_left_alone(scene, worker):
    scene.add("job")
    scene.plan("job", scene.new(7200, state=RunState.SKIPPED, reason="missed", count=3, until=scene.at(7000)))
    number, runs = create(scene, 7200, 7100, 7000)
    assert [run.scheduled_for for run in runs] == [scene.at(7100), scene.at(7000)]
    assert counts(scene, number) == {"pending": 2}


def test_what_another_has_run_meanwhile_is_overtaken(scene, worker):
    scene.add("job", overlap="allow", max_running=None)
    number, _ = create(scene, *AGO, at_once=1)
    scene.ask(key=due_key(scene.at(7100)), scheduled_for=scene.at(7100), backfill=True)
    other = create(scene, 7000, 6900)[0]
    begun = finish_all(scene, worker, number)
    assert sorted(begun) == [scene.at(ago) for ago in AGO], "each once, by whichever was first"
    assert counts(scene, number) == {"succeeded": 2, "overtaken": 3}
    assert counts(scene, other) == {"succeeded": 2}


def test_a_failure_is_counted_and_does_not_stop_the_others(scene, worker):
    scene.add("job", overlap="allow", max_running=None)
    number, _ = create(scene, *AGO, at_once=2)
    assert len(finish_all(scene, worker, number, RunState.FAILED)) == 5
    assert (seen(scene, number).state, counts(scene, number)) == (BackfillState.DONE, {"failed": 5})


def test_a_run_between_two_attempts_is_still_open(scene, worker):
    scene.add("job", overlap="allow", max_running=None, retries=1)
    _, _ = create(scene, 7200, 7100, at_once=1)
    run = worker.take()
    worker.finish(run.id, RunState.PENDING, again_in=0.0)
    assert not advance(scene).begins
    assert worker.take().id == run.id
    worker.finish(run.id)
    assert advance(scene).begins


def test_how_a_run_first_ended_stays_counted(scene, worker):
    """A backfill says what it has done. What is retried later is the work of someone else."""
    scene.add("job")
    number, _ = create(scene, 7200)
    run = worker.take()
    worker.finish(run.id, RunState.FAILED, error="no")
    advance(scene)
    scene.ledger.retry([run.id], "ada")
    assert (seen(scene, number).state, counts(scene, number)) == (BackfillState.DONE, {"failed": 1})


def test_a_step_does_no_more_than_it_may(scene, worker):
    scene.add("job", overlap="allow", max_running=None)
    number, _ = create(scene, *AGO, at_once=4)
    for run in worker.claim().runs:
        worker.finish(run.id)
    assert advance(scene, 3).more
    assert counts(scene, number) == {"succeeded": 4, "pending": 1}
    assert not advance(scene, 3).more
    assert len(finish_all(scene, worker, number)) == 1


def test_where_there_is_nothing_to_do_nothing_happens(scene, worker):
    scene.add("job")
    assert advance(scene) == type(advance(scene))(begins=False, more=False)
    create(scene, 7200)
    assert advance(scene) == type(advance(scene))(begins=False, more=False)


def test_backfills_of_two_applications_keep_apart(scene, store, worker):
    other = type(scene)(store)
    other.add("job", overlap="allow", max_running=None)
    number, _ = create(other, 7200, 7100, at_once=1)
    assert scene.ledger.backfills(scene.application) == []
    assert scene.ledger.backfills(scene.application, number=number) == []
    assert not steer(scene, number, Steer.CANCEL)
    other.close()


def test_the_newest_backfill_comes_first_and_those_of_a_job_alone(scene, worker):
    scene.add("job")
    scene.add("other")
    one, two, three = create(scene, 7200)[0], create(scene, 7200, name="other")[0], create(scene, 7100)[0]
    numbers = [row.number for row in scene.ledger.backfills(scene.application)]
    assert numbers == [three, two, one]
    assert [row.number for row in scene.ledger.backfills(scene.application, job="job")] == [three, one]
    assert [row.number for row in scene.ledger.backfills(scene.application, limit=1)] == [three]


# Pause, resume, cancel


def test_a_paused_backfill_requests_nothing_until_it_is_resumed(scene, worker):
    scene.add("job", overlap="allow", max_running=None)
    number, _ = create(scene, *AGO, at_once=2)
    assert steer(scene, number, Steer.PAUSE, "ada", "the disk is full")
    row = seen(scene, number)
    assert (row.state, row.state_by, row.state_why) == (BackfillState.PAUSED, "ada", "the disk is full")
    for run in worker.claim().runs:
        worker.finish(run.id)
    assert not advance(scene).begins
    assert counts(scene, number) == {"succeeded": 2, "left": 3}
    assert not steer(scene, number, Steer.PAUSE), "it is paused already"
    assert steer(scene, number, Steer.RESUME, "ada")
    assert counts(scene, number) == {"succeeded": 2, "pending": 2, "left": 1}
    assert not steer(scene, number, Steer.RESUME), "it is running already"
    assert finish_all(scene, worker, number) == [scene.at(ago) for ago in (7000, 6900, 6800)]


def test_a_backfill_with_nothing_left_to_request_cannot_be_paused(scene, worker):
    scene.add("job")
    number, _ = create(scene, 7200)
    assert not steer(scene, number, Steer.PAUSE)
    assert seen(scene, number).state is BackfillState.RUNNING


def test_a_paused_backfill_is_not_over(scene, worker):
    scene.add("job", overlap="allow", max_running=None)
    number, _ = create(scene, 7200, 7100, at_once=1)
    steer(scene, number, Steer.PAUSE)
    worker.finish(worker.take().id)
    advance(scene)
    assert (seen(scene, number).state, seen(scene, number).finished_at) == (BackfillState.PAUSED, None)


def test_a_cancelled_backfill_ends_what_has_not_begun(scene, worker):
    scene.add("job", max_running=1, overlap="wait")
    number, _ = create(scene, *AGO, at_once=3)
    running = worker.take()
    assert counts(scene, number) == {"running": 1, "waiting": 2, "left": 2}
    assert steer(scene, number, Steer.CANCEL, "ada", "wrong month")
    assert counts(scene, number) == {"running": 1, "cancelled": 2, "left": 2}
    row = seen(scene, number)
    assert (row.state, row.state_why, row.finished_at) == (BackfillState.CANCELLED, "wrong month", None)
    assert scene.told() == ["running", "cancelled(wrong month (by ada))", "cancelled(wrong month (by ada))"]
    assert not advance(scene).begins
    assert not any(steer(scene, number, word) for word in Steer), "it is over"
    worker.finish(running.id)
    advance(scene)
    row = seen(scene, number)
    assert (row.state, row.finished_at is None) == (BackfillState.CANCELLED, False)
    assert row.counts == {"succeeded": 1, "cancelled": 2, "left": 2}


def test_a_cancelled_backfill_that_has_not_begun_is_over_at_once(scene, worker):
    scene.add("job")
    number, _ = create(scene, *AGO, at_once=1)
    steer(scene, number, Steer.CANCEL)
    row = seen(scene, number)
    assert (row.state, row.finished_at is None, row.counts) == (
        BackfillState.CANCELLED,
        False,
        {"cancelled": 1, "left": 4},
    )
    assert scene.told() == [f"cancelled(backfill {number} was cancelled)"]
    again, runs = create(scene, *AGO)
    assert len(runs) == 5, "another backfill takes them"
    assert counts(scene, again) == {"pending": 5}


def test_a_run_between_two_attempts_is_cancelled_with_its_backfill(scene, worker):
    scene.add("job", retries=3)
    number, _ = create(scene, 7200)
    run = worker.take()
    worker.finish(run.id, RunState.PENDING, again_in=3600.0, error="no")
    assert steer(scene, number, Steer.CANCEL)
    assert scene.run(run.id).state is RunState.CANCELLED
    assert [attempt.error for attempt in scene.ledger.attempts(run.id)] == ["no"]
    assert counts(scene, number) == {"cancelled": 1}


def test_a_paused_backfill_can_be_cancelled(scene, worker):
    scene.add("job")
    number, _ = create(scene, *AGO, at_once=1)
    steer(scene, number, Steer.PAUSE)
    assert steer(scene, number, Steer.CANCEL)
    assert seen(scene, number).state is BackfillState.CANCELLED


# The job


def test_the_removal_of_a_job_cancels_its_backfills(scene, worker):
    scene.add("job", overlap="allow", max_running=None)
    scene.add("other")
    number, _ = create(scene, *AGO, at_once=2)
    paused, _ = create(scene, 6000, 5000, at_once=1)
    other, _ = create(scene, 7200, name="other")
    steer(scene, paused, Steer.PAUSE)
    (running, *_) = worker.claim(limit=1).runs
    scene.remove(by="ada")
    row = seen(scene, number)
    assert (row.state, row.state_by, row.state_why) == (BackfillState.CANCELLED, "ada", "the job was removed")
    assert row.counts == {"running": 1, "cancelled": 1, "left": 3}
    assert seen(scene, paused).counts == {"cancelled": 1, "left": 1}
    assert seen(scene, other).state is BackfillState.RUNNING
    scene.change(Change.ADDED, spec=scene.spec(overlap="allow", max_running=None), next_due=scene.start + 3600)
    worker.finish(running.id)
    assert not advance(scene).begins
    assert seen(scene, number).finished_at is not None


def test_while_a_job_is_paused_its_backfill_waits(scene, worker):
    scene.add("job")
    number, _ = create(scene, 7200, 7100, at_once=1)
    scene.pause()
    assert worker.claim().runs == ()
    assert (seen(scene, number).state, counts(scene, number)) == (BackfillState.RUNNING, {"pending": 1, "left": 1})
    scene.resume()
    assert finish_all(scene, worker, number) == [scene.at(7200), scene.at(7100)]


def test_due_times_are_fixed_whatever_the_trigger_says_later(scene, worker):
    scene.add("job")
    number, _ = create(scene, *AGO, at_once=1)
    scene.change(Change.UPDATED, spec=scene.spec(trigger='{"kind": "nonsense"}', max_running=1), next_due=scene.start)
    scene.change(Change.UPDATED, spec=scene.spec(), next_due=scene.start + 3600)
    assert finish_all(scene, worker, number) == [scene.at(ago) for ago in AGO]


def test_jobs_that_follow_get_their_runs(scene, worker):
    scene.add("load")
    scene.change(Change.ADDED, "report", spec=scene.spec("report", trigger=None, after="load"))
    number, _ = create(scene, 7200, 7100, name="load", at_once=1)
    followed = []
    for _ in range(2):
        worker.finish(worker.take().id)
        scene.ledger.follow_up(scene.application, 10)
        report = worker.take()
        followed.append((report.name, report.scheduled_for, report.kind))
        worker.finish(report.id)
        advance(scene)
    assert followed == [("report", scene.at(ago), RunKind.BACKFILL) for ago in (7200, 7100)]
    assert seen(scene, number).state is BackfillState.DONE


# Retention


def _prune(scene):
    return scene.ledger.prune(scene.application, before=scene.at(-60), keep=0, limit=100).removed


def test_retention_leaves_what_a_backfill_still_has_to_run(scene, worker):
    """Due times that ran stand between those that did not: if they were forgotten, so were the others."""
    scene.add("job", 7100, 6900, overlap="allow", max_running=None)
    for run in worker.claim().runs:
        worker.finish(run.id)
    number, _ = create(scene, 7000, 6800, at_once=1)
    worker.finish(worker.take().id)
    assert _prune(scene) == 1, "before the first of the backfill, as ever"
    assert scene.job().kept_since <= scene.at(7000)
    advance(scene)
    assert _prune(scene) == 2
    assert scene.job().kept_since <= scene.at(6800)
    assert finish_all(scene, worker, number) == [scene.at(6800)]
    assert counts(scene, number) == {"succeeded": 2}, "also of runs that are gone"
    assert _prune(scene) == 1


def test_retention_waits_for_a_paused_backfill_and_not_for_one_that_is_over(scene, worker):
    scene.add("job", 6900, overlap="allow", max_running=None)
    worker.finish(worker.take().id)
    number, _ = create(scene, 7200, 7000, at_once=1)
    worker.finish(worker.take().id)
    advance(scene)
    steer(scene, number, Steer.PAUSE)
    cancelled, _ = create(scene, 7100)
    steer(scene, cancelled, Steer.CANCEL)
    steer(scene, number, Steer.CANCEL)
    assert _prune(scene) == 4


def test_forgotten_due_times_are_run_only_if_that_is_requested(scene, worker):
    scene.add("job", 7200, 7000, overlap="allow", max_running=None)
    for run in worker.claim().runs:
        worker.finish(run.id)
    assert _prune(scene) == 2
    assert create(scene, 7200, 7000) == (None, [])
    number, runs = create(scene, 7200, 7100, 6900)
    assert [run.scheduled_for for run in runs] == [scene.at(6900)]
    number, _ = create(scene, 7200, 7100, at_once=1, even_forgotten=True)
    assert counts(scene, number) == {"pending": 1, "left": 1}
    worker.claim()
    for run in scene.runs():
        worker.finish(run.id)
    assert finish_all(scene, worker, number) == [scene.at(7100)]


def test_a_job_with_an_unfinished_backfill_is_not_forgotten(scene, worker):
    scene.change(Change.ADDED, spec=scene.spec(in_code=False), next_due=None, runs=())
    number, _ = create(scene, 7200, 7100, at_once=1)
    steer(scene, number, Steer.PAUSE)
    worker.finish(worker.take().id)
    advance(scene)
    assert scene.ledger.prune(scene.application, before=scene.at(-60), keep=0, limit=100).removed == 1
    later = scene.ledger.now() + 1
    assert scene.ledger.forget(scene.application, before=later, defined=(), limit=10).jobs == 0
    steer(scene, number, Steer.CANCEL)
    while scene.ledger.now() <= later:
        pass
    assert scene.ledger.forget(scene.application, before=scene.ledger.now(), defined=(), limit=10).jobs == 1
    assert counts(scene, number) == {"succeeded": 1, "left": 1}, "it can still be read"


def test_old_backfills_are_forgotten(scene, worker):
    scene.add("job")
    _, _ = create(scene, 7200)
    open_, _ = create(scene, 7100)
    worker.finish(worker.take().id)
    advance(scene)
    assert scene.ledger.forget_backfills(scene.application, scene.at(60), 10) == 0
    assert scene.ledger.forget_backfills(scene.application, scene.at(-60), 10) == 1
    assert [row.number for row in scene.ledger.backfills(scene.application)] == [open_]


# The log of actions


def test_what_people_do_to_a_backfill_is_recorded(scene, worker):
    scene.add("job")
    number, _ = create(scene, *AGO, at_once=1, action=Action("backfill", "ada", "why", "here", "5 due times"))
    for word in (Steer.PAUSE, Steer.PAUSE, Steer.RESUME, Steer.CANCEL, Steer.CANCEL):
        steer(scene, number, word, "bob", action=Action(word, "bob", "because", "here", f"backfill {number}"))
    create(scene, 7200, include=("failed",), action=Action("backfill", "nobody"))
    told = [
        (one.what, one.by, one.target, one.run, one.detail)
        for one in reversed(scene.ledger.actions(ActionQuery(scene.application)))
    ]
    assert told == [
        ("backfill", "ada", "job", None, f"backfill {number}: 5 due times"),
        ("pause-backfill", "bob", "job", None, f"backfill {number}"),
        ("resume-backfill", "bob", "job", None, f"backfill {number}"),
        ("cancel-backfill", "bob", "job", None, f"backfill {number}"),
    ]


def test_what_takes_long_holds_up_no_younger_run(scene, worker):
    """As many runs as a step settles are open and take their time; the others are over."""
    scene.add("job", overlap="allow", max_running=None)
    number, _ = create(scene, *range(7000, 7020), at_once=5)
    runs = worker.claim(limit=5).runs
    for run in runs[2:]:
        worker.finish(run.id)
    assert advance(scene, limit=2).begins
    assert advance(scene, limit=2).begins
    assert counts(scene, number) == {"running": 2, "succeeded": 3, "pending": 3, "left": 12}
    assert not advance(scene, limit=2).begins


@pytest.mark.parametrize("hours", [1, 24 * 365])
def test_a_run_is_due_by_the_time_of_the_node_while_the_ledgers_clock_is_ahead(scene, worker, hours):
    scene.add("job", overlap="allow", max_running=None)
    past = [hours * 3600 + seconds for seconds in (90, 80, 70)]
    for ago in past[1:]:
        scene.plan("job", scene.new(ago, state=RunState.SKIPPED, reason="missed"))
    create(scene, *past, include=("missing",), at_once=1)
    believed = scene.start - hours * 3600
    for _ in past[1:]:
        worker.finish(worker.take().id)
        assert scene.ledger.advance_backfills(scene.application, 100, as_of=believed).begins
        (run,) = scene.runs(states=[RunState.PENDING])
        assert run.due_at < believed + 60
