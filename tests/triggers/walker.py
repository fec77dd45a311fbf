"""What Debian's cron would have run, found by waiting: minute by minute, with its main loop (3.0pl1) and nothing of
ours.

The loop keeps a virtual time, the wall-clock minute up to which fixed jobs were looked at, and compares it with the
real one at each minute. Two differences, both the project's own: several skipped times of a job make one run, and a
change of exactly three hours counts as large in both directions (the loop's `> -(3*60)` lets it pass for a small one
when clocks go back).
"""

from __future__ import annotations

import calendar
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from importlib import resources
from zoneinfo import ZoneInfo

LARGE = 180
EARLIER = 8 * 60
"""Minutes that a walk begins before what it reports, so that it knows what has run already."""
_NAMES = {
    name: number
    for names, first in (("sun mon tue wed thu fri sat", 0), ("jan feb mar apr may jun jul aug sep oct nov dec", 1))
    for number, name in enumerate(names.split(), first)
}


@lru_cache(maxsize=1024)
def zone(key: str) -> ZoneInfo:
    with resources.files("tzdata.zoneinfo").joinpath(*key.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=key)


Look = tuple[int, int, date, datetime]
"""Minute, hour and date on the wall that cron looks at, and the instant at which it does."""


@dataclass(frozen=True)
class Walk:
    """What cron looks at while time passes, for its two sorts of jobs."""

    wildcard: list[Look]
    fixed: list[Look]


def walk(key: str, begin: datetime, end: datetime) -> Walk:
    tz, wildcard, fixed = zone(key), [], []
    now = begin - timedelta(minutes=EARLIER)
    virtual: datetime | None = None
    while now < end:
        wall = now.astimezone(tz).replace(tzinfo=None, fold=0)
        assert wall.second == 0, "the walk goes by whole minutes"
        difference = 1 if virtual is None else (wall - virtual) // timedelta(minutes=1)
        looked_at: list[datetime] = []
        if difference == 1 or difference > LARGE or difference <= -LARGE + 1:
            virtual, looked_at = wall, [wall]
        elif difference > 0:
            virtual, looked_at = wall, [wall - timedelta(minutes=back) for back in range(difference)]
        if now >= begin:
            wildcard.append((wall.minute, wall.hour, wall.date(), now))
            fixed += [(look.minute, look.hour, look.date(), now) for look in looked_at]
        now += timedelta(minutes=1)
    return Walk(wildcard, fixed)


class Job:
    """A crontab line: which wall-clock minutes match, and whether Debian calls it a wildcard job."""

    def __init__(self, expr: str) -> None:
        self.expr = expr
        minute, hour, day, month, weekday = expr.lower().split()
        self.minute, self.hour, self.month = _values(minute, 0, 59), _values(hour, 0, 23), _values(month, 1, 12)
        self.of_day, self.of_weekday = _day_test(day), _weekday_test(weekday)
        self.both = day[0] == "*" or weekday[0] == "*"
        self.wildcard = minute[0] == "*" or hour[0] == "*"
        self._dates: dict[date, bool] = {}

    def runs(self, walk: Walk) -> list[datetime]:
        """The instants at which the job runs."""
        minutes, hours = self.minute, self.hour
        looks = walk.wildcard if self.wildcard else walk.fixed
        found = [now for minute, hour, day, now in looks if minute in minutes and hour in hours and self.on(day)]
        return list(dict.fromkeys(found))

    def on(self, day: date) -> bool:
        if day not in self._dates:
            one, other = self.of_day(day), self.of_weekday(day)
            self._dates[day] = day.month in self.month and (one and other if self.both else one or other)
        return self._dates[day]


def _values(text: str, low: int, high: int) -> set[int]:
    result: set[int] = set()
    for item in text.split(","):
        span, _, step = item.partition("/")
        first, _, last = (f"{low}-{high}" if span == "*" else span).partition("-")
        numbers = [_NAMES.get(value) if value in _NAMES else int(value) for value in (first, last or first)]
        assert numbers[0] is not None
        assert numbers[1] is not None
        result |= set(range(numbers[0], numbers[1] + 1, int(step or 1)))
    return result


def _day_test(text: str) -> Callable[[date], bool]:
    special = {item for item in text.split(",") if item.startswith("l")}
    plain = ",".join(item for item in text.split(",") if item not in special)
    numbers = _values(plain, 1, 31) if plain else set()

    def test(day: date) -> bool:
        tomorrow = day + timedelta(days=1)
        if "l" in special and tomorrow.month != day.month:
            return True
        if "lw" in special:
            working = [one for one in _month(day) if one.weekday() < 5]
            if working[-1].day == day.day:
                return True
        return day.day in numbers

    return test


def _weekday_test(text: str) -> Callable[[date], bool]:
    special = {item for item in text.split(",") if "#" in item or item.endswith("l")}
    plain = ",".join(item for item in text.split(",") if item not in special)
    numbers = {number % 7 for number in _values(plain, 0, 7)} if plain else set()

    def test(day: date) -> bool:
        for item in special:
            name, _, nth = item.removesuffix("l").partition("#")
            number = (_NAMES[name] if name in _NAMES else int(name)) % 7
            same = [one.day for one in _month(day) if one.isoweekday() % 7 == number]
            place = int(nth) - 1 if nth else -1
            if place < len(same) and same[place] == day.day:
                return True
        return day.isoweekday() % 7 in numbers

    return test


def _month(day: date) -> list[date]:
    count = calendar.monthrange(day.year, day.month)[1]
    return [date(day.year, day.month, number) for number in range(1, count + 1)]


@dataclass(frozen=True)
class Change:
    """A clock change of a zone, found by looking at its clock: days, then hours, then minutes."""

    key: str
    instant: datetime
    before: timedelta
    after: timedelta

    @property
    def kind(self) -> tuple[object, ...]:
        """Wall time, offset before and after: what can make a difference to a trigger, apart from the date."""
        return (self.instant + self.before).time(), self.before, self.after


def changes(key: str, first: int = 2005, last: int = 2037) -> list[Change]:
    tz, found = zone(key), []
    now, end = datetime(first, 1, 1, tzinfo=UTC), datetime(last + 1, 1, 1, tzinfo=UTC)
    offset = _offset(tz, now)
    while now < end:
        later = now + timedelta(days=2)  # no zone has changed its clocks twice within so short a time since 2005
        if _offset(tz, later) != offset:
            hour = now
            while _offset(tz, hour + timedelta(hours=1)) == offset:
                hour += timedelta(hours=1)
            moment = hour
            while _offset(tz, moment) == offset:
                moment += timedelta(minutes=1)
            found.append(Change(key, moment, offset, _offset(tz, moment)))
            offset = _offset(tz, later)
        now = later
    return found


def _offset(tz: ZoneInfo, instant: datetime) -> timedelta:
    offset = instant.astimezone(tz).utcoffset()
    assert offset is not None
    return offset


def zones() -> list[str]:
    """One name for each set of rules."""
    files = resources.files("tzdata.zoneinfo")
    rules: dict[bytes, str] = {}
    for key in sorted(resources.files("tzdata").joinpath("zones").read_text("utf-8").split()):
        rules.setdefault(files.joinpath(*key.split("/")).read_bytes(), key)
    return sorted(rules.values())
