"""`make_cluster_safe`: keeps APScheduler 3 as it is and adds one step. Before a run goes to its executor, the worker
claims it in a store that all workers share; only the first worker runs it.

Nothing is paused and resumed, so nothing can be missed or doubled in between. A claim is for one due time: if a worker
dies after its claim, that run is lost (at most once). `max_instances` still counts per worker; only the classes of this
package count across workers.
"""

from __future__ import annotations

import logging
import math
import os
import re
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, TypeVar

from tenure.errors import ConfigurationError, TenureError
from tenure.ext.apscheduler.job import as_json
from tenure.stores import Session, store_for
from tenure.util.clock import walltime

logger = logging.getLogger("tenure")

DAY = 86400.0
CYCLE = 6
"""Days until a key is used again. A claim counts for half of that."""
TIMEOUT = 2.0
"""Seconds that a claim may take: it blocks the thread of the scheduler."""
_MICROSECOND = timedelta(microseconds=1)

S = TypeVar("S")


def make_cluster_safe(scheduler: S, url: object = None, *, application: str = "apscheduler") -> S:
    """Let the workers that share this store run each due time of this APScheduler once. Call it before or after
    `start()`.

    Any job store will do: memory, where each worker has its own list of the same jobs, or one that they share. Call it
    again after adding executors.
    """
    try:
        from apscheduler.executors.base import BaseExecutor  # type: ignore[import-untyped, unused-ignore]
        from apscheduler.jobstores.base import JobLookupError  # type: ignore[import-untyped, unused-ignore]
        from apscheduler.schedulers.base import BaseScheduler  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise ConfigurationError(
            "make_cluster_safe: APScheduler is not installed. Run: pip install 'apscheduler<4'."
        ) from None
    if not isinstance(scheduler, BaseScheduler):
        raise ConfigurationError(
            f"make_cluster_safe: {scheduler!r} is not a scheduler of APScheduler 3. "
            "The schedulers of tenure.ext.apscheduler do not need it."
        )
    claims = Claims(url, application)

    class Claiming(BaseExecutor):  # type: ignore[misc]  # it ships no types
        """Passes on the runs that this worker has claimed."""

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
    _go_on_without(scheduler, JobLookupError)
    # APScheduler would make its default executor at the start, where we would not see it.
    if not scheduler.running and "default" not in scheduler._executors:  # noqa: SLF001
        scheduler.add_executor(scheduler._create_default_executor(), "default")  # noqa: SLF001
    for alias, inner in list(scheduler._executors.items()):  # noqa: SLF001 - there is no other list of them
        if type(inner).__name__ != Claiming.__name__:
            scheduler.remove_executor(alias, shutdown=False)
            scheduler.add_executor(Claiming(inner), alias)
    return scheduler


def _go_on_without(scheduler: Any, gone: type[Exception]) -> None:
    """Let a round of the scheduler go on after another worker has removed a job from a shared store.

    `gone` would end APScheduler's thread: it updates and removes jobs after it has submitted them, and all workers but
    one then find that a date job no longer exists.
    """
    if "_process_jobs" in vars(scheduler):
        return  # a second call
    here = threading.local()
    process, remove = scheduler._process_jobs, scheduler.remove_job  # noqa: SLF001 - it has no other place for this

    def forgiving(change: Callable[..., object]) -> Callable[..., None]:
        def changed(*args: Any) -> None:
            try:
                change(*args)
            except gone as error:
                if not getattr(here, "in_round", False):
                    raise
                logger.debug("another worker has removed a job: %s", error, extra={"action": "removed_elsewhere"})

        return changed

    def process_jobs() -> Any:
        for store in list(scheduler._jobstores.values()):  # noqa: SLF001 - stores may be added at any time
            if "update_job" not in vars(store):
                store.update_job = forgiving(store.update_job)
        here.in_round = True
        try:
            return process()
        finally:
            here.in_round = False

    def remove_job(job_id: str, jobstore: str | None = None) -> None:
        forgiving(remove)(job_id, jobstore)

    scheduler._process_jobs, scheduler.remove_job = process_jobs, remove_job  # noqa: SLF001


