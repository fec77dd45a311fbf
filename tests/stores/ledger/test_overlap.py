"""Claim: who gets a place, and what becomes of those who do not."""

import pytest

from tenure.core.records import Change, RunKind, RunState


@pytest.mark.parametrize("overlap", ["skip", "wait", "allow"])
@pytest.mark.parametrize("places", [1, 2])
def test_places_go_to_the_oldest(scene, worker, overlap, places):
    scene.add("job", 30, 20, 10, overlap=overlap, max_running=places)
    claimed = worker.claim()
    assert [run.scheduled_for - scene.start for run in claimed.runs] == [-30, -20][:places]
    assert len(scene.runs(states=[RunState.RUNNING])) == places


def test_places_of_each_job_go_to_its_oldest_however_many_jobs_are_due(scene, worker):
    for number in range(4):
        scene.add(f"job {number}", *(ago + number for ago in range(10, 80, 10)), overlap="wait", function=f"f{number}")
    claimed = worker.claim(limit=100)
    assert [(run.name, scene.start - run.scheduled_for) for run in claimed.runs] == [
        (f"job {number}", 70 + number) for number in (3, 2, 1, 0)
    ]


def test_what_waited_begins_when_the_limit_is_lifted(scene, worker):
    scene.add("job", 30, 20, overlap="wait")
    worker.take()
    assert scene.told() == ["running", "waiting"]
    scene.change(Change.UPDATED, spec=scene.spec(overlap="allow", max_running=None))
    assert [run.scheduled_for - scene.start for run in worker.claim().runs] == [-20]


def test_without_a_limit_all_begin(scene, worker):
    scene.add("job", *range(1, 9), overlap="allow", max_running=None)
    assert len(worker.claim().runs) == 8


def test_skip_ends_what_finds_no_place(scene, worker):
    scene.add("job", 30, 20, 10, overlap="skip")
    worker.claim()
    assert scene.told() == ["running", "skipped(overlap)", "skipped(overlap)"]


def test_wait_keeps_the_newest_alone(scene, worker):
    scene.add("job", 40, overlap="wait")
    worker.take()
    scene.plan("job", 30, 20)
    assert worker.claim().runs == ()
    assert scene.told() == ["running", "skipped(superseded)", "waiting"]
    scene.plan("job", 10)
    assert worker.claim().runs == ()
    assert scene.told() == ["running", "skipped(superseded)", "skipped(superseded)", "waiting"]
    assert worker.reconcile().held[0].asked_to_end == ""


def test_newest_is_by_due_time_not_by_arrival(scene, worker):
    scene.add("job", 40, overlap="wait")
    worker.take()
    scene.plan("job", 10)
    worker.claim()
    scene.plan("job", 20)
    worker.claim()
    assert scene.told() == ["running", "skipped(superseded)", "waiting"]


def test_newest_is_by_due_time_not_by_jitter(scene, worker):
    scene.add("job", 40, overlap="wait")
    worker.take()
    scene.plan("job", scene.new(30, due_ago=5), scene.new(20, due_ago=10))
    worker.claim()
    assert scene.told() == ["running", "skipped(superseded)", "waiting"]


def test_replace_waits_and_asks_the_running_to_end(scene, worker):
    scene.add("job", 50, 40, overlap="replace", max_running=2)
    first, second = worker.claim().runs
    scene.plan("job", 30, 20)
    assert worker.claim().runs == ()
    assert scene.told() == ["running", "running", "skipped(superseded)", "waiting"]
    assert {(held.id, held.asked_to_end) for held in worker.reconcile().held} == {
        (first.id, "replaced"),
        (second.id, "replaced"),
    }


@pytest.mark.parametrize("places", [1, 2])
def test_under_replace_places_go_to_the_newest(scene, worker, places):
    scene.add("job", 30, 20, 10, overlap="replace", max_running=places)
    claimed = worker.claim()
    assert [run.scheduled_for - scene.start for run in claimed.runs] == [-20, -10][-places:]
    assert scene.told() == ["skipped(superseded)"] * (3 - places) + ["running"] * places
    assert {held.asked_to_end for held in worker.reconcile().held} == {""}


def test_replace_asks_nobody_where_the_newest_finds_a_place(scene, worker):
    scene.add("job", 30, overlap="replace", max_running=2)
    worker.take()
    scene.plan("job", 20, 10)
    assert worker.take().scheduled_for == scene.start - 10
    assert scene.told() == ["running", "skipped(superseded)", "running"]
    assert {held.asked_to_end for held in worker.reconcile().held} == {""}


def test_allow_lets_all_wait(scene, worker):
    scene.add("job", 50, 40, 30, 20, overlap="allow", max_running=2)
    worker.claim()
    assert scene.told() == ["running", "running", "waiting", "waiting"]


