"""Runs, logs, figures and retention."""

import itertools
from contextlib import closing
from dataclasses import replace
from datetime import UTC

import psycopg
import pytest

from stores.ledger.scene import Scene
from tenure.core.messages import PLAIN, JobStats, Progress, RunQuery
from tenure.core.records import OPEN, RunKind, RunState
from tenure.stores import store_for
from tenure.views import RunView


def _ago(scene, rows):
    return [row.scheduled_for - scene.start for row in rows]


def _ask(scene, **more):
    return scene.ledger.runs(RunQuery(scene.application, **more))


def test_the_last_log_lines_of_runs_are_told_without_the_others(scene, worker):
    scene.add("job", 300, 200, 100, overlap="allow", max_running=9)
    first, second, third = worker.claim().runs
    worker.keep_log(first.id, "one", "two", "three")
    worker.keep_log(first.id, "again", attempt=2)
    worker.keep_log(second.id, "only")
    assert scene.ledger.log_ends([first.id, second.id, third.id]) == {first.id: (2, 0), second.id: (1, 0)}
    worker.keep_log(first.id, "again", "and again", attempt=2)
    assert scene.ledger.log_ends([first.id]) == {first.id: (2, 1)}
    assert scene.ledger.log_ends([]) == {}


def test_runs_are_listed_newest_first(scene, worker):
    scene.add("a", 10, 30)
    scene.add("b", 20, 40)
    assert _ago(scene, _ask(scene)) == [-10, -20, -30, -40]
    assert _ago(scene, _ask(scene, oldest_first=True)) == [-40, -30, -20, -10]
    assert _ago(scene, _ask(scene, limit=2)) == [-10, -20]
    assert _ago(scene, _ask(scene, limit=1, oldest_first=True)) == [-40]


def test_runs_of_a_job_and_of_an_application(scene):
    scene.add("a", 10)
    scene.add("b", 20)
    assert [row.name for row in _ask(scene, job="b")] == ["b"]
    assert _ask(scene, job="nobody") == []
    assert scene.ledger.runs(RunQuery(scene.application + " too")) == []


def test_runs_in_states(scene, worker):
    scene.add("job", 30, 20, 10)
    worker.claim()
    assert _ago(scene, _ask(scene, states=(RunState.SKIPPED,))) == [-10, -20]
    assert _ago(scene, _ask(scene, states=(RunState.RUNNING, RunState.SKIPPED))) == [-10, -20, -30]
    assert _ask(scene, states=(RunState.LOST,)) == []


def test_runs_of_a_span_are_half_open(scene):
    scene.add("job", 40, 30, 20, 10)
    assert _ago(scene, _ask(scene, since=scene.start - 30, before=scene.start - 10)) == [-20, -30]
    assert _ago(scene, _ask(scene, since=scene.start - 20)) == [-10, -20]
    assert _ago(scene, _ask(scene, before=scene.start - 30)) == [-40]


def test_a_row_that_stands_for_several_is_in_the_span_by_its_last(scene):
    scene.add()
    scene.plan("job", scene.new(400, state=RunState.SKIPPED, reason="missed", count=4, until=scene.start - 100))
    assert _ago(scene, _ask(scene, since=scene.start - 100)) == [-400]
    assert _ask(scene, since=scene.start - 99) == []
    assert _ago(scene, _ask(scene, before=scene.start - 399)) == [-400]


def test_a_run_by_its_id(scene):
    scene.add("job", 20, 10)
    first, second = scene.runs()
    assert _ask(scene, id=second.id) == [second]
    assert scene.ledger.runs(RunQuery(scene.application + " too", id=first.id)) == []


def test_runs_of_a_removed_job_are_still_listed(scene, worker):
    scene.add("job", 20)
    worker.finish(worker.take().id)
    scene.remove()
    assert scene.told() == ["succeeded"]


def test_a_run_without_a_log(scene):
    scene.add("job", 20)
    assert scene.ledger.log(scene.runs()[0].id) == []


def test_figures_of_nothing(scene):
    nothing = JobStats(0, 0, None, None, None, None, None, None)
    assert scene.ledger.stats(scene.application, "nobody") == nothing
    scene.add("job", -600)
    scene.plan("job", scene.new(60, state=RunState.SKIPPED, reason="missed"))
    assert scene.ledger.stats(scene.application, "job") == nothing, "none of them began"


