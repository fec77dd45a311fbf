"""The decorators that turn functions into jobs, and the definitions they collect.

They open nothing. A wrong definition raises an error where it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from typing import Any, TypeVar, Unpack, overload

from tenure import triggers
from tenure.core.arguments import encode
from tenure.core.following import refuse_cycles, refuse_to_follow
from tenure.core.job_options import Policy, parent_name, rules
from tenure.core.messages import JobChange
from tenure.core.records import Instant, JobSpec, Rules
from tenure.errors import ConfigurationError
from tenure.jobs.arounds import Around, around
from tenure.jobs.functions import Function, Registry, bind, describe, place_of, title_of
from tenure.jobs.operations import added
from tenure.triggers import Trigger
from tenure.triggers.zones import Zone, zone_key
from tenure.util.durations import Duration
from tenure.util.names import application_name
from tenure.util.plurals import a_type

Fn = TypeVar("Fn", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class Definition:
    """A job as the code defines it."""

    name: str
    function: Function
    trigger: Trigger | None
    rules: Rules
    kwargs: str


class Definitions:
    """The functions and jobs of one application that this process defines."""

    def __init__(self, application: str, tz: Zone, release: int) -> None:
        self.application = application_name(application)
        self.tz = zone_key(tz)
        self.release = release
        self._registry = Registry()
        self._jobs: dict[str, Definition] = {}

    @property
    def registry(self) -> Registry:
        """The functions of these jobs."""
        return self._registry

    def use_registry(self, registry: Registry) -> None:
        """Use another registry from the next start on, for integrations that find functions by other names."""
        self._registry = registry

    def put_around(self, one: Around) -> None:
        """Put it around all bodies from now on, or say which of them cannot have it."""
        for job in self.jobs:
            _can_be_entered(one, job.function)
        if one not in self._registry.arounds:
            self._registry.arounds.append(one)

    @property
    def jobs(self) -> tuple[Definition, ...]:
        """In the order in which they were defined."""
        return tuple(self._jobs.values())

    def define(
        self,
        fn: Callable[..., object],
        trigger: Trigger | None,
        name: str | None,
        *,
        kwargs: Mapping[str, object] | None,
        process: bool,
        policy: Mapping[str, object],
    ) -> None:
        """Add a job. Raises what is wrong with it."""
        function = describe(fn, name)
        if process:
            function = replace(function, in_process=_can_be_found(function))
        for one in self._registry.arounds:
            _can_be_entered(one, function)
        definition = Definition(
            name=function.name,
            function=function,
            trigger=self.placed(trigger),
            rules=rules(policy, where=f"job {function.name!r}"),
            kwargs=encode(kwargs or {}),
        )
        refuse_to_follow(definition.name, definition.rules, trigger=trigger is not None)
        parents = {job.name: job.rules.after for job in (*self.jobs, definition)}
        refuse_cycles(definition.name, parents.get)
        if trigger is not None or kwargs or definition.rules.after:
            bind(function, kwargs or {})
        known = self._jobs.get(definition.name)
        if known is not None and known != definition and known.function.callable == function.callable:
            raise ConfigurationError(
                f"job {definition.name!r} is defined twice for {function.place}, with different triggers, arguments or "
                "policies. Give one of them another name with name='…'."
            )
        self._registry.add(function)
        self._jobs[definition.name] = definition

    def placed(self, trigger: Trigger | None) -> Trigger | None:
        """The trigger, in the zone of the application if it names none."""
        if trigger is None:
            return None
        if not isinstance(trigger, Trigger):
            raise ConfigurationError(
                f"trigger: {trigger!r} is {a_type(trigger)}. "
                "Write a trigger, such as cron('0 3 * * *') or every('30s')."
            )
        return trigger.in_zone(self.tz)

    def spec(
        self, name: str, function: str, trigger: Trigger | None, rules: Rules, kwargs: str, *, in_code: bool
    ) -> JobSpec:
        """A job as it is written into the ledger."""
        refuse_to_follow(name, rules, trigger=trigger is not None)
        return JobSpec(
            application=self.application,
            name=name,
            function=function,
            trigger=None if trigger is None else trigger.to_json(),
            rules=rules,
            kwargs=kwargs,
            in_code=in_code,
            release=self.release,
            tzdata=triggers.tzdata_version() if trigger is not None and trigger.zoned else "",
        )

    def changes(self, now: Instant) -> list[JobChange]:
        """The jobs, as a starting node writes them into the ledger."""
        return [
            added(self.spec(job.name, job.function.name, job.trigger, job.rules, job.kwargs, in_code=True), now)
            for job in self.jobs
        ]


class Decorators:
    """`@scheduler.cron(…)` and the others. Each returns the function itself.

    A function may have several, under different names. `process=True` runs the body in a process of its own, which can
    be killed. `kwargs` are the arguments by name: JSON, and the types of `tenure.core.arguments`.
    """

    _definitions: Definitions

    def cron(
        self,
        expr: str,
        *,
        tz: Zone | None = None,
        name: str | None = None,
        kwargs: Mapping[str, Any] | None = None,
        process: bool = False,
        **policy: Unpack[Policy],
    ) -> Callable[[Fn], Fn]:
        """Due as Debian's cron would be: `@scheduler.cron("0 3 * * *", timeout="20m")`."""
        return self.scheduled(triggers.cron(expr, tz), name=name, kwargs=kwargs, process=process, **policy)

    def every(
        self,
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
        name: str | None = None,
        kwargs: Mapping[str, Any] | None = None,
        process: bool = False,
        **policy: Unpack[Policy],
    ) -> Callable[[Fn], Fn]:
        """Due in equal steps of elapsed time: `@scheduler.every("30s")`."""
        trigger = triggers.every(
            period, seconds=seconds, minutes=minutes, hours=hours, days=days, weeks=weeks, anchor=anchor, tz=tz
        )
        return self.scheduled(trigger, name=name, kwargs=kwargs, process=process, **policy)

    def at(
        self,
        when: datetime,
        *,
        tz: Zone | None = None,
        name: str | None = None,
        kwargs: Mapping[str, Any] | None = None,
        process: bool = False,
        **policy: Unpack[Policy],
    ) -> Callable[[Fn], Fn]:
        """Due once: `@scheduler.at(datetime(2026, 12, 31, 12, tzinfo=UTC))`."""
        return self.scheduled(triggers.at(when, tz), name=name, kwargs=kwargs, process=process, **policy)

    def calendar(
        self,
        *,
        start: date | str,
        at: time | str,
        days: int | None = None,
        weeks: int | None = None,
        months: int | None = None,
        years: int | None = None,
        tz: Zone | None = None,
        name: str | None = None,
        kwargs: Mapping[str, Any] | None = None,
        process: bool = False,
        **policy: Unpack[Policy],
    ) -> Callable[[Fn], Fn]:
        """Due in steps of the calendar: `@scheduler.calendar(months=2, start="2026-01-31", at="09:00")`."""
        trigger = triggers.calendar(start=start, at=at, days=days, weeks=weeks, months=months, years=years, tz=tz)
        return self.scheduled(trigger, name=name, kwargs=kwargs, process=process, **policy)

    def scheduled(
        self,
        trigger: Trigger,
        *,
        name: str | None = None,
        kwargs: Mapping[str, Any] | None = None,
        process: bool = False,
        **policy: Unpack[Policy],
    ) -> Callable[[Fn], Fn]:
        """Due by any trigger: `@scheduler.scheduled(cron("0 9 * * *") - closed("holidays", dates=[…]))`."""
        placed = self._definitions.placed(trigger)
        if placed is None:
            raise ConfigurationError(
                "trigger: None is not a trigger. Write @scheduler.job for a job that runs on request."
            )
        rules(policy, where="job" if name is None else f"job {name!r}")

        def register(fn: Fn) -> Fn:
            self._definitions.define(fn, placed, name, kwargs=kwargs, process=process, policy=policy)
            return fn

        return register

    @overload
    def job(self, fn: Fn, /) -> Fn: ...
    @overload
    def job(
        self,
        /,
        *,
        name: str | None = None,
        kwargs: Mapping[str, Any] | None = None,
        process: bool = False,
        **policy: Unpack[Policy],
    ) -> Callable[[Fn], Fn]: ...
    def job(
        self,
        fn: Fn | None = None,
        /,
        *,
        name: str | None = None,
        kwargs: Mapping[str, Any] | None = None,
        process: bool = False,
        **policy: Unpack[Policy],
    ) -> Fn | Callable[[Fn], Fn]:
        """Runs on request (`run_now`). Jobs that are added at run time may name this function."""
        if isinstance(fn, str):
            raise ConfigurationError(
                f"job: {fn!r} is a text. Write @scheduler.job(name={fn!r}), "
                f"or scheduler.find_job({fn!r}) to look at a job."
            )
        rules(policy, where="job" if name is None else f"job {name!r}")

        def register(fn: Fn) -> Fn:
            self._definitions.define(fn, None, name, kwargs=kwargs, process=process, policy=policy)
            return fn

        return register if fn is None else register(fn)

    def after(
        self,
        parent: str,
        *,
        name: str | None = None,
        kwargs: Mapping[str, Any] | None = None,
        process: bool = False,
        **policy: Unpack[Policy],
    ) -> Callable[[Fn], Fn]:
        """Follows another job: `@scheduler.after("load", on="failure")`. Each run of that has a run of this job.

        It runs if that succeeded, failed or was lost (`on="failure"`), or ended in whatever way (`on="end"`); otherwise
        it is skipped, with the reason. It has the same key and due time, and `run.parent` says what it follows.
        """
        if callable(parent):
            raise ConfigurationError(
                f"after: {parent!r:.80} is a function. Write the name of the job that this one follows: "
                f"@scheduler.after({getattr(parent, '__name__', 'load')!r})."
            )
        followed: Policy = {**policy, "after": parent_name(parent, "after")}
        return self.job(name=name, kwargs=kwargs, process=process, **followed)

    def around(self, fn: Fn, /) -> Fn:
        """Put a context manager around every body: a generator that takes the run and yields once.

        The first is the outermost. It is entered where the body is called: in its thread, on its loop or in its
        process.
        """
        self._definitions.put_around(around(fn, f"{title_of(fn)} ({place_of(fn)})"))
        return fn


def _can_be_entered(one: Around, function: Function) -> None:
    """Refuse a context manager that the body of this job could not enter."""
    if one.is_async and not function.is_coroutine:
        raise ConfigurationError(
            f"around: {one.place} is async, and job {function.name!r} ({function.place}) is a plain function, "
            "which cannot enter it. Make it a plain context manager: coroutines enter those too."
        )
    if function.in_process and one.travels and "<" in getattr(one.fn, "__qualname__", "<"):
        raise ConfigurationError(
            f"around: job {function.name!r} runs in a process of its own (process=True), which has to find {one.place} "
            "by its name. Put it at the top of a module."
        )


def _can_be_found(function: Function) -> bool:
    """True. Raises if another process could not find the function by its module and name."""
    where = f"job {function.name!r}: process=True"
    if function.is_coroutine:
        raise ConfigurationError(
            f"{where} is for functions, and {function.place} is a coroutine. Leave one of them out."
        )
    if "<" in getattr(function.callable, "__qualname__", ""):
        raise ConfigurationError(
            f"{where} needs a function at the top of a module; {function.place} is inside another."
        )
    return True
