"""Jobs that are removed or done, and that no code defines, are deleted after a time with all that is kept of them."""

from dataclasses import replace

import psycopg
import pytest

from stores.ledger.scene import SOON, Scene
from tenure.core.keys import due_key
from tenure.core.messages import JobChange
from tenure.core.records import Change, JobState, RunState
from tenure.jobs import operations
from tenure.stores import store_for
from tenure.triggers import at
from tenure.util.instants import moment


def _forget(scene, *, ago=0.0, keys_ago=0.0, defined=(), limit=100):
    """As retention does it, as of the future, so that what was written just now is old.

    Returns how many jobs are gone.
    """
    now = scene.ledger.now() + 60
    bounds = {"before": now - ago, "keys_before": now - keys_ago}
    while scene.ledger.prune(scene.application, **bounds, keep=100, limit=limit).removed:
        """There may be more."""
    return scene.ledger.forget(scene.application, before=now - ago, defined=defined, limit=limit).jobs


def _one_off(scene, name="job", ago=10, **more):
    trigger = at(moment(scene.at(ago))).to_json()
    spec = scene.spec(name, trigger=trigger, in_code=False, **more)
    return scene.change(Change.ADDED, name, spec=spec, next_due=None, runs=(scene.new(ago),))


def _names(scene):
    return [row.spec.name for row in scene.ledger.jobs(scene.application, removed=True)]


def test_nothing_is_left_of_a_done_job(scene, worker):
    _one_off(scene)
    run = worker.take()
    worker.finish(run.id)
    assert _forget(scene) == 1
    assert (_names(scene), scene.runs(None), scene.ledger.changes(scene.application)) == ([], [], [])
    assert _forget(scene) == 0


def test_nothing_is_left_of_a_removed_job(scene):
    scene.add("job", 10, in_code=False)
    scene.remove()
    assert _forget(scene) == 1
    assert (_names(scene), scene.runs(None), scene.ledger.changes(scene.application)) == ([], [], [])


def test_many_one_off_jobs_leave_nothing(scene, worker):
    for number in range(100):
        _one_off(scene, f"mail {number}")
    while runs := worker.claim(limit=100).runs:
        for run in runs:
            worker.finish(run.id)
    assert [_forget(scene, limit=60), _forget(scene, limit=60), _forget(scene, limit=60)] == [60, 40, 0]
    assert _names(scene) == []


@pytest.mark.parametrize("what", ["active", "paused", "asked only", "open", "of another application"])
def test_what_is_still_needed_stays(scene, worker, what):
    scene.add("other", in_code=False)
    match what:
        case "paused":
            scene.pause("other")
        case "asked only":
            scene.change(Change.ADDED, "plain", spec=scene.spec("plain", trigger=None, in_code=False))
        case "open":
            _one_off(scene, "open")
            worker.claim()
        case "of another application":
            now = scene.ledger.now() + 60
            scene.remove("other")
            assert scene.ledger.forget("another", before=now, defined=(), limit=9).jobs == 0
            return
    before = _names(scene)
    assert _forget(scene) == 0
    assert _names(scene) == before


def test_what_was_removed_or_ran_lately_stays(scene, worker):
    _one_off(scene, "done")
    worker.finish(worker.take().id)
    scene.add("removed", in_code=False)
    scene.remove("removed")
    assert _forget(scene, ago=3600) == 0
    assert _names(scene) == ["done", "removed"]


def test_a_tombstone_stays_while_a_live_node_has_its_code(scene):
    scene.add("poll", function="poll")
    scene.remove("poll")
    before = scene.job("poll").defined_at
    assert _forget(scene, defined=["poll"]) == 0
    assert scene.job("poll").defined_at > before, "as if that node had started now"
    assert _forget(scene, defined=[]) == 1


def test_a_done_job_that_code_defines_stays_while_a_live_node_has_it(scene, worker):
    spec = scene.spec("once", function="once", trigger=at(moment(scene.at(10))).to_json())
    scene.change(Change.ADDED, "once", spec=spec, next_due=None, runs=(scene.new(10),))
    worker.finish(worker.take().id)
    assert _forget(scene, defined=["once"]) == 0
    assert scene.job("once").state is JobState.DONE


@pytest.mark.parametrize("over", ["removed", "done"])
def test_what_was_added_over_a_removed_job_of_the_code_stays_while_a_live_node_has_that_code(scene, worker, over):
    """Else the next start would bring back what was removed."""
    scene.add("poll", function="poll")
    scene.remove("poll")
    trigger = at(moment(scene.at(10))).to_json()
    spec = scene.spec("poll", function="send", trigger=trigger, in_code=False)
    now = scene.ledger.now()
    change = replace(operations.added(spec, now), next_due=None, runs=(scene.new(10),))
    assert scene.ledger.change(operations.added_over(scene.job("poll"), change, now)) is not None
    worker.finish(worker.take().id)
    if over == "removed":
        scene.remove("poll")
        assert [row.spec.name for row in scene.ledger.removed(scene.application)] == ["poll"]
    assert _forget(scene, defined=["poll"]) == 0
    code = JobChange(scene.application, "poll", Change.ADDED, spec=scene.spec("poll", function="poll"))
    (synced,) = scene.ledger.sync(scene.application, 0, [code])
    assert synced.row.state is JobState(over)
    assert _forget(scene, defined=["send"]) == 1


