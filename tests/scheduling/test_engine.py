"""The runtime on the ledger in memory: what a body sees, what lost answers do, who may run what, and how it all ends."""

import asyncio
import itertools
import os
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from tenure import Run, Scheduler, current_run
from tenure.cluster import node
from tenure.errors import AttemptCancelled, AttemptLost, StoreUnavailable
from tenure.scheduling import engine
from tenure.stores.memory.ledger import MemoryLedger
from tenure.stores.memory.store import MemoryStore
from tenure.util.urls import MemoryURL

_numbers = itertools.count(1)
SOON = 10.0
"""A bound for what takes milliseconds, on whatever machine."""


def scheduler(world=None, **options):
    options = {"ttl": 3.0, "heartbeat_every": 0.2, "attempt_timeout": 0.5, "label": f"node {next(_numbers)}"} | options
    return Scheduler(world or f"memory://engine{next(_numbers)}", **options)


def eventually(question, within=SOON):
    deadline = time.monotonic() + within
    while not (answer := question()):
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.005)
    return answer


def ended(one, run, state="succeeded"):
    return eventually(lambda: (found := one.find_run(run.id)).state == state and found)


@contextmanager
def answers_lost(monkeypatch, method, times=1):
    """What the ledger did is done, but nobody hears of it, so many times."""
    real, left = getattr(MemoryLedger, method), [times]
    lost = threading.Event()

    def deaf(self, *args, **kwargs):
        answer = real(self, *args, **kwargs)
        worth = answer.runs if method == "claim" else answer
        if left[0] and worth:
            left[0] -= 1
            lost.set()
            raise StoreUnavailable("the answer was lost on its way")
        return answer

    monkeypatch.setattr(MemoryLedger, method, deaf)
    yield lost
    monkeypatch.setattr(MemoryLedger, method, real)


# What a body sees


def test_a_body_sees_its_run_in_a_thread_and_in_a_coroutine():
    one, seen = scheduler(tz="Asia/Seoul"), {}

    @one.job
    def plain(run: Run, colour: str) -> None:
        seen["plain"] = (run is current_run(), run.job, run.attempt, run.kind, str(run.scheduled_for.tzinfo), colour)
        run.log("one line")

    @one.job
    async def async_(run: Run) -> None:
        await asyncio.sleep(0)
        seen["async_"] = (run is current_run(), run.job, run.attempt, run.kind, str(run.scheduled_for.tzinfo), None)

    with one:
        for name, kwargs in (("plain", {"colour": "red"}), ("async_", None)):
            ended(one, one.run_now(name, kwargs=kwargs))
    assert seen == {
        "plain": (True, "plain", 1, "manual", "Asia/Seoul", "red"),
        "async_": (True, "async_", 1, "manual", "Asia/Seoul", None),
    }
    assert one.log(one.runs(job="plain")[0].id) == ["one line"], "what was logged is there when stop() returns"


def test_the_zone_of_a_run_is_that_of_its_trigger():
    one, seen = scheduler(tz="Asia/Seoul"), []

    @one.cron("* * * * * *", tz="Europe/Berlin")
    def berlin(run: Run) -> None:
        seen.append(str(run.scheduled_for.tzinfo))

    with one:
        eventually(lambda: seen)
    assert seen[0] == "Europe/Berlin"


def test_a_failure_is_tried_again_and_its_last_words_are_kept():
    one, attempts = scheduler(), []

    @one.job(retries=2, backoff=(0.01, 0.01))
    def flaky(run: Run) -> None:
        attempts.append(run.attempt)
        raise ValueError(f"attempt {run.attempt} failed")

    with one:
        run = ended(one, one.run_now("flaky"), "failed")
    assert attempts == [1, 2, 3]
    assert (run.attempt, run.failures) == (3, 3)
    assert run.reason.endswith("ValueError: attempt 3 failed")


