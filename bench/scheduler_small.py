"""What an idle node costs, what a trigger costs, and what it costs to ask who leads."""

from __future__ import annotations

import time
import timeit
from datetime import datetime
from zoneinfo import ZoneInfo

from bench import Bench
from cronsim import CronSim
from idle import processor, resident, statements
from scheduler_load import Player, enter_from_soon
from scheduler_report import AtLeast, AtMost, Line, Rounds, rates

from tenure import Election
from tenure.triggers import Trigger, cron

EXPRESSIONS = {
    "* * * * *": 2000,
    "*/5 9-17 * * 1-5": 2000,
    "0 * * * *": 2000,
    "30 2 * * *": 1000,
    "0 0 1 * *": 300,
    "0 0 29 2 1": 300,
    "0 0 29 2 *": 20,
    "0 9 * * MON#2": 200,
    "0 0 L * *": 200,
}
ZONES = ("UTC", "Asia/Seoul", "America/New_York")


def idle(bench: Bench) -> None:
    """A node with one job that is due next year."""
    bench.report.topic("An idle scheduler")
    url = bench.database()
    name = url.rpartition("/")[2]
    enter_from_soon(url, [cron("0 0 1 1 *", "UTC")])
    bench.server.execute(f"ALTER DATABASE {name} SET log_statement = 'all'")
    with Player("scheduler_node.py", url, 0) as player:
        player.ready()
        time.sleep(bench.count(40, 10) / 10)
        sent, busy, began = statements(bench.server.log, name), processor(player.pid), time.monotonic()
        time.sleep(bench.count(200, 10) / 10)
        lasted = time.monotonic() - began
        sent, busy = statements(bench.server.log, name) - sent, processor(player.pid) - busy
        ((connections,),) = bench.server.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND application_name LIKE 'tenure:%%'", [name]
        )
        memory = resident(player.pid)
    add = bench.report.add
    add(Line("idle node", rates("connections", [connections], ""), [AtMost("", 3)]))
    add(Line("idle node", rates("statements", [sent / lasted], "/s")))
    add(Line("idle node", rates("processor", [busy / lasted * 3600], "s per hour")))
    add(Line("idle node", rates("memory, Python included", [memory], "MB")))


def triggers(bench: Bench) -> None:
    """Successive due times from 2026-03-05 on, through clock changes; cronsim keeps one iterator, ours is asked for
    each."""
    bench.report.topic("next_after against cronsim")
    for expression, count in EXPRESSIONS.items():
        steps, rounds = bench.count(count, 5), bench.count(5, 2)
        ratio = Rounds(f"`{expression}`", unit="times cronsim")
        rates_ = []
        for zone in ZONES:
            trigger, start = cron(expression, zone), datetime(2026, 3, 5, 12, 7, tzinfo=ZoneInfo(zone))
            measured = [(ours(trigger, start, steps), theirs(expression, start, steps)) for _ in range(rounds)]
            ratio.by[zone] = [mine / other for mine, other in measured]
            rates_.append(
                f"{max(mine for mine, _ in measured):,.0f} against {max(other for _, other in measured):,.0f}"
            )
        ratio.note = f"per second: {', '.join(rates_)}"
        bench.report.add(Line("next_after", ratio, [AtLeast(zone, 1.0) for zone in ZONES]))


def ours(trigger: Trigger, start: datetime, steps: int) -> float:
    """Due times per second."""
    began, due = time.perf_counter(), start
    for _ in range(steps):
        due = trigger.next_after(due) or due
    return steps / (time.perf_counter() - began)


def theirs(expression: str, start: datetime, steps: int) -> float:
    walk, began = CronSim(expression, start), time.perf_counter()
    for _ in range(steps):
        next(walk)
    return steps / (time.perf_counter() - began)


def is_leader(bench: Bench) -> None:
    bench.report.topic("Asking is_leader")
    calls = bench.count(200_000, 1000)
    with Election(bench.file(), "asked") as election:
        assert election.wait_until_leading(10)
        taken = [
            seconds / calls
            for seconds in timeit.repeat(lambda: election.is_leader, number=calls, repeat=bench.count(5, 2))
        ]
    bench.report.add(Line("is_leader", Rounds("per call", unit="ns", by={"": taken}), [AtMost("", 1e-6)]))
