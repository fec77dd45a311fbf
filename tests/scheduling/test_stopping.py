"""Stopping: bodies that outlive it, last words, and threads that the system refuses or that die."""

import asyncio
import itertools
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import bodies
from harness.scratch import eventually
from tenure import Election, Run, Scheduler
from tenure.cluster.heartbeat import HeartbeatThread
from tenure.errors import StoreUnavailable
from tenure.events import RunSucceeded
from tenure.scheduling import processes
from tenure.scheduling.engine import Engine

WITHIN = 10.0
CADENCE = {"ttl": 6.0, "heartbeat_every": 0.2, "attempt_timeout": 1.0}

_numbers = itertools.count(1)


def scheduler(url: str, **options: object) -> Scheduler:
    return Scheduler(url, **{**CADENCE, "label": f"node {next(_numbers)}", **options})


def ended(one: Scheduler, number: int, state: str) -> None:
    eventually(lambda: one.find_run(number).state == state, what=f"run {number} {state}")


class Stubborn:
    """A body that does not look up, until it is let go; and who was in it."""

    def __init__(self) -> None:
        self.begun, self.release = threading.Event(), threading.Event()
        self.called: list[int] = []
        self.now = self.most = 0
        self._mutex = threading.Lock()

    def run(self, run: Run) -> None:
        with self._mutex:
            self.called.append(run.attempt)
            self.now += 1
            self.most = max(self.most, self.now)
        self.begun.set()
        try:
            self.release.wait(30)
        finally:
            with self._mutex:
                self.now -= 1


@contextmanager
def stubborn(*schedulers: Scheduler) -> Iterator[Stubborn]:
    """The same job on all of them; whatever happens, it is let go and they are stopped."""
    body = Stubborn()
    for one in schedulers:
        one.job(name="stubborn")(body.run)
        one.job(name="probe")(lambda: None)
    try:
        yield body
    finally:
        body.release.set()
        for one in schedulers:
            one.stop(WITHIN)
            one.stop(WITHIN)


# A body that outlives its stop


def test_no_other_attempt_begins_beside_a_body_that_outlives_the_stop_of_its_node(any_url):
    one, other = scheduler(any_url), scheduler(any_url)
    with stubborn(one, other) as body:
        one.start()
        run = one.run_now("stubborn")
        assert body.begun.wait(WITHIN)
        other.start()
        assert not one.stop(drain=0.05)
        assert one.health().waits_for == (f"stubborn {run.key}",)
        assert other.find_run(run.id).stopping, "other processes see it too"
        for _ in range(3):  # whatever the other node does about those that left, it has done then
            ended(other, other.run_now("probe").id, "succeeded")
        assert other.find_run(run.id).state == "running"
        body.release.set()
        ended(other, run.id, "succeeded")
        assert one.stop(WITHIN), "then the node has left"
    assert (body.called, body.most) == ([1], 1)
    assert one.health().waits_for == ()


def test_two_threads_that_stop_it_hear_the_same_and_name_each_run_once(any_url):
    one, answers = scheduler(any_url), []
    with stubborn(one) as body:
        one.start()
        run = one.run_now("stubborn")
        assert body.begun.wait(WITHIN)
        patient = threading.Thread(target=lambda: answers.append(one.stop(60)))
        patient.start()
        eventually(lambda: one._service._engine._parts.executor.stopping, what="the first stop")
        answers.append(one.stop(drain=0.05))  # does not wait for as long as the first would
        patient.join(WITHIN)
        assert answers == [False, False]
        assert one.health().waits_for == (f"stubborn {run.key}",)


def test_a_stop_that_comes_as_another_ends_does_not_say_that_the_node_has_left(any_url, monkeypatch):
    one, answers = scheduler(any_url), []
    with stubborn(one) as body:
        one.start()
        one.run_now("stubborn")
        assert body.begun.wait(WITHIN)
        stop, second = one._service.listeners.stop, threading.Thread(target=lambda: answers.append(one.stop(0.05)))

        def late(patience: float) -> None:  # its node was stopped, and the scheduler has not noted that yet
            if second.ident is None:
                second.start()
                second.join(WITHIN)
            stop(patience)

        monkeypatch.setattr(one._service.listeners, "stop", late)
        answers.append(one.stop(0.05))
        assert answers == [False, False]


