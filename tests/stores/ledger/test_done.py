"""A job without a due time left is done. Its name may be used again, and what has run is not run again."""

from tenure.core.records import Change, JobState, RunState
from tenure.triggers import at
from tenure.util.instants import moment


def _at(scene, ago):
    return at(moment(scene.at(ago))).to_json()


def _one_off(scene, ago=10, *, name="job", in_code=False):
    """As `add(fn, at(t))` writes it when t has just passed."""
    return scene.change(
        Change.ADDED,
        name,
        spec=scene.spec(name, trigger=_at(scene, ago), in_code=in_code),
        next_due=None,
        runs=(scene.new(ago),),
    )


def test_a_job_is_done_when_its_last_run_is_over(scene, worker):
    assert _one_off(scene).state is JobState.ACTIVE
    assert scene.job().state is JobState.ACTIVE
    run = worker.take()
    assert scene.job().state is JobState.ACTIVE
    worker.finish(run.id)
    assert scene.job().state is JobState.DONE
    assert [row.state for row in scene.ledger.jobs(scene.application)] == [JobState.DONE]


def test_a_job_that_only_runs_when_asked_is_never_done(scene, worker):
    scene.change(Change.ADDED, spec=scene.spec(trigger=None))
    scene.ask()
    worker.finish(worker.take().id)
    assert scene.job().state is JobState.ACTIVE


def test_a_done_job_that_is_asked_for_is_active_until_that_is_over(scene, worker):
    _one_off(scene)
    worker.finish(worker.take().id)
    scene.ask()
    assert scene.job().state is JobState.ACTIVE
    worker.finish(worker.take().id)
    assert scene.job().state is JobState.DONE


def test_a_done_job_can_be_paused_updated_and_removed(scene, worker):
    _one_off(scene)
    worker.finish(worker.take().id)
    assert scene.pause().state is JobState.PAUSED
    assert scene.resume(next_due=None).state is not JobState.PAUSED
    assert scene.change(Change.UPDATED, spec=scene.spec(), next_due=scene.start + 60).state is JobState.ACTIVE
    assert scene.remove().state is JobState.REMOVED


def test_adding_again_under_a_done_name_does_not_run_the_same_due_time_again(scene, worker):
    first = _one_off(scene)
    worker.finish(worker.take().id)
    again = _one_off(scene)
    assert (again.id, again.generation, again.state) == (first.id, 2, JobState.DONE)
    assert worker.claim().runs == ()
    assert [run.state for run in scene.runs()] == [RunState.SUCCEEDED]


def test_another_due_time_under_a_done_name_runs(scene, worker):
    _one_off(scene, 10)
    worker.finish(worker.take().id)
    again = _one_off(scene, 5)
    assert again.state is JobState.ACTIVE
    assert worker.take().scheduled_for == scene.at(5)


def test_a_name_is_taken_while_a_run_of_it_is_open(scene, worker):
    _one_off(scene, 10)
    assert _one_off(scene, 5) is None
    run = worker.take()
    assert _one_off(scene, 5) is None
    worker.finish(run.id, RunState.PENDING, again_in=60)
    assert _one_off(scene, 5) is None


def test_a_name_that_is_defined_in_code_stays_taken(scene, worker):
    _one_off(scene, in_code=True)
    worker.finish(worker.take().id)
    assert scene.job().state is JobState.DONE
    assert _one_off(scene) is None


def test_a_forgotten_due_time_does_not_come_back_with_a_change(scene, worker):
    _one_off(scene)
    worker.finish(worker.take().id)
    assert scene.ledger.prune(scene.application, before=scene.start, keep=0, limit=10).removed == 1
    assert _one_off(scene).state is JobState.DONE
    assert scene.runs() == []
