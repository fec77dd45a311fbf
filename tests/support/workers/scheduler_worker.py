"""A scheduler as a real process. It writes down when bodies begin and end, and dies where it is told to.

scheduler_worker.py '{"url": …, "label": …, "log": file, "scheduler": {"ttl": 2}, "jobs": [{"name": "a", "every": 2,
"body": "note"}], "constants": {"LEARN_EVERY": 2}}'

Every line of the log is one write to a file that all workers share: nothing is torn, and nothing is lost by kill -9. A
body that `writes` also leaves a row in a table of the application's own, in the transaction of its completion. What
happens is said on stdout (`started`, `plans`, `failpoint` …); what it is told comes on stdin, one JSON object a line:
`{"do": "fork"}`.

A failpoint is a method of the ledger and a side of it: 'plan:before', 'claim:after', 'finish:after'. The first call of
it that does something, while this node plans, is the last thing that the process does. TENURE_TEST_FAILPOINT sets one
from the start.
"""

import asyncio
import ctypes
import functools
import itertools
import json
import logging
import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import psycopg

from harness import constants
from tenure.alerts import CheckIn, PlannerPing, Webhook
from tenure.errors import AttemptLost, NotYet, RunError, StoreUnavailable
from tenure.run import Run
from tenure.scheduler import Scheduler, service_of
from tenure.stores.postgres.deadline import DeadlineConnection

LOOK_EVERY = 0.03
CONNECTIONS = 2
"""Of the application's own, in one process."""


def say(event: str, **facts: object) -> None:
    """One line, one write: it is never torn by another thread or process."""
    said = {"event": event, "pid": os.getpid(), "at": time.monotonic(), **facts}
    os.write(1, json.dumps(said).encode() + b"\n")


def die(**facts: object) -> None:
    """As if the machine had lost its power."""
    say("dies", **facts)
    os.kill(os.getpid(), signal.SIGKILL)


