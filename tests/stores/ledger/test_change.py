"""Add, update, pause, resume, remove: what each does to a job and to its runs in every state."""

from dataclasses import replace

import pytest

from stores.ledger.scene import DAILY, HOURLY, SOON
from tenure.core.keys import due_key
from tenure.core.messages import JobChange, NewRun
from tenure.core.records import Change, JobState, RunKind, RunState

CHANGES = [Change.UPDATED, Change.PAUSED, Change.RESUMED, Change.REMOVED]


def _do(scene, what, **more):
    if what in {Change.ADDED, Change.UPDATED}:
        more = {"spec": scene.spec(), "next_due": scene.start + SOON} | more
    return scene.change(what, **more)


def test_an_added_job_is_there_as_it_was_written(scene, ledger, about_now):
    spec = scene.spec(
        "report",
        function="send",
        trigger=DAILY,
        kwargs='{"customer": 7}',
        in_code=False,
        release=4,
        tzdata="2026a",
        missed="all",
        grace=12.5,
        overlap="allow",
        max_running=None,
        timeout=1200.0,
        retries=3,
        backoff=(2.0, 60.0),
        on_lost="fail",
        max_lost=5,
        jitter=1.5,
        spread=2.5,
        queue="slow",
    )
    row = scene.change(Change.ADDED, "report", spec=spec, next_due=scene.start + SOON)
    assert ledger.jobs(scene.application) == [row]
    assert (row.spec, row.state, row.generation, row.next_due) == (spec, JobState.ACTIVE, 1, scene.start + SOON)
    assert about_now(row.since)
    assert row.paused_until is None
    assert (row.paused_by, row.paused_why) == ("", "")


def test_a_job_without_a_trigger_has_nothing_due(scene, ledger):
    row = scene.change(Change.ADDED, spec=scene.spec(trigger=None))
    assert (row.spec.trigger, row.next_due) == (None, None)
    assert ledger.jobs(scene.application) == [row]


def test_adding_what_is_there_changes_nothing(scene):
    before = scene.add("job", 10, function="f")
    assert _do(scene, Change.ADDED, spec=scene.spec(function="g")) is None
    assert scene.job() == before
    assert scene.told() == ["pending"]
    assert len(scene.ledger.changes(scene.application)) == 1


@pytest.mark.parametrize("what", CHANGES)
def test_nothing_is_done_to_a_job_that_is_not_there(scene, ledger, what):
    assert _do(scene, what) is None
    assert ledger.jobs(scene.application, removed=True) == []
    assert ledger.changes(scene.application) == []


@pytest.mark.parametrize("what", CHANGES)
def test_nothing_is_done_to_a_removed_job(scene, what):
    scene.add()
    removed = scene.remove()
    assert _do(scene, what) is None
    assert scene.job() == removed


def test_every_change_raises_the_generation(scene):
    generations = [scene.add().generation]
    for what in (Change.UPDATED, Change.PAUSED, Change.PAUSED, Change.UPDATED, Change.RESUMED, Change.REMOVED):
        generations.append(_do(scene, what).generation)
        assert scene.job().generation == generations[-1]
    assert generations == [1, 2, 3, 4, 5, 6, 7]


def test_the_generation_of_a_removed_job_never_starts_again(scene, about_now):
    first = scene.add()
    scene.remove()
    again = scene.add(function="g")
    assert (again.generation, again.id, again.state, again.spec.function) == (3, first.id, JobState.ACTIVE, "g")
    assert about_now(again.since)


def test_a_change_for_another_generation_is_refused(scene, ledger):
    scene.add("job", 10)
    scene.pause()
    before = scene.job()
    for what in CHANGES:
        assert _do(scene, what, generation=1) is None
    assert scene.job() == before
    assert len(ledger.changes(scene.application)) == 2
    assert _do(scene, Change.RESUMED, generation=2).generation == 3


