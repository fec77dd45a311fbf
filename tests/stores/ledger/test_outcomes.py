"""How the newest run of each job ended, and since when it fails."""

import pytest

from tenure.core.messages import JobOutcome
from tenure.core.records import RunState


def _end(scene, worker, name, *states):
    """One run for each of these states, an hour apart, the last one an hour ago."""
    job = scene.job(name)
    scene.plan(name, *(scene.new(3600.0 * ago) for ago in range(len(states), 0, -1)))
    assert job.state == "active"
    for state in states:
        (run,) = worker.claim(1).runs
        assert run.name == name
        worker.finish(run.id, state, error=f"{state} {run.id}", finished_at=run.scheduled_for + 1)


def _outcomes(scene, **more):
    more.setdefault("since", scene.start - 86400)
    return {one.name: one for one in scene.ledger.outcomes(scene.application, **more)}


FAILED, LOST, FINE = RunState.FAILED, RunState.LOST, RunState.SUCCEEDED


def test_a_job_without_an_ended_run_has_no_outcome(scene, worker):
    scene.add("new")
    scene.add("waits", 10)
    assert _outcomes(scene) == {}
    worker.take()
    assert _outcomes(scene) == {}


def test_how_the_newest_run_ended(scene, worker):
    for name, states in {"fine": [FAILED, FINE], "fails": [FINE, FAILED, FAILED], "never": [FAILED]}.items():
        scene.add(name, overlap="allow", max_running=None)
        _end(scene, worker, name, *states)
    found = _outcomes(scene)
    assert list(found) == ["fails", "fine", "never"]
    newest = {name: scene.runs(name)[-1] for name in found}
    at = {name: run.finished_at for name, run in newest.items()}
    assert found == {
        "fine": JobOutcome("fine", newest["fine"].id, FINE, at["fine"], "", 0, None, 1),
        "fails": JobOutcome(
            "fails", newest["fails"].id, FAILED, at["fails"], newest["fails"].reason, 2, scene.at(7200) + 1, 2
        ),
        "never": JobOutcome(
            "never", newest["never"].id, FAILED, at["never"], newest["never"].reason, 1, at["never"], 1
        ),
    }
    assert {name: one.recent for name, one in _outcomes(scene, since=scene.start - 3601).items()} == {
        "fine": 0,
        "fails": 1,
        "never": 1,
    }


def test_only_the_jobs_that_fail(scene, worker):
    for name, states in {"fine": [FINE], "mended": [FAILED, FINE], "fails": [FINE, FAILED]}.items():
        scene.add(name, overlap="allow", max_running=None)
        _end(scene, worker, name, *states)
    assert list(_outcomes(scene, failing=100)) == ["fails", "mended"]
    assert list(_outcomes(scene, failing=100, since=scene.start)) == ["fails"]
    assert list(_outcomes(scene, failing=1)) == ["fails"]


def test_skipped_and_cancelled_runs_count_neither_way(scene, worker):
    scene.add("job", overlap="allow", max_running=None)
    _end(scene, worker, "job", FINE, FAILED)
    scene.plan("job", scene.new(20, state=RunState.SKIPPED, reason="missed"), scene.new(10))
    (run,) = worker.claim(1).runs
    worker.finish(run.id, RunState.CANCELLED)
    found = _outcomes(scene)["job"]
    assert (found.state, found.failures) == (FAILED, 1)


def test_a_removed_job_has_no_outcome_and_other_applications_have_theirs(scene, worker):
    scene.add("job", overlap="allow", max_running=None)
    _end(scene, worker, "job", FAILED)
    assert scene.ledger.outcomes(scene.application + " too", since=0.0) == []
    scene.remove()
    assert _outcomes(scene) == _outcomes(scene, failing=10) == {}


def test_a_lost_run_is_a_failure(scene, worker):
    scene.add("job", 10, on_lost="fail")
    run = worker.take()
    scene.session.declare(worker.id, None, "dead")
    other = scene.worker("another")
    other.reconcile()
    found = _outcomes(scene, failing=10)["job"]
    assert (found.run, found.state, found.failures, found.recent) == (run.id, LOST, 1, 1)


@pytest.mark.parametrize("length", [10, 5000])
def test_a_long_reason_is_cut_to_its_end(scene, worker, length):
    scene.add("job", 10)
    worker.finish(worker.take().id, FAILED, error="x" * length + "\nValueError: the end")
    reason = _outcomes(scene)["job"].reason
    assert reason.endswith("ValueError: the end")
    assert len(reason) <= 1000
