"""Runs a cluster for a long time and looks for growth.

`python3 dev.py soak [--minutes 20] [--rate 1500] [--snapshot 120]`

Three nodes, one PostgreSQL with its default settings, retention of one minute. Every ten seconds it notes what could
grow: rows, the age of the oldest run, memory, threads, descriptors, connections, lateness. At the end it compares the
second fifth of the time with the last one. Counts that grew fail the run; times are printed beside their limits and
never do.

`--snapshot N` holds a transaction open for N seconds in the middle, as pg_dump does: dead rows cannot be vacuumed
meanwhile. A whole run writes docs/proof/soak.md (with a snapshot: soak-snapshot.md); `--quick` takes six seconds and
writes nothing.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

# The servers of the tests: real ones, ended with the run.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))

import psycopg
from report import machine
from scheduler_load import EPOCH, Player, enter_from_soon

from harness.postgres import Postgres
from tenure.triggers import Trigger, every

ROOT = Path(__file__).resolve().parents[1]
NODES, PHASES = 3, 50
KEEP_FOR, KEEP = 60.0, 10
SAMPLE_EVERY = 10.0
QUICK = 6.0


@dataclass(frozen=True)
class Sample:
    """What was seen at one moment."""

    at: float
    """Seconds since the nodes were ready."""
    runs: int
    """Bodies that began since the last sample …"""
    seconds: float
    """… so long ago."""
    p50: float
    p99: float
    rows: int
    oldest: float
    """Age of the oldest run, in seconds."""
    dead: int
    """Dead rows of the table of runs, as the server estimates them."""
    memory: float
    """Of the largest node, in MB."""
    threads: int
    descriptors: int
    connections: int
    held: bool
    """Whether the snapshot was open."""


@dataclass
class Limit:
    """A figure of the second fifth of the run beside that of the last one."""

    what: str
    before: float
    after: float
    limit: float
    counts: bool = True
    """Fails the run; times do not."""
    unit: str = ""

    @property
    def met(self) -> bool:
        return self.after <= self.limit

    def cells(self) -> tuple[str, ...]:
        verdict = "met" if self.met else "MISSED" if self.counts else "missed"
        return self.what, shown(self.before), shown(self.after), f"≤ {shown(self.limit)}{self.unit}", verdict


@dataclass
class Soak:
    """One run."""

    server: Postgres
    url: str
    minutes: float
    rate: int
    snapshot: float
    sample_every: float = SAMPLE_EVERY
    samples: list[Sample] = field(default_factory=list)
    skipped: int = 0

    def watch(self, players: Sequence[Player]) -> None:
        """Sample until the time is over; hold a snapshot in the middle if one is wanted."""
        began, length = time.monotonic(), self.minutes * 60
        opens = length / 2 - self.snapshot / 2
        for player in players:
            player.ask()  # what began while the nodes joined is not counted
        with psycopg.connect(self.url, autocommit=True) as looking, psycopg.connect(self.url) as holding:
            while (at := time.monotonic() - began) < length:
                due = (math.floor(at / self.sample_every) + 1) * self.sample_every
                time.sleep(min(due, length) - at)
                at = time.monotonic() - began
                held = self.snapshot > 0 and opens <= at < opens + self.snapshot
                if held and holding.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
                    holding.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                    holding.execute("SELECT 1 FROM tenure.run LIMIT 1")
                if not held:
                    holding.rollback()
                self.samples.append(self.sample(at, players, looking, held=held))
                print(line(self.samples[-1]), flush=True)
            ((self.skipped,),) = looking.execute("SELECT count(*) FROM tenure.run WHERE state = 'skipped'").fetchall()

    def sample(self, at: float, players: Sequence[Player], looking: psycopg.Connection, *, held: bool) -> Sample:
        late = sorted(one for player in players for one in player.ask()["late"])
        ((rows, oldest, dead, connections),) = looking.execute(
            """
            SELECT (SELECT count(*) FROM tenure.run),
                   (SELECT coalesce(extract(epoch FROM now() - min(scheduled_for)), 0) FROM tenure.run),
                   (SELECT n_dead_tup FROM pg_stat_user_tables WHERE schemaname = 'tenure' AND relname = 'run'),
                   (SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'tenure:%')
            """
        ).fetchall()
        status = [facts_of(player.pid) for player in players]
        return Sample(
            at=at,
            runs=len(late),
            seconds=at - (self.samples[-1].at if self.samples else 0.0),
            p50=percentile(late, 0.5),
            p99=percentile(late, 0.99),
            rows=rows,
            oldest=float(oldest),
            dead=dead,
            memory=max(memory for memory, _, _ in status),
            threads=max(threads for _, threads, _ in status),
            descriptors=max(descriptors for _, _, descriptors in status),
            connections=connections,
            held=held,
        )

    def limits(self) -> list[Limit]:
        """Counts are level within a tenth: they move with the saw-tooth of retention and of autovacuum, and no
        further."""
        second, last = self.fifth(1), self.fifth(4)

        def level(
            what: str, of: Callable[[Sample], float], slack: float, *, counts: bool = True, unit: str = ""
        ) -> Limit:
            before, after = mean(of, second), mean(of, last)
            return Limit(what, before, after, before * 1.1 + slack, counts, unit)

        runs = sum(one.runs for one in self.samples) / max(self.samples[-1].at, 1)
        return [
            Limit("due times that did not run", 0, self.rate - runs, self.rate * 0.01, unit=" per second"),
            Limit("runs skipped", 0, self.skipped, self.rate * self.minutes * 60 * 0.001),
            level("rows in the table of runs", lambda s: s.rows, self.rate * 10),
            Limit(
                "age of the oldest run",
                mean(lambda s: s.oldest, second),
                max(s.oldest for s in last),
                KEEP_FOR * 2,
                unit=" s",
            ),
            level("memory of a node", lambda s: s.memory, 2, unit=" MB"),
            level("threads of a node", lambda s: s.threads, 1),
            level("descriptors of a node", lambda s: s.descriptors, 1),
            level("connections of all nodes", lambda s: s.connections, 1),
            level("lateness, p50", lambda s: s.p50 * 1000, 2, counts=False, unit=" ms"),
            level("lateness, p99", lambda s: s.p99 * 1000, 10, counts=False, unit=" ms"),
        ]

    def fifth(self, which: int) -> list[Sample]:
        length = self.samples[-1].at
        return [one for one in self.samples if which * length / 5 < one.at <= (which + 1) * length / 5]

    def phases(self) -> list[tuple[str, list[Sample]]]:
        """Stretches of the run for the table: tenths, or before, during and after the snapshot."""
        if not self.snapshot:
            step = self.samples[-1].at / 10
            parts = [[s for s in self.samples if n * step < s.at <= (n + 1) * step] for n in range(10)]
            return [(f"up to {part[-1].at / 60:.0f} min", part) for part in parts if part]
        held = [one for one in self.samples if one.held]
        half = len(held) // 2
        return [
            ("before the snapshot", [one for one in self.samples if held and one.at < held[0].at]),
            ("its first half", held[:half]),
            ("its second half", held[half:]),
            ("the minute after", [one for one in self.samples if held and held[-1].at < one.at <= held[-1].at + 60]),
            ("later", [one for one in self.samples if held and one.at > held[-1].at + 60]),
        ]

    def report(self) -> str:
        facts = machine()
        command = f"python3 dev.py soak --minutes {self.minutes:g} --rate {self.rate}" + (
            f" --snapshot {self.snapshot:g}" if self.snapshot else ""
        )
        lines = [
            "# Soak: " + ("a snapshot held open" if self.snapshot else "nothing grows"),
            "",
            f"`{command}`: {NODES} nodes, {self.rate} jobs due every second in {PHASES} phases, `keep_for` {KEEP_FOR:g} s, `keep` {KEEP}.",
            "",
            *(f"- {name}: {value}" for name, value in facts.items()),
            "",
            "| figure | second fifth | last fifth | limit | |",
            "|---|---|---|---|---|",
            *("| " + " | ".join(limit.cells()) + " |" for limit in self.limits()),
            "",
            "| | runs/s | lateness p50 ms | p99 ms | rows | dead rows | oldest run s | memory MB | threads | descriptors |",
            "|---|---|---|---|---|---|---|---|---|---|",
        ]
        for name, part in self.phases():
            if part:
                figures = (
                    sum(s.runs for s in part) / sum(s.seconds for s in part),
                    mean(lambda s: s.p50 * 1000, part),
                    mean(lambda s: s.p99 * 1000, part),
                    mean(lambda s: s.rows, part),
                    mean(lambda s: s.dead, part),
                    max(s.oldest for s in part),
                    mean(lambda s: s.memory, part),
                    max(s.threads for s in part),
                    max(s.descriptors for s in part),
                )
                lines.append(f"| {name} | " + " | ".join(map(shown, figures)) + " |")
        return "\n".join(lines) + "\n"


def facts_of(pid: int) -> tuple[float, int, int]:
    """Memory in MB, threads and descriptors of a process."""
    said = dict(one.split(":", 1) for one in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in one)
    memory = int(said["VmRSS"].split()[0]) / 1024
    return memory, int(said["Threads"]), len(list(Path(f"/proc/{pid}/fd").iterdir()))


def percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else 0.0


def mean(of: Callable[[Sample], float], samples: Sequence[Sample]) -> float:
    return statistics.fmean(map(of, samples)) if samples else 0.0


def shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.1f}"


def line(sample: Sample) -> str:
    held = "  snapshot held" if sample.held else ""
    return (
        f"{sample.at:6.0f} s  {sample.runs / sample.seconds:7,.0f} runs/s  late p50 {sample.p50 * 1000:6.1f} p99 {sample.p99 * 1000:7.1f} ms"
        f"  rows {sample.rows:9,}  dead {sample.dead:8,}  oldest {sample.oldest:4.0f} s  {sample.memory:5.1f} MB"
        f"  {sample.threads} threads  {sample.descriptors} fds{held}"
    )


def triggers(rate: int) -> list[Trigger]:
    """Jobs that are due every second, in phases spread over it."""
    return [every(seconds=1, anchor=EPOCH + timedelta(seconds=(index % PHASES) / PHASES)) for index in range(rate)]


def main() -> int:
    parser = argparse.ArgumentParser(description="Run a cluster for a long time and look for growth.")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--rate", type=int, default=1500, help="runs per second (default 1500)")
    parser.add_argument("--snapshot", type=float, default=0.0, help="hold a transaction open for so many seconds")
    parser.add_argument("--quick", action="store_true", help="six seconds, to see that everything works")
    parser.add_argument("--out", type=Path, help="where to write the report (default: docs/proof)")
    options = parser.parse_args()
    if options.quick:
        options.minutes, options.rate = QUICK / 60, 100
    if options.snapshot > options.minutes * 60:
        parser.error(f"--snapshot {options.snapshot:g} is longer than the run. Write at most {options.minutes * 60:g}.")
    with Postgres(fsync=True) as server, ExitStack() as stack:
        url = server.create_database()
        enter_from_soon(url, triggers(options.rate))
        players = [stack.enter_context(Player("soak_node.py", url, KEEP_FOR, KEEP)) for _ in range(NODES)]
        for player in players:
            player.ready()
        sample_every = QUICK / 6 if options.quick else SAMPLE_EVERY
        soak = Soak(server, url, options.minutes, options.rate, options.snapshot, sample_every)
        soak.watch(players)
        for player in players:
            player.end()
    print("\n" + soak.report())
    if folder := options.out or (None if options.quick else ROOT / "docs" / "proof"):
        (folder / ("soak-snapshot.md" if options.snapshot else "soak.md")).write_text(soak.report())
    return int(any(limit.counts and not limit.met for limit in soak.limits()) and not options.quick)


if __name__ == "__main__":
    sys.exit(main())
