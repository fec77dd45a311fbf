"""SQLite with two sessions: its store's operations held up at their commit, and transactions of the application's."""

from __future__ import annotations

import queue
import sqlite3
import threading
from contextlib import closing
from typing import Any

from sim.agreement.model import RUN, WAITS
from sim.agreement.real import PATIENCE, TABLES, Real, RealHand
from sim.agreement.words import APPLIED, Op, perform
from tenure.core.messages import JobChange, RunRequest
from tenure.stores.ledger import Ledger
from tenure.stores.sqlite.file import identity, is_busy
from tenure.stores.sqlite.store import SqliteStore
from tenure.transactions import job_changes
from tenure.util.clock import sleep
from tenure.util.urls import SqliteURL

HELD_UP = object()
"""Instead of the answer of an operation that is about to commit."""
NAMES = {"run_log": "log", "run_progress": "progress", "job_change": "change"}


class Undone(Exception):
    """The transaction is rolled back instead."""


class Moment:
    """Where a session is: what its thread says, and what it waits for."""

    def __init__(self) -> None:
        self.said: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.armed = self.commits = False
        self.go = threading.Event()


class Held(sqlite3.Connection):
    """A connection that says when it is busy, and stops before its commit."""

    moment: Moment

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        moment = self.moment
        if sql == "COMMIT" and moment.armed:
            moment.armed = False
            moment.said.put("held up")
            moment.go.wait(PATIENCE)
            if not moment.commits:
                raise Undone
        try:
            return super().execute(sql, *args)
        except sqlite3.OperationalError as error:
            if is_busy(error):
                moment.said.put("busy")
            raise


class HeldStore(SqliteStore):
    """A store whose connections can be held up. What is not durable here need not be."""

    def __init__(self, url: SqliteURL, moment: Moment) -> None:
        super().__init__(url)
        self._moment = moment

    def open(self, timeout: float) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=min(timeout, 0.0), isolation_level=None, check_same_thread=False, factory=Held
        )
        connection.moment = self._moment
        connection.execute("PRAGMA synchronous = OFF")
        return connection


class SqliteHand(RealHand):
    """A session of the store, and a connection of the application's."""

    def __init__(self, store: HeldStore, moment: Moment) -> None:
        self.store, self.moment = store, moment
        self.raw = store.open(0.0)
        self.applied = False
        super().__init__(store.session("agreement", PATIENCE), lambda: self.raw, "")

    @property
    def ledger(self) -> Ledger:
        return Applied(self) if self.applied else self.session.ledger  # type: ignore[return-value]


class Applied:
    """What an application may ask of the ledger in its own transaction."""

    def __init__(self, hand: SqliteHand) -> None:
        self._hand = hand

    def change(self, change: JobChange) -> Any:
        return job_changes.change(self._hand.raw, self._hand.store, change)

    def request_runs(self, asked: list[RunRequest]) -> Any:
        return [job_changes.request_run(self._hand.raw, self._hand.store, one) for one in asked]


