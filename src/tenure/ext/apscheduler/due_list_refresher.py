"""One thread that writes on the lists of due times of those jobs that travel as lists, long before they end, and looks for what was skipped."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import datetime

from tenure.ext.apscheduler.job import Job
from tenure.ext.apscheduler.max_instances import Crowded
from tenure.ext.apscheduler.tenure_bridge import TenureBridge
from tenure.ext.apscheduler.unregistered import Strangers
from tenure.util.clock import walltime

logger = logging.getLogger("tenure")

LONGEST = 60.0
"""Seconds between two looks: clocks may be set in between."""


class Upkeep:
    """Idle as long as no job needs it."""

    def __init__(self, desk: TenureBridge, jobs: Callable[[], Sequence[Job]], crowded: Crowded) -> None:
        self._desk, self._jobs, self._crowded = desk, jobs, crowded
        self._strangers = Strangers(desk)
        self._bell = threading.Event()
        self._stopped = False
        desk.functions.on_strange = self.wake
        self._thread = threading.Thread(target=self._work, name="tenure due times", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """A job was added or changed, somebody listens, or jobs name functions that are not here."""
        self._bell.set()

    def stop(self) -> None:
        """End."""
        self._stopped = True
        self._bell.set()

    def _work(self) -> None:
        while not self._stopped:
            self._bell.clear()
            try:
                self._strangers.look()
                waits = [wait for wait in (self._look(), self._crowded.look()) if wait is not None]
                wait = min(waits, default=None)
            except Exception as error:
                logger.warning("the lists of due times could not be kept: %s", error, extra={"action": "upkeep_failed"})
                wait = 1.0
            self._bell.wait(wait)

    def _look(self) -> float | None:
        """Write on what is due, and say how long to sleep; None if no job needs it."""
        now, soonest = walltime(), None
        for job in self._jobs():
            due: datetime | None = job.write_on_at
            if due is not None and due <= now:
                self._desk.write_on(job)
                due = job.write_on_at
            if due is not None and (soonest is None or due < soonest):
                soonest = due
        return None if soonest is None else min(max((soonest - now).total_seconds(), 0.2), LONGEST)
