"""What is put around the bodies of jobs: context managers of the application, and the rules by which they are entered.

The first that was put around is the outermost. What a body raised counts, whatever a context manager makes of it: only
the body can make a run succeed. What a context manager raises counts as if the body had raised it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

from tenure.errors import ConfigurationError

_HOW = "Write a generator that yields once: def traced(run): …; yield"


@dataclass(frozen=True, slots=True)
class Around:
    """A function that makes a context manager for a run."""

    fn: Callable[[Any], Any]
    """A generator function, or one that returns a context manager."""
    place: str
    """Where it is written, for people."""
    is_async: bool = False
    """It can only be entered by coroutines."""
    travels: bool = True
    """Also around bodies in processes of their own, which find it by its module and name."""

    def manager(self, run: object, *, in_coroutine: bool) -> Any:
        """A context manager for this run."""
        if inspect.isgeneratorfunction(self.fn):
            return contextmanager(self.fn)(run)
        if inspect.isasyncgenfunction(self.fn):
            return asynccontextmanager(self.fn)(run)
        made = self.fn(run)
        if hasattr(made, "__enter__") or (in_coroutine and hasattr(made, "__aenter__")):
            return made
        if hasattr(made, "__aenter__"):
            raise ConfigurationError(f"around: {self.place} is async, and a plain function cannot enter it.")
        raise ConfigurationError(f"around: {self.place} returned {made!r}, which is not a context manager. {_HOW}.")


def around(fn: Callable[..., Any], place: str, *, travels: bool = True) -> Around:
    """Look at such a function once, and refuse what could not be put around a body."""
    if not callable(fn):
        raise ConfigurationError(f"around: {fn!r} cannot be called. {_HOW}.")
    where = f"around: {place}"
    if inspect.iscoroutinefunction(fn):
        raise ConfigurationError(f"{where} is a coroutine function, not a context manager. {_HOW}, or with async def.")
    try:
        inspect.signature(fn).bind(None)
    except TypeError:
        raise ConfigurationError(f"{where} must take one argument, the run. {_HOW}.") from None
    except ValueError:  # something of C, which does not say what it takes
        pass
    only_async = isinstance(fn, type) and hasattr(fn, "__aenter__") and not hasattr(fn, "__enter__")
    return Around(fn, place, only_async or inspect.isasyncgenfunction(inspect.unwrap(fn)), travels)


def call(arounds: Sequence[Around], run: object, body: Callable[[], Any]) -> Any:
    """Call a plain body inside these."""
    raised: BaseException | None = None
    stack: ExitStack[bool] = ExitStack()
    with stack:
        try:
            for one in tuple(arounds):
                stack.enter_context(one.manager(run, in_coroutine=False))
            return body()
        except BaseException as error:
            raised = error
            raise
    if raised is not None:
        raise raised
    return None


async def call_async(arounds: Sequence[Around], run: object, body: Callable[[], Awaitable[Any]]) -> Any:
    """Call a coroutine function inside these, and await it there."""
    raised: BaseException | None = None
    stack: AsyncExitStack[bool] = AsyncExitStack()
    async with stack:
        try:
            for one in tuple(arounds):
                manager = one.manager(run, in_coroutine=True)
                if hasattr(manager, "__aenter__"):
                    await stack.enter_async_context(manager)
                else:
                    stack.enter_context(manager)
            return await body()
        except BaseException as error:
            raised = error
            raise
    if raised is not None:
        raise raised
    return None
