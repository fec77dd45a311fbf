"""Every attempt of a run is kept: who had it, when, and how it ended."""

import itertools

import pytest

from tenure.core.keys import due_key
from tenure.core.messages import Result, RunQuery
from tenure.core.records import STOPPED, AttemptOutcome, RunId, RunState

DIED = "its node died"


def _story(scene, run):
    """The attempts of a run in short. Their numbers have no holes, and only the last may be open."""
    attempts = scene.ledger.attempts(run)
    row = scene.run(run)
    numbers = [n for attempt in attempts for n in range(attempt.number - attempt.count + 1, attempt.number + 1)]
    assert numbers == list(range(1, row.attempt + 1))
    assert all(attempt.outcome is not AttemptOutcome.RUNNING for attempt in attempts[:-1])
    open_ = [attempt for attempt in attempts if attempt.outcome is AttemptOutcome.RUNNING]
    assert len(open_) == (row.state is RunState.RUNNING)
    for attempt in attempts:
        assert (attempt.finished_at is None) == (attempt.outcome is AttemptOutcome.RUNNING)
        assert attempt.claimed_at is not None
    return [(attempt.node, attempt.outcome.value, attempt.error) for attempt in attempts]


def _fails(worker, run, error, ago=0.0, again_in=0.0):
    at = worker.ledger.now() - ago
    return worker.finish(
        run, RunState.PENDING, again_in=again_in, error=error, started_at=round(at - 2, 6), finished_at=round(at - 1, 6)
    )


def _dies(scene, worker, node):
    scene.session.declare(node.id, None, "it died")
    (lost,) = worker.reconcile().lost
    return lost


def _backfill(scene, ago):
    return scene.ask(key=due_key(scene.at(ago)), scheduled_for=scene.at(ago), backfill=True)


def test_a_run_that_never_began_has_none(scene, ledger):
    scene.add("job", 60)
    (run,) = scene.runs()
    assert ledger.attempts(run.id) == []
    assert ledger.attempts(RunId(10**9)) == []


def test_the_only_attempt_is_that_of_the_row(scene, worker, about_now):
    scene.add("job", 60)
    run = worker.take()
    (running,) = scene.ledger.attempts(run.id)
    assert (running.number, running.node, running.outcome) == (1, "a worker", AttemptOutcome.RUNNING)
    assert about_now(running.claimed_at)
    worker.finish(run.id, RunState.FAILED, error="boom", started_at=scene.start - 20.25, finished_at=scene.start - 10.5)
    (failed,) = scene.ledger.attempts(run.id)
    assert (failed.number, failed.outcome, failed.error) == (1, AttemptOutcome.FAILED, "boom")
    assert (failed.started_at, failed.finished_at) == (scene.start - 20.25, scene.start - 10.5)


def test_each_attempt_keeps_its_node_its_times_its_outcome_and_its_error(scene, worker):
    scene.add("job", 60, max_lost=5)
    run = worker.take().id
    began, ended = scene.start - 30.5, scene.start - 20.25
    worker.finish(run, RunState.PENDING, again_in=0.0, error="first", started_at=began, finished_at=ended)
    row = scene.run(run)
    assert (row.state, row.node, row.started_at, row.finished_at) == (RunState.PENDING, "a worker", began, ended)
    assert _story(scene, run) == [("a worker", "failed", "first")], "before another one follows"
    other = scene.worker("another")
    assert other.take().attempt == 2
    assert _story(scene, run) == [("a worker", "failed", "first"), ("another", "running", "")]
    first = scene.ledger.attempts(run)[0]
    assert (first.started_at, first.finished_at) == (began, ended)
    _dies(scene, worker, other)
    third = scene.worker("a third")
    third.take()
    third.interrupt(run, scene.start)
    worker.take()
    worker.finish(run)
    assert _story(scene, run) == [
        ("a worker", "failed", "first"),
        ("another", "lost", DIED),
        ("a third", "interrupted", STOPPED),
        ("a worker", "succeeded", ""),
    ]


@pytest.mark.parametrize("final", [RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED])
def test_the_last_attempt_ends_as_its_run(scene, worker, final):
    scene.add("job", 60)
    run = worker.take().id
    _fails(worker, run, "first")
    worker.take()
    worker.finish(run, final, error="second")
    assert _story(scene, run) == [("a worker", "failed", "first"), ("a worker", str(final), "second")]


