"""Herds: many jobs that are due in the same minute, and a `spread` that keeps them apart.

`tenure check` finds them in definitions, and the page and `tenure load` in the jobs of a store. Pure, and in small
steps: nothing here takes long at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from tenure.core.planning import spread_of
from tenure.core.records import Rules
from tenure.errors import ConfigurationError
from tenure.triggers import Trigger
from tenure.util.instants import instant

HERD = 10
"""Jobs due in one minute from which on they are a herd."""
AHEAD = timedelta(days=1)
"""For how long herds are looked for."""
PER_JOB = 24
"""How many due times of one job are looked at."""
RARE = timedelta(minutes=5)
"""Jobs that are due more often than this belong to no herd: they are due all the time."""
HERDS = 3
"""How many herds are reported."""
SECONDS_EACH = 10.0
"""The suggested spread gives each job of a herd this long …"""
SPREADS = (60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0)
"""… in one of these lengths, at most half of the shortest time between two due times."""
REMEMBERED = 10_000
"""Triggers whose due times are remembered."""
_MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Herd:
    """Jobs that are due in the same minute."""

    at: datetime
    """That minute, the next one, in the zone of the first job."""
    jobs: tuple[str, ...]
    spread: float
    """What to write at each of them, in seconds."""


@dataclass(frozen=True, slots=True)
class _Near:
    """The next due times of a trigger."""

    minutes: tuple[tuple[float, datetime], ...]
    """The minutes in which it is due, if it is rare enough for a herd: their beginnings, and how clocks show them."""
    gap: float | None
    """Seconds between the two that are nearest to each other."""


class HerdFinder:
    """Takes jobs one by one, and then finds their herds, the largest first."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._near: dict[Trigger, _Near] = {}
        self._minutes: dict[float, list[str]] = {}
        self._shown: dict[float, datetime] = {}
        self._gaps: dict[str, float] = {}
        self.found: list[Herd] = []

    def add(self, name: str, trigger: Trigger, rules: Rules) -> int:
        """Look at a job. Returns how many steps that took."""
        if rules.spread >= SPREADS[0]:
            return 1
        near, steps = self._near.get(trigger), 1
        if near is None:
            near, steps = _near(trigger, self._now), PER_JOB
            if len(self._near) < REMEMBERED:
                self._near[trigger] = near
        for minute, shown in near.minutes:
            self._minutes.setdefault(minute, []).append(name)
            self._shown.setdefault(minute, shown)
        if near.gap and near.minutes:
            self._gaps[name] = near.gap
        return steps + len(near.minutes)

    def look(self) -> Iterator[int]:
        """Find the herds among all jobs. Yields how many steps each part took."""
        told: list[frozenset[str]] = []
        for minute, names in sorted(self._minutes.items(), key=lambda item: (-len(item[1]), item[0])):
            if len(names) < HERD or len(told) == HERDS:
                return
            yield len(names)
            herd = frozenset(names)
            if len(herd) < HERD or any(len(herd - larger) < HERD for larger in told):
                continue  # what it has besides a herd that is told of is none by itself
            told.append(herd)
            self.found.append(Herd(self._shown[minute], tuple(dict.fromkeys(names)), self._suggested(names)))

    def _suggested(self, names: Sequence[str]) -> float:
        most = min((self._gaps[name] for name in names if name in self._gaps), default=SPREADS[-1]) / 2
        wanted = min(len(names) * SECONDS_EACH, most)
        fit = [spread for spread in SPREADS if spread <= most] or [SPREADS[0]]
        return next((spread for spread in fit if spread >= wanted), fit[-1])


class SpreadHerd:
    """What the suggested spread makes of a herd: how many of its jobs begin in which minute."""

    def __init__(self, herd: Herd, application: str) -> None:
        self.herd, self._application = herd, application
        self._minutes: Counter[int] = Counter()

    def count(self) -> Iterator[int]:
        """Place each job. Yields how many steps each part took."""
        for name in self.herd.jobs:
            self._minutes[int(spread_of(self._application, name, self.herd.spread) // _MINUTE)] += 1
            yield 1

    @property
    def minutes(self) -> tuple[int, ...]:
        """How many begin in the minute of the herd, in the next one …"""
        return tuple(self._minutes[minute] for minute in range(round(self.herd.spread / _MINUTE)))


def next_times(trigger: Trigger, now: datetime, count: int = PER_JOB, until: datetime | None = None) -> list[datetime]:
    """The next due times, as far as they can be found: what is wrong with a trigger is told elsewhere."""
    times: list[datetime] = []
    try:
        due = trigger.next_after(now)
        while due is not None and len(times) < count and (until is None or due < until):
            times.append(due)
            due = trigger.next_after(due)
    except ConfigurationError:
        pass
    return times


def shortest_gap(trigger: Trigger, now: datetime) -> float | None:
    """Seconds between the two next due times that are nearest to each other."""
    return _gap(next_times(trigger, now))


def _gap(times: Sequence[datetime]) -> float | None:
    return min(((after - before).total_seconds() for before, after in pairwise(times)), default=None)


def _near(trigger: Trigger, now: datetime) -> _Near:
    times = next_times(trigger, now)
    soon = [time for time in times if time < now + AHEAD]
    if any(after - before < RARE for before, after in pairwise(soon)):
        return _Near((), None)
    minutes: dict[float, datetime] = {}
    for time in soon:
        minutes.setdefault(instant(time) // _MINUTE * _MINUTE, time.replace(second=0, microsecond=0))
    return _Near(tuple(minutes.items()), _gap(times))
