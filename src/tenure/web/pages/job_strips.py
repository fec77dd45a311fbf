"""A job with its last runs: a line of the list of jobs, and the head of its own page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, tzinfo

from tenure.core.messages import RunQuery
from tenure.core.records import UNBEGUN, JobRow, RunRow, RunState
from tenure.stores.ledger import Ledger
from tenure.util.instants import moment
from tenure.views import JobView
from tenure.web.ledger_reads import LedgerReads

STRIP = 60
"""Runs of a strip."""


@dataclass(frozen=True, slots=True)
class JobStrip:
    """A job in the list, with its last runs, the newest first."""

    job: JobView
    runs: tuple[RunRow, ...]
    zone: tzinfo

    @property
    def last(self) -> RunRow | None:
        """The last run that ended by running."""
        return next((run for run in self.runs if run.state in _RAN), None)

    @property
    def last_at(self) -> datetime | None:
        """When that was."""
        last = self.last
        return None if last is None else moment(last.finished_at or last.due_at, self.zone)

    @property
    def typical(self) -> float | None:
        """The median duration, in seconds."""
        durations = self.durations
        return durations[len(durations) // 2] if durations else None

    @property
    def durations(self) -> list[float]:
        """Seconds, ascending."""
        return sorted(
            max(run.finished_at - run.started_at, 0.0) for run in self.runs if run.finished_at and run.started_at
        )

    @property
    def lateness(self) -> float | None:
        """The longest time that one of these runs began after it was allowed to."""
        began = [run.started_at - run.due_at for run in self.runs if run.started_at and run.state not in UNBEGUN]
        return max(0.0, *began) if began else None

    @property
    def success(self) -> tuple[int, int]:
        """How many of those that ran succeeded, and how many ran."""
        ran = [run for run in self.runs if run.state in _RAN]
        return sum(run.state is RunState.SUCCEEDED for run in ran), len(ran)


_RAN = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.LOST})


def strip_of(reads: LedgerReads, ledger: Ledger, row: JobRow, now: float) -> JobStrip:
    """A job with its last runs."""
    lookup = reads.lookup
    query = RunQuery(reads.application, row.spec.name, before=now, limit=STRIP)
    return JobStrip(lookup.shown_job(row, now), tuple(ledger.runs(query)), lookup.zone(row))
