"""`tenure jobs`: a line per job, what is wrong with it first."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tenure.cli.jobs import application, changed_by_hand, removed_but_in_code
from tenure.cli.output import RED, YELLOW, as_json, paint, show, table
from tenure.cli.times import ago, here, short
from tenure.core.records import RunState
from tenure.jobs.queries import Overview
from tenure.scheduler import service_of
from tenure.util.durations import readable
from tenure.util.instants import moment
from tenure.views import JobView, StatsView

BAD = {"orphaned", "failing", "late"}
"""Standings that are shown in red."""
FILTERS = ("failing", "late", "paused", "orphaned")
SORTS = ("name", "next", "last", "failures")
EXPLAINED = 5
"""How many jobs that were changed or removed by hand are explained."""


@dataclass(frozen=True, slots=True)
class JobLine:
    """One job, and how it does."""

    job: JobView
    seen: Overview
    now: datetime

    @property
    def standings(self) -> list[str]:
        """All that is wrong with it or keeps it from running, the worst first; else its state."""
        found = [
            (self.job.state, self.job.state not in {"active", "done"}),
            ("orphaned", bool(self.seen.orphaned)),
            ("late", self.seen.late),
            ("failing", self.failures > 0),
        ]
        return [word for word, holds in found if holds] or [self.job.state]

    @property
    def failures(self) -> int:
        return 0 if self.seen.outcome is None else self.seen.outcome.failures

    @property
    def last_at(self) -> float:
        return 0.0 if self.seen.outcome is None else self.seen.outcome.at

    def cells(self) -> list[str | paint]:
        standing = self.standings[0]
        colour = RED if standing in BAD else YELLOW if standing in {"paused", "removed"} else ""
        return [
            self.job.name,
            paint(standing, colour),
            self._last(),
            self._next(),
            trigger_of(self.job) + (" (changed)" if self.job.changed_at is not None else ""),
        ]

    def _last(self) -> str | paint:
        found = self.seen.outcome
        if found is None:
            return ""
        when = ago(moment(found.at), self.now)
        if found.state is RunState.SUCCEEDED:
            return f"ok {when}"
        many = f", {found.failures} in a row" if found.failures > 1 else ""
        return paint(f"{found.state} {when}{many}", RED)

    def _next(self) -> str:
        if self.job.paused_until is not None:
            return f"resumes {short(self.job.paused_until, self.now)}"
        return short(self.job.next_due, self.now)

    def as_dict(self) -> dict[str, Any]:
        found = self.seen.outcome
        outcome = None
        if found is not None:
            outcome = {
                "run": found.run,
                "state": found.state.value,
                "at": moment(found.at),
                "reason": found.reason,
                "failures": found.failures,
                "since": None if found.since is None else moment(found.since),
            }
        return {
            **self.job.as_dict(),
            "standing": self.standings[0],
            "late": self.seen.late,
            "orphaned": self.seen.orphaned,
            "outcome": outcome,
        }


def trigger_of(job: JobView) -> str:
    """The first sentence about the trigger, without where elapsed time is counted from if that is the usual."""
    first = job.trigger.split(". ")[0].rstrip(".")
    return first.removesuffix(" of elapsed time, counted from 1970-01-01 00:00:00 UTC") or "on request"


def jobs(arguments: argparse.Namespace) -> int:
    """List jobs: all, or those that match."""
    if arguments.names and not any(getattr(arguments, name) for name in FILTERS):
        return _names(arguments)
    with application(arguments) as scheduler:
        lookup = service_of(scheduler).lookup
        selected = {"tag": arguments.tag, "queue": arguments.queue}
        with service_of(scheduler).ledger() as ledger:
            now, alive = moment(ledger.now()), bool(lookup.coverage(ledger).nodes)
            found = lookup.overview(ledger, arguments.job, **selected)
            lines = [JobLine(view, seen, now) for view, seen in found]
            wanted = [name for name in FILTERS if getattr(arguments, name)]
            lines = [line for line in lines if not wanted or any(word in wanted for word in line.standings)]
            lines.sort(key=_ORDERS[arguments.sort])
            stats: dict[str, StatsView] = {}
            if arguments.stats or arguments.json:
                stats = {job.name: figures for job, figures in lookup.figures(ledger)}
    if arguments.json:
        as_json([{**line.as_dict(), "stats": _plain(stats.get(line.job.name))} for line in lines])
    elif arguments.names:
        for line in lines:
            show(line.job.name)
    elif not found:
        show(
            "no jobs yet: a node that starts adds the jobs that its code defines" if _all(arguments) else "no such jobs"
        )
    elif not lines:
        show("no such jobs")
    elif arguments.stats:
        header = ["job", "runs", "failed", "took p50", "p99", "late p50", "p99"]
        table(header, [_figures(line.job.name, stats.get(line.job.name)) for line in lines])
    else:
        table(["job", "state", "last run", f"next, {here()}", "trigger"], [line.cells() for line in lines], spare=1)
        _by_hand([line.job for line in lines])
    if arguments.orphaned and not alive and not arguments.json and not arguments.names:
        show(paint(f"no node of {scheduler.application!r} is alive, so none of its jobs runs", RED))
    return 0


def _names(arguments: argparse.Namespace) -> int:
    """Only the names, with one question. Shells call this to complete them."""
    with application(arguments) as scheduler:
        lookup = service_of(scheduler).lookup
        rows = service_of(scheduler).look(
            lambda ledger: lookup.rows(ledger, arguments.job, tag=arguments.tag, queue=arguments.queue)
        )
    for row in rows:
        show(row.spec.name)
    return 0


def _all(arguments: argparse.Namespace) -> bool:
    return arguments.job is arguments.tag is arguments.queue is None


_ORDERS: dict[str, Callable[[JobLine], Any]] = {
    "name": lambda line: line.job.name,
    "next": lambda line: (line.job.next_due is None, line.job.next_due or line.now, line.job.name),
    "last": lambda line: (-line.last_at, line.job.name),
    "failures": lambda line: (-line.failures, line.job.name),
}


def _figures(name: str, stats: StatsView | None) -> list[str]:
    if stats is None:
        return [name, "0", "", "", "", "", ""]
    measured = (stats.duration_p50, stats.duration_p99, stats.lateness_p50, stats.lateness_p99)
    return [
        name,
        str(stats.runs),
        str(stats.failed or ""),
        *("" if figure is None else readable(figure) for figure in measured),
    ]


def _plain(stats: StatsView | None) -> dict[str, Any] | None:
    return None if stats is None else stats.as_dict()


def _by_hand(jobs: list[JobView]) -> None:
    """Explain the jobs that do not simply run what the code says."""
    found = [job for job in jobs if job.changed_at is not None or job.state == "removed"]
    for job in found[:EXPLAINED]:
        show(removed_but_in_code(job) if job.state == "removed" else changed_by_hand(job))
    if len(found) > EXPLAINED:
        show(f"… and {len(found) - EXPLAINED} more that were changed or removed by hand: `tenure show JOB`")
