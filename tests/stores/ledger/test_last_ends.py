"""What a ledger says for metrics: open runs by queue, how the newest runs of jobs ended, how long they took, how many jobs."""

import pytest

from harness.scratch import eventually
from stores.ledger.scene import Worker
from tenure.core.cluster import Beat, BeatVerdict
from tenure.core.messages import JobEnds, JobQuery, OpenRuns
from tenure.core.records import Change, RunState
from tenure.stores import ledger as protocol
from tenure.util.clock import boottime

FAILED, LOST, FINE = RunState.FAILED, RunState.LOST, RunState.SUCCEEDED


def _end(scene, worker, name, *states, took=2.0):
    """One run for each of these states, an hour apart, the last one an hour ago; each takes so long."""
    scene.plan(name, *(scene.new(3600.0 * ago) for ago in range(len(states), 0, -1)))
    for state in states:
        (run,) = worker.claim(1).runs
        times = {"started_at": run.scheduled_for + 1, "finished_at": run.scheduled_for + 1 + took}
        worker.finish(run.id, state, error="no", **times)


def _ends(scene, *names, **more):
    names_of = {scene.job(name).id: name for name in names}
    found = scene.ledger.last_ends(scene.application, list(names_of), **more)
    return {names_of[one.job]: one for one in found}


def _open(scene, limit=100):
    return sorted(scene.ledger.open_runs(scene.application, limit))


def test_how_the_newest_runs_ended(scene, worker):
    for name, states in {
        "fine": [FAILED, FINE],
        "fails": [FINE, FAILED, FAILED],
        "never": [FAILED],
        "mended": [FINE, FAILED, FINE],
    }.items():
        scene.add(name, overlap="allow", max_running=None)
        _end(scene, worker, name, *states)
    scene.add("new")
    hour = {ago: scene.at(3600.0 * ago) for ago in (1, 2, 3)}
    of = {name: scene.job(name).id for name in ("fine", "fails", "never", "new", "mended")}
    assert _ends(scene, *of) == {
        "fine": JobEnds(of["fine"], hour[1], hour[1] + 3, hour[2] + 3, 0, 2.0),
        "fails": JobEnds(of["fails"], hour[3], hour[3] + 3, hour[1] + 3, 2, 2.0),
        "never": JobEnds(of["never"], None, None, hour[1] + 3, 1, 2.0),
        "mended": JobEnds(of["mended"], hour[1], hour[1] + 3, hour[2] + 3, 0, 2.0),
        "new": JobEnds(of["new"]),
    }
    assert _ends(scene, "fine") == {"fine": _ends(scene, *of)["fine"]}


def test_skipped_and_cancelled_runs_count_neither_way(scene, worker):
    scene.add("job", overlap="allow", max_running=None)
    _end(scene, worker, "job", FINE, FAILED)
    scene.plan("job", scene.new(20, state=RunState.SKIPPED, reason="missed"), scene.new(10))
    worker.finish(worker.claim(1).runs[0].id, RunState.CANCELLED)
    found = _ends(scene, "job")["job"]
    assert (found.failures, found.succeeded_for, found.duration) == (1, scene.at(7200), 2.0)


def test_what_was_missed_counts_until_a_later_run_has_ended(scene, worker):
    scene.add("job", overlap="allow", max_running=None)
    _end(scene, worker, "job", FINE)
    assert _ends(scene, "job")["job"].missed is None
    scene.plan("job", *(scene.new(ago, state=RunState.SKIPPED, reason="missed") for ago in (40, 30)))
    scene.plan("job", scene.new(20, state=RunState.SKIPPED, reason="overlap"))
    found = _ends(scene, "job")["job"]
    assert (found.missed, found.succeeded_for) == (scene.at(30), scene.at(3600))
    scene.plan("job", scene.new(10))
    run = worker.take()
    assert _ends(scene, "job")["job"].missed == scene.at(30), "it has begun, and not ended"
    worker.finish(run.id, FAILED, error="no")
    assert _ends(scene, "job")["job"].missed is None


def test_a_job_that_never_ran_may_have_missed_several_due_times_in_one_row(scene):
    scene.add("job")
    scene.plan("job", scene.new(40, state=RunState.SKIPPED, reason="missed", count=3, until=scene.at(20)))
    assert _ends(scene, "job")["job"].missed == scene.at(20)


