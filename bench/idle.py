"""What a node costs that does nothing but be there: statements, connections, memory, processor."""

from __future__ import annotations

import re
import time
from pathlib import Path

from bench import Bench
from report import Figure, Goal, Series

from cluster import HERE, Cluster


def measure(bench: Bench) -> None:
    bench.report.topic("An idle node")
    bare = {driver: bare_memory(driver) for driver in ("psycopg", "sqlite3")}
    idle = [
        Idle(bench, "PostgreSQL, without session evidence", bench.database(), 1.0, session_evidence=False),
        Idle(bench, "PostgreSQL, with session evidence", bench.database(), 3.0),
        Idle(bench, "SQLite", bench.file()),
    ]
    for one in idle:
        one.settle()
    time.sleep(bench.count(40, 5) / 10)
    for one in idle:
        one.begin()
    time.sleep(bench.count(300, 10) / 10)
    for one in idle:
        one.end(bare)


class Idle:
    """A leader and a standby with nothing to do; both send the same statements, the leader's process is looked at."""

    def __init__(self, bench: Bench, what: str, url: str, limit: float = 0.0, **options: object) -> None:
        self._bench, self._what, self._limit = bench, what, limit
        self._database = url.rpartition("/")[2] if url.startswith("postgresql:") else ""
        if self._database:
            bench.server.execute(f"ALTER DATABASE {self._database} SET log_statement = 'all'")
        self._nodes = bench.candidates(what, url, size=2, **options)

    def settle(self) -> None:
        self._nodes.settle()

    def begin(self) -> None:
        self._began, self._busy, self._counted = time.monotonic(), processor(self._nodes.leader), self._statements()

    def end(self, bare: dict[str, float]) -> None:
        lasted = time.monotonic() - self._began
        used = (processor(self._nodes.leader) - self._busy) / lasted * 3600
        sent = (self._statements() - self._counted) / lasted / 2
        add, what = self._bench.report.add, self._what
        if self._database:
            asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
            connections = self._bench.server.execute(asked, [self._database])[0][0] / 2
            add(Figure("idle node, statements per second", Series(what, [sent], "/s"), [Goal("p50", self._limit)]))
            add(Figure("idle node, connections", Series(what, [connections], ""), [Goal("p50", 2)]))
        driver = "psycopg" if self._database else "sqlite3"
        memory = Series(f"{what}, beyond Python with {driver}", [resident(self._nodes.leader) - bare[driver]], "MB")
        add(Figure("idle node, memory", memory, [], [Series(f"Python with {driver} alone", [bare[driver]], "MB")]))
        add(Figure("idle node, processor", Series(what, [used], "s per hour")))
        self._nodes.close()

    def _statements(self) -> int:
        return statements(self._bench.server.log, self._database) if self._database else 0


def statements(log: Path, database: str) -> int:
    """Statements that the server wrote down for a database (log_line_prefix ends with its name)."""
    began = re.compile(rf"\[{database}\] LOG:  (statement|execute )")
    return sum(1 for line in log.read_text(errors="replace").splitlines() if began.search(line))


def bare_memory(driver: str) -> float:
    with Cluster("bare", [HERE / "bare.py", driver], size=1) as bare:
        return resident(bare.leader)


def resident(pid: int) -> float:
    """Megabytes of memory that a process has of its own or shares."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


def processor(pid: int) -> float:
    """Seconds of processor time of all threads so far, to the nanosecond."""
    return (
        sum(int(Path(task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()) / 1e9
    )
