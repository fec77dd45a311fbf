"""Statistics of runs, for the stores that do not compute them themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from tenure.core.messages import PLAIN, JobEnds, JobOutcome, JobStats
from tenure.core.records import UNBEGUN, Instant, JobId, RunId, RunRow, RunState


class Began(NamedTuple):
    """The part of a run that the statistics need."""

    state: RunState
    due_at: Instant
    started_at: Instant | None
    finished_at: Instant | None


def stats_of(began: Sequence[RunRow | Began]) -> JobStats:
    """Statistics of runs that began, newest first.

    Lateness is `started_at - due_at`. Runs that wait for a retry are left out, because their `due_at` is already that
    of the retry. A duration is that of the last attempt.
    """
    durations = [r.finished_at - r.started_at for r in began if r.started_at is not None and r.finished_at is not None]
    lateness = [r.started_at - r.due_at for r in began if r.started_at is not None and r.state not in UNBEGUN]
    ended = next((run for run in began if run.state.final), None)
    return JobStats(
        runs=len(began),
        failed=sum(run.state in {RunState.FAILED, RunState.LOST} for run in began),
        duration_p50=percentile(durations, 0.5),
        duration_p99=percentile(durations, 0.99),
        lateness_p50=percentile(lateness, 0.5),
        lateness_p99=percentile(lateness, 0.99),
        last_state=ended.state if ended else None,
        last_at=ended.finished_at if ended else None,
    )


class EndedRun(NamedTuple):
    """The part of a run that ended that an outcome needs."""

    id: RunId
    state: RunState
    scheduled_for: Instant
    finished_at: Instant | None
    reason: str

    @property
    def at(self) -> Instant:
        """When it ended."""
        return self.scheduled_for if self.finished_at is None else self.finished_at


COUNTED = 1000
"""How many failures in a row are counted."""
REASON = 1000
"""Characters of a reason in an outcome: its end, where the error is."""


def outcome_of(name: str, ended: Iterable[EndedRun], recent: int) -> JobOutcome | None:
    """The outcome of a job from its runs that succeeded, failed or were lost, newest first. Reads no further than to
    the last one that succeeded."""
    newest: EndedRun | None = None
    failures, since = 0, None
    for run in islice(ended, COUNTED):
        newest = newest or run
        if run.state is RunState.SUCCEEDED:
            break
        failures, since = failures + 1, run.at if since is None else min(since, run.at)
    if newest is None:
        return None
    reason = newest.reason[-REASON:] if failures else ""
    return JobOutcome(name, newest.id, newest.state, newest.at, reason, failures, since, recent)


class FinalRun(NamedTuple):
    """The part of a final run that its job's deadline needs."""

    state: RunState
    scheduled_for: Instant
    started_at: Instant | None
    finished_at: Instant | None
    missed: Instant | None = None
    """The last due time that it stands for, if it was missed."""


def ends_of(job: JobId, runs: Iterable[FinalRun], failed_at: Instant | None) -> JobEnds:
    """How the newest runs of a job ended, from its final runs, newest first. Reads no further than to the last one that
    succeeded."""
    newest: FinalRun | None = None
    good: FinalRun | None = None
    failures, missed = 0, None
    for run in runs:
        if run.state not in PLAIN:
            missed = missed or (run.missed if newest is None else None)
            continue
        newest = newest or run
        if run.state is RunState.SUCCEEDED:
            good = run
            break
        failures += 1
    duration = None
    if newest is not None and newest.started_at is not None and newest.finished_at is not None:
        duration = newest.finished_at - newest.started_at
    if good is None:
        return JobEnds(job, failed_at=failed_at, failures=failures, duration=duration, missed=missed)
    return JobEnds(job, good.scheduled_for, good.finished_at, failed_at, failures, duration, missed)


def durations_of(runs: Iterable[FinalRun | Began]) -> tuple[int, float | None]:
    """How many of these took a known time, and the 99th percentile of these times."""
    took = [
        run.finished_at - run.started_at
        for run in runs
        if run.state.final and run.started_at is not None and run.finished_at is not None
    ]
    return len(took), percentile(took, 0.99)


def percentile(values: Sequence[float], part: float) -> float | None:
    """As PostgreSQL's percentile_cont: interpolates between two values."""
    if not values:
        return None
    ordered = sorted(values)
    place = part * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
