"""What operations cost: `run_now` beside a plain INSERT and COMMIT of its driver, and many jobs and runs at once."""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Callable

import psycopg
from bench import Bench
from scheduler_report import AtMost, Line, Rounds

from tenure import Scheduler, every

MANY, FIRST = 500, 10
"""Jobs and runs at once; calls that are not counted."""


def report(customer: int) -> None: ...


def operations(bench: Bench) -> None:
    """The application's own connection inserts a row and commits; `run_now` does that, and all that comes with it."""
    bench.report.topic("Operations")
    bench.report.say("  ours, the bare driver …")
    plain, ours, ratios, jobs, runs = [], [], [], [], []
    for _ in range(bench.count(3, 1)):
        url = bench.database()
        scheduler = Scheduler(url, application=f"bench {uuid.uuid4()}", capacity=0)
        scheduler.job(report)
        with scheduler, psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE plain (id bigint GENERATED ALWAYS AS IDENTITY, key text)")
            connection.commit()

            def insert(connection: psycopg.Connection[tuple[object, ...]] = connection) -> None:
                connection.execute("INSERT INTO plain (key) VALUES (%s)", [str(uuid.uuid4())])
                connection.commit()

            def request(scheduler: Scheduler = scheduler) -> None:
                scheduler.run_now("report", kwargs={"customer": 7})

            rounds = bench.count(200, 5)
            plain.append(median(insert, rounds))
            ours.append(median(request, rounds))
            ratios.append(ours[-1] / plain[-1])
            began = time.perf_counter()
            scheduler.add_many(report, {f"report:{n}": (every("1h"), {"customer": n}) for n in range(MANY)})
            jobs.append(time.perf_counter() - began)
            began = time.perf_counter()
            scheduler.run_now_many("report", [{"customer": n} for n in range(MANY)])
            runs.append(time.perf_counter() - began)
    note = f"{statistics.median(ours) * 1000:.2f} ms against {statistics.median(plain) * 1000:.2f}"
    cost = Rounds("run_now against a plain INSERT and COMMIT of psycopg", unit="times", by={"": ratios}, note=note)
    bench.report.add(Line("operations", cost, [AtMost("", 3.0)]))
    added = Rounds(f"add_many of {MANY} jobs", unit="s", by={"": jobs})
    bench.report.add(Line("operations", added, [AtMost("", 1.0)]))
    bench.report.add(Line("operations", Rounds(f"run_now_many of {MANY} runs", unit="s", by={"": runs})))


def median(act: Callable[[], object], rounds: int) -> float:
    """Seconds of a call."""
    found = []
    for number in range(rounds + FIRST):
        began = time.perf_counter()
        act()
        if number >= FIRST:
            found.append(time.perf_counter() - began)
    return statistics.median(found)