@pytest.mark.parametrize("looks", [0, 1, 2, 3])
@pytest.mark.parametrize("ask", [Engine.health, Engine.poke, Engine.stop_now, lambda engine: engine.use(None)])
def test_an_engine_can_be_asked_while_another_thread_stops_it(ask, looks, monkeypatch):
    with scheduler("memory://asked") as one:
        engine, left = one._service._engine, itertools.repeat(one._service._engine._parts, looks)
        with monkeypatch.context() as patch:
            patch.setattr(engine._parts.executor, "no_loop", lambda: "is closed")
            patch.setattr(Engine, "_parts", property(lambda _: next(left, None)), raising=False)
            ask(engine)  # it was stopped after so many looks at its parts


def test_a_start_after_such_a_stop_takes_another_identity(any_url):
    one = scheduler(any_url)
    with stubborn(one) as body:
        one.start()
        before = one.health().node
        run = one.run_now("stubborn")
        assert body.begun.wait(WITHIN)
        assert not one.stop(drain=0.05)
        with one:
            health = one.health()
            assert health.ok
            assert health.node not in {"", before}
            assert health.waits_for == (f"stubborn {run.key}",)
            ended(one, one.run_now("probe").id, "succeeded")
            body.release.set()
            ended(one, run.id, "succeeded")
            eventually(lambda: not one.health().waits_for)
    assert (body.called, body.most) == ([1], 1)


def test_a_stop_after_another_start_does_not_forget_what_the_first_one_waits_for(any_url):
    one = scheduler(any_url)
    with stubborn(one) as body:
        one.start()
        one.run_now("stubborn")
        assert body.begun.wait(WITHIN)
        assert not one.stop(drain=0.05)
        one.start()
        assert not one.stop(drain=0.05), "the body of the first node has not returned"
        one.start()
        threading.Timer(0.2, body.release.set).start()
        assert one.stop(WITHIN)
    assert one.health().waits_for == ()


def test_elections_of_the_same_node_go_on_while_its_scheduler_leaves(any_url):
    one = scheduler(any_url, label="shared")
    with stubborn(one) as body, Election(any_url, "exporter", label="shared", **CADENCE) as election:
        one.start()
        term = election.wait_until_leading(WITHIN)
        assert term is not None
        assert term.node == one.health().node, "one process, one node"
        one.run_now("stubborn")
        assert body.begun.wait(WITHIN)
        assert not one.stop(drain=0.05)
        assert election.term is term
        body.release.set()
        assert one.stop(WITHIN)
        assert election.term is term, "the scheduler has left, the election has not"


def test_a_second_scheduler_on_the_node_goes_on(any_url):
    one, two = scheduler(any_url, label="shared"), scheduler(any_url, label="shared", application="two")
    with stubborn(one, two) as body:
        one.start()
        two.start()
        assert one.health().node == two.health().node
        one.run_now("stubborn")
        assert body.begun.wait(WITHIN)
        assert not one.stop(drain=0.05)
        ended(two, two.run_now("probe").id, "succeeded")
        with one:
            assert one.health().node != two.health().node
            ended(one, one.run_now("probe").id, "succeeded")
        body.release.set()
        assert one.stop(WITHIN)
        ended(two, two.run_now("probe").id, "succeeded")
    assert body.called == [1]


def test_a_coroutine_that_swallows_its_cancellation_keeps_its_node_too(any_url):
    one, called, begun, release = scheduler(any_url), [], threading.Event(), threading.Event()

    @one.job
    async def deaf(run: Run) -> None:
        called.append(run.attempt)
        begun.set()
        while not release.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    one.start()
    try:
        run = one.run_now("deaf")
        assert begun.wait(WITHIN)
        assert not one.stop(drain=0.05)
        with one:
            assert one.find_run(run.id).state == "running"
            release.set()
            ended(one, run.id, "succeeded")
    finally:
        release.set()
        assert one.stop(WITHIN)
    assert called == [1]


# Last words


