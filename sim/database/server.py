"""The database server: statements that take time, locks that are waited for or skipped, sessions that die, crashes, and
failover to a replica.

A statement is a generator: it takes its locks, may be held up (`yield seconds`), and does its work in the instant in
which it commits. READ COMMITTED is modelled where it matters: what a beat shows is a snapshot from before it was held
up; a count of running runs is made under the job's lock in the instant of the commit, because that is what a later
statement under a lock amounts to.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any

from sim.database.rows import Clock, Rows
from sim.runtime.kernel import K, Process
from tenure.core.cluster import Advert, NodeId
from tenure.errors import StoreUnavailable
from tenure.stores.notices import Notice

Key = tuple[str, object]
Work = Generator["float | Key2 | None", None, Any]
Key2 = tuple[Key, str]
_CONFLICTS = {"S": "X", "U": "UX", "X": "SUX"}
"""S: FOR KEY SHARE; U: FOR NO KEY UPDATE, and any plain update; X: FOR UPDATE."""


class Statement:
    """One statement on its way through the server; or, with `keep`, a transaction that stays open after it."""

    __slots__ = ("_told", "_waits", "_work", "at_work", "keep", "locks", "op", "over", "placed", "server", "session")

    def __init__(self, session: Connection, op: str, told: Callable[[Any, Exception | None], None]) -> None:
        self.session, self.server, self.op, self._told = session, session.server, op, told
        self.locks: list[Key] = []
        self.over = self.keep = self.at_work = False
        self._waits: Key2 | None = None
        self._work: Work | None = None
        self.placed: Any = None

    def begin(self, work: Work) -> None:
        self._work = work
        self.server.open[self] = None
        self.go()

    def go(self) -> None:
        """On to the next lock that must be waited for, the next delay, or the end."""
        if self.over:
            return
        assert self._work is not None
        self._waits = None
        try:
            while True:
                want = next(self._work)
                if want is None:
                    continue
                if isinstance(want, tuple):
                    if self.skip(*want):
                        continue
                    self._waits = want
                    self.server.waiting.append(self)
                    K.after(self.session.timeout / 2, self._tired, want)
                    return
                if want > 0:
                    K.after(want, self.go)
                    return
        except StopIteration as stop:
            self._end(stop.value, None)
        except StoreUnavailable as error:
            self._end(None, error)

    def retry(self) -> bool:
        """A lock was let go: is it the one?"""
        if self.over or self._waits is None:
            return True
        if not self.skip(*self._waits):
            return False
        self._waits = None
        K.after(0.0, self.go)
        return True

    def skip(self, key: Key, mode: str) -> bool:
        """Take a lock, or pass by: SKIP LOCKED."""
        held = self.server.locks.setdefault(key, [])
        if any(other is not self and theirs in _CONFLICTS[mode] for other, theirs in held):
            return False
        held.append((self, mode))
        self.locks.append(key)
        return True

    def gap(self) -> float:
        """For how long it is held up here."""
        return self.server.gap(self)

    def _tired(self, want: Key2) -> None:
        if not self.over and self._waits is want:
            self._end(None, StoreUnavailable(f"lock timeout in {self.op}"))

    def _end(self, answer: Any, error: Exception | None) -> None:
        if self.keep and error is None:
            self.server.idle(self)
        else:
            self.finish()
        self._told(answer, error)

    def finish(self) -> None:
        """Commit or roll back: locks go."""
        if self.over:
            return
        self.over = True
        self.server.open.pop(self, None)
        for key in self.locks:
            self.server.locks[key] = [pair for pair in self.server.locks[key] if pair[0] is not self]
        if self.locks and self.server.waiting:
            self.server.waiting = [waiter for waiter in self.server.waiting if not waiter.retry()]

    def abort(self, error: Exception) -> None:
        """The server, or the session, is gone."""
        if not self.over:
            self.finish()
            if self._work is not None:
                self._work.close()
            self._told(None, error)


class Connection:
    """A session, as the server has it."""

    def __init__(self, server: Server, client: Process, purpose: str, timeout: float) -> None:
        self.server, self.client, self.purpose, self.timeout = server, client, purpose, timeout
        self.alive = True
        self.advisory: set[tuple[NodeId, int]] = set()
        self.hear: Callable[[Notice], None] | None = None

    def __deepcopy__(self, memo: object) -> Connection:
        del memo
        return self

    def end(self) -> None:
        """It is gone, with its advisory locks and what it had open."""
        self.alive = False
        self.server.sessions.pop(self, None)
        self.advisory.clear()
        for statement in [s for s in self.server.open if s.session is self]:
            statement.abort(StoreUnavailable("the server ended this session"))


class Server:
    """One primary at a time."""

    def __init__(self, max_ttl: float) -> None:
        self.clock = Clock()
        self.rows = Rows(self.clock, self.ring, max_ttl)
        self.up = True
        self.timeline = 1
        self.sessions: dict[Connection, None] = {}
        self.open: dict[Statement, None] = {}
        self.locks: dict[Key, list[tuple[Statement, str]]] = {}
        self.waiting: list[Statement] = []
        self.gap: Callable[[Statement], float] = lambda _statement: 0.0
        self.idle_limit = max_ttl
        self.checker: Any = None
        self.heard: Callable[[Connection, Notice], None] = lambda _session, _notice: None

    def ring(self, notice: Notice) -> None:
        """NOTIFY."""
        for session in self.sessions:
            if session.hear is not None:
                self.heard(session, notice)

    def lock_free(self, node: NodeId, advert: Advert) -> bool:
        """pg_try_advisory_xact_lock_shared of the lock that a row advertises."""
        return not any((node, advert.nonce) in session.advisory for session in self.sessions)

    def idle(self, statement: Statement) -> None:
        """A transaction that stays open longer than the ttl is ended, unless it is at work:
        idle_in_transaction_session_timeout."""
        K.after(self.idle_limit, lambda: None if statement.at_work else statement.finish())

    # Faults

    def stop(self) -> None:
        """Crash: what had not committed is gone, and so are all sessions."""
        self.up = False
        for session in list(self.sessions):
            session.end()

    def start(self) -> None:
        self.up = True

    def promote(self, replica: Rows) -> None:
        """A replica takes over, with the rows that it has."""
        self.stop()
        self.rows = replica
        self.timeline += 1
        self.up = True

    def kill_sessions(self, of: Iterable[Connection]) -> None:
        for session in list(of):
            session.end()