def test_every_change_is_written_into_the_history(scene, ledger, about_now):
    job = scene.add(trigger=HOURLY).id
    scene.change(Change.UPDATED, spec=scene.spec(trigger=DAILY), next_due=scene.start + SOON, by="ops", why="too often")
    scene.pause(by="ops", why="maintenance", until=scene.start + 60)
    scene.resume()
    scene.remove()
    scene.add("other")
    records = ledger.changes(scene.application, "job")
    assert [(record.job, record.generation, record.what) for record in records] == [
        (job, 1, Change.ADDED),
        (job, 2, Change.UPDATED),
        (job, 3, Change.PAUSED),
        (job, 4, Change.RESUMED),
        (job, 5, Change.REMOVED),
    ]
    assert [record.trigger for record in records[:4]] == [HOURLY, DAILY, DAILY, DAILY]
    assert [(record.by, record.why, record.until) for record in records[1:3]] == [
        ("ops", "too often", None),
        ("ops", "maintenance", scene.start + 60),
    ]
    assert all(about_now(record.at) for record in records)
    assert len(ledger.changes(scene.application)) == 6


@pytest.mark.parametrize("what", [Change.UPDATED, Change.PAUSED, Change.REMOVED])
def test_a_change_withdraws_what_is_scheduled_after_now(scene, what):
    scene.add()
    assert scene.plan("job", -600, -1200) == 2
    _do(scene, what)
    assert scene.told() == []


def test_a_due_time_that_waits_for_its_jitter_is_no_proposal_any_more(scene):
    scene.add()
    scene.plan("job", scene.new(10, due_ago=-600))
    _do(scene, Change.UPDATED)
    assert scene.told() == ["pending"]


def test_what_began_is_no_proposal_even_if_the_clock_says_that_it_is_early(scene, worker):
    scene.add("job", -600)
    (run,) = worker.claim(as_of=scene.start + 601).runs
    worker.finish(run.id, RunState.PENDING, again_in=0)
    _do(scene, Change.UPDATED)
    assert scene.told() == ["pending"]


def test_a_paused_job_gets_no_runs_with_its_update(scene):
    scene.add()
    scene.pause()
    _do(scene, Change.UPDATED, runs=(scene.new(10), scene.new(-600)))
    assert scene.told() == []


def test_runs_come_with_the_change(scene, worker):
    scene.add("job", 10)
    assert scene.told() == ["pending"]
    _do(scene, Change.UPDATED, runs=(scene.new(10), scene.new(5), scene.new(-600)))
    assert [run.scheduled_for - scene.start for run in scene.runs()] == [-10, -5, 600]
    scene.pause()
    _do(scene, Change.RESUMED, runs=(scene.new(3),))
    assert scene.told() == ["skipped(paused)", "skipped(paused)", "pending"]
    assert worker.take().scheduled_for == scene.start - 3


def test_an_update_replaces_the_spec_and_leaves_the_state(scene):
    first = scene.add()
    updated = scene.change(Change.UPDATED, spec=scene.spec(function="g", retries=2), next_due=scene.start + 7200)
    assert (updated.id, updated.state, updated.spec) == (first.id, JobState.ACTIVE, scene.spec(function="g", retries=2))
    assert updated.next_due == scene.start + 7200
    assert scene.job() == updated
    scene.pause(by="ops")
    still = _do(scene, Change.UPDATED)
    assert (still.state, still.paused_by) == (JobState.PAUSED, "ops")


def test_only_a_changed_trigger_counts_from_now_on(scene):
    first = scene.add(trigger=HOURLY)
    same = scene.change(Change.UPDATED, spec=scene.spec(function="g"), next_due=scene.start + SOON)
    assert same.since == first.since
    other = scene.change(Change.UPDATED, spec=scene.spec(trigger=DAILY), next_due=scene.start + SOON)
    assert other.since > first.since


def test_an_update_leaves_due_retrying_and_waiting_runs(scene, worker):
    scene.add("job", 60, overlap="allow", max_running=2)
    retrying = worker.take()
    worker.finish(retrying.id, RunState.PENDING, again_in=600)
    scene.plan("job", 50, 40)
    running = worker.take()
    scene.plan("job", 30)
    before = {run.id: run for run in scene.runs()}
    assert scene.told() == ["pending", "running", "waiting", "pending"]
    generation = _do(scene, Change.UPDATED, spec=scene.spec(overlap="allow", max_running=2)).generation
    after = {run.id: run for run in scene.runs()}
    assert scene.told() == ["pending", "running", "waiting", "pending"]
    assert {run: row.due_at for run, row in after.items()} == {run: row.due_at for run, row in before.items()}
    assert {row.generation for run, row in after.items() if run != running.id} == {generation}


