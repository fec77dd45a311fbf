"""What a ledger says of jobs that no live node can run, of due times that are overdue, and of how busy nodes are."""

import pytest

from tenure.core.messages import LaneJob, Planned
from tenure.core.records import Change, RunKind, RunState


def _unserved(scene, *served, limit=100):
    return sorted(job.name for job in scene.ledger.unserved(scene.application, served, limit))


def _overdue(scene, before=0.0, limit=100):
    """Names of overdue jobs, and when their grace was over: seconds before the start."""
    found = scene.ledger.overdue(scene.application, scene.at(before), limit)
    return sorted((one.name, round(scene.start - one.late_since)) for one in found)


# Orphaned jobs


def test_unserved_jobs_are_those_whose_function_and_queue_no_node_brings_together(scene):
    row = scene.add("f on slow", function="f", queue="slow")
    scene.add("f", function="f")
    scene.add("g on slow", function="g", queue="slow")
    assert _unserved(scene) == ["f", "f on slow", "g on slow"]
    assert _unserved(scene, ("f", None)) == ["g on slow"]
    assert _unserved(scene, ("f", "default"), ("g", "slow")) == ["f on slow"]
    assert _unserved(scene, ("f", "default"), ("f", "slow"), ("g", None), ("h", "slow")) == []
    (job,) = scene.ledger.unserved(scene.application, [("f", "default"), ("g", "slow")], 100)
    assert job == LaneJob(row.id, "f on slow", "f", "slow")
    assert scene.ledger.unserved("another application", [], 100) == []


def test_unserved_jobs_are_active(scene):
    for name in ("paused", "removed", "active"):
        scene.add(name)
    scene.pause("paused")
    scene.remove("removed")
    scene.add("on request", trigger=None)
    assert _unserved(scene) == ["active", "on request"]
    scene.resume("paused")
    assert _unserved(scene) == ["active", "on request", "paused"]


def test_a_job_that_is_done_is_not_unserved_and_one_with_an_open_run_is(scene, worker):
    scene.add("one-off", 5.0)
    job = scene.job("one-off")
    assert scene.ledger.plan([Planned(job.id, job.generation, job.next_due, None, ())]) == 0
    assert _unserved(scene) == ["one-off"]
    worker.finish(worker.take().id)
    assert _unserved(scene) == []


def test_a_job_that_moved_to_another_queue_is_looked_up_there(scene):
    scene.add("job", queue="old")
    scene.change(Change.UPDATED, spec=scene.spec(queue="new"), next_due=scene.start + 3600)
    assert _unserved(scene, ("f", "new")) == []
    assert _unserved(scene, ("f", "old")) == ["job"]


def test_unserved_jobs_are_limited(scene):
    for number in range(5):
        scene.add(f"job {number}", function=f"f {number % 2}")
    assert len(_unserved(scene, limit=3)) == 3
    assert len(_unserved(scene, limit=5)) == 5


# Overdue


def test_a_due_time_that_is_not_planned_is_overdue_after_its_grace(scene):
    scene.add("one", next_due=scene.at(100))
    assert _overdue(scene) == [("one", 40)]
    assert _overdue(scene, before=41) == []
    (one,) = scene.ledger.overdue(scene.application, scene.start, 10)
    assert (one.due, one.run, one.function, one.queue) == (scene.at(100), None, "f", "default")
    scene.add("patient", next_due=scene.at(100), grace=200.0)
    scene.add("spread", next_due=scene.at(100), spread=30.0, jitter=5.0)
    scene.add("spread far", next_due=scene.at(100), spread=60.0)
    assert _overdue(scene) == [("one", 40), ("spread", 5)]


def test_a_run_that_has_not_begun_is_overdue_after_its_grace(scene):
    row = scene.add("job")
    scene.plan("job", scene.new(200, expired_ago=140), scene.new(100, expired_ago=40), scene.new(20, expired_ago=-40))
    assert _overdue(scene) == [("job", 40), ("job", 140)]
    one, *_ = sorted(scene.ledger.overdue(scene.application, scene.start, 10), key=lambda one: one.due)
    assert (one.job, one.due, one.run) == (row.id, scene.at(200), scene.runs()[0].id)


def test_a_run_without_expiry_is_overdue_a_grace_after_it_may_begin(scene):
    scene.add("job", grace=10.0)
    scene.plan("job", scene.new(200, expired_ago=140), scene.new(9))
    (missed,) = scene.ledger.missed(scene.application, 10)
    assert scene.ledger.settle(missed.id, missed.generation, make_up=[missed.runs[0].id], skip=(), reason="")
    assert scene.runs()[0].kind is RunKind.BACKFILL
    assert _overdue(scene) == []
    found = scene.ledger.overdue(scene.application, scene.ledger.now() + 11, 10)
    assert sorted(one.due for one in found) == [scene.at(200), scene.at(9)]


