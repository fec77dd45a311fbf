"""APScheduler's triggers, under their own names. `trigger_translation` stores them in the ledger.

`get_next_fire_time` answers as APScheduler's own triggers do, but without jitter: jitter shifts the start of a run,
never the due time that names it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any

from tenure import triggers
from tenure.errors import ConfigurationError
from tenure.ext.apscheduler import fields
from tenure.ext.apscheduler.zones import aware, shown_zone, zone_among
from tenure.triggers import Trigger
from tenure.triggers.base import STEPS, OutOfStepsError, Steps
from tenure.triggers.combined import Union
from tenure.triggers.zones import EPOCH
from tenure.util.clock import walltime
from tenure.util.plurals import a_type

_MOMENT = timedelta(microseconds=1)
_YEARS = 40
"""Years to search for a `week` that matches the other fields."""


class BaseTrigger(ABC):
    """What the triggers have in common."""

    jitter: float | None = None

    @abstractmethod
    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        """The due time after the previous one; without one, the first from `now` on."""

    def within(self, previous_fire_time: datetime | None, now: datetime, steps: Steps | None) -> datetime | None:
        """`get_next_fire_time` as a part of an `AndTrigger`. Triggers that search take from its budget of steps."""
        del steps
        return self.get_next_fire_time(previous_fire_time, now)

    def pure(self, now: datetime) -> Trigger | None:  # noqa: ARG002 - only some translations depend on the time
        """The same rule as a trigger of tenure, as far as it matters from now on; None if there is none."""
        return None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"


class CronTrigger(BaseTrigger):
    """`CronTrigger(day_of_week='mon-fri', hour=9)`. Monday is 0, and all fields must match."""

    def __init__(  # noqa: PLR0917 - the order is APScheduler's
        self,
        year: int | str | None = None,
        month: int | str | None = None,
        day: int | str | None = None,
        week: int | str | None = None,
        day_of_week: int | str | None = None,
        hour: int | str | None = None,
        minute: int | str | None = None,
        second: int | str | None = None,
        start_date: datetime | date | str | None = None,
        end_date: datetime | date | str | None = None,
        timezone: object = None,
        jitter: float | None = None,
    ) -> None:
        given = (year, month, day, week, day_of_week, hour, minute, second)
        self.tz = zone_among(timezone, start_date, end_date)
        self.timezone = shown_zone(self.tz, timezone, start_date, end_date)
        self.start_date = aware(start_date, self.tz, "start_date")
        self.end_date = aware(end_date, self.tz, "end_date")
        self.jitter = jitter
        self._say(fields.read(dict(zip(fields.NAMES, given, strict=True))))

    def _say(self, given: Mapping[str, fields.Field]) -> None:
        self._fields = given
        self._rule = fields.as_trigger(given, self.tz)
        self._years, self._weeks = given["year"], given["week"]
        self._dated = not (self._years.everything and self._weeks.everything)

    @classmethod
    def from_crontab(cls, expr: str, timezone: object = None) -> CronTrigger:
        """Five fields as APScheduler reads them: Monday is 0, and both day fields must match."""
        values = expr.split()
        if len(values) != 5:  # noqa: PLR2004 - a crontab has five
            raise ConfigurationError(f"from_crontab: {expr!r} has {len(values)} fields. Write five.")
        minute, hour, day, month, day_of_week = values
        return cls(minute=minute, hour=hour, day=day, month=month, day_of_week=day_of_week, timezone=timezone)

    def shared(self, other: CronTrigger) -> CronTrigger | None:
        """One trigger for the times that both have; None if no fields can say that."""
        bounds = (self.start_date, self.end_date, other.start_date, other.end_date)
        both = fields.shared(self._fields, other._fields)
        if self.tz != other.tz or any(bounds) or both is None:
            return None
        found = CronTrigger(timezone=self.timezone)
        found._say(both)
        return found

    @property
    def fields(self) -> list[fields.Field]:
        """All eight, in their order."""
        return list(self._fields.values())

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        return self.within(previous_fire_time, now, None)

    def within(self, previous_fire_time: datetime | None, now: datetime, steps: Steps | None) -> datetime | None:
        after = _after(previous_fire_time, now, self.start_date)
        due = self._rule.next_after(after)
        limit = 0
        while due is not None and self._dated and not self._matches(due):
            if steps is not None:
                steps.take()
            limit = limit or min((year for year in self._years.numbers if year >= after.year), default=after.year)
            if due.year > limit + _YEARS:
                return None
            before = (self._skipped(due) - _MOMENT).astimezone(UTC)
            # If clocks go back at midnight, the moment before it comes twice; the first may be before this due time.
            due = self._rule.next_after(max(before, due.astimezone(UTC)))
        return _shown(due, self.end_date, self.timezone)

    def pure(self, now: datetime) -> Trigger | None:
        bounded = self.end_date is not None or (self.start_date is not None and self.start_date > now)
        return None if bounded or self._dated else self._rule

    def _skipped(self, due: datetime) -> datetime:
        """The first midnight after a due time whose year and week may match."""
        if due.year in self._years.numbers:
            return due.replace(hour=0, minute=0, second=0, fold=0) + timedelta(days=1)
        return due.replace(year=due.year + 1, month=1, day=1, hour=0, minute=0, second=0, fold=0)

    def _matches(self, due: datetime) -> bool:
        return due.year in self._years.numbers and due.isocalendar().week in self._weeks.numbers

    def __str__(self) -> str:
        given = (f"{field.name}='{field.text}'" for field in self.fields if field.given)
        return f"cron[{', '.join(given)}]"


class IntervalTrigger(BaseTrigger):
    """`IntervalTrigger(minutes=5)`. Without `start_date` it counts from 1970, so that all workers agree."""

    def __init__(  # noqa: PLR0917 - the order is APScheduler's
        self,
        weeks: float = 0,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        start_date: datetime | date | str | None = None,
        end_date: datetime | date | str | None = None,
        timezone: object = None,
        jitter: float | None = None,
    ) -> None:
        self.interval = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
        if not self.interval:
            self.interval = timedelta(seconds=1)
        self.tz = zone_among(timezone, start_date, end_date)
        self.timezone = shown_zone(self.tz, timezone, start_date, end_date)
        self._start = aware(start_date, self.tz, "start_date")
        self.end_date = aware(end_date, self.tz, "end_date")
        self.jitter = jitter
        self._rule = triggers.every(self.interval, anchor=self._start, tz=self.tz)
        self.start_date = self._start or self._rule.next_after(walltime())
        """If none was given, a due time that all workers share."""

    @property
    def interval_length(self) -> float:
        """In seconds."""
        return self.interval.total_seconds()

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        due = self._rule.next_after(_after(previous_fire_time, now, self._start))
        return _shown(due, self.end_date, self.timezone)

    def pure(self, now: datetime) -> Trigger | None:
        bounded = self.end_date is not None or (self._start is not None and self._start > now)
        return None if bounded else self._rule

    def __str__(self) -> str:
        return f"interval[{self.interval}]"


class DateTrigger(BaseTrigger):
    """`DateTrigger('2026-12-31 09:00:00')`. Once; without a date, now."""

    def __init__(self, run_date: datetime | date | str | None = None, timezone: object = None) -> None:
        self.tz = zone_among(timezone, run_date)
        self.timezone = shown_zone(self.tz, timezone, run_date)
        when = aware(run_date, self.tz, "run_date")
        self.now = when is None
        self.run_date = (walltime() if when is None else when).astimezone(self.timezone)

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        del now
        return self.run_date if previous_fire_time is None else None

    def pure(self, now: datetime) -> Trigger | None:
        del now
        return triggers.at(self.run_date, self.tz)

    def __str__(self) -> str:
        return f"date[{self.run_date:%Y-%m-%d %H:%M:%S %Z}]"


class CalendarIntervalTrigger(BaseTrigger):
    """`CalendarIntervalTrigger(months=2, hour=9, start_date='2026-01-31')`.

    It needs `start_date`, so that workers agree.
    """

    def __init__(
        self,
        *,
        years: int = 0,
        months: int = 0,
        weeks: int = 0,
        days: int = 0,
        hour: int = 0,
        minute: int = 0,
        second: int = 0,
        start_date: date | str | None = None,
        end_date: date | str | None = None,
        timezone: object = None,
        jitter: float | None = None,
    ) -> None:
        steps = {"months": 12 * years + months, "days": 7 * weeks + days}
        given = {unit: step for unit, step in steps.items() if step}
        if len(given) != 1:
            raise ConfigurationError(
                f"calendarinterval: {given or 'no step'} was given. Write years= and months=, or weeks= and days=."
            )
        if start_date is None:
            raise ConfigurationError(
                "calendarinterval: without start_date every worker would count from the day it was started. Write "
                "start_date='2026-01-31'."
            )
        self.tz = zone_among(timezone)
        self.timezone = shown_zone(self.tz, timezone)
        self.jitter = jitter
        self.years, self.months, self.weeks, self.days = years, months, weeks, days
        self.start_date, self.end_date = _day(start_date), None if end_date is None else _day(end_date)
        if self.end_date is not None and self.end_date < self.start_date:
            raise ConfigurationError(
                f"calendarinterval: end_date cannot be earlier than start_date, and {self.end_date} is before "
                f"{self.start_date}."
            )
        rule: dict[str, Any] = dict(given)
        self._rule = triggers.calendar(start=self.start_date, at=time(hour, minute, second), tz=self.tz, **rule)

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        due = self._rule.next_after(_after(previous_fire_time, now))
        over = due is None or (self.end_date and due.date() > self.end_date)
        return None if over else _shown(due, None, self.timezone)

    def pure(self, now: datetime) -> Trigger | None:
        del now
        return None if self.end_date else self._rule

    def __str__(self) -> str:
        return f"calendarinterval[{self._rule.step} {self._rule.unit}]"


class _CombiningTrigger(BaseTrigger):
    """A trigger that is made of others. Without a jitter of its own it has the largest of theirs."""

    def __init__(self, triggers: Sequence[Any], jitter: float | None = None) -> None:
        self.triggers = [understood(trigger) for trigger in triggers]
        self.jitter = jitter or max((part.jitter or 0 for part in self.triggers), default=0) or None


class OrTrigger(_CombiningTrigger):
    """Due when one of its parts is."""

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        return self.within(previous_fire_time, now, None)

    def within(self, previous_fire_time: datetime | None, now: datetime, steps: Steps | None) -> datetime | None:
        found = (part.within(previous_fire_time, now, steps) for part in self.triggers)
        due = [one for one in found if one is not None]
        return min(due, key=lambda one: one - EPOCH) if due else None

    def pure(self, now: datetime) -> Trigger | None:
        parts = [part.pure(now) for part in self.triggers]
        said = [part for part in parts if part is not None]
        return Union.of(*said) if said and len(said) == len(parts) else None

    def __str__(self) -> str:
        return f"or[{', '.join(map(str, self.triggers))}]"


class AndTrigger(_CombiningTrigger):
    """Due when all its parts are. For cron triggers in one zone that is another cron trigger."""

    def __init__(self, triggers: Sequence[Any], jitter: float | None = None) -> None:
        super().__init__(triggers, jitter)
        self._cron = _one_cron(self.triggers)

    def pure(self, now: datetime) -> Trigger | None:
        return None if self._cron is None else self._cron.pure(now)

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        if self._cron is not None:
            return self._cron.get_next_fire_time(previous_fire_time, now)
        try:
            return self.within(previous_fire_time, now, None)
        except OutOfStepsError:
            raise ConfigurationError(
                f"{self}: its parts have no due time in common in {STEPS:,} steps from {now}. "
                "A field that is not given is its lowest value: day_of_week='sat' alone is 00:00. Write hour='*', or "
                "one cron trigger with all fields."
            ) from None

    def within(self, previous_fire_time: datetime | None, now: datetime, steps: Steps | None) -> datetime | None:
        since, steps = _after(previous_fire_time, now) + _MOMENT, Steps() if steps is None else steps
        while True:
            steps.take(len(self.triggers))
            due = [part.within(None, since, steps) for part in self.triggers]
            found = [one for one in due if one is not None]
            if not found or len(found) < len(due):
                return None
            latest = max(found, key=lambda one: one - EPOCH)
            if all(one - EPOCH == latest - EPOCH for one in found):
                return latest
            since = latest.astimezone(UTC)

    def __str__(self) -> str:
        return f"and[{', '.join(map(str, self.triggers))}]"


def _one_cron(parts: Sequence[BaseTrigger]) -> CronTrigger | None:
    """One cron trigger for the times that all of them have in common."""
    found: CronTrigger | None = None
    for part in parts:
        if not isinstance(part, CronTrigger):
            return None
        found = part if found is None else found.shared(part)
        if found is None:
            return None
    return found


class Foreign(BaseTrigger):
    """A trigger of an unknown class: its own method answers, and must give the same answer in every worker."""

    def __init__(self, trigger: Any) -> None:
        self.trigger = trigger
        self.jitter = None

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        due: datetime | None = self.trigger.get_next_fire_time(previous_fire_time, now)
        return due

    def __str__(self) -> str:
        return str(self.trigger)


ALIASES: Mapping[str, type[BaseTrigger]] = {
    "cron": CronTrigger,
    "interval": IntervalTrigger,
    "date": DateTrigger,
    "calendarinterval": CalendarIntervalTrigger,
    "and": AndTrigger,
    "or": OrTrigger,
}


def make(trigger: object, given: Mapping[str, Any], timezone: object) -> BaseTrigger:
    """The trigger given to `add_job`: an alias with arguments, a trigger, or nothing, which means once and now."""
    if trigger is None:
        return DateTrigger(timezone=timezone)
    if not isinstance(trigger, str):
        return understood(trigger)
    if trigger not in ALIASES:
        raise ConfigurationError(
            f"trigger: {trigger!r} is not known. Write one of {', '.join(map(repr, ALIASES))}, or a trigger object."
        )
    words = dict(given)
    if trigger not in {"and", "or"}:
        words.setdefault("timezone", timezone)
    try:
        return ALIASES[trigger](**words)
    except TypeError as error:
        raise ConfigurationError(f"trigger {trigger!r}: {error}.") from None


def understood(trigger: Any) -> BaseTrigger:
    """One of our triggers, or one of APScheduler's own converted."""
    if isinstance(trigger, BaseTrigger):
        return trigger
    if not hasattr(trigger, "get_next_fire_time"):
        raise ConfigurationError(f"trigger: {trigger!r} is {a_type(trigger)}. Write 'cron', 'interval' or 'date'.")
    theirs = type(trigger).__module__.startswith("apscheduler.triggers.")
    return _CONVERT.get(type(trigger).__name__, Foreign)(trigger) if theirs else Foreign(trigger)