def test_a_lost_attempt_says_when_it_was_taken_back(scene, worker, about_now):
    scene.add("job", 60)
    node = scene.worker("gone")
    run = node.take().id
    _dies(scene, worker, node)
    row = scene.run(run)
    assert (row.state, row.node, row.reason) == (RunState.PENDING, "gone", DIED)
    assert about_now(row.finished_at)
    (lost,) = scene.ledger.attempts(run)
    assert (lost.outcome, lost.error, lost.finished_at) == (AttemptOutcome.LOST, DIED, row.finished_at)


def test_a_stop_that_did_not_wait_is_an_interruption(scene, worker):
    scene.add("job", 60)
    node = scene.worker("stopped")
    run = node.take().id
    node.reconcile(stopping=True)
    _dies(scene, worker, node)
    assert _story(scene, run) == [("stopped", "interrupted", STOPPED)]


def test_what_was_given_back_unbegun_was_no_attempt(scene, worker):
    scene.add("job", 60)
    run = worker.take().id
    assert worker.finish(run, RunState.PENDING).state is RunState.PENDING
    assert _story(scene, run) == []
    worker.take()
    _fails(worker, run, "first")
    before = scene.ledger.attempts(run)
    for _ in range(2):
        other = scene.worker("hesitant")
        other.take()
        other.finish(run, RunState.PENDING)
        assert scene.ledger.attempts(run) == before, "as if it had not been claimed"
    worker.take()
    worker.finish(run)
    assert _story(scene, run) == [("a worker", "failed", "first"), ("a worker", "succeeded", "")]


@pytest.mark.parametrize("end", ["cancel", "remove"])
def test_what_ends_between_two_attempts_keeps_the_first(scene, worker, end):
    scene.add("job", 60)
    run = worker.take().id
    _fails(worker, run, "first", again_in=600)
    before = scene.ledger.attempts(run)
    if end == "cancel":
        scene.ledger.cancel(run, "ops", "enough")
    else:
        scene.remove()
    assert scene.run(run).state is RunState.CANCELLED
    assert scene.ledger.attempts(run) == before
    assert _story(scene, run) == [("a worker", "failed", "first")]


@pytest.mark.parametrize("change", ["pause", "update"])
def test_a_change_between_two_attempts_changes_none(scene, worker, change):
    scene.add("job", 60)
    run = worker.take().id
    _fails(worker, run, "first")
    before, row = scene.ledger.attempts(run), scene.run(run)
    if change == "pause":
        scene.pause()
        scene.resume()
    else:
        scene.ledger.sync(scene.application, 1, [])
        assert scene.change("updated", spec=scene.spec(retries=7), next_due=scene.start + 3600)  # type: ignore[arg-type]
    assert scene.ledger.attempts(run) == before
    assert scene.run(run).finished_at == row.finished_at
    worker.take()
    assert _story(scene, run)[0] == ("a worker", "failed", "first")


def test_cancelling_what_runs_keeps_nothing_twice(scene, worker):
    scene.add("job", 60)
    run = worker.take().id
    scene.ledger.cancel(run, "ops", "enough")
    assert _story(scene, run) == [("a worker", "running", "")]
    _fails(worker, run, "late")
    assert _story(scene, run) == [("a worker", "cancelled", "enough (by ops)")]


def test_numbers_go_on_when_a_backfill_reopens_the_run(scene, worker):
    scene.add("job", 60, on_lost="fail")
    node = scene.worker("gone")
    run = node.take().id
    assert _dies(scene, worker, node).attempt == 1
    again = _backfill(scene, 60)
    assert (again.id, again.attempt, again.losses) == (run, 1, 0)
    assert _story(scene, run) == [("gone", "lost", DIED)]
    assert worker.take().attempt == 2
    _fails(worker, run, "second")
    assert worker.take().attempt == 3
    scene.ledger.cancel(run, "ops", "")
    worker.finish(run, RunState.CANCELLED)
    assert _backfill(scene, 60).attempt == 3
    assert worker.take().attempt == 4
    worker.finish(run)
    assert [outcome for _, outcome, _ in _story(scene, run)] == ["lost", "failed", "cancelled", "succeeded"]


def test_a_loss_after_a_reopening_names_the_number_of_its_attempt(scene, worker):
    scene.add("job", 60)
    node = scene.worker("gone")
    run = node.take().id
    scene.ledger.cancel(run, "", "")
    node.finish(run, RunState.CANCELLED)
    _backfill(scene, 60)
    assert node.take().attempt == 2
    assert _dies(scene, worker, node).attempt == 2


