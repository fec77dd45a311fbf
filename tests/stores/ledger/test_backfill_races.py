"""Steps of backfills and everybody else at the same time, with real locks: no step waits, and no due time runs twice."""

import json
import threading
from collections import Counter

import psycopg
import pytest

from stores.ledger.scene import Scene
from stores.ledger.test_backfills import advance, counts, create, seen, steer
from tenure.core.backfills import Advanced, BackfillState, Steer
from tenure.core.keys import due_key
from tenure.core.messages import JobChange
from tenure.core.records import Change, RunState
from tenure.stores import store_for
from tenure.stores.postgres.rows import written_change

DUE = 120
AT_ONCE = 4


@pytest.fixture
def server_scene(ledger_database):
    opened = Scene(store_for(ledger_database))
    yield opened
    opened.close()


def together(*works):
    """Do these at the same time. Raises what one of them raises at once: the others may wait for it for ever."""
    raised = []

    def guarded(work):
        try:
            work()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=[work], daemon=True) for work in works]
    for thread in threads:
        thread.start()
    while not raised and (left := [thread for thread in threads if thread.is_alive()]):
        left[0].join(0.05)
    if raised:
        raise raised[0]


def test_two_nodes_that_advance_it_request_each_due_time_once(real_scene):
    """Each claims, ends and advances as fast as it can, while a third looks at how many are open."""
    scene = real_scene
    scene.add("job", overlap="allow", max_running=None)
    number, _ = create(scene, *range(10_000, 10_000 + DUE), at_once=AT_ONCE)
    nodes, looker, most, begun = [scene.worker(), scene.worker()], scene.worker(), [], []

    def work(node):
        while seen(scene_of(node), number).finished_at is None:
            for run in node.claim(limit=2).runs:
                begun.append(run.key)
                node.finish(run.id)
            node.ledger.advance_backfills(scene.application, 3)

    def look():
        while (row := seen(scene_of(looker), number)).finished_at is None:
            most.append(sum(row.counts.get(word, 0) for word in ("pending", "running")))

    together(*(lambda node=node: work(node) for node in nodes), look)
    assert len(begun) == len(set(begun)) == DUE
    assert max(most) <= AT_ONCE
    assert counts(scene, number) == {"succeeded": DUE}
    assert [run.attempt for run in scene.runs()] == [1] * DUE


def scene_of(node):
    """What the helpers need, over the connection of a node: one connection is for one thread."""

    class View:
        ledger, application = node.ledger, node.application

    return View


@pytest.mark.parametrize("word", [Steer.PAUSE, Steer.CANCEL])
def test_after_a_pause_or_a_cancellation_no_step_requests_anything(real_scene, word):
    """Again and again, against steps that go on all the time."""
    scene = real_scene
    scene.add("job", overlap="allow", max_running=None)
    stepper, over, may_end = scene.worker(), threading.Event(), [0]

    def step():
        while not over.is_set():
            for run in stepper.claim(limit=min(3, may_end[0])).runs if may_end[0] else ():
                stepper.finish(run.id)
                may_end[0] -= 1
            stepper.ledger.advance_backfills(scene.application, 10)

    def stop():
        try:
            for turn in range(15):
                first = 10_000 + 100 * turn
                number, _ = create(scene, *range(first, first + 60), at_once=2)
                may_end[0] = 40  # so that it is not over before it is stopped
                while seen(scene, number).counts.get("succeeded", 0) < 3:
                    pass
                assert steer(scene, number, word)
                left = counts(scene, number)["left"]
                for _ in range(20):
                    assert counts(scene, number)["left"] == left, "a step has requested a run all the same"
                may_end[0] = 1000
                if word is Steer.PAUSE:
                    assert steer(scene, number, Steer.CANCEL)
                while seen(scene, number).finished_at is None:
                    pass
                may_end[0] = 0
                found = counts(scene, number)
                assert (sum(found.values()), found["left"]) == (60, left)
                assert set(found) <= {"succeeded", "cancelled", "left"}, found
        finally:
            over.set()

    together(step, stop)
    assert {run.state for run in scene.runs()} <= {RunState.SUCCEEDED, RunState.CANCELLED}


def test_a_cancellation_against_claims_cancels_a_run_or_leaves_it_running(real_scene):
    """A run that was claimed goes on to its end; no run is both."""
    scene = real_scene
    scene.add("job", overlap="allow", max_running=None)
    claimer = scene.worker()
    for turn in range(20):
        first = 10_000 + 100 * turn
        number, runs = create(scene, *range(first, first + 8))
        claimed, go = [], threading.Barrier(2)

        def claim(claimed=claimed, go=go):
            go.wait()
            for _ in range(4):
                claimed.extend(claimer.claim(limit=2).runs)

        def cancel(number=number, go=go):
            go.wait()
            assert steer(scene, number, Steer.CANCEL)

        together(claim, cancel)
        took = {run.id for run in claimed}
        for run in runs:
            state = scene.run(run.id).state
            assert state is (RunState.RUNNING if run.id in took else RunState.CANCELLED), (turn, state)
        for run in claimed:
            assert claimer.finish(run.id).accepted
        advance(scene)
        expected = {"succeeded": len(took), "cancelled": 8 - len(took)}
        assert counts(scene, number) == {word: count for word, count in expected.items() if count}
        assert seen(scene, number).finished_at is not None


