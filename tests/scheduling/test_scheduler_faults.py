"""A planner that dies at the worst moments, effects that are made once, places that are never given twice, downtime,
and changes on the fly."""

import random

import pytest

from harness import chronicle, plays
from harness.scenes import stage
from tenure.core.messages import NewRun, Planned, RunQuery
from tenure.triggers import every

TTL, KILLS = 30, 10


@pytest.fixture
def make(tmp_path):
    with stage(tmp_path) as make:
        yield make


@pytest.mark.timeout(90)
def test_a_planner_that_dies_at_any_step_delays_nothing_that_it_had_not_claimed(url, make):
    jobs = [{"name": "tick", "every": 0.1, "copies": 2, "policy": {"overlap": "allow"}}]
    verdict = plays.steps(make(url, jobs=jobs, ttl=TTL).start(3))
    print(verdict)
    assert max(verdict.lateness + verdict.late_again) < TTL, "its death was proved, nobody waited for its ttl"


@pytest.mark.timeout(120)
def test_planners_killed_at_random_moments_delay_nothing_that_they_had_not_claimed(database, make):
    scene = make(database, jobs=[{"name": "tick", "every": 0.1, "policy": {"overlap": "allow"}}], ttl=TTL).start(3)
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    verdict = plays.succession(scene, KILLS, random.Random(seed))
    print(verdict)
    assert scene.blows["kill -9"] == KILLS
    assert max(verdict.lateness + verdict.late_again) < TTL


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("store", "rounds", "zombies"), [("sqlite", 6, 9), ("postgres", 6, 13)])
def test_an_effect_is_made_once_whenever_its_node_dies(request, make, store, rounds, zombies):
    url = request.getfixturevalue("sqlite_url" if store == "sqlite" else "database")
    scene = make(url, jobs=plays.EFFECT, ttl=2.5).start(2)
    found = plays.effects(scene, rounds, zombies)
    print(found)
    assert found["effects made 1 times"] == found["succeeded"] == rounds + zombies, f"{found}\n{scene.stories()}"
    assert found["without effect"] == 0
    assert found["refused"] == zombies


@pytest.mark.timeout(90)
def test_never_more_of_a_job_at_once_than_max_running(url, make):
    policy = {"overlap": "allow", "max_running": 2, "max_lost": 10}
    jobs = [{"name": "narrow", "every": 0.4, "copies": 5, "body": "note", "for": 0.6, "policy": policy}]
    scene = make(url, jobs=jobs, ttl=2, capacity=6).start(6)
    most = plays.places(scene, 75, 2, frozen=url.startswith("postgresql"))
    assert max(most.values()) == 2, "both places were used"


def test_downtime_is_settled_by_each_policy_for_planned_and_unplanned_due_times_alike(url, make):
    one_by_one = {"overlap": "allow", "max_running": 1}
    jobs = [
        {"name": word, "every": 300, "policy": {"missed": word, **one_by_one}} for word in ("skip", "latest", "all")
    ]
    jobs.append({"name": "many", "every": 30, "policy": {"missed": "all", **one_by_one}})
    scene = make(url, jobs=jobs, ttl=10)
    scene.retire(scene.add())
    since = scene.now() // 300 * 300 - 3600
    move_back(scene, since)
    plan_as_before_the_downtime(scene, since)
    scene.add()
    expected = {job["name"]: list(chronicle.due_times(job["every"], since, scene.now())) for job in jobs}
    scene.eventually(lambda: accounted(scene, expected))

    states = {
        name: {row.scheduled_for: row for row in scene.rows(until=due[-1] + 1, job=name)}
        for name, due in expected.items()
    }
    newest = expected["latest"][-1]
    in_time = newest > scene.now() - 60
    assert {row.state for due, row in states["skip"].items() if due != newest or not in_time} == {"skipped"}
    assert [due for due, row in states["latest"].items() if row.state == "succeeded"] == [newest]
    assert {row.state for row in states["all"].values()} == {"succeeded"}
    assert sum(row.count for row in states["many"].values()) == len(expected["many"]) > 100
    assert sum(row.state == "succeeded" for row in states["many"].values()) >= 100
    for row in states["skip"].values():
        assert row.state == "succeeded" or row.reason == "missed"
    scene.audited()


