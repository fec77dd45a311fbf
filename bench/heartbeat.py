"""What a heartbeat costs, against the bare driver on the same server and against bare reads and writes on the same
disk."""

from __future__ import annotations

import os
import sqlite3
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import psycopg
from bench import Bench
from report import Figure, Goal, Series

from cluster import boottime
from tenure.core.cluster import Acquire, AcquireOutcome, Beat, BeatVerdict, NodeCard, NodeId
from tenure.stores import Session, store_for
from tenure.stores.host_lock import LockFile
from tenure.stores.postgres.store import PostgresStore
from tenure.stores.sqlite.store import SqliteStore

NODES = 5
TIMEOUT = 2.0


class Beating:
    """A node that holds elections, with as many peers as a small cluster has; `beat()` is what its pacemaker does."""

    def __init__(self, url: str, elections: int = 1, peers: int = NODES - 1) -> None:
        self.store = store_for(url)
        self.store.prepare()
        self.session: Session = self.store.session("bench", TIMEOUT)
        self.node: NodeId = str(uuid.uuid4())
        self.lock: LockFile | None = None
        if self.store.pulse_in_file:
            assert self.store.evidence_directory
            self.lock = LockFile(self.store.evidence_directory, self.node)
            self.session.use_lock_file(self.lock)
        self.session.join(NodeCard(self.node, "bench", 10.0, self.lock.card() if self.lock else None))
        for _ in range(peers):
            self._peer()
        self.advert = self.session.hold_session_lock(self.node, 2.0) if self.store.sessions_are_evidence else None
        self.number = 0
        for number in range(elections):
            granted = self.session.acquire(Acquire(self.node, f"{self.node} {number}"))
            assert granted.outcome is AcquireOutcome.GRANTED, granted

    def beat(self) -> None:
        self.number += 1
        now = boottime()
        answer = self.session.beat(Beat(self.node, self.number, now, now + 8.0, self.advert, ()))
        assert answer.verdict is BeatVerdict.RENEWED

    def parameters(self) -> dict[str, object]:
        """What the beat's own statement is called with."""
        self.number += 1
        return {
            "node": self.node,
            "number": self.number,
            "names": "{}",
            "nonce": self.advert.nonce if self.advert else None,
            "grace": self.advert.grace if self.advert else None,
        }

    def close(self) -> None:
        self.session.leave(self.node, "left")
        self.session.close()

    def _peer(self) -> None:
        peer = str(uuid.uuid4())
        lock = LockFile(Path(self.store.evidence_directory or ""), peer) if self.lock else None
        self.session.join(NodeCard(peer, "peer", 10.0, lock.card() if lock else None))


def measure(bench: Bench) -> None:
    bench.report.topic(f"Heartbeat, {NODES} nodes and one election")
    _postgres(bench)
    _sqlite(bench)


def _postgres(bench: Bench) -> None:
    url = bench.database()
    ours = Beating(url, peers=NODES - 3)
    assert isinstance(ours.store, PostgresStore)
    connection = bare_connection(ours.store, url)
    own_row = BareRow(connection)
    same = Beating(url, peers=0)
    text, cursor = ours.store.statements["beat"], connection.cursor()
    cases: dict[str, Callable[[], object]] = {
        "ours": ours.beat,
        "bare": own_row.update,
        "same": lambda: cursor.execute(text, same.parameters()).fetchall(),
    }
    pooled_url = bench.pooled(url)
    if pooled_url is not None:
        pooled = Beating(pooled_url, peers=0)
        cases["pooled"] = pooled.beat
        pooled_row = BareRow(psycopg.connect(pooled_url, autocommit=True, prepare_threshold=None), create=False)
        cases["pooled bare"] = pooled_row.update
    values = interleaved(cases, rounds=bench.count(20, 2), each=bench.count(200, 10))
    bare = Series("bare psycopg, one-row UPDATE … RETURNING", values["bare"], "µs")
    beside = [bare, Series("bare psycopg, the beat's own statement", values["same"], "µs")]
    goal = Goal("p50", 1.3 * bare.at(0.5), "1.3 times the bare driver's statement")
    bench.report.add(
        Figure("heartbeat", Series("PostgreSQL", values["ours"], "µs", note=ratio(values)), [goal], beside)
    )
    if pooled_url is not None:
        through = Series("PostgreSQL through pgbouncer", values["pooled"], "µs")
        bare_through = Series("bare psycopg through pgbouncer, one-row UPDATE … RETURNING", values["pooled bare"], "µs")
        bench.report.add(Figure("heartbeat", through, [], [bare_through]))


def _sqlite(bench: Bench) -> None:
    ours = Beating(bench.file())
    assert isinstance(ours.store, SqliteStore)
    assert ours.lock
    connection = sqlite3.connect(ours.store.path, isolation_level=None)
    folder = bench.folder("bare")
    counter = os.open(folder / "counter", os.O_CREAT | os.O_RDWR)

    def bare() -> None:
        connection.execute("SELECT state, seq, asked FROM tenure_node WHERE id = ?", [ours.node]).fetchone()
        os.pwrite(counter, b"12345678", 0)

    values = interleaved({"ours": ours.beat, "bare": bare}, rounds=bench.count(20, 2), each=bench.count(200, 10))
    beside = [Series("bare SQLite, one-row SELECT and a pwrite of 8 bytes", values["bare"], "µs")]
    bench.report.add(Figure("heartbeat", Series("SQLite", values["ours"], "µs", note=ratio(values)), [], beside))
    os.close(counter)


class BareRow:
    """A row of the same shape as a node's, in a table of its own."""

    TABLE = "CREATE TABLE IF NOT EXISTS public.bare_node (LIKE tenure.node INCLUDING ALL) WITH (fillfactor = 50)"
    UPDATE = """UPDATE public.bare_node SET seq = %(number)s, renewed_at = clock_timestamp()
                 WHERE id = %(id)s AND state = 'alive' AND seq < %(number)s RETURNING seq, clock_timestamp()"""

    def __init__(self, connection: psycopg.Connection, *, create: bool = True) -> None:
        self._cursor, self._id, self._number = connection.cursor(), uuid.uuid4(), 0
        if create:
            connection.execute(self.TABLE)
        for node in [self._id, *(uuid.uuid4() for _ in range(NODES - 1))]:
            connection.execute("INSERT INTO public.bare_node (id, ttl, label) VALUES (%s, 10, 'bare')", [node])

    def update(self) -> object:
        self._number += 1
        return self._cursor.execute(self.UPDATE, {"id": self._id, "number": self._number}).fetchall()


def bare_connection(store: PostgresStore, url: str) -> psycopg.Connection:
    """psycopg as it comes, under the settings of our own sessions."""
    connection = psycopg.connect(url, autocommit=True, prepare_threshold=2)
    for name, value in store.settings(TIMEOUT).items():
        connection.execute("SELECT set_config(%s, %s, false)", [name, value])
    return connection


def interleaved(cases: dict[str, Callable[[], object]], *, rounds: int, each: int) -> dict[str, list[float]]:
    """Seconds per call, the cases taking turns so that the machine's moods fall on all of them."""
    values: dict[str, list[float]] = {name: [] for name in cases}
    for call in cases.values():
        for _ in range(10):
            call()
    for _ in range(rounds):
        for name, call in cases.items():
            for _ in range(each):
                began = time.perf_counter()
                call()
                values[name].append(time.perf_counter() - began)
    return values


def ratio(values: dict[str, list[float]]) -> str:
    halves = {name: Series(name, measured).at(0.5) for name, measured in values.items()}
    return f"{halves['ours'] / halves['bare']:.2f} times bare"
