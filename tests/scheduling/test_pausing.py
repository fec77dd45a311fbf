"""When `pause` or `remove` returns nothing more of the job begins, or the node is named where something may."""

import asyncio
import json
import logging
import sqlite3
import subprocess
import sys
import threading
import time
import uuid

import pytest

import tenure.testing
from bodies import touch_and_sleep
from harness.processes import SUPPORT, Worker
from harness.scratch import eventually
from tenure import Run, Scheduler
from tenure.core.cluster import Beat, NodeCard
from tenure.core.messages import ClaimRequest, RunRequest
from tenure.core.records import RunState
from tenure.util.clock import boottime

QUICK = {"drain": 1, "ttl": 6, "heartbeat_every": 0.5, "attempt_timeout": 1}


def ask_for(scheduler, count, name="quick"):
    with scheduler._service.ledger() as ledger:
        ledger.request_runs([RunRequest(scheduler.application, name, str(uuid.uuid4()), None) for _ in range(count)])


@pytest.mark.parametrize("verb", ["pause", "remove"])
@pytest.mark.parametrize("colour", ["thread", "coroutine"])
def test_nothing_begins_after_it_has_returned(url, verb, colour):
    scheduler, begun = Scheduler(url, capacity=4, **QUICK), []

    if colour == "thread":

        @scheduler.job(overlap="allow")
        def quick(run: Run) -> None:
            begun.append(time.monotonic())
            time.sleep(0.002)
    else:

        @scheduler.job(overlap="allow")
        async def quick(run: Run) -> None:
            begun.append(time.monotonic())
            await asyncio.sleep(0.002)

    with scheduler:
        ask_for(scheduler, 600)
        for round_ in range(1, 4 if verb == "pause" else 2):
            wait_for(begun, 30 * round_)
            view = getattr(scheduler, verb)("quick")
            returned, count = time.monotonic(), len(begun)
            assert view.unanswered == ()
            eventually(lambda: not scheduler.runs("quick", state="running"))
            late = [round((at - returned) * 1000, 1) for at in begun[count:]]
            assert late == [], f"began so many ms after it had returned: {late}"
            left = {run.state for run in scheduler.runs("quick", limit=10_000)}
            assert left == {"succeeded", "pending" if verb == "pause" else "cancelled"}
            if verb == "pause":
                scheduler.resume("quick")


def wait_for(begun, count):
    eventually(lambda: len(begun) > count)


def test_behind_a_pooler_nodes_answer_with_their_next_reconcile(pgbouncer, database):
    """No node hears a notification there."""
    url = pgbouncer.url(database.rpartition("/")[2])
    node, begun = Scheduler(url, capacity=4, **QUICK), []

    @node.job(overlap="allow")
    def quick(run: Run) -> None:
        begun.append(time.monotonic())
        time.sleep(0.002)

    with node:
        ask_for(node, 3000)
        wait_for(begun, 30)
        view = Scheduler(url, capacity=0).pause("quick")
        returned, count = time.monotonic(), len(begun)
        assert view.unanswered == ()
        eventually(lambda: not node.runs("quick", state="running"))
        assert [round((at - returned) * 1000, 1) for at in begun[count:]] == []
        assert node.runs("quick", state="pending", limit=1), "there was more to begin"


def test_it_waits_for_a_body_that_is_on_its_way_into_a_process(sqlite_url, tmp_path):
    scheduler = Scheduler(sqlite_url, capacity=4, **QUICK)
    scheduler.job(process=True)(touch_and_sleep)
    with scheduler:
        run = scheduler.run_now("touch_and_sleep", kwargs={"path": str(tmp_path / "begun"), "seconds": 0.5})
        eventually(lambda: scheduler.find_run(run.id).state == "running")
        assert scheduler.pause("touch_and_sleep").unanswered == ()
        assert (tmp_path / "begun").exists(), "it had been claimed and handed over, so it was waited for"
        eventually(lambda: scheduler.find_run(run.id).state == "succeeded")


def test_a_loop_that_stands_still_does_not_hold_up_a_pause(sqlite_url):
    scheduler, stands, goes_on, begun = (
        Scheduler(sqlite_url, capacity=4, **QUICK),
        threading.Event(),
        threading.Event(),
        [],
    )

    @scheduler.job
    async def blocks() -> None:
        stands.set()
        goes_on.wait(20)

    @scheduler.job
    async def quick() -> None:
        begun.append(1)

    with scheduler:
        scheduler.run_now("blocks")
        assert stands.wait(10)
        run = scheduler.run_now("quick")
        eventually(lambda: scheduler.find_run(run.id).state == "running")
        assert scheduler.pause("quick").unanswered == ()
        goes_on.set()
        eventually(lambda: scheduler.find_run(run.id).state == "pending")
        eventually(lambda: not scheduler.runs("blocks", state="running"))
        assert begun == []
        scheduler.resume("quick")
        eventually(lambda: scheduler.find_run(run.id).state == "succeeded")


