"""When something is due: pure rules, `next_after(t)`, that never read a clock (G3, G4).

    cron("30 2 * * MON-FRI", tz="Europe/Berlin")                       the wall clock, as Debian's cron
    every("30s")                                                       elapsed time
    calendar(months=2, start="2026-01-31", at="09:00")                 steps of the calendar
    at(datetime(2026, 12, 31, 12, tzinfo=UTC))                         once
    cron("0 9 * * *") | at(…)                                          either
    cron("0 9 * * *") - closed("holidays", dates=[…], weekly=[…])      but not then

For every trigger, `next_after(t)` is strictly after `t`, strictly increasing as instants, and the same on every node
that has the same release of the zone rules (`tzdata_version`).
"""

from __future__ import annotations

from tenure.triggers.base import ClockChange, Preview, Trigger
from tenure.triggers.calendar import Calendar, calendar
from tenure.triggers.combined import Closed, Excluding, Union, closed
from tenure.triggers.cron import Cron, cron
from tenure.triggers.elapsed import At, Every, at, every
from tenure.triggers.text import from_json
from tenure.triggers.zones import tzdata_version, zone

__all__ = [
    "At",
    "Calendar",
    "ClockChange",
    "Closed",
    "Cron",
    "Every",
    "Excluding",
    "Preview",
    "Trigger",
    "Union",
    "at",
    "calendar",
    "closed",
    "cron",
    "every",
    "from_json",
    "tzdata_version",
    "zone",
]
