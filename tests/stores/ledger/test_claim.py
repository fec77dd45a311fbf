"""Claim: what is due, to whom, and what the claimer is told. Places and overlap are in test_overlap."""

import pytest

from tenure.core.records import Change, RunKind, RunState


def test_a_claimed_run_is_as_it_was_planned(scene, worker, about_now):
    job = scene.add("job", function="f", kwargs='{"a": 1}', retries=2, max_running=2)
    scene.plan("job", scene.new(60, due_ago=30.5))
    claimed = worker.claim()
    (run,) = claimed.runs
    (row,) = scene.runs()
    assert (run.id, run.job, run.name, run.function, run.kwargs) == (row.id, job.id, "job", "f", '{"a": 1}')
    assert (run.key, run.kind, run.scheduled_for, run.due_at) == (
        row.key,
        RunKind.DUE,
        scene.start - 60,
        scene.start - 30.5,
    )
    assert (run.attempt, run.failures, run.generation, run.rules) == (1, 0, 1, job.spec.rules)
    assert run.trigger == job.spec.trigger
    assert (row.state, row.node, row.attempt) == (RunState.RUNNING, "a worker", 1)
    assert about_now(row.claimed_at)
    assert about_now(claimed.now)
    assert claimed.alive


def test_nothing_is_claimed_twice(scene):
    scene.add("job", *range(1, 7), overlap="allow", max_running=None)
    one, other = scene.worker(), scene.worker()
    mine, theirs = one.claim(limit=4).runs, other.claim(limit=4).runs
    assert (len(mine), len(theirs)) == (4, 2)
    assert {run.id for run in mine}.isdisjoint(run.id for run in theirs)
    assert one.claim().runs == ()


def test_the_oldest_due_are_claimed_first_across_jobs(scene, worker):
    scene.add("a", 10, 40, max_running=None, overlap="allow")
    scene.add("b", 20, 30, max_running=None, overlap="allow")
    scene.plan("a", scene.new(100, due_ago=5))
    order = [run.due_at - scene.start for run in worker.claim(limit=3).runs]
    assert order == [-40, -30, -20]
    assert [run.due_at - scene.start for run in worker.claim().runs] == [-10, -5]


def test_the_claimer_is_told_that_the_limit_was_reached(scene, worker):
    for number in range(5):
        scene.add(f"job {number}", 10)
    first = worker.claim(limit=3)
    assert (len(first.runs), first.more) == (3, True)
    second = worker.claim(limit=3)
    assert (len(second.runs), second.more) == (2, False)


def test_nothing_is_claimed_before_it_is_due(scene, worker):
    scene.add("job", -600)
    scene.plan("job", scene.new(10, due_ago=-300))
    claimed = worker.claim()
    assert (claimed.runs, claimed.more, claimed.missed) == ((), False, False)
    assert claimed.next_at == scene.start + 300


def test_next_at_is_of_this_application_and_pending_only(scene, worker):
    assert worker.claim().next_at is None
    scene.add("job", 10, -600)
    assert worker.claim().next_at == scene.start + 600
    (run,) = [run for run in scene.runs() if run.state is RunState.PENDING]
    scene.ledger.cancel(run.id, "ops", "not this one")
    assert worker.claim().next_at is None


def test_a_retry_counts_as_the_next(scene, worker):
    scene.add("job", 10)
    run = worker.take()
    worker.finish(run.id, RunState.PENDING, again_in=120)
    next_at = worker.claim().next_at
    assert next_at == scene.run(run.id).due_at
    assert scene.ledger.now() + 90 < next_at <= scene.ledger.now() + 120


@pytest.mark.parametrize("end", ["dead", "left", "unknown"])
def test_only_a_live_node_is_given_runs(scene, worker, end):
    scene.add("job", 10)
    if end == "dead":
        assert scene.session.declare(worker.id, None, "its host lock is free")
    elif end == "left":
        worker.session.leave(worker.id, "left")
    else:
        worker.id = "00000000-0000-4000-8000-000000000000"
    claimed = worker.claim()
    assert (claimed.runs, claimed.alive) == ((), False)
    assert scene.told() == ["pending"]


