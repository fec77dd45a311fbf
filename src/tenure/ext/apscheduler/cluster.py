"""`make_cluster_safe`: an APScheduler 3 that goes on as it is, with one thing added: before a run is handed to its executor it is claimed in a store that all
workers share. Whoever comes second does not run it.

Nothing is paused and resumed, so nothing can be missed or doubled in between. A claim is for one due time: a worker that dies after its claim takes that run with it (at
most once). What runs is limited by `max_instances` per worker, as ever; only the classes of this package limit it across workers.
"""

from __future__ import annotations

import logging
import math
import os
import re
import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, TypeVar

from tenure.errors import ConfigurationError, TenureError
from tenure.stores import Session, store_for

logger = logging.getLogger("tenure")

DAY = 86400.0
TIMEOUT = 2.0
"""Seconds that a claim may take: it holds up the thread of the scheduler."""
_MICROSECOND = timedelta(microseconds=1)

S = TypeVar("S")


def make_cluster_safe(scheduler: S, url: object = None, *, application: str = "apscheduler") -> S:
    """Let the workers that share this store run each due time of this APScheduler once. Call it before `start()`, or after.

    Any job store will do: memory, where each worker has its own list of the same jobs, or one that they share. Executors that are added later have to be
    passed by calling it again.
    """
    try:
        from apscheduler.executors.base import BaseExecutor  # type: ignore[import-untyped, unused-ignore]
        from apscheduler.schedulers.base import BaseScheduler  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise ConfigurationError(
            "make_cluster_safe: APScheduler is not installed. Run: pip install 'apscheduler<4'."
        ) from None
    if not isinstance(scheduler, BaseScheduler):
        raise ConfigurationError(
            f"make_cluster_safe: {scheduler!r} is no scheduler of APScheduler 3. Those of tenure.ext.apscheduler are safe already."
        )
    claims = Claims(url, application)

    class Claiming(BaseExecutor):  # type: ignore[misc]  # it ships no types
        """Hands on what could be claimed."""

        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def start(self, scheduler: Any, alias: str) -> None:
            super().start(scheduler, alias)
            self.inner.start(scheduler, alias)

        def shutdown(self, wait: bool = True) -> None:
            self.inner.shutdown(wait)

        def submit_job(self, job: Any, run_times: Sequence[datetime]) -> None:
            mine = [due for due in run_times if claims.claim(job, due)]
            if mine:
                self.inner.submit_job(job, mine)

        def _do_submit_job(self, job: Any, run_times: Sequence[datetime]) -> None:
            self.inner._do_submit_job(job, run_times)  # noqa: SLF001 - never called: submit_job hands on

    claims.open()
    if not scheduler.running and "default" not in scheduler._executors:  # noqa: SLF001 - it is made at the start, where we would not see it
        scheduler.add_executor(scheduler._create_default_executor(), "default")  # noqa: SLF001
    for alias, inner in list(scheduler._executors.items()):  # noqa: SLF001 - there is no other list of them
        if type(inner).__name__ != Claiming.__name__:
            scheduler.remove_executor(alias, shutdown=False)
            scheduler.add_executor(Claiming(inner), alias)
    return scheduler


class Claims:
    """Who was first. One row for each due time of a day, used again the next day."""

    def __init__(self, url: object, application: str) -> None:
        self._store = store_for(url)
        self._application = application
        self._mutex = threading.Lock()
        self._session: Session | None = None
        self._pid = 0

    def open(self) -> None:
        """Raises what is wrong with the store."""
        self._store.prepare()

    def claim(self, job: Any, due: datetime) -> bool:
        """Whether this due time of this job is this worker's. Without an answer it is not: nobody runs what cannot be claimed."""
        key, within = key_of(job, due)
        with self._mutex:
            try:
                return self._asked().ledger.guard(self._application, key, within, f"{os.getpid()}")
            except TenureError as error:
                self._close()
                logger.warning(
                    "job %r, due %s, is not run here: it cannot be claimed (%s)",
                    job.id,
                    due,
                    error,
                    extra={"action": "not_claimed"},
                )
                return False

    def _asked(self) -> Session:
        if self._pid != os.getpid():
            self._session, self._pid = None, os.getpid()  # a fork: the connection stays the parent's
        if self._session is None:
            self._session = self._store.session(f"apscheduler:{os.getpid()}", TIMEOUT)
        return self._session

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


def key_of(job: Any, due: datetime) -> tuple[str, float]:
    """What a due time is claimed as, and for how long. Keys come round again, so that there are never more than fit into a day.

    Intervals begin where their worker began, so that no two have the same due times: of them the slot of a common grid is claimed.
    """
    name, instant = _name_of(job), due.timestamp()
    length = getattr(job.trigger, "interval_length", None)
    if length:
        slots = max(math.ceil(DAY / length), 3)
        return f"{name} slot {math.floor(instant / length) % slots}", length * slots / 2
    nominal = _without_jitter(job.trigger, due).astimezone(UTC)
    into_day = (nominal - nominal.replace(hour=0, minute=0, second=0, microsecond=0)) // _MICROSECOND
    return f"{name} at {into_day}", DAY / 2


def _name_of(job: Any) -> str:
    """The id; but one that APScheduler made up is another in each worker: function, trigger and arguments stand for it."""
    made_up = re.fullmatch("[0-9a-f]{32}", job.id) and job.func_ref and job._jobstore_alias is not None  # noqa: SLF001 - it is not added yet without
    if made_up and "Memory" in type(job._scheduler._lookup_jobstore(job._jobstore_alias)).__name__:  # noqa: SLF001
        given = re.sub(" at 0x[0-9a-f]+", "", repr((job.args, sorted(job.kwargs.items()))))
        return f"{job.func_ref} {job.trigger} {blake2b(given.encode(), digest_size=8).hexdigest()}"
    return str(job.id)


def _without_jitter(trigger: Any, due: datetime) -> datetime:
    """The due time before it was shifted, as far as it can be known: the first from the furthest shift on."""
    jitter = getattr(trigger, "jitter", None)
    if not jitter or not hasattr(trigger, "fields"):
        return due
    kept, trigger.jitter = trigger.jitter, None
    try:
        nominal = trigger.get_next_fire_time(None, due - timedelta(seconds=kept))
    finally:
        trigger.jitter = kept
    return nominal if nominal is not None and nominal <= due else due
