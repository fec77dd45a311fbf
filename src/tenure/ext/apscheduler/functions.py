"""The functions that this process can run.

A function is registered under the id of a job if its arguments stay in the process, and as 'module:function' if they
are in the ledger. Rows never cause an import: a name in a row is looked up in what the application has loaded.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tenure.core.arguments import encode
from tenure.errors import ConfigurationError
from tenure.ext.apscheduler.events import Events
from tenure.ext.apscheduler.job import is_coroutine, reference
from tenure.ext.apscheduler.stored_functions import Loaded
from tenure.jobs.functions import Function, Registry, describe
from tenure.run import Run
from tenure.util.clock import boottime

LOADING = 5.0
"""Seconds that a program has to load its modules after it has started its scheduler."""


class Functions(Registry):
    """A registry in which a job may be given another function."""

    def __init__(self, events: Events, loaded: Loaded | None) -> None:
        super().__init__()
        self._events, self._loaded = events, loaded
        self._known: dict[str, Callable[..., Any]] = {}
        self._allowed: set[str | None] = set()
        self._missed: dict[str, float] = {}
        self.missing: frozenset[str] = frozenset()
        """Functions that jobs name and that this process does not have."""
        self.on_missing: Callable[[], object] = lambda: None

    def put(
        self, name: str, func: Callable[..., Any], args: Iterable[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> None:
        """Run this function under this name, with these arguments unless the ledger has others."""
        own, own_named, events = tuple(args), dict(kwargs or {}), self._events

        def plain(run: Run, args: Any = None, kwargs: Any = None, job: Any = None) -> None:
            del job  # stored with the job, but not an argument of its function
            events.begin(run)
            try:
                value = func(*(own if args is None else args), **(own_named if kwargs is None else kwargs))
            except BaseException as error:
                events.note(run.id, None, error)
                raise
            events.note(run.id, value, None)

        async def coroutine(run: Run, args: Any = None, kwargs: Any = None, job: Any = None) -> None:
            del job
            events.begin(run)
            try:
                value = await func(*(own if args is None else args), **(own_named if kwargs is None else kwargs))
            except BaseException as error:
                events.note(run.id, None, error)
                raise
            events.note(run.id, value, None)

        waits = is_coroutine(func)
        body: Callable[..., Any] = coroutine if waits else plain
        self._functions[name] = Function(name, body, waits, inspect.signature(body), run_parameter="run")

    def put_shared(self, func: Callable[..., Any]) -> str | None:
        """Let jobs of the ledger name this function; returns its name, None if it has none."""
        name = reference(func)
        if name is not None and self._known.get(name) != func:
            self._known[name] = func
            self.put(name, func)  # only once: a job with the same name may have put its own arguments since
        return name

    def lasts(self, func: Callable[..., Any]) -> bool:
        """True if other processes can find it. Class methods are only found if `functions=` names them."""
        name = reference(func)
        return name is not None and (not inspect.ismethod(func) or name in self._allowed)

    def put_process(self, name: str, func: Callable[..., Any], args: Iterable[Any], kwargs: Mapping[str, Any]) -> str:
        """Run it in a process of its own; returns its arguments by name, as the ledger keeps them."""
        if reference(func) is None or is_coroutine(func):
            raise ConfigurationError(
                f"job {name!r}: a process needs a plain function at the top of a module. "
                "Use a ThreadPoolExecutor for this one."
            )
        try:
            bound = inspect.signature(func).bind(*args, **kwargs)
        except TypeError as error:
            raise ConfigurationError(f"job {name!r}: {error}.") from None
        self._functions[name] = replace(describe(func, name), in_process=True, takes={})  # as APScheduler: any value
        return encode(_by_name(name, bound))

    def named(self, name: str) -> Callable[..., Any] | None:
        """The function that jobs in the ledger know by this name."""
        if name not in self._functions and self._loaded is not None and (found := self._loaded.find(name)) is not None:
            self.put_shared(found)
        return self._known.get(name)

    def wanted(self, names: frozenset[str]) -> None:
        """Look for the functions that jobs name. One that may still be loaded counts as missing only after a while."""
        missing = [name for name in names if self.named(name) is None and name not in self._functions]
        now, loaded = boottime(), self._loaded
        self._missed = {name: self._missed.get(name, now) for name in missing}
        self.missing = frozenset(
            name
            for name, since in self._missed.items()
            if loaded is None or now - since >= LOADING or not loaded.may_come(name)
        )
        if self.missing:
            self.on_missing()

    @property
    def advice(self) -> str:
        """What to do about jobs whose functions are not here."""
        if self._loaded is None:
            return "Name their functions in functions=[…], or remove the jobs."
        packages = " and ".join(self._loaded.packages)
        return (
            f"Only functions at the top of loaded modules of {packages} are found; for others write "
            "importable=['package'] or functions=[…]. Remove the jobs that are no longer wanted."
        )

    def forget(self, name: str) -> None:
        """Forget the function and the arguments of a removed job."""
        if name not in self._known:
            self._functions.pop(name, None)

    def allow(self, given: Iterable[object]) -> None:
        """`functions=`: functions, and names of modules for all that are defined there."""
        for one in given:
            if isinstance(one, str):
                module = importlib.import_module(one)
                for found in vars(module).values():
                    if inspect.isfunction(found) and found.__module__ == module.__name__:
                        self.put_shared(found)
            elif not callable(one) or self.put_shared(one) is None:
                raise ConfigurationError(f"functions: {one!r} is not a function at the top of a module.")
            else:
                self._allowed.add(reference(one))


def _by_name(name: str, bound: inspect.BoundArguments) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for parameter, value in bound.arguments.items():
        kind = bound.signature.parameters[parameter].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            found.update(value)
        elif kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY):
            raise ConfigurationError(f"job {name!r}: arguments go to a process by name, and {parameter!r} has none.")
        else:
            found[parameter] = value
    return found
