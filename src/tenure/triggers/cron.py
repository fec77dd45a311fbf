"""`cron`: times of the wall clock, in the language and with the behaviour of Debian's cron.

`WallClock` in `base.py` decides what happens when the clocks change (DST).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, ClassVar

from tenure.triggers.base import WallClock, zone_line
from tenure.triggers.grammar import Days, normalise, parse
from tenure.triggers.words import explained
from tenure.triggers.zones import DAY, FOREVER, LAST, Timeline, Zone, zone_key

_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_FEBRUARY, _DECEMBER = 2, 12
_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_LAST_DAY = LAST // DAY + 2


def cron(expr: str, tz: Zone | None = None) -> Cron:
    """Due as in Debian's cron: `cron("30 2 * * MON-FRI", tz="Europe/Berlin")`. Five fields, six with seconds, or
    @daily."""
    return Cron(expr, None if tz is None else zone_key(tz))


@dataclass(frozen=True, slots=True)
class Cron(WallClock):
    """Made by `cron`."""

    kind: ClassVar[str] = "cron"
    expr: str
    tz: str | None = None

    # Computed from the two above.
    follows: bool = field(init=False, repr=False, compare=False)
    line: Timeline = field(init=False, repr=False, compare=False)
    seconds: int = field(init=False, repr=False, compare=False)
    minutes: int = field(init=False, repr=False, compare=False)
    hours: int = field(init=False, repr=False, compare=False)
    months: int = field(init=False, repr=False, compare=False)
    days: Days = field(init=False, repr=False, compare=False)
    week: int = field(init=False, repr=False, compare=False)
    first: tuple[int, int, int] = field(init=False, repr=False, compare=False)
    shapes: dict[int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        give = object.__setattr__
        give(self, "expr", normalise(self.expr))
        fields = parse(self.expr)
        give(self, "line", zone_line(self.tz))
        give(self, "follows", fields.follows_wall_clock)
        give(self, "seconds", fields.seconds)
        give(self, "minutes", fields.minutes)
        give(self, "hours", fields.hours)
        give(self, "months", fields.months)
        give(self, "days", fields.days)
        # The weekdays twice in a row, from Thursday (1 January 1970): a shift finds the next one. Zero if more than
        # weekdays counts.
        weekly = fields.days.weekly if fields.months == _ALL_MONTHS else None
        week = 0 if weekly is None else (weekly >> 4 | weekly << 3) & 0b1111111
        give(self, "week", week | week << 7)
        second = _lowest(fields.seconds)
        minute = _lowest(fields.minutes) * 60 + second
        give(self, "first", (second, minute, _lowest(fields.hours) * 3600 + minute))
        give(self, "shapes", {})

    def find(self, wall: int) -> int:
        day, second = divmod(wall, DAY)
        week = self.week
        if (week >> day % 7 & 1) if week else self._matches(day):
            hour, rest = divmod(second, 3600)
            if self.hours >> hour & 1:
                minute, rest = divmod(rest, 60)
                bits = self.minutes >> minute
                if bits & 1 and (seconds := self.seconds >> rest):
                    return wall + (seconds & -seconds).bit_length() - 1
                if bits := bits & -2:
                    return wall - rest + ((bits & -bits).bit_length() - 1) * 60 + self.first[0]
            if bits := self.hours >> hour + 1:
                return day * DAY + (hour + (bits & -bits).bit_length()) * 3600 + self.first[1]
        if week:
            bits = week >> day % 7 + 1
            return (day + (bits & -bits).bit_length()) * DAY + self.first[2]
        return self._following(day) * DAY + self.first[2]

    def wanted(self, first: int, end: int) -> int:
        if first >= end:
            return 0
        (day, second), (last, until) = divmod(first, DAY), divmod(end, DAY)
        days = sum(1 for number in range(day, last) if self._wants(number))
        count = days * self._readings(DAY)
        if self._wants(day):
            count -= self._readings(second)
        if until and self._wants(last):
            count += self._readings(until)
        return count

    def _wants(self, day: int) -> bool:
        return bool(self.week >> day % 7 & 1) if self.week else bool(self._matches(day))

    def _readings(self, second: int) -> int:
        """How many readings it wants before this second of a wanted day."""
        hour, rest = divmod(second, 3600)
        minute, rest = divmod(rest, 60)
        seconds, minutes = self.seconds.bit_count(), self.minutes.bit_count()
        count = (self.hours & (1 << hour) - 1).bit_count() * minutes * seconds
        if self.hours >> hour & 1:
            count += (self.minutes & (1 << minute) - 1).bit_count() * seconds
            if self.minutes >> minute & 1:
                count += (self.seconds & (1 << rest) - 1).bit_count()
        return count

    def explain(self) -> str:
        return f"{explained(self.expr)}, {self.tz or 'UTC'}.{self.manner()}"

    def in_zone(self, tz: Zone) -> Cron:
        return self if self.tz else cron(self.expr, tz)

    def as_dict(self) -> dict[str, Any]:
        return {"trigger": self.kind, "expr": self.expr, "tz": self.tz}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Cron:
        return cron(fields["expr"], fields["tz"])

    def _matches(self, day: int) -> int:
        if day > _LAST_DAY:
            return 0
        today = date.fromordinal(day + _EPOCH_ORDINAL)
        return self._month(today.year, today.month, day - today.day + 1) >> today.day & 1

    def _following(self, day: int) -> int:
        """The first matching day after this one."""
        if day >= _LAST_DAY:
            return FOREVER // DAY
        today = date.fromordinal(day + _EPOCH_ORDINAL)
        year, month, first = today.year, today.month, day - today.day + 1
        bits = self._month(year, month, first) >> today.day + 1 << today.day + 1
        while not bits:
            first += _length(year, month)
            year, month = (year, month + 1) if month < _DECEMBER else (year + 1, 1)
            if first > _LAST_DAY:
                return FOREVER // DAY
            bits = self._month(year, month, first)
        return first + (bits & -bits).bit_length() - 2

    def _month(self, year: int, month: int, first: int) -> int:
        """The matching days of a month, as bits; `first` is the number of its first day."""
        if not self.months >> month & 1:
            return 0
        length = _length(year, month)
        shape = (first + 4) % 7 * 32 + length
        bits = self.shapes.get(shape)
        if bits is None:
            bits = self.shapes[shape] = self.days.of_month(shape // 32, length)
        return bits


_ALL_MONTHS = 0b1111111111110


def _length(year: int, month: int) -> int:
    if month == _FEBRUARY and year % 4 == 0 and (year % 100 or year % 400 == 0):
        return 29
    return _LENGTHS[month]


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1
