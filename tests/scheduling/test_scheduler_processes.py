"""Schedulers as real processes that are killed, frozen, drained and forked while they run jobs (promises G3, G4 and
G6)."""

import random
import signal
import time

import pytest

from harness import plays, scratch
from harness.scenes import stage
from tenure.util.signals import SAME

HOLD = 1.5


@pytest.fixture
def make(tmp_path):
    with stage(tmp_path) as make:
        yield make


@pytest.mark.timeout(120)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_every_due_time_is_run_once_whatever_befalls_the_workers(request, make, store):
    server = request.getfixturevalue("own_postgres") if store == "postgres" else None
    url = request.getfixturevalue("sqlite_url") if server is None else server.create_database()
    scene = make(url, jobs=plays.MANY, ttl=2.5).start(3)
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    verdict = plays.storm(scene, 8, random.Random(seed), server)
    print(verdict, dict(scene.blows))
    assert verdict.due >= 800
    assert verdict.states["ran"] > 0.7 * verdict.due


@pytest.mark.timeout(90)
def test_a_long_run_stays_one_run_on_a_blocked_loop_and_without_the_interpreter(sqlite_url, database, make):
    ttl = 3.0
    jobs = [
        {"name": "blocks", "body": "blocks", "for": 3 * ttl, "hold": HOLD},
        {"name": "hogs", "body": "hogs", "for": 3 * ttl, "hold": HOLD, "pause": 0.2},
    ]
    scenes = [make(url, jobs=jobs, ttl=ttl).start(2) for url in (sqlite_url, database)]  # at once: they mostly wait
    for scene in scenes:
        for job in jobs:
            scene.scheduler.run_now(job["name"])
    for scene in scenes:
        scene.settled(scene.now())
        for row in scene.rows():
            assert (row.state, row.attempt, row.losses) == ("succeeded", 1, 0), f"{row}\n{scene.stories()}"
        lines = sorted(scene.lines, key=lambda line: line.at)
        assert [line.what for line in lines] == ["start", "start", "end", "end"]


def test_a_job_that_kills_its_node_is_given_up_after_max_lost_nodes(url, make):
    scene = make(url, jobs=[{"name": "kills", "body": "kills", "policy": {"max_lost": 3}}], ttl=10).start(2)
    scene.scheduler.run_now("kills")
    for lost in range(1, 4):
        scene.eventually(lambda lost=lost: sum(not worker.alive for worker in scene.workers) >= lost)
        scene.add(wait=False)
    scene.settled(scene.now())
    (row,) = scene.rows()
    assert (row.state, row.attempt, row.losses) == ("lost", 3, 3)
    assert [line.attempt for line in scene.lines] == [1, 2, 3]


def test_what_runs_may_end_and_the_rest_goes_to_others_at_once(url, make):
    jobs = [{"name": "ends", "for": 1.5}, {"name": "goes on", "body": "obliging", "for": 3.0}, {"name": "later"}]
    scene = make(url, jobs=jobs, ttl=10, drain=20)
    old = scene.add()
    for name in ("ends", "goes on"):
        scene.scheduler.run_now(name)
    scene.eventually(lambda: len(scene.lines) == 2)
    scene.add()
    old.process.send_signal(signal.SIGTERM)
    scene.scheduler.run_now("later")
    scene.eventually(lambda: any(line.job == "later" and line.what == "end" for line in scene.lines))
    assert old.alive, "it drains"
    assert old.wait(within=20) == 0
    scene.settled(scene.now())
    assert {(row.state, row.attempt, row.losses) for row in scene.rows()} == {("succeeded", 1, 0)}
    assert {line.pid for line in scene.lines if line.job != "later"} == {old.pid}
    assert not [line for line in scene.lines if line.what == "told"]


def test_a_drain_that_takes_too_long_hands_over_and_a_second_signal_means_now(url, make):
    jobs = [{"name": "obliging", "body": "obliging", "for": 3.0}, {"name": "stubborn", "body": "note", "for": 25.0}]
    scene = make(url, jobs=jobs, ttl=10, drain=0.5)
    first = scene.add()
    scene.scheduler.run_now("obliging")
    scene.eventually(lambda: scene.lines)
    scene.add(drain=30)
    began = time.monotonic()
    scene.retire(first)
    scene.settled(scene.now())
    assert time.monotonic() - began < 13, "nobody waited for a ttl and more"
    (row,) = scene.rows()
    assert (row.state, row.attempt, row.losses, row.interruptions) == ("succeeded", 2, 0, 1), (
        "what was told to end is tried again elsewhere, and that is no loss"
    )
    assert [line.what for line in scene.lines] == ["start", "told", "start", "end"]

    second = scene.alive[0]
    scene.scheduler.run_now("stubborn")
    scene.eventually(lambda: any(line.job == "stubborn" for line in scene.lines))
    second.process.send_signal(signal.SIGTERM)
    time.sleep(3 * SAME)  # sooner might be the same signal, sent to the group too
    assert second.alive, "it drains"
    began = time.monotonic()
    second.process.send_signal(signal.SIGTERM)
    second.wait(within=15)
    assert time.monotonic() - began < 10
    scene.add()
    scene.eventually(lambda: sum(line.what == "start" for line in scene.lines if line.job == "stubborn") == 2)


def test_a_forked_child_runs_nothing_and_keeps_nothing_alive(url, make):
    scene = make(url, jobs=[{"name": "tick", "every": 0.2, "policy": {"overlap": "allow"}}], ttl=10).start(1)
    (parent,) = scene.workers
    scene.eventually(lambda: scene.lines)
    parent.say(do="fork")
    child = parent.wait_event(event="forked")["child"]
    try:
        before = len(scene.lines)
        scene.eventually(lambda: len(scene.lines) > before + 4)
        scene.kill(parent)
        began, other = time.monotonic(), scene.add()
        scene.eventually(lambda: sum(line.pid == other.pid for line in scene.lines) > 8)
        assert time.monotonic() - began < 8, "the child holds no lock of its parent: nobody waited for a ttl"
        assert scratch.running(child)
    finally:
        scratch.send([child], signal.SIGKILL)
    assert child not in {line.pid for line in scene.lines}
    scene.audited()
