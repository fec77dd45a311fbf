"""Planning: due times a second, and what a tick costs when almost nothing is due."""

from __future__ import annotations

import logging
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import psycopg
from bench import Bench
from scheduler_bare import SQL, connect
from scheduler_load import APPLICATION, BATCH, EPOCH, enter, ledger_of, spec
from scheduler_report import AtLeast, AtMost, Line, Rounds, SchedulerReport, rates

from tenure import Scheduler
from tenure.core.keys import due_key
from tenure.core.messages import ClaimRequest, Ending, JobChange
from tenure.core.planning import plan
from tenure.core.records import Change, Instant, Rules, RunState
from tenure.stores.ledger import Ledger
from tenure.stores.postgres.arrays import doubles, longs, texts
from tenure.triggers import Trigger, cron, every, from_json, tzdata_version

ZONE = "America/New_York"
MIX = {"* * * * *": 5, "*/5 9-17 * * 1-5": 2, "0 * * * *": 1, "30 2 * * *": 1, "0 0 1 * *": 1}
"""Of ten due times so many are of each expression."""
STARTED_WITHIN, WARNED_WITHIN = 2.0, 60.0
"""Seconds for start(), and until the warning about stored arguments that do not fit."""
NODE = "00000000-0000-4000-8000-000000000001"


def planning(bench: Bench) -> None:
    """One due time for each visit of a job, the dearest way to plan; each expression is an application, so that the mix
    stays one."""
    bench.report.topic("Planning")
    bench.report.say("  ours, the bare driver …")
    size, passes = bench.count(400, 10), bench.count(10, 1)
    ours, limit = [], []
    for _ in range(bench.count(3, 1)):
        url = bench.database()
        enter_mix(url, size)
        with ledger_of(url) as ledger:
            ours.append(rate(passes, lambda app, ledger=ledger: visit(ledger, app)))
        url = bench.database()
        enter_mix(url, size)
        with connect(url) as connection:
            limit.append(rate(passes, lambda app, connection=connection: visit_bare(connection, app)))
    bench.report.add(
        Line(
            "planning, due times per second",
            rates("cron, five expressions, New York", ours, "/s"),
            [AtLeast("", 20_000)],
            limit=rates("psycopg looking and writing, next times given", limit, "/s"),
        )
    )


def enter_mix(url: str, size: int) -> None:
    now = EPOCH.timestamp() + 365 * 86400 * 5  # in the future: nothing is missed
    with ledger_of(url) as ledger:
        for expression in MIX:
            trigger, rules = cron(expression, ZONE), Rules()
            job = spec("", trigger, rules, expression)
            enter(
                ledger,
                [
                    JobChange(
                        expression,
                        f"job-{index}",
                        Change.ADDED,
                        spec=replace(job, name=f"job-{index}"),
                        next_due=trigger.following(now),
                    )
                    for index in range(size)
                ],
            )


def rate(passes: int, visit_one: Callable[[str], int]) -> float:
    """Due times per second, in the proportions of the mix."""
    for expression in MIX:
        visit_one(expression)
    began, written = time.perf_counter(), 0
    for _ in range(passes):
        for expression, times in MIX.items():
            for _ in range(times):
                written += visit_one(expression)
    return written / (time.perf_counter() - began)


_triggers: dict[str, Trigger] = {}


def visit(ledger: Ledger, application: str) -> int:
    """What the conductor does in one batch, with a horizon that gives each job one due time."""
    jobs = ledger.unplanned(application, before=1e11, limit=BATCH, tzdata=tzdata_version())
    batch = []
    for job in jobs:
        trigger = _triggers.get(job.trigger) or _triggers.setdefault(job.trigger, from_json(job.trigger))
        assert job.next_due is not None
        planned = plan(job, trigger, application=application, now=job.next_due, horizon=job.next_due)
        assert planned is not None
        batch.append(planned)
    return ledger.plan(batch)


_keys: dict[Instant, str] = {}


