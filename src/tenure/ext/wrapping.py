"""Runs the body of every job inside a context manager: an application context, or fresh database connections."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from tenure.jobs.functions import Function, Registry
from tenure.scheduler import Scheduler, service_of

Around = Callable[[], AbstractContextManager[object]]


def put_around(scheduler: Scheduler, around: Around) -> None:
    """From its next start on, run every body inside `around()`, in its thread or on its loop; not in processes."""
    definitions = service_of(scheduler).definitions
    known = definitions.registry
    definitions.use_registry(_Inside(known.inner if isinstance(known, _Inside) else known, around))


class _Inside(Registry):
    """The functions of another registry, each inside the context manager."""

    def __init__(self, inner: Registry, around: Around) -> None:
        super().__init__()
        self.inner, self._around = inner, around

    def add(self, function: Function) -> Function:
        return self.inner.add(function)

    def get(self, name: str) -> Function | None:
        function = self.inner.get(name)
        if function is None or function.in_process:
            return function
        return replace(function, callable=_inside(function, self._around))

    def find(self, fn: Callable[..., Any]) -> Function | None:
        return self.inner.find(fn)

    @property
    def names(self) -> tuple[str, ...]:
        return self.inner.names


def _inside(function: Function, around: Around) -> Callable[..., Any]:
    body = function.callable
    if function.is_coroutine:

        @functools.wraps(body)
        async def coroutine(*args: object, **kwargs: object) -> Any:
            with around():
                return await body(*args, **kwargs)

        return coroutine

    @functools.wraps(body)
    def call(*args: object, **kwargs: object) -> Any:
        with around():
            return body(*args, **kwargs)

    return call
