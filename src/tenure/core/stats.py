"""Statistics of runs, for the stores that do not compute them themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tenure.core.messages import JobStats
from tenure.core.records import UNBEGUN, Instant, RunRow, RunState


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


def percentile(values: Sequence[float], part: float) -> float | None:
    """As PostgreSQL's percentile_cont: interpolates between two values."""
    if not values:
        return None
    ordered = sorted(values)
    place = part * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
