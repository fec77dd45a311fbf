"""Finish and put back: an attempt is over."""

import uuid
from dataclasses import replace

import psycopg
import pytest

from tenure.core.messages import Ending, LogLine, LogTrim, Progress
from tenure.core.records import RunState

FINAL = [RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED]


@pytest.mark.parametrize("state", FINAL)
def test_an_end_is_final(scene, worker, state):
    scene.add("job", 60)
    run = worker.take()
    ended = worker.finish(run.id, state, error="boom" if state is RunState.FAILED else "")
    assert (ended.id, ended.accepted, ended.state, ended.wakes) == (run.id, True, state, False)
    row = scene.run(run.id)
    assert (row.state, row.attempt, row.node) == (state, 1, "a worker")
    assert (row.failures, row.losses) == (1 if state is RunState.FAILED else 0, 0)
    assert row.reason == ("boom" if state is RunState.FAILED else "")
    assert worker.claim().runs == ()
    assert worker.reconcile().held == ()


def test_the_node_says_when_it_began_and_ended(scene, worker):
    scene.add("job", 60)
    run = worker.take()
    worker.finish(run.id, started_at=scene.start - 20.25, finished_at=scene.start - 10.5)
    row = scene.run(run.id)
    assert (row.started_at, row.finished_at) == (scene.start - 20.25, scene.start - 10.5)


@pytest.mark.parametrize("state", FINAL)
@pytest.mark.parametrize("then", FINAL)
def test_an_end_is_accepted_once(scene, worker, state, then):
    scene.add("job", 60)
    run = worker.take()
    worker.finish(run.id, state)
    again = worker.finish(run.id, then, error="late")
    assert (again.accepted, again.busy, again.state) == (False, False, state)
    assert scene.run(run.id).reason == ""


def test_an_end_needs_the_token(scene, worker):
    scene.add("job", 60)
    run = worker.take()
    (ended,) = scene.ledger.finish([Ending(run.id, str(uuid.uuid4()), RunState.FAILED, error="not mine")])
    assert (ended.accepted, ended.busy, ended.state) == (False, False, RunState.RUNNING)
    assert scene.told() == ["running"]
    assert worker.finish(run.id).accepted


def test_the_token_of_an_earlier_attempt_ends_nothing(scene, worker):
    scene.add("job", 60)
    run = worker.take()
    old = worker.tokens[run.id]
    worker.finish(run.id, RunState.PENDING, again_in=0)
    (early,) = scene.ledger.finish([Ending(run.id, old, RunState.SUCCEEDED)])
    assert (early.accepted, early.state) == (False, RunState.PENDING)
    worker.take()
    (late,) = scene.ledger.finish([Ending(run.id, old, RunState.SUCCEEDED)])
    assert (late.accepted, late.state) == (False, RunState.RUNNING)


def test_a_run_that_is_gone_is_not_accepted(scene, worker):
    scene.add("job", 60)
    run = worker.take()
    worker.finish(run.id)
    assert scene.ledger.prune(scene.application, before=scene.start, keep=0, limit=10).removed == 1
    (ended,) = scene.ledger.finish([worker.ending(run.id)])
    assert not ended.accepted


def test_a_failure_is_tried_again(scene, worker):
    scene.add("job", 60)
    run = worker.take()
    ended = worker.finish(run.id, RunState.PENDING, again_in=30, error="boom")
    assert (ended.accepted, ended.state) == (True, RunState.PENDING)
    row = scene.run(run.id)
    assert (row.state, row.attempt, row.failures, row.losses) == (RunState.PENDING, 1, 1, 0)
    assert row.scheduled_for == scene.start - 60
    assert scene.ledger.now() + 20 < row.due_at <= scene.ledger.now() + 30
    assert worker.claim().runs == (), "not yet"


