"""Jobs of the ledger that this worker cannot run, because it has not got their functions: people are told which, once."""

from __future__ import annotations

import logging

from tenure.ext.apscheduler.tenure_bridge import TenureBridge
from tenure.util.plurals import counted

logger = logging.getLogger("tenure")

_NAMED = 20


class Strangers:
    """Asks the ledger only when there is something to tell."""

    def __init__(self, desk: TenureBridge) -> None:
        self._desk = desk
        self._told: set[str] = set()

    def look(self) -> None:
        """Warn of the jobs whose functions are not to be found here, if they were not named before."""
        functions = self._desk.functions
        fresh = functions.strange - self._told
        if not fresh:
            return
        rows, _ = self._desk.rows()
        self._told |= fresh
        jobs = [row.spec for row in rows if row.spec.function in fresh]
        named = [f"{spec.name!r} ({spec.function!r})" for spec in jobs if spec.function != spec.name]
        if named:
            logger.warning(
                "%s cannot run on this worker, which does not have %s: %s. %s",
                counted(len(named), "job"),
                "its function" if len(named) == 1 else "their functions",
                _few(named),
                functions.advice,
                extra={"action": "strangers"},
            )
        own = [repr(spec.name) for spec in jobs if spec.function == spec.name]
        if own:
            logger.warning(
                "%s only in processes that add %s, and this one does not: %s. Their functions or arguments are not in the database. Remove the jobs that are no longer wanted (`tenure remove JOB`)",
                f"{counted(len(own), 'job')} run{'s' if len(own) == 1 else ''}",
                "it" if len(own) == 1 else "them",
                _few(own),
                extra={"action": "strangers"},
            )


def _few(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
