"""A key that somebody gave to a run is asked for once, also after retention has removed the run."""

import threading

import psycopg
import pytest

from stores.ledger.scene import Scene
from tenure.core.keys import digest_of
from tenure.core.messages import RunRequest
from tenure.core.records import RunKind, RunState
from tenure.stores import store_for


def _prune(scene, *, keys_before=0.0):
    bounds = {"before": scene.ledger.now() + 60, "keep": 0, "limit": 100}
    return scene.ledger.prune(scene.application, **bounds, keys_before=keys_before).removed


def _ran(scene, worker, key="mine", state=RunState.SUCCEEDED, **more):
    asked = scene.ask(key=key, **more)
    worker.finish(worker.take().id, state)
    return scene.run(asked.id)


@pytest.mark.parametrize("state", [RunState.SUCCEEDED, RunState.FAILED])
def test_a_kept_key_answers_with_the_outcome_it_had(scene, worker, state):
    scene.add()
    ran = _ran(scene, worker, state=state, kwargs='{"a":1}')
    assert _prune(scene) == 1
    kept = scene.ask(key="mine", kwargs='{"a":1}')
    assert (kept.id, kept.name, kept.key, kept.kind, kept.state) == (ran.id, "job", "mine", RunKind.MANUAL, state)
    assert (kept.scheduled_for, kept.started_at, kept.finished_at) == (
        ran.scheduled_for,
        ran.started_at,
        ran.finished_at,
    )
    assert kept.digest == digest_of('{"a":1}')
    assert scene.runs() == []
    assert worker.claim().runs == ()


def test_a_run_that_is_there_has_no_digest(scene, worker):
    scene.add()
    assert scene.ask(key="mine").digest is None
    assert scene.ask(key="mine").digest is None


def test_arguments_of_the_job_have_an_empty_digest(scene, worker):
    scene.add()
    _ran(scene, worker)
    _prune(scene)
    assert scene.ask(key="mine").digest == ""


def test_a_key_that_tenure_made_is_not_kept(scene, worker):
    scene.add()
    ran = _ran(scene, worker, key="manual-0123456789abcdef")
    assert _prune(scene) == 1
    again = scene.ask(key="manual-0123456789abcdef")
    assert (again.id != ran.id, again.state, again.digest) == (True, RunState.PENDING, None)


def test_a_key_is_kept_for_its_own_job_alone(scene, worker):
    scene.add("job")
    scene.add("other")
    _ran(scene, worker)
    _prune(scene)
    assert scene.ask("other", key="mine").state is RunState.PENDING


def test_keys_are_kept_for_so_long(scene, worker):
    scene.add()
    first = _ran(scene, worker)
    assert _prune(scene) == 1
    assert _prune(scene, keys_before=first.scheduled_for) == 0
    assert scene.ask(key="mine").id == first.id
    assert _prune(scene, keys_before=scene.ledger.now() + 60) == 1
    assert scene.ask(key="mine").state is RunState.PENDING


def test_a_key_that_is_old_already_goes_with_its_run(scene, worker):
    scene.add()
    first = _ran(scene, worker)
    assert _prune(scene, keys_before=scene.ledger.now() + 60) == 1
    assert scene.ask(key="mine").id != first.id


def test_a_removed_job_answers_no_keys_and_one_that_is_restored_does(scene, worker):
    scene.add()
    first = _ran(scene, worker)
    _prune(scene)
    scene.remove()
    assert scene.ask(key="mine") is None
    scene.add()
    assert scene.ask(key="mine").id == first.id


def test_a_key_that_is_asked_for_while_retention_removes_its_run_makes_no_second_run(real_scene):
    """One thread removes runs, the other asks for all of their keys all the time."""
    worker, rounds = real_scene.worker(), 40
    real_scene.add("job", overlap="allow", max_running=None)
    keys = [f"key {number}" for number in range(rounds)]
    ids = {key: real_scene.ask(key=key).id for key in keys}
    for run in worker.claim(limit=rounds).runs:
        worker.finish(run.id)
    asker, over, wrong = real_scene.worker(), threading.Event(), []

    def ask():
        asked = [RunRequest(real_scene.application, "job", key, None) for key in keys]
        while not over.is_set():
            wrong.extend(run for run in asker.ledger.request_runs(asked) if run is None or run.id != ids[run.key])

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for _ in range(rounds):
            bounds = {"before": real_scene.ledger.now() + 60, "keep": 0, "limit": 1}
            assert real_scene.ledger.prune(real_scene.application, **bounds).removed == 1
    finally:
        over.set()
        asking.join()
    assert wrong == []


def test_a_key_is_told_before_retention_has_committed_that_it_removed_its_run(ledger_database):
    scene = Scene(store_for(ledger_database))
    worker = scene.worker()
    scene.add()
    first = _ran(scene, worker)
    with psycopg.connect(ledger_database) as retention:
        call = "SELECT removed FROM tenure.prune_runs(%s, %s, 0, 10, 0, 10, 0)"
        assert retention.execute(call, [scene.application, scene.ledger.now() + 60]).fetchone() == (1,)
        assert scene.ask(key="mine").id == first.id
        retention.commit()
    assert scene.ask(key="mine").id == first.id
    scene.close()
