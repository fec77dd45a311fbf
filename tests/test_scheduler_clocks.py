"""Wrong clocks: jobs are due by the database's time, and a database whose clock jumps is not believed at once."""

import time

import pytest

from harness.clocks import ShiftedClock
from harness.components import need
from harness.postgres import Postgres
from harness.scenes import Scene

YEAR = 365 * 86400.0


@pytest.fixture
def make(tmp_path):
    scenes = []

    def make(url, **options):
        scenes.append(Scene(tmp_path, url, **options))
        return scenes[-1]

    yield make
    for scene in scenes:
        scene.close()


@pytest.mark.parametrize("hours", [2, -2])
def test_a_worker_whose_wall_clock_is_wrong_fires_on_time(database, make, hours):
    need("gcc")
    scene = make(database, jobs=[{"name": "tick", "every": 0.5, "policy": {"overlap": "allow"}}], ttl=10)
    scene.add(env=ShiftedClock(wall=hours * 3600).env)
    scene.planner()
    since = scene.now()
    scene.eventually(lambda: len(scene.lines) >= 6)
    verdict = scene.verify(since, scene.now())
    assert max(verdict.lateness) < 2


@pytest.mark.timeout(120)
@pytest.mark.parametrize("years", [1, -1])
def test_a_database_clock_that_jumps_for_a_while_silences_nothing_and_doubles_nothing(make, years):
    need("postgres")
    need("gcc")
    clock = ShiftedClock()
    with Postgres(env=clock.env) as server:
        scene = make(
            server.create_database(), jobs=[{"name": "tick", "every": 0.5, "policy": {"overlap": "allow"}}], ttl=10
        )
        scene.start(2)
        scene.planner()
        since = scene.now()
        time.sleep(11)
        clock.wall(years * YEAR)
        time.sleep(10)
        clock.wall(0)
        time.sleep(2)
        verdict = scene.verify(since, scene.now())
        print(verdict)
        assert max(verdict.lateness) < 5
        scene.close()
