"""Endings wait for no lock: what another transaction holds is answered as busy, and the others are told."""

import uuid

import psycopg
import pytest

from stores.ledger.scene import Scene
from tenure.core.messages import Ending
from tenure.core.records import RunState
from tenure.stores import store_for


@pytest.fixture
def scene(database):
    store = store_for(database)
    store.prepare()
    opened = Scene(store)
    yield opened
    opened.close()


@pytest.fixture
def worker(scene):
    return scene.worker()


@pytest.fixture
def other(database):
    """A transaction of the application's, left open. Whoever waits for it here would wait for ever."""
    with psycopg.connect(database) as connection:
        connection.execute("SET statement_timeout = '10s'")
        yield connection
        connection.rollback()


def completes(other, worker, run):
    other.execute("SELECT tenure.complete(%s, %s, NULL)", [run.id, worker.tokens[run.id]])


def locks_job(other, scene):
    other.execute("SELECT 1 FROM tenure.job WHERE id = %s FOR UPDATE", [scene.job().id])


@pytest.mark.parametrize("state", [RunState.SUCCEEDED, RunState.FAILED, RunState.PENDING])
def test_a_run_that_is_locked_is_busy_and_the_others_end(scene, worker, other, state):
    scene.add("job", 60, 50, 40, max_running=3)
    first, second, third = worker.claim().runs
    completes(other, worker, second)
    answers = worker.ledger.finish(
        [
            worker.ending(first.id, state),
            worker.ending(second.id, RunState.FAILED, error="not committed"),
            worker.ending(third.id),
        ]
    )
    assert [(answer.accepted, answer.busy) for answer in answers] == [(True, False), (False, True), (True, False)]
    assert scene.run(second.id).state is RunState.RUNNING
    other.rollback()
    (again,) = worker.ledger.finish([worker.ending(second.id, RunState.FAILED, error="not committed")])
    assert (again.accepted, again.busy) == (True, False)
    assert scene.run(second.id).reason == "not committed"


def test_a_run_whose_own_transaction_committed_meanwhile_is_refused(scene, worker, other):
    scene.add("job", 60)
    run = worker.take()
    completes(other, worker, run)
    assert worker.finish(run.id, RunState.FAILED).busy
    other.commit()
    ended = worker.finish(run.id, RunState.FAILED)
    assert (ended.accepted, ended.busy, ended.state) == (False, False, RunState.SUCCEEDED)


def test_an_older_attempt_is_refused_however_locked_the_run_is(scene, worker, other):
    scene.add("job", 60)
    run = worker.take()
    completes(other, worker, run)
    (ended,) = worker.ledger.finish([Ending(run.id, str(uuid.uuid4()), RunState.SUCCEEDED)])
    assert (ended.accepted, ended.busy, ended.state) == (False, False, RunState.RUNNING)


@pytest.mark.parametrize("again_in", [None, 0.0])
def test_what_would_be_pending_is_busy_while_its_job_is_locked(scene, worker, other, again_in):
    scene.add("job", 60, 50, max_running=2)
    first, second = worker.claim().runs
    locks_job(other, scene)
    answers = worker.ledger.finish(
        [worker.ending(first.id, RunState.PENDING, again_in=again_in), worker.ending(second.id)]
    )
    assert [(answer.accepted, answer.busy) for answer in answers] == [(False, True), (True, False)]
    other.rollback()
    assert worker.finish(first.id, RunState.PENDING, again_in=again_in).accepted
    assert scene.run(first.id).state is RunState.PENDING


@pytest.mark.parametrize("lock", ["run", "job"])
def test_what_is_locked_is_put_back_when_it_is_not_any_more(scene, worker, other, lock):
    scene.add("job", 60, 50, max_running=2)
    held = [(run.id, worker.tokens[run.id]) for run in worker.claim().runs]
    if lock == "run":
        other.execute("SELECT 1 FROM tenure.run WHERE id = %s FOR UPDATE", [held[0][0]])
    else:
        locks_job(other, scene)
    assert worker.ledger.put_back(held) == (1 if lock == "run" else 0)
    other.rollback()
    assert worker.ledger.put_back(held) == (1 if lock == "run" else 2)
    assert {run.state for run in scene.runs()} == {RunState.PENDING}
