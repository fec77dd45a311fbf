"""Calls of a job's function, written as code would write them, and checked by type checkers as if they were made.

scheduler.run_now(report, customer_id=3)
scheduler.run_now(call(report, customer_id=3), key="march", by="ops")
scheduler.add(call(report, customer_id=3), cron("0 3 * * *"), name="report:3")

Behind a function, every argument is the function's. What concerns the operation itself, such as `key`, stands outside
of `call(…)`, so no name of a parameter can clash with an option.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from inspect import Parameter
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, overload

from tenure.errors import ConfigurationError
from tenure.jobs.functions import Function, place_of, title_of
from tenure.triggers import Trigger
from tenure.util.plurals import a_type, counted

if TYPE_CHECKING:
    from tenure.run import Run

P = ParamSpec("P")

WithRun: TypeAlias = "Callable[Concatenate[Run, P], object]"
"""A function that takes the run first, which tenure passes to it."""
NeedsNothing: TypeAlias = "Callable[[], object] | Callable[[Run], object]"
"""A function that can be called without arguments of ours."""

Additions: TypeAlias = "Mapping[str, tuple[Call | NeedsNothing | str, Trigger | None]]"
"""Jobs by name, each with what to call and when."""
PlainAdditions: TypeAlias = "Mapping[str, tuple[Trigger | None, Mapping[str, Any] | None]]"
"""Jobs of one function by name, each with its trigger and its arguments."""

OPTIONS = ("kwargs", "key", "by", "why", "conn")
"""What `run_now` itself takes by name."""


@dataclass(frozen=True, slots=True)
class Call:
    """A function and its arguments, for `run_now`, `run_at`, `add` and those for many at once. See `call`."""

    function: Callable[..., object]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        given = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        return f"call({', '.join([title_of(self.function), *given])})"

    def by_name(self, function: Function) -> dict[str, Any]:
        """Its arguments by name, as jobs keep them. `function` is its function, as it was registered."""
        if not self.args:
            return dict(self.kwargs)
        names = [
            parameter.name
            for parameter in function.signature.parameters.values()
            if parameter.kind is Parameter.POSITIONAL_OR_KEYWORD and parameter.name != function.run_parameter
        ]
        if len(self.args) > len(names):
            raise ConfigurationError(
                f"{self!r}: {function.name} ({function.place}) takes {counted(len(names), 'argument')} by position "
                f"besides the run, and was given {len(self.args)}."
            )
        placed = dict(zip(names, self.args, strict=False))
        if twice := placed.keys() & self.kwargs.keys():
            raise ConfigurationError(f"{self!r} gives {min(twice)!r} twice: by position and by name.")
        return {**placed, **self.kwargs}


@overload
def call(function: WithRun[P], /, *args: P.args, **kwargs: P.kwargs) -> Call: ...
@overload
def call(function: Callable[P, object], /, *args: P.args, **kwargs: P.kwargs) -> Call: ...
def call(function: Callable[..., object], /, *args: Any, **kwargs: Any) -> Call:
    """Say how to call a registered function: `run_at(call(remind, order=7), in_="5m")`. It calls nothing.

    Type checkers hold the arguments against the signature. Leave out the parameter that takes the run, which must be
    the first for them.
    """
    if not callable(function):
        raise ConfigurationError(
            f"call: {function!r} is {a_type(function)}. Write the function itself: call(report, customer_id=3). "
            "A job by its name takes its arguments as kwargs={'customer_id': 3}."
        )
    return Call(function, args, kwargs)


def requested(job: object, args: tuple[Any, ...], given: dict[str, Any]) -> tuple[str | Call, dict[str, Any]]:
    """What `run_now(job, *args, **given)` asks for: a job by its name or a call, and the options of the request."""
    if not isinstance(job, str | Call):
        return call(job, *args, **given), {}  # type: ignore[call-overload]
    if args:
        raise ConfigurationError(
            f"run_now: unexpected positional argument {args[0]!r} after {job!r}. Pass arguments in a call, or by name: "
            "run_now(call(report, 3)) or run_now('report', kwargs={'customer_id': 3})."
        )
    for name, value in given.items():
        if name not in OPTIONS:
            near = difflib.get_close_matches(name, OPTIONS, 1)
            if isinstance(job, Call):
                advice = f"Pass arguments of the function inside: call(…, {name}={value!r:.40})."
            else:
                advice = f"Pass arguments of the function as kwargs={{{name!r}: {value!r:.40}}}."
            raise ConfigurationError(
                f"run_now: {name}= is not an option. " + (f"Did you mean {near[0]}=? " if near else "") + advice
            )
    return job, given


def requests(name: Any, kwargs: Any, keys: Iterable[str] | None) -> list[tuple[Any, Any, str | None]]:
    """What `run_now_many` asks for: of each run the job or the call, the arguments and the key."""
    if isinstance(name, str):
        if kwargs is None:
            raise ConfigurationError(
                f"run_now_many: the arguments of the runs are missing. Write run_now_many({name!r}, [{{…}}, {{…}}])."
            )
        wanted: list[tuple[Any, Any]] = [(name, one) for one in kwargs]
    else:
        wanted = [(one if isinstance(one, Call) else call(one), None) for one in name]
    given = [None] * len(wanted) if keys is None else list(keys)
    if len(given) != len(wanted):
        raise ConfigurationError(
            f"run_now_many: {counted(len(given), 'key')} for {counted(len(wanted), 'run')}. Give each run one."
        )
    return [(job, one, key) for (job, one), key in zip(wanted, given, strict=True)]


def additions(fn: Any, jobs: Any) -> Iterator[tuple[str, Any, Trigger | None, Mapping[str, Any] | None]]:
    """What `add_many` adds: of each job its name, what to call, when, and arguments that are not part of a call."""
    if jobs is None:
        for name, (one, trigger) in fn.items():
            yield name, one, trigger, None
    else:
        for name, (trigger, kwargs) in jobs.items():
            yield name, fn, trigger, kwargs


def no_kwargs(job: Call, kwargs: object) -> None:
    """Refuse arguments that are given twice."""
    if kwargs is not None:
        raise ConfigurationError(f"kwargs: {job!r} has its arguments already. Write them inside of call(…).")


def not_registered(verb: str, fn: object) -> ConfigurationError:
    """The error for a function that no node could run."""
    return ConfigurationError(
        f"{verb}: {getattr(fn, '__qualname__', repr(fn))} ({place_of(fn)}) is not registered, so no node could run it. "
        "Put @scheduler.job above its definition."
    )
