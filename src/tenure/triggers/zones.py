"""Time zones, from the `tzdata` package alone, so that all nodes agree whatever is installed on their machines.

A zone has two forms here: a `ZoneInfo` for the datetimes that users see, and a `Timeline`, the same rules as plain
numbers, on which the triggers calculate. A timeline is a list of periods in which the wall clock runs evenly. Between
two of them it is put forward (a gap: some readings do not exist) or back (a fold: some readings come twice).
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from struct import unpack_from
from zoneinfo import ZoneInfo

import tzdata  # type: ignore[import-untyped]  # ships no types

from tenure.errors import ConfigurationError
from tenure.util.plurals import a_type

Zone = str | tzinfo
"""How users name a zone: its key ('Asia/Seoul'), a `ZoneInfo`, or `timezone.utc`."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_ORDINAL = EPOCH.toordinal()
DAY = 86_400

CALENDAR_CHANGE = 3 * 3600
"""Seconds. Larger changes of the wall clock change the calendar, as in Debian's cron: they skip and repeat nothing."""

FIRST = -62_135_596_800 + 3 * DAY
"""The earliest instant, in seconds since 1970: every zone can still write it as a datetime."""
LAST = 253_402_300_800 - 3 * DAY
"""The end: nothing is due from here on."""

FOREVER = 1 << 62
_ABBREVIATED = {
    abbreviation: place
    for place, abbreviations in {
        "America/Los_Angeles": "PST PDT PT",
        "America/Denver": "MDT MT",
        "America/Chicago": "CST CDT CT",
        "America/New_York": "EDT ET",
        "America/Anchorage": "AKST AKDT",
        "America/Halifax": "AST ADT",
        "America/Sao_Paulo": "BRT",
        "Europe/London": "BST",
        "Europe/Berlin": "CEST",
        "Europe/Helsinki": "EEST",
        "Europe/Moscow": "MSK",
        "Asia/Kolkata": "IST",
        "Asia/Seoul": "KST",
        "Asia/Tokyo": "JST",
        "Asia/Hong_Kong": "HKT",
        "Asia/Singapore": "SGT",
        "Australia/Sydney": "AEST AEDT",
        "Pacific/Auckland": "NZST NZDT",
    }.items()
    for abbreviation in abbreviations.split()
}
"""What people write who mean a place. Those that are keys of the database (EST, CET …) never come here."""
_NEAR = 2100
_LAST_YEAR = 9999
_CYCLE = 400
_DECADE = 10


def tzdata_version() -> str:
    """The release of the zone rules in this process, such as '2026a'. Later releases compare as greater."""
    return str(tzdata.IANA_VERSION)


def zone_key(tz: Zone, what: str = "tz") -> str:
    """The key of a zone that exists in `tzdata`. Everything else is refused, with what to write instead."""
    match tz:
        case str():
            key = tz
        case ZoneInfo() if tz.key:
            key = tz.key
        case timezone() if tz == UTC:
            key = "UTC"
        case tzinfo():
            raise ConfigurationError(
                f"{what}: {tz!r} has no name in the time zone database, so its clock changes are unknown. "
                f"Write a name such as 'Europe/Berlin'."
            )
        case _:
            raise ConfigurationError(
                f"{what}: {tz!r} is {a_type(tz)}. Write a zone's name such as 'Europe/Berlin', or a ZoneInfo."
            )
    if key not in _keys():
        raise ConfigurationError(f"{what}: {key!r} is not a zone of tzdata {tzdata_version()}. {_advice(key)}")
    return key


@lru_cache(maxsize=1024)
def zone(key: str) -> ZoneInfo:
    """The zone of this key, always the same object, read from the `tzdata` package."""
    with _file(zone_key(key)).open("rb") as file:
        return _PackagedZone.from_file(file, key=key)


def elapsed(t: datetime, since: datetime = EPOCH, what: str = "after") -> timedelta:
    """The time from one instant to another. Refuses naive datetimes."""
    try:
        return t - since
    except TypeError:
        raise _not_aware(t, what) from None


def seconds_of(t: datetime, what: str = "after") -> int:
    """The whole seconds from 1970 to this instant, rounded down. Refuses naive datetimes."""
    try:
        passed = t - EPOCH
    except TypeError:
        raise _not_aware(t, what) from None
    return passed.days * DAY + passed.seconds


def moment(t: datetime, what: str = "after") -> datetime:
    """The same instant in UTC. Refuses naive datetimes."""
    elapsed(t, EPOCH, what)
    try:
        return t.astimezone(UTC)
    except OverflowError:
        raise ConfigurationError(f"{what}: {t!r} is too close to the end of what a datetime can hold.") from None


