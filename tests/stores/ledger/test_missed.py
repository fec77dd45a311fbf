"""Missed and settle: due times that did not begin in time."""

from tenure.core.records import Change, RunKind


def _missed(scene, limit=100, **more):
    return scene.ledger.missed(scene.application, limit, **more)


def _expired(scene, *ago):
    return [scene.new(seconds, expired_ago=seconds - 1) for seconds in ago]


def test_missed_are_jobs_with_all_their_expired_runs_oldest_first(scene):
    row = scene.add("job", 5, missed="all")
    scene.plan("job", *_expired(scene, 300, 500, 400), scene.new(-60, expired_ago=-120))
    scene.add("in time", 10)
    (job,) = _missed(scene)
    assert (job.id, job.name, job.generation, job.rules) == (row.id, "job", 1, row.spec.rules)
    assert [run.scheduled_for - scene.start for run in job.runs] == [-500, -400, -300]
    assert {run.id for run in job.runs} <= {run.id for run in scene.runs()}


def test_missed_is_limited_to_so_many_jobs(scene):
    for number in range(3):
        scene.add(f"job {number}")
        scene.plan(f"job {number}", *_expired(scene, 300))
    assert len(_missed(scene, limit=2)) == 2


def test_at_most_a_thousand_runs_of_a_job_are_missed_at_once(scene):
    scene.add()
    scene.plan("job", *_expired(scene, *range(3000, 1995, -1)))
    (job,) = _missed(scene)
    assert len(job.runs) == 1000
    assert job.runs[0].scheduled_for == scene.start - 3000


def test_functions_that_a_node_lacks_and_paused_jobs_are_not_missed_here(scene):
    for name in ("theirs", "paused"):
        scene.add(name, function=name)
        scene.plan(name, *_expired(scene, 300))
    scene.pause("paused")
    assert _missed(scene, functions=("ours", "paused")) == []
    assert [job.name for job in _missed(scene, functions=("theirs",))] == ["theirs"]
    assert [job.name for job in _missed(scene)] == ["theirs"]


def test_what_runs_is_never_missed(scene, worker):
    scene.add()
    scene.plan("job", scene.expiring(20))
    worker.take()
    scene.wait_for_expiry()
    assert not worker.claim().missed
    assert _missed(scene) == []


def test_a_later_due_time_that_is_due_is_in_time(scene, worker):
    scene.add()
    scene.plan("job", *_expired(scene, 300), scene.new(-60))
    assert not _missed(scene)[0].in_time, "not due yet"
    scene.plan("job", scene.new(400))
    assert not _missed(scene)[0].in_time, "older"
    scene.plan("job", scene.new(10, expired_ago=-60))
    assert _missed(scene)[0].in_time


def test_a_later_due_time_that_has_begun_is_in_time(scene, worker):
    scene.add()
    scene.plan("job", *_expired(scene, 300), scene.new(10, expired_ago=-60))
    run = worker.take()
    assert _missed(scene)[0].in_time
    worker.finish(run.id)
    assert _missed(scene)[0].in_time


def test_settle_makes_up_and_skips(scene, worker, about_now):
    job = scene.add()
    scene.plan("job", *_expired(scene, 500, 400, 300))
    first, second, third = _missed(scene)[0].runs
    assert scene.ledger.settle(job.id, 1, make_up=[third.id], skip=[first.id, second.id], reason="missed")
    assert scene.told() == ["skipped(missed)", "skipped(missed)", "pending"]
    assert about_now(scene.run(third.id).due_at)
    assert _missed(scene) == [], "what is made up never expires"
    run = worker.take()
    assert (run.id, run.scheduled_for) == (third.id, scene.start - 300)


def test_settle_needs_the_generation(scene):
    job = scene.add()
    scene.plan("job", *_expired(scene, 500))
    (run,) = _missed(scene)[0].runs
    scene.change(Change.UPDATED, spec=scene.spec(), next_due=scene.start + 60)
    assert not scene.ledger.settle(job.id, 1, make_up=[], skip=[run.id], reason="missed")
    assert scene.told() == ["pending"]
    assert scene.ledger.settle(job.id, 2, make_up=[], skip=[run.id], reason="missed")
    assert scene.told() == ["skipped(missed)"]


def test_settle_decides_once(scene):
    job = scene.add()
    scene.plan("job", *_expired(scene, 500, 400))
    first, second = _missed(scene)[0].runs
    assert scene.ledger.settle(job.id, 1, make_up=[first.id], skip=[], reason="missed")
    assert not scene.ledger.settle(job.id, 1, make_up=[], skip=[first.id, second.id], reason="missed")
    assert not scene.ledger.settle(job.id, 1, make_up=[second.id], skip=[first.id], reason="missed")
    assert scene.told() == ["pending", "pending"]
    assert [run.id for run in _missed(scene)[0].runs] == [second.id]


def test_settle_touches_nothing_that_is_in_time(scene):
    job = scene.add("job", 10)
    (run,) = scene.runs()
    assert not scene.ledger.settle(job.id, 1, make_up=[], skip=[run.id], reason="missed")
    assert scene.told() == ["pending"]


def test_settle_touches_no_other_job(scene):
    job = scene.add("job")
    scene.add("other")
    scene.plan("other", *_expired(scene, 300))
    (run,) = scene.runs("other")
    assert not scene.ledger.settle(job.id, 1, make_up=[], skip=[run.id], reason="missed")
    assert scene.told("other") == ["pending"]


def test_what_is_made_up_for_waits_its_turn(scene, worker):
    scene.add("job", missed="all", overlap="skip")
    scene.plan("job", *_expired(scene, 500, 400, 300))
    (job,) = _missed(scene)
    runs = [run.id for run in job.runs]
    assert scene.ledger.settle(job.id, job.generation, make_up=runs, skip=[], reason="missed")
    order = []
    for _ in runs:
        (run,) = worker.claim().runs
        assert run.kind is RunKind.BACKFILL
        order.append(run.id)
        worker.finish(run.id)
    assert order == runs