def test_a_retry_is_due_from_the_end_of_the_attempt_on(scene, worker):
    scene.add("job", 60)
    run = worker.take()
    worker.finish(run.id, RunState.PENDING, again_in=30.5, started_at=scene.start - 50, finished_at=scene.start - 40)
    assert scene.run(run.id).due_at == scene.start - 9.5
    assert worker.take().attempt == 2


def test_a_retry_never_expires(scene, worker):
    scene.add("job")
    scene.plan("job", scene.expiring(60))
    run = worker.take()
    worker.finish(run.id, RunState.PENDING, again_in=0)
    scene.wait_for_expiry()
    again = worker.claim()
    assert ([claimed.id for claimed in again.runs], again.missed) == ([run.id], False)


def test_what_never_began_goes_back_uncounted(scene, worker):
    scene.add("job", grace=100.0)
    scene.plan("job", scene.new(60, due_ago=50, expired_ago=-50))
    run = worker.take()
    ended = worker.finish(run.id, RunState.PENDING)
    assert (ended.accepted, ended.state) == (True, RunState.PENDING)
    row = scene.run(run.id)
    assert (row.attempt, row.failures, row.losses, row.due_at) == (0, 0, 0, scene.start - 50)
    assert worker.take().attempt == 1


def test_what_goes_back_has_time_to_be_claimed_again(scene, worker):
    scene.add("job", grace=100.0)
    scene.plan("job", scene.expiring(60))
    run = worker.take()
    scene.wait_for_expiry()
    worker.finish(run.id, RunState.PENDING)
    assert scene.ledger.missed(scene.application, 10) == []
    assert worker.take().id == run.id


def test_what_goes_back_may_still_be_missed(scene, worker):
    scene.add("job", grace=0.0)
    scene.plan("job", scene.expiring(60))
    run = worker.take()
    worker.finish(run.id, RunState.PENDING)
    assert scene.ledger.missed(scene.application, 10) == [], "its own time is kept"
    scene.wait_for_expiry()
    (job,) = scene.ledger.missed(scene.application, 10)
    assert [missed.id for missed in job.runs] == [run.id]


def test_a_removed_job_has_no_further_attempt(scene, worker):
    scene.add("job", 60, 50, max_running=2)
    failed, returned = worker.claim().runs
    scene.remove()
    ended = worker.finish(failed.id, RunState.PENDING, again_in=0, error="boom")
    assert (ended.accepted, ended.state) == (True, RunState.FAILED)
    ended = worker.finish(returned.id, RunState.PENDING)
    assert (ended.accepted, ended.state) == (True, RunState.CANCELLED)
    assert scene.told() == ["failed(boom)", "cancelled(removed)"]


@pytest.mark.parametrize("again_in", [None, 0.0])
def test_what_was_asked_to_end_has_no_further_attempt(scene, worker, again_in):
    scene.add("job", 60)
    run = worker.take()
    scene.ledger.cancel(run.id, "ops", "wrong data")
    ended = worker.finish(run.id, RunState.PENDING, again_in=again_in, error="boom")
    assert (ended.accepted, ended.state) == (True, RunState.CANCELLED)
    assert "wrong data" in scene.run(run.id).reason


@pytest.mark.parametrize("again_in", [None, 3600.0])
def test_what_has_no_further_attempt_keeps_when_it_was_due(scene, worker, again_in):
    scene.add("job", 60)
    run = worker.take()
    scene.ledger.cancel(run.id, "somebody", "")
    worker.finish(run.id, RunState.PENDING, again_in=again_in)
    assert scene.run(run.id).due_at == run.due_at


def test_what_goes_back_unbegun_was_nobodys(scene, worker):
    scene.add("job", 60)
    run = worker.take()
    assert scene.ledger.put_back([(run.id, worker.tokens[run.id])]) == 1
    row = scene.run(run.id)
    assert (row.state, row.attempt, row.node, row.claimed_at) == (RunState.PENDING, 0, "", None)


