"""Triggers made of triggers: `a | b` is due when either is, `a - closed(…)` is not due while a calendar is closed."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from heapq import heapify, heappop, heapreplace
from operator import itemgetter
from typing import Any, ClassVar

from tenure.errors import ConfigurationError
from tenure.triggers.base import ClockChange, Combined, Steps, Trigger, covering, date_of
from tenure.triggers.text import checked, from_dict
from tenure.triggers.zones import DAY, EPOCH, FOREVER, LAST, Timeline, Zone, seconds_of, timeline, zone_key
from tenure.util.plurals import a_type

_END = EPOCH + timedelta(seconds=LAST)
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_WEEK = 7 * DAY
_MOMENT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Union(Combined):
    """Due whenever one of its parts is, once if several are. Made by `a | b`; the order does not matter."""

    kind: ClassVar[str] = "union"
    parts: tuple[Trigger, ...]

    @classmethod
    def of(cls, *triggers: Trigger) -> Trigger:
        flat = (part for trigger in triggers for part in (trigger.parts if isinstance(trigger, Union) else (trigger,)))
        parts = tuple(sorted(dict.fromkeys(flat), key=Trigger.to_json))
        if not parts:
            raise ConfigurationError("union: there are no parts, so it would never be due.")
        return parts[0] if len(parts) == 1 else checked(cls(parts))

    def within(self, t: datetime, steps: Steps) -> datetime | None:
        due = [found for part in self.parts if (found := part.within(t, steps)) is not None]
        return min(due, key=lambda found: found - EPOCH) if due else None

    @property
    def zoned(self) -> bool:
        return any(part.zoned for part in self.parts)

    def zone_at(self, due: float | None = None) -> str | None:
        first = self.parts[0].zone_at(due)
        if due is None or all(part.zone_at() == first for part in self.parts):
            return first
        steps = Steps()
        try:
            found = next((part for part in self.parts if part.following(due - 1e-6, steps) == due), self.parts[0])
        except ConfigurationError:
            return first
        return found.zone_at(due)

    def reading(self, due: float) -> int | None:
        steps = Steps()
        readings = [part.reading(due) for part in self.parts if part.following(due - 1e-6, steps) == due]
        one_zone = len({getattr(part, "tz", None) for part in self.parts if part.zoned}) == 1
        return min((found for found in readings if found is not None), default=None) if one_zone else None

    def reached(self, reading: int) -> float | None:
        found = [at for part in self.parts if (at := part.reached(reading)) is not None]
        return min(found, default=None)

    def explain(self) -> str:
        return " Also: ".join(part.explain() for part in self.parts)

    def changes(self, after: datetime) -> Iterator[ClockChange]:
        # The changes of all parts in order of time. A change with the same effect on two parts is reported once.
        pending = [(next(changes, None), changes) for changes in (part.changes(after) for part in self.parts)]
        told: tuple[datetime, str] | None = None
        while ready := [(change, changes) for change, changes in pending if change is not None]:
            soonest, source = min(ready, key=lambda pair: pair[0].at - EPOCH)
            pending = [(next(changes, None) if changes is source else change, changes) for change, changes in ready]
            if told != (soonest.at, soonest.effect):
                yield soonest
            told = soonest.at, soonest.effect

    def in_zone(self, tz: Zone) -> Trigger:
        return Union.of(*(part.in_zone(tz) for part in self.parts))

    def as_dict(self) -> dict[str, Any]:
        return {"trigger": self.kind, "parts": [part.as_dict() for part in self.parts]}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Trigger:
        return cls.of(*(from_dict(part) for part in fields["parts"]))


def closed(
    name: str, *, dates: Iterable[date | str] = (), weekly: Iterable[str] = (), tz: Zone | None = None
) -> Closed:
    """Times at which nothing is due: `cron("0 9 * * *") - closed("holidays", dates=["2026-12-25"],
    weekly=["Sat-Sun"])`.

    `dates` are whole days. `weekly` are windows such as "Sat", "Sat-Sun", "Mon-Fri 12:00-13:30" or "22:00-24:00" (every
    day); a window does not include its end. Both are read in `tz`, or in the zone of the trigger that they are taken
    from.
    """
    named: object = name
    if not isinstance(named, str) or not named.strip():
        raise ConfigurationError(f"closed: {name!r} is not a name. Write what it is, such as closed('holidays', …).")
    lists: dict[str, object] = {"dates": dates, "weekly": weekly}
    for what, value in lists.items():
        if isinstance(value, str | date) or not isinstance(value, Iterable):
            raise ConfigurationError(f"closed {name!r}: {what}={value!r} is not a list. Write {what}=[{value!r}].")
    days = tuple(sorted({date_of(day, f"closed {name!r}: {day!r}") for day in dates}))
    windows = tuple(dict.fromkeys(_window_text(name, window) for window in weekly))
    if not days and not windows:
        raise ConfigurationError(f"closed {name!r} is never closed. Write dates=[…] or weekly=[…].")
    return Closed(name, days, windows, None if tz is None else zone_key(tz))


@dataclass(frozen=True, slots=True)
class Closed:
    """A named calendar of times at which nothing is due. Made by `closed`."""

    name: str
    dates: tuple[date, ...] = ()
    weekly: tuple[str, ...] = ()
    tz: str | None = None
    days: tuple[tuple[int, int], ...] = field(init=False, repr=False, compare=False)
    """In days since 1970, in order and not adjacent to each other, like the windows."""
    windows: tuple[tuple[int, int], ...] = field(init=False, repr=False, compare=False)
    """In seconds since Monday 00:00."""

    def __post_init__(self) -> None:
        windows = _merged(span for window in self.weekly for span in _spans(self.name, window))
        if windows == [(0, _WEEK)]:
            raise ConfigurationError(
                f"closed {self.name!r} is closed all week, so nothing would ever run. Leave out some of it."
            )
        object.__setattr__(self, "windows", tuple(windows))
        ordinals = (day.toordinal() - EPOCH.toordinal() for day in self.dates)
        object.__setattr__(self, "days", tuple(_merged((day, day + 1) for day in ordinals)))

    def until(self, t: datetime, steps: Steps | None = None) -> datetime | None:
        """None if it is open at this instant; else an instant up to which it is closed without a break."""
        now = seconds_of(t, f"closed {self.name!r}")
        line = covering(self._line(t), now, steps)
        i = line.at(now)
        shown = now + line.offsets[i]
        opens = self._opens(shown)
        if opens == shown:
            return None
        # The clocks may change before it opens, and then show something else.
        change = line.starts[i + 1] if i + 1 < len(line.starts) else min(line.end, FOREVER)
        return EPOCH + timedelta(seconds=min(opens - line.offsets[i], change, LAST))

    def explain(self) -> str:
        what = [f"{len(self.dates)} date{'s' if len(self.dates) > 1 else ''}"] if self.dates else []
        return f"{self.name} ({', '.join([*what, *self.weekly])}{f', {self.tz}' if self.tz else ''})"

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "dates": [day.isoformat() for day in self.dates],
            "weekly": list(self.weekly),
            "tz": self.tz,
        }

    def _opens(self, shown: int) -> int:
        """The first open reading from this one on. Looks at most to the end of the closed days or of the window."""
        day = shown // DAY
        if (reopens := _end_of(self.days, day)) is not None:
            return reopens * DAY
        monday = (day - (day + 3) % 7) * DAY
        reopens = _end_of(self.windows, shown - monday)
        return shown if reopens is None else monday + reopens

    def _line(self, t: datetime) -> Timeline:
        return timeline(self.tz or getattr(t.tzinfo, "key", None) or "UTC")


@dataclass(frozen=True, slots=True)
class Excluding(Combined):
    """Due when its trigger is and no calendar is closed. Made by `a - closed(…)`."""

    kind: ClassVar[str] = "excluding"
    trigger: Trigger
    closed: tuple[Closed, ...]
    parts: tuple[tuple[Trigger, tuple[Closed, ...]], ...] = field(init=False, repr=False, compare=False)
    """The simple parts of its trigger, each with all that closes it: a calendar without a zone can be closed for one
    part and open for another."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(_parts(self.trigger, self.closed)))

    @classmethod
    def of(cls, trigger: Trigger, *more: Closed) -> Excluding:
        before: tuple[Closed, ...] = ()
        if isinstance(trigger, Excluding):
            before, trigger = trigger.closed, trigger.trigger
        unique = dict.fromkeys((*before, *more))
        return checked(
            cls(trigger, tuple(sorted(unique, key=lambda one: (one.name, one.dates, one.weekly, one.tz or ""))))
        )

    def within(self, t: datetime, steps: Steps) -> datetime | None:
        parts = self.parts
        dues = [part.within(t, steps) for part, _ in parts]
        soonest = [(due - EPOCH, i, due) for i, due in enumerate(dues) if due is not None]
        heapify(soonest)
        while soonest:
            _, i, due = soonest[0]
            part, closed = parts[i]
            steps.take(len(closed))
            opens = max((until for one in closed if (until := one.until(due, steps))), default=None)
            if opens is None:
                return due
            if opens < _END and (later := part.within(opens - _MOMENT, steps)) is not None:
                heapreplace(soonest, (later - EPOCH, i, later))
            else:
                heappop(soonest)
        return None

    @property
    def zoned(self) -> bool:
        return self.trigger.zoned or any(one.tz not in {None, "UTC"} for one in self.closed)

    def zone_at(self, due: float | None = None) -> str | None:
        return self.trigger.zone_at(due)

    def reading(self, due: float) -> int | None:
        return self.trigger.reading(due)

    def reached(self, reading: int) -> float | None:
        return self.trigger.reached(reading)

    def explain(self) -> str:
        return f"{self.trigger.explain()} Not during {' or '.join(one.explain() for one in self.closed)}."

    def changes(self, after: datetime) -> Iterator[ClockChange]:
        for change in self.trigger.changes(after):
            opens = max((until for one in self.closed if (until := one.until(change.at))), default=None)
            if opens is None:
                yield change
            elif change.by > timedelta(0) or opens - change.at >= -change.by:
                yield replace(change, effect="Closed then: nothing runs.")
            else:
                yield replace(change, effect=f"{change.effect} Except while closed.")

    def in_zone(self, tz: Zone) -> Excluding:
        return replace(self, trigger=self.trigger.in_zone(tz))

    def as_dict(self) -> dict[str, Any]:
        return {"trigger": self.kind, "of": self.trigger.as_dict(), "closed": [one.as_dict() for one in self.closed]}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Excluding:
        if not fields["closed"]:
            raise ConfigurationError("excluding: nothing is closed. Store the trigger itself.")
        return cls.of(from_dict(fields["of"]), *(closed(**one) for one in fields["closed"]))


