"""Looks for what is wrong or surprising in the definitions of an application: `tenure check`. Asks no database."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from tenure.core.arguments import decode
from tenure.errors import ConfigurationError
from tenure.jobs.decorators import Definition, Definitions
from tenure.jobs.functions import bind
from tenure.triggers import At, ClockChange, Trigger
from tenure.util.durations import readable, written
from tenure.util.plurals import counted

HERD = 10
"""So many jobs in one minute are a herd."""
AHEAD = timedelta(days=1)
"""For how long herds are looked for."""
PER_JOB = 24
"""How many due times of one job are looked at."""
RARE = timedelta(minutes=5)
"""Jobs that are due more often than this belong to no herd: they are due all the time."""
HERDS = 3
"""How many herds are told of."""
NAMED = 5
"""How many jobs a sentence names."""
SECONDS_EACH = 10.0
"""The suggested spread gives each job of a herd this long …"""
SPREADS = (60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0)
"""… in one of these lengths, at most half of the shortest time between two due times."""
SOON = timedelta(days=400)
"""How far ahead clock changes are told."""
AROUND = timedelta(hours=4)
"""Before and after a clock change …"""
OFTEN = 7
"""… a job that is due this often runs hourly or more, which no clock change alters much."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong, or a warning."""

    kind: str
    """A stable word: 'definition', 'arguments', 'never_due', 'unknown_parent', 'unserved_queue', 'clock_change',
    'herd', …"""
    wrong: bool
    """False for a warning."""
    jobs: tuple[str, ...]
    text: str

    def as_dict(self) -> dict[str, Any]:
        """Only texts and lists."""
        level = "error" if self.wrong else "warning"
        return {"level": level, "kind": self.kind, "jobs": list(self.jobs), "text": self.text}


def problems(definitions: Definitions, queues: Sequence[str] | None, now: datetime) -> list[Problem]:
    """What is wrong first, then warnings. `queues` are those that the process serves; None: all."""
    jobs = definitions.jobs
    found: list[Problem] = []
    names = {job.name for job in jobs}
    for job in jobs:
        found += _of_one(job, queues, now)
        if job.rules.after is not None and job.rules.after not in names:
            found.append(_without_parent(job, names))
    found += _clock_changes(jobs, now)
    found += _herds(jobs, now)
    return sorted(found, key=lambda problem: not problem.wrong)


def _of_one(job: Definition, queues: Sequence[str] | None, now: datetime) -> Iterator[Problem]:
    name, rules = job.name, job.rules
    if job.trigger is not None or rules.after is not None:
        try:
            bind(job.function, decode(job.kwargs))
        except ConfigurationError as error:
            yield Problem("arguments", True, (name,), f"{name}: {error}")
    if job.trigger is not None:
        try:
            due = job.trigger.next_after(now)
        except ConfigurationError as error:
            yield Problem("never_due", True, (name,), f"{name}: {error}")
            return
        if due is None and isinstance(job.trigger, At):
            yield Problem("past", False, (name,), f"{name}: its due time has passed. {job.trigger.explain()}")
        elif due is None:
            yield Problem("never_due", True, (name,), f"{name} is never due: {job.trigger.explain()}")
        gap = _shortest_gap(job.trigger, now)
        if gap is not None and (late := rules.spread + rules.jitter) >= gap:
            yield Problem(
                "spread",
                False,
                (name,),
                f"{name}: spread and jitter are {readable(late)} together, and it is due every {readable(gap)}: a run "
                "may begin after the next one is due. Write less.",
            )
    if queues is not None and rules.queue not in queues:
        serves = ", ".join(map(repr, queues)) or "none"
        yield Problem(
            "unserved_queue",
            False,
            (name,),
            f"{name} is on the queue {rules.queue!r}, and this scheduler serves {serves}: other processes must run it.",
        )


def _without_parent(job: Definition, names: Iterable[str]) -> Problem:
    """It follows a job that the code does not define: a job added at run time, or a mistake."""
    parent = job.rules.after or ""
    near = difflib.get_close_matches(parent, [name for name in names if name != job.name], 1)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    text = (
        f"{job.name} follows {parent!r}, which this code does not define: it must have been added at run time.{meant}"
    )
    return Problem("unknown_parent", bool(near), (job.name,), text)


