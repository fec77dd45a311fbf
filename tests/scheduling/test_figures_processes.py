"""Figures of runs while planners are killed in the middle of counting and of removing runs."""

from collections import Counter

import pytest

from harness.scenes import APPLICATION, stage
from tenure.core.figures import DAY

QUICK = {"COUNT_EVERY": 0.2, "RESTS": 1.0, "PRUNE_EVERY": 0.3, "PRUNE_SOON": 0.1}
JOBS = [{"name": "effect", "every": 1, "copies": 20, "policy": {"overlap": "allow", "max_lost": 100}}]
"""Each run leaves a row in a table of the application, in the transaction of its completion."""
FAILPOINTS = ("count_hours:after", "prune:after", "count_hours:before", "prune:after")


@pytest.fixture
def make(tmp_path):
    with stage(tmp_path) as make:
        yield make


@pytest.mark.timeout(120)
def test_no_figure_is_lost_or_counted_twice_when_planners_die_while_they_count_and_remove(url, make):
    scene = make(url, jobs=JOBS, ttl=2.0, keep_for="2s", keep=0, constants=QUICK).start(3)
    for failpoint in FAILPOINTS:
        planner = scene.planner()
        planner.say(do="arm", failpoint=failpoint)
        scene.fell(planner)
        scene.add()
    scene.eventually(lambda: len(scene.table) - len(scene.rows()) >= 200)
    for worker in scene.alive:
        scene.retire(worker)
    until = scene.now() + DAY
    with scene.scheduler._service.ledger() as ledger:
        assert ledger.count_hours(APPLICATION, since=None, beyond=0, jobs=1000).up_to is None
        names = [row.spec.name for row in ledger.jobs(APPLICATION)]
        counted = {name: [row.figures for row in ledger.hours(APPLICATION, name, 0.0, until)] for name in names}
    wrote = Counter(row.job for row in scene.table)
    assert {name: sum(one.succeeded for one in found) for name, found in counted.items()} == wrote
    assert len(scene.rows()) < sum(wrote.values()), "retention has removed most of the runs"
