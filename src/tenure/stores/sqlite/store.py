"""SQLite: one file on one host, with the heartbeat beside it (G1, G2).

SQLite has one writer at a time, and that may be the application for longer than a ttl. So an idle cluster writes
nothing to the database: a node's pulse is a counter in its lock file, in `<database>-tenure/`, and in WAL mode a node
reads its own row without a lock. Nodes write only when something changes hands: joins, grants, releases, deaths. They
wake each other through named pipes in the same folder.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tenure.core.cluster import (
    Acquire,
    Acquired,
    AcquireOutcome,
    Beat,
    BeatAnswer,
    BeatVerdict,
    ElectionRow,
    Epoch,
    HostCard,
    Identity,
    Leader,
    NodeCard,
    NodeId,
    NodeRecord,
    Peer,
    Pulse,
    TermRecord,
)
from tenure.core.messages import Action
from tenure.errors import ConfigurationError, DataRefused, SchemaOutdated, StoreError, StoreUnavailable
from tenure.stores import host_lock, statements
from tenure.stores.base import Session, Store
from tenure.stores.notices import Notice, PeersChanged, Released, ResignRequested, decode, encode
from tenure.stores.row_checks import EARLIEST, HIGHEST_TERM, clamped, host_card, ttl_of
from tenure.stores.sqlite import changes as sqlite_changes
from tenure.stores.sqlite import file as sqlite_file
from tenure.stores.sqlite import filesystem
from tenure.stores.sqlite.fork_gate import gate, inherited
from tenure.stores.sqlite.ledger import SqliteLedger
from tenure.stores.sqlite.part import SqliteScope
from tenure.stores.sqlite.wakeup_pipe import WakeupPipe
from tenure.util.clock import boottime, sleep, walltime
from tenure.util.printable import printable
from tenure.util.randomness import between
from tenure.util.urls import SqliteURL

OLDEST_SQLITE = (3, 35, 0)
DAY = 86400
WEEK = 7 * DAY


class SqliteStore(Store):
    """A SQLite file."""

    def __init__(self, url: SqliteURL, *, migrate: bool = True) -> None:
        self.path = Path(os.path.abspath(url.path))  # noqa: PTH100 - resolve() would follow the user's symbolic links
        self._migrate = migrate
        self.statements = statements.load(statements.SQLITE, "elections", "guards", "schema")

    def __repr__(self) -> str:
        return f"SqliteStore({self.shown!r})"

    @property
    def shown(self) -> str:
        return f"sqlite:///{self.path}"

    @property
    def key(self) -> object:
        return (self.path, self._migrate)

    @property
    def evidence_directory(self) -> Path:
        return self.path.with_name(self.path.name + "-tenure")

    @property
    def pulse_in_file(self) -> bool:
        return True

    def prepare(self) -> None:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise ConfigurationError(
                f"SQLite {sqlite3.sqlite_version} is too old. "
                f"tenure needs {'.'.join(map(str, OLDEST_SQLITE))} or newer."
            )
        if not self.path.parent.is_dir():
            raise ConfigurationError(
                f"{self.shown}: the folder {self.path.parent} does not exist. Create it, or write another path."
            )
        if found := filesystem.shared(self.path.parent):
            raise ConfigurationError(
                f"{self.shown}: lies on {found}, which other machines may write too. SQLite is for one host: "
                "use a local disk, or PostgreSQL."
            )
        if not self._migrate and not self.path.exists():  # opening would create it
            raise SchemaOutdated(
                f"{self.shown}: there is no such file. Write another path, or run `tenure migrate` to create it."
            )
        self._refuse_inherited()
        deadline = boottime() + 5.0
        while True:
            try:
                with gate.statement(), closing(self.open(timeout=5.0)) as connection:
                    self._set_up(connection)
                break
            except sqlite3.DatabaseError as error:
                # Processes that start together meet where SQLite does not wait: at the switch to write-ahead logging.
                if not sqlite_file.is_busy(error) or boottime() >= deadline:
                    raise _explained(self, error) from error
                sleep(between(0.005, 0.02))
        self._make_directory()

    def _set_up(self, connection: sqlite3.Connection) -> None:
        if not self._migrate:
            sqlite_file.check(self, connection)  # refuse before anything is changed
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise ConfigurationError(
                f"{self.shown}: cannot switch to write-ahead logging (journal mode is {mode!r}), which tenure needs."
            )
        sqlite_file.migrate(self, connection)

    def session(self, purpose: str, timeout: float) -> SqliteSession:
        del purpose
        try:
            self._refuse_inherited()
            return SqliteSession(self, timeout)
        except OSError as error:
            raise StoreUnavailable(f"{self.shown}: the file is gone ({error.strerror}).") from error

    def migration(self, since: int = 0) -> str:
        return sqlite_file.script(since)

    def open(self, timeout: float) -> sqlite3.Connection:
        """A connection, for use inside `gate.statement()` only."""
        connection = sqlite3.connect(
            self.path, timeout=min(timeout, 0.05), isolation_level=None, check_same_thread=False
        )
        connection.execute(
            "PRAGMA synchronous = FULL"
        )  # NORMAL may forget the last commits, and with them a fencing token
        return connection

    def _refuse_inherited(self) -> None:
        if self.path.exists() and inherited(self.path):
            raise ConfigurationErrorInStore(
                f"{self.shown}: this process was forked while its parent had the file open, and SQLite's locks do not "
                "work across a fork. Close all connections before forking (SQLAlchemy: engine.dispose()), or start "
                "workers by spawn."
            )

    def _make_directory(self) -> None:
        directory = self.evidence_directory
        if why := host_lock.make_beside(directory, self.path.stat()):
            raise ConfigurationError(
                f"{self.shown}: the folder {directory} {why}. Nodes prove each other's deaths by files in it, so its "
                "owner could stop them. Remove it, or put the database into a folder that other users may not write."
            )


class SqliteSession(Session):
    """One connection to the file."""

    def __init__(self, store: SqliteStore, timeout: float) -> None:
        self._store = store
        self._opened: sqlite3.Connection | None = None
        self._timeout = timeout
        self._directory = store.evidence_directory
        self._inode = store.path.stat().st_ino
        self._lock: host_lock.LockFile | None = None
        self._bell: WakeupPipe | None = None
        self._known: dict[NodeId, HostCard | None] = {}
        self._ledger: SqliteLedger | None = None
        gate.members.add(self)

    def close(self) -> None:
        if self._bell:
            self._bell.remove()
        with gate.statement():
            self.suspend()

    def suspend(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            with suppress(sqlite3.Error):
                opened.close()

    def abandon(self) -> None:
        if self._bell:
            self._bell.let_go()

    def keep(self, seconds: float) -> bool:
        """Always True: an open file disturbs no other process, so it need not end by itself."""
        del seconds
        return True

    def fresh(self, idle: float) -> bool:
        del idle
        try:
            self._same_file()
        except StoreUnavailable:
            return False
        return True

    @property
    def ledger(self) -> SqliteLedger:
        if self._ledger is None:
            self._ledger = SqliteLedger(
                SqliteScope(lambda: self._connection, self._read, self._write, self._ring, self._silent)
            )
        return self._ledger

    def use_lock_file(self, lock: host_lock.LockFile) -> None:
        self._lock = lock

    def listen(self, node: NodeId) -> None:
        if self._bell:
            self._bell.remove()
        self._bell = WakeupPipe(self._directory, node)

    def fileno(self) -> int | None:
        return self._bell.fileno() if self._bell else None

    def notices(self) -> list[Notice]:
        return [decode(text) for text in self._bell.heard()] if self._bell else []

    def join(self, card: NodeCard) -> None:
        host = json.dumps(asdict(card.host)) if card.host else None
        with self._write():
            self._run("join", id=card.id, ttl=card.ttl, label=card.label, host=host, now=_now())

    def beat(self, beat: Beat) -> BeatAnswer:
        with self._read():
            row = self._run("own_row", id=beat.node).fetchone()
            peers = self._run("peers", id=beat.node).fetchall()
            elections = self._run("rows", id=beat.node, names=json.dumps(beat.names)).fetchall()
        verdict = self._pulse(beat, row)
        if verdict is not BeatVerdict.RENEWED:
            return BeatAnswer(verdict)
        return BeatAnswer(
            verdict,
            was_seq=beat.number - 1,
            peers=tuple(self._peer(*peer) for peer in peers if isinstance(peer[0], str)),
            elections=tuple(
                ElectionRow(n, t, h, bool(held), bool(asked), bool(alive), seq or 0)
                for n, t, h, held, asked, alive, seq in elections
                if _is_term(t)
            ),
            time=walltime().timestamp(),
        )

    def leave(self, node: NodeId, why: str) -> None:
        with self._write():
            self._run("leave", id=node, why=why, now=_now())
            held = self._run("held_by", id=node).fetchall()
            for name, term in held:
                self._release(node, name, term, why)
        for name, _ in held:
            self._ring(Released(name))

    def declare(self, dead: NodeId, pulse: Pulse | None, why: str) -> bool:
        with self._write():
            if not self._settled():
                return False
            seq = None
            if pulse is not None and pulse[0] == "row":
                seq = pulse[1]
            elif pulse is not None and self._file_pulse(dead, self._card(dead)) != pulse[1]:
                return False
            last_seen = host_lock.last_pulse_at(self._directory, dead)
            done = self._run("declare", id=dead, seq=seq, why=why, now=_now(), last_seen=last_seen).rowcount == 1
        if done:
            self._ring(PeersChanged())
        return done

    def cards(self, ids: Iterable[NodeId]) -> list[NodeCard]:
        with self._read():
            rows = self._run("cards", ids=json.dumps(list(ids))).fetchall()
        return [NodeCard(node, printable(label), ttl_of(ttl), host_card(host)) for node, label, ttl, host in rows]

    def acquire(self, request: Acquire) -> Acquired:
        if request.mode != "lease":
            raise ConfigurationError(
                "mode: 'advisory' needs PostgreSQL's advisory locks. On SQLite use the default mode."
            )
        with self._read():  # no write lock if the term is plainly held
            row = self._run("election", name=request.name).fetchone()
            if row and row[2] == "held" and row[3] == "alive":
                return Acquired(AcquireOutcome.HELD, holder=row[1])
        with self._write():
            return self._grant(request)

    def release(self, node: NodeId, name: str, term: int, why: str) -> bool:
        with self._write():
            done = self._release(node, name, term, why)
        if done:
            self._ring(Released(name))
        return done

    def ask(self, name: str, application: str = "", action: Action | None = None) -> int | None:
        with self._write():
            row = self._run("ask", name=name).fetchone()
            if row:
                sqlite_changes.note_action(self._connection, application, name, action, now=round(_now() * 1_000_000))
        if row:
            self._ring(ResignRequested(name))
        return int(row[0]) if row else None

    def leader(self, name: str) -> Leader | None:
        return next(iter(self._leaders(name)), None)

    def elections(self) -> list[Leader]:
        return self._leaders(None)

    def terms(self, name: str | None, limit: int) -> list[TermRecord]:
        with self._read():
            if name is None:
                rows = self._run("terms", limit=limit).fetchall()
            else:
                rows = self._run("terms_of", name=name, limit=limit).fetchall()
        return [_record(row) for row in rows]

    def recent_terms(self, after: str, elections: int, each: int) -> list[TermRecord]:
        with self._read():
            rows = self._run("recent_terms", after=after, elections=elections, each=each).fetchall()
        return [_record(row) for row in rows]

    def node_records(self, ended: int) -> list[NodeRecord]:
        with self._read():
            rows = self._run("node_records", ended=ended).fetchall()
        records = [
            NodeRecord(
                node,
                printable(label),
                state,
                ttl_of(ttl),
                _time(joined),
                _time_or_none(host_lock.last_pulse_at(self._directory, node) if state == "alive" else seen),
                _time_or_none(ended_at),
                printable(why),
            )
            for node, label, state, ttl, joined, seen, ended_at, why in rows
        ]
        alive = sorted((one for one in records if one.state == "alive"), key=lambda one: (one.label, one.id))
        return [*alive, *(one for one in records if one.state != "alive")]

    def epoch(self) -> Epoch:
        with self._read():
            return self._epoch()

    def unsettle(self, epoch: Epoch) -> None:
        with self._write():
            self._run("unsettle", number=epoch.number)

    def raise_epoch(self, noticed: Epoch) -> bool:
        with self._write():
            if self._epoch() != noticed:
                return False
            return (
                self._run(
                    "raise_epoch", number=noticed.number, now=int(_now()), **sqlite_file.identity(self._store.path)
                ).rowcount
                == 1
            )

    def sweep(self) -> None:
        with self._write():
            self._run("sweep", before=_now() - WEEK)
            self._run("sweep_facts")
            self._run("sweep_functions")
            self._run("sweep_guards", before=round((_now() - DAY) * 1_000_000))

    def _pulse(self, beat: Beat, row: tuple[Any, ...] | None) -> BeatVerdict:
        if row is None or row[0] != "alive":
            return BeatVerdict.GONE
        asked = bool(row[2])
        if self._lock is not None and not asked:
            self._lock.pulse(beat.number)
            # Only now: a node that froze between the check and the pulse must not find itself alive.
            if self._lock.intact() and boottime() < beat.deadline:
                return BeatVerdict.RENEWED
        with self._write():
            if self._run("beat", id=beat.node, number=beat.number).rowcount == 1:
                if self._lock is not None:
                    self._lock.pulse(beat.number)
                return BeatVerdict.RENEWED
            row = self._run("own_row", id=beat.node).fetchone()
        return BeatVerdict.LATE if row and row[0] == "alive" else BeatVerdict.GONE

    def _peer(self, node: NodeId, seq: int, asked: int, ttl: float, host: str | None) -> Peer:
        ttl = ttl_of(ttl)
        if asked:
            return Peer(node, ("row", seq), ttl)
        if node not in self._known:
            self._known[node] = host_card(host)
        count = self._file_pulse(node, self._known[node])
        if count is None:
            with (
                suppress(StoreUnavailable),
                self._write(patience=0.0),
            ):  # unobservable is not silent: request a beat in the database
                self._run("ask_node", id=node)
            return Peer(node, None, ttl)
        return Peer(node, ("file", count), ttl)

    def _file_pulse(self, node: NodeId, card: HostCard | None) -> int | None:
        return host_lock.read_pulse(self._directory, node, card) if card else None

    def _card(self, node: NodeId) -> HostCard | None:
        row = self._run("cards", ids=json.dumps([node])).fetchone()
        return host_card(row[3]) if row else None

    def _grant(self, request: Acquire) -> Acquired:
        me = self._run("candidate", id=request.node).fetchone()
        if me is None:
            return Acquired(AcquireOutcome.GONE)
        if not self._settled():
            return Acquired(AcquireOutcome.MOVED)
        self._run("create", name=request.name)
        term, holder, state, holder_state, ended_by, last_seen, released_at = self._run(
            "election", name=request.name
        ).fetchone()
        since = last_seen
        if holder is None:
            why = "first"
        elif state == "released":
            why, since = "released", released_at
        elif holder_state != "alive":
            why = f"{holder_state}: {ended_by}" if holder_state else "dead: its row is gone"
        else:
            return Acquired(AcquireOutcome.HELD, holder=holder)
        epoch, now = self._epoch().number, _now()
        if not (_is_term(term) and _is_term(epoch) and epoch << 20 < HIGHEST_TERM):
            return Acquired(AcquireOutcome.HELD, detail="no higher term")
        granted = max(term + 1, epoch << 20)
        self._run("grant", name=request.name, term=granted, id=request.node, now=now, why=why)
        self._run("end_term", name=request.name, term=term, now=now, why=why)
        gap = None if since is None else max(now - since, 0.0)
        self._run(
            "begin_term", name=request.name, term=granted, id=request.node, label=me[0], now=now, why=why, gap=gap
        )
        self._run("forget_terms", name=request.name)
        return Acquired(AcquireOutcome.GRANTED, granted, request.node, why)

    def _release(self, node: NodeId, name: str, term: int, why: str) -> bool:
        if self._run("release", id=node, name=name, term=term).rowcount == 0:
            return False
        self._run("end_term", name=name, term=term, why=why, now=_now())
        return True

    def _settled(self) -> bool:
        settled = self._epoch().settled
        if settled:
            here = sqlite_file.identity(self._store.path)
            self._run("restamp", boot_id=here["boot_id"], device=here["device"])
        return settled

    def _epoch(self) -> Epoch:
        number, max_ttl, boot, device, inode = self._run("epoch").fetchone()
        here = sqlite_file.identity(self._store.path)
        if boot != here["boot_id"] and inode == here["inode"]:
            device = here["device"]  # devices are numbered anew at each boot, and no node of the last boot is alive
        return Epoch(number, max_ttl, _identity(device, inode), _identity(here["device"], here["inode"]))

    def _leaders(self, name: str | None) -> list[Leader]:
        with self._read():
            rows = self._run("leaders", name=name).fetchall()
        return [
            Leader(e, term, holder, label, _time(since), bool(alive) and self._healthy(holder, host_card(host)))
            for e, term, holder, label, since, alive, host in rows
        ]

    def _silent(self, nodes: Iterable[NodeId]) -> set[NodeId]:
        return {card.id for card in self.cards(nodes) if not self._healthy(card.id, card.host)}

    def _healthy(self, node: NodeId, card: HostCard | None) -> bool:
        if card is None or host_lock.probe(self._directory, node, card) is host_lock.Proof.DEAD:
            return card is None
        ttl = next((known.ttl for known in self.cards([node])), 0.0)
        last = host_lock.last_pulse_at(self._directory, node)
        return last is None or _now() - last < ttl

    def _ring(self, notice: Notice) -> None:
        with suppress(StoreUnavailable):  # a notice only saves a wait
            with self._read():
                nodes = [node for (node,) in self._run("alive")]
            for node in nodes:
                WakeupPipe.ring(self._directory, node, encode(notice))

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._opened is None:
            self._opened = self._store.open(self._timeout)
            self._same_file()
        return self._opened

    def _run(self, name: str, /, **values: object) -> sqlite3.Cursor:
        return self._connection.execute(self._store.statements[name], values)

    @contextmanager
    def _read(self) -> Iterator[None]:
        """One snapshot, held as briefly as possible."""
        self._same_file()
        try:
            with gate.statement():
                self._connection.execute("BEGIN")
                try:
                    yield
                finally:
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
        except sqlite3.DatabaseError as error:
            raise _explained(self._store, error) from error

    @contextmanager
    def _write(self, patience: float | None = None) -> Iterator[None]:
        self._same_file()
        deadline = boottime() + (self._timeout if patience is None else patience)
        try:
            with gate.statement(), sqlite_file.writing(self._connection, deadline):
                yield
        except sqlite3.DatabaseError as error:
            raise _explained(self._store, error) from error

    def _same_file(self) -> None:
        """Raise if the file was replaced: the old one still answers, but only to this process."""
        try:
            inode = self._store.path.stat().st_ino
        except OSError as error:
            raise StoreUnavailable(f"{self._store.shown}: the file is gone ({error.strerror}).") from error
        if inode != self._inode:
            raise StoreUnavailable(f"{self._store.shown}: another file was put in its place.")


def _explained(store: SqliteStore, error: sqlite3.Error) -> StoreError:
    if re.search(r"no such (table: (main\.)?tenure|column)|has no column", str(error)):
        return SchemaOutdated(
            f"{store.shown}: tenure's tables are missing or of another release ({error}). Run `tenure migrate`; "
            "if they are newer than this library, upgrade tenure here."
        )
    if sqlite_file.is_busy(error):
        return StoreUnavailable(f"{store.shown}: another transaction is writing ({error}).")
    if isinstance(error, sqlite3.DataError):
        return DataRefused(f"{store.shown}: {error}")
    if getattr(error, "sqlite_errorname", "") == "SQLITE_NOTADB":
        return ConfigurationErrorInStore(f"{store.shown}: this file is not a SQLite database. Write another path.")
    return StoreUnavailable(f"{store.shown}: {error}")


class ConfigurationErrorInStore(StoreError, ConfigurationError):
    """The path leads to something that is not a SQLite database."""


def _identity(device: str, inode: str) -> Identity:
    return Identity(system="", timeline=0, database=device, relation=inode)


def _is_term(value: object) -> bool:
    """True for a number that was reached by counting, so that there is one above it."""
    return type(value) is int and 0 <= value < HIGHEST_TERM


def _now() -> float:
    return walltime().timestamp()


def _record(row: tuple[Any, ...]) -> TermRecord:
    election, number, node, label, began_at, began_by, ended_at, ended_by, gap = row
    paused = None if gap is None else timedelta(seconds=gap)
    return TermRecord(
        election, number, node, label, _time(began_at), began_by, _time_or_none(ended_at), ended_by, paused
    )


def _time_or_none(seconds: object) -> datetime | None:
    return None if seconds is None else _time(seconds)


def _time(seconds: object) -> datetime:
    return datetime.fromtimestamp(clamped(seconds) if isinstance(seconds, int | float) else EARLIEST, UTC)
