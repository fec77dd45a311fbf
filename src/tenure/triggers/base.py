"""What every trigger can do. A trigger is a value: frozen, hashable, without state, and it never reads a clock."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from math import ceil, floor
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tenure.errors import ConfigurationError
from tenure.triggers.zones import (
    CALENDAR_CHANGE,
    DAY,
    EPOCH,
    FIRST,
    LAST,
    Timeline,
    Zone,
    moment,
    reading,
    seconds_of,
    timeline,
)
from tenure.util import instants
from tenure.util.durations import readable

if TYPE_CHECKING:
    from tenure.triggers.combined import Closed, Excluding

VERSION = 1
"""The version of the text form. It is raised if an older tenure could misread what a newer one writes."""

HORIZON = 146_097 * 86_400
"""Seconds in 400 years, after which the Gregorian calendar and the rules of all zones repeat. A date that does not come
within them never comes."""

STEPS = 10_000
"""How many steps one evaluation may take, including nested parts. Steps and not time, so that all nodes agree."""
FAR = 2000
"""How many steps a look more than 400 years ahead counts, for each 400 years."""
MAX_BYTES = 65_536
"""The longest text of a trigger, in bytes."""
MAX_DEPTH = 4
"""How deep unions and exclusions may be nested in each other."""
MAX_PARTS = 1000
"""How many triggers and calendars one trigger may be made of."""
MAX_PREVIEW = 10_000
_SHOWN = 3
"""How many readings a sentence names before it says "more"."""


class OutOfStepsError(Exception):
    """An evaluation has used all of its steps."""


class Steps:
    """The budget of one evaluation, which all parts of a trigger share."""

    __slots__ = ("taken",)

    def __init__(self) -> None:
        self.taken = 0

    def take(self, count: int = 1) -> None:
        self.taken += count
        if self.taken > STEPS:
            raise OutOfStepsError


class Trigger(ABC):
    """A pure rule for when something is due."""

    __slots__ = ()
    kind: ClassVar[str]

    @abstractmethod
    def next_after(self, t: datetime) -> datetime | None:
        """The first due time strictly after `t`, in the trigger's zone; None if there is none."""

    def following(self, instant: float, steps: Steps | None = None) -> float | None:  # noqa: ARG002 - for parts
        """`next_after` in seconds since 1970, for callers that calculate. Adds to `steps` how many it took."""
        due = self.next_after(instants.moment(instant))
        return None if due is None else instants.instant(due)

    def within(self, t: datetime, steps: Steps) -> datetime | None:
        """`next_after` as a part of another trigger, on that trigger's budget."""
        steps.take()
        return self.next_after(t)

    @property
    def zoned(self) -> bool:
        """True if its due times depend on the rules of a zone."""
        return False

    def zone_at(self, due: float | None = None) -> str | None:  # noqa: ARG002 - only if parts have zones of their own
        """The key of the zone in which a due time is written. Without one, and for an instant at which nothing is due,
        that of its first part."""
        key: str | None = getattr(self, "tz", None)
        return key

    def reading(self, due: float) -> int | None:  # noqa: ARG002 - only wall clocks show one
        """The wall-clock reading that a due time stands for, in seconds since 1970; None if only instants count."""
        return None

    def reached(self, reading: int) -> float | None:  # noqa: ARG002
        """The first instant at which the wall clock has shown this reading, or has passed it."""
        return None

    def count(self, start: float, end: float) -> int | None:  # noqa: ARG002 - those that can say it do
        """How many due times there are from `start` on and before `end`; None if only a walk can tell."""
        return None

    @abstractmethod
    def explain(self) -> str:
        """When it is due, in plain words."""

    @abstractmethod
    def in_zone(self, tz: Zone) -> Trigger:
        """The same trigger with this zone where none was given."""

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """The fields of `to_json`, without the version."""

    @classmethod
    @abstractmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Trigger:
        """The trigger with these fields of `as_dict`."""

    def changes(self, after: datetime) -> Iterator[ClockChange]:  # noqa: ARG002 - the most do not depend on wall clocks
        """The clock changes after this instant, and their effect on the trigger. Endless in most zones."""
        return iter(())

    def preview(self, n: int, after: datetime) -> Preview:
        """The next `n` due times after an instant, and what the next two clock changes will do."""
        if type(n) is not int or not 0 <= n <= MAX_PREVIEW:
            raise ConfigurationError(f"preview: n={n!r} must be a whole number from 0 to {MAX_PREVIEW}.")
        start, times = moment(after), []
        due = self.next_after(start) if n else None
        while due is not None:
            times.append(due)
            due = self.next_after(due) if len(times) < n else None
        soon = (start - EPOCH) + timedelta(days=400)
        changes: list[ClockChange] = []
        for change in self.changes(start):
            if change.at - EPOCH > soon or len(changes) == 2:  # noqa: PLR2004 - there and back again
                break
            changes.append(change)
        return Preview(self.explain(), tuple(times), tuple(changes))

    def to_json(self) -> str:
        """A text that `from_json` reads back, in this tenure and in later ones. Equal triggers give equal texts."""
        text = json.dumps({"v": VERSION, **self.as_dict()}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        if (size := size_of(text)) > MAX_BYTES:
            raise ConfigurationError(
                f"trigger: its text has {size:,} bytes, and {MAX_BYTES:,} are the most ({text[:60]}…). "
                f"Write fewer dates or parts, or make it several jobs."
            )
        return text

    def __or__(self, other: Trigger) -> Trigger:
        if not isinstance(other, Trigger):
            return NotImplemented
        from tenure.triggers.combined import Union

        return Union.of(self, other)

    def __sub__(self, other: Closed) -> Excluding:
        from tenure.triggers.combined import Closed, Excluding

        if not isinstance(other, Closed):
            return NotImplemented
        return Excluding.of(self, other)

    def __str__(self) -> str:
        return self.explain()

    def __reduce__(self) -> tuple[Callable[[str], Trigger], tuple[str]]:
        from tenure.triggers.text import from_json

        return from_json, (self.to_json(),)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        return self


class Combined(Trigger):
    """A trigger made of others. One evaluation has one budget, however its parts are nested."""

    __slots__ = ()

    @abstractmethod
    def within(self, t: datetime, steps: Steps) -> datetime | None: ...

    def next_after(self, t: datetime) -> datetime | None:
        return self._counted(t, Steps())

    def following(self, instant: float, steps: Steps | None = None) -> float | None:
        due = self._counted(instants.moment(instant), Steps() if steps is None else steps)
        return None if due is None else instants.instant(due)

    def _counted(self, t: datetime, steps: Steps) -> datetime | None:
        try:
            return self.within(t, steps)
        except OutOfStepsError:
            raise ConfigurationError(
                f"trigger: no due time after {moment(t):%Y-%m-%d %H:%M:%S} UTC was found in {STEPS:,} steps "
                f"({self.explain():.200}). Perhaps all its times are closed. Close less, or write fewer parts."
            ) from None


@dataclass(frozen=True, slots=True)
class ClockChange:
    """One change of a zone's clocks, and its effect on a trigger."""

    at: datetime
    """The first moment after the change, in the zone."""
    by: timedelta
    """How far the clocks are put forward; negative when they are put back."""
    effect: str

    def __str__(self) -> str:
        local = self.at.replace(tzinfo=None, fold=0)
        amount = readable(abs(self.by).total_seconds())
        way = "forward" if self.by > timedelta(0) else "back"
        tz = getattr(self.at.tzinfo, "key", self.at.tzinfo)
        return f"{local - self.by:%Y-%m-%d %H:%M} {tz}: clocks go {way} {amount} to {local:%H:%M}. {self.effect}"


@dataclass(frozen=True, slots=True)
class Preview:
    """The near future of a trigger. Print it, or use its parts."""

    explanation: str
    times: tuple[datetime, ...]
    changes: tuple[ClockChange, ...]

    def __str__(self) -> str:
        lines = [self.explanation]
        lines += [
            f"  {time:%a %Y-%m-%d %H:%M:%S} {time:%z} {getattr(time.tzinfo, 'key', '')}".rstrip() for time in self.times
        ]
        if not self.times:
            lines.append("  never")
        lines += [f"  {change}" for change in self.changes]
        return "\n".join(lines)


class WallClock(Trigger):
    """A trigger on wall clocks. A subclass says which readings it wants; this class handles clock changes for all of
    them.

    A trigger that `follows` the wall clock is due whenever the clock shows a wanted reading: never for one that is
    skipped, twice for one that is repeated. Any other trigger is due when the clock shows a wanted reading *or has
    passed it* for the first time: once at the end of a gap for all readings in it, and at the first of two equal
    readings.
    """

    __slots__ = ()
    tz: str | None
    follows: bool
    line: Timeline

    @abstractmethod
    def find(self, wall: int) -> int:
        """The first wanted reading from this one on, in seconds since 1970 on the wall clock; `FOREVER` if none is."""

    def wanted(self, first: int, end: int) -> int:
        """How many readings it wants from the first one on and before the other."""
        count, found = 0, self.find(first)
        while found < end:
            count += 1
            found = self.find(found + 1)
        return count

    def next_after(self, t: datetime) -> datetime | None:
        due = self._due_from(seconds_of(t, "next_after") + 1)
        return None if due is None else reading(due, self.line.zone)

    def following(self, instant: float, steps: Steps | None = None) -> float | None:  # noqa: ARG002
        due = self._due_from(floor(instant) + 1)
        return None if due is None else float(due)

    def within(self, t: datetime, steps: Steps) -> datetime | None:
        steps.take()
        due = self._due_from(seconds_of(t, "next_after") + 1, steps)
        return None if due is None else reading(due, self.line.zone)

    def _due_from(self, start: int, steps: Steps | None = None) -> int | None:
        """The first due time from this one on."""
        line, horizon = self.line, 0
        if not FIRST <= start < line.end:
            if start >= LAST:
                return None
            start = max(start, FIRST)
            line = covering(line, start, steps)
        while True:
            starts, offsets = line.starts, line.offsets
            since = line.wall if self.follows else line.fresh
            i = bisect_right(starts, start) - 1
            shown = start + offsets[i]
            if starts[i] == start or shown < since[i]:
                shown = since[i]
            found = self.find(shown)
            while found - offsets[i] >= (starts[i + 1] if i + 1 < len(starts) else line.end):
                if i + 1 == len(starts):
                    break  # it lies beyond this timeline
                i += 1
                if not shown <= since[i] <= found:
                    found = self.find(since[i])
                shown = since[i]
            else:
                due = max(found - offsets[i], starts[i])
                return due if due < LAST else None
            horizon = horizon or min(max(start, found) + HORIZON, LAST)
            if line.end >= horizon:
                return None
            # No reading before the found one is wanted, so nothing is due until shortly before it, unless clocks put
            # back show one again.
            far = max(line.end, found - 2 * DAY) if shown + 2 * DAY < line.end else line.end
            if far >= LAST:
                return None
            if steps is not None:
                for _ in range((far - start) // HORIZON):
                    steps.take(FAR)
            start, line = far, covering(line, far, steps)

    @property
    def zoned(self) -> bool:
        return self.tz not in {None, "UTC"}

    def reading(self, due: float) -> int | None:
        if self.follows:  # readings that come twice are due twice
            return None
        start = floor(due)
        line = self.line.covering(start)
        i = line.at(start)
        shown = start + line.offsets[i]
        return self.find(line.fresh[i] if line.starts[i] == start else max(shown, line.fresh[i]))

    def reached(self, reading: int) -> float | None:
        if self.follows:
            return None
        line = reaching(self.line, reading + DAY)
        ends = (*line.starts[1:], LAST)
        for start, offset, end in zip(line.starts, line.offsets, ends, strict=True):
            if end + offset > reading:
                return float(max(reading - offset, start))
        return None

    def count(self, start: float, end: float) -> int | None:
        low, high = max(ceil(start), FIRST), min(ceil(end), LAST)
        line = reaching(self.line, high)
        since = line.wall if self.follows else line.fresh
        count = 0
        for i in range(max(line.at(low), 0), len(line.starts)):
            begin, offset = line.starts[i], line.offsets[i]
            over = line.starts[i + 1] if i + 1 < len(line.starts) else LAST
            if begin >= high:
                break
            if low <= begin:  # all readings that the change has passed over are due at one instant
                count += self.wanted(since[i], begin + offset + 1) > 0
            first = max(low, begin + 1) + offset
            count += self.wanted(max(first, since[i]), min(high, over) + offset)
        return count

    def changes(self, after: datetime) -> Iterator[ClockChange]:
        line = self.line
        start = max(seconds_of(after, "changes"), FIRST)
        while start < LAST:
            i = bisect_right(line.starts, start)
            for at, before, now in zip(line.starts[i:], line.offsets[i - 1 :], line.offsets[i:], strict=False):
                effect = self._effect(at + before, at + now)
                yield ClockChange(reading(at, line.zone), timedelta(seconds=now - before), effect)
            start, line = line.end - 1, line.longer() if line.end < LAST else line

    def manner(self) -> str:
        """What the trigger does when clocks change, in a sentence; '' for a zone whose clocks never did."""
        if len(self.line.starts) == 1:
            return ""
        if self.follows:
            return " It follows the wall clock: skipped times do not run, repeated times run twice."
        return " When clocks change it still runs once: at the end of a gap, at the first of two readings."

    def _effect(self, before: int, after: int) -> str:
        """The effect of setting the clocks from one reading to another."""
        low, high = min(before, after), max(before, after)
        readings: list[int] = []
        found = self.find(low)
        while found < high and len(readings) <= _SHOWN:
            readings.append(found)
            found = self.find(found + 1)
        calendar_change = high - low >= CALENDAR_CHANGE
        if not readings:
            return f"No due time is {'skipped' if after > before else 'repeated'}."
        shown = _listed(readings, with_date=calendar_change)
        one = len(readings) == 1
        if after > before:
            missing = f"{shown} {'does' if one else 'do'} not exist"
            if self.follows or calendar_change:
                return f"{missing} and {'does' if one else 'do'} not run."
            return f"{missing}: it runs{'' if one else ' once'} at {_listed([after])} instead."
        twice = f"{shown} {'comes' if one else 'come'} twice"
        if self.follows or calendar_change:
            return f"{twice} and {'runs' if one else 'run'} both times."
        return f"{twice}: it runs the first time only."


def zone_line(tz: str | None) -> Timeline:
    """The timeline of a trigger's zone; UTC if none was given."""
    return timeline(tz or "UTC")


def size_of(text: str) -> int:
    """The size of a text in bytes."""
    return len(text.encode("utf-8", "surrogatepass"))


def reaching(line: Timeline, start: int) -> Timeline:
    """The timeline, computed beyond this instant."""
    while line.end <= start and line.end < LAST:
        line = line.longer()
    return line


def covering(line: Timeline, start: int, steps: Steps | None = None) -> Timeline:
    """A timeline around this instant. However far away it is, it takes one look at the zone's rule, and one step."""
    if start >= line.end and steps is not None:
        steps.take()
    return line.covering(start)


def date_of(value: date | str, what: str) -> date:
    """The date that a user wrote. `what` names it in errors, with the value."""
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value, re.ASCII):
        try:
            return date.fromisoformat(value)
        except ValueError as error:
            raise ConfigurationError(f"{what}: {error}. Write a date that exists.") from None
    if not isinstance(value, date) or isinstance(value, datetime):
        raise ConfigurationError(f"{what} is not a date. Write date(2026, 12, 25) or '2026-12-25'.")
    return date(value.year, value.month, value.day)


def _listed(readings: list[int], *, with_date: bool = False) -> str:
    def text(wall: int) -> str:
        shown = EPOCH + timedelta(seconds=wall)
        return f"{shown:{'%Y-%m-%d ' if with_date else ''}%H:%M{':%S' if shown.second else ''}}"

    words = [text(wall) for wall in readings[:_SHOWN]]
    if len(readings) > _SHOWN:
        words.append("more")
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