class Log:
    """What the bodies of all workers did, in one file."""

    def __init__(self, path: str, label: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._label = label

    def write(self, what: str, run: Run) -> None:
        line = {
            "what": what,
            "job": run.job,
            "key": run.key,
            "attempt": run.attempt,
            "due": run.scheduled_for.timestamp(),
            "at": time.monotonic(),
            "pid": os.getpid(),
            "label": self._label,
        }
        os.write(self._file, json.dumps(line).encode() + b"\n")


class Table:
    """The application's own table, where nothing is unique: what was done twice stands there twice.

    A few connections of the process are used again and again, as an application does.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._idle: list[Any] = []
        self._places = threading.Semaphore(CONNECTIONS)

    def write(self, run: Run) -> None:
        """The effect and the completion, in one transaction; again if the database was away, until it is committed or
        refused."""
        while True:
            try:
                return self._attempt(run)
            except (sqlite3.Error, psycopg.Error, StoreUnavailable) as error:
                logging.getLogger("worker").info("%s: %s; again", run.key, error)
                time.sleep(0.1)

    def _attempt(self, run: Run) -> None:
        with self._places:
            connection = self._idle.pop() if self._idle else _connect(self._url)
            try:
                connection.execute("BEGIN")
                insert(connection, self._url, run)
                run.complete(connection)
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error, psycopg.Error):
                    connection.close()
                raise
            self._idle.append(connection)


class Bodies:
    """What jobs do. Each is made for one job, from the words of its definition."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.url: str = options["url"]
        self.log = Log(options["log"], options["label"])
        self.table = Table(self.url)
        self.go = threading.Event()

    def make(self, job: dict[str, Any]) -> Callable[..., object]:
        make: Callable[[dict[str, Any]], Callable[..., object]] = getattr(self, job["body"])
        return make(job)

    def note(self, job: dict[str, Any]) -> Callable[[Run], None]:
        """Works for a while."""

        def note(run: Run) -> None:
            self.log.write("start", run)
            time.sleep(job.get("for", 0.0))
            self.log.write("end", run)

        return note

    def halts(self, job: dict[str, Any]) -> Callable[[Run], None]:
        """Works for a while. Once `free` bodies have begun in this process, each one waits until it is told to go on."""
        begun = itertools.count(1)

        def halts(run: Run) -> None:
            self.log.write("start", run)
            if next(begun) > job["free"]:
                self.go.wait()
            time.sleep(job.get("for", 0.0))
            self.log.write("end", run)

        return halts

    def writes(self, job: dict[str, Any]) -> Callable[[Run], None]:
        """Works for a while; then its effect and its completion are one transaction."""

        def writes(run: Run) -> None:
            self.log.write("start", run)
            time.sleep(job.get("for", 0.0))
            try:
                self.table.write(run)
            except AttemptLost:
                self.log.write("refused", run)
                raise
            self.log.write("end", run)

        return writes

    def wavers(self, _job: dict[str, Any]) -> Callable[[Run], None]:
        """Fails at first for one due time in three, and completes its run in a transaction of its own."""

        def wavers(run: Run) -> None:
            self.log.write("start", run)
            if run.attempt == 1 and round(run.scheduled_for.timestamp()) % 3 == 0:
                raise ValueError("not this time")
            with suppress(AttemptLost):
                self.table.write(run)
            self.log.write("end", run)

        return wavers

    def awaits(self, job: dict[str, Any]) -> Callable[[Run], None]:
        """Needs something that is there `for` seconds after the due time."""

        def awaits(run: Run) -> None:
            self.log.write("start", run)
            if time.time() < run.scheduled_for.timestamp() + job["for"]:
                self.log.write("not yet", run)
                raise NotYet(job["again"], "the file is not there")
            self.log.write("end", run)

        return awaits

    def fails(self, job: dict[str, Any]) -> Callable[[Run], None]:
        """Works for a while and fails, until it is told to go on."""

        def fails(run: Run) -> None:
            self.log.write("start", run)
            time.sleep(job.get("for", 0.0))
            if not self.go.is_set():
                raise ValueError("not yet")
            self.log.write("end", run)

        return fails

    def obliging(self, job: dict[str, Any]) -> Callable[[Run], None]:
        """Works for a while, unless it is asked to end."""

        def obliging(run: Run) -> None:
            self.log.write("start", run)
            if not run.wait(job["for"]):
                self.log.write("told", run)
                run.check()
            self.log.write("end", run)

        return obliging

    def coroutine(self, job: dict[str, Any]) -> Callable[..., object]:
        """Works for a while, on the loop."""

        async def coroutine(run: Run) -> None:
            self.log.write("start", run)
            await asyncio.sleep(job.get("for", 0.0))
            self.log.write("end", run)

        return coroutine

    def blocks(self, job: dict[str, Any]) -> Callable[..., object]:
        """A coroutine that does not let the loop go on, for `hold` seconds at a time."""

        async def blocks(run: Run) -> None:
            self.log.write("start", run)
            for _ in range(round(job["for"] / job["hold"])):
                time.sleep(job["hold"])  # noqa: ASYNC251 - that is the misdeed
                await asyncio.sleep(0)
            self.log.write("end", run)

        return blocks

    def hogs(self, job: dict[str, Any]) -> Callable[[Run], None]:
        """No other Python thread runs for `hold` seconds at a time: calls into C that keep the interpreter's lock."""

        def hogs(run: Run) -> None:
            self.log.write("start", run)
            ends = time.monotonic() + job["for"]
            while time.monotonic() < ends:
                ctypes.PyDLL(None).usleep(int(job["hold"] * 1e6))
                time.sleep(job.get("pause", 0.1))
            self.log.write("end", run)

        return hogs

    def kills(self, _job: dict[str, Any]) -> Callable[[Run], None]:
        """Brings its node down."""

        def kills(run: Run) -> None:
            self.log.write("start", run)
            die(job=run.job, attempt=run.attempt)

        return kills

    def completes(self, _job: dict[str, Any]) -> Callable[..., None]:
        """Makes an effect and completes in one transaction. The first attempt dies at a moment of it, or is held until
        it is a zombie.

        Whatever the database says to a zombie is swallowed, and the transaction committed.
        """

        def completes(run: Run, moment: str = "") -> None:
            self.log.write("start", run)
            moment = moment if run.attempt == 1 else ""
            if moment == "zombie":
                self.go.wait()
            connection = _connect(self.url)
            try:
                connection.execute("BEGIN")
                insert(connection, self.url, run)
                if moment == "work":
                    die(moment=moment)
                try:
                    run.complete(connection)
                except RunError as error:
                    self.log.write("refused", run)
                    if moment != "zombie":
                        raise RuntimeError("an attempt that counts was refused") from error
                if moment == "commit":
                    die(moment=moment)
                try:
                    connection.commit()
                except (sqlite3.Error, psycopg.Error):
                    if moment != "zombie":
                        raise
                if moment == "acknowledgement":
                    die(moment=moment)
            finally:
                connection.close()
            self.log.write("end", run)

        return completes


def _connect(url: str) -> Any:
    """Gives up in time, also on a network that swallows everything."""
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        connection = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
        connection.execute(
            "PRAGMA synchronous = NORMAL"
        )  # no play takes the power away, and the disk is not what is measured
        return connection
    return DeadlineConnection.connect(url, autocommit=True, connect_timeout=5, prepare_threshold=None)


def insert(connection: Any, url: str, run: Run) -> None:
    mark = "?" if url.startswith("sqlite") else "%s"
    sql = f"INSERT INTO effects (job, due, key, attempt) VALUES ({mark}, {mark}, {mark}, {mark})"
    connection.execute(sql, (run.job, run.scheduled_for.timestamp(), run.key, run.attempt))


class Orders:
    """What a test may tell a worker to do."""

    def __init__(self, scheduler: Scheduler, bodies: Bodies) -> None:
        self._scheduler, self._bodies = scheduler, bodies

    def listen(self) -> None:
        for line in sys.stdin:
            order = json.loads(line)
            try:
                getattr(self, order.pop("do"))(**order)
            except Exception as error:
                say("trouble", error=repr(error))
                raise

    def arm(self, failpoint: str) -> None:
        """Die there."""
        method, side = failpoint.split(":")
        with service_of(self._scheduler).ledger() as ledger:
            kind = type(ledger)
        original = getattr(kind, method)

        @functools.wraps(original)
        def armed(ledger: Any, *args: Any, **more: Any) -> Any:
            if side == "before" and self._counts(args):
                die(failpoint=failpoint)
            answer = original(ledger, *args, **more)
            if side == "after" and self._counts(answer):
                die(failpoint=failpoint)
            return answer

        setattr(kind, method, armed)
        say("armed", failpoint=failpoint)

    def _counts(self, what: object) -> bool:
        """Whether something was done, by the planner."""
        done = getattr(what, "runs", getattr(what, "removed", what))
        return bool(done) and self._scheduler.health().plans

    def go(self) -> None:
        """What was held goes on."""
        self._bodies.go.set()

    def fork(self) -> None:
        """Fork as libraries do, with all threads running. The child lives on, and should do nothing."""
        pid = os.fork()
        if pid:
            say("forked", child=pid)
            return
        for stream in (0, 1, 2):  # or the test would wait for it to close the parent's
            os.dup2(os.open(os.devnull, os.O_RDWR), stream)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        while True:
            time.sleep(60)

    def watch(self) -> None:
        """Tell when this node has started, when it begins to plan or to doubt the database's clock, and when it has
        ceased to."""
        while not self._scheduler.started:
            time.sleep(LOOK_EVERY)
        say("started", label=self._scheduler.label)
        planned = doubted = False
        while True:
            health = self._scheduler.health()
            if health.plans is not planned:
                planned = health.plans
                say("plans" if planned else "rests")
            if health.clock_doubted is not doubted:
                doubted = health.clock_doubted
                say("doubts" if doubted else "believes")
            time.sleep(LOOK_EVERY)


def define(scheduler: Scheduler, bodies: Bodies, jobs: Sequence[dict[str, Any]]) -> None:
    for job in jobs:
        policy = job.get("policy", {})
        copies = job.get("copies")
        for name in [job["name"]] if copies is None else [f"{job['name']}-{number}" for number in range(copies)]:
            body = bodies.make(job)
            if "every" in job:
                scheduler.every(job["every"], name=name, **policy)(body)
            elif "after" in job:
                parent = job["after"] if copies is None else f"{job['after']}-{name.rpartition('-')[2]}"
                scheduler.after(parent, name=name, **policy)(body)
            else:
                scheduler.job(name=name, **policy)(body)


def tell(scheduler: Scheduler, alerts: dict[str, Any]) -> None:
    """`{"webhook": {"url": …}, "check_in": {"url": …, "style": …}, "ping": {"url": …}, "rules": {"failing": 2}}`"""
    kinds = {"webhook": Webhook, "check_in": CheckIn, "ping": PlannerPing}
    told = [kind(**alerts[name]) for name, kind in kinds.items() if name in alerts]
    scheduler.alert_to(*told, **alerts.get("rules", {}))


def run_as_a_supervisor_would(scheduler: Scheduler) -> None:
    """Again and again: the database may be away, or slow on a busy machine."""
    for _ in range(50):
        try:
            return scheduler.run(lines=False)
        except StoreUnavailable as error:
            logging.getLogger("worker").warning("could not start: %s", error)
            time.sleep(0.1)
    return scheduler.run(lines=False)


def main() -> None:
    options = json.loads(sys.argv[1])
    constants.give(**options.get("constants", {}))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s.%(msecs)03d %(message)s", datefmt="%H:%M:%S")
    scheduler = Scheduler(options["url"], label=options["label"], **options["scheduler"])
    bodies = Bodies(options)
    define(scheduler, bodies, options["jobs"])
    if options.get("alerts"):
        tell(scheduler, options["alerts"])
    orders = Orders(scheduler, bodies)
    if failpoint := os.environ.get("TENURE_TEST_FAILPOINT"):
        orders.arm(failpoint)
    for order in (orders.listen, orders.watch):
        threading.Thread(target=order, daemon=True).start()
    run_as_a_supervisor_would(scheduler)
    say("stopped")


if __name__ == "__main__":
    main()
