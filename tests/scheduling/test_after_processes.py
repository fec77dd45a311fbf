"""Jobs that follow others, in real workers that are killed and frozen: every run of a parent is followed once, or has a
row that says why not."""

import random
import time
from collections import Counter

import psycopg
import pytest

from harness import plays_kinds
from harness.scenes import Job, Scene, stage
from tenure.core.records import RunState

TTL = 2.5


@pytest.fixture
def make(tmp_path):
    with stage(tmp_path) as make:
        yield make


@pytest.mark.timeout(180)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_runs_of_all_kinds_are_accounted_for_whatever_befalls_the_workers(request, make, store):
    url = request.getfixturevalue("sqlite_url" if store == "sqlite" else "database")
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    scene: Scene = make(url, jobs=plays_kinds.KINDS, ttl=TTL).start(3)
    told = plays_kinds.kinds(scene, 8, random.Random(seed))
    print(dict(scene.blows), dict(told))
    assert told["most in the pool"] == plays_kinds.CRANES
    assert told["most in a slot"] == 1


@pytest.mark.timeout(180)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_status_and_audit_find_nothing_wrong_with_slow_waiting_and_paused_jobs(request, make, store):
    url = request.getfixturevalue("sqlite_url" if store == "sqlite" else "database")
    scene: Scene = make(url, jobs=plays_kinds.LONG_FOR_NOW, ttl=10, capacity=16).start(2)
    seen = plays_kinds.healthy(scene, 0, 2)
    assert seen.keys() >= plays_kinds.LASTING


def test_the_commands_name_a_follower_whose_run_is_missing(url, make):
    jobs: list[Job] = [{"name": "load", "body": "note"}, {"name": "report", "after": "load"}]
    scene: Scene = make(url, jobs=jobs, ttl=10).start(1)
    keys = [scene.scheduler.run_now("load").key for _ in range(3)]
    scene.eventually(lambda: sum(row.state is RunState.SUCCEEDED for row in scene.rows(job="report")) == 3)
    scene.audited()
    scene.query(f"DELETE FROM {scene.prefix}run WHERE key = ? AND id = ?", keys[1], _numbered(scene, "report", keys[1]))
    (audited,) = scene.scheduler.audit("report", since="-1h")
    assert not audited.clean
    assert audited.counts == {"succeeded": 2, "unaccounted": 1}
    assert "'load' has ended for it, and the ledger has neither a run nor a reason why not" in audited.lines()[1]


def _numbered(scene: Scene, job: str, key: str) -> int:
    (row,) = (row for row in scene.rows(job=job) if row.key == key)
    return row.id


@pytest.mark.timeout(90)
@pytest.mark.parametrize("failpoint", ["finish:after", "follow_up:before", "follow_up:after"])
def test_a_node_that_dies_between_the_ending_and_the_follower_leaves_it_to_others(url, make, failpoint):
    scene: Scene = make(url, jobs=plays_kinds.CHAIN, ttl=10).start(2)
    planner = scene.planner()
    scene.eventually(lambda: any(line.job.startswith("report") for line in scene.lines))
    planner.say(do="arm", failpoint=failpoint)
    scene.fell(planner)
    scene.add()
    before = len(scene.lines)
    scene.eventually(lambda: len(scene.lines) > before + 4 * plays_kinds.COPIES)
    assert plays_kinds.accounted(scene)["report succeeded"] > plays_kinds.COPIES


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_pause_in_an_open_transaction_delays_no_ending(database, make, end):
    """The pause is held until a hundred runs of the parent have ended, and each of them has its row afterwards."""
    jobs: list[Job] = [
        {"name": "load", "body": "note", "policy": {"overlap": "allow"}},
        {"name": "report", "after": "load", "body": "note", "policy": {"overlap": "allow"}},
    ]
    scene: Scene = make(database, jobs=jobs, ttl=10).start(2)
    with psycopg.connect(database) as connection:
        scene.scheduler.pause("report", conn=connection)
        keys = [f"key {number}" for number in range(100)]
        began = time.monotonic()
        scene.scheduler.run_now_many("load", [None] * 100, keys=keys)
        scene.eventually(lambda: sum(row.state is RunState.SUCCEEDED for row in scene.rows(job="load")) == 100)
        took = time.monotonic() - began
        assert scene.rows(job="report") == []
        (held,) = scene.scheduler.audit("report", since="-1h")
        assert held.counts == {"open": 100}
        assert "owed" in held.lines()[1]
        getattr(connection, end)()
    print(f"a hundred runs ended within {took:.2f} s, while the pause was open")
    scene.eventually(lambda: len(scene.rows(job="report")) == 100)
    if end == "commit":
        assert {row.state for row in scene.rows(job="report")} == {RunState.PENDING}, "requested runs wait"
        scene.scheduler.resume("report")
    scene.settled(scene.now())
    assert Counter(row.state for row in scene.rows(job="report")) == {RunState.SUCCEEDED: 100}
    scene.audited()