def test_a_removal_against_steps_leaves_no_run_open(real_scene):
    scene = real_scene
    stepper, over, ended, current = scene.worker(), threading.Event(), Counter(), [""]

    def step():
        while not over.is_set():
            if ended[current[0]] < 40:  # or the backfill might be over before the job is removed
                for run in stepper.claim(limit=3).runs:
                    stepper.finish(run.id)
                    ended[run.name] += 1
            stepper.ledger.advance_backfills(scene.application, 10)

    def remove():
        try:
            for turn in range(10):
                current[0] = name = f"job {turn}"
                scene.add(name, overlap="allow", max_running=None)
                number, _ = create(scene, *range(10_000, 10_060), name=name, at_once=2)
                while seen(scene, number).counts.get("succeeded", 0) < 2:
                    pass
                scene.remove(name)
                while seen(scene, number).finished_at is None:
                    pass
                assert seen(scene, number).state is BackfillState.CANCELLED
                assert {run.state for run in scene.runs(name)} <= {RunState.SUCCEEDED, RunState.CANCELLED}
        finally:
            over.set()

    together(step, remove)


def test_a_step_waits_for_no_lock(server_scene, ledger_database):
    """A user's own transaction has changed the job, has retried a run, or holds the backfill itself."""
    scene = server_scene
    worker = scene.worker()
    scene.add("job", 7100, overlap="allow", max_running=None)
    worker.finish(worker.take().id, RunState.FAILED, error="no")
    number, _ = create(scene, 7200, 7100, 7000, include=("missing", "failed"), at_once=1)
    worker.finish(worker.take().id)
    failed = next(run for run in scene.runs() if run.state is RunState.FAILED)
    for statement, values, open_ in (
        (
            "SELECT tenure.change_job(%s)",
            [json.dumps(written_change(JobChange(scene.application, "job", Change.PAUSED)))],
            0,
        ),
        ("SELECT FROM tenure.backfill WHERE number = %s FOR UPDATE", [number], 0),
        ("SELECT FROM tenure.run WHERE id = %s FOR UPDATE", [failed.id], 1),
    ):
        with psycopg.connect(ledger_database) as users:
            users.execute(statement, values)
            answer = advance(scene)
            assert answer == Advanced(begins=bool(open_), held=True), statement
            users.rollback()
    assert counts(scene, number) == {"succeeded": 1, "pending": 1, "left": 1}
    assert worker.take().key == due_key(scene.at(7000)), "the locked one was passed by"


def test_retention_that_waited_for_a_new_backfill_leaves_what_it_has_to_run(server_scene, ledger_database):
    """It chose what to remove before the backfill was there, and locks the job afterwards."""
    scene = server_scene
    worker = scene.worker()
    scene.add("job", 7100, overlap="allow", max_running=None)
    worker.finish(worker.take().id)
    with psycopg.connect(ledger_database) as creating:
        creating.execute("SELECT FROM tenure.job WHERE id = %s FOR NO KEY UPDATE", [scene.job().id])
        assert scene.ledger.prune(scene.application, before=scene.at(-60), keep=0, limit=100).removed == 0
        creating.rollback()
    number, _ = create(scene, 7200, 7000, at_once=1)
    assert scene.ledger.prune(scene.application, before=scene.at(-60), keep=0, limit=100).removed == 0
    assert counts(scene, number) == {"pending": 1, "left": 1}


def test_retention_beside_backfills_never_forgets_what_they_have_to_run(real_scene):
    """One thread creates backfills between due times that ran, the other removes whatever it may."""
    scene, over = real_scene, threading.Event()
    worker, pruner = scene.worker(), scene.worker()

    def prune():
        while not over.is_set():
            pruner.ledger.prune(scene.application, before=pruner.ledger.now() + 60, keep=0, limit=5)

    def fill():
        try:
            for turn in range(12):
                name = f"job {turn}"
                scene.add(name, *range(10_000, 10_020, 2), overlap="allow", max_running=None)
                for run in worker.claim(limit=10).runs:
                    worker.finish(run.id)
                kept = scene.job(name).kept_since
                missing = [ago for ago in range(10_001, 10_021, 2) if scene.at(ago) >= kept]
                number, _ = create(scene, *range(10_001, 10_021, 2), name=name, at_once=2)
                if number is None:
                    continue
                while seen(scene, number).finished_at is None:
                    for run in worker.claim(limit=2).runs:
                        worker.finish(run.id)
                    advance(scene)
                found = counts(scene, number)
                assert set(found) == {"succeeded"}, found
                assert found["succeeded"] <= len(missing)
        finally:
            over.set()

    together(prune, fill)
