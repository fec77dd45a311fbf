"""Runs of jobs that follow other jobs, on SQLite (G4). `follow_up` needs the connection to have the write lock."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from tenure.core import run_rules
from tenure.core.messages import ClaimedRun, FollowedRun, FollowedUp, OwedRun
from tenure.core.records import JobId, JobRow, JobState, RunId, RunKind, RunState
from tenure.stores.row_checks import storable
from tenure.stores.sqlite import figures as sqlite_figures
from tenure.stores.sqlite.rows import (
    Micros,
    count_of,
    execute,
    execute_many,
    instant,
    instant_or_none,
    job_row,
    kind_of,
    micros,
    run_row,
    run_state,
    text_or_none,
)


class _Owing(NamedTuple):
    """A row of `owed`: a run of a parent that is over."""

    job: JobId
    name: str
    id: RunId
    key: str
    kind: str
    state: str
    scheduled_for: Micros
    finished_at: Micros | None
    attempt: int
    reason: str
    due_times: int
    until: Micros | None
    by: str


def follow_up(connection: sqlite3.Connection, application: str, limit: int, now: Micros) -> FollowedUp:
    """Give followers the runs that they are owed, as `Ledger.follow_up` specifies."""
    following: dict[JobId, list[JobRow]] = {}
    taken: dict[JobId, int] = {}
    paid: list[tuple[RunId]] = []
    begins = more = False
    for run in map(_Owing._make, execute(connection, "owed", application=application).fetchall()):
        taken[run.job] = taken.get(run.job, 0) + 1
        if taken[run.job] > limit:
            more = True
            continue
        if run.job not in following:
            found = execute(connection, "followers", application=application, parent=run.name)
            following[run.job] = [job_row(row) for row in found.fetchall()]
        for follower in following[run.job]:
            state, owes = _follow(connection, application, follower, run, now)
            begins |= state is RunState.PENDING
            more |= owes and state is RunState.SKIPPED
        paid.append((run.id,))
    execute_many(connection, "paid", paid)
    return FollowedUp(len(paid), begins, more)


def _follow(
    connection: sqlite3.Connection, application: str, job: JobRow, run: _Owing, now: Micros
) -> tuple[RunState | None, bool]:
    """Give a follower the run that this run of its parent owes. Returns the state of the run, None if there is nothing
    new, and whether that run owes in turn."""
    rules, state, ended = job.spec.rules, RunState.PENDING, run_state(run.state)
    reason, due = "", kind_of(run.kind) is RunKind.DUE
    if not run_rules.followed(rules.on, ended, count_of(run.attempt)):
        state, reason = RunState.SKIPPED, run_rules.not_followed(run.name, ended, run.reason)
    elif job.state is JobState.PAUSED and due:
        state, reason = RunState.SKIPPED, run_rules.PAUSED
    expires_at = now + micros(rules.on_time) if due and state is RunState.PENDING else None
    written: dict[str, object] = {
        "job": job.id,
        "kind": kind_of(run.kind).value,
        "state": state.value,
        "now": now,
        "expires_at": expires_at,
        "finished_at": now if state is RunState.SKIPPED else None,
        "reason": storable(reason),
        "by": run.by,
    }
    there = {"application": application, "name": job.spec.name, "key": run.key}
    found = execute(connection, "run_by_key", **there).fetchone()
    if found is None:
        more = {"key": run.key, "scheduled_for": run.scheduled_for, "count": run.due_times, "until": run.until}
        if execute(connection, "follow", **written, **more).rowcount < 1:
            return None, False
    else:
        known = run_row(found)
        if not run_rules.follows_again(known, instant_or_none(run.finished_at), state, reason):
            return None, False
        execute(connection, "follow_again", id=known.id, **written)
    sqlite_figures.touch(connection, job.id, run.scheduled_for, now)
    (owes,) = execute(connection, "is_followed", job=job.id, key=run.key).fetchone()
    return state, bool(owes)


def owed(connection: sqlite3.Connection, application: str, limit: int) -> list[OwedRun]:
    """What is owed, as `Ledger.owed` specifies."""
    found = [
        OwedRun(run.name, run.key, instant(run.scheduled_for), instant_or_none(run.finished_at))
        for run in map(_Owing._make, execute(connection, "owed", application=application))
    ]
    return sorted(found, key=lambda one: one.finished_at or one.scheduled_for)[:limit]


def with_parents(
    connection: sqlite3.Connection, application: str, claimed: Sequence[ClaimedRun]
) -> tuple[ClaimedRun, ...]:
    """The claimed runs, each with the run that it follows, and the trigger of the first in the chain."""
    wanted = [(run.rules.after, run.key) for run in claimed if run.rules.after]
    if not wanted:
        return tuple(claimed)
    rows = execute(connection, "parents", application=application, wanted=json.dumps(wanted))
    follow = json.dumps(sorted({run.job for run in claimed if run.rules.after}))
    triggers = dict(execute(connection, "triggers", jobs=follow).fetchall())
    states = {(name, key): (run_state(state), text_or_none(result)) for name, key, state, result in rows}
    return tuple(
        run._replace(
            parent=FollowedRun(name, run.key, *states.get((name, run.key), (None, None))), trigger=triggers.get(run.job)
        )
        if (name := run.rules.after)
        else run
        for run in claimed
    )
