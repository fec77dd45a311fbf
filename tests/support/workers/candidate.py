"""A candidate as a real process. It writes down what it believes, and does fenced work as rudely as it can.

    candidate.py '{"url": …, "name": …, "label": …, "log": folder, "election": {"ttl": 2}, "effects": true, "nodes": 1}'

It says on stdout what happens (`leads`, `over`, `lost`, `refused` …) and does what it is told on stdin, one JSON object
a line: `{"do": "resign"}`. Belief is sampled all the time, on a clock that no test shifts.
"""

import ctypes
import json
import logging
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from harness.belief import Recorder
from tenure import Election, Term
from tenure.errors import StoreUnavailable
from tenure.events import Lost
from tenure.util.clock import boottime

SAMPLE_EVERY = 0.002
ACT_EVERY = 0.02


def say(event: str, **facts: object) -> None:
    """One line, one write: it is never torn by another thread or process."""
    os.write(1, json.dumps({"event": event, "pid": os.getpid(), **facts}).encode() + b"\n")


class Candidate:
    """One election in one process."""

    def __init__(self, options: dict[str, Any], label: str) -> None:
        self.name: str = options["name"]
        self.label = label
        self.url: str = options["url"]
        self.effects_url: str = options.get("effects_url") or self.url
        self.log: str = options["log"]
        self.election = Election(self.url, self.name, label=label, **options.get("election", {}))
        self.election.on(Lost)(self._lost)
        self.storm = bool(options.get("storm"))
        self.acting = threading.Lock()
        self.recorder = Recorder(self.log, f"{label}.{os.getpid()}")
        self.shown: Term | None = None
        self.last: Term | None = None

    def start(self, *, effects: bool) -> None:
        self.recorder = Recorder(self.log, f"{self.label}.{os.getpid()}")
        self._start_as_a_supervisor_would()
        say("started", label=self.label, node=self.election._seat.id)
        if effects:
            threading.Thread(target=self._act, name="effects", daemon=True).start()

    def _start_as_a_supervisor_would(self) -> None:
        """Again and again: on a busy machine the first statement may take longer than the small time-outs of a test."""
        for _ in range(20):
            try:
                return self.election.start()
            except StoreUnavailable as error:
                logging.getLogger("candidate").warning("could not start: %s", error)
                time.sleep(0.1)
        return self.election.start()

    def sample(self) -> None:
        """Look whether it leads, and write it down."""
        shown, current = self.shown, self.election.term
        if shown is not None and current is not shown:
            self.recorder.sample(self.name, shown.number, lambda: self.election.term is shown)
            self.shown = None
            say("over", label=self.label, term=shown.number)
        if current is not None:
            led = self.recorder.sample(self.name, current.number, lambda: self.election.term is current)
            if led and self.shown is not current:
                self.shown = self.last = current
                say("leads", label=self.label, term=current.number, node=current.node)

    def _lost(self, lost: Lost) -> None:
        say("lost", label=self.label, term=lost.term, reason=lost.reason)

    def _act(self) -> None:
        """Fenced work that never asks whether it may: each term's work goes on until the database refuses it."""
        actor = actor_for(self.effects_url)
        term, refused = None, 0
        while True:
            current = self.election.term or term
            if current is not None and current.number > refused:
                fresh, term = current is not term, current
                began = time.monotonic()
                try:
                    with self.acting:
                        done = actor.act(term, self.recorder.node, self._resign_in_the_middle if self.storm else None)
                    if done:
                        self.recorder.record("effect", self.name, term.number, began)
                        if fresh:
                            say("acts", label=self.label, term=term.number)
                    else:
                        refused = term.number
                        say("refused", label=self.label, term=term.number)
                except (psycopg.Error, sqlite3.Error):
                    actor.close()
            time.sleep(ACT_EVERY)

    def _resign_in_the_middle(self) -> None:
        """Between the fence and the effect: nobody may be granted a term before this transaction has ended."""
        self.election.resign()
        time.sleep(random.uniform(0, 0.2))