def test_a_second_signal_leaves_time_for_last_words_and_the_log_says_how_long_was_waited(any_url, caplog):
    one, begun, told = scheduler(any_url), threading.Event(), threading.Event()

    @one.job
    def polite(run: Run) -> None:
        begun.set()
        while run.wait(30):
            pass
        told.set()
        threading.Event().wait(0.2)  # tidies up
        run.check()

    one.start()
    run = one.run_now("polite")
    assert begun.wait(WITHIN)
    stopping = threading.Thread(target=one.stop, args=(600,))
    stopping.start()
    eventually(lambda: one.health().plans is False)  # it drains
    assert not told.is_set()
    one._service.stop_now()
    stopping.join(WITHIN)
    assert told.is_set()
    found = one.find_run(run.id)
    assert (found.state, found.attempt, found.interruptions) == ("pending", 1, 1), "its last words were heard"
    [line] = [record.getMessage() for record in caplog.records if getattr(record, "action", "") == "not_drained"]
    assert line.startswith("1 run had not ended after ")
    assert "600" not in line
    assert "10 min" not in line


# Threads that cannot be had


@contextmanager
def refused(monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[threading.Event]:
    """The system starts no thread of this name; the event says that it was asked for one."""
    real, asked = threading.Thread.start, threading.Event()

    def start(thread: threading.Thread) -> None:
        if thread.name.startswith(name):
            asked.set()
            raise RuntimeError("can't start new thread")
        real(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        yield asked


def test_a_moment_without_the_thread_that_starts_processes_costs_no_attempt(any_url, monkeypatch):
    monkeypatch.setattr(processes, "_STARTER", [])
    one = scheduler(any_url, capacity=1)
    one.job(process=True, max_running=2, overlap="allow")(bodies.pid_of)
    with one:
        with refused(monkeypatch, "tenure starter") as asked:
            runs = [one.run_now("pid_of") for _ in range(2)]
            assert asked.wait(WITHIN)
            eventually(lambda: all(one.find_run(run.id).state == "pending" for run in runs))
        for run in runs:
            ended(one, run.id, "succeeded")
        assert {one.find_run(run.id).attempt for run in runs} == {1}
        assert one.health().ok


@pytest.mark.parametrize("what", ["worker", "loop", "timeouts"])
def test_a_moment_without_threads_costs_no_slot_and_no_attempt(what, any_url, monkeypatch, caplog):
    one, called = scheduler(any_url, capacity=2), []

    @one.job(max_running=4, overlap="allow", timeout=60 if what == "timeouts" else None)
    def plain(run: Run) -> None:
        called.append(run.attempt)

    @one.job(max_running=4, overlap="allow")
    async def coroutine(run: Run) -> None:
        called.append(run.attempt)

    job = "coroutine" if what == "loop" else "plain"
    with one:
        with refused(monkeypatch, f"tenure {what}") as asked:
            runs = [one.run_now(job) for _ in range(4)]
            assert asked.wait(WITHIN)
            eventually(lambda: all(one.find_run(run.id).state == "pending" for run in runs))
            assert called == []
        for run in runs:
            ended(one, run.id, "succeeded")
        assert one.health().ok
    assert called == [1] * 4, "what never began was not counted"
    assert "can't start new thread" in caplog.text


@pytest.mark.parametrize("what", ["callbacks", "control loop", "heartbeat", "completer"])
def test_a_start_without_threads_fails_and_can_be_tried_again(what, any_url, monkeypatch):
    one = scheduler(any_url)
    one.job(name="probe")(lambda: None)
    with refused(monkeypatch, f"tenure {what}"), pytest.raises(RuntimeError, match="can't start new thread"):
        one.start()
    assert not one.started
    with one:
        ended(one, one.run_now("probe").id, "succeeded")


# Exceptions that cannot be printed


class WithoutCause(Exception):
    @property
    def __cause__(self) -> BaseException:
        raise ValueError("no")


class WithoutNotes(Exception):
    @property
    def __notes__(self) -> list[str]:
        raise SystemExit


class WithoutText(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


@pytest.mark.parametrize("colour", ["thread", "coroutine"])
@pytest.mark.parametrize("kind", [WithoutCause, WithoutNotes, WithoutText])
def test_an_exception_that_cannot_be_printed_ends_its_run_and_costs_no_slot(kind, colour):
    one = scheduler(f"memory://stopping{next(_numbers)}", capacity=1)

    @one.job
    def thread() -> None:
        raise kind

    @one.job
    async def coroutine() -> None:
        raise kind

    with one:
        run = one.run_now(colour)
        ended(one, run.id, "failed")
        assert kind.__name__ in one.find_run(run.id).reason
        again = one.run_now(colour)
        ended(one, again.id, "failed")


def test_a_coroutine_that_asks_for_the_exit_of_the_process_does_not_end_our_loop():
    one = scheduler(f"memory://stopping{next(_numbers)}")

    @one.job
    async def leaver() -> None:
        raise SystemExit(3)

    @one.job
    async def innocent() -> None:
        await asyncio.sleep(0)

    with one:
        ended(one, one.run_now("leaver").id, "failed")
        ended(one, one.run_now("innocent").id, "succeeded")
        assert one.health().ok


# Threads of ours that die


MORTAL = """
import importlib, logging, os, sys, threading, time
from tenure import Scheduler
module, owner, method = sys.argv[1:]
said = threading.Event()
one = Scheduler("memory://mortal", label="mortal", heartbeat_every=0.2)
one.job(name="probe")(lambda: None)
one.start()
print(one.health().ok)
logging.basicConfig(format="%(levelname)s %(action)s %(message)s")
class Last(logging.Handler):  # after the one that prints
    def emit(self, record):
        if record.action == "thread_died":
            said.set()
logging.getLogger().addHandler(Last())
def deadly(*_):
    raise AttributeError("there is no such thing on this platform")
setattr(getattr(importlib.import_module(module), owner), method, deadly)
one.run_now("probe")
for thread in threading.enumerate():
    if thread.name.startswith("tenure callbacks"):
        thread.call(lambda: None)  # else it may sleep until the lease of the planner runs out
while (health := one.health()).ok:
    time.sleep(0.01)
print(health.dead_threads, health.problem, flush=True)
said.wait(10)
os._exit(0)  # not even what is left of it can be stopped
"""


@pytest.mark.parametrize(
    ("thread", "module", "owner", "method"),
    [
        ("control loop", "cluster.control_loop", "ControlLoop", "_wait"),
        ("heartbeat", "cluster.heartbeat", "HeartbeatThread", "_next"),
        ("completer", "scheduling.completer", "Completer", "_early"),
        ("callbacks", "cluster.callbacks", "CallbackThread", "_patience"),
    ],
)
def test_a_thread_of_ours_that_dies_is_named_by_health_and_once_in_the_log(thread, module, owner, method):
    name = f"tenure {thread} mortal"
    words = [sys.executable, "-c", MORTAL, f"tenure.{module}", owner, method]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.splitlines() == [
        "True",
        f"('{name}',) a thread of tenure died: {name}. Restart this process.",
    ], done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("ERROR thread_died")]
    assert len(said) == 1, done.stderr
    assert name in said[0]


def deadly(*_: object) -> float:
    raise AttributeError("there is no such thing on this platform")


def test_a_heartbeat_that_dies_at_once_fails_the_start(monkeypatch):
    monkeypatch.setattr(HeartbeatThread, "_next", deadly)
    monkeypatch.setattr(HeartbeatThread, "_turn", lambda _: None)
    one = scheduler(f"memory://stopping{next(_numbers)}")
    with pytest.raises(StoreUnavailable, match="AttributeError"):
        one.start()
    assert not one.started


def test_a_listener_that_asks_for_the_exit_of_the_process_ends_nothing_but_itself():
    one, heard = scheduler(f"memory://stopping{next(_numbers)}"), []
    one.job(name="probe")(lambda: None)

    @one.on(RunSucceeded)
    def leaver(event: object) -> None:
        heard.append(event)
        raise SystemExit

    with one:
        for _ in range(2):
            ended(one, one.run_now("probe").id, "succeeded")
        eventually(lambda: len(heard) == 2)
        assert one.health().ok