def test_a_pause_says_who_why_and_until_when(scene):
    scene.add()
    paused = scene.pause(by="ops", why="maintenance", until=scene.start + 60)
    assert (paused.state, paused.paused_by, paused.paused_why, paused.paused_until) == (
        JobState.PAUSED,
        "ops",
        "maintenance",
        scene.start + 60,
    )
    assert scene.job() == paused
    longer = scene.pause(by="boss", why="still", until=None)
    assert (longer.paused_by, longer.paused_why, longer.paused_until) == ("boss", "still", None)


def test_a_pause_skips_what_is_due_and_did_not_begin(scene, worker):
    scene.add("job", 60, 50, overlap="wait")
    worker.take()
    scene.plan("job", 40)
    assert scene.told() == ["running", "waiting", "pending"]
    scene.pause()
    assert scene.told() == ["running", "skipped(paused)", "skipped(paused)"]


def test_a_pause_leaves_what_was_asked_for_and_what_is_between_attempts(scene, worker):
    scene.add("job", 60, overlap="wait", max_running=1)
    retrying = worker.take()
    waiting = scene.ask()
    worker.claim()
    assert scene.run(waiting.id).state is RunState.WAITING
    worker.finish(retrying.id, RunState.PENDING, again_in=0)
    asked = scene.ask()
    scene.pause()
    assert worker.claim().runs == ()
    states = {run.id: run.state for run in scene.runs()}
    assert states[retrying.id] is states[asked.id] is RunState.PENDING
    assert states[waiting.id] is RunState.WAITING


def test_what_stayed_goes_on_after_the_resume(scene, worker):
    scene.add("job", 60)
    retrying = worker.take()
    worker.finish(retrying.id, RunState.PENDING, again_in=0)
    before = scene.run(retrying.id).due_at
    scene.pause()
    assert worker.claim().runs == ()
    scene.resume()
    assert scene.run(retrying.id).due_at >= before
    assert worker.take().id == retrying.id


def test_a_running_attempt_ends_as_it_likes_during_a_pause(scene, worker):
    scene.add("job", 60, 50, max_running=2)
    first, second = worker.claim().runs
    scene.pause()
    assert worker.finish(first.id).accepted
    assert worker.finish(second.id, RunState.PENDING, again_in=0).state is RunState.PENDING
    assert worker.claim().runs == ()


def test_a_resume_counts_from_now_on(scene):
    first = scene.add()
    scene.pause(by="ops", why="maintenance", until=scene.start + 60)
    resumed = scene.resume(next_due=scene.start + 1800)
    assert (resumed.state, resumed.next_due) == (JobState.ACTIVE, scene.start + 1800)
    assert (resumed.paused_until, resumed.paused_by, resumed.paused_why) == (None, "", "")
    assert resumed.since > first.since


def test_resuming_what_is_not_paused_changes_nothing(scene, ledger):
    before = scene.add("job", 10)
    scene.plan("job", -600)
    planned = scene.job()
    assert scene.resume(next_due=scene.start + 7) == planned
    assert scene.job() == planned
    assert before.generation == planned.generation
    assert scene.told() == ["pending", "pending"]
    assert len(ledger.changes(scene.application)) == 1


def test_a_removed_job_leaves_a_tombstone(scene, ledger):
    scene.add()
    removed = scene.remove()
    assert (removed.state, removed.next_due) == (JobState.REMOVED, None)
    assert ledger.jobs(scene.application) == []
    assert ledger.jobs(scene.application, "job") == []
    assert ledger.jobs(scene.application, "job", removed=True) == [removed]
    assert ledger.functions(scene.application) == frozenset()


def test_a_removal_cancels_what_does_not_run(scene, worker):
    scene.add("job", 60, 50, overlap="allow", max_running=2)
    retrying, _ = worker.claim().runs
    worker.finish(retrying.id, RunState.PENDING, again_in=600)
    scene.plan("job", 40)
    worker.claim()
    scene.plan("job", 30)
    scene.ask()
    assert scene.told() == ["pending", "running", "waiting", "pending", "pending"]
    scene.remove()
    gone = "cancelled(removed)"
    assert scene.told() == [gone, "running", gone, gone, gone]