def reading(seconds: int, tz: ZoneInfo) -> datetime:
    """What the clocks of the zone show at an instant."""
    return (EPOCH + timedelta(seconds=seconds)).astimezone(tz)


@dataclass(frozen=True, slots=True)
class Timeline:
    """A zone as numbers: period `i` lasts from `starts[i]` to `starts[i + 1]`, and its clocks show UTC plus
    `offsets[i]` seconds.

    `wall[i]` is the first reading of the period. `fresh[i]` is the first one that was not shown before it. In a fold it
    is later than `wall[i]`, because the readings in between were shown already; after a gap it is earlier, because the
    readings in between never were. After a change of the calendar the two are equal.
    """

    key: str
    zone: ZoneInfo
    until: int
    """The first year that is not computed."""
    end: int
    """The instant at which that year begins; `FOREVER` if no change follows."""
    starts: tuple[int, ...]
    offsets: tuple[int, ...]
    wall: tuple[int, ...]
    fresh: tuple[int, ...]

    def at(self, seconds: int) -> int:
        """The period that contains an instant."""
        return bisect_right(self.starts, seconds) - 1

    def longer(self) -> Timeline:
        return _timeline(self.key, self.until + _CYCLE)

    def covering(self, seconds: int) -> Timeline:
        """This timeline; if it does not reach that far, the ten years around an instant alone, from the zone's rule."""
        if seconds < self.end:
            return self
        year = (EPOCH + timedelta(seconds=min(seconds, LAST - 1))).year
        return _decade(self.key, year - year % _DECADE)


def timeline(key: str) -> Timeline:
    """The timeline of a zone up to the year 2100 at least; `longer()` extends it."""
    return _timeline(key, _NEAR)


class _PackagedZone(ZoneInfo):
    """A `ZoneInfo` that can be pickled, although it came from a file: the other side reads the same package."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return zone, (self.key,)


@lru_cache(maxsize=4096)
def _timeline(key: str, until: int) -> Timeline:
    tz = zone(key)

    def offset(seconds: int) -> int:
        shown = reading(seconds, tz).utcoffset()
        return shown.days * DAY + shown.seconds if shown is not None else 0

    if until == _NEAR:
        changes = [(change, offset(change)) for change in _listed_changes(key)]
        ruled_from = max(changes[-1][0] if changes else 0, 0)
        changes.insert(0, (-FOREVER, offset(FIRST)))
    else:
        shorter = _timeline(key, until - _CYCLE)
        if shorter.end == FOREVER:
            return shorter
        changes, ruled_from = list(zip(shorter.starts, shorter.offsets, strict=True)), shorter.end
    end = min(seconds_of(datetime(until, 1, 1, tzinfo=UTC)), LAST) if until <= _LAST_YEAR else LAST
    ruled = _ruled_changes(key, ruled_from, end)
    return _built(key, until, end if ruled else FOREVER, changes + ruled)


@lru_cache(maxsize=1024)
def _decade(key: str, year: int) -> Timeline:
    """The timeline of a zone with a yearly rule. It includes the two years before: no change in it is the first one."""
    begin = seconds_of(datetime(year - 2, 1, 1, tzinfo=UTC))
    until = year + _DECADE
    end = seconds_of(datetime(until, 1, 1, tzinfo=UTC)) if until <= _LAST_YEAR else LAST
    (_, offset), *changes = _ruled_changes(key, begin, end)
    return _built(key, until, end, [(-FOREVER, offset), *changes])


def _built(key: str, until: int, end: int, changes: list[tuple[int, int]]) -> Timeline:
    starts, offsets = [changes[0][0]], [changes[0][1]]
    for change, after in changes[1:]:
        if after != offsets[-1]:
            starts.append(change)
            offsets.append(after)
    wall, fresh = [-FOREVER], [-FOREVER]
    for start, before, after in zip(starts[1:], offsets, offsets[1:], strict=False):
        wall.append(start + after)
        fresh.append(start + after if abs(after - before) >= CALENDAR_CHANGE else max(fresh[-1], start + before))
    return Timeline(key, zone(key), until, end, tuple(starts), tuple(offsets), tuple(wall), tuple(fresh))


def _listed_changes(key: str) -> list[int]:
    """The instants that a zone's TZif file (RFC 8536) lists. `_ruled_changes` covers the time after them."""
    data = _file(key).read_bytes()
    _, isut, isstd, leap, times, types, chars = unpack_from(">20s6l", data)
    second = 44 + times * 5 + types * 6 + chars + leap * 8 + isstd + isut
    times = unpack_from(">20s6l", data, second)[4]
    return [change for change in unpack_from(f">{times}q", data, second + 44) if FIRST < change < LAST]


