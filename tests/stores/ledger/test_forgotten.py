"""What retention has removed is not run again: a backfill of a forgotten due time is refused unless it is asked for."""

import threading

import psycopg

from stores.ledger.scene import Scene
from tenure.core.keys import due_key
from tenure.core.messages import RunRequest
from tenure.core.records import RunKind, RunState
from tenure.stores import store_for


def _backfill(scene, ago, **more):
    return scene.ask(key=due_key(scene.at(ago)), scheduled_for=scene.at(ago), backfill=True, **more)


def _run_and_forget(scene, worker, *ago):
    """Due times that ran, and whose runs retention removed."""
    scene.add("job", *ago, overlap="allow", max_running=None)
    for run in worker.claim(limit=100).runs:
        worker.finish(run.id)
    assert scene.ledger.prune(scene.application, before=scene.start, keep=0, limit=100).removed == len(ago)


def test_a_due_time_that_ran_and_was_forgotten_is_not_backfilled(scene, worker):
    _run_and_forget(scene, worker, 300, 200)
    assert [_backfill(scene, ago) for ago in (300, 200)] == [None, None]
    assert scene.runs() == []
    assert worker.claim().runs == ()


def test_a_due_time_after_the_forgotten_ones_is_backfilled(scene, worker):
    _run_and_forget(scene, worker, 300, 200)
    assert _backfill(scene, 100) is not None
    assert worker.take().key == due_key(scene.at(100))


def test_a_forgotten_due_time_is_backfilled_if_that_is_asked_for(scene, worker):
    _run_and_forget(scene, worker, 300)
    filled = _backfill(scene, 300, even_forgotten=True)
    assert (filled.kind, filled.state, filled.scheduled_for) == (RunKind.BACKFILL, RunState.PENDING, scene.at(300))
    assert worker.take().key == filled.key


def test_an_older_run_that_is_still_there_is_opened_again(scene, worker):
    """The ledger knows of it that it never ran, whatever was forgotten after it."""
    _run_and_forget(scene, worker, 200)
    scene.plan("job", scene.new(300, state=RunState.SKIPPED, reason="missed"))
    assert _backfill(scene, 300).state is RunState.PENDING


def test_a_run_that_is_asked_for_is_not_held_up_by_what_was_forgotten(scene, worker):
    _run_and_forget(scene, worker, 300)
    assert scene.ask(key="mine", scheduled_for=scene.at(400)) is not None


def test_a_backfill_beside_retention_never_runs_a_due_time_again(real_scene):
    """One thread forgets run after run, the other asks for each of them all the time."""
    worker, rounds = real_scene.worker(), 60
    real_scene.add("job", *range(1000, 1000 + rounds), overlap="allow", max_running=None)
    for run in worker.claim(limit=rounds).runs:
        worker.finish(run.id)
    asker, over, again = real_scene.worker(), threading.Event(), []

    def ask():
        asked = [
            RunRequest(real_scene.application, "job", due_key(at), at, backfill=True)
            for at in (real_scene.at(ago) for ago in range(1000, 1000 + rounds))
        ]
        while not over.is_set():
            again.extend(run for run in asker.ledger.request_runs(asked) if run is not None)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for number in range(rounds):
            gone = real_scene.ledger.prune(real_scene.application, before=real_scene.start, keep=0, limit=1).removed
            assert gone == 1, f"run {number} was not removed"
    finally:
        over.set()
        asking.join()
    assert again == []


def test_a_backfill_that_waited_for_retention_sees_what_was_forgotten(ledger_database):
    """It found the row, waited for its lock, and finds it removed: the mark that moved in the same transaction
    counts."""
    scene = Scene(store_for(ledger_database))
    scene.add("job")
    scene.plan("job", scene.new(300, state=RunState.SKIPPED, reason="missed"))
    asker, answers = scene.worker(), []
    with psycopg.connect(ledger_database) as retention, psycopg.connect(ledger_database, autocommit=True) as watcher:
        (run,) = scene.runs()
        retention.execute("UPDATE tenure.job SET kept_since = now() WHERE id = %s", [run.job])
        retention.execute("DELETE FROM tenure.run WHERE id = %s", [run.id])
        asked = [RunRequest(scene.application, "job", run.key, run.scheduled_for, backfill=True)]
        asking = threading.Thread(target=lambda: answers.extend(asker.ledger.request_runs(asked)))
        asking.start()
        waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND locktype = 'transactionid' AND transactionid = %s::text::xid)"
        (mine,) = retention.execute("SELECT pg_current_xact_id()").fetchone()
        while asking.is_alive() and not watcher.execute(waits, [str(mine)]).fetchone()[0]:
            pass
        retention.commit()
        asking.join()
    scene.close()
    assert answers == [None]
