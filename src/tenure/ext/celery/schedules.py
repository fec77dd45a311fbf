"""Translates Celery's schedules into triggers of tenure."""

from __future__ import annotations

import re
from typing import Any

from celery.schedules import crontab, schedule, solar

from tenure.errors import ConfigurationError
from tenure.triggers import Trigger, closed, cron, every
from tenure.triggers.zones import zone_key

_DAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
_STAR = re.compile(r"\*(/[1-9][0-9]*)?")
_KNOWN = ("celery.", "django_celery_beat.")


def trigger_of(name: str, given: Any) -> Trigger:
    """The trigger of an entry. Intervals count from a fixed time that all beats share, not from the start of a beat."""
    if isinstance(given, solar):
        raise _refused(name, given, "tenure has no trigger for the position of the sun")
    if not type(given).__module__.startswith(_KNOWN) and any(
        "is_due" in vars(kind) or "remaining_estimate" in vars(kind) for kind in _own(type(given))
    ):
        raise _refused(name, given, "its own code decides when it is due")
    if isinstance(given, crontab):
        return _cron(name, given)
    if isinstance(given, schedule):
        if given.seconds <= 0:
            raise ConfigurationError(
                f"entry {name!r}: a period of {given.seconds:g} s would always be due. Write more than zero."
            )
        return every(seconds=given.seconds)
    raise _refused(name, given, "tenure does not know this kind")


def _cron(name: str, given: Any) -> Trigger:
    """In Celery both day fields must match; in Debian's cron one is enough, unless the other begins with a star."""
    tz = getattr(given.tz, "key", None)
    if tz is None:
        raise ConfigurationError(
            f"entry {name!r}: the zone {given.tz!r} has no name, so other beats could not look it up. "
            "Write a named zone, such as timezone='Europe/Berlin'."
        )
    minute = _field(given._orig_minute, given.minute, 60)  # noqa: SLF001 - only this shows a leading star
    hour = _field(given._orig_hour, given.hour, 24)  # noqa: SLF001
    day = _field(given._orig_day_of_month, given.day_of_month, 31)  # noqa: SLF001
    month = _field(given._orig_month_of_year, given.month_of_year, 12)  # noqa: SLF001
    weekday = _field(given._orig_day_of_week, given.day_of_week, 7)  # noqa: SLF001
    if day.startswith("*") or weekday.startswith("*"):
        return cron(f"{minute} {hour} {day} {month} {weekday}", zone_key(tz))
    others = [day for number, day in enumerate(_DAYS) if number not in given.day_of_week]
    return cron(f"{minute} {hour} {day} {month} *", zone_key(tz)) - closed("other weekdays", weekly=others)


def _field(written: Any, values: set[int], count: int) -> str:
    """A field as numbers, because Celery has ranges and names that cron has not.

    A leading star stays: it decides how clock changes are handled.
    """
    if len(values) == count:
        return "*"
    numbers = ",".join(map(str, sorted(values)))
    star = _STAR.match(str(written))
    return f"{star[0]},{numbers}" if star else numbers


def _own(kind: type) -> list[type]:
    return [base for base in kind.__mro__ if not base.__module__.startswith((*_KNOWN, "builtins"))]


def _refused(name: str, given: object, why: str) -> ConfigurationError:
    kind = f"{type(given).__module__}.{type(given).__qualname__}"
    return ConfigurationError(
        f"entry {name!r}: a {kind} cannot be shared by several beats: {why}. Keep this entry in an app of its own with "
        "Celery's own beat, or write crontab(…) or a number of seconds."
    )
