"""Backfills in real workers that are killed: each due time runs to success once, and never more at once than may be."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from harness.scenes import Job, Scene, stage
from tenure.core.records import RunState

DUE, AT_ONCE, FREE = 300, 6, 40
LOAD: Job = {"name": "load", "every": 60, "body": "note", "for": 0.02, "policy": {"overlap": "allow", "max_lost": 100}}
HALTS: Job = {**LOAD, "body": "halts", "free": FREE}
"""Each process runs `FREE` of them, and holds the next ones until it is told to go on."""


@pytest.fixture
def make(tmp_path):
    with stage(tmp_path) as make:
        yield make


@pytest.fixture(params=["sqlite", "postgres"])
def scene(request, make) -> Scene:
    url = request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "database")
    return make(url, jobs=[LOAD], ttl=2.5)


@pytest.fixture(params=["sqlite", "postgres"])
def halting(request, make) -> Scene:
    """Its backfills cannot be over before they are stopped."""
    url = request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "database")
    return make(url, jobs=[HALTS], ttl=2.5, capacity=10)


def go_on(scene: Scene) -> None:
    for worker in scene.alive:
        worker.say(do="go")


def span() -> tuple[datetime, datetime]:
    """A span that ended long ago, with that many due times."""
    until = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)
    return until - timedelta(minutes=DUE), until


def create(scene: Scene, **more) -> int:
    asked = scene.scheduler.backfill("load", *span(), dry_run=False, by="ada", **more)
    assert asked.total == DUE
    return asked.number


def over(scene: Scene, number: int, count: int) -> None:
    """Wait until so many due times are over; at every look, no more are open than may be."""

    def look() -> bool:
        view = scene.scheduler.find_backfill(number)
        assert view.waiting + view.running <= AT_ONCE, view
        return view.over >= count

    scene.eventually(look, within=90)


def starts(scene: Scene) -> Counter[tuple[str, int]]:
    """How often each attempt of each due time of the backfill began."""
    keys = {row.key for row in scene.rows(job="load") if row.by == "ada"}
    return Counter((line.key, line.attempt) for line in scene.lines if line.what == "start" and line.key in keys)


def each_ran_once(scene: Scene, number: int) -> None:
    view = scene.scheduler.find_backfill(number)
    assert (view.state, view.total, view.succeeded) == ("done", DUE, DUE), view
    rows = [row for row in scene.rows(job="load") if row.by == "ada"]
    assert Counter(row.state for row in rows) == {RunState.SUCCEEDED: DUE}
    begun = starts(scene)
    assert max(begun.values()) == 1, "no attempt twice"
    assert {row.key for row in rows} == {key for key, _ in begun}
    again = sum(row.losses + row.interruptions for row in rows)
    attempts = sum(row.attempt for row in rows)
    assert attempts == DUE + again, "a due time runs again only if its node died"


@pytest.mark.timeout(180)
def test_the_planner_is_killed_in_the_middle_and_each_due_time_runs_once(scene):
    scene.start(2)
    number = create(scene, at_once=AT_ONCE)
    for reached in (50, 120):
        over(scene, number, reached)
        scene.kill(scene.planner())
        scene.add(wait=False)
    over(scene, number, DUE)
    scene.eventually(lambda: scene.scheduler.find_backfill(number).state == "done")
    each_ran_once(scene, number)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("failpoint", ["advance_backfills:before", "advance_backfills:after"])
def test_a_node_that_dies_at_a_step_leaves_the_rest_to_others(scene, failpoint):
    scene.start(2)
    planner = scene.planner()
    number = create(scene, at_once=AT_ONCE)
    over(scene, number, 20)
    planner.say(do="arm", failpoint=failpoint)
    scene.fell(planner)
    over(scene, number, DUE)
    scene.eventually(lambda: scene.scheduler.find_backfill(number).state == "done")
    each_ran_once(scene, number)


@pytest.mark.timeout(180)
def test_pause_stops_and_resume_goes_on_where_it_was(halting):
    scene = halting.start(2)
    number = create(scene, at_once=AT_ONCE)
    over(scene, number, FREE)
    scene.scheduler.pause_backfill(number, by="bob")
    go_on(scene)

    def quiet() -> bool:
        view = scene.scheduler.find_backfill(number)
        return view.waiting + view.running == 0

    scene.eventually(quiet)
    left = scene.scheduler.find_backfill(number).left
    assert 0 < left <= DUE - FREE
    scene.kill(scene.planner())
    scene.add()
    go_on(scene)
    scene.planner()
    assert scene.scheduler.find_backfill(number).left == left, "another planner does not resume it"
    scene.scheduler.resume_backfill(number, by="bob")
    scene.eventually(lambda: scene.scheduler.find_backfill(number).state == "done", within=90)
    each_ran_once(scene, number)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("at_once", [AT_ONCE, None])
def test_cancel_ends_what_has_not_begun_and_nothing_else(halting, at_once):
    scene = halting.start(2)
    number = create(scene, at_once=at_once)
    scene.eventually(lambda: scene.scheduler.find_backfill(number).over >= FREE, within=90)
    scene.scheduler.cancel_backfill(number, by="bob", why="wrong month")
    go_on(scene)
    scene.eventually(lambda: scene.scheduler.find_backfill(number).finished_at is not None)
    view = scene.scheduler.find_backfill(number)
    assert view.state == "cancelled"
    assert view.succeeded + view.cancelled + view.left == DUE, view
    assert view.succeeded < DUE
    begun = starts(scene)
    assert (len(begun), max(begun.values())) == (view.succeeded, 1), "whatever has begun has succeeded"
    rows = [row for row in scene.rows(job="load") if row.by == "ada"]
    reasons = {row.reason for row in rows if row.state is RunState.CANCELLED}
    assert reasons <= {"wrong month (by bob)"}
    again = scene.scheduler.backfill("load", *span(), dry_run=False, by="ada")
    assert again.total == DUE - view.succeeded
    scene.eventually(lambda: scene.scheduler.find_backfill(again.number).state == "done", within=90)
    assert max(starts(scene).values()) == 1
