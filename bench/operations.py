"""What operations cost: `run_now` beside a plain INSERT and COMMIT of the same driver, and many jobs and runs at once.

python bench/operations.py postgresql:///app     on a database of your own; it adds jobs of an application of its own
"""

from __future__ import annotations

import statistics
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import psycopg

from tenure import Scheduler, every

ROUNDS, MANY = 200, 500


def report(customer: int) -> None: ...


def times(act: Callable[[], object], rounds: int = ROUNDS) -> list[float]:
    """Milliseconds of each call, without the first ones."""
    found = []
    for number in range(rounds + 10):
        began = time.perf_counter()
        act()
        if number >= 10:
            found.append((time.perf_counter() - began) * 1000)
    return found


def main(url: str) -> None:
    """Measure and print."""
    scheduler = Scheduler(url, application=f"bench {uuid.uuid4()}", capacity=0)
    scheduler.job(report)
    with scheduler, psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS bench_plain (id bigint GENERATED ALWAYS AS IDENTITY, key text)")
        connection.commit()

        def insert() -> None:
            connection.execute("INSERT INTO bench_plain (key) VALUES (%s)", [str(uuid.uuid4())])
            connection.commit()

        plain = statistics.median(times(insert))
        run_now = statistics.median(times(lambda: scheduler.run_now("report", kwargs={"customer": 7})))
        began = time.perf_counter()
        scheduler.add_many(report, {f"report:{n}": (every("1h"), {"customer": n}) for n in range(MANY)})
        add_many = time.perf_counter() - began
        began = time.perf_counter()
        scheduler.run_now_many("report", [{"customer": n} for n in range(MANY)])
        run_now_many = time.perf_counter() - began
        connection.execute("DROP TABLE bench_plain")
    print(f"INSERT and COMMIT: {plain:.2f} ms (median of {ROUNDS})")
    print(f"run_now: {run_now:.2f} ms, {run_now / plain:.1f} times that")
    print(f"add_many of {MANY} jobs: {add_many:.2f} s; run_now_many of {MANY} runs: {run_now_many:.2f} s")


if __name__ == "__main__":
    main(sys.argv[1])