def test_what_is_explained_is_not_overdue(scene, worker):
    for name in ("waits", "runs", "again", "paused", "removed", "asked for", "backfilled"):
        scene.add(name, grace=1.0, overlap="wait")
    for name in ("waits", "runs", "again"):
        scene.plan(name, 400)
    claimed = {run.name: run for run in worker.claim().runs}
    scene.plan("waits", 300)
    worker.claim()
    assert scene.told("waits") == ["running", "waiting"]
    worker.finish(
        claimed["again"].id, RunState.PENDING, again_in=0.0, started_at=scene.at(400), finished_at=scene.at(390)
    )
    assert [run.state for run in scene.runs("again")] == [RunState.PENDING]
    scene.plan("paused", scene.new(300, expired_ago=200))
    scene.pause("paused")
    scene.plan("removed", scene.new(300, expired_ago=200))
    scene.remove("removed")
    assert scene.ask("asked for")
    assert scene.ask("backfilled", scheduled_for=scene.at(500), backfill=True, by="ada")
    assert scene.ledger.overdue(scene.application, scene.ledger.now() + 100, 10) == []


def test_overdue_due_times_are_limited_and_the_oldest_come_first(scene):
    for number in range(1, 5):
        scene.add(f"job {number}", next_due=scene.at(1000 * number))
    assert _overdue(scene, limit=2) == [("job 3", 2940), ("job 4", 3940)]
    scene.add("job")
    scene.plan("job", *(scene.new(ago, expired_ago=ago - 60) for ago in (500, 400, 300)))
    assert [found for found in _overdue(scene, limit=2) if found[0] == "job"] == [("job", 340), ("job", 440)]


def test_another_application_is_left_out(scene):
    scene.add("one", next_due=scene.at(100))
    assert scene.ledger.overdue("another application", scene.start, 10) == []


# How busy nodes are


def test_running_runs_are_counted_by_node(scene):
    one, two = scene.worker("one"), scene.worker("two")
    scene.worker("idle")
    scene.add("job", 5, 4, 3, overlap="allow", max_running=None)
    one.claim(limit=2)
    two.claim()
    assert scene.ledger.running(scene.application) == {one.id: 2, two.id: 1}
    one.finish(next(iter(one.tokens)))
    assert scene.ledger.running(scene.application) == {one.id: 1, two.id: 1}
    assert scene.ledger.running("another application") == {}


@pytest.mark.parametrize("many", [0, 3])
def test_a_node_without_runs_is_not_counted(scene, worker, many):
    scene.add("job", *range(1, many + 1), overlap="allow", max_running=None)
    worker.claim()
    assert scene.ledger.running(scene.application) == ({worker.id: many} if many else {})


# Stored arguments


def test_stored_arguments_are_read_page_by_page_in_the_order_of_names(scene):
    for name in ("b", "a", "C", "d"):
        scene.add(name, function=f"f {name}", kwargs='{"n":1}')
    scene.add("plain")
    scene.add("on request", trigger=None)
    scene.add("removed")
    scene.remove("removed")
    scene.add("paused")
    scene.pause("paused")
    found, after = [], ""
    while page := scene.ledger.stored_arguments(scene.application, after, 2):
        assert len(page) <= 2
        found += page
        after = page[-1].name
    assert sorted(one.name for one in found) == ["C", "a", "b", "d", "paused", "plain"]
    assert {one.name: (one.function, one.kwargs) for one in found}["b"] == ("f b", '{"n":1}')
    assert scene.ledger.stored_arguments("another application", "", 10) == []


def test_arguments_of_requested_runs_are_read_page_by_page_until_they_begin(scene, worker):
    for name in ("a", "b"):
        scene.add(name, function=f"f {name}", trigger=None, kwargs='{"n":1}')
    plain = scene.ask("a")
    for n, name in enumerate(("a", "b", "a")):
        scene.ask(name, kwargs=f'{{"n":{n}}}')
    found, after = [], 0
    while page := scene.ledger.requested_arguments(scene.application, after, 2):
        found += page
        after = page[-1].run
    assert [one.run for one in found] == sorted(one.run for one in found)
    assert {(one.name, one.function, one.kwargs) for one in found} == {
        ("a", "f a", '{"n":0}'),
        ("b", "f b", '{"n":1}'),
        ("a", "f a", '{"n":2}'),
    }
    assert plain.id not in {one.run for one in found}
    assert scene.ledger.requested_arguments("another application", 0, 10) == []
    claimed = {run.id for run in worker.claim().runs}
    assert len(claimed) > 1
    left = {one.run for one in scene.ledger.requested_arguments(scene.application, 0, 10)}
    assert left == {one.run for one in found} - claimed
