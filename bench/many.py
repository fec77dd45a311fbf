"""A thousand elections in one process: one row per beat, whatever is held; on SQLite not even that."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from bench import Bench
from cluster import HERE, Cluster
from heartbeat import Beating, interleaved
from idle import processor
from report import Figure, Goal, Series

from harness import scratch

WRITES = """SELECT relname, n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_user_tables WHERE schemaname = 'tenure'"""


def measure(bench: Bench) -> None:
    held = bench.count(1000, 50)
    bench.report.topic(f"{held:,} elections in one process")
    _rows_per_beat(bench, held)
    _idle_file(bench, held)
    for store, url in bench.urls().items():
        latency(bench, store, url, held)


def _rows_per_beat(bench: Bench, held: int) -> None:
    """Counted by the server. A killed client's backend hands in its last counts before it goes, so that they are exact."""
    url = bench.database()
    ttl = 1.0 if bench.quick else 10.0
    process = holder(bench, url, held, ttl)
    busy, began = processor(process.leader), time.monotonic()
    time.sleep(1.0 if bench.quick else 20.0)
    used = (processor(process.leader) - busy) / (time.monotonic() - began) * 3600
    process.close()
    name = url.rpartition("/")[2]
    alone = "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = %s"
    scratch.eventually(lambda: bench.server.execute(alone, [name])[0][0], what="backends gone")
    counts = {table: numbers for table, *numbers in bench.server.execute(WRITES, dbname=name)}
    beats = bench.server.execute("SELECT max(seq) FROM tenure.node", dbname=name)[0][0]
    written = sum(map(sum, counts.values())) - setup(counts, held)
    series = Series(f"PostgreSQL, {held:,} held", [written / beats], "", note=f"{written:,} rows in {beats:,} beats")
    bench.report.add(Figure("rows written per beat", series, [Goal("p50", 1)]))
    bench.report.add(Figure("many elections, processor", Series(f"PostgreSQL, {held:,} held", [used], "s per hour")))


def setup(counts: dict[str, list[int]], held: int) -> int:
    """What joining and winning wrote: the schema's own rows, the node, and three rows for each election."""
    once = sum(counts[table][0] + counts[table][1] for table in ("schema_version", "epoch"))
    return once + 1 + 3 * held


def _idle_file(bench: Bench, held: int) -> None:
    url = bench.file()
    path = Path(url.removeprefix("sqlite:///"))
    process = holder(bench, url, held, 1.0 if bench.quick else 10.0)
    time.sleep(1.0)
    watcher = sqlite3.connect(path, isolation_level=None)
    before = state(watcher, path)
    lock = next(path.with_name(path.name + "-tenure").glob("*.lock"))
    beats = int.from_bytes(lock.read_bytes()[:8], "little")
    time.sleep(1.0 if bench.quick else 20.0)
    changed = sum(a != b for a, b in zip(before, state(watcher, path), strict=True))
    beats = int.from_bytes(lock.read_bytes()[:8], "little") - beats
    watcher.close()
    process.close()
    note = f"data_version, size and time of the file and its log, over {beats} beats"
    series = Series(f"SQLite, {held:,} held, changes of the file", [changed], "", note=note)
    bench.report.add(Figure("rows written per beat", series, [Goal("p50", 0)]))


def state(connection: sqlite3.Connection, path: Path) -> list[object]:
    files = [path, path.with_name(path.name + "-wal")]
    known = [file.stat() for file in files]
    version = connection.execute("PRAGMA data_version").fetchone()[0]
    return [version, *((status.st_size, status.st_mtime_ns) for status in known)]


def holder(bench: Bench, url: str, held: int, ttl: float) -> Cluster:
    """A process that has won all of them."""
    return bench.stack.enter_context(Cluster("many", [HERE / "holder.py", url, held, ttl], size=1))


def latency(bench: Bench, store: str, url: str, held: int) -> None:
    few, many = Beating(url, elections=1), Beating(bench.database() if store == "PostgreSQL" else bench.file(), held)
    values = interleaved({"many": many.beat, "few": few.beat}, rounds=bench.count(10, 1), each=bench.count(30, 5))
    series = Series(f"{store}, {held:,} held", values["many"], "ms")
    bench.report.add(Figure("heartbeat", series, [], [Series("one held", values["few"], "ms")]))
