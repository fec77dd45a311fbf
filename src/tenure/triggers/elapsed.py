"""`every` and `at`: instants, whatever the clocks on the wall do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from tenure.errors import ConfigurationError
from tenure.triggers.base import Trigger
from tenure.triggers.zones import EPOCH, FIRST, LAST, Zone, elapsed, moment, zone, zone_key
from tenure.util.durations import Duration, positive
from tenure.util.durations import seconds as in_seconds

_MICROSECOND = timedelta(microseconds=1)
_BEGIN, _END = EPOCH + timedelta(seconds=FIRST), EPOCH + timedelta(seconds=LAST)
_UNITS = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86_400, "weeks": 604_800}


def every(
    period: Duration | None = None,
    /,
    *,
    seconds: float | None = None,
    minutes: float | None = None,
    hours: float | None = None,
    days: float | None = None,
    weeks: float | None = None,
    anchor: datetime | None = None,
    tz: Zone | None = None,
) -> Every:
    """Due in equal steps of elapsed time: `every("30s")`, `every(timedelta(hours=6))`, `every(minutes=90)`.

    The steps are counted from 1970-01-01 00:00 UTC, in both directions, so all nodes agree without communicating;
    `anchor` counts them from another instant. Clock changes do not matter; due times are only written in `tz`.
    """
    given = {"seconds": seconds, "minutes": minutes, "hours": hours, "days": days, "weeks": weeks}
    units = {unit: value for unit, value in given.items() if value is not None}
    if (period is None) == (not units):
        wrong = f"{period!r} and {', '.join(units)}" if units else "no period"
        raise ConfigurationError(
            f"every: {wrong} was given. Write every('90s') or every(minutes=1, seconds=30), one of the two."
        )
    if period is None:
        period = sum(_number(unit, value) * _UNITS[unit] for unit, value in units.items())
    length = positive(period, "every")
    exact = period if isinstance(period, timedelta) else timedelta(seconds=length)
    if not exact:
        raise ConfigurationError(f"every: {period!r} is less than a microsecond. Write a longer time.")
    start = EPOCH if anchor is None else moment(anchor, "every: anchor")
    return Every(exact, start, _key_of(anchor, tz))


def at(when: datetime, tz: Zone | None = None) -> At:
    """Due once, at this instant. The zone is that of the datetime, or `tz`."""
    return At(moment(when, "at"), _key_of(when, tz))


@dataclass(frozen=True, slots=True)
class Every(Trigger):
    """Made by `every`."""

    kind: ClassVar[str] = "every"
    period: timedelta
    anchor: datetime
    """In UTC."""
    tz: str | None = None

    def next_after(self, t: datetime) -> datetime | None:
        passed = max(elapsed(t, self.anchor, "next_after"), _BEGIN - self.anchor)
        try:
            due = self.anchor + (passed // self.period + 1) * self.period
        except OverflowError:
            return None
        return due.astimezone(zone(self.tz or "UTC")) if due < _END else None

    def count(self, start: float, end: float) -> int | None:
        period, anchor = self.period // _MICROSECOND, (self.anchor - EPOCH) // _MICROSECOND
        low, high = (max(round(one * 1e6), FIRST * 1_000_000) - anchor for one in (start, min(end, LAST)))
        return max(-(-high // period) + (-low // period), 0)

    def explain(self) -> str:
        return (
            f"Every {_words(self.period)} of elapsed time, counted from {self.anchor:%Y-%m-%d %H:%M:%S} UTC. "
            "Clock changes do not matter."
        )

    def in_zone(self, tz: Zone) -> Every:
        return self if self.tz else Every(self.period, self.anchor, zone_key(tz))

    def as_dict(self) -> dict[str, Any]:
        microseconds = self.period // _MICROSECOND
        return {"trigger": self.kind, "microseconds": microseconds, "anchor": self.anchor.isoformat(), "tz": self.tz}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Every:
        microseconds, tz = fields["microseconds"], fields["tz"]
        if type(microseconds) is not int or microseconds <= 0:
            raise ConfigurationError(f"every: microseconds={microseconds!r} is not a whole number above zero.")
        anchor = moment(datetime.fromisoformat(fields["anchor"]), "every: anchor")
        return Every(timedelta(microseconds=microseconds), anchor, None if tz is None else zone_key(tz))


@dataclass(frozen=True, slots=True)
class At(Trigger):
    """Made by `at`."""

    kind: ClassVar[str] = "at"
    when: datetime
    """In UTC."""
    tz: str | None = None

    def next_after(self, t: datetime) -> datetime | None:
        ahead = elapsed(t, self.when, "next_after") < timedelta(0)
        return self.when.astimezone(zone(self.tz or "UTC")) if ahead else None

    def count(self, start: float, end: float) -> int | None:
        when = (self.when - EPOCH) / timedelta(seconds=1)
        return int(start <= when < end)

    def explain(self) -> str:
        return f"Once, at {self.when.astimezone(zone(self.tz or 'UTC')):%Y-%m-%d %H:%M:%S %z}, {self.tz or 'UTC'}."

    def in_zone(self, tz: Zone) -> At:
        return self if self.tz else At(self.when, zone_key(tz))

    def as_dict(self) -> dict[str, Any]:
        return {"trigger": self.kind, "when": self.when.isoformat(), "tz": self.tz}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> At:
        when, tz = moment(datetime.fromisoformat(fields["when"]), "at"), fields["tz"]
        return At(when, None if tz is None else zone_key(tz))


def _key_of(given: datetime | None, tz: Zone | None) -> str | None:
    """The given zone, else that of the datetime if it has a name."""
    if tz is not None:
        return zone_key(tz)
    named = given.tzinfo if given is not None else None
    return zone_key(named) if isinstance(named, ZoneInfo) else None


def _number(unit: str, value: object) -> float:
    if not isinstance(value, int | float):
        raise ConfigurationError(
            f"every: {unit}={value!r} is not a number. Write {unit}=2, or every('2m') without {unit}=."
        )
    return in_seconds(value, f"every: {unit}")


def _words(period: timedelta) -> str:
    """'1 h 30 min', '2 days', '0.25 s'."""
    if period == timedelta(days=1):
        return "24 h"
    parts, rest = [], period
    for unit, size in (("days", timedelta(days=1)), ("h", timedelta(hours=1)), ("min", timedelta(minutes=1))):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {'day' if unit == 'days' and count == 1 else unit}")
    if rest:
        parts.append(f"{rest.total_seconds():.6f}".rstrip("0").rstrip(".") + " s")
    return " ".join(parts)
