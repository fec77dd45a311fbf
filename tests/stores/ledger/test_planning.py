"""Unplanned and plan: every due time comes into the ledger once."""

from dataclasses import replace

from tenure.core.keys import due_key
from tenure.core.messages import Planned
from tenure.core.records import Change, RunState


def _unplanned(scene, ahead=10.0, limit=100, **more):
    return scene.ledger.unplanned(scene.application, before=scene.start + ahead, limit=limit, **more)


def test_unplanned_are_jobs_due_before_the_horizon_earliest_first(scene):
    for name, ahead in [("soon", 5), ("now", 0), ("past", -500), ("at the horizon", 10), ("later", 11)]:
        scene.add(name, next_due=scene.start + ahead)
    assert [job.name for job in _unplanned(scene)] == ["past", "now", "soon"]
    assert [job.name for job in _unplanned(scene, limit=2)] == ["past", "now"]


def test_unplanned_says_what_a_planner_needs(scene):
    row = scene.add("job", next_due=scene.start, retries=2, queue="slow")
    (job,) = _unplanned(scene)
    assert (job.id, job.name, job.generation, job.next_due) == (row.id, "job", 1, scene.start)
    assert (job.trigger, job.rules, job.resumes) == (row.spec.trigger, row.spec.rules, False)


def test_nothing_is_planned_for_jobs_that_are_paused_removed_or_never_due(scene):
    for name in ("paused", "removed", "running"):
        scene.add(name, next_due=scene.start)
    scene.change(Change.ADDED, "never", spec=scene.spec("never", trigger=None))
    scene.pause("paused", until=scene.start + 600)
    scene.remove("removed")
    assert [job.name for job in _unplanned(scene)] == ["running"]


def test_a_pause_that_is_over_is_found(scene):
    scene.add("forever", next_due=scene.start)
    scene.add("over")
    scene.pause("forever")
    scene.pause("over", until=scene.start - 1)
    (job,) = _unplanned(scene)
    assert (job.name, job.resumes, job.generation) == ("over", True, 2)


def test_strangers_are_left_to_others(scene):
    scene.add("ours", function="f", next_due=scene.start)
    scene.add("theirs", function="g", next_due=scene.start)
    scene.add("theirs, paused", function="g")
    scene.pause("theirs, paused", until=scene.start - 1)
    assert [job.name for job in _unplanned(scene, strangers=("g", "h"))] == ["ours"]


def test_jobs_of_newer_zone_rules_are_left_to_others(scene):
    for tzdata in ("2025b", "2026a", "2026b"):
        scene.add(tzdata, tzdata=tzdata, next_due=scene.start)
    assert {job.name for job in _unplanned(scene, tzdata="2026a")} == {"2025b", "2026a"}
    assert len(_unplanned(scene)) == 3


def test_jobs_of_newer_zone_rules_are_nobodys_alone_once_they_are_overdue(scene):
    scene.add("late", tzdata="2026b", next_due=scene.start - 5)
    scene.add("due", tzdata="2026b", next_due=scene.start)
    for name, over in (("late pause", 5), ("pause", 1)):
        scene.add(name, tzdata="2026b")
        scene.pause(name, until=scene.start - over)
    found = _unplanned(scene, tzdata="2026a", overdue=scene.start - 2)
    assert {job.name for job in found} == {"late", "late pause"}


def test_other_applications_are_not_planned(scene, ledger):
    scene.add(next_due=scene.start)
    assert ledger.unplanned(scene.application + " too", before=scene.start + 10, limit=10) == []


def test_a_plan_writes_runs_and_moves_next_due(scene, ledger):
    job = scene.add(next_due=scene.start)
    runs = (
        scene.new(0, due_ago=-1.25, expired_ago=-61.25),
        scene.new(-60),
        scene.new(600, state=RunState.SKIPPED, reason="missed", count=9, until=scene.start - 60),
    )
    assert ledger.plan([Planned(job.id, 1, scene.start, scene.start + 120, runs)]) == 3
    assert scene.job() == replace(job, next_due=scene.start + 120)
    skipped, first, second = scene.runs()
    assert (skipped.state, skipped.reason, skipped.count, skipped.until) == (
        RunState.SKIPPED,
        "missed",
        9,
        scene.start - 60,
    )
    assert (first.state, first.key, first.scheduled_for, first.due_at) == (
        RunState.PENDING,
        due_key(scene.start),
        scene.start,
        scene.start + 1.25,
    )
    assert (second.count, second.until, second.reason, second.name, second.job) == (1, None, "", "job", job.id)


def test_a_plan_may_be_the_last(scene, ledger):
    job = scene.add(next_due=scene.start)
    assert ledger.plan([Planned(job.id, 1, scene.start, None, (scene.new(0),))]) == 1
    assert scene.job().next_due is None
    assert _unplanned(scene) == []


