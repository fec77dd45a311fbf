"""PostgreSQL (G1, G2): nodes and elections are rows, a beat is one statement, NOTIFY wakes, advisory locks are
evidence.

With a direct connection, a session is set up once: timeouts, durable commits, prepared statements, LISTEN. Behind a
transaction pooler no session is reliable, so every statement carries its settings in its own transaction, and there is
no LISTEN, no prepared statement and no session evidence.
"""

from __future__ import annotations

import functools
import json
import os
import re
import secrets
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

import psycopg
from psycopg import errors as pg
from psycopg.pq.misc import PGnotify

from tenure.core.cluster import (
    Acquire,
    Acquired,
    AcquireOutcome,
    Advert,
    Beat,
    BeatAnswer,
    BeatVerdict,
    ElectionRow,
    Epoch,
    Identity,
    Leader,
    NodeCard,
    NodeId,
    NodeRecord,
    Peer,
    Pulse,
    TermRecord,
    Vacancy,
)
from tenure.core.messages import Action
from tenure.errors import ConfigurationError, DataRefused, StoreError, StoreUnavailable
from tenure.stores import statements
from tenure.stores.base import Checked, Session, Store
from tenure.stores.host_lock import runtime_directory
from tenure.stores.notices import Notice, decode
from tenure.stores.postgres import arrays, roles
from tenure.stores.postgres import schema as postgres_schema
from tenure.stores.postgres.deadline import DeadlineConnection
from tenure.stores.postgres.ledger import PostgresLedger
from tenure.stores.postgres.rows import written_action
from tenure.stores.postgres.schema import SEARCH_PATH
from tenure.stores.row_checks import host_card
from tenure.util.printable import printable
from tenure.util.urls import PostgresURL

CONNECT_TIMEOUT = 2
"""The smallest value that libpq accepts."""


