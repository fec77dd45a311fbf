"""Figures by hour and by day on SQLite. The caller has begun a transaction; what writes needs the write lock."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from tenure.core import figures
from tenure.core.figures import COUNTS, NO_FIGURES, CountedRun, Figures, FiguresRow, written_buckets
from tenure.core.records import JobId
from tenure.stores.row_checks import figures_of, figures_row
from tenure.stores.sqlite.rows import Micros, execute, execute_many, instant, instant_or_none, micros, run_state

HOUR, DAY = 3_600_000_000, 86_400_000_000
LONG_AGO = 600_000_000
"""A run that is inserted or reopened so long after its due time: its hour may have been counted for the last time."""


def start_of(connection: sqlite3.Connection, application: str, now: Micros) -> Micros:
    """Where the next pass begins."""
    found = execute(connection, "counted_up_to", application=application).fetchone()
    return min(found[0] if found else 0, now // HOUR * HOUR - HOUR)


def differences(
    connection: sqlite3.Connection, jobs: Sequence[JobId], start: Micros, now: Micros
) -> tuple[int, dict[JobId, dict[Micros, Figures | None]], list[JobId]]:
    """How many runs there are, which hours of which jobs are not what their figures say, with what they should be, and
    the jobs with touched hours."""
    runs, differing, touched = 0, {}, []
    for job in jobs:
        marked = {hour for (hour,) in execute(connection, "touched_hours", job=job)}
        old = {hour for (hour,) in execute(connection, "open_hours", job=job)} | marked
        spans = [(start, now), *((hour, hour + HOUR) for hour in sorted(old) if hour < start)]
        counted, changed = _differing(connection, job, spans)
        runs += counted
        if changed:
            differing[job] = changed
        if marked:
            touched.append(job)
    return runs, differing, touched


def _differing(
    connection: sqlite3.Connection, job: JobId, spans: Sequence[tuple[Micros, Micros]]
) -> tuple[int, dict[Micros, Figures | None]]:
    there: dict[Micros, Figures] = {}
    before: dict[Micros, Figures] = {}
    for since, end in spans:
        period = {"job": job, "since": since, "before": end}
        rows = map(_counted, execute(connection, "runs_to_count", **period))
        there |= {micros(hour): known for hour, known in figures.count(rows).items()}
        for _, hour, *columns in execute(connection, "figures_there", **period):
            before[hour] = figures_of(*columns)
    runs = sum(known.due for known in there.values())
    changed = {hour: there.get(hour) for hour in there.keys() | before.keys() if there.get(hour) != before.get(hour)}
    return runs, {hour: known for hour, known in changed.items() if not _closed(connection, job, hour)}


def _closed(connection: sqlite3.Connection, job: JobId, hour: Micros) -> bool:
    """Whether the day of this hour is one row by now."""
    return execute(connection, "closed_day", job=job, day=hour // DAY * DAY).fetchone() is not None


def write(connection: sqlite3.Connection, application: str, changed: dict[JobId, dict[Micros, Figures | None]]) -> int:
    """Write what differs. Returns how many rows that were."""
    every = [(job, hour, known) for job, hours in changed.items() for hour, known in hours.items()]
    written = ((job, application, hour, 0, *_columns(known)) for job, hour, known in every if known is not None)
    execute_many(connection, "write_hour", written)
    execute_many(connection, "empty_hour", ((job, hour) for job, hour, known in every if known is None))
    return len(every)


def untouch(connection: sqlite3.Connection, jobs: Collection[JobId]) -> None:
    """The touched hours of these jobs are counted."""
    execute_many(connection, "untouch_hours", ((job,) for job in jobs))


def touch(connection: sqlite3.Connection, job: JobId, due: Micros, now: Micros) -> None:
    """A run was inserted."""
    if due < now - LONG_AGO:
        execute_many(connection, "touch_hour", [(job, due // HOUR * HOUR)])


def by_hour_of_run(runs: Sequence[tuple[JobId, tuple[Any, ...]]]) -> dict[tuple[JobId, Micros], list[CountedRun]]:
    """Runs that are about to be removed, by the hours they belong to."""
    hours: dict[tuple[JobId, Micros], list[CountedRun]] = {}
    for job, row in runs:
        run = _counted(row)
        hours.setdefault((job, micros(run.scheduled_for) // HOUR * HOUR), []).append(run)
    return hours


def keep(connection: sqlite3.Connection, application: str, gone: dict[tuple[JobId, Micros], list[CountedRun]]) -> None:
    """Keep the figures of runs that this transaction has removed, and count what is left of their hours."""
    for (job, hour), runs in gone.items():
        if _closed(connection, job, hour):
            continue
        found = execute(connection, "figures_removed", job=job, hour=hour).fetchone()
        before = NO_FIGURES if found is None else figures_of(*found[2:])
        after = before + figures.total(figures.count(runs).values())
        execute_many(connection, "write_hour", [(job, application, hour, 1, *_columns(after))])
        _, changed = _differing(connection, job, [(hour, hour + HOUR)])
        write(connection, application, {job: changed})


def close_days(connection: sqlite3.Connection, application: str, days: Sequence[tuple[JobId, Micros]]) -> None:
    """Make one row of the hours of these days."""
    for job, day in days:
        hours = execute(connection, "hours_of_day", job=job, day=day).fetchall()
        known = figures.total(figures_of(*columns) for _, _, *columns in hours)
        counts, measures = _columns(known)[: len(COUNTS) - 1], _columns(known)[len(COUNTS) :]
        execute_many(connection, "write_day", [(job, application, day, *counts, *measures)])
        execute(connection, "forget_hours", job=job, day=day)


def rows_of(found: Iterator[tuple[Any, ...]]) -> list[FiguresRow]:
    """Rows of figures."""
    return [figures_row((job, instant(start), *columns)) for job, start, *columns in found]


def by_hour(found: Iterator[tuple[Any, ...]]) -> list[FiguresRow]:
    """The figures of hours: what is there, and what was removed, together."""
    hours: dict[float, FiguresRow] = {}
    for row in rows_of(found):
        before = hours.get(row.start)
        hours[row.start] = row if before is None else row._replace(figures=before.figures + row.figures)
    return list(hours.values())


def forget(connection: sqlite3.Connection, jobs: Sequence[JobId], rows: int) -> set[JobId]:
    """Delete at most `rows` figures of these jobs. Returns the jobs with figures left."""
    given = json.dumps(jobs)
    execute(connection, "forget_figures_by_hour", jobs=given, rows=rows)
    execute(connection, "forget_figures_by_day", jobs=given, rows=rows)
    return {JobId(job) for (job,) in execute(connection, "with_figures", jobs=given)}


def _counted(row: tuple[Any, ...]) -> CountedRun:
    scheduled_for, state, reason, count, due_at, started_at, finished_at = row
    return CountedRun(
        instant(scheduled_for),
        run_state(state),
        str(reason),
        count if isinstance(count, int) else 1,
        instant(due_at),
        instant_or_none(started_at),
        instant_or_none(finished_at),
    )


def _columns(known: Figures) -> tuple[object, ...]:
    counts = (getattr(known, name) for name in COUNTS)
    measures = ((one.total, one.most, written_buckets(one.buckets)) for one in (known.late, known.took))
    return (*counts, *(column for measure in measures for column in measure))