def test_what_was_asked_to_end_may_still_succeed(scene, worker):
    scene.add("job", 60)
    run = worker.take()
    scene.ledger.cancel(run.id, "ops", "wrong data")
    assert worker.finish(run.id).state is RunState.SUCCEEDED


def test_what_was_replaced_is_cancelled_as_replaced(scene, worker):
    scene.add("job", 60, overlap="replace")
    run = worker.take()
    scene.plan("job", 50)
    worker.claim()
    ended = worker.finish(run.id, RunState.PENDING, again_in=0)
    assert (ended.state, ended.wakes) == (RunState.CANCELLED, True)
    assert scene.told() == ["cancelled(replaced)", "waiting"]
    assert worker.take().scheduled_for == scene.start - 50


def test_a_batch_is_answered_in_its_order_each_by_its_token(scene, worker):
    scene.add("job", 60, 50, 40, max_running=3)
    first, second, third = worker.claim().runs
    answers = scene.ledger.finish(
        [
            worker.ending(third.id, RunState.FAILED, error="boom"),
            Ending(second.id, str(uuid.uuid4()), RunState.SUCCEEDED),
            worker.ending(first.id),
        ]
    )
    assert [(answer.id, answer.accepted, answer.state) for answer in answers] == [
        (third.id, True, RunState.FAILED),
        (second.id, False, RunState.RUNNING),
        (first.id, True, RunState.SUCCEEDED),
    ]
    assert scene.told() == ["succeeded", "running", "failed(boom)"]


def test_an_empty_batch_is_nothing(ledger):
    assert ledger.finish([]) == []


def test_log_lines_are_kept_in_order_over_the_attempts(scene, worker):
    scene.add("job", 60)
    run = worker.take()
    worker.finish(run.id, RunState.PENDING, again_in=0)
    worker.take()
    worker.finish(run.id)
    worker.keep_log(run.id, "three", "ünïcödé", attempt=2)
    worker.keep_log(run.id, "one", "two\nlines")
    assert scene.logged(run.id) == ["one", "two\nlines", "three", "ünïcödé"]
    assert [(line.attempt, line.place) for line in scene.ledger.log(run.id)] == [(1, 0), (1, 1), (2, 0), (2, 1)]


def test_a_line_has_its_time(scene, worker):
    scene.add("job", 60)
    run = worker.take().id
    lines = [LogLine(run, 1, place, scene.start + 0.000_001 * place, f"line {place}") for place in range(3)]
    scene.ledger.keep_log(lines)
    assert scene.ledger.log(run) == lines


def test_lines_that_later_ones_take_the_room_of_are_dropped(scene, worker):
    scene.add("job", 60, 50, overlap="allow", max_running=None)
    run, other = (claimed.id for claimed in worker.claim().runs)
    for one in (run, other):
        worker.keep_log(one, *"abcdef")
    worker.keep_log(run, *"xyz", attempt=2)
    late = LogLine(run, 1, 6, scene.start, "g")
    for _ in range(2):  # also if it is sent twice
        scene.ledger.keep_log([late], [LogTrim(run, 1, 2, 5)])
        assert scene.logged(run) == [*"abfgxyz"]
    scene.ledger.keep_log([], [LogTrim(run, 2, 0, 2), LogTrim(run, 1, 5, 6)])
    assert scene.logged(run) == [*"abgz"]
    assert scene.logged(other) == [*"abcdef"]


def test_the_last_progress_of_the_last_attempt_is_kept(scene, worker):
    scene.add("job", 60, 50, overlap="allow", max_running=None)
    run, other = (claimed.id for claimed in worker.claim().runs)
    assert scene.ledger.progress([run, other]) == {}
    first = Progress(run, 1, 1.0, 900.0, "loading", scene.start)
    scene.ledger.keep_progress([first, Progress(run + 1000, 1, 1.0, None, "of nothing", scene.start)])
    assert scene.ledger.progress([run, other, run + 1000]) == {run: first}
    later, second = (
        replace(first, done=2.5, total=None, text='a"ü', at=scene.start + 1),
        Progress(other, 1, 0.0, 0.0, "", scene.start),
    )
    scene.ledger.keep_progress([later, second])
    assert scene.ledger.progress([run, other]) == {run: later, other: second}
    third = replace(first, attempt=2, done=0.0)
    scene.ledger.keep_progress([third])
    scene.ledger.keep_progress([later])
    assert scene.ledger.progress([run]) == {run: third}, "that of a later attempt stays"
    scene.ledger.keep_progress([])


