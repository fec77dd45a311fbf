"""Measures the page: `python3 dev.py bench-page [--quick] [--only TOPIC,…] [--out FOLDER]`.

First how long the server takes for each page beside many jobs and runs, with no answer kept from the request before.
Then how late runs begin while every worker serves the page to open browsers and answers what-if questions, beside the
same workers without it. A whole run takes about four minutes and writes docs/proof/page-benchmark.md.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path
from unittest import mock

# The servers of the tests: real ones, ended with the run.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))

import course
import httpx
import psycopg
from bench import Bench
from report import Figure, Goal, Series
from scheduler_load import APPLICATION, FUNCTION, Player, enter_from_soon, spread, together, watch, windows
from scheduler_report import AtMost, Line, SchedulerReport, latenesses

from harness.web import served
from tenure import Scheduler
from tenure.triggers import Trigger
from tenure.web import web
from tenure.web.ledger_reads import LedgerReads

HOUR = 3600
WORKERS, STREAMS_EACH = 5, 10
MOST = 0.05
"""Seconds of the server for one page, in 95 of 100 requests."""
PAGES = (
    "/",
    "/?sort=next",
    "/?q=job-77",
    "/?state=failing",
    "/job?name=job-7",
    "/job?name=job-77",
    "/terms",
    "/actions",
    "/load",
    "/api/v1/status",
    "/api/v1/jobs",
    "/api/v1/runs",
    "/api/v1/runs?job=job-7",
    "/api/v1/next",
)
POSTGRES = """
INSERT INTO tenure.run (job, application, generation, kind, key, scheduled_for, due_at, state, attempt, label,
                        claimed_at, started_at, finished_at)
SELECT j.id, j.application, 1, 'due', 'past ' || n, at, at, s.state::tenure.run_state, 1, 'web-1', at, at,
       at + interval '50 ms'
  FROM generate_series(1, %(each)s) n, tenure.job j, LATERAL (SELECT now() - n * interval '1 hour' AS at) t,
       LATERAL (SELECT CASE WHEN j.id %% 100 = 7 AND n %% 10 = 3 THEN 'failed' ELSE 'succeeded' END AS state) s
 WHERE j.name <> 'body';
INSERT INTO tenure.job_hour (job, application, hour, removed, succeeded, failed, lost, cancelled, skipped, missed, open,
                             late_total, late_most, late, took_total, took_most, took)
SELECT j.id, j.application, date_trunc('hour', now(), 'UTC') - n * interval '1 hour', false, 1, 0, 0, 0, 0, 0, 0, 0, 0,
       '', 0.05, 0.05, ''
  FROM generate_series(1, 48) n, tenure.job j WHERE j.name <> 'body';
"""
SQLITE = """
WITH RECURSIVE past (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM past WHERE n < :each)
INSERT INTO tenure_run (job, application, generation, kind, key, scheduled_for, due_at, state, attempt, label,
                        claimed_at, started_at, finished_at)
SELECT j.id, j.application, 1, 'due', 'past ' || n, :now - n * 3600000000, :now - n * 3600000000,
       CASE WHEN j.id % 100 = 7 AND n % 10 = 3 THEN 'failed' ELSE 'succeeded' END, 1, 'web-1',
       :now - n * 3600000000, :now - n * 3600000000, :now - n * 3600000000 + 50000
  FROM past, tenure_job j WHERE j.name <> 'body'
"""


def speed(bench: Bench) -> None:
    """How long the server takes for each page."""
    jobs, each = bench.count(10_000, 100), bench.count(100, 10)
    bench.report.topic(f"Pages beside {jobs:,} jobs and {jobs * each:,} runs")
    for engine, url in bench.urls().items():
        bench.report.say(f"  filling {engine} …")
        enter_from_soon(url, spread(jobs, HOUR))
        _past(url, each)
        _pages(bench, engine, url)


def _past(url: str, each: int) -> None:
    """Give every job a past, as it stands when statistics have been taken."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file, file:
            file.execute(SQLITE, {"each": each, "now": int(time.time() * 1e6)})
            file.execute("ANALYZE")
    else:
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in filter(str.strip, POSTGRES.split(";\n")):
                connection.execute(statement, {"each": each})
            connection.execute("VACUUM ANALYZE")