class PostgresStore(Store):
    """A PostgreSQL database, 14 or newer."""

    def __init__(self, url: PostgresURL, *, schema: str = "tenure", migrate: bool = True) -> None:
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,40}", schema):
            raise ConfigurationError(
                f"schema: {schema!r} must be a plain lower-case name such as 'tenure' "
                "(letters, digits, '_', at most 41)."
            )
        self._url = url
        self._migrate = migrate
        self._pooled: bool | None = None
        self.schema = schema
        self.statements = statements.load(
            statements.POSTGRES, "elections", "advisory", "guards", "schema", schema=schema
        )

    def __repr__(self) -> str:
        return f"PostgresStore({self.shown!r})"

    @property
    def shown(self) -> str:
        return self._url.shown

    @property
    def key(self) -> object:
        return (self._url, self.schema, self._migrate)

    @property
    def evidence_directory(self) -> Path | None:
        return runtime_directory()

    @property
    def sessions_are_evidence(self) -> bool:
        return self._pooled is False

    @property
    def pooled(self) -> bool | None:
        """True behind a pooler; None before the first connection."""
        return self._pooled

    def prepare(self) -> None:
        try:
            with self.connect("migrate", timeout=5.0) as connection:
                self._check_server(connection)
                postgres_schema.migrate(self, connection, allowed=self._migrate)
        except psycopg.OperationalError as error:
            raise self.unavailable(error) from self.showable(error)

    def session(self, purpose: str, timeout: float) -> PostgresSession:
        try:
            connection = self.connect(purpose, timeout)
            return PostgresSession(self, connection)
        except psycopg.Error as error:
            raise self.unavailable(error) from self.showable(error)

    def explained(self, error: psycopg.Error) -> str:
        """The driver's message, without the password or any part of it."""
        return self._url.hide(explained(error))

    def unavailable(self, error: psycopg.Error) -> StoreUnavailable:
        """The error for a connection that failed or could not be made."""
        return StoreUnavailable(f"{self.shown}: {self.explained(error)}")

    def showable(self, error: psycopg.Error) -> psycopg.Error | None:
        """The error itself, if a traceback may show it."""
        return error if self.explained(error) == explained(error) else None

    def connect(self, purpose: str, timeout: float) -> DeadlineConnection:
        """Open a connection that can neither hang nor commit asynchronously."""
        try:
            connection = DeadlineConnection.connect(
                self._url.conninfo,
                autocommit=True,
                connect_timeout=CONNECT_TIMEOUT,
                application_name=f"tenure:{purpose}"[:63],
                client_encoding="UTF8",
                keepalives_idle=5,
                keepalives_interval=2,
                keepalives_count=3,
                tcp_user_timeout=int(max(timeout, 1.0) * 2000),
            )
        except psycopg.ProgrammingError as error:  # an option that libpq does not know
            raise ConfigurationError(f"store URL {self.shown}: {self.explained(error)}") from self.showable(error)
        connection.timeout = timeout
        try:
            self._set_up(connection, timeout)
        except BaseException:
            connection.close()
            raise
        return connection

    def _set_up(self, connection: DeadlineConnection, timeout: float) -> None:
        if self._pooled is None:
            # A pooler invents the backend pid that it announces; a server does not.
            (pid,) = cast("tuple[int]", connection.execute("SELECT pg_catalog.pg_backend_pid()").fetchone())
            pooled = connection.info.backend_pid != pid
            if pooled:
                self._check_pooler(connection)
            self._pooled = pooled
        if self._pooled:
            connection.prepare_threshold = None
            connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        else:
            connection.prepare_threshold = 2
            connection.execute(self._set(timeout, local=False))

    @contextmanager
    def transaction(self, connection: DeadlineConnection) -> Iterator[None]:
        """A transaction under our settings. Behind a pooler it sets them itself."""
        with connection.transaction():
            if self._pooled:
                connection.execute(self._set(connection.timeout, local=True))
            yield

    def _set(self, timeout: float, *, local: bool) -> str:
        pairs = self.settings(timeout).items()
        return "SELECT " + ", ".join(f"pg_catalog.set_config('{name}', '{value}', {local})" for name, value in pairs)

    def _check_pooler(self, connection: DeadlineConnection) -> None:
        try:
            with connection.transaction():
                pass
        except pg.ProtocolViolation as error:
            raise ConfigurationError(
                f"{self.shown}: a pooler in statement mode stands in between, and allows no transactions "
                f"({self.explained(error)}). Put it into transaction or session mode, or give tenure a URL that leads "
                "to the server itself."
            ) from self.showable(error)

    def settings(self, timeout: float) -> dict[str, str]:
        """The settings of all our transactions."""
        milliseconds = max(int(timeout * 1000), 1)
        return {
            "search_path": SEARCH_PATH,
            "statement_timeout": f"{milliseconds}ms",
            "lock_timeout": f"{max(milliseconds // 2, 1)}ms",
            "idle_in_transaction_session_timeout": "5s",
            "synchronous_commit": "on",
            "default_transaction_isolation": "read committed",
            "plan_cache_mode": "force_generic_plan",
            "max_parallel_workers_per_gather": "0",
            # We choose how values are written, whatever the role or the database has set.
            "DateStyle": "ISO, YMD",
            "IntervalStyle": "postgres",
            "TimeZone": "UTC",
            "extra_float_digits": "1",
        }

    def migration(self, since: int = 0) -> str:
        return postgres_schema.script(self.schema, since)

    def grants(self, role: str, *, effects_only: bool = False) -> str:
        return roles.grants(self.schema, role, effects_only=effects_only)

    def _check_server(self, connection: psycopg.Connection[Any]) -> None:
        if connection.info.server_version < 140000:  # noqa: PLR2004 - PostgreSQL 14
            raise ConfigurationError(
                f"{self.shown}: PostgreSQL {connection.info.server_version // 10000} is too old. "
                "tenure needs 14 or newer."
            )
        (encoding,) = cast("tuple[str]", connection.execute("SHOW server_encoding").fetchone())
        if encoding != "UTF8":
            raise ConfigurationError(
                f"{self.shown}: this database is encoded in {encoding}, which cannot store every name, error and log "
                "line. tenure needs UTF8: "
                "give it a database made with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0."
            )


