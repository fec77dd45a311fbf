"""Which due times are overdue: past their grace, although no attempt has begun and nothing explains it.

`status`, `audit` and `attention()` share this rule; the first two end with exit code 1 if it holds for a due time.
This is the one list of what explains an open due time that is past its grace:

  overlap     its run is WAITING
  paused      its job is PAUSED; its runs have no lane
  begun       an attempt has begun: it runs, waits for a retry, or looks again later (`NotYet`)
  requested   a user asked for it (`run_now`, a backfill): it takes its turn, however long the queue is

`explanation` says so of a run. `Ledger.overdue` leaves out the same runs, in SQL (`overdue_runs`).
"""

from __future__ import annotations

from tenure.core.records import Instant, Rules, RunKind, RunRow, RunState

SLACK = 15.0
"""Seconds after the grace until a due time counts as overdue: live nodes resolve what they missed in less."""


def latest_start(due: Instant, rules: Rules) -> Instant:
    """When the grace of a due time is over. Spread and jitter are within their bounds, and not computed."""
    return due + rules.spread + rules.jitter + rules.on_time


def explanation(run: RunRow, *, paused: bool) -> str:
    """What explains that this run has not begun in time; '' if nothing does."""
    if run.state is RunState.WAITING:
        return "pool" if run.pool else "overlap"
    if paused:
        return "paused"
    if run.state is RunState.RUNNING or run.attempt:
        return "begun"
    return "requested" if run.kind is RunKind.MANUAL or run.by else ""