def test_a_row_that_another_transaction_has_locked_delays_no_line(real_scene):
    """Such as the open one of the body that logs, which is about to complete its run."""
    scene, worker = real_scene, real_scene.worker()
    if scene.store.shown.startswith("sqlite"):
        pytest.skip("the file has one lock")
    scene.add("job", 60)
    run = worker.take().id
    with psycopg.connect(scene.store.shown) as other:
        other.execute("SELECT 1 FROM tenure.run WHERE id = %s FOR UPDATE", [run])
        worker.keep_log(run, "line")
        scene.ledger.keep_progress([Progress(run, 1, 1.0, None, "", scene.start)])
        assert scene.logged(run) == ["line"]


def test_a_line_that_is_sent_again_is_kept_once(scene, worker):
    scene.add("job", 60)
    run = worker.take()
    worker.keep_log(run.id, "one", "two")
    worker.keep_log(run.id, "one", "two", "three")
    assert scene.logged(run.id) == ["one", "two", "three"]


def test_what_no_table_takes_is_spelt_out_in_a_log(scene, worker):
    scene.add("job", 60)
    run = worker.take()
    worker.keep_log(run.id, "a\0b", "half \ud800", "한글 \N{GRINNING FACE}")
    kept = ["a\\x00b", "half \\ud800", "한글 \N{GRINNING FACE}"]
    assert scene.logged(run.id) in (kept, ["a\0b", "half \ud800", kept[2]])


def test_the_one_who_ends_hears_that_a_run_waits(scene, worker):
    scene.add("job", 60, overlap="wait")
    run = worker.take()
    scene.plan("job", 50)
    worker.claim()
    assert worker.finish(run.id).wakes
    second = worker.take()
    assert not worker.finish(second.id).wakes, "nothing waits any more"


def test_a_retry_keeps_its_place_and_wakes_nobody(scene, worker):
    scene.add("job", 60, overlap="wait")
    run = worker.take()
    scene.plan("job", 50)
    worker.claim()
    assert not worker.finish(run.id, RunState.PENDING, again_in=60).wakes


def test_put_back_is_by_token_and_uncounted(scene, worker):
    scene.add("job", 60, 50, max_running=2)
    first, second = worker.claim().runs
    held = {held.id: held.token for held in worker.reconcile().held}
    assert held == {first.id: worker.tokens[first.id], second.id: worker.tokens[second.id]}
    assert scene.ledger.put_back([(first.id, held[first.id]), (second.id, str(uuid.uuid4()))]) == 1
    assert scene.told() == ["pending", "running"]
    assert (scene.run(first.id).attempt, scene.run(first.id).losses) == (0, 0)
    assert scene.ledger.put_back([(first.id, held[first.id])]) == 0
    again = scene.worker().take()
    assert (again.id, again.attempt) == (first.id, 1)
    assert not worker.finish(first.id).accepted
    assert scene.ledger.put_back([]) == 0


def test_what_is_put_back_after_an_attempt_stays_a_retry(scene, worker):
    scene.add("job", 60)
    run = worker.take()
    worker.finish(run.id, RunState.PENDING, again_in=0)
    worker.take()
    assert scene.ledger.put_back([(run.id, worker.tokens[run.id])]) == 1
    row = scene.run(run.id)
    assert (row.state, row.attempt, row.failures) == (RunState.PENDING, 1, 1)
    assert worker.take().attempt == 2
