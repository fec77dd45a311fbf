"""What a node costs that does nothing but be there: statements, connections, memory, processor."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

from bench import Bench
from cluster import HERE, Cluster
from report import Figure, Goal, Series


def measure(bench: Bench) -> None:
    bench.report.topic("An idle node")
    seconds = bench.count(30, 2)
    bare = bench.stack.enter_context(Cluster("bare", [HERE / "bare.py"], size=1))
    bare_memory = resident(bare.leader)
    goals = {"without session evidence": 1.0, "with session evidence": 3.0}
    for what, limit in goals.items():
        with_evidence = what.startswith("with ")
        url = bench.database()
        name = url.rpartition("/")[2]
        bench.server.execute(f"ALTER DATABASE {name} SET log_statement = 'all'")
        nodes = bench.candidates(what, url, size=2, session_evidence=with_evidence)  # the second one is a standby
        time.sleep(0.5 if bench.quick else 4.0)
        busy, counted, began = processor(nodes.leader), statements(bench.server.log, name), time.monotonic()
        time.sleep(seconds)
        lasted = time.monotonic() - began
        each = (statements(bench.server.log, name) - counted) / lasted / 2
        used = (processor(nodes.leader) - busy) / lasted * 3600
        sessions = bench.server.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = %s", [name])[0][0] / 2
        add = bench.report.add
        add(Figure("idle node, statements per second", Series(what, [each], "/s"), [Goal("p50", limit)]))
        add(Figure("idle node, connections", Series(what, [sessions], ""), [Goal("p50", 2)]))
        memory = Series(f"{what}, beyond Python with psycopg", [resident(nodes.leader) - bare_memory], "MB")
        add(Figure("idle node, memory", memory, [], [Series("Python with psycopg alone", [bare_memory], "MB")]))
        add(Figure("idle node, processor", Series(what, [used], "s per hour")))
        nodes.close()
    nodes = bench.candidates("SQLite", bench.file(), size=2)
    time.sleep(0.5 if bench.quick else 4.0)
    busy, began = processor(nodes.leader), time.monotonic()
    time.sleep(seconds)
    used = (processor(nodes.leader) - busy) / (time.monotonic() - began) * 3600
    bench.report.add(Figure("idle node, processor", Series("SQLite", [used], "s per hour")))
    nodes.close()
    os.kill(bare.leader, signal.SIGCONT)
    bare.close()


def statements(log: Path, database: str) -> int:
    """Statements that the server wrote down for a database (log_line_prefix ends with its name)."""
    began = re.compile(rf"\[{database}\] LOG:  (statement|execute )")
    return sum(1 for line in log.read_text(errors="replace").splitlines() if began.search(line))


def resident(pid: int) -> float:
    """Megabytes of memory that a process has of its own or shares."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


def processor(pid: int) -> float:
    """Seconds of processor time of all threads so far, to the nanosecond."""
    return (
        sum(int(Path(task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()) / 1e9
    )