def test_a_function_that_returns_a_coroutine_has_failed():
    one = scheduler()

    async def hidden():
        raise AssertionError

    @one.job
    def wrapper():
        return hidden()

    with one:
        run = ended(one, one.run_now("wrapper"), "failed")
    assert "nothing awaits" in run.reason


def test_never_more_bodies_than_the_capacity():
    one = scheduler(capacity=3)
    mutex, now, most = threading.Lock(), [0], [0]

    @one.job(overlap="allow")
    def counted() -> None:
        with mutex:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.002)
        with mutex:
            now[0] -= 1

    with one:
        runs = [one.run_now("counted") for _ in range(60)]
        for run in runs:
            ended(one, run)
    assert most[0] == 3


@pytest.mark.parametrize(("takes", "ahead"), [(0.0, True), (0.1, False)])
def test_only_what_ends_in_a_moment_is_claimed_ahead_of_free_slots(takes, ahead, monkeypatch):
    limits, claim = [], MemoryLedger.claim
    monkeypatch.setattr(
        MemoryLedger, "claim", lambda self, request: limits.append(request.limit) or claim(self, request)
    )
    one = scheduler(capacity=2)

    @one.job
    def body() -> None:
        time.sleep(takes)

    with one:
        for _ in range(3):
            ended(one, one.run_now("body"))
        so_far = len(limits)
        eventually(lambda: len(limits) > so_far)
    assert (max(limits) > 2) is ahead


# Answers that are lost


def test_a_claim_whose_answer_is_lost_is_run_once_and_counts_as_one_attempt(monkeypatch):
    one, bodies = scheduler(), []

    @one.job
    def work(run: Run) -> None:
        bodies.append(run.attempt)

    with one, answers_lost(monkeypatch, "claim") as lost:
        run = one.run_now("work")
        assert lost.wait(SOON)
        assert ended(one, run).attempt == 1
    assert bodies == [1]


def test_an_ending_whose_answer_is_lost_is_told_again_and_is_fine(monkeypatch, caplog):
    one, bodies = scheduler(), []

    @one.job
    def work() -> None:
        bodies.append(1)

    with one, answers_lost(monkeypatch, "finish", times=2) as lost:
        run = one.run_now("work")
        assert lost.wait(SOON)
        ended(one, run)
        eventually(lambda: not one.health().running)
    assert bodies == [1]
    assert not [record for record in caplog.records if getattr(record, "action", "") == "ending_refused"]


def test_a_failure_whose_answer_is_lost_is_tried_again_once(monkeypatch):
    one, attempts = scheduler(), []

    @one.job(retries=1, backoff=(0.01, 0.01))
    def work(run: Run) -> None:
        attempts.append(run.attempt)
        raise ValueError

    with one, answers_lost(monkeypatch, "finish"):
        assert ended(one, one.run_now("work"), "failed").failures == 2
    assert attempts == [1, 2]


# Who may run what


def test_a_node_that_was_declared_dead_tells_its_bodies_and_is_refused():
    world = f"memory://engine{next(_numbers)}"
    one, other = scheduler(world), scheduler(world)
    begun, told, labels = threading.Event(), threading.Event(), []

    def work(run: Run) -> None:
        labels.append(run.attempt)
        if run.attempt == 1:
            begun.set()
            while not run.lost:
                run.wait(0.01)
            with pytest.raises(AttemptLost):
                run.check()
            told.set()

    one.job(work)
    other.job(work)
    with one:
        run = one.run_now("work")
        assert begun.wait(SOON)
        with other:
            session = one.store.session("test", 5.0)
            assert session.declare(one.health().node, None, "the test says so")
            assert told.wait(SOON)
            assert ended(other, run).attempt == 2
    assert labels == [1, 2]
    assert other.find_run(run.id).node == other.label