class Claims:
    """Records which worker was first. There is one row per due time of a few days; later due times reuse the rows."""

    def __init__(self, url: object, application: str) -> None:
        self._store = store_for(url)
        self._application = application
        self._mutex = threading.Lock()
        self._session: Session | None = None
        self._pid = 0

    def open(self) -> None:
        """Create or check the tables; raises if the store is not usable."""
        self._store.prepare()

    def claim(self, job: Any, due: datetime) -> bool:
        """True if this worker may run this due time.

        Without an answer it may not: what cannot be claimed is not run.
        """
        key, within = key_of(job, due, walltime())
        with self._mutex:
            try:
                return self._asked().ledger.guard(self._application, key, within, f"{os.getpid()}")
            except TenureError as error:
                self._close()
                logger.warning(
                    "job %r, due %s, does not run here: it cannot be claimed (%s)",
                    job.id,
                    due,
                    error,
                    extra={"action": "not_claimed"},
                )
                return False

    def _asked(self) -> Session:
        if self._pid != os.getpid():
            self._session, self._pid = None, os.getpid()  # after a fork: the connection belongs to the parent
        if self._session is None:
            self._session = self._store.session(f"apscheduler:{os.getpid()}", TIMEOUT)
        return self._session

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


def key_of(job: Any, due: datetime, now: datetime) -> tuple[str, float | None]:
    """The key under which a due time is claimed, and for how many seconds. Keys are reused after `CYCLE` days.

    A due time that is older than a claim would last is claimed under its whole date, for ever: otherwise it would take
    the key of a later one. Intervals begin when their worker starts, so no two workers have the same due times: for
    these, a slot of a common grid is claimed.
    """
    name = _name_of(job)
    if length := getattr(job.trigger, "interval_length", None):
        nominal = due.astimezone(UTC)
        slots = max(math.ceil(CYCLE * DAY / length), 3)
        key, within = f"{name} slot {math.floor(due.timestamp() / length) % slots}", length * slots / 2
    else:
        nominal = _without_jitter(job.trigger, due).astimezone(UTC)
        into_day = (nominal - nominal.replace(hour=0, minute=0, second=0, microsecond=0)) // _MICROSECOND
        key, within = f"{name} day {nominal.toordinal() % CYCLE} at {into_day}", CYCLE * DAY / 2
    if (now - nominal).total_seconds() < within:
        return key, within
    return f"{name} due {nominal.isoformat()}", None


def _name_of(job: Any) -> str:
    """The id. An id that APScheduler made up differs between workers: function, trigger and arguments replace it."""
    # Without an alias the job is not added yet.
    made_up = re.fullmatch("[0-9a-f]{32}", job.id) and job.func_ref and job._jobstore_alias is not None  # noqa: SLF001
    if made_up and "Memory" in type(job._scheduler._lookup_jobstore(job._jobstore_alias)).__name__:  # noqa: SLF001
        # JSON is the same in every process; the repr of a set is not.
        stored = as_json(tuple(job.args), dict(job.kwargs))
        given = stored or re.sub(" at 0x[0-9a-f]+", "", repr((job.args, sorted(job.kwargs.items()))))
        return f"{job.func_ref} {job.trigger} {blake2b(given.encode(), digest_size=8).hexdigest()}"
    return str(job.id)


def _without_jitter(trigger: Any, due: datetime) -> datetime:
    """The due time before jitter shifted it, as far as it can be known: the first one within the largest shift."""
    jitter = getattr(trigger, "jitter", None)
    if not jitter or not hasattr(trigger, "fields"):
        return due
    kept, trigger.jitter = trigger.jitter, None
    try:
        nominal = trigger.get_next_fire_time(None, due - timedelta(seconds=kept))
    finally:
        trigger.jitter = kept
    return nominal if nominal is not None and nominal <= due else due
