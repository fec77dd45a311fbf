"""Wrong clocks: jobs are due by the database's time, and a database whose clock jumps is not believed at once."""

import random
from contextlib import ExitStack

import pytest

from harness import plays
from harness.clocks import ShiftedClock
from harness.components import need
from harness.postgres import Postgres
from harness.scenes import stage

TICK = [{"name": "tick", "every": 0.5, "policy": {"overlap": "allow"}}]
DOUBT = {"DOUBT": (6.0, 300.0)}
"""Nodes doubt a clock for less long than in production: the tests wait for the end of it."""
AHEAD = {"DOUBT": (3.0, 300.0), "LOOK_AHEAD": 5.2, "REFILL": 3.2, "UNATTENDED": 1.5}
"""… and plan less far ahead: what runs after that was planned since."""


@pytest.fixture
def make(tmp_path):
    with stage(tmp_path) as make:
        yield make


def test_workers_whose_wall_clocks_are_wrong_fire_on_time(database, make):
    need("gcc")
    scene = make(database, jobs=TICK, ttl=10)
    for hours in (2, -2):
        scene.add(env=ShiftedClock(wall=hours * 3600).env)
    scene.planner()
    since = scene.now()
    scene.eventually(lambda: {line.label for line in scene.lines if line.due > since} == {"w0", "w1"})
    verdict = scene.verify(since, scene.now())
    assert max(verdict.lateness) < 60, "not by hours"


@pytest.mark.timeout(120)
def test_a_database_clock_that_jumps_for_a_while_silences_nothing_and_doubles_nothing(make):
    """By a year in either direction, and by little more than a minute, where what is planned is due and not missed
    yet."""
    need("postgres")
    need("gcc")
    with ExitStack() as servers:
        scenes = []
        for jump in (plays.YEAR, -plays.YEAR, 65.0):
            clock = ShiftedClock()
            server = servers.enter_context(Postgres(env=clock.env))
            scenes.append((make(server.create_database(), jobs=TICK, ttl=10, constants=DOUBT), clock, jump))
        verdicts = plays.jumps(scenes, believed=2.0, lasts=4.0, dice=random.Random(0))
        for (scene, _, _), verdict in zip(scenes, verdicts, strict=True):
            print(verdict)
            (jump,) = scene.faults
            meanwhile = [fate for fate in verdict.fates if fate.due - scene.wall > jump.at]
            assert any(fate.at < jump.at + jump.lasts for fate in meanwhile if fate.at), "silent while it was wrong"
        for scene, _, _ in scenes:
            scene.close()


@pytest.mark.timeout(120)
def test_a_worker_that_begins_while_the_databases_clock_is_ahead_silences_nothing(make):
    """It cannot know better: its own clock says the same. Those who were there before do."""
    need("postgres")
    need("gcc")
    clock = ShiftedClock()
    with Postgres(env=clock.env) as server:
        scene = make(server.create_database(), jobs=TICK, ttl=10, constants=DOUBT)
        scene.add()
        scene.planner()
        since = scene.now()
        scene.eventually(lambda: any(line.due > since for line in scene.lines))
        clock.wall(3600)
        late = scene.add(env=ShiftedClock(wall=3600).env)
        seen = scene.now() + 2
        scene.eventually(lambda: any(seen < line.due < seen + 60 for line in scene.lines))
        clock.wall(0)
        late.wait_event(event="doubts", within=5)
        late.wait_event(event="believes", within=30)
        scene.verify(since, scene.now())
        scene.close()


@pytest.mark.timeout(120)
def test_a_database_clock_that_is_put_back_for_good_puts_nothing_off(make):
    """Who plans believes it first; who was longer there goes on by the old time for a while, and must not plan by
    it."""
    need("postgres")
    need("gcc")
    clock = ShiftedClock()
    with Postgres(env=clock.env) as server:
        scene = make(server.create_database(), jobs=TICK, constants=AHEAD)
        old, began = scene.add(), scene.now()
        scene.eventually(lambda: scene.now() > began + 3)
        young = scene.add()
        scene.freeze(old)
        scene.eventually(lambda: young.plans)
        scene.thaw(old)
        scene.eventually(lambda: scene.present == scene.alive and scene.now() > began + 7)
        clock.wall(-3600)
        for worker in (young, old):
            worker.wait_event(event="believes", within=40)
        now = scene.now() - 3600
        scene.eventually(lambda: any(now + 8 < line.due < now + 60 for line in scene.lines))
        scene.close()
