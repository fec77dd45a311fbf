"""Translates APScheduler's triggers for the ledger, where every node must read the same due times from a text.

Most of them have an equivalent in tenure. The others (`end_date`, a future `start_date`, `week`, `year`, `AndTrigger`,
custom triggers) are stored as the list of their next due times. Processes that have the trigger extend the list long
before it ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from tenure import triggers
from tenure.errors import ConfigurationError
from tenure.ext.apscheduler import fields
from tenure.ext.apscheduler.triggers import (
    BaseTrigger,
    CalendarIntervalTrigger,
    CronTrigger,
    DateTrigger,
    IntervalTrigger,
    OrTrigger,
)
from tenure.ext.apscheduler.zones import zone_name
from tenure.triggers import Trigger
from tenure.triggers.combined import Union
from tenure.triggers.zones import EPOCH
from tenure.util.clock import walltime

LISTED = 100
"""Due times in a list: as many as ever run late after an outage."""


class Starting(BaseTrigger):
    """Due at `first`, whatever the trigger says, and from then on by the trigger: the meaning of `next_run_time`."""

    def __init__(self, first: datetime, trigger: BaseTrigger) -> None:
        self.first, self.jitter = first, trigger.jitter
        self.then = _counted_from(first, trigger) if isinstance(trigger, IntervalTrigger) else trigger

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        if previous_fire_time is None and now <= self.first:
            return self.first
        return self.then.get_next_fire_time(previous_fire_time, now)

    def pure(self, now: datetime) -> Trigger | None:
        return self.then.pure(now) if now > self.first else None

    def __str__(self) -> str:
        return str(self.then)


class LedgerTrigger(BaseTrigger):
    """A trigger that was read from the ledger."""

    def __init__(self, rule: Trigger) -> None:
        self.rule = rule

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        return self.rule.next_after(
            now - timedelta(microseconds=1) if previous_fire_time is None else previous_fire_time
        )

    def pure(self, now: datetime) -> Trigger | None:
        del now
        return self.rule

    def __str__(self) -> str:
        end = last_listed(self.rule)
        return self.rule.explain() if end is None else f"list[due times until {end:%Y-%m-%d %H:%M:%S %Z}]"


def from_ledger(rule: Trigger) -> BaseTrigger:
    """A trigger read from the ledger, as one of APScheduler's if that says exactly the same."""
    try:
        found = _in_their_words(rule)
    except ConfigurationError:
        found = None
    return found if found is not None and found.pure(walltime()) == rule else LedgerTrigger(rule)


def _in_their_words(rule: Trigger) -> BaseTrigger | None:
    match rule:
        case triggers.Cron():
            said: dict[str, Any] | None = fields.words(rule.expr)
            return None if said is None else CronTrigger(**said, timezone=rule.tz)
        case triggers.Every():
            start = None if rule.anchor == EPOCH else rule.anchor
            return IntervalTrigger(seconds=rule.period.total_seconds(), start_date=start, timezone=rule.tz)
        case triggers.At():
            return DateTrigger(rule.when, timezone=rule.tz)
        case triggers.Calendar():
            given: dict[str, Any] = {rule.unit: rule.step, "hour": rule.at.hour, "minute": rule.at.minute}
            given["second"] = rule.at.second
            return CalendarIntervalTrigger(**given, start_date=rule.start, timezone=rule.tz)
        case Union() if last_listed(rule) is None:
            return OrTrigger([from_ledger(part) for part in rule.parts])
        case _:
            return None


@dataclass(frozen=True, slots=True)
class StoredTrigger:
    """A trigger as it is stored in the ledger."""

    trigger: Trigger | None
    """None when nothing more is due."""
    write_on_at: datetime | None = None
    """When the list should be extended; None if never."""


def stored_trigger(trigger: BaseTrigger, now: datetime) -> StoredTrigger:
    """The stored form of a trigger, from now on."""
    pure = trigger.pure(now)
    if pure is not None:
        return StoredTrigger(pure)
    listed = list(islice(due_times(trigger, now), LISTED))
    if not listed:
        return StoredTrigger(None)
    ends = len(listed) < LISTED
    middle = listed[len(listed) // 2]
    return StoredTrigger(Union.of(*map(_at, listed)), None if ends else middle)


def due_times(trigger: BaseTrigger, now: datetime) -> Iterator[datetime]:
    """The due times from now on, in order."""
    due = trigger.get_next_fire_time(None, now)
    while due is not None:
        yield due
        following = trigger.get_next_fire_time(due, due.astimezone(UTC) + timedelta(microseconds=1))
        due = following if following is None or following - EPOCH > due - EPOCH else None


def ends(trigger: BaseTrigger, since: datetime) -> bool:
    """True if nothing is due after this."""
    if isinstance(trigger, DateTrigger):
        return trigger.run_date <= since
    return trigger.pure(since) is None and trigger.get_next_fire_time(since, since + timedelta(microseconds=1)) is None


def last_listed(trigger: Trigger) -> datetime | None:
    """The last due time of a list; None for any other trigger."""
    parts = trigger.parts if isinstance(trigger, Union) else (trigger,)
    ends = [part.when for part in parts if isinstance(part, triggers.At)]
    return max(ends) if len(ends) == len(parts) else None


def _at(due: datetime) -> Trigger:
    try:
        return triggers.at(due, zone_name(due.tzinfo))
    except ConfigurationError:  # a trigger of the program's own may be in any zone
        return triggers.at(due, "UTC")


def _counted_from(first: datetime, trigger: IntervalTrigger) -> IntervalTrigger:
    return IntervalTrigger(
        seconds=trigger.interval_length,
        start_date=first,
        end_date=trigger.end_date,
        timezone=trigger.timezone,
        jitter=trigger.jitter,
    )
