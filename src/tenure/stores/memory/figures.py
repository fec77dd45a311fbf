"""Figures by hour and by day in memory: the readable reference. The caller holds the mutex."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tenure.core import figures
from tenure.core.figures import DAY, HOUR, NO_FIGURES, CountedRun, Figures, FiguresRow
from tenure.core.messages import CountedHours
from tenure.core.records import Instant, JobId, JobRow
from tenure.stores.memory.tables import KeptFigures, MemoryRun, Tables


def count_hours(
    tables: Tables, application: str, now: Instant, *, since: Instant | None, beyond: JobId, jobs: int
) -> CountedHours:
    """As `Ledger.count_hours` specifies."""
    marked = tables.counted_up_to.get(application, 0.0) if since is None else since
    start = min(marked, (now // HOUR - 1) * HOUR)
    page = sorted(row.id for row in tables.of(application) if row.id > beyond)[:jobs]
    runs = changed = 0
    for job in page:
        kept = tables.figures[job]
        old = kept.touched | {hour for hour, known in kept.hours.items() if known.open}
        counted, written = _count(tables, job, start, now, {hour for hour in old if hour < start})
        runs, changed = runs + counted, changed + written
        kept.touched.clear()
    return CountedHours(start, page[-1] if len(page) == jobs else None, runs, changed)


def _count(tables: Tables, job: JobId, start: Instant, end: Instant, old: Collection[Instant]) -> tuple[int, int]:
    """Count a job's hours between two instants, and these older ones. Returns how many runs and changes there were."""
    kept = tables.figures[job]

    def among(hour: Instant, at: Instant) -> bool:
        return (start <= at < end or hour in old) and hour // DAY * DAY not in kept.days

    runs = [run for run in tables.keys[job].values() if among(_hour(run), run.scheduled_for)]
    found = figures.count(map(_counted, runs))
    before = {hour: known for hour, known in kept.hours.items() if among(hour, hour)}
    for hour in before.keys() - found.keys():
        del kept.hours[hour]
    kept.hours.update(found)
    changed = sum(before.get(hour) != found.get(hour) for hour in before.keys() | found.keys())
    return sum(known.due for known in found.values()), changed


def keep(tables: Tables, removed: Iterable[MemoryRun]) -> None:
    """Keep the figures of runs that were just removed."""
    hours: dict[tuple[JobId, Instant], list[MemoryRun]] = {}
    for run in removed:
        hours.setdefault((run.job, _hour(run)), []).append(run)
    for (job, hour), runs in hours.items():
        kept = tables.figures[job]
        if hour // DAY * DAY not in kept.days:
            (known,) = figures.count(map(_counted, runs)).values()
            kept.removed[hour] = kept.removed.get(hour, NO_FIGURES) + known
        _count(tables, job, hour, hour + HOUR, ())


def close_days(tables: Tables, application: str, *, before: Instant, oldest: Instant, limit: int) -> int:
    """As `Ledger.close_days` specifies."""
    done = 0
    for row in tables.of(application):
        kept = tables.figures[row.id]
        stays = {hour // DAY * DAY for hour, known in kept.hours.items() if known.open}
        over = {hour // DAY * DAY for hour in {*kept.hours, *kept.removed} if hour < before // DAY * DAY} - stays
        for day in sorted(over)[: limit - done]:
            parts = [table.pop(day + i * HOUR, NO_FIGURES) for i in range(24) for table in (kept.hours, kept.removed)]
            kept.days[day] = figures.total(parts)
            done += 1
        for day in [day for day in kept.days if day < oldest][: limit - done]:
            del kept.days[day]
            done += 1
    return done


def hours(tables: Tables, row: JobRow | None, since: Instant, before: Instant) -> list[FiguresRow]:
    """The figures of a job by hour."""
    if row is None:
        return []
    kept = tables.figures[row.id]
    starts = sorted(hour for hour in {*kept.hours, *kept.removed} if since <= hour < before)
    return [FiguresRow(row.id, hour, _of(kept, hour)) for hour in starts]


def days(tables: Tables, row: JobRow | None, since: Instant, before: Instant) -> list[FiguresRow]:
    """The figures of a job by day."""
    if row is None:
        return []
    over = [FiguresRow(row.id, day, known) for day, known in tables.figures[row.id].days.items()]
    young = hours(tables, row, *figures.whole_days(since, before))
    return figures.by_day([*(one for one in over if since <= one.start < before), *young])


def totals(tables: Tables, rows: Iterable[JobRow], since: Instant) -> dict[str, Figures]:
    """The figures of jobs since an instant."""
    found = {row.spec.name: hours(tables, row, since, float("inf")) for row in rows}
    return {name: figures.total(one.figures for one in known) for name, known in found.items() if known}


def counts_by_queue(tables: Tables, rows: Iterable[JobRow], since: Instant) -> dict[str, Figures]:
    """How many runs of jobs ended how since an instant, by the queues of their jobs."""
    found: dict[str, Figures] = {}
    for row in rows:
        for one in hours(tables, row, since, float("inf")):
            queue = row.spec.rules.queue
            found[queue] = found.get(queue, NO_FIGURES) + one.figures
    return {queue: figures.only_counts(known) for queue, known in found.items()}


def _of(kept: KeptFigures, hour: Instant) -> Figures:
    return kept.hours.get(hour, NO_FIGURES) + kept.removed.get(hour, NO_FIGURES)


def _hour(run: MemoryRun) -> Instant:
    return run.scheduled_for // HOUR * HOUR


def _counted(run: MemoryRun) -> CountedRun:
    return CountedRun(run.scheduled_for, run.state, run.reason, run.count, run.due_at, run.started_at, run.finished_at)