def _cron(trigger: Any) -> BaseTrigger:
    words: dict[str, Any] = {field.name: str(field) for field in trigger.fields if not field.is_default}
    bounds: dict[str, Any] = {"start_date": trigger.start_date, "end_date": trigger.end_date}
    return CronTrigger(**words, **bounds, timezone=trigger.timezone, jitter=trigger.jitter)


def _interval(trigger: Any) -> BaseTrigger:
    # If no start_date was given, APScheduler takes the time of construction, which no two workers share.
    start = None if trigger.start_date.microsecond else trigger.start_date
    words: dict[str, Any] = {"seconds": trigger.interval_length, "end_date": trigger.end_date}
    return IntervalTrigger(**words, start_date=start, timezone=trigger.timezone, jitter=trigger.jitter)


def _calendar(trigger: Any) -> BaseTrigger:
    at, bounds = trigger._time, {"start_date": trigger.start_date, "end_date": trigger.end_date}  # noqa: SLF001
    steps = {unit: getattr(trigger, unit) for unit in ("years", "months", "weeks", "days")}
    words: dict[str, Any] = {"hour": at.hour, "minute": at.minute, "second": at.second, **steps, **bounds}
    return CalendarIntervalTrigger(**words, timezone=trigger.timezone, jitter=trigger.jitter)