def test_what_was_reopened_has_no_place_of_its_job(scene, worker):
    """Its attempts are those of before: it waits its turn."""
    scene.add("job", 60, 50, overlap="allow", max_running=1)
    first = worker.take()
    scene.ledger.cancel(first.id, "", "")
    worker.finish(first.id, RunState.CANCELLED)
    second = worker.take()
    _backfill(scene, 60)
    assert worker.claim().runs == ()
    assert scene.run(first.id).state is RunState.WAITING
    worker.finish(second.id)
    assert worker.take().attempt == 2


def test_many_runs_claimed_at_once_keep_theirs(scene, worker):
    """The ones of several jobs, retried and new ones mixed."""
    for name in ("a", "b", "c"):
        scene.add(name, 60, 50, overlap="allow", max_running=None, function=f"f of {name}")
    runs = worker.claim().runs
    for run in runs[::2]:
        _fails(worker, run.id, f"error of {run.id}")
    scene.ask("b", key="new")
    claimed = {run.id: run.attempt for run in worker.claim().runs}
    assert {run.id: 2 for run in runs[::2]}.items() <= claimed.items()
    assert sorted(claimed.values()) == [1, 2, 2, 2]
    for run in runs[::2]:
        assert _story(scene, run.id) == [("a worker", "failed", f"error of {run.id}"), ("a worker", "running", "")]
    for run in runs[1::2]:
        assert _story(scene, run.id) == [("a worker", "running", "")]


def test_looks_that_follow_each_other_are_one(scene, worker):
    scene.add("job", 60)
    run = worker.take().id

    def look(why, at):
        times = {"started_at": scene.start - at, "finished_at": scene.start - at + 1}
        worker.finish(run, RunState.PENDING, again_in=0.0, wait_up_to=86400.0, error=why, **times)

    for number in range(3):
        look(f"no file {number}", 50 - 10 * number)
        (one,) = scene.ledger.attempts(run)
        assert (one.number, one.count, one.outcome, one.error) == (
            number + 1,
            number + 1,
            AttemptOutcome.NOT_YET,
            f"no file {number}",
        )
        assert (one.started_at, one.finished_at) == (scene.start - 50, scene.start - 49 + 10 * number)
        assert worker.take().attempt == number + 2
    assert _story(scene, run) == [("a worker", "not yet", "no file 2"), ("a worker", "running", "")]
    worker.finish(run, RunState.PENDING)
    assert _story(scene, run) == [("a worker", "not yet", "no file 2")], "given back unbegun"
    worker.take()
    _fails(worker, run, "boom")
    worker.take()
    look("no file 4", 1)
    worker.take()
    worker.finish(run)
    assert [(attempt.number, attempt.count, attempt.outcome.value) for attempt in scene.ledger.attempts(run)] == [
        (3, 3, "not yet"),
        (4, 1, "failed"),
        (5, 1, "not yet"),
        (6, 1, "succeeded"),
    ]


def test_a_retry_keeps_the_attempts_of_before(scene, worker):
    scene.add("job", 60)
    run = worker.take().id
    worker.finish(run, RunState.FAILED, error="first", started_at=scene.start - 9, finished_at=scene.start - 8)
    (again,) = scene.ledger.retry([run], "ops")
    assert (again.state, again.attempt) == (RunState.PENDING, 1)
    assert _story(scene, run) == [("a worker", "failed", "first")]
    worker.take()
    assert _story(scene, run) == [("a worker", "failed", "first"), ("a worker", "running", "")]
    worker.finish(run)
    (first, _) = scene.ledger.attempts(run)
    assert (first.started_at, first.finished_at) == (scene.start - 9, scene.start - 8)


def test_retention_removes_the_attempts_with_their_run(scene, worker):
    scene.add("job", 60)
    run = worker.take().id
    _fails(worker, run, "first")
    worker.take()
    worker.finish(run)
    assert len(scene.ledger.attempts(run)) == 2
    assert scene.ledger.prune(scene.application, before=scene.start, keep=0, limit=10).removed == 1
    assert scene.ledger.attempts(run) == []


