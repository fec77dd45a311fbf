"""`tenure load`: what may begin in the next 24 h, hour by hour, and whether the live nodes can take it."""

from __future__ import annotations

import argparse
from datetime import tzinfo

from tenure.cli.jobs import application
from tenure.cli.output import RED, as_json, paint, printed, say, show, table, wrapped
from tenure.core.load import MINUTE, Load
from tenure.core.load_outlook import LATE, Outlook, QueueOutlook, outlook
from tenure.jobs.load_count import LoadCount
from tenure.jobs.load_view import load_as_dict, pool_lines
from tenure.scheduler import service_of
from tenure.util.clock import boottime, walltime
from tenure.util.durations import readable, written
from tenure.util.instants import moment
from tenure.util.plurals import counted, several

BAR = 16
"""Characters of the longest bar."""
NAMED = 5
"""Jobs that a line names."""
CHANGES = 10
"""Effects of clock changes that are listed."""
PROGRESS = 2.0
"""Seconds between two lines of progress."""


def load(arguments: argparse.Namespace) -> int:
    """Count the load ahead. 1 if the live nodes cannot take it."""
    zone = walltime().astimezone().tzinfo or walltime().tzinfo
    assert zone is not None  # noqa: S101 - for mypy: an aware datetime has one
    with application(arguments) as scheduler:
        service = service_of(scheduler)
        count = LoadCount(scheduler.application, service.ledger)
        found = _counted(count)
        with service.ledger() as ledger:
            nodes, pools = ledger.present(scheduler.application), ledger.pools(scheduler.application)
    ahead, lines = outlook(found, nodes, zone), pool_lines(found, pools)
    if arguments.json:
        as_json({"paused": count.paused, **load_as_dict(found, ahead, lines, zone)})
        return 0 if ahead.ok else 1
    _paragraph(ahead.text, wrong=not ahead.ok)
    _paragraph(_about(found, count))
    _hours(found, ahead, zone)
    if len(ahead.queues) > 1:
        show()
        header = ["queue", "due", "most in a minute", "at a time", "slots", "wait"]
        table(header, [_queue(one, found, zone) for one in ahead.queues])
    if lines:
        show()
        header = ["pool", "size", "running", "waiting", "due", "at a time", "wait"]
        rows = [
            [one.pool.name, "1, never set" if one.pool.size is None else str(one.pool.size), str(one.pool.running),
             str(one.pool.waiting), f"{one.due:,}", _share(one.most), _wait(one.longest_wait)]
            for one in lines
        ]  # fmt: skip
        table(header, rows)
    _remarks(found)
    return 0 if ahead.ok else 1


def _counted(count: LoadCount) -> Load:
    tell_at = boottime() + PROGRESS
    while count.advance():
        if boottime() >= tell_at:
            say(f"counted {count.done:,} of {count.total:,} jobs")
            tell_at = boottime() + PROGRESS
    assert count.load is not None  # noqa: S101 - for mypy: it is there when nothing is left to do
    return count.load


def _about(found: Load, count: LoadCount) -> str:
    parts = [counted(found.jobs, "job")]
    if count.paused:
        parts.append(f"{count.paused:,} paused until they are resumed, left out")
    if found.requested:
        parts.append(f"{counted(found.requested, 'run')} requested for later, counted")
    if found.unmeasured:
        parts.append(f"{found.unmeasured:,} with no measured duration, counted as 0 s")
    return "; ".join(parts)


def _hours(found: Load, ahead: Outlook, zone: tzinfo) -> None:
    hours = ahead.hours(zone, found.start)
    most = max((hour.due for hour in hours), default=0)
    name = moment(found.start, zone).tzname() or "local"
    rows: list[list[str | paint]] = [
        [
            f"{hour.at:%a %H:%M}",
            f"{hour.due:,}",
            "█" * -(-BAR * hour.due // most) if most else "",
            f"{hour.most_due:,} at {hour.busiest:%H:%M}" if hour.due else "",
            _share(hour.most_busy),
            paint(_wait(hour.longest_wait), RED if hour.longest_wait >= LATE else ""),
        ]
        for hour in hours
    ]
    show()
    table([f"hour, {name}", "due", "", "most in a minute", "at a time", "wait"], rows)


def _queue(one: QueueOutlook, found: Load, zone: tzinfo) -> list[str | paint]:
    busiest = one.load.busiest
    at = moment(found.start + busiest * MINUTE, zone)
    return [
        one.load.queue,
        f"{one.load.total:,}",
        f"{one.load.starts[busiest]:,} at {at:%a %H:%M}" if one.load.total else "",
        _share(one.most),
        paint("none", RED) if one.unserved else f"{one.slots:,}",
        _wait(one.longest),
    ]


def _remarks(found: Load) -> None:
    lines = []
    for herd in found.herds:
        jobs = herd.herd.herd.jobs
        lines.append(
            f"herd: {counted(len(jobs), 'job')} are due in the same minute, next at {herd.herd.herd.at:%a %H:%M %Z}: "
            f"{several(jobs, NAMED)}; with spread={written(herd.herd.herd.spread)!r} on each, at most "
            f"{max(herd.herd.minutes)} start per minute"
        )
    lines += [
        f"overlapping: {one.job} takes {readable(one.took)}, so {one.held:,} of its {one.due:,} due times "
        f"{'comes' if one.held == 1 else 'come'} while it still runs (overlap={one.overlap!r})"
        for one in found.held_back
    ]
    lines += [f"clock change: {several(one.jobs, NAMED)}: {one.text}" for one in found.clock_changes[:CHANGES]]
    if (more := len(found.clock_changes) - CHANGES) > 0:
        lines.append(f"clock change: {more:,} further effects; --json has them all")
    if found.unreadable:
        lines.append(f"not counted, because no due time can be computed: {several(found.unreadable, NAMED)}")
    if lines:
        show()
    for line in lines:
        _paragraph(line)


def _paragraph(text: str, *, wrong: bool = False) -> None:
    for line in wrapped(text, hang=2):
        printed(line, wrong=wrong)


def _share(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"  # noqa: PLR2004 - one digit


def _wait(seconds: float) -> str:
    return readable(seconds) if seconds else ""
