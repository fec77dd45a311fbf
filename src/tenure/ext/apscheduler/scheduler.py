"""What the three schedulers have in common: APScheduler's methods and words, on tenure's engine."""

from __future__ import annotations

import logging
import sys
import threading
import uuid
import weakref
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TextIO, TypeVar

from tenure.errors import ConfigurationError, UnknownJob
from tenure.events import RunEvent
from tenure.ext.apscheduler import events
from tenure.ext.apscheduler.desk import Desk
from tenure.ext.apscheduler.errors import (
    ConflictingIdError,
    JobLookupError,
    SchedulerAlreadyRunningError,
    SchedulerNotRunningError,
)
from tenure.ext.apscheduler.events import EVENT_ALL, Events, JobEvent, SchedulerEvent
from tenure.ext.apscheduler.functions import Functions
from tenure.ext.apscheduler.job import UNDEFINED, Job, reference, resolved
from tenure.ext.apscheduler.options import (
    Executor,
    Options,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    executor,
    flattened,
    store,
)
from tenure.ext.apscheduler.triggers import DateTrigger, make
from tenure.ext.apscheduler.upkeep import Upkeep
from tenure.ext.apscheduler.zones import aware, local_zone, zone_name
from tenure.scheduler import Scheduler

logger = logging.getLogger("tenure")

STATE_STOPPED = 0
STATE_RUNNING = 1
STATE_PAUSED = 2

WAIT = 7 * 86400.0
"""`shutdown(wait=True)` and `pause()` wait for what runs, as long as it takes."""
PATIENCE = 2.0
"""How long `pause` waits for runs that have begun before it returns; they go on to their end."""

_CHANGEABLE = (
    "func",
    "args",
    "kwargs",
    "name",
    "trigger",
    "executor",
    "misfire_grace_time",
    "coalesce",
    "max_instances",
    "next_run_time",
)
_DEFAULTS = ("misfire_grace_time", "coalesce", "max_instances")

Fn = TypeVar("Fn", bound=Callable[..., Any])


_ALL: weakref.WeakSet[BaseScheduler] = weakref.WeakSet()


