"""A job as APScheduler shows it."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from tenure.core.arguments import encode
from tenure.errors import ConfigurationError
from tenure.ext.apscheduler.triggers import BaseTrigger

if TYPE_CHECKING:
    from tenure.ext.apscheduler.scheduler import BaseScheduler

    _Job = object
else:
    try:
        from apscheduler.job import Job as _Job
    except ImportError:
        _Job = object


class Undefined:
    """The type of `UNDEFINED`."""

    def __repr__(self) -> str:
        return "undefined"


_OPTIONS = ("misfire_grace_time", "coalesce", "max_instances")

UNDEFINED: Final = Undefined()
"""The value of an option that was not given."""


class Job(_Job):
    """What `add_job` and `get_job` return. Change it through its methods, or those of the scheduler.

    If APScheduler is installed, it is also one of its jobs, for programs that check `isinstance`.
    """

    __slots__ = (
        "_scheduler",
        "args",
        "coalesce",
        "executor",
        "first_run",
        "func",
        "func_ref",
        "given",
        "id",
        "jobstore",
        "kwargs",
        "max_instances",
        "misfire_grace_time",
        "name",
        "next_run_time",
        "pending",
        "policy",
        "shared",
        "starts",
        "trigger",
        "write_on_at",
    )

    def __init__(self, scheduler: BaseScheduler, id: str, func: Any, trigger: Any) -> None:  # noqa: A002 - their name
        self._scheduler = scheduler
        self.id = id
        self.func: Callable[..., Any] | None = func
        self.func_ref: str | None = None if func is None else reference(func)
        self.name = id
        self.trigger: BaseTrigger | None = trigger
        self.args: tuple[Any, ...] = ()
        self.kwargs: dict[str, Any] = {}
        self.executor = "default"
        self.jobstore = "default"
        self.misfire_grace_time: float | None = None
        self.coalesce = True
        self.max_instances = 1
        self.next_run_time: datetime | None = None
        self.pending = True
        self.policy: dict[str, Any] = {}
        self.first_run: datetime | Undefined | None = UNDEFINED
        """What `next_run_time` was given as."""
        self.given: frozenset[str] = frozenset()
        """The options that were given, not left to their defaults."""
        self.shared = False
        """True if its arguments are in the ledger, so that any node that has its function can run it."""
        self.starts: datetime | None = None
        """When its trigger begins, if `next_run_time` said so."""
        self.write_on_at: datetime | None = None

    @property
    def _jobstore_alias(self) -> str | None:
        """The alias of its job store, under APScheduler's name for it."""
        return None if self.pending else self.jobstore

    def about(self, function: str) -> dict[str, str]:
        """What the ledger stores about it besides its arguments."""
        said = {"name": (self.name, plain_name(function)), "jobstore": (self.jobstore, "default")}
        return {word: value for word, (value, usual) in said.items() if value != usual}

    def modify(self, **changes: Any) -> Job:
        """Change some of its properties."""
        return self._scheduler.modify_job(self.id, **changes)

    def reschedule(self, trigger: Any, **trigger_args: Any) -> Job:
        """Give it another trigger."""
        return self._scheduler.reschedule_job(self.id, trigger=trigger, **trigger_args)

    def pause(self) -> Job:
        """Start no more runs of it, on any node."""
        return self._scheduler.pause_job(self.id)

    def resume(self) -> Job | None:
        """Resume it."""
        return self._scheduler.resume_job(self.id)

    def remove(self) -> None:
        """Remove it."""
        self._scheduler.remove_job(self.id)

    def __getstate__(self) -> dict[str, Any]:
        """Its attributes, under APScheduler's names."""
        if self.func_ref is None:
            raise ValueError(f"job {self.id!r}: {self.func!r} has no name under which another process finds it.")
        words = ("id", "trigger", "executor", "args", "kwargs", "name", *_OPTIONS, "next_run_time")
        return {"version": 1, "func": self.func_ref, **{word: getattr(self, word) for word in words}}

    def __str__(self) -> str:
        when = "pending" if self.pending else "paused" if self.next_run_time is None else None
        status = when or f"next run at: {self.next_run_time:%Y-%m-%d %H:%M:%S %Z}"
        return f"{self.name} (trigger: {self.trigger}, {status})"

    def __repr__(self) -> str:
        return f"<Job (id={self.id} name={self.name})>"

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, Job) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)


def resolved(func: Any) -> Callable[..., Any]:
    """A callable, or the one that a text in the program names: 'package.module:function'."""
    if isinstance(func, str):
        module, colon, path = func.partition(":")
        if not colon:
            raise ConfigurationError(f"func: {func!r} does not name a function. Write 'package.module:function'.")
        try:
            func = functools.reduce(getattr, path.split("."), importlib.import_module(module))
        except (ImportError, AttributeError) as error:
            raise ConfigurationError(f"func: {func!r} was not found ({error}).") from None
    if not callable(func):
        raise ConfigurationError(f"func: {func!r} cannot be called. Write a function, or 'package.module:function'.")
    return func  # type: ignore[no-any-return]


def reference(func: Any) -> str | None:
    """'module:function', if other processes can find the function under that name; else None.

    None for lambdas, partials and methods of instances, and if the name belongs to something else: to what a decorator
    has wrapped, or to the class that a class method was inherited from.
    """
    if inspect.ismethod(func) and not isinstance(func.__self__, type):
        return None
    module, path = getattr(func, "__module__", None), getattr(func, "__qualname__", None)
    return f"{module}:{path}" if module and path and "<" not in path and _is_named(func, module, path) else None


def _is_named(func: Any, module: str, path: str) -> bool:
    """True if its module has it, or nothing yet, under this name.

    While it is being decorated, the name is not bound.
    """
    found: Any = sys.modules.get(module)
    for name in path.split("."):
        found = getattr(found, name, None)
    return found is None or found is func or (inspect.ismethod(func) and found == func)


def is_coroutine(func: Any) -> bool:
    """Whether calling it gives a coroutine."""
    while isinstance(func, functools.partial):
        func = func.func
    method = getattr(func, "__call__", None)  # noqa: B004 - the method itself is needed
    return inspect.iscoroutinefunction(func) or inspect.iscoroutinefunction(method)


def plain_name(function: str) -> str:
    """The default name of a job of this function."""
    return function.rpartition(":")[2].rpartition(".")[2]


def as_json(args: tuple[Any, ...], kwargs: dict[str, Any], about: Mapping[str, str] | None = None) -> str | None:
    """Arguments as the ledger stores them; None if it cannot."""
    try:
        return encode({"args": list(args), "kwargs": kwargs, **({"job": about} if about else {})})
    except ConfigurationError:
        return None