def test_a_success_further_back_than_is_looked_is_not_found(scene, worker, monkeypatch):
    scene.add("job", overlap="allow", max_running=None)
    _end(scene, worker, "job", FINE, FAILED, FAILED, FAILED)
    assert _ends(scene, "job")["job"].failures == 3
    for module in ("memory", "sqlite", "postgres"):
        monkeypatch.setattr(f"tenure.stores.{module}.ledger.SUCCESS_WITHIN", 2)
    found = _ends(scene, "job")["job"]
    assert (found.failures, found.succeeded_at) == (2, None)
    assert protocol.SUCCESS_WITHIN == 5000


def test_failures_are_looked_for_among_the_newest_of_the_application(real_scene):
    scene, worker = real_scene, real_scene.worker()
    for name in ("old", "new"):
        scene.add(name, overlap="allow", max_running=None)
    scene.plan("old", scene.new(7200))
    scene.plan("new", scene.new(3600))
    for _ in range(2):
        worker.finish(worker.claim(1).runs[0].id, FAILED, error="no")
    assert [one.failed_at is None for one in _ends(scene, "old", "new", failing=1).values()].count(True) == 1
    assert _ends(scene, "old", "new", failing=1)["new"].failed_at is not None


def test_durations_of_the_last_runs_that_began(scene, worker):
    for name, took in {"quick": 1.0, "slow": 9.0}.items():
        scene.add(name, overlap="allow", max_running=None)
        _end(scene, worker, name, FINE, FAILED, FINE, took=took)
    scene.add("new")
    of = {name: scene.job(name).id for name in ("quick", "slow", "new")}
    found = scene.ledger.durations([*of.values()], 10)
    assert found[of["quick"]] == (3, pytest.approx(1.0))
    assert found[of["slow"]] == (3, pytest.approx(9.0))
    assert found.get(of["new"], (0, None)) == (0, None)
    assert scene.ledger.durations([of["slow"]], 2)[of["slow"]] == (2, pytest.approx(9.0))


def test_open_runs_by_state_and_queue(scene, worker):
    assert _open(scene) == []
    scene.add("a", 30, 20, queue="one", overlap="wait")
    scene.add("b", 10, queue="two")
    scene.add("c", 5, queue="two")
    scene.plan("c", scene.new(-600))  # is to come
    assert _open(scene) == [("pending", "one", 2), ("pending", "two", 2)]
    assert worker.claim(queues=("one",)).runs
    assert _open(scene) == [("pending", "two", 2), ("running", "one", 1), ("waiting", "one", 1)]
    scene.pause("c")
    assert (RunState.PENDING, "two", 1) in _open(scene)
    assert all(isinstance(one, OpenRuns) for one in _open(scene))


def test_open_runs_are_counted_up_to_a_limit(scene):
    scene.add("a", *range(1, 6), overlap="allow", max_running=None)
    assert _open(scene, limit=3) == [("pending", "default", 3)]


def test_jobs_are_counted_without_removed_ones(scene):
    for name in ("a", "b", "c"):
        scene.add(name)
    scene.pause("b")
    assert scene.ledger.count_jobs(scene.application) == 3
    scene.change(Change.REMOVED, "c")
    assert scene.ledger.count_jobs(scene.application) == 2
    assert scene.ledger.count_jobs("another") == 0


def test_a_list_of_jobs_may_end_at_a_limit(scene):
    for name in ("a", "b", "c"):
        scene.add(name)
    assert [row.spec.name for row in scene.ledger.find_jobs(JobQuery(scene.application, limit=2))] == ["a", "b"]
    assert len(scene.ledger.find_jobs(JobQuery(scene.application))) == 3


def test_a_node_without_a_sign_of_life_within_its_ttl_is_silent(real_scene):
    scene = real_scene
    scene.workers += [one := Worker(scene.store, scene.application, "one", 1.0), two := scene.worker("two")]
    nodes = [one.id, two.id]
    assert scene.ledger.silent(nodes) == set()
    eventually(lambda: scene.ledger.silent(nodes), what="silence")
    assert scene.ledger.silent(nodes) == {one.id}
    assert scene.ledger.silent([two.id]) == set()
    assert one.session.beat(Beat(one.id, 2, boottime(), boottime() + 8, None, ())).verdict is BeatVerdict.RENEWED
    assert scene.ledger.silent(nodes) == set()
