"""`calendar`: dates at equal steps of the calendar, at a time of the wall clock. "Every 2 months at 09:00"."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, time
from typing import Any, ClassVar

from tenure.errors import ConfigurationError
from tenure.triggers.base import WallClock, date_of, zone_line
from tenure.triggers.zones import DAY, FOREVER, Timeline, Zone, zone_key

_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_DAYS = {"days": 1, "weeks": 7}
_MONTHS = {"months": 1, "years": 12}
_UNITS = ("days", "weeks", "months", "years")
_MOST = 10_000


def calendar(
    *,
    start: date | str,
    at: time | str,
    days: int | None = None,
    weeks: int | None = None,
    months: int | None = None,
    years: int | None = None,
    tz: Zone | None = None,
) -> Calendar:
    """Due on `start` and then every N days, weeks, months or years: `calendar(months=2, start="2026-01-31",
    at="09:00")`.

    Dates are counted from `start` and never drift. A date that does not exist (31 April) is left out. Clock changes are
    handled as for `cron`.
    """
    given = {"days": days, "weeks": weeks, "months": months, "years": years}
    units = [unit for unit in _UNITS if given[unit] is not None]
    if len(units) != 1:
        wrong = " and ".join(units) if units else "no step"
        raise ConfigurationError(f"calendar: {wrong} was given. Write one of days=, weeks=, months= or years=.")
    return Calendar(
        units[0],
        _step(units[0], given[units[0]]),
        date_of(start, f"calendar: start={start!r}"),
        _time(at),
        None if tz is None else zone_key(tz),
    )


@dataclass(frozen=True, slots=True)
class Calendar(WallClock):
    """Made by `calendar`."""

    kind: ClassVar[str] = "calendar"
    follows: ClassVar[bool] = False  # type: ignore[misc]  # one time of day: runs once, whatever the clocks do
    unit: str
    step: int
    start: date
    at: time
    tz: str | None = None
    line: Timeline = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "line", zone_line(self.tz))

    def find(self, wall: int) -> int:
        second = self.at.hour * 3600 + self.at.minute * 60 + self.at.second
        day = -((second - wall) // DAY) + _EPOCH_ORDINAL  # the first day whose time has not passed
        due = self._from(max(day, self.start.toordinal()))
        return FOREVER if due is None else (due - _EPOCH_ORDINAL) * DAY + second

    def explain(self) -> str:
        unit = self.unit.removesuffix("s") if self.step == 1 else f"{self.step} {self.unit}"
        time = self.at.isoformat("minutes" if not self.at.second else "seconds")
        skipped = ""
        if self.unit in _MONTHS and self.start.day > 28:  # noqa: PLR2004 - every month has as many days
            day = "31st" if self.start.day == 31 else f"{self.start.day}th"  # noqa: PLR2004
            skipped = f" A month without a {day} is left out."
        return f"Every {unit} from {self.start} on, at {time}, {self.tz or 'UTC'}.{skipped}{self.manner()}"

    def in_zone(self, tz: Zone) -> Calendar:
        return self if self.tz else Calendar(self.unit, self.step, self.start, self.at, zone_key(tz))

    def as_dict(self) -> dict[str, Any]:
        at, start = self.at.isoformat("seconds"), self.start.isoformat()
        return {"trigger": self.kind, self.unit: self.step, "start": start, "at": at, "tz": self.tz}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Calendar:
        return calendar(**fields)

    def _from(self, day: int) -> int | None:
        """The first due date from this one on, both as ordinals."""
        first = self.start.toordinal()
        if self.unit in _DAYS:
            step = self.step * _DAYS[self.unit]
            due = first + -((first - day) // step) * step
            return due if due <= date.max.toordinal() else None
        if day > date.max.toordinal():
            return None
        wanted = date.fromordinal(day)
        step = self.step * _MONTHS[self.unit]
        month = self.start.year * 12 + self.start.month - 1
        month += (wanted.year * 12 + wanted.month - 1 - month) // step * step
        while month // 12 <= date.max.year:
            try:
                due = date(month // 12, month % 12 + 1, self.start.day).toordinal()
            except ValueError:
                due = 0
            if due >= day:
                return due
            month += step
        return None


def _step(unit: str, value: object) -> int:
    if type(value) is not int or not 0 < value <= _MOST:
        raise ConfigurationError(f"calendar: {unit}={value!r} must be a whole number from 1 to {_MOST}.")
    return value


def _time(value: time | str) -> time:
    if isinstance(value, str) and re.fullmatch(r"\d\d:\d\d(:\d\d)?", value, re.ASCII):
        try:
            return time.fromisoformat(value)
        except ValueError as error:
            raise ConfigurationError(f"calendar: at={value!r}: {error}. Write a time such as '09:00'.") from None
    if not isinstance(value, time) or value.tzinfo or value.microsecond:
        raise ConfigurationError(
            f"calendar: at={value!r} is not a time of day in whole seconds. "
            "Write '09:00' or time(9), and the zone as tz=."
        )
    return value.replace(fold=0)
