"""Changes of jobs and runs on SQLite: change, sync, request, cancel (G4).

The caller owns the connection's transaction: it is the ledger's own, or that of a user who wants the change to commit
together with other work. The write lock of the file is the lock of every row.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace

from tenure.core import run_rules
from tenure.core.backfills import JOB_REMOVED
from tenure.core.keys import due_key
from tenure.core.messages import Action, JobChange, NewRun, RunRequest
from tenure.core.records import UNBEGUN, Change, JobId, JobRow, JobSpec, JobState, RunId, RunKind, RunRow
from tenure.core.run_rules import Sync
from tenure.stores.row_checks import storable
from tenure.stores.sqlite import attempts as sqlite_attempts
from tenure.stores.sqlite import figures as sqlite_figures
from tenure.stores.sqlite.rows import (
    Micros,
    definition,
    execute,
    execute_many,
    instant,
    job_row,
    micros,
    micros_or_none,
    run_row,
)


def job(connection: sqlite3.Connection, application: str, name: str) -> JobRow | None:
    """A job, even if it is removed."""
    found = execute(connection, "job", application=application, name=name).fetchone()
    return job_row(found) if found else None


def change(connection: sqlite3.Connection, change: JobChange, now: Micros) -> JobRow | None:
    """Change a job, as `Ledger.change` specifies."""
    row = job(connection, change.application, change.name)
    there = row is not None and row.state is not JobState.REMOVED
    again = row is not None and row.state is JobState.DONE and not row.spec.in_code
    if there is (change.what is Change.ADDED) and not (there and again):
        return None
    if change.generation is not None and (row is None or row.generation != change.generation):
        return None
    if row is not None and change.what is Change.RESUMED and row.state is not JobState.PAUSED:
        return row
    after = _move(connection, row, change, now)
    _link(connection, after.id)
    follows = row is not None and row.spec.rules.after is not None  # then nothing of it is only proposed
    behind = json.dumps([job_id for (job_id,) in execute(connection, "behind", id=after.id)])
    if behind != "[]":
        for follows_it in ("end_skipped_behind",) if follows else ("withdraw_behind", "end_skipped_behind"):
            execute(connection, follows_it, id=after.id, now=now, behind=behind)
    for proposals in ("end_skipped",) if follows else ("withdraw", "withdraw_skipped", "end_skipped"):
        execute(connection, proposals, id=after.id, now=now)
    if after.state in {JobState.ACTIVE, JobState.DONE} or change.what in {Change.PAUSED, Change.REMOVED}:
        runs = run_rules.not_forgotten(change.runs, after.kept_since, instant(now))
        insert(connection, [(after.id, change.application, after.generation, runs)], now)
    if change.what is Change.REMOVED:
        sqlite_attempts.keep_of_job(connection, after.id)
        execute(connection, "cancel_removed", id=after.id, now=now)
        _cancel_backfills(connection, after.id, change, now)
    elif change.what is Change.PAUSED:
        execute(connection, "skip_paused", id=after.id, now=now)
    execute(connection, "restamp", id=after.id, generation=after.generation)
    execute(
        connection,
        "note_change",
        id=after.id,
        now=now,
        what=change.what,
        by=storable(change.by),
        why=storable(change.why),
        until=micros_or_none(change.until),
    )
    note_action(connection, change.application, change.name, change.action, now=now)
    return job(connection, change.application, change.name)


def _cancel_backfills(connection: sqlite3.Connection, job_id: JobId, change: JobChange, now: Micros) -> None:
    """A job was removed, and its runs that have not begun are cancelled."""
    execute(connection, "settle_removed", id=job_id)
    said = {"application": change.application, "by": storable(change.by), "why": JOB_REMOVED}
    execute(connection, "cancel_removed_backfills", id=job_id, now=now, **said)


def _link(connection: sqlite3.Connection, job_id: JobId) -> None:
    """A job was added or defined anew. The runs of its parent that have not begun owe it a run."""
    execute(connection, "get_followed", id=job_id)
    for (parent,) in execute(connection, "new_parent", id=job_id).fetchall():
        execute(connection, "get_followed", id=parent)
        execute(connection, "begin_owing", id=parent)


def _move(connection: sqlite3.Connection, row: JobRow | None, change: JobChange, now: Micros) -> JobRow:
    """Write the changed row of the job."""
    job_id: JobId | None = None
    if row is not None:
        job_id, generation = row.id, row.generation + 1
    else:
        (last,) = execute(connection, "last_generation", application=change.application).fetchone()
        generation = last + 1
    added = change.what is Change.ADDED
    if added or change.what is Change.UPDATED:
        columns = definition(_spec(change), change.override)
        if job_id is None:
            cursor = execute(
                connection, "add_job", application=change.application, name=change.name, now=now, **columns
            )
            job_id = JobId(int(cursor.lastrowid or 0))
        else:
            execute(connection, "define_job", id=job_id, added=added, now=now, **columns)
    state = {Change.PAUSED: JobState.PAUSED, Change.REMOVED: JobState.REMOVED}.get(change.what, JobState.ACTIVE)
    pause = change.until, storable(change.by), storable(change.why)
    next_due, reading = change.next_due, change.next_reading
    if row is not None and change.what is Change.UPDATED and row.state is JobState.PAUSED:
        state, pause = row.state, (row.paused_until, row.paused_by, row.paused_why)
    if row is not None and change.what is Change.PAUSED:
        next_due, reading = row.next_due, row.next_reading
    paused = state is JobState.PAUSED
    execute(
        connection,
        "move_job",
        id=job_id,
        state=state,
        generation=generation,
        next_due=None if state is JobState.REMOVED else micros_or_none(next_due),
        next_reading=None if state is JobState.REMOVED else reading,
        since=now if change.what is Change.RESUMED else None,
        paused_until=micros_or_none(pause[0]) if paused else None,
        paused_by=pause[1] if paused else "",
        paused_why=pause[2] if paused else "",
        removed_at=now if change.what is Change.REMOVED else None,
        removed_by=storable(change.by) if change.what is Change.REMOVED else "",
    )
    execute(connection, "add_lane", id=job_id)
    execute(connection, "take_lane", id=job_id)
    return job_row(execute(connection, "job", application=change.application, name=change.name).fetchone())


def sync(
    connection: sqlite3.Connection, rows: dict[str, JobRow], release: int, changes: Sequence[JobChange], now: Micros
) -> bool:
    """Bring the jobs defined in code, as `Ledger.sync` specifies. `rows` exist already. False if nothing
    had to change."""
    changed = False
    for one, what in to_sync(rows, release, changes, now):
        spec = replace(_spec(one), release=release)
        if what in {Sync.RAISE, Sync.LEAVE}:
            execute(connection, "see_defined", id=rows[one.name].id, now=now)
        if what is Sync.RAISE:
            newer = run_rules.raised(rows[one.name], spec)
            execute(connection, "raise_release", id=rows[one.name].id, release=newer.release, tzdata=newer.tzdata)
        elif what is not Sync.LEAVE:
            said = Change.ADDED if what is Sync.ADD else Change.UPDATED
            change(connection, replace(one, what=said, spec=spec, generation=None), now)
            changed = True
    return changed


def to_sync(
    rows: dict[str, JobRow], release: int, changes: Iterable[JobChange], now: Micros
) -> list[tuple[JobChange, Sync]]:
    """The changes that make a difference. LEAVE: only record that code still defines the job."""
    found: list[tuple[JobChange, Sync]] = []
    for one in changes:
        spec, row = replace(_spec(one), release=release), rows.get(one.name)
        what = run_rules.synced(row, spec, release)
        if what is Sync.RAISE and row is not None and run_rules.raised(row, spec) == row.spec:
            what = Sync.LEAVE
        if what is not Sync.LEAVE or (row is not None and run_rules.must_be_seen(row, instant(now))):
            found.append((one, what))
    return found


def insert(
    connection: sqlite3.Connection, planned: Iterable[tuple[JobId, str, int, Sequence[NewRun]]], now: Micros
) -> int:
    """Insert due times, by job, application and generation, whose keys do not exist yet. Returns how many.

    They are written in the order of due times: runs that are claimed together then lie together, in few pages of the
    file.
    """
    due = [(new, job, application, generation) for job, application, generation, runs in planned for new in runs]
    due.sort(key=lambda one: one[0].due_at)
    for new, job, _, _ in due:
        sqlite_figures.touch(connection, job, micros(new.scheduled_for), now)
    return execute_many(
        connection,
        "insert_run",
        (
            (
                job,
                application,
                due_key(new.scheduled_for),
                new.state.value,
                generation,
                micros(new.scheduled_for),
                micros(new.due_at),
                micros_or_none(new.expires_at),
                new.reason,
                new.count,
                micros_or_none(new.until),
            )
            for new, job, application, generation in due
        ),
    )


def note_action(
    connection: sqlite3.Connection,
    application: str,
    target: str,
    action: Action | None,
    *,
    now: Micros,
    run: RunId | None = None,
) -> None:
    """Record what a person does. Every operation that carries an action calls this, in its own transaction."""
    if action is None:
        return
    said = {word: storable(text) for word, text in asdict(action).items()}
    execute(connection, "note_action", application=application, target=storable(target), run=run, now=now, **said)


def request_run(
    connection: sqlite3.Connection, request: RunRequest, now: Micros, noted: set[tuple[str, str]] | None = None
) -> RunRow | None:
    """Insert a requested run, as `Ledger.request_runs` specifies. `noted`: the jobs of this call whose action is
    recorded already."""
    kind = RunKind.BACKFILL if request.backfill else RunKind.MANUAL
    there = {"application": request.application, "name": request.name, "key": request.key}
    due = now if request.scheduled_for is None else micros(request.scheduled_for)
    inserted = execute(
        connection,
        "request_run",
        **there,
        kind=kind,
        scheduled_for=due,
        now=now,
        slot=None if request.slot is None else storable(request.slot),
        kwargs=request.kwargs,
        by=storable(request.by),
        traceparent=request.traceparent or None,
        remembered=request.backfill and not request.even_forgotten,
    ).rowcount
    found = execute(connection, "run_by_key", **there).fetchone()
    if found is None and request.slot is not None:
        return _in_slot(connection, request, due, now)
    if found is None and not request.backfill:
        found = execute(connection, "kept_key", **there).fetchone()
    if found is None or not (inserted or request.backfill):
        return run_row(found) if found else None
    row = run_row(found)
    sqlite_figures.touch(connection, row.job, due, now)
    if not inserted:
        if not run_rules.reopens(row.state, row.count):
            return None
        reopen(connection, row.id, now, request.by, request.kwargs, traceparent=request.traceparent)
    noted = set() if noted is None else noted
    if (whose := (request.application, request.name)) not in noted:
        noted.add(whose)
        note_action(connection, *whose, request.action, now=now, run=None if request.backfill else row.id)
    return row if inserted else _run(connection, row.id)


def _in_slot(connection: sqlite3.Connection, request: RunRequest, due: Micros, now: Micros) -> RunRow | None:
    """The run that has the slot of a request already, after it."""
    slot = storable(request.slot or "")
    found = execute(connection, "in_slot", application=request.application, name=request.name, slot=slot).fetchone()
    if found is None:
        return None
    row = run_row(found)
    if request.if_waiting == "keep":
        return row
    later = max(due, micros(row.scheduled_for)) if request.if_waiting == "later" else due
    said = {"by": storable(request.by), "kwargs": request.kwargs, "traceparent": request.traceparent or None}
    execute(connection, "replace_in_slot", id=row.id, scheduled_for=later, now=now, **said)
    note_action(connection, request.application, request.name, request.action, now=now, run=row.id)
    return _run(connection, row.id)


def retry(
    connection: sqlite3.Connection,
    runs: Sequence[RunId],
    by: str,
    *,
    now: Micros,
    action: Action | None = None,
    traceparent: str = "",
) -> tuple[list[RunRow | None], list[str]]:
    """Reopen runs, as `Ledger.retry` specifies. Also returns the applications in which something can begin."""
    answers: list[RunRow | None] = []
    reopened: dict[tuple[str, str], list[RunId]] = {}
    for wanted in runs:
        row = _run(connection, wanted)
        if (
            row is None
            or not run_rules.retries(row.state, row.count)
            or not reopen(connection, wanted, now, by, traceparent=traceparent)
        ):
            answers.append(None)
            continue
        answers.append(_run(connection, wanted))
        (application,) = execute(connection, "application", id=wanted).fetchone()
        reopened.setdefault((application, row.name), []).append(wanted)
    for (application, name), ids in reopened.items():
        note_action(connection, application, name, action, now=now, run=ids[0] if len(ids) == 1 else None)
    return answers, list(dict.fromkeys(application for application, _ in reopened))


def reopen(
    connection: sqlite3.Connection, wanted: RunId, now: Micros, by: str, kwargs: str | None = None, *, traceparent: str
) -> bool:
    """Reopen a final run. False if its job is removed."""
    execute(connection, "touch_hour_of_run", id=wanted, before=now - sqlite_figures.LONG_AGO)
    said = {"by": storable(by), "kwargs": kwargs, "traceparent": traceparent or None}
    return execute(connection, "reopen", id=wanted, now=now, **said).rowcount == 1


def cancel(
    connection: sqlite3.Connection,
    runs: Sequence[RunId],
    by: str,
    why: str,
    *,
    now: Micros,
    action: Action | None = None,
) -> tuple[list[RunRow | None], list[str]]:
    """Cancel runs, or request that they end. Also returns the applications in which something has changed."""
    said = storable(run_rules.cancelled_by(by, why))
    ended: dict[tuple[str, str], list[RunId]] = {}
    for wanted in runs:
        before = _run(connection, wanted)
        if before is None or before.state.final:
            continue
        if before.state in UNBEGUN:
            sqlite_attempts.keep(connection, [wanted])
        if execute(connection, "cancel", id=wanted, why=said, now=now).rowcount == 0:
            execute(connection, "ask_one_to_end", id=wanted, why=said)
        (application,) = execute(connection, "application", id=wanted).fetchone()
        ended.setdefault((application, before.name), []).append(wanted)
    for (application, name), ids in ended.items():
        noted, only = run_rules.cancellation(action, ids)
        note_action(connection, application, name, noted, now=now, run=only)
    return [_run(connection, wanted) for wanted in runs], list(dict.fromkeys(application for application, _ in ended))


def _run(connection: sqlite3.Connection, wanted: RunId) -> RunRow | None:
    found = execute(connection, "run", id=wanted).fetchone()
    return run_row(found) if found else None


def _spec(change: JobChange) -> JobSpec:
    if change.spec is None:
        raise ValueError(f"the change of job {change.name!r} ({change.what}) has no spec. Give it one.")
    return change.spec