def _shortest_gap(trigger: Trigger, now: datetime) -> float | None:
    """Seconds between the two next due times that are nearest to each other."""
    times = _next(trigger, now)
    return min(((after - before).total_seconds() for before, after in pairwise(times)), default=None)


def _next(trigger: Trigger, now: datetime, count: int = PER_JOB, until: datetime | None = None) -> list[datetime]:
    times: list[datetime] = []
    try:
        due = trigger.next_after(now)
        while due is not None and len(times) < count and (until is None or due < until):
            times.append(due)
            due = trigger.next_after(due)
    except ConfigurationError:
        pass  # told of above
    return times


# Clock changes


def _clock_changes(jobs: Iterable[Definition], now: datetime) -> Iterator[Problem]:
    """Jobs that do not simply run as always when the clocks change."""
    surprised: dict[str, list[str]] = defaultdict(list)
    first: dict[str, datetime] = {}
    for job in jobs:
        for change in _changes(job.trigger, now):
            text = _told(change)
            surprised[text].append(job.name)
            first[text] = change.at
    for text in sorted(surprised, key=lambda text: first[text].timestamp()):
        names = tuple(surprised[text])
        yield Problem("clock_change", False, names, f"{_few(names)}: {text}")


def _changes(trigger: Trigger | None, now: datetime) -> Iterator[ClockChange]:
    """The clock changes of the next year that alter when it runs: there and back again."""
    seen: set[datetime] = set()
    for change in trigger.changes(now) if trigger is not None else ():
        seen.add(change.at)
        if len(seen) > 2 or change.at - now > SOON:  # noqa: PLR2004 - there and back again
            return
        if change.effect.startswith(("No due time", "Closed then")) or trigger is None:
            continue
        at = change.at.astimezone(UTC)
        if len(_next(trigger, at - AROUND, OFTEN, at + AROUND)) < OFTEN:
            yield change


def _told(change: ClockChange) -> str:
    """'Sun 25 Oct 2026 03:00 → 02:00 (Europe/Berlin): 02:30 comes twice: it runs the first time only'."""
    after = change.at.replace(tzinfo=None, fold=0)
    before = after - change.by
    zone = getattr(change.at.tzinfo, "key", change.at.tzinfo)
    return f"{before:%a} {before.day} {before:%b %Y %H:%M} → {after:%H:%M} ({zone}): {change.effect.rstrip('.')}"


# Herds


def _herds(jobs: Iterable[Definition], now: datetime) -> Iterator[Problem]:
    """Many jobs that are due in the same minute, the largest herds first."""
    minutes: dict[datetime, list[Definition]] = defaultdict(list)
    zone: dict[datetime, datetime] = {}
    for job in jobs:
        if job.trigger is None or job.rules.spread >= SPREADS[0]:
            continue
        times = _next(job.trigger, now, PER_JOB, now + AHEAD)
        if any(after - before < RARE for before, after in pairwise(times)):
            continue
        for minute in dict.fromkeys(time.replace(second=0, microsecond=0) for time in times):
            key = minute.astimezone(now.tzinfo)
            minutes[key].append(job)
            zone.setdefault(key, minute)
    told: list[frozenset[str]] = []
    for at, herd in sorted(minutes.items(), key=lambda item: (-len(item[1]), item[0])):
        names = frozenset(job.name for job in herd)
        if len(names) < HERD or len(told) == HERDS:
            return
        if any(names <= larger for larger in told):
            continue
        told.append(names)
        when = zone[at]
        listed = tuple(job.name for job in herd)
        yield Problem(
            "herd",
            False,
            listed,
            f"{counted(len(names), 'job')} are due in the same minute, next at {when:%a %H:%M %Z}: {_few(listed)}. "
            f"spread={_suggested(herd, now)!r} on each starts them one after the other.",
        )


def _suggested(herd: Sequence[Definition], now: datetime) -> str:
    gaps = [gap for job in herd if job.trigger is not None and (gap := _shortest_gap(job.trigger, now))]
    most = min(gaps, default=SPREADS[-1]) / 2
    wanted = min(len(herd) * SECONDS_EACH, most)
    return written(next((spread for spread in SPREADS if spread >= wanted and spread <= most), SPREADS[0]))


def _few(names: Sequence[str]) -> str:
    few = ", ".join(names[:NAMED])
    return few if len(names) <= NAMED else f"{few} and {len(names) - NAMED:,} more"