def test_a_function_that_a_node_lacks_is_left_to_those_who_have_it():
    world, seen = f"memory://engine{next(_numbers)}", []
    knows, lacks = scheduler(world), scheduler(world)

    @knows.job
    def special() -> None:
        seen.append(1)

    with knows:
        pass
    with lacks:
        run = lacks.run_now("special")
        time.sleep(0.3)
        assert lacks.find_run(run.id).state == "pending"
        with knows:
            assert ended(knows, run).node == knows.label
    assert seen == [1]


def test_queues_are_served_by_those_who_said_so():
    world = f"memory://engine{next(_numbers)}"
    reports, others = scheduler(world, queues=["reports"]), scheduler(world, queues=["default"])

    def heavy() -> None: ...

    for one in (reports, others):
        one.job(queue="reports")(heavy)
    with others, reports:
        for _ in range(5):
            assert ended(others, others.run_now("heavy")).node == reports.label


def test_a_node_without_capacity_defines_and_asks_but_runs_nothing():
    world = f"memory://engine{next(_numbers)}"
    asks, runs = scheduler(world, capacity=0), scheduler(world)

    def work() -> None: ...

    asks.job(work)
    runs.job(work)
    with asks:
        run = asks.run_now("work")
        time.sleep(0.1)
        assert asks.find_run(run.id).state == "pending"
        with runs:
            ended(asks, run)


# How it ends


def test_a_coroutine_out_of_time_is_cancelled():
    one, told = scheduler(), []

    @one.job(timeout=0.05)
    async def forever() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            told.append(1)
            raise

    with one:
        assert ended(one, one.run_now("forever"), "failed").reason.splitlines()[-1] == "timed out after 0.05 s"
    assert told == [1]


def test_a_thread_out_of_time_is_asked_keeps_its_slot_and_is_shown_as_overdue():
    one, go = scheduler(), threading.Event()

    @one.job(timeout=0.05, retries=1, backoff=(0.01, 0.01))
    def slow(run: Run) -> None:
        if run.attempt == 1:
            while not run.cancelled:
                time.sleep(0.005)
            go.wait(SOON)

    with one:
        run = one.run_now("slow")
        assert eventually(lambda: one.health().overdue) == (f"slow {run.key}",)
        assert one.find_run(run.id).state == "running"  # nobody tries again while the body goes on
        go.set()
        assert ended(one, run).failures == 1


def test_a_run_that_is_cancelled_is_told_and_ends_so_whatever_it_returns():
    one, begun, seen = scheduler(), threading.Event(), []

    @one.job(retries=3)
    def work(run: Run) -> None:
        begun.set()
        while run.wait(0.01):
            pass
        try:
            run.check()
        except AttemptCancelled as error:
            seen.append(str(error))

    with one:
        run = one.run_now("work")
        assert begun.wait(SOON)
        one.cancel(run.id, why="wrong customer", by="ops")
        assert ended(one, run, "cancelled").reason == "wrong customer (by ops)"
    assert "wrong customer" in seen[0]


def test_stopping_waits_for_what_runs_and_gives_back_what_has_not_begun():
    world = f"memory://engine{next(_numbers)}"
    one, go, begun = scheduler(world, capacity=1), threading.Event(), threading.Event()

    @one.job(overlap="allow")
    def work() -> None:
        begun.set()
        go.wait(SOON)

    one.start()
    runs = [one.run_now("work") for _ in range(3)]
    assert begun.wait(SOON)
    threading.Timer(0.2, go.set).start()
    assert one.stop(drain=SOON)
    states = sorted(one.find_run(run.id).state for run in runs)
    assert states == ["pending", "pending", "succeeded"]
    assert not any(one.find_run(run.id).attempt for run in runs if one.find_run(run.id).state == "pending")


def test_what_does_not_end_in_time_is_told_and_left_to_the_others():
    world = f"memory://engine{next(_numbers)}"
    one, other, begun = scheduler(world), scheduler(world), threading.Event()

    async def work(run: Run) -> None:
        if run.attempt == 1 and not begun.is_set():
            begun.set()
            await asyncio.sleep(60)

    one.job(work)
    other.job(work)
    with other:
        other.stop()
        one.start()
        run = one.run_now("work")
        assert begun.wait(SOON)
        assert not one.stop(drain=0.05)
        other.start()
        assert ended(other, run).node == other.label


