"""When a job is paused or removed, its nodes answer for what they had claimed: given back, or begun. Then nothing more
begins."""

import psycopg
import pytest

from stores.ledger.scene import Scene
from tenure.core.records import Change, RunState
from tenure.stores import store_for


@pytest.fixture(params=[Change.PAUSED, Change.REMOVED])
def ceases(request, scene):
    """Pause or remove the job."""
    return lambda: scene.change(request.param)


def test_a_node_must_answer_for_what_it_claimed_of_a_job_that_ceased(scene, worker, ceases):
    scene.add("job", 60)
    scene.add("other", 50)
    run, _ = worker.claim().runs
    assert [held.must_answer for held in worker.reconcile().held] == [False, False]
    ceases()
    assert [held.id for held in worker.reconcile().held if held.must_answer] == [run.id]


def test_a_pause_waits_for_every_node_that_has_not_answered(scene, ledger, ceases):
    first, second = scene.worker("first"), scene.worker("second")
    scene.add("job", 60, 50, overlap="allow", max_running=None)
    begun = first.claim(limit=1).runs[0]
    unbegun = second.take()
    job = ceases()
    assert ledger.unbegun(job.id, job.generation) == [("first", 30.0), ("second", 30.0)]
    first.ledger.note_begun([(begun.id, first.tokens[begun.id], scene.start)])
    assert ledger.unbegun(job.id, job.generation) == [("second", 30.0)]
    assert first.reconcile().held[0].must_answer is False, "it has answered"
    assert scene.run(begun.id).started_at == scene.start
    second.finish(unbegun.id, RunState.PENDING)
    assert ledger.unbegun(job.id, job.generation) == []


def test_an_answer_needs_the_token_of_the_attempt(scene, worker, ledger, ceases):
    scene.add("job", 60)
    run = worker.take()
    job = ceases()
    worker.ledger.note_begun([(run.id, "another", scene.start)])
    assert len(ledger.unbegun(job.id, job.generation)) == 1
    assert scene.run(run.id).started_at is None


def test_a_dead_node_has_answered(scene, worker, ledger, ceases):
    scene.add("job", 60)
    worker.take()
    job = ceases()
    worker.session.leave(worker.id, "bye")
    assert ledger.unbegun(job.id, job.generation) == []


def test_an_update_of_a_paused_job_does_not_end_the_wait_and_a_resume_does(scene, worker, ledger):
    scene.add("job", 60)
    worker.take()
    job = scene.pause()
    scene.change(Change.UPDATED, spec=scene.spec(function="g"), next_due=scene.start)
    assert len(ledger.unbegun(job.id, job.generation)) == 1
    scene.resume()
    assert ledger.unbegun(job.id, job.generation) == []
    assert worker.reconcile().held[0].must_answer is False


def test_a_pause_does_not_wait_for_what_was_claimed_after_it(scene, worker, ledger):
    scene.add("job", 60, overlap="allow", max_running=None)
    old = worker.take()
    first = scene.pause()
    scene.resume()
    scene.plan("job", 50)
    new = worker.take()
    second = scene.pause()
    worker.ledger.note_begun([(old.id, worker.tokens[old.id], scene.start)])
    assert ledger.unbegun(first.id, first.generation) == []
    assert len(ledger.unbegun(second.id, second.generation)) == 1
    worker.ledger.note_begun([(new.id, worker.tokens[new.id], scene.start)])
    assert ledger.unbegun(second.id, second.generation) == []


@pytest.mark.parametrize("by", ["finish", "put_back"])
def test_a_due_time_that_never_began_is_skipped_if_its_job_was_paused_meanwhile(scene, worker, about_now, by):
    scene.add("job", 60)
    run = worker.take()
    scene.pause()
    if by == "finish":
        ended = worker.finish(run.id, RunState.PENDING)
        assert (ended.accepted, ended.state) == (True, RunState.SKIPPED)
    else:
        assert worker.ledger.put_back([(run.id, worker.tokens[run.id])]) == 1
    assert scene.told() == ["skipped(paused)"]
    row = scene.run(run.id)
    assert (row.attempt, row.node, row.claimed_at, row.started_at) == (0, "", None, None)
    assert about_now(row.finished_at)
    scene.resume()
    assert worker.claim().runs == ()


def test_what_was_asked_for_and_what_is_between_attempts_stays_for_the_resume(scene, worker):
    scene.add("job", 60, overlap="allow", max_running=None)
    retrying = worker.take()
    worker.finish(retrying.id, RunState.PENDING, again_in=0)
    asked = scene.ask()
    claimed = {run.id for run in worker.claim().runs}
    assert claimed == {retrying.id, asked.id}
    scene.pause()
    for run in claimed:
        assert worker.finish(run, RunState.PENDING).state is RunState.PENDING
    assert worker.claim().runs == ()
    scene.resume()
    assert {run.id for run in worker.claim().runs} == claimed


def test_a_due_time_whose_body_was_called_is_not_skipped_by_a_pause(scene, worker):
    scene.add("job", 60)
    run = worker.take()
    scene.pause()
    worker.finish(run.id, RunState.PENDING, started_at=scene.start)
    assert scene.told() == ["pending(its node was stopped)"]


def test_what_never_began_is_cancelled_if_its_job_was_removed_meanwhile(scene, worker):
    scene.add("job", 60)
    run = worker.take()
    scene.remove()
    assert worker.finish(run.id, RunState.PENDING).state is RunState.CANCELLED
    assert scene.told() == ["cancelled(removed)"]


def test_due_times_that_nobody_had_planned_are_written_with_a_pause_or_a_removal(scene, worker):
    older = scene.new(900, state=RunState.SKIPPED, reason="missed", count=3, until=scene.at(700))
    for name, what, told in (("a", Change.PAUSED, "skipped(paused)"), ("b", Change.REMOVED, "cancelled(removed)")):
        scene.add(name, 60)
        past = (older, scene.new(60), scene.new(50, expired_ago=20), scene.new(40))
        scene.change(what, name, runs=past)
        assert scene.told(name) == ["skipped(missed)", told, told, told]
    assert worker.claim().runs == ()


def test_an_answer_does_not_wait_for_a_body_that_is_about_to_commit(ledger_database):
    scene = Scene(store_for(ledger_database))
    worker = scene.worker()
    scene.add("job", 60)
    run = worker.take()
    job = scene.pause()
    with psycopg.connect(ledger_database) as body:
        body.execute("SELECT tenure.complete(%s, %s, NULL)", (run.id, worker.tokens[run.id]))
        worker.ledger.note_begun([(run.id, worker.tokens[run.id], scene.start)])
        assert len(scene.ledger.unbegun(job.id, job.generation)) == 1, "as far as others can see"
    assert scene.ledger.unbegun(job.id, job.generation) == []
    scene.close()
