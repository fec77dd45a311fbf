"""Runs: how many a second, and how late.

Ours, the bare driver and APScheduler, each in processes of its own, on fresh databases.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from bench import Bench
from idle import processor
from report import Goal
from scheduler_load import Player, backlog, crowd, endings, enter_from_soon, spread, together, watch, windows
from scheduler_report import AtLeast, AtMost, Line, Rounds, SchedulerReport, latenesses, rates

from harness import scratch
from tenure.triggers import Trigger

NODE, BARE, APSCHEDULER = "scheduler_node.py", "scheduler_bare.py", "peers/apscheduler3.py"
FOUR, TWICE, THRICE = 4, 2, 3


@dataclass(frozen=True, slots=True)
class Case:
    """Jobs that come due, and how late they may begin: p50 and p99 in seconds."""

    what: str
    kind: str
    count: int
    quick: int
    triggers: Callable[[int], list[Trigger]]
    seconds: float
    goals: dict[str, float]

    def within(self, times: float, why: str = "") -> list[Goal]:
        return [AtMost(name, limit * times, why) for name, limit in self.goals.items()]

    def size(self, bench: Bench) -> int:
        return bench.count(self.count, self.quick)

    def wanted(self, bench: Bench) -> int:
        """Due times of all rounds."""
        each = int(seconds(bench, self)) if self.kind == "spread" else 1
        return self.size(bench) * rounds(bench) * each


AT_1HZ = [
    Case("1,000 jobs at 1 Hz", "spread", 1000, 20, spread, 3.0, {"p50": 0.001, "p99": 0.005}),
    Case("5,000 jobs at 1 Hz", "spread", 5000, 40, spread, 3.0, {"p99": 0.015}),
]
INSTANT = Case("1,000 jobs due at one instant", "together", 1000, 20, together, 2.0, {"p99": 0.025})
CASES = [*AT_1HZ, INSTANT]


def at_1hz(bench: Bench) -> None:
    bench.report.topic("Lateness, one node")
    for case in cases(bench, AT_1HZ):
        one_node(bench, case)


def instant(bench: Bench) -> None:
    bench.report.topic("Lateness, all at one instant, one node")
    one_node(bench, INSTANT)


def one_node(bench: Bench, case: Case) -> None:
    bench.report.say(f"  {case.what}: ours, the bare driver, APScheduler …")
    ours, lost = late(bench, case, bench.database())
    limit = late_bare(bench, case)
    peer = late_apscheduler(bench, case) if case.count <= 1000 else None
    bench.report.add(Line("lateness, one node", ours, case.within(1), limit=limit, peer=peer))
    bench.report.add(Line("due times that did not run, one node", lost, [AtMost("", 0)]))


def four_nodes(bench: Bench) -> None:
    bench.report.topic("Lateness, four nodes")
    for case in cases(bench, CASES):
        bench.report.say(f"  {case.what} …")
        ours, lost = late(bench, case, bench.database(), nodes=FOUR)
        bench.report.add(Line("lateness, four nodes", ours, case.within(TWICE)))
        bench.report.add(Line("due times that did not run, four nodes", lost, [AtMost("", 0)]))


def sqlite(bench: Bench) -> None:
    bench.report.topic("SQLite, one node")
    report = bench.report
    assert isinstance(report, SchedulerReport)
    for case in cases(bench, CASES):
        report.say(f"  {case.what} …")
        ours, lost = late(bench, case, bench.file())
        postgres = report.found("lateness, one node", case.what)
        known = postgres is not None and all(postgres.has(name) for name in case.goals)
        bounds = {name: postgres.statistic(name) for name in case.goals} if postgres and known else case.goals
        why = "three times PostgreSQL in this run" if known else "three times PostgreSQL's goal"
        goals: list[Goal] = [AtMost(name, bound * THRICE, why) for name, bound in bounds.items()]
        report.add(Line("lateness, SQLite", ours, goals))
        report.add(Line("due times that did not run, SQLite", lost, [AtMost("", 0)]))
    report.say("  a backlog …")
    ours = flow(bench, "1,000 jobs, every minute of an hour", backlog_of(bench), bench.file)
    postgres = report.found("no-op runs per second, one node", ours.what)
    bound = postgres.statistic("") if postgres and postgres.has("") else 20_000
    goals = [AtLeast("", bound / THRICE, "a third of PostgreSQL")]
    report.add(Line("no-op runs per second, SQLite", ours, goals))


def late(bench: Bench, case: Case, url: str, nodes: int = 1) -> tuple[Rounds, Rounds]:
    """Ours, and how many due times of the rounds did not succeed, by the ledger."""
    since, wanted = enter_from_soon(url, case.triggers(case.size(bench))), case.wanted(bench)
    with ExitStack() as stack:
        players = [stack.enter_context(Player(NODE, url, 0)) for _ in range(nodes)]
        begun, bounds = watch(
            players,
            warm=warm(bench),
            rounds=rounds(bench),
            seconds=seconds(bench, case),
            since=since,
            over=lambda begin, end: ended(endings(url, begin, end)) >= wanted,
        )
    stand = endings(url, bounds[0], bounds[-1])
    stand["not planned"] = wanted - stand.total()
    others = ", ".join(f"{count:,} {state}" for state, count in sorted(stand.items()) if count and state != "succeeded")
    lost = rates(
        case.what, [float(wanted - stand["succeeded"])], "", f"of {wanted:,}" + (f": {others}" if others else "")
    )
    return latenesses(case.what, windows(begun, bounds)), lost


def ended(stand: Counter[str]) -> int:
    return stand.total() - stand["pending"] - stand["running"]


def late_bare(bench: Bench, case: Case) -> Rounds:
    """The due times are written before: a claim at each instant, and nothing else."""
    url = bench.database()
    length = rounds(bench) * seconds(bench, case)
    since = enter_from_soon(url, case.triggers(case.size(bench)), length + 10.0)
    with Player(BARE, url, 0) as player:
        begun, bounds = watch([player], warm=1.0, rounds=rounds(bench), seconds=seconds(bench, case), since=since)
    return latenesses("psycopg claiming and ending", windows(begun, bounds))


def late_apscheduler(bench: Bench, case: Case) -> Rounds:
    with Player(APSCHEDULER, bench.database(), case.kind, case.size(bench)) as player:
        begun, bounds = watch([player], warm=warm(bench), rounds=rounds(bench), seconds=seconds(bench, case))
    late_by = windows(begun, bounds)
    return latenesses("PostgreSQL", late_by, f"{sum(map(len, late_by)):,} of {case.wanted(bench):,} ran")


def backlog_of(bench: Bench) -> Callable[[str], int]:
    return lambda url: backlog(url, bench.count(1000, 20), bench.count(60, 10))


def many(bench: Bench) -> None:
    """A backlog, from the first claim to the last ending."""
    bench.report.topic("No-op runs per second, one node")
    bench.report.say("  ours, the bare driver, APScheduler …")
    jobs = bench.count(10_000, 200)
    peer = rates("PostgreSQL, 1,000 jobs due once", apscheduler(bench), "/s")
    for what, prepare in {
        "1,000 jobs, every minute of an hour": backlog_of(bench),
        "10,000 jobs with the default policies, due once": lambda url: crowd(url, jobs),
    }.items():
        ours = flow(bench, what, prepare, bench.database)
        limit = flow(bench, "psycopg claiming and ending", prepare, bench.database, BARE)
        bench.report.add(Line("no-op runs per second, one node", ours, [AtLeast("", 20_000)], limit=limit, peer=peer))


def flow(
    bench: Bench, what: str, prepare: Callable[[str], int], place: Callable[[], str], script: str = NODE
) -> Rounds:
    """Runs per second of a few rounds, each in a fresh place."""
    values, count = [], 0
    spent: list[Counter[str]] = []
    for _ in range(bench.count(3, 1)):
        url = place()
        count = prepare(url)
        with Player(script, url, count) as player:
            player.ready()
            before = server_time(bench)
            told = player.hear()
            server = server_time(bench) - before
        assert told["runs"] == count, f"{what}: {told['runs']} of {count} ran"
        values.append(count / (told["ended"] - told["began"]))
        spent.append(Counter(told["busy"]) + Counter({"server": max(server, 0.0)}))
        bench.report.say(f"    {what}: {values[-1]:,.0f}/s")
    parts = {part: statistics.median(one[part] for one in spent) / count * 1e6 for part in spent[0]}
    shown = ", ".join(f"{part} {used:.1f}" for part, used in sorted(parts.items()) if used >= 0.1)
    return rates(what, values, "/s", f"{count:,} runs; processor, µs per run: {shown}")


def server_time(bench: Bench) -> float:
    """Seconds of processor of the server's processes that are there now."""
    assert bench.server.process
    used = 0.0
    for pid in scratch.children(bench.server.process.pid):
        with suppress(OSError):  # ended meanwhile: an autovacuum worker
            used += processor(pid)
    return used


def apscheduler(bench: Bench) -> list[float]:
    values = []
    for _ in range(bench.count(3, 1)):
        with Player(APSCHEDULER, bench.database(), "due", bench.count(1000, 20)) as player:
            player.ready()
            told = player.hear()
        values.append(told["runs"] / (told["ended"] - told["began"]))
    return values


def warm(bench: Bench) -> float:
    return bench.count(20, 5) / 10


def cases(bench: Bench, of: list[Case]) -> list[Case]:
    """A quick run leaves out the case that differs by its count alone."""
    return [case for case in of if case.count <= bench.count(5000, 1000)]


def rounds(bench: Bench) -> int:
    return bench.count(3, 1)


def seconds(bench: Bench, case: Case) -> float:
    return case.seconds if case.kind == "together" or not bench.quick else 1.0