def _parts(trigger: Trigger, closed: tuple[Closed, ...]) -> Iterator[tuple[Trigger, tuple[Closed, ...]]]:
    match trigger:
        case Union():
            for part in trigger.parts:
                yield from _parts(part, closed)
        case Excluding():
            yield from ((part, (*before, *closed)) for part, before in trigger.parts)
        case _:
            yield trigger, closed


def _window_text(name: str, window: str) -> str:
    if not isinstance(window, str):
        raise ConfigurationError(
            f"closed {name!r}: {window!r} is {a_type(window)}. Write 'Sat-Sun' or 'Mon 12:00-13:30'."
        )
    text = re.sub("[A-Za-z]+", lambda word: word[0].title(), " ".join(window.split()))
    _spans(name, text)
    return text


def _spans(name: str, window: str) -> list[tuple[int, int]]:
    """The periods of a weekly window, in seconds since Monday 00:00."""
    parts = re.fullmatch(r"([A-Za-z,-]+)?(?:(?:^| )(\d\d):(\d\d)-(\d\d):(\d\d))?", window, re.ASCII)
    if not window or not parts:
        raise ConfigurationError(
            f"closed {name!r}: {window!r} is not a weekly window. Write days, a time span or both: 'Sat-Sun', "
            "'22:00-24:00', 'Mon,Wed 12:00-13:30'."
        )
    low, high = 0, DAY
    if parts[2]:
        hours_and_minutes = [int(number) for number in parts.groups()[1:]]
        low, high = (hour * 3600 + minute * 60 for hour, minute in (hours_and_minutes[:2], hours_and_minutes[2:]))
        if max(hours_and_minutes[1::2]) > 59 or high > DAY:  # noqa: PLR2004 - minutes
            raise ConfigurationError(
                f"closed {name!r}: {window!r} has a time that no clock shows. Write 00:00 to 24:00."
            )
        if high <= low:
            times = window.rsplit(" ", 1)[-1].split("-")
            raise ConfigurationError(
                f"closed {name!r}: {window!r} ends before it begins. "
                f"Write the part up to {times[0]}-24:00 and the part 00:00-{times[1]} of the next day as two windows."
            )
    return [(day * DAY + low, day * DAY + high) for day in _weekdays(name, window, parts[1])]


def _weekdays(name: str, window: str, text: str | None) -> list[int]:
    days: list[int] = []
    for item in text.split(",") if text else ["Mon-Sun"]:
        first, _, last = item.partition("-")
        ends = [first, last] if "-" in item else [first]
        for end in ends:
            if end not in _WEEKDAYS:
                raise ConfigurationError(
                    f"closed {name!r}: {window!r}: {end!r} is not a weekday. Write {', '.join(_WEEKDAYS)}."
                )
        low, high = _WEEKDAYS.index(ends[0]), _WEEKDAYS.index(ends[-1])
        if high < low:
            raise ConfigurationError(
                f"closed {name!r}: {window!r}: {item!r} runs backwards. "
                f"Write {first}-Sun,Mon-{last}; a week begins on Monday here."
            )
        days += range(low, high + 1)
    return days


def _end_of(stretches: tuple[tuple[int, int], ...], at: int) -> int | None:
    """The end of the period that contains this instant, if one does."""
    i = bisect_right(stretches, at, key=itemgetter(0)) - 1
    return stretches[i][1] if i >= 0 and at < stretches[i][1] else None


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if merged and low <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], high)
        else:
            merged.append((low, high))
    return merged