class BaseScheduler:
    """Not started, nothing is opened. All methods of a started one act on the jobs of the whole cluster, but for `pause`, `resume` and `shutdown`."""

    def __init__(
        self, gconfig: Mapping[str, Any] | None = None, prefix: str | None = "apscheduler.", **options: Any
    ) -> None:
        self.state = STATE_STOPPED
        self._options = Options()
        self._events = Events()
        self._mutex = threading.RLock()
        self._jobs: dict[str, Job] = {}
        self._desk: Desk | None = None
        self._upkeep: Upkeep | None = None
        self._leaving: threading.Thread | None = None
        self.configure(gconfig or {}, prefix, **options)

    def configure(
        self, gconfig: Mapping[str, Any] | None = None, prefix: str | None = "apscheduler.", **options: Any
    ) -> None:
        """Take in options, before the start."""
        self._not_running()
        self._options.take({**flattened(gconfig or {}, prefix), **options})
        self.timezone = zone_name(self._options.timezone) if self._options.timezone else local_zone()

    # Taking part

    def start(self, paused: bool = False) -> None:
        """Bring the jobs to the ledger and take part; with `paused=True`, not yet."""
        self._not_running()
        with self._mutex:
            desk = self._opened()
            self._refuse_twins(desk.scheduler)
            for job in self._jobs.values():
                self._fill_in(job)
            desk.add_all(list(self._jobs.values()))
            if not paused:
                self._take_part(desk.scheduler)
            self._upkeep = Upkeep(desk, lambda: list(self._jobs.values()))
            self._upkeep.start()
            self.state = STATE_PAUSED if paused else STATE_RUNNING
            _ALL.add(self)
            added = list(self._jobs)
        self._events.tell(SchedulerEvent(events.EVENT_SCHEDULER_STARTED))
        for job_id in added:
            self._events.tell(JobEvent(events.EVENT_JOB_ADDED, job_id))

    def shutdown(self, wait: bool = True) -> None:
        """Leave: run no more here, and with `wait` let what runs come to its end. The other nodes go on."""
        self._running()
        with self._mutex:
            desk, self.state = self._opened(), STATE_STOPPED
            upkeep, self._upkeep = self._upkeep, None
        if upkeep is not None:
            upkeep.stop()
        self._leave(desk.scheduler, wait=wait)
        self._events.tell(SchedulerEvent(events.EVENT_SCHEDULER_SHUTDOWN))

    def pause(self) -> None:
        """Begin nothing on this node until `resume`; the other nodes go on."""
        self._running()
        if self.state == STATE_PAUSED:
            return
        self.state = STATE_PAUSED
        inner = self._opened().scheduler
        self._later(lambda: inner.stop(WAIT))
        self._events.tell(SchedulerEvent(events.EVENT_SCHEDULER_PAUSED))

    def resume(self) -> None:
        """Take part again, once the runs from before the pause have ended."""
        self._running()
        if self.state != STATE_PAUSED:
            return
        self.state = STATE_RUNNING
        inner = self._opened().scheduler
        self._later(lambda: self._take_part(inner) if self.state == STATE_RUNNING else None)
        self._events.tell(SchedulerEvent(events.EVENT_SCHEDULER_RESUMED))

    @property
    def running(self) -> bool:
        """Started; also while it is paused."""
        return self.state != STATE_STOPPED

    def wakeup(self) -> None:
        """Look at the ledger at once."""
        self._opened().scheduler.poke()

    @property
    def tenure(self) -> Scheduler:
        """tenure's own scheduler behind this one: its runs, its audit, its health."""
        return self._opened().scheduler

    # Executors, stores and listeners

    def add_executor(self, given: Any, alias: str = "default", **executor_opts: Any) -> None:
        """Before the start: one more executor."""
        self._not_running()
        self._options.executors[alias] = executor({"type": given, **executor_opts} if isinstance(given, str) else given)
        self._events.tell(SchedulerEvent(events.EVENT_EXECUTOR_ADDED, alias))

    def remove_executor(self, alias: str, shutdown: bool = True) -> None:
        """Before the start: one less."""
        del shutdown
        self._not_running()
        self._options.executors.pop(alias)
        self._events.tell(SchedulerEvent(events.EVENT_EXECUTOR_REMOVED, alias))

    def add_jobstore(self, jobstore: Any, alias: str = "default", **jobstore_opts: Any) -> None:
        """Before the start: where the jobs are."""
        self._not_running()
        self._options.jobstores[alias] = store(
            {"type": jobstore, **jobstore_opts} if isinstance(jobstore, str) else jobstore
        )
        self._events.tell(SchedulerEvent(events.EVENT_JOBSTORE_ADDED, alias))

    def remove_jobstore(self, alias: str, shutdown: bool = True) -> None:
        """Before the start: not there."""
        del shutdown
        self._not_running()
        self._options.jobstores.pop(alias)
        self._events.tell(SchedulerEvent(events.EVENT_JOBSTORE_REMOVED, alias))

    def add_listener(self, callback: Callable[[Any], object], mask: int = EVENT_ALL) -> None:
        """Hear of what happens on this node."""
        self._events.add(callback, mask)

    def remove_listener(self, callback: Callable[[Any], object]) -> None:
        """Hear no more."""
        self._events.remove(callback)

    # Jobs

    def add_job(  # noqa: PLR0917 - the order is APScheduler's
        self,
        func: Callable[..., Any] | str,
        trigger: Any = None,
        args: Any = None,
        kwargs: Mapping[str, Any] | None = None,
        id: str | None = None,  # noqa: A002 - APScheduler's word
        name: str | None = None,
        misfire_grace_time: Any = UNDEFINED,
        coalesce: Any = UNDEFINED,
        max_instances: Any = UNDEFINED,
        next_run_time: Any = UNDEFINED,
        jobstore: str = "default",
        executor: str = "default",
        replace_existing: bool = False,
        policy: Mapping[str, Any] | None = None,
        **trigger_args: Any,
    ) -> Job:
        """Add a job. `policy` takes tenure's own words beside APScheduler's: `policy={"timeout": "20m", "retries": 2}`."""
        called = resolved(func)
        made = make(trigger, trigger_args, self.timezone)
        self._known_alias(jobstore, "job store", self._options.jobstores)
        job = Job(self, id or self._id_for(called, made), called, made)
        job.name = name or str(getattr(called, "__name__", job.id))
        job.args, job.kwargs = tuple(args or ()), dict(kwargs or {})
        job.executor, job.policy = executor, dict(policy or {})
        given = {"misfire_grace_time": misfire_grace_time, "coalesce": coalesce, "max_instances": max_instances}
        job.given = frozenset(word for word, value in given.items() if value is not UNDEFINED)
        for word in job.given:
            setattr(job, word, given[word])
        job.first_run = (
            next_run_time
            if next_run_time in {UNDEFINED, None}
            else aware(next_run_time, self.timezone, "next_run_time")
        )
        with self._mutex:
            if job.id in self._jobs and not replace_existing:
                raise ConflictingIdError(job.id)
            if self.state != STATE_STOPPED:
                self._fill_in(job)
                job.shared = reference(called) is not None
                self._opened().add(job)
            self._keep(job)
        if not job.pending:
            self._events.tell(JobEvent(events.EVENT_JOB_ADDED, job.id))
        return job

    def scheduled_job(
        self,
        trigger: Any,
        args: Any = None,
        kwargs: Mapping[str, Any] | None = None,
        id: str | None = None,  # noqa: A002 - APScheduler's word
        name: str | None = None,
        **options: Any,
    ) -> Callable[[Fn], Fn]:
        """A decorator: `add_job` for the function below it."""

        def register(func: Fn) -> Fn:
            self.add_job(func, trigger, args, kwargs, id, name, **{"replace_existing": True, **options})
            return func

        return register

    def modify_job(self, job_id: str, jobstore: str | None = None, **changes: Any) -> Job:
        """Change some properties of a job, for all nodes."""
        del jobstore
        for word in changes.keys() - set(_CHANGEABLE):
            raise ConfigurationError(
                f"modify_job: {word}={changes[word]!r} cannot be changed. Change {', '.join(_CHANGEABLE)}."
            )
        job = self._find(job_id)
        if "func" in changes:
            job.func = resolved(changes["func"])
            job.func_ref = reference(job.func)
        if "trigger" in changes:
            job.trigger = make(changes["trigger"], {}, self.timezone)
        if "args" in changes:
            job.args = tuple(changes["args"])
        if "kwargs" in changes:
            job.kwargs = dict(changes["kwargs"])
        for word in changes.keys() & {"name", "executor", *_DEFAULTS}:
            setattr(job, word, changes[word])
        job.given |= changes.keys() & set(_DEFAULTS)
        first = changes.get("next_run_time", UNDEFINED)
        first = first if first in {UNDEFINED, None} else aware(first, self.timezone, "next_run_time")
        if job.pending:
            job.first_run = first
            return job
        desk = self._opened()
        function = bool(changes.keys() & {"func", "args", "kwargs", "executor"})
        job.shared = job.shared or function
        if changes.keys() - {"name", "next_run_time"}:
            desk.update(job, trigger="trigger" in changes, function=function)
        if first is not UNDEFINED:
            desk.start_at(job, first)
        if self._upkeep is not None:
            self._upkeep.wake()
        self._events.tell(JobEvent(events.EVENT_JOB_MODIFIED, job_id))
        return self.get_job(job_id) or job

    def reschedule_job(self, job_id: str, jobstore: str | None = None, trigger: Any = None, **trigger_args: Any) -> Job:
        """Give a job another trigger, from now on. A paused one goes on."""
        job = self.modify_job(job_id, jobstore, trigger=make(trigger, trigger_args, self.timezone))
        if not job.pending and job.next_run_time is None:
            self._opened().scheduler.resume(job_id)
        return self.get_job(job_id) or job

    def pause_job(self, job_id: str, jobstore: str | None = None) -> Job:
        """Begin no more runs of this job, anywhere."""
        return self.modify_job(job_id, jobstore, next_run_time=None)

    def resume_job(self, job_id: str, jobstore: str | None = None) -> Job | None:
        """Go on from now."""
        del jobstore
        job = self._find(job_id)
        if job.pending:
            job.first_run = UNDEFINED
            return job
        self._opened().scheduler.resume(job_id)
        self._events.tell(JobEvent(events.EVENT_JOB_MODIFIED, job_id))
        return self.get_job(job_id)

    def get_jobs(self, jobstore: str | None = None, pending: bool | None = None) -> list[Job]:
        """The jobs of the cluster by their next run times; of a scheduler that is not started, those that were added."""
        del jobstore
        if self.state == STATE_STOPPED:
            return [] if pending is False else list(self._jobs.values())
        if pending:
            return []
        rows, now = self._opened().rows()
        jobs = [self._shown(row, now) for row in rows]
        return sorted(jobs, key=lambda job: (job.next_run_time is None, job.next_run_time or now, job.id))

    def get_job(self, job_id: str, jobstore: str | None = None) -> Job | None:
        """One job; None if there is none."""
        del jobstore
        if self.state == STATE_STOPPED:
            return self._jobs.get(job_id)
        rows, now = self._opened().rows(job_id)
        return self._shown(rows[0], now) if rows else None

    def remove_job(self, job_id: str, jobstore: str | None = None) -> None:
        """Take a job away, for all nodes. What runs goes on to its end."""
        del jobstore
        with self._mutex:
            known = self._jobs.pop(job_id, None)
            if self.state == STATE_STOPPED:
                if known is None:
                    raise JobLookupError(job_id)
                return
        try:
            self._opened().remove(job_id)
        except UnknownJob:
            raise JobLookupError(job_id) from None
        self._events.tell(JobEvent(events.EVENT_JOB_REMOVED, job_id))

    def remove_all_jobs(self, jobstore: str | None = None) -> None:
        """Take all jobs of the application away, for all nodes."""
        for job in self.get_jobs():
            self.remove_job(job.id)
        self._events.tell(SchedulerEvent(events.EVENT_ALL_JOBS_REMOVED, jobstore))

    def print_jobs(self, jobstore: str | None = None, out: TextIO | None = None) -> None:
        """One line for each job."""
        out = out or sys.stdout
        jobs = self.get_jobs(jobstore)
        pending = self.state == STATE_STOPPED
        print("Pending jobs:" if pending else f"Jobstore {jobstore or 'default'}:", file=out)
        lines = [str(job) for job in jobs] or ["No pending jobs" if pending else "No scheduled jobs"]
        for line in lines:
            print(f"    {line}", file=out)

    # What the above is made of

    def _default_executor(self) -> Executor:
        return ThreadPoolExecutor()

    def _take_part(self, inner: Scheduler) -> None:
        inner.start()

    def _leave(self, inner: Scheduler, *, wait: bool) -> None:
        inner.stop(WAIT if wait else 0)

    def _later(self, action: Callable[[], object]) -> None:
        """Do it after what was begun before, and wait a moment for it."""
        before = self._leaving

        def work() -> None:
            if before is not None:
                before.join()
            action()

        self._leaving = threading.Thread(target=work, name="tenure pause", daemon=True)
        self._leaving.start()
        self._leaving.join(PATIENCE)

    def _opened(self) -> Desk:
        with self._mutex:
            if self._desk is None:
                self._options.executors.setdefault("default", self._default_executor())
                url, application = self._options.place()
                inner = Scheduler(url, application=application, tz=self.timezone, capacity=self._options.capacity)
                inner.on(RunEvent)(self._events.heard)
                functions = Functions(self._events)
                functions.allow(self._options.functions)
                processes = {a for a, one in self._options.executors.items() if isinstance(one, ProcessPoolExecutor)}
                self._desk = Desk(inner, functions, frozenset(processes))
            return self._desk

    def _fill_in(self, job: Job) -> None:
        """What was not given comes from `job_defaults`."""
        self._known_alias(job.executor, "executor", self._options.executors)
        for word, value in self._options.job_defaults.items():
            if word not in _DEFAULTS:
                job.policy.setdefault(word, value)
            elif word not in job.given:
                setattr(job, word, value)

    def _id_for(self, func: Callable[..., Any], trigger: object) -> str:
        if isinstance(trigger, DateTrigger):
            return uuid.uuid4().hex
        name = reference(func)
        if name is None:
            raise ConfigurationError(
                f"add_job: {func!r} has no name that all workers share. Write id='…': by it they know that it is one job."
            )
        return name

    def _keep(self, job: Job) -> None:
        """Remember a job, unless it runs once and now."""
        if job.pending or not isinstance(job.trigger, DateTrigger) or not job.trigger.now:
            self._jobs[job.id] = job
            if self._upkeep is not None:
                self._upkeep.wake()

    def _find(self, job_id: str) -> Job:
        job = self.get_job(job_id)
        if job is None:
            raise JobLookupError(job_id)
        return job

    def _shown(self, row: Any, now: datetime) -> Job:
        desk, job_id = self._opened(), row.spec.name
        job = self._jobs.get(job_id)
        if job is None:
            job = desk.stranger(row, Job(self, job_id, None, None))
        return desk.show(job, row, now)

    def _known_alias(self, alias: str, what: str, known: Mapping[str, object]) -> None:
        if alias != "default" and alias not in known:
            raise KeyError(f"No such {what}: {alias}")

    def _refuse_twins(self, inner: Scheduler) -> None:
        """Two schedulers of one process would be one node twice."""
        for other in list(_ALL):
            desk = other._desk  # noqa: SLF001 - one of us
            if other is self or not other.running or desk is None:
                continue
            if (desk.scheduler.store.shown, desk.scheduler.application) == (inner.store.shown, inner.application):
                raise ConfigurationError(
                    f"two schedulers of this process are on {inner.store.shown} as application {inner.application!r}. "
                    "Write application='…' in one of them, or use one scheduler for both."
                )

    def _running(self) -> None:
        if self.state == STATE_STOPPED:
            raise SchedulerNotRunningError

    def _not_running(self) -> None:
        if self.state != STATE_STOPPED:
            raise SchedulerAlreadyRunningError