def test_a_done_job_that_was_added_at_run_time_goes_although_its_function_is_live(scene, worker):
    _one_off(scene, function="send")
    worker.finish(worker.take().id)
    assert _forget(scene, defined=["send"]) == 1


def test_a_job_stays_while_a_key_of_it_is_kept(scene, worker):
    _one_off(scene)
    worker.finish(worker.take().id)
    scene.ask(key="mine")
    worker.finish(worker.take().id)
    assert scene.ledger.forget(scene.application, before=scene.ledger.now() + 60, defined=(), limit=9).jobs == 0
    assert len(scene.runs()) == 2, "a run that is there keeps its job"
    assert _forget(scene, keys_ago=3600) == 0
    assert scene.runs() == [], "its key is kept"
    assert _forget(scene) == 1
    assert _one_off(scene) is not None
    assert scene.ask(key="mine").state is RunState.PENDING


def test_a_job_with_many_runs_and_changes_is_forgotten_in_slices(scene, worker):
    """No statement takes longer than so many rows do, however much is kept of a job."""
    _one_off(scene)
    worker.finish(worker.take().id)
    for _ in range(11):
        scene.ask()
    for run in worker.claim(limit=20).runs:
        worker.finish(run.id)
    for _ in range(11):
        scene.pause()
        scene.resume(next_due=None)
    scene.remove()
    now = scene.ledger.now() + 60
    slices = []
    while (pruned := scene.ledger.prune(scene.application, before=now, keys_before=now, keep=100, limit=5)).removed:
        slices.append(pruned.removed)
    assert (slices, scene.runs()) == ([5, 5, 2], [])
    left = [len(scene.ledger.changes(scene.application))]
    while (forgotten := scene.ledger.forget(scene.application, before=now, defined=(), limit=1)).more:
        left.append(len(scene.ledger.changes(scene.application)))
        if not forgotten.jobs:
            assert _names(scene) == ["job"]
    assert left == [24, 14, 4, 0]
    assert _names(scene) == []


def test_what_a_job_that_is_over_has_ended_lately_stays(scene, worker):
    """It was due long ago, and took long."""
    _one_off(scene, ago=3600)
    now = scene.ledger.now()
    worker.finish(worker.take().id, finished_at=now + 30)
    assert scene.ledger.prune(scene.application, before=now + 15, keep=0, limit=9).removed == 0
    assert _forget(scene) == 1


def test_code_that_defines_a_forgotten_job_adds_it_as_a_new_one(scene, worker):
    """An old worker that was away for longer than the removal is remembered: nothing that ran runs again, and no change
    for the old row counts."""
    scene.add("poll", 300)
    worker.finish(worker.take().id)
    old = scene.job("poll")
    scene.remove("poll")
    assert _forget(scene) == 1
    change = JobChange(scene.application, "poll", Change.ADDED, spec=scene.spec("poll"), next_due=scene.start + SOON)
    (synced,) = scene.ledger.sync(scene.application, 0, [change])
    new = synced.row
    assert (new.id != old.id, new.generation > old.generation + 1, new.state) == (True, True, JobState.ACTIVE)
    assert scene.pause("poll", generation=old.generation) is None
    key = due_key(scene.at(300))
    assert scene.ask("poll", key=key, scheduled_for=scene.at(300), backfill=True) is None, "it ran under the old row"
    assert scene.ask("poll", key=key, scheduled_for=scene.at(300), backfill=True, even_forgotten=True) is not None


def test_a_job_that_is_asked_for_meanwhile_is_not_forgotten(ledger_database):
    """The asker has the row locked: it is left for the next time."""
    scene = Scene(store_for(ledger_database))
    worker = scene.worker()
    _one_off(scene)
    worker.finish(worker.take().id)
    with psycopg.connect(ledger_database) as asker:
        asker.execute("SELECT id FROM tenure.job WHERE id = %s FOR KEY SHARE", [scene.job().id])
        assert _forget(scene) == 0
    assert _forget(scene) == 1
    scene.close()


def test_retention_waits_for_no_job_and_forgets_none_that_is_defined(ledger_database):
    """A node that starts has one of them: to wait for it, with the others locked, would be a deadlock."""
    scene = Scene(store_for(ledger_database))
    for name in ("one", "two"):
        scene.add(name, function="poll")
        scene.remove(name)
    scene.add("gone", in_code=False)
    scene.remove("gone")
    with psycopg.connect(ledger_database) as starts:
        starts.execute("SELECT FROM tenure.job WHERE id = %s FOR NO KEY UPDATE", [scene.job("one").id])
        assert _forget(scene, defined=["poll"]) == 1
        starts.execute("UPDATE tenure.job SET defined_at = clock_timestamp() WHERE id = %s", [scene.job("two").id])
    assert _names(scene) == ["one", "two"]
    scene.close()