def test_a_forked_child_runs_nothing():
    one, pids = scheduler(), []

    @one.every("50ms")
    def tick() -> None:
        pids.append(os.getpid())

    with one:
        eventually(lambda: pids)
        child = os.fork()
        if child == 0:
            try:
                started, before = one.started, len(pids)
                time.sleep(0.3)
                os._exit(0 if not started and len(pids) == before else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        before = len(pids)
        eventually(lambda: len(pids) > before)


def test_the_planner_and_the_runs_of_a_scheduler_have_one_node_whoever_retires_it_meanwhile(monkeypatch):
    """Another scheduler of this process stops and leaves later while this one starts: whoever asks from then on is given another node."""
    real = engine.DatabaseClock

    def meanwhile(*args):
        for shared in list(node._SHARED.values()):
            node.retire(shared)
        return real(*args)

    monkeypatch.setattr(engine, "DatabaseClock", meanwhile)
    one = scheduler()
    one.job(name="work")(lambda: None)
    with one:
        ended(one, one.run_now("work"))


# In a process


def test_a_body_in_a_process(tmp_path):
    from bodies import dies, fails, pid_of, sleeps

    one = scheduler()
    for body in (pid_of, fails, dies):
        one.job(process=True)(body)
    one.job(process=True, timeout=0.5)(sleeps)
    with one:
        run = ended(one, one.run_now("pid_of"))
        said = eventually(lambda: one.log(run.id))
        assert said[0] == f"pid_of {run.key} True"
        assert int(said[1]) not in {os.getpid(), 0}
        assert ended(one, one.run_now("fails"), "failed").reason.endswith("ValueError: in the child")
        assert ended(one, one.run_now("dies"), "failed").reason == "its process ended with exit code 3"
        assert ended(one, one.run_now("sleeps"), "failed").reason.splitlines()[-1] == "timed out after 0.5 s"


def test_a_row_that_makes_no_sense_to_the_planner_stops_neither_claims_nor_elections(monkeypatch, caplog):
    one = scheduler()

    def senseless(self, *_args, **_options):
        raise ValueError("no such kind of trigger")

    monkeypatch.setattr(MemoryLedger, "unplanned", senseless)

    @one.job
    def harmless() -> None: ...

    with one:
        eventually(lambda: [r for r in caplog.records if getattr(r, "action", "") == "scheduler_step_failed"])
        eventually(lambda: one.health().plans)
        ended(one, one.run_now("harmless"))


# Wrong clocks


def test_a_job_that_was_entered_while_the_clock_was_a_year_ahead_is_not_silent_for_a_year(monkeypatch):
    monkeypatch.setattr("tenure.core.database_clock.SUSPECT", 0.3)
    ahead, runs = [365 * 86400.0], []
    store = MemoryStore(MemoryURL(f"engine{next(_numbers)}"), clock=lambda: time.time() + ahead[0])
    one = scheduler(store)

    @one.every("100ms")
    def tick(run: Run) -> None:
        runs.append(run.scheduled_for.timestamp())

    with one:
        ahead[0] = 0.0
        eventually(lambda: [due for due in runs if due < time.time() + 60])
        assert one.find_job("tick").generation == 2
        far = datetime.now(UTC) + timedelta(days=1)
        assert not one.runs(since=far), "nothing is left of that year"


def test_a_job_without_a_trigger_resumes_when_its_pause_is_over():
    one = scheduler()

    @one.job
    def asked() -> None: ...

    with one:
        one.pause("asked", until="200ms")
        run = one.run_now("asked")
        assert ended(one, run).attempt == 1
        assert one.find_job("asked").state == "active"
