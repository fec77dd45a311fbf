"""Backfills on SQLite. What may find nothing to do looks first, without the write lock."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tenure.core.backfills import (
    OVERTAKEN,
    Advanced,
    BackfillRow,
    BackfillState,
    NewBackfill,
    Steer,
    cancelled_because,
    numbered,
    takes,
)
from tenure.core.keys import due_key
from tenure.core.messages import Action
from tenure.core.records import Instant, JobId, JobRow, JobState, RunId, RunKind, RunRow
from tenure.stores.backfill_ledger import BackfillLedger
from tenure.stores.row_checks import storable
from tenure.stores.sqlite import attempts as sqlite_attempts
from tenure.stores.sqlite import changes as sqlite_changes
from tenure.stores.sqlite import figures as sqlite_figures
from tenure.stores.sqlite.part import SqlitePart
from tenure.stores.sqlite.rows import (
    Micros,
    count_of,
    execute,
    execute_many,
    instant,
    instant_or_none,
    micros,
    run_row,
    run_state,
)

_STATES = frozenset(BackfillState)


@dataclass(frozen=True, slots=True)
class _Step:
    """What can be done for a backfill now."""

    row: BackfillRow
    settled: list[tuple[str, int, Micros]]
    """How due times are settled, with the backfill and the due time."""
    left: list[Micros]
    """The due times whose turn may have come."""
    more: bool


class SqliteBackfills(SqlitePart, BackfillLedger):
    """The part of the ledger that keeps backfills."""

    def create_backfill(self, wanted: NewBackfill) -> tuple[int | None, list[RunRow]]:
        with self._write():
            number, runs = create(self._connection, wanted, self._now())
        if runs:
            self._wake(wanted.application)
        return number, runs

    def advance_backfills(self, application: str, limit: int, *, as_of: Instant | None = None) -> Advanced:
        with self._read():
            if not any(step.settled or step.left for step in _steps(self._connection, application, limit)):
                return Advanced()
        begins = more = False
        with self._write():
            now = self._now() if as_of is None else min(self._now(), micros(as_of))
            for step in _steps(self._connection, application, limit):
                runs = _take(self._connection, step, now)
                begins |= bool(runs)
                more |= step.more or (not runs and bool(step.left))  # all of these were overtaken
        if begins:
            self._wake(application)
        return Advanced(begins, more)

    def steer_backfill(
        self, application: str, number: int, steer: Steer, *, by: str, why: str, action: Action | None = None
    ) -> bool:
        with self._write():
            done = _steer(self._connection, application, number, steer, by=by, why=why, now=self._now())
            if done is None:
                return False
            sqlite_changes.note_action(self._connection, application, done.name, action, now=self._now())
        self._wake(application)
        return True

    def backfills(
        self, application: str, *, number: int | None = None, job: str | None = None, limit: int = 100
    ) -> list[BackfillRow]:
        values: dict[str, object] = {"application": application, "job": job, "limit": limit, "number": number}
        with self._read():
            name = "backfills" if number is None else "backfill"
            rows = map(backfill_row, execute(self._connection, name, **values).fetchall())
            return [
                replace(row, counts=dict(execute(self._connection, "backfill_counts", number=row.number).fetchall()))
                for row in rows
                if job in {None, row.name}
            ]

    def forget_backfills(self, application: str, before: Instant, limit: int) -> int:
        values: dict[str, object] = {"application": application, "before": micros(before), "limit": limit}
        with self._read():
            if execute(self._connection, "old_backfills", **values).fetchone() is None:
                return 0
        with self._write():
            old = execute(self._connection, "old_backfills", **values).fetchall()
            execute_many(self._connection, "forget_backfilled", old)
            return execute_many(self._connection, "forget_backfill", old)


def create(connection: sqlite3.Connection, wanted: NewBackfill, now: Micros) -> tuple[int | None, list[RunRow]]:
    """Create a backfill, as `BackfillLedger.create_backfill` specifies."""
    job = sqlite_changes.job(connection, wanted.application, wanted.name)
    if job is None or job.state is JobState.REMOVED:
        return None, []
    keys = json.dumps([due_key(at) for at in wanted.due])
    found = {
        key: (run_state(state), count_of(count))
        for key, state, count in execute(connection, "runs_of_keys", job=job.id, keys=keys)
    }
    due = [at for at in wanted.due if _wants(wanted, job, at, *found.get(due_key(at), (None, 1)))]
    if not due:
        return None, []
    cursor = execute(
        connection,
        "add_backfill",
        application=wanted.application,
        job=job.id,
        name=wanted.name,
        since=micros(wanted.since),
        until=micros(wanted.until),
        include=",".join(wanted.include),
        at_once=wanted.at_once,
        even_forgotten=wanted.even_forgotten,
        by=storable(wanted.by),
        why=storable(wanted.why),
        traceparent=wanted.traceparent or None,
        now=now,
    )
    number = int(cursor.lastrowid or 0)
    execute_many(connection, "add_backfilled", ((number, micros(at), job.id) for at in due))
    action = numbered(wanted.action, number)
    sqlite_changes.note_action(connection, wanted.application, wanted.name, action, now=now)
    return number, _take(connection, _step(connection, _row(connection, wanted.application, number), len(due)), now)


def _wants(backfill: NewBackfill | BackfillRow, job: JobRow, at: Instant, state: Any, count: int) -> bool:
    return takes(backfill.include, state, count, remembered=backfill.even_forgotten or at >= job.kept_since)


def _row(connection: sqlite3.Connection, application: str, number: int) -> BackfillRow:
    return backfill_row(execute(connection, "backfill", application=application, number=number).fetchone())


def _steps(connection: sqlite3.Connection, application: str, limit: int) -> list[_Step]:
    """What can be done for each backfill that is not finished."""
    rows = execute(connection, "unfinished_backfills", application=application).fetchall()
    return [_step(connection, backfill_row(row), limit) for row in rows]


def _step(connection: sqlite3.Connection, row: BackfillRow, limit: int) -> _Step:
    looks = max(limit, row.at_once or 0)  # all that may be open, lest those that take long hold up the others
    ended = execute(connection, "backfill_ended", number=row.number, limit=limit, looks=looks).fetchall()
    settled = [(str(how), row.number, at) for at, how in ended]
    room = _room(connection, row, limit, len(settled))
    left = _left(connection, row, limit) if room > 0 else []
    return _Step(row, settled, left, more=max(len(settled), min(room, len(left))) >= limit)


def _room(connection: sqlite3.Connection, row: BackfillRow, limit: int, settled: int = 0) -> int:
    """How many more of its runs may be open. `settled`: how many of the open ones are over, as is noted later."""
    if row.state is not BackfillState.RUNNING or row.at_once is None:
        return limit if row.state is BackfillState.RUNNING else 0
    (open_,) = execute(connection, "backfill_open", number=row.number).fetchone()
    return min(limit, row.at_once - int(open_) + settled)


def _left(connection: sqlite3.Connection, row: BackfillRow, limit: int) -> list[Micros]:
    return [at for (at,) in execute(connection, "backfill_left", number=row.number, limit=limit)]


def _take(connection: sqlite3.Connection, step: _Step, now: Micros) -> list[RunRow]:
    """Take a step. Returns the runs that it has requested."""
    row, requested = step.row, list[RunRow]()
    execute_many(connection, "settle_backfilled", step.settled)
    job = sqlite_changes.job(connection, row.application, row.name) if step.left else None
    room = _room(connection, row, len(step.left)) if step.left else 0
    for at in step.left:
        if len(requested) >= room:
            break
        run = None if job is None or job.id != row.job else _request(connection, job, row, at, now)
        if run is None:
            execute_many(connection, "settle_backfilled", [(OVERTAKEN, row.number, at)])
        else:
            execute(connection, "take_backfilled", number=row.number, scheduled_for=at, run=run.id)
            requested.append(run)
    execute(connection, "finish_backfill", number=row.number, now=now)
    return requested


def _request(
    connection: sqlite3.Connection, job: JobRow, backfill: BackfillRow, at: Micros, now: Micros
) -> RunRow | None:
    """The run of a due time whose turn has come; None if it was taken by other means."""
    there = {"application": backfill.application, "name": backfill.name, "key": due_key(instant(at))}
    found = execute(connection, "run_by_key", **there).fetchone()
    known = None if found is None else run_row(found)
    state, count = (None, 1) if known is None else (known.state, known.count)
    if not _wants(backfill, job, instant(at), state, count):
        return None
    if known is not None:
        if not sqlite_changes.reopen(connection, known.id, now, backfill.requester, traceparent=backfill.traceparent):
            return None
    else:
        more = {"slot": None, "kwargs": None, "traceparent": backfill.traceparent or None, "remembered": False}
        by = storable(backfill.requester)
        execute(connection, "request_run", **there, **more, kind=RunKind.BACKFILL, scheduled_for=at, now=now, by=by)
        sqlite_figures.touch(connection, job.id, at, now)
    found = execute(connection, "run_by_key", **there).fetchone()
    return None if found is None else run_row(found)


def _steer(
    connection: sqlite3.Connection, application: str, number: int, steer: Steer, *, by: str, why: str, now: Micros
) -> BackfillRow | None:
    """Pause, resume or cancel a backfill. None if it is in no state for it."""
    found = execute(connection, "backfill", application=application, number=number).fetchone()
    if found is None:
        return None
    row = backfill_row(found)
    said = {"by": storable(by), "why": storable(why), "number": number}
    match steer, row.state:
        case Steer.PAUSE, BackfillState.RUNNING if _left(connection, row, 1):
            execute(connection, "move_backfill", state=BackfillState.PAUSED, **said)
        case Steer.RESUME, BackfillState.PAUSED:
            execute(connection, "move_backfill", state=BackfillState.RUNNING, **said)
            running = replace(row, state=BackfillState.RUNNING)
            _take(connection, _step(connection, running, _size(connection, number)), now)
        case Steer.CANCEL, BackfillState.RUNNING | BackfillState.PAUSED:
            execute(connection, "move_backfill", state=BackfillState.CANCELLED, **said)
            execute(connection, "leave_backfilled", number=number)
            _cancel_unbegun(connection, number, storable(cancelled_because(by, why, number)), now)
            cancelled = replace(row, state=BackfillState.CANCELLED)
            _take(connection, _step(connection, cancelled, _size(connection, number)), now)
        case _:
            return None
    return row


def _size(connection: sqlite3.Connection, number: int) -> int:
    """How many due times a backfill has."""
    return sum(count for _, count in execute(connection, "backfill_counts", number=number))


def _cancel_unbegun(connection: sqlite3.Connection, number: int, why: str, now: Micros) -> None:
    runs = [RunId(run) for (run,) in execute(connection, "backfill_unbegun", number=number).fetchall()]
    sqlite_attempts.keep(connection, runs)
    for run in runs:
        execute(connection, "cancel", id=run, why=why, now=now)


def backfill_row(row: Sequence[Any]) -> BackfillRow:
    """A row of a backfill. The file accepts any word for a state; an unknown one counts as cancelled."""
    number, application, job, name, since, until, include, at_once, even_forgotten, state, *rest = row
    by, why, created_at, state_by, state_why, finished_at, traceparent = rest
    return BackfillRow(
        number,
        str(application),
        JobId(job),
        str(name),
        instant(since),
        instant(until),
        tuple(str(include).split(",")),
        None if at_once is None else count_of(at_once),
        bool(even_forgotten),
        BackfillState(state) if state in _STATES else BackfillState.CANCELLED,
        str(by),
        str(why),
        instant(created_at),
        str(state_by),
        str(state_why),
        instant_or_none(finished_at),
        traceparent=str(traceparent or ""),
    )
