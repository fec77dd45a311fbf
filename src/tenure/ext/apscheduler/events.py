"""APScheduler's events, with its numbers, so that masks and listeners keep working."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tenure.events import RunEvent, RunFailed, RunLost, RunSkipped, RunSucceeded
from tenure.run import Run
from tenure.util.last_line import last_line

logger = logging.getLogger("tenure")

EVENT_SCHEDULER_STARTED = EVENT_SCHEDULER_START = 2**0
EVENT_SCHEDULER_SHUTDOWN = 2**1
EVENT_SCHEDULER_PAUSED = 2**2
EVENT_SCHEDULER_RESUMED = 2**3
EVENT_EXECUTOR_ADDED = 2**4
EVENT_EXECUTOR_REMOVED = 2**5
EVENT_JOBSTORE_ADDED = 2**6
EVENT_JOBSTORE_REMOVED = 2**7
EVENT_ALL_JOBS_REMOVED = 2**8
EVENT_JOB_ADDED = 2**9
EVENT_JOB_REMOVED = 2**10
EVENT_JOB_MODIFIED = 2**11
EVENT_JOB_EXECUTED = 2**12
EVENT_JOB_ERROR = 2**13
EVENT_JOB_MISSED = 2**14
EVENT_JOB_SUBMITTED = 2**15
EVENT_JOB_MAX_INSTANCES = 2**16
EVENT_ALL = 2**17 - 1

NOW = " (now)"
"""Ends the name of the job that stands for all immediate one-time runs of a function."""

_KEPT = 1000
"""Outcomes that wait for the ledger's answer, at most."""


@dataclass(frozen=True)
class SchedulerEvent:
    """An event of the scheduler."""

    code: int
    alias: str | None = None


@dataclass(frozen=True)
class JobEvent:
    """An event of a job."""

    code: int
    job_id: str
    jobstore: str = "default"


@dataclass(frozen=True)
class JobSubmissionEvent(JobEvent):
    """A run begins on this node."""

    scheduled_run_times: tuple[datetime, ...] = ()


@dataclass(frozen=True)
class JobExecutionEvent(JobEvent):
    """A run has ended, or was missed."""

    scheduled_run_time: datetime | None = None
    retval: Any = None
    exception: BaseException | None = None
    traceback: str | None = None


Listener = Callable[[Any], object]


class Events:
    """The listeners, the running bodies, and their results until the ledger has accepted them."""

    def __init__(self) -> None:
        self._listeners: list[tuple[Listener, int]] = []
        self._begun: dict[int, Run] = {}
        self._over: set[int] = set()
        self._outcomes: OrderedDict[int, tuple[Any, BaseException | None]] = OrderedDict()
        self._mutex = threading.Lock()
        self.store_of: Callable[[str], str] = lambda _job: "default"
        self._open = threading.Event()
        self._open.set()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold back events of runs in this block: listeners are told of the scheduler's start first."""
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    def add(self, listener: Listener, mask: int) -> None:
        """Call this function for events of the mask."""
        self._listeners = [*self._listeners, (listener, mask)]

    def remove(self, listener: Listener) -> None:
        """Stop calling it."""
        self._listeners = [entry for entry in self._listeners if entry[0] != listener]

    def tell(self, event: Any) -> None:
        """Call the listeners at once. What they raise is logged."""
        for listener, mask in self._listeners:
            if event.code & mask:
                try:
                    listener(event)
                except Exception:
                    logger.exception("a listener for %s failed", event, extra={"action": "listener_failed"})

    def wants(self, code: int) -> bool:
        """True if a listener wants such events."""
        return any(code & mask for _, mask in self._listeners)

    def begin(self, run: Run) -> None:
        """Note that a body is called."""
        self._open.wait()
        with self._mutex:
            self._begun[run.id] = run
            self._over.discard(run.id)
        job_id = job_id_of(run.job, run.key)
        self.tell(JobSubmissionEvent(EVENT_JOB_SUBMITTED, job_id, self.store_of(job_id), (run.scheduled_for,)))

    def begun(self) -> list[Run]:
        """The runs whose bodies are running, or have ended since the last call."""
        with self._mutex:
            found = list(self._begun.values())
            for run_id in self._over:
                del self._begun[run_id]
            self._over.clear()
        return found

    def note(self, run_id: int, retval: Any, failure: BaseException | None) -> None:
        """Note how a body ended."""
        with self._mutex:
            if self.wants(EVENT_JOB_MAX_INSTANCES):
                self._over.add(run_id)
            else:
                self._begun.pop(run_id, None)
            if self._listeners:
                self._outcomes[run_id] = retval, failure
                while len(self._outcomes) > _KEPT:
                    self._outcomes.popitem(last=False)

    def heard(self, event: RunEvent) -> None:
        """Tell the listeners how a run ended."""
        self._open.wait()
        with self._mutex:
            retval, failure = self._outcomes.pop(event.run_id, (None, None))
        code = next((code for kind, code in _CODES if isinstance(event, kind)), None)
        if code is None:
            return
        if code != EVENT_JOB_ERROR:
            failure = None
        elif failure is None:
            failure = RuntimeError(last_line(event.error) or "failed")
        told = JobExecutionEvent(
            code,
            job_id := job_id_of(event.job, event.key),
            self.store_of(job_id),
            scheduled_run_time=event.scheduled_for,
            retval=retval if code == EVENT_JOB_EXECUTED else None,
            exception=failure,
            traceback=event.error if code == EVENT_JOB_ERROR else None,
        )
        self.tell(told)


def job_id_of(job: str, key: str) -> str:
    """The id of a job: its name, except for immediate one-time runs."""
    return key if job.endswith(NOW) else job


_CODES = (
    (RunSucceeded, EVENT_JOB_EXECUTED),
    (RunFailed, EVENT_JOB_ERROR),
    (RunLost, EVENT_JOB_ERROR),
    (RunSkipped, EVENT_JOB_MISSED),
)
