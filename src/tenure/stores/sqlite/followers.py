"""Runs of jobs that follow other jobs, on SQLite (G4). `follow_up` needs the connection to have the write lock."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from tenure.core import run_rules
from tenure.core.keys import is_generated
from tenure.core.messages import ClaimedRun, FollowedRun, FollowedUp, OwedRun
from tenure.core.records import JobId, JobRow, JobState, RunId, RunKind, RunState
from tenure.stores.ledger import FIRST
from tenure.stores.row_checks import Complaints, storable
from tenure.stores.sqlite import figures as sqlite_figures
from tenure.stores.sqlite.rows import (
    Micros,
    count_of,
    execute,
    execute_many,
    instant,
    instant_or_none,
    is_micros,
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


def page(
    connection: sqlite3.Connection, application: str, limit: int, beyond: JobId, complaints: Complaints
) -> list[_Owing]:
    """The next runs that owe, by parent. Those that cannot be read stay owed."""
    rows = execute(connection, "owed", application=application, beyond=beyond)
    found = list(islice((run for run in map(_Owing._make, rows) if _readable(run, complaints)), limit))
    rows.close()
    return found


def _readable(run: _Owing, complaints: Complaints | None = None) -> bool:
    """True if a run can be followed; otherwise the log says once why not."""
    instants = {"due time": run.scheduled_for, "last due time": run.until or 0, "end": run.finished_at or 0}
    bad = next((f"its {what} is {at!r:.60}" for what, at in instants.items() if not is_micros(at)), "")
    if bad and complaints is not None:
        complaints.tell(run.id, "owed", run.name, f"nothing follows run {run.id}, because {bad}")
    return not bad


class Moment(NamedTuple):
    """When something happens: by the clock, and by the time that the caller goes by."""

    now: Micros
    when: Micros


def follow_up(
    connection: sqlite3.Connection, application: str, owing: Sequence[_Owing], moment: Moment, *, full: bool
) -> FollowedUp:
    """Pay for a page of runs, as `Ledger.follow_up` specifies. There may be more if it is full."""
    following: dict[JobId, list[JobRow]] = {}
    begins = more = beyond = False
    for run in owing:
        if run.job not in following:
            found = execute(connection, "followers", application=application, parent=run.name)
            following[run.job] = [job_row(row) for row in found.fetchall()]
        for follower in following[run.job]:
            state, owes = _follow(connection, application, follower, run, moment)
            begins |= state is RunState.PENDING
            more |= owes and state is RunState.SKIPPED
    execute_many(connection, "paid", ((run.id,) for run in owing))
    if full:
        last = {"application": application, "job": owing[-1].job, "id": owing[-1].id}
        cut, beyond = execute(connection, "owed_after", **last).fetchone()
        more |= bool(cut)
    return FollowedUp(len(owing), begins, more, owing[-1].job if beyond else None)


def _follow(
    connection: sqlite3.Connection, application: str, job: JobRow, run: _Owing, moment: Moment
) -> tuple[RunState | None, bool]:
    """Give a follower the run that this run of its parent owes. Returns the state of the run, None if there is nothing
    new, and whether that run owes in turn."""
    rules, state, ended = job.spec.rules, RunState.PENDING, run_state(run.state)
    reason, due = "", kind_of(run.kind) is RunKind.DUE
    if not run_rules.followed(rules.on, ended, count_of(run.attempt)):
        state, reason = RunState.SKIPPED, run_rules.not_followed(run.name, ended, run.reason)
    elif job.state is JobState.PAUSED and due:
        state, reason = RunState.SKIPPED, run_rules.PAUSED
    expires_at = moment.when + micros(rules.on_time) if due and state is RunState.PENDING else None
    written: dict[str, object] = {
        "job": job.id,
        "kind": kind_of(run.kind).value,
        "state": state.value,
        "due_at": min(moment),
        "expires_at": expires_at,
        "finished_at": moment.when if state is RunState.SKIPPED else None,
        "reason": storable(reason),
        "by": run.by,
    }
    there = {"application": application, "name": job.spec.name, "key": run.key}
    found = execute(connection, "run_by_key", **there).fetchone()
    if found is None:
        more = {"key": run.key, "scheduled_for": run.scheduled_for, "count": run.due_times, "until": run.until}
        more["chosen"] = kind_of(run.kind) is RunKind.MANUAL and not is_generated(run.key)
        if execute(connection, "follow", **written, **more).rowcount < 1:
            return None, False
    else:
        known = run_row(found)
        if not run_rules.follows_again(known, instant_or_none(run.finished_at), state, reason):
            return None, False
        execute(connection, "follow_again", id=known.id, **written)
    sqlite_figures.touch(connection, job.id, run.scheduled_for, moment.when)
    (owes,) = execute(connection, "is_followed", job=job.id, key=run.key).fetchone()
    return state, bool(owes)


def owed(connection: sqlite3.Connection, application: str, limit: int) -> list[OwedRun]:
    """What is owed, as `Ledger.owed` specifies."""
    found = [
        OwedRun(run.name, run.key, instant(run.scheduled_for), instant_or_none(run.finished_at))
        for run in map(_Owing._make, execute(connection, "owed", application=application, beyond=FIRST).fetchall())
        if _readable(run)
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
