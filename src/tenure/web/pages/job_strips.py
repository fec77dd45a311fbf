"""A job with its last runs and its figures of a week: a line of the list of jobs, and the head of its own page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo

from tenure.core import figures
from tenure.core.figures import DAY, CountedRun, Figures
from tenure.core.messages import StripRun
from tenure.core.records import Instant, JobRow, RunState
from tenure.stores.ledger import Ledger
from tenure.util.instants import moment
from tenure.views import JobView
from tenure.web.ledger_reads import LedgerReads

STRIP = 60
"""Runs of a strip."""
WEEK = 7 * DAY
"""How far back the figures of the list go."""


@dataclass(frozen=True, slots=True)
class JobStrip:
    """A job in the list, with its last runs, the newest first."""

    job: JobView
    runs: tuple[StripRun, ...]
    zone: tzinfo
    figures: Figures
    """Of a week; where nothing is counted yet, of these runs."""

    @property
    def last(self) -> StripRun | None:
        """The last run that ended by running."""
        return next((run for run in self.runs if run.state in _RAN), None)

    @property
    def last_at(self) -> datetime | None:
        """When that was."""
        last = self.last
        return None if last is None else moment(last.finished_at or last.due_at, self.zone)


_RAN = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.LOST})


def strips_of(reads: LedgerReads, ledger: Ledger, rows: Iterable[JobRow], now: Instant) -> tuple[JobStrip, ...]:
    """Jobs with their last runs and their figures."""
    lookup, shown = reads.lookup, list(rows)
    week = ledger.totals(reads.application, now - WEEK, [row.spec.name for row in shown])
    strips = ledger.strips([row.id for row in shown], now, STRIP)
    found, zones = [], lookup.zones(ledger, shown)
    for row in shown:
        runs = tuple(strips.get(row.id, ()))
        known = week.get(row.spec.name) or _of_runs(runs)
        found.append(JobStrip(lookup.shown_job(ledger, row, now, where=zones[row.id]), runs, zones[row.id], known))
    return tuple(found)


def weeks_of(ledger: Ledger, application: str, rows: Sequence[JobRow], now: Instant) -> dict[str, Figures]:
    """The figures alone, by the names of the jobs."""
    week = ledger.totals(application, now - WEEK, [row.spec.name for row in rows])
    fresh = [row for row in rows if row.spec.name not in week]
    strips = ledger.strips([row.id for row in fresh], now, STRIP) if fresh else {}
    return week | {row.spec.name: _of_runs(strips.get(row.id, ())) for row in fresh}


def _of_runs(runs: Iterable[StripRun]) -> Figures:
    return figures.total(figures.count(map(_counted, runs)).values())


def _counted(run: StripRun) -> CountedRun:
    return CountedRun(run.due_at, run.state, "", 1, run.due_at, run.started_at, run.finished_at)
