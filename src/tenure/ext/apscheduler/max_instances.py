"""Sends EVENT_JOB_MAX_INSTANCES.

The ledger skips a due time if its job already has as many runs as it may. The worker where they run reads that from the
ledger and tells its listeners.
"""

from __future__ import annotations

from collections import deque

from tenure.core.run_rules import OVERLAP
from tenure.errors import UnknownJob
from tenure.ext.apscheduler.events import EVENT_JOB_MAX_INSTANCES, Events, JobSubmissionEvent
from tenure.run import control_of
from tenure.scheduler import Scheduler
from tenure.util.instants import moment

PERIOD = 1.0
"""Seconds between two queries, while bodies are running and a listener wants the event."""
_KEPT = 1000


class MaxInstancesWatch:
    """Queries the database only while a listener wants the event and bodies are running here."""

    def __init__(self, scheduler: Scheduler, events: Events) -> None:
        self._scheduler, self._events = scheduler, events
        self._told: deque[int] = deque(maxlen=_KEPT)

    def look(self) -> float | None:
        """Report skipped runs. Returns the seconds until the next query; None: when a listener is added."""
        if not self._events.wants(EVENT_JOB_MAX_INSTANCES):
            return None
        since = dict[str, float]()
        for run in self._events.begun():
            began = control_of(run).began_at
            if began is not None:
                since[run.job] = min(began, since.get(run.job, began))
        for job, began in since.items():
            self._tell(job, began)
        return PERIOD

    def _tell(self, job: str, began: float) -> None:
        try:
            skipped = self._scheduler.runs(job, since=moment(began), state="skipped")
        except UnknownJob:  # it was removed while it ran
            return
        for run in reversed(skipped):
            if run.reason == OVERLAP and run.id not in self._told:
                self._told.append(run.id)
                event = JobSubmissionEvent(
                    EVENT_JOB_MAX_INSTANCES, job, self._events.store_of(job), (run.scheduled_for,)
                )
                self._events.tell(event)
