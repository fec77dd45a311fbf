"""Warns, once, of jobs in the ledger that this worker cannot run because it does not have their functions."""

from __future__ import annotations

import logging

from tenure.ext.apscheduler.tenure_bridge import TenureBridge
from tenure.util.plurals import counted, several

logger = logging.getLogger("tenure")

_NAMED = 20


class UnregisteredJobs:
    """Queries the ledger only when there is something to report."""

    def __init__(self, bridge: TenureBridge) -> None:
        self._bridge = bridge
        self._told: set[str] = set()

    def look(self) -> None:
        """Warn of jobs whose functions are missing here, unless they were already named."""
        functions = self._bridge.functions
        fresh = functions.missing - self._told
        if not fresh:
            return
        rows, _ = self._bridge.rows()
        self._told |= fresh
        jobs = [row.spec for row in rows if row.spec.function in fresh]
        named = [f"{spec.name!r} ({spec.function!r})" for spec in jobs if spec.function != spec.name]
        if named:
            logger.warning(
                "%s cannot run on this worker, which does not have %s: %s. %s",
                counted(len(named), "job"),
                "its function" if len(named) == 1 else "their functions",
                several(named, _NAMED),
                functions.advice,
                extra={"action": "unregistered"},
            )
        own = [repr(spec.name) for spec in jobs if spec.function == spec.name]
        if own:
            logger.warning(
                "%s only in processes that add %s, and this one does not: %s. Their functions or arguments are not in "
                "the database. Remove the jobs that are no longer wanted (`tenure remove JOB`)",
                f"{counted(len(own), 'job')} run{'s' if len(own) == 1 else ''}",
                "it" if len(own) == 1 else "them",
                several(own, _NAMED),
                extra={"action": "unregistered"},
            )