@pytest.mark.parametrize("what", [Change.PAUSED, Change.REMOVED])
def test_what_ends_with_a_change_keeps_the_generation_that_it_was_planned_for(scene, what):
    scene.add("job", 10)
    assert _do(scene, what).generation == 2
    assert [run.generation for run in scene.runs()] == [1]


def test_a_running_attempt_of_a_removed_job_goes_on_to_its_end(scene, worker):
    scene.add("job", 60)
    run = worker.take()
    scene.remove()
    assert [held.id for held in worker.reconcile().held] == [run.id]
    assert worker.finish(run.id).accepted
    assert scene.told() == ["succeeded"]


def test_a_key_that_is_there_is_left_when_the_job_is_added_again(scene, worker):
    scene.add("job", 60, 50)
    worker.finish(worker.claim(limit=1).runs[0].id)
    scene.remove()
    scene.add("job", 60, 50, 40)
    assert scene.told() == ["succeeded", "cancelled(removed)", "pending"]


def test_jobs_are_listed_by_name_and_by_application(scene, ledger):
    for name in ("b", "a", "c"):
        scene.add(name, function=f"f{name}")
    assert [row.spec.name for row in ledger.jobs(scene.application)] == ["a", "b", "c"]
    assert [row.spec.name for row in ledger.jobs(scene.application, "b")] == ["b"]
    assert ledger.functions(scene.application) == {"fa", "fb", "fc"}
    assert ledger.jobs("nobody's") == []
    assert scene.application in ledger.applications()
    assert "nobody's" not in ledger.applications()


def test_one_name_in_two_applications_is_two_jobs(scene, ledger):
    scene.add("job", 10, function="f")
    other = scene.application + " too"
    spec = replace(scene.spec(function="g"), application=other)
    row = ledger.change(JobChange(other, "job", Change.ADDED, spec=spec))
    assert row.id != scene.job().id
    assert ledger.functions(scene.application) == {"f"}
    assert ledger.functions(other) == {"g"}
    scene.remove()
    assert ledger.jobs(other) == [row]


def test_planned_runs_are_of_kind_due_and_carry_their_key(scene):
    generation = scene.add("job", 10).generation
    scene.plan("job", 2.5)
    runs = scene.runs()
    assert {(run.kind, run.generation, run.attempt, run.node) for run in runs} == {(RunKind.DUE, generation, 0, "")}
    assert [run.key for run in runs] == [due_key(scene.start - 10), due_key(scene.start - 2.5)]


def test_what_a_clock_that_was_ahead_has_skipped_is_withdrawn(scene):
    job = scene.add("job", next_due=scene.start + 1000)
    scene.plan(
        "job",
        NewRun(scene.start - 50, scene.start - 50, None, RunState.SKIPPED, "missed", 100, scene.start + 500),
        NewRun(scene.start + 600, scene.start + 600, None, RunState.SKIPPED, "missed", 10, scene.start + 900),
        NewRun(scene.start + 950, scene.start + 950, scene.start + 1010),
    )
    after = scene.change(Change.UPDATED, spec=scene.spec(), next_due=scene.start + 60)
    assert after.generation == job.generation + 1
    (kept,) = scene.runs()
    assert kept.scheduled_for == scene.start - 50
    assert kept.until is not None
    assert kept.until < scene.start + 60


def test_jobs_planned_beyond_an_instant_come_in_pages(scene):
    near, far, farther = (
        scene.add(name, next_due=scene.start + due) for name, due in (("near", 10), ("far", 100), ("farther", 100))
    )
    page = scene.ledger.planned_beyond(scene.application, (scene.start + 50, near.id), 1)
    assert [job.spec.name for job in page] == ["far"]
    page = scene.ledger.planned_beyond(scene.application, (scene.start + 100, far.id), 10)
    assert [job.id for job in page] == [farther.id]
    scene.change(Change.PAUSED, name="far")
    assert [job.id for job in scene.ledger.planned_beyond(scene.application, (scene.start, near.id), 10)] == [
        near.id,
        farther.id,
    ]
