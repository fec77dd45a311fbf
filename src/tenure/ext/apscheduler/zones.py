"""Zones and datetimes as APScheduler accepts them.

Zones are given by name, `zoneinfo`, `pytz` or fixed offset; naive datetimes are in the trigger's zone.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from pathlib import Path

from tenure.errors import ConfigurationError
from tenure.triggers.zones import zone, zone_key
from tenure.util.plurals import a_type

_HOUR = timedelta(hours=1)
_DATE = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6}))?)?(Z|[+-]\d\d:\d\d)?)?",
    re.ASCII,
)


_OFFSETS = {
    "+03:30": "Asia/Tehran",
    "+04:30": "Asia/Kabul",
    "+05:30": "Asia/Kolkata",
    "+05:45": "Asia/Kathmandu",
    "+06:30": "Asia/Yangon",
    "+08:45": "Australia/Eucla",
    "+09:30": "Australia/Darwin",
    "-09:30": "Pacific/Marquesas",
}
"""Zones with a long-standing fixed offset, for offsets that have no other name in the time zone database."""


def zone_name(tz: object, what: str = "timezone") -> str:
    """The name of a zone in the time zone database."""
    for word in ("zone", "key"):  # of pytz, of zoneinfo
        if isinstance(named := getattr(tz, word, None), str):
            return zone_key(named, what)
    if isinstance(tz, tzinfo) and tz != UTC:
        if type(tz).__name__ == "tzlocal":  # of dateutil
            return local_zone()
        if inside := str(getattr(tz, "_filename", "")).rpartition("zoneinfo/")[2]:  # of an older dateutil
            return zone_key(inside, what)
        offset = tz.utcoffset(None)
        if offset is not None:
            return _fixed(offset, what)
    return zone_key(tz, what)  # type: ignore[arg-type]  # refused there with what to write


def _fixed(offset: timedelta, what: str) -> str:
    """The zone of a fixed offset."""
    if offset % _HOUR == timedelta(0):
        return zone_key(f"Etc/GMT{-(offset // _HOUR):+d}" if offset else "UTC", what)
    minutes = abs(offset) // timedelta(minutes=1)
    shown = f"{'-' if offset < timedelta(0) else '+'}{minutes // 60:02}:{minutes % 60:02}"
    if shown not in _OFFSETS:
        raise ConfigurationError(
            f"{what}: no zone of the time zone database has the fixed offset {shown}. "
            "Write the name of a zone such as 'America/St_Johns', or an offset of whole hours."
        )
    return _OFFSETS[shown]


def shown_zone(name: str, timezone: object, *dates: object) -> tzinfo:
    """The zone object in which due times are shown: the given one, so that they compare with the program's datetimes.

    Zones of pytz are taken by name, as APScheduler does.
    """
    given = timezone or next((one.tzinfo for one in dates if isinstance(one, datetime) and one.tzinfo), None)
    named = isinstance(getattr(given, "zone", None), str)
    return given if isinstance(given, tzinfo) and not named else zone(name)


def local_zone() -> str:
    """The machine's zone, which APScheduler uses if none is given; UTC if it has no name."""
    for found in (os.environ.get("TZ", "").removeprefix(":"), _linked(), _written()):
        if found:
            try:
                return zone_key(found)
            except ConfigurationError:
                continue
    return "UTC"


def aware(given: object, tz: str, what: str) -> datetime | None:
    """A datetime, a date or a text as an aware datetime; without a zone it is in `tz`."""
    match given:
        case None:
            return None
        case datetime():
            when = given
        case date():
            when = datetime.combine(given, time())
        case str():
            when = _read(given, what)
        case _:
            raise ConfigurationError(
                f"{what}: {given!r} is {a_type(given)}. Write a datetime, or '2026-12-31 09:00:00'."
            )
    return when if when.tzinfo is not None else when.replace(tzinfo=zone(tz))


def zone_among(timezone: object, *dates: object) -> str:
    """The zone of a trigger: the given one, else that of its dates, else the machine's."""
    if timezone:
        return zone_name(timezone)
    for given in dates:
        if isinstance(given, datetime) and given.tzinfo is not None:
            return zone_name(given.tzinfo)
    return local_zone()


def _read(text: str, what: str) -> datetime:
    found = _DATE.fullmatch(text.strip())
    if found is None:
        raise ConfigurationError(f"{what}: {text!r} is not a date. Write '2026-12-31' or '2026-12-31 09:00:00'.")
    year, month, day, hour, minute, second = (int(number or 0) for number in found.groups()[:6])
    fraction, offset = found.groups()[6:]
    try:
        when = datetime(year, month, day, hour, minute, second, int((fraction or "0").ljust(6, "0")))  # noqa: DTZ001
    except ValueError as error:
        raise ConfigurationError(f"{what}: {text!r}: {error}.") from None
    return when if offset is None else datetime.fromisoformat(f"{when.isoformat()}{offset}")


def _linked() -> str:
    try:
        return str(Path("/etc/localtime").readlink()).rpartition("zoneinfo/")[2]
    except OSError:
        return ""


def _written() -> str:
    try:
        return Path("/etc/timezone").read_text(encoding="utf-8").strip()
    except OSError:
        return ""