@pytest.mark.parametrize("verb", ["pause", "remove"])
def test_a_body_may_pause_and_remove_its_own_job(sqlite_url, verb):
    scheduler, told = Scheduler(sqlite_url, **QUICK), []

    @scheduler.job
    def itself(run: Run) -> None:
        told.append(getattr(scheduler, verb)("itself").unanswered)

    with scheduler:
        run = scheduler.run_now("itself")
        eventually(lambda: scheduler.find_run(run.id).state == "succeeded")
    assert told == [()]


def test_in_virtual_time_a_body_pauses_what_was_claimed_beside_it():
    scheduler, begun = Scheduler("memory://virtual-pause"), []

    @scheduler.every("10s")
    def first() -> None:
        begun.append("first")
        scheduler.pause("second")

    @scheduler.every("10s")
    def second() -> None:
        begun.append("second")
        scheduler.pause("first")

    with tenure.testing.virtual(scheduler, now="2026-03-28T12:00:03Z") as world:
        world.advance(by=10)
        assert len(begun) == 1, "whichever came first"
        other = "second" if begun == ["first"] else "first"
        assert [(run.state, run.reason) for run in world.runs(other)] == [("skipped", "paused")]


def silent_node(scheduler, ttl):
    """A node that claims what is due, and answers nothing."""
    session = scheduler.store.session("silent", 2.0)
    node = str(uuid.uuid4())
    session.join(NodeCard(node, "deaf", ttl, None))
    session.beat(Beat(node, 1, boottime(), boottime() + ttl, None, ()))
    assert session.ledger.claim(ClaimRequest(node, scheduler.application, str(uuid.uuid4()), 10)).runs
    return session


@pytest.mark.parametrize(("verb", "done"), [("pause", "paused"), ("remove", "removed")])
def test_a_node_that_does_not_answer_within_its_ttl_is_named(verb, done, caplog):
    scheduler = Scheduler(f"memory://{uuid.uuid4()}", capacity=0)
    scheduler.job(lambda: None, name="report")
    scheduler.start()
    scheduler.run_now("report")
    silent_node(scheduler, 0.2)
    with caplog.at_level(logging.WARNING):
        assert getattr(scheduler, verb)("report").unanswered == ("deaf",)
    assert f"job 'report' is {done}, but node 'deaf' did not answer" in caplog.text


def test_the_command_line_says_so_too(sqlite_url):
    scheduler = Scheduler(sqlite_url, capacity=0)
    scheduler.job(lambda: None, name="report")
    scheduler.start()
    scheduler.run_now("report")
    silent_node(scheduler, 0.2).close()
    command = [sys.executable, "-m", "tenure", "pause", "report", "--url", sqlite_url, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert json.loads(done.stdout)["unanswered"] == ["deaf"]
    assert "node 'deaf' did not answer: what it had claimed may still begin there" in done.stderr


def test_in_a_transaction_of_the_callers_it_does_not_wait(sqlite_url):
    scheduler = Scheduler(sqlite_url, capacity=0)
    scheduler.job(lambda: None, name="report")
    scheduler.start()
    scheduler.run_now("report")
    silent_node(scheduler, 60.0).close()
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    assert scheduler.pause("report", conn=connection).unanswered == ()
    connection.commit()
    connection.close()
    assert scheduler.find_job("report").state == "paused"


def running_on(scheduler, label):
    return [run for run in scheduler.runs("quick", state="running", limit=10_000) if run.node == label]


def can_be_written(url):
    """Not if a node was frozen while it was writing to the SQLite file: then nobody can."""
    if not url.startswith("sqlite"):
        return True
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=0.5, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return False
    else:
        return True
    finally:
        connection.close()


@pytest.mark.timeout(90)
def test_three_nodes_with_full_queues_begin_nothing_more_or_are_named(url):
    nodes = [Worker(SUPPORT / "workers" / "pausing.py", url, f"n{number}").start() for number in range(3)]
    for node in nodes:
        node.wait_event(event="started")
    scheduler = Scheduler(url, capacity=0)
    ask_for(scheduler, 5_000)
    for node in nodes:
        node.wait_event(event="begins")
    for _ in range(50):  # until one is frozen with runs in its queue
        nodes[2].freeze()
        if len(running_on(scheduler, "n2")) > 4 and can_be_written(url):
            break
        nodes[2].thaw()
        time.sleep(0.05)
    else:
        pytest.fail("the queue of n2 was never full")
    view = scheduler.pause("quick")
    returned = time.monotonic()
    assert set(view.unanswered) <= {"n2"}
    nodes[2].thaw()
    eventually(lambda: not running_on(scheduler, "n2"), within=30)
    eventually(lambda: not scheduler.runs("quick", state="running"), within=30)
    begun = {
        node: [event["at"] for line in node.lines if (event := json.loads(line))["event"] == "begins"] for node in nodes
    }
    late = {f"n{number}": [at for at in begun[node] if at > returned] for number, node in enumerate(nodes)}
    assert {label for label, ats in late.items() if ats} <= set(view.unanswered), late
    assert scheduler.runs("quick", state="pending", limit=1), "the queues were full until the end"
    assert RunState.RUNNING not in {run.state for run in scheduler.runs("quick", limit=10_000)}