def test_a_plan_that_comes_late_is_left_out_as_a_whole(scene, ledger):
    job, other = scene.add(next_due=scene.start), scene.add("other", next_due=scene.start)
    plan = Planned(job.id, 1, scene.start, scene.start + 60, (scene.new(0),))
    assert ledger.plan([plan]) == 1
    late = replace(plan, runs=(scene.new(0), scene.new(5)), then_due=scene.start + 5)
    good = Planned(other.id, 1, scene.start, scene.start + 60, (scene.new(0), scene.new(-30)))
    assert ledger.plan([late, good]) == 2
    assert (scene.told("job"), len(scene.told("other"))) == (["pending"], 2)
    assert scene.job().next_due == scene.job("other").next_due == scene.start + 60


def test_a_plan_for_another_generation_is_left_out(scene, ledger):
    job = scene.add(next_due=scene.start)
    scene.change(Change.UPDATED, spec=scene.spec(), next_due=scene.start)
    assert ledger.plan([Planned(job.id, 1, scene.start, scene.start + 60, (scene.new(0),))]) == 0
    assert (scene.told(), scene.job().next_due) == ([], scene.start)


def test_a_paused_or_removed_job_is_not_planned(scene, ledger):
    paused, removed = scene.add("paused", next_due=scene.start), scene.add("removed", next_due=scene.start)
    assert scene.pause("paused") is not None
    assert scene.remove("removed") is not None
    for job in (paused, removed):
        assert ledger.plan([Planned(job.id, 2, scene.start, scene.start + 60, (scene.new(0),))]) == 0
    assert scene.told("paused") == scene.told("removed") == []


def test_a_key_that_is_there_is_left_as_it_is(scene, worker):
    scene.add("job", 60)
    run = worker.take()
    assert scene.plan("job", 60, 50) == 1
    assert next(row.id for row in scene.runs()) == run.id
    assert scene.told() == ["running", "pending"]


def test_an_empty_plan_is_nothing(ledger):
    assert ledger.plan([]) == 0


def test_a_plan_without_runs_moves_next_due(scene, ledger):
    job = scene.add(next_due=scene.start)
    assert ledger.plan([Planned(job.id, 1, scene.start, scene.start + 5, ())]) == 0
    assert scene.job().next_due == scene.start + 5


def test_due_times_to_the_microsecond_are_different_keys(scene):
    scene.add()
    assert scene.plan("job", scene.new(10.000001), scene.new(10), scene.new(9.999999)) == 3
    assert [run.key[-8:] for run in scene.runs()] == [due_key(scene.at(ago))[-8:] for ago in (10.000001, 10, 9.999999)]
    assert len({run.scheduled_for for run in scene.runs()}) == 3


def test_jobs_are_found_that_other_zone_rules_have_planned(scene, ledger):
    for name, tzdata, reading in [
        ("a", "2026a", "2026a@5"),
        ("b", "2026a", "2025b@5"),
        ("c", "2026a", "2026b@"),
        ("d", "", None),
        ("e", "2026aa", "2026aa@-7"),
    ]:
        spec = scene.spec(name, tzdata=tzdata)
        scene.change(Change.ADDED, name, spec=spec, next_due=scene.start, next_reading=reading)
    scene.change(Change.ADDED, "paused", spec=scene.spec("paused", tzdata="2026a"), next_reading="2025b@5")
    scene.pause("paused")
    assert {job.spec.name for job in ledger.planned_by_others(scene.application, "2026a", 10)} == {"b", "c", "e"}
    assert len(ledger.planned_by_others(scene.application, "2026a", 2)) == 2
    assert [job.spec.name for job in ledger.planned_by_older(scene.application, 10)] == ["b"]
    assert scene.job("paused").next_reading == "2025b@5"


def test_a_reading_moves_with_the_due_time_that_it_belongs_to(scene, ledger):
    spec = scene.spec(tzdata="2026a")
    scene.change(Change.ADDED, spec=spec, next_due=scene.start, next_reading="2026a@1")
    (job,) = _unplanned(scene)
    assert job.next_reading == "2026a@1"
    ledger.plan([Planned(job.id, job.generation, job.next_due, scene.start + 5, (), "2026a@2")])
    assert scene.job().next_reading == "2026a@2"
    scene.change(Change.UPDATED, spec=spec, next_due=scene.start + 6, next_reading="2026b@3")
    assert scene.job().next_reading == "2026b@3"
    scene.pause()
    assert scene.job().next_reading == "2026b@3"
    scene.change(Change.RESUMED, next_due=scene.start + 7, next_reading="2026b@4")
    assert scene.job().next_reading == "2026b@4"
    scene.remove()
    assert scene.job().next_reading is None