def test_figures_of_runs_that_began(scene, worker):
    scene.add("job", *(100 * n for n in range(1, 12)), overlap="allow", max_running=None)
    runs = worker.claim(limit=20).runs
    for number, run in enumerate(runs):  # the oldest took 0 s and was 0 s late, the newest 10 s and 20 s late
        begun = run.due_at + 2 * number
        state = RunState.FAILED if number in {3, 4} else RunState.SUCCEEDED
        worker.finish(run.id, state, started_at=begun, finished_at=begun + number)
    stats = scene.ledger.stats(scene.application, "job")
    assert (stats.runs, stats.failed, stats.last_state) == (11, 2, RunState.SUCCEEDED)
    assert stats.last_at == pytest.approx(scene.start - 100 + 30)
    assert (stats.duration_p50, stats.lateness_p50) == (pytest.approx(5), pytest.approx(10))
    assert (stats.duration_p99, stats.lateness_p99) == (pytest.approx(9.9), pytest.approx(19.8))


def test_a_run_that_waits_for_another_attempt_is_not_late_yet(scene, worker):
    scene.add("job", 200, 100, overlap="allow", max_running=None)
    first, second = worker.claim().runs
    worker.finish(first.id, started_at=first.due_at + 3, finished_at=first.due_at + 4)
    worker.finish(second.id, RunState.PENDING, again_in=900, started_at=second.due_at, finished_at=second.due_at + 1)
    stats = scene.ledger.stats(scene.application, "job")
    assert (stats.runs, stats.lateness_p50, stats.lateness_p99) == (2, pytest.approx(3), pytest.approx(3))
    assert [RunView.of(run, UTC).lateness for run in scene.runs()] == [pytest.approx(3), None]


def test_figures_of_the_last_runs_alone(scene, worker):
    scene.add("job", 300, 200, 100, overlap="allow", max_running=None)
    for number, run in enumerate(worker.claim().runs):
        state = RunState.FAILED if number == 0 else RunState.SUCCEEDED
        worker.finish(run.id, state, started_at=run.due_at, finished_at=run.due_at + number)
    stats = scene.ledger.stats(scene.application, "job", last=2)
    assert (stats.runs, stats.failed, stats.duration_p50) == (2, 0, pytest.approx(1.5))


def test_figures_of_all_jobs_are_those_of_each(scene, worker):
    for name in ("a", "b", "c", "gone"):
        scene.add(name, 300, 200, 100, overlap="allow", max_running=None)
    ends = itertools.cycle([RunState.SUCCEEDED, RunState.FAILED, RunState.SUCCEEDED])
    for run in worker.claim(11).runs:
        began = run.due_at + run.id % 7
        worker.finish(run.id, next(ends), started_at=began, finished_at=began + run.id % 5)
    scene.remove("gone")
    for last in (1, 2, 1000):
        figures = scene.ledger.figures(scene.application, last)
        assert sorted(figures) == ["a", "b", "c", "gone"]
        for name, found in figures.items():
            each = scene.ledger.stats(scene.application, name, last)
            assert (found.runs, found.failed, found.last_state) == (each.runs, each.failed, each.last_state)
            for figure in ("duration_p50", "duration_p99", "lateness_p50", "lateness_p99", "last_at"):
                assert getattr(found, figure) == pytest.approx(getattr(each, figure))
    scene.add("new")
    assert scene.ledger.figures(scene.application, 10)["new"] == scene.ledger.stats(scene.application, "new")


def test_runs_are_counted_by_state_and_node(scene, worker):
    scene.add("job", 400, 300, 200, -100, overlap="allow", max_running=None)
    scene.add("other", 500, overlap="allow", max_running=None)
    for run, state in zip(worker.claim(3).runs, (RunState.FAILED, RunState.FAILED, RunState.SUCCEEDED), strict=True):
        worker.finish(run.id, state)
    running = worker.claim(1).runs[0]
    scene.add("late", 50)

    def tally(since, limit=10):
        found = scene.ledger.tally(scene.application, scene.start - since, limit)
        return {(part.state.value, part.label): part.runs for part in found if part.runs}

    label = scene.runs(states=[RunState.RUNNING])[0].node
    assert scene.runs(states=[RunState.RUNNING])[0].id == running.id
    assert tally(1000) == {("pending", ""): 1, ("running", label): 1, ("failed", ""): 2}
    assert tally(450)["failed", ""] == 1
    assert tally(1000, limit=1)["failed", ""] == 1