def test_attempts_stay_while_their_run_does(scene, worker):
    scene.add("job", 60, 50, overlap="allow", max_running=None)
    for run in worker.claim().runs:
        _fails(worker, run.id, "first")
    for run in worker.claim().runs:
        worker.finish(run.id)
    old, young = (run.id for run in scene.runs())
    scene.ledger.prune(scene.application, before=scene.start, keep=1, limit=10)
    assert scene.ledger.attempts(old) == []
    assert len(_story(scene, young)) == 2


# A run by its key


def _of_key(scene, key, job=None):
    return [run.name for run in scene.ledger.runs(RunQuery(scene.application, job, key=key))]


def test_a_run_is_found_by_its_key(scene):
    for name in ("a", "b"):
        scene.add(name, 60)
        scene.ask(name, key=f"only {name}")
    both = due_key(scene.at(60))
    assert sorted(_of_key(scene, both)) == ["a", "b"]
    assert _of_key(scene, both, "a") == ["a"]
    assert _of_key(scene, "only b") == ["b"]
    assert _of_key(scene, "only b", "a") == []
    assert _of_key(scene, "nothing") == []
    scene.remove("b")
    assert _of_key(scene, "only b") == ["b"], "its history stays"


def test_a_key_is_that_of_one_application(scene):
    scene.add("job", 60)
    assert scene.ledger.runs(RunQuery(f"{scene.application} no more", key=due_key(scene.at(60)))) == []


def test_numbers_have_no_holes_whatever_happens(scene, worker):
    """A walk through all that may end an attempt, in every order of two."""
    scene.add("job", max_lost=100, trigger=None)
    for number, ends in enumerate(itertools.permutations(("fail", "lose", "stop", "return", "reopen"), 2)):
        asked = scene.ask(key=f"walk {number}")
        for end in ends:
            node = scene.worker("node") if end == "lose" else worker
            run = node.take()
            assert run.id == asked.id
            match end:
                case "fail":
                    _fails(node, run.id, "boom")
                case "lose":
                    _dies(scene, worker, node)
                case "stop":
                    node.interrupt(run.id, scene.start)
                case "return":
                    node.finish(run.id, RunState.PENDING)
                case _:
                    scene.ledger.cancel(run.id, "", "enough")
                    node.finish(run.id, RunState.CANCELLED)
                    reopened = scene.ask(key=f"walk {number}", scheduled_for=asked.scheduled_for, backfill=True)
                    assert reopened.id == run.id
        worker.take()
        worker.finish(asked.id)
        told = [outcome for _, outcome, _ in _story(scene, asked.id)]
        names = {"fail": "failed", "lose": "lost", "stop": "interrupted", "reopen": "cancelled"}
        assert told == [*(names[end] for end in ends if end in names), "succeeded"]


# Results


def test_a_result_is_kept_with_the_run_that_succeeded(scene, worker):
    for name in "abc":
        scene.add(name, 60)
    a, b, c = (run.id for run in worker.claim().runs)
    endings = [
        worker.ending(a, result='{"rows":7,"a":"ü"}'),
        worker.ending(b),
        worker.ending(c, RunState.FAILED, error="boom"),
    ]
    assert all(ended.accepted for ended in scene.ledger.finish(endings))
    assert [scene.ledger.result(run) for run in (a, b, c)] == ['{"rows":7,"a":"ü"}', None, None]
    assert scene.ledger.result(RunId(10**9)) is None


def test_a_result_is_kept_beside_an_ending_that_is_tried_again(scene, worker):
    scene.add("a", 60)
    scene.add("b", 60)
    a, b = (run.id for run in worker.claim().runs)
    scene.ledger.finish([worker.ending(a, result="7"), worker.ending(b, RunState.PENDING, again_in=0.0)])
    assert [scene.ledger.result(run) for run in (a, b)] == ["7", None]


def test_the_result_of_a_completed_run_follows_its_ending(scene, worker):
    scene.add("job", 60)
    run = worker.take().id
    result = Result(run, 1, "[1]")
    scene.ledger.keep_results([result])
    assert scene.ledger.result(run) is None, "it has not succeeded"
    worker.finish(run)
    scene.ledger.keep_results([Result(run, 2, "[2]"), Result(RunId(10**9), 1, "[3]")])
    assert scene.ledger.result(run) is None, "another attempt"
    for _ in range(2):
        scene.ledger.keep_results([result])
        assert scene.ledger.result(run) == "[1]"
    scene.ledger.keep_results([Result(run, 1, "[4]")])
    assert scene.ledger.result(run) == "[1]", "one result"
    scene.ledger.keep_results([])
