"""Times in tables: short, and all in one zone, whose name is in the header. That is the zone of the reader. All that is
shown of one job is in the zone of that job, in sentences and in tables."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo

from tenure.util.clock import walltime
from tenure.util.durations import readable

_DAY = timedelta(days=1)
_HALF_A_YEAR = timedelta(days=180)


def here() -> str:
    """The name of the reader's zone."""
    return walltime().astimezone().tzname() or "local"


def short(at: datetime | None, now: datetime, where: tzinfo | None = None) -> str:
    """'03:00:00' within a day, '11-19 03:00' within half a year, else '2027-11-19'. In this zone, or the reader's."""
    if at is None:
        return ""
    local = at.astimezone(where)
    apart = abs(at - now)
    if apart < _DAY:
        return local.strftime("%H:%M:%S")
    return local.strftime("%m-%d %H:%M" if apart < _HALF_A_YEAR else "%Y-%m-%d")


def ago(at: datetime | None, now: datetime) -> str:
    """'5 s ago', '3 h ago'; '' for none."""
    return "" if at is None else f"{about((now - at).total_seconds())} ago"


def about(seconds: float) -> str:
    """A duration in one unit: '5 s', '12 min', '3 h', '4 d'."""
    length = max(seconds, 0.0)
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if length >= size * (2 if unit == "d" else 1):
            return f"{int(length // size)} {unit}"
    return f"{int(length)} s"


def took(seconds: float | None) -> str:
    """A duration as measured; '' for none."""
    return "" if seconds is None else readable(seconds)