_CONVERT: Mapping[str, Any] = {
    "CronTrigger": _cron,
    "IntervalTrigger": _interval,
    "DateTrigger": lambda trigger: DateTrigger(trigger.run_date),
    "CalendarIntervalTrigger": _calendar,
    "AndTrigger": lambda trigger: AndTrigger(trigger.triggers, trigger.jitter),
    "OrTrigger": lambda trigger: OrTrigger(trigger.triggers, trigger.jitter),
}


def _after(previous: datetime | None, now: datetime, start: datetime | None = None) -> datetime:
    """The instant after which to search, in UTC, where clocks never change."""
    if previous is not None:
        return previous.astimezone(UTC)
    since = now.astimezone(UTC)
    return (max(since, start.astimezone(UTC)) if start else since) - _MOMENT


def _shown(due: datetime | None, end: datetime | None, tz: tzinfo) -> datetime | None:
    """The time in the zone object of the trigger, unless it is over."""
    return None if due is None or (end and due - EPOCH > end - EPOCH) else due.astimezone(tz)


def _day(given: date | str) -> date:
    found = aware(given, "UTC", "start_date")
    assert found is not None  # noqa: S101 - it was given
    return found.date()


def _register() -> None:
    """If APScheduler is installed, let `isinstance` accept these as its triggers: they have the same attributes."""
    try:
        from apscheduler.triggers import base, calendarinterval, combining, cron, date, interval
    except ImportError:
        return
    base.BaseTrigger.register(BaseTrigger)
    for module, ours in (
        (cron, CronTrigger),
        (interval, IntervalTrigger),
        (date, DateTrigger),
        (calendarinterval, CalendarIntervalTrigger),
        (combining, OrTrigger),
        (combining, AndTrigger),
    ):
        getattr(module, ours.__name__).register(ours)


_register()