def _pages(bench: Bench, engine: str, url: str) -> None:
    scheduler = Scheduler(url, application=APPLICATION)
    scheduler.job(name=FUNCTION)(lambda: None)
    nothing_kept = mock.patch.object(LedgerReads, "_recent", return_value=None)
    with (
        scheduler,
        nothing_kept,
        served(web(scheduler, authorize=lambda _request: "read")) as base,
        httpx.Client(timeout=60) as client,
    ):
        failed = scheduler.runs("job-7", state="failed", limit=1)
        for page in (*PAGES, *(f"/run/{run.id}" for run in failed)):
            took = [_took(client, base + page) for _ in range(bench.count(40, 2))][1:]
            what = "/run/N" if page.startswith("/run/") else page
            bench.report.add(Figure(f"{engine}, one page", Answers(what, took), [Goal("p95", MOST)]))


class Answers(Series):
    """What the server took for one page."""

    def statistic(self, name: str) -> float:
        return self.at(0.95) if name == "p95" else super().statistic(name)

    def summary(self) -> str:
        return f"p50 {self.shown(self.at(0.5))}, p95 {self.shown(self.at(0.95))}, most {self.shown(self.at(1.0))} ms"


def _took(client: httpx.Client, address: str) -> float:
    """One request over loopback, from sending it to the end of its answer."""
    began = time.perf_counter()
    answer = client.get(address)
    took = time.perf_counter() - began
    assert answer.status_code == 200, f"{address}: {answer.status_code}"
    return took


def beside(bench: Bench) -> None:
    """Workers that serve the page, beside the same ones that do not."""
    bench.report.topic(f"Lateness of {WORKERS} nodes with the page open")
    cases: dict[str, tuple[list[Trigger], float]] = {
        "1,000 jobs at 1 Hz": (spread(bench.count(1000, 20)), 3.0),
        "1,000 jobs due at one instant": (together(bench.count(1000, 20)), 2.0),
    }
    for what, (triggers, seconds) in cases.items():
        bare = _late(bench, triggers, seconds, page=False)
        shown = _late(bench, triggers, seconds, page=True)
        limit = latenesses("the same without a page", bare)
        ours = latenesses(what, shown, f"{WORKERS * STREAMS_EACH} streams, the load page and a what-if once a second")
        goals: list[Goal] = [
            AtMost(name, max(limit.by.get(name, [0.0])), "the slowest round without a page") for name in ("p50", "p99")
        ]
        bench.report.add(Line(f"lateness, {WORKERS} nodes with the page open", ours, goals, beside=[limit]))


def _late(bench: Bench, triggers: list[Trigger], seconds: float, *, page: bool) -> list[list[float]]:
    url = bench.database()
    since = enter_from_soon(url, triggers)
    with ExitStack() as stack:
        players = [stack.enter_context(Player("page_node.py", url, int(page))) for _ in range(WORKERS)]
        if page:
            addresses = [player.hear()["address"] for player in players]
            visitors = stack.enter_context(Player("page_visitor.py", STREAMS_EACH, *addresses))
            visitors.ready()
        begun, bounds = watch(players, warm=3.0, rounds=bench.count(5, 1), seconds=seconds, since=since)
        if page:
            told = visitors.end()
            assert not told["refused"], f"{told['refused']} requests were refused: {told['first']}"
            bench.report.say(f"    visitors: {told['pages']} pages, {told['changes']} changes told")
    return windows(begun, bounds)


class PageReport(SchedulerReport):
    """Both tables on one page."""

    name = "page-benchmark"

    def markdown(self) -> str:
        return self.page(
            "The page, measured",
            "PostgreSQL is real and durable (`fsync = on`), SQLite is on disk; all on one machine.",
            "A page is timed over loopback, from the request to the end of the answer, and nothing is reused from the request before.",
            "The visitors share the two cores with the workers and the server.",
            lines=[(figure.cells(), figure.compared()) for figure in self.figures],
        )


if __name__ == "__main__":
    sys.exit(course.go("the page", "bench-page", {"speed": speed, "beside": beside}, PageReport))