class PostgresActor:
    """Work in one transaction: the effect, then the fence as its last statement; or the fence, something else, and the
    effect."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.connection: psycopg.Connection[Any] | None = None

    def act(self, term: Term, node: str, between: Callable[[], None] | None) -> bool:
        if self.connection is None:
            self.connection = psycopg.connect(self.url, connect_timeout=2, application_name="work")
        effect = ("INSERT INTO effects (term, node) VALUES (%s, %s)", [term.number, node])
        with self.connection.transaction():
            if between is None:
                self.connection.execute(*effect)
            try:
                self.connection.execute("SELECT tenure.fence(%s, %s, %s)", [term.election, term.number, term.node])
            except psycopg.Error as error:
                if error.sqlstate == "TN001":
                    return False  # swallowed on purpose: the transaction cannot commit any more
                raise
            if between is not None:
                between()
                self.connection.execute(*effect)
        return True

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class SqliteActor:
    """The same on SQLite, where a busy writer is waited for."""

    def __init__(self, url: str) -> None:
        self.path = url.removeprefix("sqlite:///")
        self.connection: sqlite3.Connection | None = None

    def act(self, term: Term, node: str, between: Callable[[], None] | None) -> bool:
        effect = ("INSERT INTO effects (term, node) VALUES (?, ?)", [term.number, node])
        connection = self.connection = self.connection or self._open()
        try:
            connection.execute("BEGIN")
            if between is None:
                connection.execute(*effect)
            connection.execute(
                "INSERT INTO tenure_fence (name, term, holder) VALUES (?, ?, ?)",
                [term.election, term.number, term.node],
            )
            if between is not None:
                between()
                connection.execute(*effect)
            connection.execute("COMMIT")
        except sqlite3.IntegrityError:
            return False
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        return True

    def _open(self) -> sqlite3.Connection:
        """Never create the file: a test may have hidden it for a while."""
        connection = sqlite3.connect(f"file:{self.path}?mode=rw", uri=True, timeout=0.5, isolation_level=None)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


def actor_for(url: str) -> PostgresActor | SqliteActor:
    return SqliteActor(url) if url.startswith("sqlite") else PostgresActor(url)


class Orders:
    """What a test may tell a worker to do."""

    def __init__(self, candidates: list[Candidate]) -> None:
        self.candidates = candidates
        self.first = candidates[0]
        self.done = threading.Event()

    def listen(self) -> None:
        for line in sys.stdin:
            order = json.loads(line)
            getattr(self, order.pop("do"))(**order)
        self.done.set()

    def resign(self) -> None:
        for candidate in self.candidates:
            candidate.election.resign()

    def stop(self) -> None:
        for candidate in self.candidates:
            candidate.election.stop()
        say("stopped")

    def quit(self) -> None:
        self.done.set()

    def child(self, *, pdeathsig: bool = False, act_until_parent_ends: bool = False, for_seconds: float = 30.0) -> None:
        """Start a process that does this leader's work and so inherits its lock."""
        fd, term = self.first.election.lock_fileno, self.first.election.term
        assert fd is not None
        assert term is not None
        facts = {
            "log": self.first.log,
            "node": self.first.recorder.node,
            "name": self.first.name,
            "term": term.number,
            "pdeathsig": pdeathsig,
            "watch_parent": act_until_parent_ends,
            "for": for_seconds,
        }
        working = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("hand.py"), json.dumps(facts)],
            pass_fds=[fd],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert working.stdout
        working.stdout.readline()  # it works
        say("child", child=working.pid)

    def fork(self, *, take_part: bool = False) -> None:
        """Fork as libraries do, with all threads running. The child lives on and looks whether it believes anything."""
        term = self.first.election.term
        with self.first.acting:  # a child would keep a fenced transaction open, and nobody could follow
            pid = os.fork()
        if pid:
            say("forked", child=pid)
            return
        born_leading = self.first.election.is_leader or (term is not None and term.trusted)
        say("child", parent=os.getppid(), leads=born_leading, node=self.first.election._seat.id)
        for stream, path in ((0, os.devnull), (1, os.devnull), (2, f"{self.first.log}/{os.getpid()}.stderr")):
            os.dup2(
                os.open(path, os.O_RDWR | os.O_CREAT), stream
            )  # or the test would wait for it to close the parent's
        if take_part:
            self.first.start(effects=True)
        else:
            self.first.recorder = Recorder(self.first.log, f"{self.first.label}.{os.getpid()}")
        while True:
            self.first.sample()
            if term is not None:
                self.first.recorder.sample(self.first.name, term.number, lambda: term.trusted)
            time.sleep(SAMPLE_EVERY)

    def close_lock(self) -> None:
        """As daemons do that close every descriptor they do not know."""
        fd = self.first.election.lock_fileno
        assert fd is not None
        os.close(fd)

    def hold_gil(self, *, seconds: float) -> None:
        """No other Python thread runs for so long: one call into C that keeps the interpreter's lock."""
        ctypes.PyDLL(None).usleep(int(seconds * 1e6))
        say("gil")

    def readers(self, *, threads: int = 8) -> None:
        """Many threads ask all the time until belief ends; told are the last moment at which one of them began to ask
        and heard yes."""
        election, term = self.first.election, self.first.election.term
        assert term is not None
        last: list[float] = []
        problems: list[str] = []
        ready = threading.Barrier(threads + 1)

        def read() -> None:
            ready.wait()
            heard = 0.0
            while True:
                asked = boottime()
                if not (term.trusted and election.is_leader):
                    break
                heard = asked
            last.append(heard)
            problems.extend("belief came back" for _ in range(1000) if term.trusted or election.is_leader)

        readers = [threading.Thread(target=read, daemon=True) for _ in range(threads)]
        for reader in readers:
            reader.start()
        ready.wait()
        say("reading")
        for reader in readers:
            reader.join()
        say("read", problems=problems, last=max(last), until=election._seat.trust.until, readers=len(last))


def main() -> None:
    options = json.loads(sys.argv[1])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s.%(msecs)03d %(message)s", datefmt="%H:%M:%S")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    count = options.get("nodes", 1)
    labels = [options["label"]] if count == 1 else [f"{options['label']}{n}" for n in range(count)]
    candidates = [Candidate(options, label) for label in labels]
    for candidate in candidates:
        candidate.start(effects=bool(options.get("effects", True)))
    orders = Orders(candidates)
    threading.Thread(target=orders.listen, daemon=True).start()
    while not orders.done.is_set():
        for candidate in candidates:
            candidate.sample()
        time.sleep(SAMPLE_EVERY)
    for candidate in candidates:
        candidate.election.stop(5)


if __name__ == "__main__":
    main()