def test_an_audit_is_given_every_run_of_a_span(scene, worker):
    scene.add("job", *range(100, 1000, 100), overlap="allow", max_running=None)
    scene.plan("job", scene.new(2000, state=RunState.SKIPPED, reason="missed", count=3, until=scene.start - 950))
    ends = itertools.cycle([RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED])
    for run in worker.claim(6).runs:
        worker.finish(run.id, next(ends))
    scene.ask("job", "by hand")
    job = scene.job().id
    since, before = scene.start - 800, scene.start + 60
    past = scene.ledger.past([job], since, before)[job]
    plain = {(round(at / 1e6 - scene.start), state) for state, times in past.plain.items() for at in times}
    listed = scene.ledger.runs(RunQuery(scene.application, "job", since=since, before=before))
    simply = {
        (round(run.scheduled_for - scene.start), run.state)
        for run in listed
        if run.state in PLAIN and run.kind is RunKind.DUE and run.count == 1
    }
    assert plain == simply
    assert len(plain) == 3
    assert {run.id for run in past.others} == {run.id for run in listed if run.state not in PLAIN}
    earlier = scene.ledger.past([job], scene.start - 960, scene.start - 950)[job]
    assert [(run.count, run.reason) for run in earlier.others] == [(3, "missed")], "it reaches into the span"


@pytest.mark.parametrize("oldest_first", [False, True])
def test_runs_in_some_states_are_listed_in_order_whichever_index_finds_them(scene, worker, oldest_first):
    scene.add("job", *range(100, 1100, 100), overlap="allow", max_running=None)
    ends = itertools.cycle([RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED, RunState.SUCCEEDED])
    for run in worker.claim(8).runs:
        worker.finish(run.id, next(ends))
    for states in (
        [],
        [RunState.FAILED],
        [RunState.FAILED, RunState.SUCCEEDED],
        [RunState.PENDING, RunState.CANCELLED],
        list(OPEN),
    ):
        every = sorted(
            (run for run in scene.runs() if not states or run.state in states),
            key=lambda run: run.scheduled_for,
            reverse=not oldest_first,
        )
        for since, limit in ((None, 100), (None, 2), (650, 100), (650, 1)):
            start = None if since is None else scene.start - since
            query = RunQuery(scene.application, None, tuple(states), start, limit=limit, oldest_first=oldest_first)
            wanted = [run for run in every if start is None or run.scheduled_for >= start][:limit]
            assert scene.ledger.runs(query) == wanted
            assert scene.ledger.runs(replace(query, job="job")) == wanted


@pytest.mark.parametrize("states", [[], [RunState.FAILED], [RunState.FAILED, RunState.PENDING], list(OPEN)])
def test_a_page_of_runs_begins_where_the_one_before_it_ended(scene, worker, states):
    for name in ("a", "b", "c"):  # three runs for each due time
        scene.add(name, *range(100, 700, 100), overlap="allow", max_running=None)
    for run in worker.claim(9).runs:
        worker.finish(run.id, RunState.FAILED)
    for job in (None, "b"):
        query = RunQuery(scene.application, job, tuple(states), limit=100)
        every, pages = scene.ledger.runs(query), []
        while page := scene.ledger.runs(replace(query, limit=2)):
            pages += page
            query = replace(query, before=page[-1].scheduled_for, below=page[-1].id)
        assert pages == every
        assert len(every) >= 3  # more than one page
        for run, after in zip(every[1:], every, strict=False):  # and upwards
            query = RunQuery(scene.application, job, tuple(states), since=run.scheduled_for, above=run.id, limit=1)
            assert scene.ledger.runs(replace(query, oldest_first=True)) == [after]


def test_the_triggers_of_some_jobs(scene):
    scene.add("a")
    scene.add("b")
    jobs = {scene.job(name).id: scene.job(name).spec.trigger for name in ("a", "b")}
    assert scene.ledger.triggers(jobs) == jobs
    assert scene.ledger.triggers([]) == {}


def _final(scene, *ago, name="job"):
    scene.plan(name, *(scene.new(seconds, state=RunState.SKIPPED, reason="missed") for seconds in ago))


def _prune(scene, ago=0.0, keep=0, limit=100):
    return scene.ledger.prune(scene.application, before=scene.start - ago, keep=keep, limit=limit).removed


def test_old_final_runs_are_removed(scene):
    before = scene.add()
    _final(scene, 500, 400, 300)
    assert _prune(scene, 300) == 2
    assert _ago(scene, scene.runs()) == [-300]
    since = scene.job().kept_since
    assert scene.start - 400 < since <= scene.start - 399
    assert scene.job() == replace(before, kept_since=since, next_due=scene.job().next_due)
    assert _prune(scene, 300) == 0
    assert scene.job().kept_since == since