def _ruled_changes(key: str, start: int, end: int) -> list[tuple[int, int]]:
    """The changes after `start` and before `end` by a zone's yearly rule, each with the offset after it; none if it has
    no such rule.

    The rule is the last line of the zone's file, as in `CET-1CEST,M3.5.0,M10.5.0/3` (POSIX TZ).
    """
    rule = _rule(key)
    if rule is None:
        return []
    standard = -_signed(rule["standard"])
    summer = -_signed(rule["summer"]) if rule["summer"] else standard + 3600
    first, last = (datetime.fromtimestamp(at, UTC).year for at in (start, end))
    changes = [
        (rule["on_day"], _signed(rule["on_time"] or "2") - standard, summer),
        (rule["off_day"], _signed(rule["off_time"] or "2") - summer, standard),
    ]
    found = (
        (_day(day, year) * DAY + second, after)
        for year in range(first - 1, min(last + 1, _LAST_YEAR) + 1)
        for day, second, after in changes
    )
    return sorted((change, after) for change, after in found if start < change < end)


@lru_cache(maxsize=1024)
def _rule(key: str) -> re.Match[str] | None:
    return _RULE.fullmatch(_file(key).read_bytes().rstrip(b"\n").rpartition(b"\n")[2].decode("ascii"))


_DAY_RULE = r"J?\d+|M\d+\.\d\.\d"
_NAME, _LENGTH = r"(?:<[^>]+>|[A-Za-z]+)", r"[-+]?\d+(?::\d+)*"
_RULE = re.compile(
    rf"{_NAME}(?P<standard>{_LENGTH}){_NAME}(?P<summer>{_LENGTH})?"
    rf",(?P<on_day>{_DAY_RULE})(?:/(?P<on_time>{_LENGTH}))?,(?P<off_day>{_DAY_RULE})(?:/(?P<off_time>{_LENGTH}))?",
    re.ASCII,
)


def _signed(text: str) -> int:
    """'-1:30' in seconds."""
    size = sum(int(part) * unit for part, unit in zip(text.lstrip("+-").split(":"), (3600, 60, 1), strict=False))
    return -size if text.startswith("-") else size


def _day(rule: str, year: int) -> int:
    """The day since 1970: 'M3.5.0' is the last Sunday of March, 'J60' always 1 March, '59' the 60th day of the year."""
    if rule.startswith("J"):  # 29 February is never counted
        in_common_year = date(2001, 1, 1) + timedelta(days=int(rule[1:]) - 1)
        return in_common_year.replace(year=year).toordinal() - _EPOCH_ORDINAL
    if not rule.startswith("M"):
        return date(year, 1, 1).toordinal() - _EPOCH_ORDINAL + int(rule)
    month, week, weekday = (int(part) for part in rule[1:].split("."))
    first = date(year, month, 1).toordinal()
    day = first + (weekday - first) % 7 + (week - 1) * 7
    beyond = date(year, month + 1, 1).toordinal() if month < 12 else first + 31  # noqa: PLR2004 - December
    return (day if day < beyond else day - 7) - _EPOCH_ORDINAL


@lru_cache(maxsize=1)
def _keys() -> frozenset[str]:
    return frozenset(resources.files(tzdata).joinpath("zones").read_text("utf-8").split())


def _file(key: str) -> Traversable:
    return resources.files(tzdata).joinpath("zoneinfo", *key.split("/"))


def _advice(key: str) -> str:
    if place := _ABBREVIATED.get(key.strip().upper()):
        return f"{key.strip().upper()} is an abbreviation, which says nothing of clock changes. Write {place!r}."
    folded = {name.casefold(): name for name in sorted(_keys())}
    wanted = key.strip().casefold().replace(" ", "_")
    close = [name for low, name in folded.items() if wanted and low.rsplit("/", 1)[-1] == wanted]
    close += [folded[low] for low in difflib.get_close_matches(wanted, folded, n=3, cutoff=0.6)]
    close = [folded[wanted]] if wanted in folded else list(dict.fromkeys(close))[:3]
    if not close:
        return "Write a name such as 'Europe/Berlin' or 'UTC'."
    return f"Did you mean {' or '.join(map(repr, close))}?"


def _not_aware(t: object, what: str) -> ConfigurationError:
    if isinstance(t, datetime):
        return ConfigurationError(
            f"{what}: {t!r} has no time zone, so it is not an instant. "
            f"Write datetime(…, tzinfo=ZoneInfo('Europe/Berlin')) or datetime.now(UTC)."
        )
    return ConfigurationError(f"{what}: {t!r} is {a_type(t)}. Write a datetime with a time zone.")
