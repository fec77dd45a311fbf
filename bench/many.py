"""A thousand elections in one process: one row per beat, whatever is held; on SQLite not even that."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from bench import Bench
from heartbeat import Beating, interleaved
from idle import processor
from report import Figure, Goal, Series

from cluster import HERE, Cluster
from harness import scratch

WRITES = """SELECT relname, n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_user_tables WHERE schemaname = 'tenure'"""


def measure(bench: Bench) -> None:
    held = bench.count(1000, 50)
    bench.report.topic(f"{held:,} elections in one process")
    postgres, sqlite = Counted(bench, bench.database(), held), Watched(bench, bench.file(), held)
    time.sleep(bench.count(200, 10) / 10)
    postgres.tell()
    sqlite.tell()
    for store, url in bench.urls().items():
        latency(bench, store, url, held)


class Counted:
    """PostgreSQL counts the rows.

    A killed client's backend hands in its last counts before it goes, so that they are exact.
    """

    def __init__(self, bench: Bench, url: str, held: int) -> None:
        self._bench, self._held = bench, held
        self._database = url.rpartition("/")[2]
        self._process = holder(bench, url, held)
        self._busy, self._began = processor(self._process.leader), time.monotonic()

    def tell(self) -> None:
        used = (processor(self._process.leader) - self._busy) / (time.monotonic() - self._began) * 3600
        self._process.close()
        server, database, what = self._bench.server, self._database, f"PostgreSQL, {self._held:,} held"
        alone = "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = %s"
        scratch.eventually(lambda: server.execute(alone, [database])[0][0], what="backends gone")
        counts = {table: numbers for table, *numbers in server.execute(WRITES, dbname=database)}
        beats = server.execute("SELECT max(seq) FROM tenure.node", dbname=database)[0][0]
        written = sum(map(sum, counts.values())) - setup(counts, self._held)
        rows = Series(what, [written / beats], "", note=f"{written:,} rows in {beats:,} beats")
        self._bench.report.add(Figure("rows written per beat", rows, [Goal("p50", 1)]))
        self._bench.report.add(Figure("many elections, processor", Series(what, [used], "s per hour")))


def setup(counts: dict[str, list[int]], held: int) -> int:
    """What joining and winning wrote: the schema's own rows, the node, three rows for each election, and what a
    rehearsal took back."""
    once = sum(counts[table][0] + counts[table][1] for table in ("schema_version", "epoch"))
    return once + 1 + 3 * held + REHEARSED


REHEARSED = 9
"""Rows of a rehearsed succession, rolled back and counted by the server all the same: two nodes and a death, an
election won twice."""


class Watched:
    """A SQLite file says by itself whether anybody wrote to it."""

    def __init__(self, bench: Bench, url: str, held: int) -> None:
        self._bench, self._held = bench, held
        self._path = Path(url.removeprefix("sqlite:///"))
        self._process = holder(bench, url, held)
        self._connection = sqlite3.connect(self._path, isolation_level=None)
        self._lock = next(self._path.with_name(self._path.name + "-tenure").glob("*.lock"))
        self._before, self._beats = self._state(), self._pulse()

    def tell(self) -> None:
        changed = sum(a != b for a, b in zip(self._before, self._state(), strict=True))
        beats = self._pulse() - self._beats
        self._connection.close()
        self._process.close()
        note = f"data_version, size and time of the file and its log, over {beats} beats"
        series = Series(f"SQLite, {self._held:,} held, changes of the file", [changed], "", note=note)
        self._bench.report.add(Figure("rows written per beat", series, [Goal("p50", 0)]))

    def _pulse(self) -> int:
        return int.from_bytes(self._lock.read_bytes()[:8], "little")

    def _state(self) -> list[object]:
        files = [self._path, self._path.with_name(self._path.name + "-wal")]
        version = self._connection.execute("PRAGMA data_version").fetchone()[0]
        return [version, *((status.st_size, status.st_mtime_ns) for status in (file.stat() for file in files))]


def holder(bench: Bench, url: str, held: int) -> Cluster:
    """A process that has won all of them."""
    beat = 0.2 if bench.quick else 2.0
    return bench.stack.enter_context(Cluster("many", [HERE / "holder.py", url, held, beat], size=1)).settle()


def latency(bench: Bench, store: str, url: str, held: int) -> None:
    few, many = Beating(url, elections=1), Beating(bench.database() if store == "PostgreSQL" else bench.file(), held)
    values = interleaved({"many": many.beat, "few": few.beat}, rounds=bench.count(10, 1), each=bench.count(30, 5))
    series = Series(f"{store}, {held:,} held", values["many"], "ms")
    bench.report.add(Figure("heartbeat", series, [], [Series("one held", values["few"], "ms")]))