def visit_bare(connection: psycopg.Connection[tuple[object, ...]], application: str) -> int:
    looked = {
        "application": application,
        "before": 1e11,
        "limit": BATCH,
        "strangers": texts([]),
        "tzdata": tzdata_version(),
        "overdue": 0.0,
    }
    rows = connection.execute(SQL["unplanned"], looked, binary=True).fetchall()
    dues = [row[3] for row in rows]
    written = {
        "jobs": longs([row[0] for row in rows]),
        "generations": longs([row[2] for row in rows]),
        "dues": doubles(dues),
        "thens": doubles([due + 60 for due in dues]),
        "readings": texts([""] * len(rows)),
        "places": longs(range(1, len(rows) + 1)),
        "keys": texts([_keys.get(due) or _keys.setdefault(due, due_key(due)) for due in dues]),
        "scheduled": doubles(dues),
        "ready": doubles(dues),
        "expire": doubles([due + 60 for due in dues]),
        **dict.fromkeys(("states", "reasons", "counts", "untils")),
    }
    row = connection.execute(SQL["plan"], written, binary=True).fetchone()
    assert row
    return int(row[0])


def tick(bench: Bench) -> None:
    """Look, plan one due time, claim it, end it; with few idle jobs beside it and with many, by turns."""
    bench.report.topic("A tick")
    many = bench.count(1_000_000, 1000)
    bench.report.say(f"  entering {many:,} idle jobs …")
    sizes = {"10": 10, f"{many:,}": many}
    urls = {name: idle_jobs(bench, size) for name, size in sizes.items()}
    times: dict[str, list[dict[str, float]]] = {name: [] for name in urls}
    for _ in range(bench.count(5, 1)):
        for name, url in urls.items():
            with ledger_of(url) as ledger:
                times[name].append(ticks(ledger, bench.count(100, 5)))
    few, lots = (medians(times[name]) for name in sizes)
    report = bench.report
    assert isinstance(report, SchedulerReport)
    for part in few:
        ratio = [after[part] / before[part] for before, after in zip(*times.values(), strict=True)]
        goals = [AtMost("", 1.2)] if part.startswith("one due") else []
        series = Rounds(f"{part}, {many:,} idle jobs against 10", unit="times", by={"": ratio})
        series.note = f"{lots[part] * 1e6:,.0f} µs against {few[part] * 1e6:,.0f}"
        report.add(Line("tick", series, goals))
    with ledger_of(urls[f"{many:,}"]) as ledger:
        now = ledger.now()
        seldom: dict[str, Callable[[], object]] = {
            "which functions there are, every 10 s": lambda: ledger.functions(APPLICATION),
            "reconciling, every 2 s": lambda: ledger.reconcile(NODE, APPLICATION),
            "retention, every 60 s": lambda: ledger.prune(APPLICATION, before=now - 7 * 86400, keep=100, limit=1000),
        }
        for what, call in seldom.items():
            taken = [timed(call) for _ in range(3)]
            report.add(Line("a node's upkeep", Rounds(f"{what}, {many:,} idle jobs", by={"": taken})))


def start(bench: Bench) -> None:
    """Start a node among many stored jobs, of which the last one has arguments that its function does not take."""
    bench.report.topic("A start")
    many = bench.count(1_000_000, 1000)
    bench.report.say(f"  entering {many:,} idle jobs …")
    url = idle_jobs(bench, many)
    last = f"idle-{'9' * len(str(many - 1))}"
    with psycopg.connect(url, autocommit=True) as connection:
        changed = connection.execute(
            """UPDATE tenure.job SET kwargs = '{"gone": 1}' WHERE name = %s RETURNING function""", [last]
        ).fetchone()
        assert changed is not None, last
        connection.execute("UPDATE tenure.job SET next_due = now() + interval '30 days' WHERE name = 'busy'")
        connection.execute("DELETE FROM tenure.node WHERE label = 'bench'")
    scheduler, told = Scheduler(url, application=APPLICATION), Told()
    scheduler.job(name=changed[0])(lambda: None)
    logger = logging.getLogger("tenure")
    logger.addHandler(told)
    try:
        began = time.perf_counter()
        scheduler.start()
        started = time.perf_counter() - began
        bench.report.say("  waiting for the warning about arguments …")
        warned = [time.perf_counter() - began] if told.warned.wait(WARNED_WITHIN * 2) else []
        scheduler.stop()
    finally:
        logger.removeHandler(told)
    jobs = f"{many:,} stored jobs"
    bench.report.add(
        Line("start", Rounds(f"start() among {jobs}", unit="s", by={"": [started]}), [AtMost("", STARTED_WITHIN)])
    )
    warning = Rounds(f"until the warning about arguments, {jobs}", unit="s", by={"": warned})
    warning.note = "" if warned else f"no warning within {WARNED_WITHIN * 2:g} s"
    bench.report.add(Line("start", warning, [AtMost("", WARNED_WITHIN)]))


