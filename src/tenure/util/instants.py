"""Converts instants and datetimes. The ledger counts seconds since 1970 in UTC; triggers and users have aware
datetimes. Both directions are exact to the microsecond.

(Until the year 2242, when a float no longer has room for microseconds. Whole seconds are always exact.)
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

from tenure.errors import ConfigurationError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant(when: datetime) -> float:
    """The instant of a datetime. Refuses naive datetimes: they do not say which instant they are."""
    if when.tzinfo is None:
        raise ConfigurationError(
            f"{when!r} has no time zone. Write datetime(…, tzinfo=ZoneInfo('Europe/Berlin')), or tzinfo=UTC."
        )
    return when.timestamp()


def moment(when: float, tz: tzinfo = UTC) -> datetime:
    """What the clocks of a zone show at an instant."""
    try:
        shown = _EPOCH + timedelta(seconds=when)
        return shown if tz is UTC else shown.astimezone(tz)
    except (OverflowError, ValueError):
        raise ConfigurationError(f"{when!r} s from 1970 is further than a calendar reaches.") from None


def shown(when: float, tz: tzinfo = UTC) -> str:
    """A human-readable instant: '2026-03-29 02:30:00+01:00'."""
    local = moment(when, tz)
    return local.isoformat(" ", "milliseconds" if local.microsecond else "seconds")