class RealSqlite(Real):
    """One file."""

    hands: list[SqliteHand]  # type: ignore[assignment]

    def __init__(self, url: SqliteURL) -> None:
        super().__init__()
        moments = [Moment(), Moment()]
        stores = [HeldStore(url, moment) for moment in moments]
        stores[0].prepare()
        self.hands = [SqliteHand(store, moment) for store, moment in zip(stores, moments, strict=True)]

    def close(self) -> None:
        super().close()
        for hand in self.hands:
            hand.raw.close()

    def select(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(self.hands[0].raw.execute(statement)) as cursor:
            return cursor.fetchall()

    def step(self, who: int, op: Op) -> Any:
        """Send a statement: its answer, WAITS, or HELD_UP."""
        hand = self.hands[who]
        hand.moment.go.clear()
        hand.applied = op.name in APPLIED
        hand.moment.armed = not hand.applied
        self._send(who, lambda: self._said(hand, op))
        future = self._under_way[who]
        assert future is not None
        future.add_done_callback(lambda _: hand.moment.said.put("done"))
        return self._next(who, waits=self.writes(1 - who))

    def again(self, who: int) -> Any:
        """The answer to what waited, or HELD_UP."""
        return self._next(who, waits=False)

    def writes(self, who: int) -> bool:
        """Whether it has the file to itself."""
        return self.hands[who].raw.in_transaction or self._under_way[who] is not None

    def end(self, who: int, *, commit: bool) -> Any:
        """Commit or roll back; the answer of an operation that was held up."""
        hand = self.hands[who]
        if self._under_way[who] is not None:
            hand.moment.commits = commit
            hand.moment.go.set()
            try:
                return self._taken(who)
            except Undone:
                return HELD_UP
            finally:
                while hand.moment.said.get() != "done":
                    pass
        if hand.raw.in_transaction:
            hand.raw.execute("COMMIT" if commit else "ROLLBACK")
        return None

    def _next(self, who: int, *, waits: bool) -> Any:
        while True:
            match self.hands[who].moment.said.get(timeout=PATIENCE):
                case "busy" if waits:
                    return WAITS
                case "held up":
                    return HELD_UP
                case "done":
                    self.hands[who].moment.armed = False
                    return self._taken(who)

    def _said(self, hand: SqliteHand, op: Op) -> Any:
        while hand.applied and not hand.raw.in_transaction:
            try:
                hand.raw.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
                sleep(0.002)
        return perform(op, hand)

    def _clear(self) -> None:
        raw, store = self.hands[0].raw, self.hands[0].store
        for hand in self.hands:
            hand.applied = hand.moment.armed = False
        for table in (*TABLES, "epoch"):
            raw.execute(f"DELETE FROM tenure_{NAMES.get(table, table)}")  # noqa: S608 - our own names
        raw.execute(store.statements["begin_epoch"], identity(store.path))

    def look(self) -> None:
        """What a case finds when it begins. Nodes have no lock files here: they are to beat in the database."""
        self.hands[0].raw.execute("UPDATE tenure_node SET asked = 1")
        self._look("SELECT id, name FROM tenure_job", "SELECT id, job, key FROM tenure_run")

    def shown(self) -> dict[str, Any]:
        """All rows that are committed."""
        self.hands[0].applied = False
        columns = ", ".join(_COLUMNS.get(column, f"r.{column}") for column in RUN)
        runs = self.select(f"SELECT j.name, r.key, {columns} FROM tenure_run r JOIN tenure_job j ON j.id = r.job")  # noqa: S608
        elections = self.select("SELECT name, term, holder, state = 'held', asked_term IS term FROM tenure_election")
        return self._shown(
            node=[(*row, False) for row in self.select("SELECT id, state, seq FROM tenure_node")],
            election=[(*row, bool(held), bool(asked), False) for *row, held, asked in elections],
            run=runs,
            log=self.select(
                "SELECT j.name, r.key, l.line FROM tenure_log l JOIN tenure_run r ON r.id = l.run JOIN tenure_job j ON j.id = r.job"
            ),
            progress=self.select(
                "SELECT j.name, r.key, p.attempt, p.done FROM tenure_progress p JOIN tenure_run r ON r.id = p.run "
                "JOIN tenure_job j ON j.id = r.job"
            ),
            ids=self.select("SELECT r.id, j.name, r.key FROM tenure_run r JOIN tenure_job j ON j.id = r.job"),
            guard=self.select("SELECT key, at / 1e6, by, until / 1e6 FROM tenure_guard"),
        )


_COLUMNS = {
    **{name: f"r.{name} / 1e6" for name in RUN if name.endswith(("_at", "_for", "_since")) or name == "until"},
    "looks": "coalesce(r.looks, 0)",
    "pool": "coalesce(r.pool, '')",
    "last_look": "coalesce(r.last_look, 0)",
    "token": "coalesce(r.token, '')",
}