class Told(logging.Handler):
    """Hears of the warning about stored arguments."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.warned = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "action", "") == "unfit_arguments":
            self.warned.set()


def idle_jobs(bench: Bench, size: int) -> str:
    """One job that comes due at will, and idle ones, due tomorrow or later, entered in one statement."""
    url = bench.database()
    rules = Rules(grace=10 * 86400.0)
    with ledger_of(url) as ledger:
        past = ledger.now() // 1 - 86400
        busy = every(seconds=1, anchor=datetime.fromtimestamp(past, UTC))
        idle = every(days=365, anchor=EPOCH)
        enter(
            ledger,
            [
                JobChange(APPLICATION, "busy", Change.ADDED, spec=spec("busy", busy, rules), next_due=past),
                JobChange(
                    APPLICATION, "idle", Change.ADDED, spec=spec("idle", idle, rules), next_due=past + 10 * 86400
                ),
            ],
        )
    with psycopg.connect(url, autocommit=True) as connection:
        columns = "application, function, trigger, kwargs, rules, queue, overlap, max_running, on_time, on_lost, max_lost, in_code, release, tzdata, since, lane"
        connection.execute(
            f"INSERT INTO tenure.job (name, next_due, {columns}) SELECT 'idle-' || g, next_due + g * interval '1 s', {columns}"  # noqa: S608 - constants
            " FROM tenure.job, generate_series(2, %s) g WHERE name = 'idle'",
            [size],
        )
        connection.execute("INSERT INTO tenure.node (id, ttl, label) VALUES (%s, 3600, 'bench')", [NODE])
        connection.execute("VACUUM ANALYZE tenure.job")
    return url


def ticks(ledger: Ledger, count: int) -> dict[str, float]:
    """Medians of the parts, in seconds; the first few are not counted."""
    taken: dict[str, list[float]] = {"one due: look, plan, claim": [], "end it": [], "none due: look, claim": []}
    parts = list(taken.values())
    trigger: Trigger | None = None
    for _ in range(count + 10):
        stamps = [time.perf_counter()]
        (job,) = ledger.unplanned(APPLICATION, before=ledger_time() + 5, limit=BATCH, tzdata=tzdata_version())
        assert job.next_due is not None
        trigger = trigger or from_json(job.trigger)
        planned = plan(job, trigger, application=APPLICATION, now=job.next_due, horizon=job.next_due)
        assert planned is not None
        ledger.plan([planned])
        token = f"token-{job.next_due}"
        (run,) = ledger.claim(ClaimRequest(NODE, APPLICATION, token, 32)).runs
        stamps.append(time.perf_counter())
        ledger.finish([Ending(run.id, token, RunState.SUCCEEDED, started_at=run.due_at, finished_at=run.due_at)])
        stamps.append(time.perf_counter())
        ledger.unplanned(APPLICATION, before=job.next_due - 5, limit=BATCH, tzdata=tzdata_version())
        assert not ledger.claim(ClaimRequest(NODE, APPLICATION, token, 32)).runs
        stamps.append(time.perf_counter())
        for part, begin, end in zip(parts, stamps, stamps[1:], strict=False):
            part.append(end - begin)
    return {name: statistics.median(values[10:]) for name, values in taken.items()}


def medians(measured: list[dict[str, float]]) -> dict[str, float]:
    return {part: statistics.median(one[part] for one in measured) for part in measured[0]}


def ledger_time() -> Instant:
    return time.time()


def timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
