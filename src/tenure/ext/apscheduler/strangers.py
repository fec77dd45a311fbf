"""Jobs of the ledger that this worker cannot run, because it has not got their functions: people are told which, once."""

from __future__ import annotations

import logging

from tenure.ext.apscheduler.desk import Desk

logger = logging.getLogger("tenure")

_NAMED = 20


class Strangers:
    """Asks the ledger only when there is something to tell."""

    def __init__(self, desk: Desk) -> None:
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
        if jobs:
            named = ", ".join(f"{spec.name!r} ({spec.function!r})" for spec in jobs[:_NAMED])
            more = f" and {len(jobs) - _NAMED} more" if len(jobs) > _NAMED else ""
            logger.warning(
                "%d job%s cannot run on this worker, which does not have %s: %s%s. %s",
                len(jobs),
                "" if len(jobs) == 1 else "s",
                "its function" if len(jobs) == 1 else "their functions",
                named,
                more,
                functions.advice,
                extra={"action": "strangers"},
            )