def move_back(scene, since):
    """As if the jobs had been there since then, and nobody to plan them."""
    at = f"to_timestamp({since - 1})" if scene.prefix == "tenure." else str(round((since - 1) * 1e6))
    due = f"to_timestamp({since})" if scene.prefix == "tenure." else str(round(since * 1e6))
    changes = "job_change" if scene.prefix == "tenure." else "change"
    scene.query(f"DELETE FROM {scene.prefix}run")
    scene.query(f"UPDATE {scene.prefix}{changes} SET at = {at}")
    scene.query(f"UPDATE {scene.prefix}job SET since = {at}, next_due = {due}")


def plan_as_before_the_downtime(scene, since):
    """The first two due times of each job were written ahead when the last planner died."""
    with scene.scheduler._service.ledger() as ledger:
        batch = [
            Planned(
                row.id,
                row.generation,
                since,
                since + 2 * scene.grids[row.spec.name].period,
                tuple(NewRun(due, due, due + 60) for due in (since, since + scene.grids[row.spec.name].period)),
            )
            for row in ledger.jobs("scene")
        ]
        assert ledger.plan(batch) == 2 * len(batch)


def accounted(scene, expected):
    """All due times stand in the ledger, and none of them is open."""
    with scene.scheduler._service.ledger() as ledger:
        for name, due in expected.items():
            rows = ledger.runs(RunQuery("scene", name, before=due[-1] + 1, limit=1000))
            if sum(row.count for row in rows) < len(due) or not all(row.state.final for row in rows):
                return False
    return True


@pytest.mark.timeout(90)
def test_changes_count_at_once_also_for_what_is_planned_already(url, make):
    words = ("paused", "updated", "removed", "untouched")
    jobs = [{"name": word, "every": 0.5, "policy": {"overlap": "allow"}} for word in words]
    scene = make(url, jobs=jobs, ttl=10).start(2)
    scheduler = scene.scheduler
    scene.eventually(lambda: {line.job for line in scene.lines} == set(words))
    began = scene.now()

    scheduler.pause("paused", why="maintenance")
    scheduler.update("updated", trigger=every("0.7s"))
    scheduler.remove("removed")
    changed = scene.now()
    scheduler.add("untouched", every("0.4s"), name="added", overlap="allow")
    seen = len(scene.lines)
    scene.eventually(lambda: sum(line.job == "added" for line in scene.lines[seen:]) >= 4)
    scheduler.resume("paused")
    resumed = scene.now()
    scene.eventually(lambda: sum(line.job == "paused" and line.due > resumed for line in scene.lines) >= 2)
    until = scene.now()
    scene.settled(until)

    claimed = {
        word: [row for row in scene.rows(since=began, until=until, job=word) if row.claimed_at] for word in words
    }
    assert not [row for row in claimed["removed"] if row.claimed_at > changed]
    assert not [row for row in claimed["paused"] if changed < row.claimed_at < resumed]
    assert [row for row in claimed["paused"] if row.claimed_at > resumed]
    on_new_grid = set(chronicle.due_times(0.7, began, until))
    moved = {row.scheduled_for for row in claimed["updated"] if row.scheduled_for > changed}
    assert {round(due, 3) for due in on_new_grid if changed + 1 < due < until - 1} <= {round(due, 3) for due in moved}
    assert {round(due, 3) for due in moved} <= {round(due, 3) for due in on_new_grid}
    untouched = {row.scheduled_for for row in claimed["untouched"]}
    assert untouched == set(chronicle.due_times(0.5, began, until))
    scene.audited()


def test_a_lower_release_never_overwrites_a_higher_one(url, make):
    scene = make(url, jobs=[{"name": "tick", "every": 0.5, "policy": {"overlap": "allow"}}], ttl=10)
    newer = [{"name": "tick", "every": 0.3, "policy": {"overlap": "allow"}}, {"name": "new", "every": 0.3}]
    scene.add(release=1)
    new = scene.add(release=2, jobs=newer)
    old = scene.add(release=1)
    changed = scene.now()
    scene.eventually(lambda: {old.pid, new.pid} <= {line.pid for line in scene.lines if line.due > changed})
    scene.eventually(lambda: sum(line.job == "new" for line in scene.lines) > 5)
    until = scene.now()
    assert scene.scheduler.find_job("tick").release == 2
    assert {line.pid for line in scene.lines if line.job == "new"} == {new.pid}, "the others do not have the function"
    grid = {round(due, 3) for due in chronicle.due_times(0.3, changed, until)}
    scene.settled(until)
    assert {round(row.scheduled_for, 3) for row in scene.rows(changed, until, "tick")} == grid
    scene.audited()