class PostgresSession(Session):
    """One connection to PostgreSQL."""

    def __init__(self, store: PostgresStore, connection: DeadlineConnection) -> None:
        self._store = store
        self._connection = connection
        self._cursor = connection.cursor()  # one for all: a new one would look up every type again at every beat
        self._pooled = bool(store.pooled)
        self._listening = False
        self._heard: list[Notice] = []
        self._lock: tuple[NodeId, int, int] | None = None
        self._ledger: PostgresLedger | None = None

    def close(self) -> None:
        self._connection.timeout = 0.2
        self._connection.close()

    def abandon(self) -> None:
        if not self._connection.closed:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(
                nowhere, self._connection.fileno()
            )  # nothing that libpq sends from now on reaches the parent's server
            os.close(nowhere)

    def keep(self, seconds: float) -> bool:
        # In session mode a pooler would keep a process of the server for us.
        return not self._pooled and self._connection.rest(seconds)

    def fresh(self, idle: float) -> bool:
        return self._connection.fresh(idle)

    def listen(self, node: NodeId) -> None:
        del node  # all nodes listen to the same channel
        if self._pooled or self._listening:
            return  # a transaction pooler accepts LISTEN and delivers nothing
        try:
            # Called during a statement. Not `add_notify_handler`: any role may notify, and the driver fails on text
            # that it cannot decode.
            self._connection.pgconn.notify_handler = self._hear
            self._connection.execute(f"LISTEN {self._store.schema}")
        except psycopg.Error as error:
            raise self._store.unavailable(error) from error
        self._listening = True

    def fileno(self) -> int | None:
        return self._connection.fileno() if self._listening else None

    def notices(self) -> list[Notice]:
        if not self._listening:
            return []
        try:
            self._connection.pgconn.consume_input()
            while (notice := self._connection.pgconn.notifies()) is not None:
                self._hear(notice)
        except psycopg.Error as error:
            raise self._store.unavailable(error) from error
        heard, self._heard = self._heard, []
        return heard

    def _hear(self, notice: PGnotify) -> None:
        self._heard.append(decode(notice.extra.decode(errors="replace")))

    @property
    def ledger(self) -> PostgresLedger:
        if self._ledger is None:
            arrays.register(self._connection)
            cursor = self._connection.cursor(binary=True)
            self._ledger = PostgresLedger(self._store.schema, functools.partial(self._execute, cursor))
        return self._ledger

    def join(self, card: NodeCard) -> None:
        host = json.dumps(asdict(card.host)) if card.host else None
        self._run("join", id=card.id, ttl=card.ttl, label=card.label, host=host)

    def beat(self, beat: Beat) -> BeatAnswer:
        advert = beat.advert
        renewed = self._run(
            "beat",
            number=beat.number,
            node=beat.node,
            names=_array(beat.names),
            nonce=advert.nonce if advert else None,
            grace=advert.grace if advert else None,
        )
        if not renewed:
            return BeatAnswer(BeatVerdict.LATE if self._run("is_alive", node=beat.node) else BeatVerdict.GONE)
        time, epoch, rows, elections = renewed[0]
        alive = {words[0]: words for words in map(str.split, rows)}
        return BeatAnswer(
            BeatVerdict.RENEWED,
            was_seq=int(alive[beat.node][1]),
            peers=tuple(
                Peer(node, ("row", int(seq)), float(ttl)) for node, seq, ttl, *_ in alive.values() if node != beat.node
            ),
            elections=tuple(_election(row, alive) for row in elections or ()),
            time=time,
            epoch=epoch,
        )

    def leave(self, node: NodeId, why: str) -> None:
        self._run("leave", node=node, why=why)

    def declare(self, dead: NodeId, pulse: Pulse | None, why: str) -> bool:
        return bool(self._one("declare", dead=dead, seq=pulse[1] if pulse else None, why=why)[0])

    def cards(self, ids: Iterable[NodeId]) -> list[NodeCard]:
        return [
            NodeCard(node, printable(label), ttl, host_card(host))
            for node, label, ttl, host in self._run("cards", ids=list(ids))
        ]

    def acquire(self, request: Acquire) -> Acquired:
        return _acquired(*self._one("acquire", **_asked(request)))

    def succeed(self, dead: NodeId, why: str, request: Acquire) -> tuple[bool, Acquired]:
        declared, *answer = self._one("succeed", dead=dead, why=why, **_asked(request))
        return declared, _acquired(*answer)

    def rehearse(self) -> None:
        if self._pooled:
            return  # another server process may execute the next transaction
        leader, heir = str(uuid.uuid4()), str(uuid.uuid4())
        try:
            with self._connection.transaction(force_rollback=True):
                for node in (leader, heir):
                    self.join(NodeCard(node, "rehearsal", 1.0))
                self.acquire(Acquire(leader, f"rehearsal of {leader}"))
                self.succeed(leader, "rehearsal", Acquire(heir, f"rehearsal of {leader}"))
        except psycopg.Error as error:
            raise self._store.unavailable(error) from error

    def release(self, node: NodeId, name: str, term: int, why: str) -> bool:
        return bool(self._one("release", node=node, name=name, term=term, why=why)[0])

    def ask(self, name: str, application: str = "", action: Action | None = None) -> int | None:
        said = None if action is None else json.dumps(written_action(action))
        rows = self._run("ask", name=name, channel=self._store.schema, application=application, action=said)
        return int(rows[0][0]) if rows else None

    def leader(self, name: str) -> Leader | None:
        rows = self._run("leader", name=name)
        return _leader(rows[0]) if rows else None

    def elections(self) -> list[Leader]:
        return [_leader(row) for row in self._run("elections")]

    def terms(self, name: str | None, limit: int) -> list[TermRecord]:
        rows = self._run("terms", limit=limit) if name is None else self._run("terms_of", name=name, limit=limit)
        return [_record(row) for row in rows]

    def recent_terms(self, after: str, elections: int, each: int) -> list[TermRecord]:
        return [_record(row) for row in self._run("recent_terms", after=after, elections=elections, each=each)]

    def node_records(self, ended: int) -> list[NodeRecord]:
        return [
            NodeRecord(node, printable(label), state, ttl, joined, seen, gone, printable(why))
            for node, label, state, ttl, joined, seen, gone, why in self._run("node_records", ended=ended)
        ]

    def epoch(self) -> Epoch:
        number, max_ttl, *ids = self._one("epoch")
        return Epoch(number, max_ttl, recorded=Identity(*ids[:4]), actual=Identity(*ids[4:]))

    def unsettle(self, epoch: Epoch) -> None:
        self._run("unsettle", number=epoch.number)

    def raise_epoch(self, noticed: Epoch) -> bool:
        recorded = {f"r_{key}": value for key, value in asdict(noticed.recorded).items()}
        actual = {f"a_{key}": value for key, value in asdict(noticed.actual).items()}
        return bool(self._run("raise_epoch", number=noticed.number, **recorded, **actual))

    def sweep(self) -> None:
        self._run("sweep")
        self._run("sweep_functions")
        self._run("sweep_guards")

    def hold_session_lock(self, node: NodeId, grace: float) -> Advert | None:
        if self._pooled:
            return None
        nonce = secrets.randbits(62)
        _, pid = self._one("lock_session", node=node, nonce=nonce)
        self._lock = (node, nonce, pid)
        return Advert(nonce, grace)

    def check_session_lock(self, names: tuple[str, ...], timeout: float) -> Checked:
        if self._lock is None:
            return Checked(held=False, free={})
        node, nonce, pid = self._lock
        usual, self._connection.timeout = self._connection.timeout, timeout
        try:
            held, free = self._one("validate", node=node, nonce=nonce, pid=pid, names=_array(names))
        finally:
            self._connection.timeout = usual
        vacancies = {
            name: Vacancy(term, holder, seq, Advert(other, grace))
            for name, term, holder, seq, other, grace in free or ()
        }
        return Checked(held=bool(held), free=vacancies)

    def _one(self, name: str, /, **values: object) -> tuple[Any, ...]:
        return self._run(name, **values)[0]

    def _run(self, name: str, /, **values: object) -> list[tuple[Any, ...]]:
        return self._execute(self._cursor, self._store.statements[name], values)

    def _execute(
        self, cursor: psycopg.Cursor[tuple[Any, ...]], statement: str, values: Mapping[str, object]
    ) -> list[tuple[Any, ...]]:
        try:
            if not self._pooled:
                return _rows(cursor.execute(statement, values))
            with self._store.transaction(self._connection):
                return _rows(cursor.execute(statement, values))
        except postgres_schema.ABSENT as error:
            raise postgres_schema.unsuitable(self._store, self._connection, error) from error
        except pg.InsufficientPrivilege as error:
            raise StoreError(
                f"{self._store.shown}: {explained(error)}. Ask `tenure doctor` what this role needs."
            ) from error
        except psycopg.DataError as error:
            raise DataRefused(f"{self._store.shown}: {explained(error)}") from error
        except psycopg.Error as error:
            raise self._store.unavailable(error) from error