@pytest.mark.parametrize("overlap", ["skip", "wait", "replace", "allow"])
def test_what_was_asked_for_always_waits_and_asks_nobody_to_end(scene, worker, overlap):
    scene.add("job", 50, overlap=overlap)
    worker.take()
    asked = [scene.ask(), scene.ask(), scene.ask(key="a due time", backfill=True, scheduled_for=scene.start - 7200)]
    assert worker.claim().runs == ()
    assert {scene.run(run.id).state for run in asked} == {RunState.WAITING}
    assert {scene.run(run.id).kind for run in asked} == {RunKind.MANUAL, RunKind.BACKFILL}
    assert worker.reconcile().held[0].asked_to_end == ""


def test_what_was_asked_for_is_not_superseded(scene, worker):
    scene.add("job", 50, overlap="wait")
    worker.take()
    scene.ask()
    worker.claim()
    scene.plan("job", 40)
    worker.claim()
    scene.plan("job", 30)
    worker.claim()
    assert sorted(scene.told()) == ["running", "skipped(superseded)", "waiting", "waiting"]


@pytest.mark.parametrize("overlap", ["skip", "wait", "replace", "allow"])
def test_a_run_between_attempts_keeps_its_place(scene, worker, overlap):
    scene.add("job", 50, overlap=overlap)
    first = worker.take()
    worker.finish(first.id, RunState.PENDING, again_in=3600)
    scene.plan("job", 40)
    assert worker.claim().runs == ()
    assert scene.told()[1] == {"skip": "skipped(overlap)"}.get(overlap, "waiting")


def test_a_run_between_attempts_is_always_claimed(scene, worker):
    scene.add("job", 50, 45, overlap="wait", max_running=2)
    first, second = worker.claim().runs
    scene.plan("job", 40)
    worker.claim()
    for run in (first, second):
        worker.finish(run.id, RunState.PENDING, again_in=0)
    assert {run.id for run in worker.claim().runs} == {first.id, second.id}
    assert scene.told() == ["running", "running", "waiting"]


def test_places_are_counted_across_nodes(scene):
    scene.add("job", 50, 40, overlap="wait", max_running=2)
    one, other = scene.worker(), scene.worker()
    assert len(one.claim(limit=1).runs) == 1
    assert len(other.claim(limit=1).runs) == 1
    scene.plan("job", 30)
    assert one.claim().runs == other.claim().runs == ()


def test_jobs_do_not_share_places(scene, worker):
    scene.add("one", 20)
    scene.add("other", 10)
    assert [run.name for run in worker.claim().runs] == ["one", "other"]


def test_a_waiting_run_begins_when_a_place_is_free(scene, worker):
    scene.add("job", 50, overlap="wait")
    first = worker.take()
    scene.plan("job", scene.new(40, expired_ago=-3600))
    worker.claim()
    assert scene.told() == ["running", "waiting"]
    assert worker.finish(first.id).wakes
    assert worker.take().scheduled_for == scene.start - 40


def test_waiting_runs_begin_oldest_first_and_as_many_as_there_are_places(scene, worker):
    scene.add("job", 50, 40, 30, 20, 10, overlap="allow", max_running=2)
    first, second = worker.claim().runs
    worker.finish(first.id)
    assert worker.take().scheduled_for == scene.start - 30
    worker.finish(second.id)
    assert worker.take().scheduled_for == scene.start - 20
    assert scene.told() == ["succeeded", "succeeded", "running", "running", "waiting"]


def test_no_more_waiting_runs_are_let_go_than_there_are_places(scene, worker):
    scene.add("job", 50, 40, 30, overlap="allow")
    (first,) = worker.claim().runs
    worker.finish(first.id)
    worker.claim(limit=1)
    assert scene.told() == ["succeeded", "running", "waiting"]


def test_a_waiting_run_goes_before_a_later_one(scene, worker):
    scene.add("job", 50, overlap="wait")
    first = worker.take()
    scene.plan("job", 40)
    worker.claim()
    worker.finish(first.id)
    scene.plan("job", 30)
    assert worker.take().scheduled_for == scene.start - 40
    assert scene.told() == ["succeeded", "running", "waiting"]


def test_what_waited_is_never_missed(scene, worker):
    scene.add("job", 50, overlap="wait")
    first = worker.take()
    scene.plan("job", scene.expiring(40))
    worker.claim()
    assert scene.told() == ["running", "waiting"]
    scene.wait_for_expiry()
    assert not worker.claim().missed
    worker.finish(first.id)
    again = worker.claim()
    assert ([run.scheduled_for for run in again.runs], again.missed) == ([scene.start - 40], False)


def test_a_changed_limit_counts_from_the_next_claim(scene, worker):
    scene.add("job", 50, 40, overlap="allow", max_running=1)
    worker.claim()
    spec = scene.spec(overlap="allow", max_running=2)
    scene.change(Change.UPDATED, spec=spec, next_due=scene.start + 3600)
    assert worker.take().rules.max_running == 2
