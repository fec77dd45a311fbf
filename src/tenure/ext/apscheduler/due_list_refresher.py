"""A thread that extends stored lists of due times long before they end.

It also reports runs skipped by `max_instances`, and jobs whose functions are missing here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import datetime

from tenure.ext.apscheduler.job import Job
from tenure.ext.apscheduler.max_instances import MaxInstancesWatch
from tenure.ext.apscheduler.tenure_bridge import TenureBridge
from tenure.ext.apscheduler.unregistered import UnregisteredJobs
from tenure.util.clock import walltime

logger = logging.getLogger("tenure")

LONGEST = 60.0
"""Seconds between two rounds at most: clocks may be set in between."""


class DueListRefresher:
    """Sleeps as long as no job needs it."""

    def __init__(
        self, bridge: TenureBridge, jobs: Callable[[], Sequence[Job]], max_instances: MaxInstancesWatch
    ) -> None:
        self._bridge, self._jobs, self._max_instances = bridge, jobs, max_instances
        self._unregistered = UnregisteredJobs(bridge)
        self._bell = threading.Event()
        self._stopped = False
        bridge.functions.on_missing = self.wake
        self._thread = threading.Thread(target=self._work, name="tenure due times", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Start a round now: a job or a listener was added, a job has changed, or functions are missing."""
        self._bell.set()

    def stop(self) -> None:
        """End the thread."""
        self._stopped = True
        self._bell.set()

    def _work(self) -> None:
        while not self._stopped:
            self._bell.clear()
            try:
                self._unregistered.look()
                waits = [wait for wait in (self._look(), self._max_instances.look()) if wait is not None]
                wait = min(waits, default=None)
            except Exception as error:
                logger.warning(
                    "the lists of due times could not be extended: %s", error, extra={"action": "refresh_failed"}
                )
                wait = 1.0
            self._bell.wait(wait)

    def _look(self) -> float | None:
        """Extend the lists that need it. Returns how long to sleep; None if no job needs it."""
        now, soonest = walltime(), None
        for job in self._jobs():
            due: datetime | None = job.write_on_at
            if due is not None and due <= now:
                self._bridge.write_on(job)
                due = job.write_on_at
            if due is not None and (soonest is None or due < soonest):
                soonest = due
        return None if soonest is None else min(max((soonest - now).total_seconds(), 0.2), LONGEST)
