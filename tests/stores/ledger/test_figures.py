"""Figures by hour and by day: counted from the runs, as often as anything may change, and kept when runs are removed."""

import threading
from contextlib import closing

import psycopg
import pytest

from stores.ledger.scene import Scene
from tenure.core.figures import DAY, HOUR, Figures
from tenure.core.records import RunState
from tenure.stores import store_for


def _count(scene, jobs=100):
    """A whole pass, as the planner does it."""
    since, beyond, runs, changed = None, 0, 0, 0
    while beyond is not None:
        counted = scene.ledger.count_hours(scene.application, since=since, beyond=beyond, jobs=jobs)
        since, beyond = counted.since, counted.up_to
        runs, changed = runs + counted.runs, changed + counted.changed
    return runs, changed


def _mark(scene, ago=0.0):
    """A pass that began so long ago is complete."""
    scene.ledger.note_counted(scene.application, (scene.ledger.now() - ago) // HOUR * HOUR - HOUR)


def _hours(scene, name="job"):
    now = scene.ledger.now()
    return scene.ledger.hours(scene.application, name, now - 100 * DAY, now + HOUR)


def _days(scene, name="job"):
    now = scene.ledger.now()
    return scene.ledger.days(scene.application, name, now - 100 * DAY, now + DAY)


def _all(scene, name="job"):
    return sum((row.figures for row in _days(scene, name)), Figures())


def _ran(scene, worker, state=RunState.SUCCEEDED, *, late=1.0, took=2.0, **more):
    """Claim what must be the only due run, and end it."""
    run = worker.take()
    began = run.due_at + late
    worker.ledger.finish([worker.ending(run.id, state, started_at=began, finished_at=began + took, **more)])
    return run


def _skipped(scene, *ago, name="job", **more):
    scene.plan(name, *(scene.new(one, state=RunState.SKIPPED, reason="missed", **more) for one in ago))


def _prune(scene, ago=0.0, keep=0, limit=100):
    return scene.ledger.prune(scene.application, before=scene.start - ago, keep=keep, limit=limit).removed


def test_runs_are_counted_by_the_hour_of_their_due_times(scene, worker):
    day = 3 * DAY
    scene.add("job", day + 2 * HOUR)
    _ran(scene, worker, late=0.5, took=4.0)
    scene.plan("job", day)
    _ran(scene, worker, RunState.FAILED, late=60.0, took=1.0, error="no")
    assert _count(scene) == (2, 2)
    first, second = _hours(scene)
    assert second.start - first.start == 2 * HOUR
    assert first.start == scene.at(day + 2 * HOUR) // HOUR * HOUR
    assert (first.figures.succeeded, first.figures.due, first.figures.worst) == (1, 1, "succeeded")
    assert (second.figures.failed, second.figures.due, second.figures.worst) == (1, 1, "failed")
    assert (first.figures.late.longest, first.figures.took.longest) == (0.5, 4.0)
    assert (second.figures.late.longest, second.figures.took.mean) == (60.0, 1.0)
    assert first.figures.took.percentile(0.5) == pytest.approx(4.0, rel=0.1)


def test_what_every_run_became_is_told_apart(scene, worker):
    scene.add("job", overlap="wait")
    ago = 2 * DAY
    for state in (RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED):
        scene.plan("job", ago)
        _ran(scene, worker, state)
        ago -= 1
    _skipped(scene, ago, count=7, until=scene.at(ago - 1))
    scene.plan("job", scene.new(ago - 2, state=RunState.SKIPPED, reason="overlap"))
    scene.plan("job", ago - 3)
    assert worker.take()
    _count(scene)
    figures = _all(scene)
    counts = (figures.succeeded, figures.failed, figures.cancelled, figures.missed, figures.skipped, figures.open)
    assert counts == (1, 1, 1, 7, 1, 1)
    assert (figures.due, figures.ran, figures.success) == (12, 2, 0.5)
    assert figures.took.runs == figures.late.runs == 3, "what ran"


def test_counting_again_writes_nothing(scene, worker):
    scene.add("job", 3 * DAY)
    _ran(scene, worker)
    scene.plan("job", 10)
    assert _count(scene)[1] == len(_hours(scene))
    for _ in range(3):
        assert _count(scene)[1] == 0


def test_what_is_due_later_is_not_counted(scene):
    scene.add("job", -300)
    assert _count(scene) == (0, 0)


def test_the_runs_of_an_hour_that_was_open_are_counted_when_they_end(scene, worker):
    scene.add("job", 3 * DAY)
    run = worker.take()
    _count(scene)
    _mark(scene)
    assert _all(scene).open == 1
    worker.ledger.finish([worker.ending(run.id, RunState.SUCCEEDED, started_at=run.due_at, finished_at=run.due_at + 1)])
    assert _count(scene)[1] == 1
    assert (_all(scene).open, _all(scene).succeeded) == (0, 1)
    assert _count(scene) == (0, 0), "the hour is over, and is not read any more"


def test_a_retry_is_counted_although_its_hour_was_over(scene, worker):
    """The one way in which a count falls."""
    scene.add("job", 3 * DAY)
    failed = _ran(scene, worker, RunState.FAILED, error="no")
    _count(scene)
    _mark(scene)
    assert _count(scene) == (0, 0)
    scene.ledger.retry([failed.id], "me")
    _ran(scene, worker)
    _count(scene)
    assert (_all(scene).failed, _all(scene).succeeded) == (0, 1)


def test_a_due_time_that_is_inserted_late_is_counted(scene, worker):
    scene.add("job")
    _count(scene)
    _mark(scene)
    _skipped(scene, 3 * DAY)
    scene.plan("job", 5 * DAY)
    _ran(scene, worker)
    scene.ask(scheduled_for=scene.at(2 * DAY), backfill=True)
    _ran(scene, worker, RunState.FAILED, error="no")
    _count(scene)
    assert (_all(scene).missed, _all(scene).succeeded, _all(scene).failed) == (1, 1, 1)


def test_a_pass_goes_on_where_the_last_complete_one_was(scene):
    scene.add("job")
    _skipped(scene, 3 * DAY)
    assert _count(scene) == (1, 1)
    first = scene.ledger.count_hours(scene.application, since=None, beyond=0, jobs=9)
    assert (first.since, first.runs) == (0.0, 1), "no pass was completed"
    _mark(scene)
    _mark(scene, ago=DAY)
    second = scene.ledger.count_hours(scene.application, since=None, beyond=0, jobs=9)
    assert scene.ledger.now() // HOUR * HOUR - second.since <= 2 * HOUR, "the mark does not move back"
    assert second.runs == 0


def test_jobs_are_counted_in_pages(scene):
    for name in ("a", "b", "c"):
        scene.add(name)
        _skipped(scene, 500, name=name)
    first = scene.ledger.count_hours(scene.application, since=None, beyond=0, jobs=2)
    assert (first.runs, first.up_to) == (2, scene.job("b").id)
    second = scene.ledger.count_hours(scene.application, since=first.since, beyond=first.up_to, jobs=2)
    assert (second.runs, second.up_to) == (1, None)


def test_retention_keeps_the_figures_of_what_it_removes(scene, worker):
    scene.add("job", 3 * DAY)
    _ran(scene, worker, late=0.5, took=4.0)
    _skipped(scene, *range(400, 410))
    _count(scene)
    before = _days(scene)
    while _prune(scene, limit=3):
        assert _days(scene) == before
    assert scene.runs() == []
    _count(scene)
    assert _days(scene) == before


def test_retention_counts_what_no_pass_has_counted(scene, worker):
    """The planner may die before its first pass, or stay away for longer than runs are kept."""
    scene.add("job", 3 * DAY)
    _ran(scene, worker)
    _skipped(scene, *range(400, 410))
    assert _days(scene) == []
    while _prune(scene, limit=3):
        pass
    assert (_all(scene).succeeded, _all(scene).missed) == (1, 10)


def test_what_ends_in_an_hour_of_which_runs_were_removed_is_counted(scene, worker):
    ago = scene.start - (scene.start - 5 * DAY) // HOUR * HOUR
    scene.add("job", ago - 100, overlap="wait")
    run = worker.take()
    _skipped(scene, ago - 50)
    assert _prune(scene) == 1
    assert (_all(scene).open, _all(scene).missed) == (1, 1)
    ended = {"error": "no", "started_at": run.due_at, "finished_at": run.due_at}
    worker.ledger.finish([worker.ending(run.id, RunState.FAILED, **ended)])
    _count(scene)
    assert (_all(scene).open, _all(scene).missed, _all(scene).failed) == (0, 1, 1)


def test_a_retry_in_an_hour_of_which_runs_were_removed_is_counted_once(scene, worker):
    ago = scene.start - (scene.start - 5 * DAY) // HOUR * HOUR
    scene.add("job", ago - 50)
    _ran(scene, worker)
    scene.plan("job", ago - 100)
    failed = _ran(scene, worker, RunState.FAILED, error="no")
    assert _prune(scene, keep=1) == 1
    scene.ledger.retry([failed.id], "me")
    _ran(scene, worker)
    _count(scene)
    assert (_all(scene).succeeded, _all(scene).failed) == (2, 0)
    assert _prune(scene) == 1
    assert (_all(scene).succeeded, _all(scene).failed) == (2, 0)


def _close(scene, before=0.0, oldest=1000 * DAY, limit=100):
    now = scene.ledger.now()
    return scene.ledger.close_days(scene.application, before=now - before, oldest=now - oldest, limit=limit)


def test_old_hours_become_days(scene, worker):
    scene.add("job", 20 * DAY)
    _ran(scene, worker, late=0.5, took=4.0)
    _skipped(scene, 20 * DAY - HOUR, 10 * DAY)
    _count(scene)
    assert _prune(scene, 15 * DAY) == 2
    before = _days(scene)
    closed = {row.start // DAY for row in _hours(scene)[:2]}
    assert _close(scene, 14 * DAY) == len(closed)
    assert len(_hours(scene)) == 1
    assert _days(scene) == before
    assert _close(scene, 14 * DAY) == 0
    assert _close(scene, 14 * DAY, oldest=15 * DAY) == len(closed)
    assert len(_days(scene)) == 1


def test_a_day_with_an_open_run_stays(scene, worker):
    scene.add("job", 20 * DAY)
    run = worker.take()
    _count(scene)
    assert _close(scene, 14 * DAY) == 0
    worker.finish(run.id)
    _count(scene)
    assert _close(scene, 14 * DAY) == 1


def test_days_are_made_a_few_at_a_time(scene):
    scene.add("job")
    _skipped(scene, 20 * DAY, 21 * DAY, 22 * DAY)
    _count(scene)
    assert [_close(scene, 14 * DAY, limit=2) for _ in range(3)] == [2, 1, 0]
    assert _all(scene).missed == 3


def test_nothing_changes_in_a_day_whose_hours_are_gone(scene, worker):
    """Neither what retention removes later nor a retry nor an earlier start of the count is counted twice."""
    scene.add("job", 20 * DAY)
    failed = _ran(scene, worker, RunState.FAILED, error="no")
    _skipped(scene, 20 * DAY - 1)
    _count(scene)
    assert _close(scene, 14 * DAY) == 1
    before = _days(scene)
    _count(scene)
    assert (_days(scene), _hours(scene)) == (before, [])
    scene.ledger.retry([failed.id], "me")
    _ran(scene, worker)
    _count(scene)
    assert _days(scene) == before
    assert _prune(scene) == 2
    assert (_days(scene), _hours(scene)) == (before, [])


def test_totals_are_of_the_hours_since_an_instant(scene):
    scene.add("job")
    scene.add("other")
    scene.add("idle")
    _skipped(scene, 5 * DAY, 2 * DAY, HOUR)
    _skipped(scene, HOUR, name="other")
    _count(scene)
    _prune(scene, DAY)
    since = scene.ledger.now() - 3 * DAY
    found = scene.ledger.totals(scene.application, since)
    assert {name: figures.missed for name, figures in found.items()} == {"job": 2, "other": 1}
    assert scene.ledger.totals(scene.application, since, ["job", "nothing"]) == {"job": found["job"]}
    assert scene.ledger.totals(scene.application + " too", since) == {}


def test_counts_by_the_queues_of_jobs_since_an_instant(scene, worker):
    scene.add("job", queue="one")
    scene.add("other", queue="one")
    scene.add("third", 400, queue="two")
    _skipped(scene, 5 * DAY, 2 * DAY, HOUR)
    _skipped(scene, HOUR, name="other")
    _ran(scene, worker, RunState.FAILED)
    _count(scene)
    _prune(scene, DAY)
    scene.remove("other")
    since = scene.ledger.now() - 3 * DAY
    found = scene.ledger.counts_by_queue(scene.application, since)
    assert found == {"one": Figures(missed=3), "two": Figures(failed=1)}
    assert scene.ledger.counts_by_queue(scene.application + " too", since) == {}


def test_the_figures_of_a_forgotten_job_go_with_it(scene):
    scene.add("job", in_code=False)
    _skipped(scene, 20 * DAY, 400)
    _count(scene)
    _close(scene, 14 * DAY)
    scene.remove()
    before = scene.ledger.now() + 60
    while scene.ledger.prune(scene.application, before=before, keep=0, limit=9).removed:
        pass
    assert _days(scene)
    assert scene.ledger.forget(scene.application, before=before, defined=(), limit=9).jobs == 1
    scene.add("job")
    assert _days(scene) == []


def test_a_job_with_many_figures_is_forgotten_in_several_steps(real_scene):
    scene = real_scene
    scene.add("job", in_code=False)
    _skipped(scene, *(place * HOUR for place in range(1, 26)))
    _count(scene)
    scene.remove()
    before = scene.ledger.now() + 60
    while scene.ledger.prune(scene.application, before=before, keep=0, limit=9).removed:
        pass
    forgotten = [scene.ledger.forget(scene.application, before=before, defined=(), limit=1) for _ in range(3)]
    assert [(one.jobs, one.more) for one in forgotten] == [(0, True), (0, True), (1, True)]


def test_counting_waits_for_no_row_of_others(ledger_database):
    """A transaction of the application may hold a job, or a retry, for as long as it likes."""
    with (
        closing(Scene(store_for(ledger_database))) as scene,
        psycopg.connect(ledger_database) as other,
        psycopg.connect(ledger_database) as another,
    ):
        scene.add("job")
        _skipped(scene, 3 * DAY, 400)
        _count(scene)
        _mark(scene)
        old, young = scene.runs()
        other.execute("SELECT FROM tenure.job WHERE id = %s FOR UPDATE", [scene.job().id])
        assert _count(scene)[1] == 0
        other.rollback()
        other.execute("SELECT tenure.retry_runs(ARRAY[%s, %s]::bigint[], '', NULL, NULL)", [old.id, young.id])
        another.execute("SET lock_timeout = '1s'")
        assert _count(scene)[1] == 0
        other.commit()
        _count(scene)
        assert _all(scene).open == 2, "the mark of the retry has waited for its commit"


def test_two_who_count_and_one_who_removes_lose_nothing_and_count_nothing_twice(real_scene):
    scene = real_scene
    for name in ("a", "b"):
        scene.add(name)
        _skipped(scene, *(ago * 60 for ago in range(1, 301)), name=name)
    stop, failures = threading.Event(), []

    def counting():
        with closing(scene.store.session("test", timeout=10.0)) as session:
            while not stop.is_set():
                counted = session.ledger.count_hours(scene.application, since=0.0, beyond=0, jobs=9)
                totals = session.ledger.totals(scene.application, 0.0)
                if counted and totals and {known.missed for known in totals.values()} != {300}:
                    failures.append(totals)

    _count(scene)
    threads = [threading.Thread(target=counting) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        while _prune(scene, limit=7):
            pass
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert scene.runs("a") == scene.runs("b") == []
    assert (_all(scene, "a").missed, _all(scene, "b").missed) == (300, 300)


def test_an_idle_file_is_not_written(tmp_path):
    store = store_for(f"sqlite:///{tmp_path / 'jobs.db'}")
    store.prepare()
    with closing(Scene(store)) as scene:
        scene.add("job")
        _skipped(scene, 3 * DAY, 400)
        _count(scene)
        _close(scene, 14 * DAY)
        before = (tmp_path / "jobs.db").read_bytes(), (tmp_path / "jobs.db-wal").read_bytes()
        _count(scene)
        _close(scene, 14 * DAY)
        assert ((tmp_path / "jobs.db").read_bytes(), (tmp_path / "jobs.db-wal").read_bytes()) == before


def test_what_follows_a_run_of_an_hour_that_was_counted_is_counted(scene, worker):
    """A follower's run belongs to the hour of its due time, and is inserted long after that."""
    scene.add("job", trigger=None, function="g", after="load", on="end")
    scene.add("load", 5 * HOUR)
    worker.finish(worker.take().id)
    _count(scene)
    _mark(scene)
    assert _all(scene) == Figures()
    scene.ledger.follow_up(scene.application, 10)
    _count(scene)
    assert [row.figures.open for row in _hours(scene)] == [1]
    worker.finish(worker.take().id)
    _count(scene)
    assert _all(scene).succeeded == 1