def test_the_newest_of_each_job_are_kept(scene):
    for name in ("a", "b"):
        scene.add(name)
    _final(scene, 500, 400, 300, name="a")
    _final(scene, 900, name="b")
    assert _prune(scene, keep=2) == 1
    assert (_ago(scene, scene.runs("a")), _ago(scene, scene.runs("b"))) == ([-400, -300], [-900])
    assert scene.job("b").kept_since == 0.0


def test_at_most_so_many_are_removed_the_oldest_first(scene):
    scene.add()
    _final(scene, *range(100, 110))
    assert _prune(scene, limit=4) == 4
    assert _ago(scene, scene.runs())[0] == -105
    assert scene.start - 106 < scene.job().kept_since <= scene.start - 105


def test_retention_says_whether_more_is_left(scene):
    scene.add()
    _final(scene, *range(100, 110))

    def prune():
        return scene.ledger.prune(scene.application, before=scene.start, keep=2, limit=5)

    first, second = prune(), prune()
    assert (first.removed, first.more) == (5, True)
    assert (second.removed, second.more) == (3, False)
    assert (prune().removed, prune().more) == (0, False)


def test_a_run_that_somebody_has_locked_is_not_taken_for_the_end(ledger_database):
    """Retention leaves what is locked: fewer than it may remove does not mean that nothing is left."""
    with closing(Scene(store_for(ledger_database))) as scene, psycopg.connect(ledger_database) as other:
        scene.add()
        _final(scene, *range(100, 110))
        other.execute("SELECT FROM tenure.run WHERE id = %s FOR UPDATE", [scene.runs()[0].id])
        pruned = scene.ledger.prune(scene.application, before=scene.start, keep=0, limit=5)
        assert (pruned.removed, pruned.more) == (4, True)


def test_nothing_from_the_oldest_open_run_on_is_removed(scene, worker):
    scene.add("job", 300)
    worker.take()
    _final(scene, 500, 400, 200, 100)
    assert _prune(scene) == 2
    assert _ago(scene, scene.runs()) == [-300, -200, -100]


@pytest.mark.parametrize("state", [RunState.PENDING, RunState.WAITING, RunState.RUNNING])
def test_open_runs_are_never_removed(scene, worker, state):
    scene.add("job", 300, 200, overlap="wait")
    if state is not RunState.PENDING:
        worker.claim()
    if state is RunState.WAITING:
        worker.finish(scene.runs(states=[RunState.RUNNING])[0].id)
    assert _prune(scene) == (1 if state is RunState.WAITING else 0)
    assert state in {run.state for run in scene.runs()}


def test_logs_go_with_their_runs(scene, worker):
    scene.add("job", 300)
    run = worker.take()
    worker.finish(run.id)
    worker.keep_log(run.id, "a line")
    scene.ledger.keep_progress([Progress(run.id, 1, 1.0, None, "", scene.start)])
    assert _prune(scene) == 1
    assert scene.ledger.log(run.id) == []
    assert scene.ledger.progress([run.id]) == {}


def test_what_stands_for_several_is_kept_until_its_last_is_old(scene):
    scene.add()
    scene.plan("job", scene.new(400, state=RunState.SKIPPED, reason="missed", count=4, until=scene.start - 100))
    assert _prune(scene, 200) == 0
    assert _prune(scene, 50) == 1
    assert scene.job().kept_since > scene.start - 100


def test_other_applications_are_not_pruned(scene):
    scene.add()
    _final(scene, 500)
    assert scene.ledger.prune(scene.application + " too", before=scene.start, keep=0, limit=10).removed == 0
    assert len(scene.runs()) == 1


def test_lines_are_kept_with_runs_that_are_there(scene, worker):
    scene.add("job", 10)
    run = worker.take()
    worker.finish(run.id)
    worker.keep_log(run.id, "one", "two")
    worker.keep_log(run.id + 1000, "nobody's")
    assert scene.logged(run.id) == ["one", "two"]
    assert scene.ledger.log(run.id + 1000) == []
    scene.ledger.keep_log([])


def test_jobs_are_pruned_in_pages(scene):
    for name in ("a", "b", "c"):
        scene.add(name)
        _final(scene, 500, name=name)

    def prune(beyond):
        return scene.ledger.prune(scene.application, before=scene.start, keep=0, limit=10, beyond=beyond, jobs=2)

    first = prune(0)
    assert (first.removed, first.up_to) == (2, scene.job("b").id)
    second = prune(first.up_to)
    assert (second.removed, second.up_to) == (1, None)
