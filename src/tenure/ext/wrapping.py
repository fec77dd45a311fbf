"""Runs the body of every job inside a context manager of a framework: an application context, or fresh connections."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tenure.jobs.arounds import Around
from tenure.scheduler import Scheduler, service_of


@dataclass(frozen=True, slots=True)
class _OfFramework:
    """A context manager that does not ask for the run."""

    make: Callable[[], AbstractContextManager[object]]

    def __call__(self, run: object) -> AbstractContextManager[object]:
        del run
        return self.make()


def put_around(scheduler: Scheduler, make: Callable[[], AbstractContextManager[object]]) -> None:
    """Run every body inside `make()`, in its thread or on its loop; not in processes.

    It is the outermost, and takes the place of an earlier one, such as that of an application made before.
    """
    arounds = service_of(scheduler).definitions.registry.arounds
    users = [one for one in arounds if not isinstance(one.fn, _OfFramework)]
    arounds[:] = [Around(_OfFramework(make), "the framework", travels=False), *users]