def test_functions_that_a_node_lacks_are_left_to_others(scene, worker):
    scene.add("ours", 10, function="f")
    scene.add("theirs", 20, function="g")
    assert worker.claim(functions=()).runs == ()
    assert [run.name for run in worker.claim(functions=("f", "h")).runs] == ["ours"]
    assert [run.name for run in scene.worker().claim().runs] == ["theirs"]


def test_only_served_queues_are_claimed(scene, worker):
    for queue in ("default", "slow", "mail"):
        scene.add(queue, 10, queue=queue)
    assert worker.claim(queues=("nothing",)).runs == ()
    assert [run.name for run in worker.claim(queues=("slow",)).runs] == ["slow"]
    assert {run.name for run in worker.claim(queues=None).runs} == {"default", "mail"}


def test_jobs_of_other_applications_are_not_claimed(scene, worker):
    scene.add("job", 10)
    worker.application += " too"
    claimed = worker.claim()
    assert (claimed.runs, claimed.next_at) == ((), None)


def test_a_paused_job_is_not_claimed(scene, worker):
    scene.add("job")
    asked = scene.ask()
    scene.pause()
    assert worker.claim().runs == ()
    scene.resume()
    assert worker.take().id == asked.id


def test_what_has_expired_is_left_and_reported(scene, worker):
    scene.add("job", overlap="allow", max_running=None)
    scene.plan("job", scene.new(600, expired_ago=540), scene.new(30, expired_ago=-30))
    claimed = worker.claim()
    assert [run.scheduled_for - scene.start for run in claimed.runs] == [-30]
    assert claimed.missed
    assert scene.told() == ["pending", "running"]


def test_nothing_missed_is_not_reported(scene, worker):
    scene.add("job", 600)
    scene.plan("job", scene.new(30, expired_ago=-30), scene.new(-30, expired_ago=-90))
    assert not worker.claim().missed


def test_a_node_that_doubts_the_clock_says_what_is_due(scene, worker):
    scene.add("job", overlap="allow", max_running=None)
    scene.plan("job", *(scene.new(ago, expired_ago=ago - 60) for ago in (600, 400, -600)))
    assert not worker.claim(limit=0, as_of=scene.start - 640).missed, "not even due by then"
    early = worker.claim(as_of=scene.start - 500)
    assert ([run.scheduled_for for run in early.runs], early.missed) == ([], True), "100 seconds late by then"
    assert early.next_at == scene.start - 400
    assert early.now >= scene.start, "the ledger's own clock all the same"
    in_time = worker.claim(as_of=scene.start - 380)
    assert [run.scheduled_for - scene.start for run in in_time.runs] == [-400]
    ahead = worker.claim(as_of=scene.start + 601)
    assert [run.scheduled_for - scene.start for run in ahead.runs] == [600]


def test_an_update_is_seen_by_the_next_claim(scene, worker):
    scene.add("job", 10, function="f")
    scene.change(Change.UPDATED, spec=scene.spec(function="g", kwargs='{"a": 2}', timeout=5.0), next_due=scene.start)
    run = worker.take()
    assert (run.function, run.kwargs, run.rules.timeout, run.generation) == ("g", '{"a": 2}', 5.0, 2)


def test_a_claimer_that_knows_the_job_sees_each_update(scene, worker):
    scene.add("job", 60, function="f1")
    for number in (1, 2, 3):
        run = worker.take()
        assert (run.function, run.generation) == (f"f{number}", number)
        worker.finish(run.id)
        scene.change(Change.UPDATED, spec=scene.spec(function=f"f{number + 1}"), next_due=scene.start)
        scene.plan("job", 60 - number)


def test_a_retry_is_claimed_with_its_history(scene, worker):
    scene.add("job", 60)
    run = worker.take()
    worker.finish(run.id, RunState.PENDING, again_in=0, error="boom")
    again = worker.take()
    assert (again.id, again.key, again.attempt, again.failures) == (run.id, run.key, 2, 1)


def test_an_asked_run_brings_its_own_arguments(scene, worker):
    scene.add("job", kwargs='{"a": 1}')
    scene.ask(kwargs='{"a": 9}', by="ops", key="mine")
    run = worker.take()
    assert (run.kwargs, run.kind, run.key) == ('{"a": 9}', RunKind.MANUAL, "mine")


def test_claims_of_zero_take_nothing(scene, worker):
    scene.add("job", 60)
    assert worker.claim(limit=0).runs == ()
    assert scene.told() == ["pending"]
