"""Jobs that follow others, in real workers that are killed and frozen: every run of a parent is followed once, or has a
row that says why not."""

import random
import time
from collections import Counter

import psycopg
import pytest

from harness.scenes import Job, Scene, stage
from tenure.core.records import OPEN, RunState

COPIES, TTL = 12, 2.5
CHAIN: list[Job] = [
    {"name": "load", "every": 1, "copies": COPIES, "body": "wavers", "policy": {"overlap": "allow", "max_lost": 100}},
    *(
        {
            "name": name,
            "after": parent,
            "copies": COPIES,
            "body": "note",
            "policy": {"on": on, "overlap": "allow", "max_lost": 100, "grace": "1h"},
        }
        for name, parent, on in (("report", "load", "success"), ("alarm", "load", "failure"), ("tidy", "report", "end"))
    ),
]


@pytest.fixture
def make(tmp_path):
    with stage(tmp_path) as make:
        yield make


def _accounted(scene: Scene) -> Counter[str]:
    """Everything has ended and is paid for. Returns what became of the followers' runs."""

    def paid() -> bool:
        with scene.scheduler._service.ledger() as ledger:
            return not ledger.owed(scene.scheduler.application, 1)

    until = scene.now()
    for _ in range(3):  # along the chain
        scene.settled(until)
        scene.eventually(paid)
    rows = {(row.name, row.key): row for row in scene.rows()}
    told: Counter[str] = Counter()
    for (name, key), row in rows.items():
        kind, _, number = name.partition("-")
        if row.state in OPEN or row.scheduled_for >= until:
            continue
        for follower, parent, wanted in (
            ("report", "load", {RunState.SUCCEEDED}),
            ("alarm", "load", {RunState.FAILED, RunState.LOST}),
        ):
            if kind == parent:
                mine = rows.get((f"{follower}-{number}", key))
                assert mine is not None, f"{follower} has nothing for {name} {key}\n{scene.stories()}"
                assert (mine.state is RunState.SUCCEEDED) is (row.state in wanted), (mine, row)
                assert mine.state is RunState.SUCCEEDED or mine.reason.startswith("after: load"), mine
                told[f"{follower} {mine.state}"] += 1
    starts = Counter((line.job, line.key, line.attempt) for line in scene.lines if line.what == "start")
    assert max(starts.values()) == 1, "no attempt twice"
    overdue = [line for job in scene.audited() for line in job.lines() if "OVERDUE" in line]
    assert overdue == []
    return told


@pytest.mark.timeout(120)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_every_run_is_followed_whatever_befalls_the_workers(request, make, store):
    url = request.getfixturevalue("sqlite_url" if store == "sqlite" else "database")
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    scene: Scene = make(url, jobs=CHAIN, ttl=TTL).start(3)
    scene.planner()
    ends = time.monotonic() + 10
    blows = ["kill", "freeze", "kill"]
    while blows or time.monotonic() < ends:
        blow = blows.pop() if blows else dice.choice(["kill", "freeze"])
        worker = dice.choice(scene.alive)
        if blow == "kill":
            scene.kill(worker)
            scene.add()
        else:
            scene.freeze(worker)
            time.sleep(1.5 * TTL)
            scene.thaw(worker)
        time.sleep(dice.random())
    told = _accounted(scene)
    print(dict(scene.blows), dict(told))
    assert told["report succeeded"] > 50
    assert told["alarm succeeded"] > 20
    assert told["report skipped"] > 20


@pytest.mark.timeout(90)
@pytest.mark.parametrize("failpoint", ["finish:after", "follow_up:before", "follow_up:after"])
def test_a_node_that_dies_between_the_ending_and_the_follower_leaves_it_to_others(url, make, failpoint):
    scene: Scene = make(url, jobs=CHAIN, ttl=10).start(2)
    planner = scene.planner()
    scene.eventually(lambda: any(line.job.startswith("report") for line in scene.lines))
    planner.say(do="arm", failpoint=failpoint)
    scene.fell(planner)
    scene.add()
    before = len(scene.lines)
    scene.eventually(lambda: len(scene.lines) > before + 4 * COPIES)
    assert _accounted(scene)["report succeeded"] > COPIES


def test_a_pause_in_an_open_transaction_delays_no_ending(database, make):
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
        connection.commit()
    print(f"a hundred runs ended within {took:.2f} s, while the pause was open")
    scene.eventually(lambda: len(scene.rows(job="report")) == 100)
    assert {row.state for row in scene.rows(job="report")} == {RunState.PENDING}, "requested runs wait for the resume"
    scene.scheduler.resume("report")
    scene.settled(scene.now())
    assert Counter(row.state for row in scene.rows(job="report")) == {RunState.SUCCEEDED: 100}
    scene.audited()