def explained(error: psycopg.Error) -> str:
    """The driver's message on one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if error.sqlstate is None else f"{text} [{error.sqlstate}]"


def _asked(request: Acquire) -> dict[str, object]:
    seen = request.vanished
    return {
        "node": request.node,
        "name": request.name,
        "mode": request.mode,
        "fenced": request.fenced,
        "term": seen.term if seen else None,
        "holder": seen.holder if seen else None,
        "seq": seen.seq if seen else None,
        "nonce": seen.advert.nonce if seen else None,
    }


def _acquired(outcome: str, granted: int | None, holder: object, detail: str | None) -> Acquired:
    return Acquired(AcquireOutcome(outcome), granted or 0, str(holder) if holder else None, detail or "")


@functools.lru_cache(maxsize=16)
def _array(names: tuple[str, ...]) -> str:
    """A text array in PostgreSQL's notation. The names rarely change; the driver would inspect each one at
    every beat."""
    return "{" + ",".join('"' + re.sub(r'(["\\])', r"\\\1", name) + '"' for name in names) + "}"


def _rows(cursor: psycopg.Cursor[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """All rows; none for a statement that returns nothing. (`description` would be built anew to find out.)"""
    return cursor.fetchall() if cursor.pgresult is not None and cursor.pgresult.nfields else []


def _election(row: str, alive: dict[NodeId, list[str]]) -> ElectionRow:
    term, holder, state, asked, name = row.split(" ", 4)
    row_of_holder = alive.get(holder)
    if row_of_holder is None:
        return ElectionRow(name, int(term), None if holder == "-" else holder, state == "held", asked == "t")
    _, seq, _, *session = row_of_holder
    advert = Advert(int(session[0]), float(session[1])) if len(session) == 2 else None  # noqa: PLR2004 - a pair
    return ElectionRow(name, int(term), holder, state == "held", asked == "t", True, int(seq), advert)


def _leader(row: tuple[Any, ...]) -> Leader:
    name, term, holder, label, since, healthy = row
    return Leader(name, term, holder, label, cast("datetime", since), healthy)


def _record(row: tuple[Any, ...]) -> TermRecord:
    election, number, node, label, began_at, began_by, ended_at, ended_by, gap = row
    paused = None if gap is None else timedelta(seconds=gap)
    return TermRecord(election, number, node, label, began_at, began_by, ended_at, ended_by, paused)
