"""Starting, pausing and stopping a scheduler; its executors, its store and its listeners, under APScheduler's names."""

from __future__ import annotations

import atexit
import logging
import signal
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import count
from typing import Any

from tenure.errors import ConfigurationError, StoreError
from tenure.events import RunEvent, RunFailed, RunSkipped, RunSucceeded
from tenure.ext.apscheduler import events
from tenure.ext.apscheduler.due_list_refresher import DueListRefresher
from tenure.ext.apscheduler.errors import SchedulerAlreadyRunningError, SchedulerNotRunningError
from tenure.ext.apscheduler.events import EVENT_ALL, Events, JobEvent, SchedulerEvent
from tenure.ext.apscheduler.functions import Functions
from tenure.ext.apscheduler.identity import Identities
from tenure.ext.apscheduler.job import Job
from tenure.ext.apscheduler.max_instances import MaxInstancesWatch
from tenure.ext.apscheduler.options import (
    DEFAULTS,
    Executor,
    MemoryJobStore,
    Options,
    ProcessPoolExecutor,
    SQLAlchemyJobStore,
    ThreadPoolExecutor,
    executor,
    flattened,
    store,
)
from tenure.ext.apscheduler.stored_functions import Loaded, builder
from tenure.ext.apscheduler.tenure_bridge import TenureBridge
from tenure.ext.apscheduler.trigger_translation import ends
from tenure.ext.apscheduler.triggers import DateTrigger
from tenure.ext.apscheduler.zones import local_zone, shown_zone, zone_name
from tenure.scheduler import Scheduler
from tenure.util.clock import boottime, sleep

logger = logging.getLogger("tenure")

STATE_STOPPED = 0
STATE_RUNNING = 1
STATE_PAUSED = 2

WAIT = 7 * 86400.0
"""Seconds that `shutdown(wait=True)` and `pause()` wait for running bodies: as long as it takes."""
PATIENCE = 2.0
"""Seconds that `pause` waits for running bodies before it returns; they go on to their end."""

MANY_JOBS = 1000
"""With this many jobs or more, look for those that are over."""
TOGETHER = 0.5
"""Two signals within this many seconds count as one: some programs send one to a process and to its group."""

_ALL: weakref.WeakSet[Lifecycle] = weakref.WeakSet()


class Lifecycle:
    """Opens nothing before `start()`.

    After it, all methods act on the jobs of the whole cluster, except `pause`, `resume` and `shutdown`.
    """

    def __init__(
        self, gconfig: Mapping[str, Any] | None = None, prefix: str | None = "apscheduler.", **options: Any
    ) -> None:
        self.state = STATE_STOPPED
        self._options = Options()
        self._events = Events()
        self._events.store_of = self._store_of
        self._mutex = threading.RLock()
        self._jobs: dict[str, Job] = {}
        self._forget_from = MANY_JOBS
        self._identities = Identities()
        self._builder = builder()
        self._apart: str | None = None
        """Its own application, if another scheduler of this process already has the default one."""
        self._bridge: TenureBridge | None = None
        self._refresher: DueListRefresher | None = None
        self._leaving: threading.Thread | None = None
        self.configure(gconfig or {}, prefix, **options)

    def configure(
        self, gconfig: Mapping[str, Any] | None = None, prefix: str | None = "apscheduler.", **options: Any
    ) -> None:
        """Set options, before the start."""
        self._not_running()
        self._options.take({**flattened(gconfig or {}, prefix), **options})
        self._tz = zone_name(self._options.timezone) if self._options.timezone else local_zone()
        self.timezone = shown_zone(self._tz, self._options.timezone)

    # Start and stop

    def start(self, paused: bool = False) -> None:
        """Write the jobs to the ledger and start running them; with `paused=True`, not yet."""
        self._not_running()
        with self._events.held():
            self._start(paused=paused)

    def _start(self, *, paused: bool) -> None:
        told: list[Any] = []
        with self._mutex:
            if "default" not in self._options.executors:
                told.append(SchedulerEvent(events.EVENT_EXECUTOR_ADDED, "default"))
            bridge = self._opened()
            if "default" not in self._options.jobstores:
                self._options.jobstores["default"] = MemoryJobStore()
                told.append(SchedulerEvent(events.EVENT_JOBSTORE_ADDED, "default"))
            bridge = self._set_apart(bridge)
            for job in self._jobs.values():
                self._fill_in(job)
                kept = isinstance(self._options.jobstores.get(job.jobstore), SQLAlchemyJobStore)
                job.shared |= kept and isinstance(job.trigger, DateTrigger)  # the next start may not say it again
            bridge.add_all(list(self._jobs.values()))
            bridge.look_for_functions()
            if not paused:
                self._take_part(bridge.scheduler)
            max_instances = MaxInstancesWatch(bridge.scheduler, self._events)
            self._refresher = DueListRefresher(bridge, lambda: list(self._jobs.values()), max_instances)
            self._refresher.start()
            self.state = STATE_PAUSED if paused else STATE_RUNNING
            _ALL.add(self)
            atexit.register(self._at_exit)
            told += [JobEvent(events.EVENT_JOB_ADDED, job.id, job.jobstore) for job in self._jobs.values()]
            self._jobs = {job.id: job for job in self._jobs.values() if not _once(job)}
        for event in [*told, SchedulerEvent(events.EVENT_SCHEDULER_STARTED)]:
            self._events.tell(event)
        self._tell_late()

    def shutdown(self, wait: bool = True) -> None:
        """Stop running jobs here; with `wait`, wait for running ones. The other nodes go on."""
        self._running()
        atexit.unregister(self._at_exit)
        with self._mutex:
            bridge, self.state = self._opened(), STATE_STOPPED
            refresher, self._refresher = self._refresher, None
        if refresher is not None:
            refresher.stop()
        self._leave(bridge.scheduler, wait=wait)
        self._events.tell(SchedulerEvent(events.EVENT_SCHEDULER_SHUTDOWN))

    def pause(self) -> None:
        """Start no more runs on this node until `resume`; the other nodes go on."""
        self._running()
        if self.state == STATE_PAUSED:
            return
        self.state = STATE_PAUSED
        inner = self._opened().scheduler
        self._later(lambda: inner.stop(WAIT))
        self._events.tell(SchedulerEvent(events.EVENT_SCHEDULER_PAUSED))

    def resume(self) -> None:
        """Run jobs again, once the runs from before the pause have ended."""
        self._running()
        if self.state != STATE_PAUSED:
            return
        self.state = STATE_RUNNING
        inner = self._opened().scheduler
        self._later(lambda: self._come_back(inner))
        self._events.tell(SchedulerEvent(events.EVENT_SCHEDULER_RESUMED))

    @property
    def running(self) -> bool:
        """True after the start, even while it is paused."""
        return self.state != STATE_STOPPED

    def wakeup(self) -> None:
        """Check the ledger at once."""
        self._opened().poke()

    @property
    def tenure(self) -> Scheduler:
        """tenure's own scheduler behind this one, for its runs, its audit and its health."""
        return self._opened().scheduler

    # Executors, stores and listeners

    def add_executor(self, given: Any, alias: str = "default", **executor_opts: Any) -> None:
        """Add an executor, before the start."""
        self._not_running()
        self._new_alias(alias, "executor", self._options.executors)
        self._options.executors[alias] = executor({"type": given, **executor_opts} if isinstance(given, str) else given)
        self._events.tell(SchedulerEvent(events.EVENT_EXECUTOR_ADDED, alias))

    def remove_executor(self, alias: str, shutdown: bool = True) -> None:
        """Remove an executor, before the start."""
        del shutdown
        self._not_running()
        self._options.executors.pop(alias)
        self._events.tell(SchedulerEvent(events.EVENT_EXECUTOR_REMOVED, alias))

    def add_jobstore(self, jobstore: Any, alias: str = "default", **jobstore_opts: Any) -> None:
        """Add a job store, before the start."""
        self._not_running()
        self._new_alias(alias, "job store", self._options.jobstores)
        self._options.jobstores[alias] = store(
            {"type": jobstore, **jobstore_opts} if isinstance(jobstore, str) else jobstore
        )
        self._events.tell(SchedulerEvent(events.EVENT_JOBSTORE_ADDED, alias))

    def remove_jobstore(self, alias: str, shutdown: bool = True) -> None:
        """Remove a job store, before the start."""
        del shutdown
        self._not_running()
        self._options.jobstores.pop(alias)
        self._events.tell(SchedulerEvent(events.EVENT_JOBSTORE_REMOVED, alias))

    def add_listener(self, callback: Callable[[Any], object], mask: int = EVENT_ALL) -> None:
        """Call this function for events on this node."""
        self._events.add(callback, mask)
        if self._refresher is not None:
            self._refresher.wake()

    def remove_listener(self, callback: Callable[[Any], object]) -> None:
        """Stop calling this function."""
        self._events.remove(callback)

    # Helpers

    def _default_executor(self) -> Executor:
        return ThreadPoolExecutor()

    def _take_part(self, inner: Scheduler) -> None:
        inner.start()

    def _leave(self, inner: Scheduler, *, wait: bool) -> None:
        inner.stop(WAIT if wait else 0)

    def _come_back(self, inner: Scheduler) -> None:
        """Start again, as soon as the store answers."""
        while self.state == STATE_RUNNING:
            try:
                self._take_part(inner)
                return
            except StoreError as error:
                logger.warning("the scheduler is not resumed yet: %s", error, extra={"action": "not_resumed"})
                sleep(1.0)

    def _later(self, action: Callable[[], object]) -> None:
        """Do it after earlier pauses and resumes, and wait a moment for it."""
        before = self._leaving

        def work() -> None:
            if before is not None:
                before.join()
            action()

        self._leaving = threading.Thread(target=work, name="tenure pause", daemon=True)
        self._leaving.start()
        self._leaving.join(PATIENCE)

    def _opened(self) -> TenureBridge:
        with self._mutex:
            if self._bridge is None:
                self._options.executors.setdefault("default", self._default_executor())
                url, application = self._options.place()
                inner = Scheduler(
                    url, application=self._apart or application, tz=self._tz, capacity=self._options.capacity
                )
                inner.on(RunEvent)(self._heard)
                functions = self._functions()
                processes = {a for a, one in self._options.executors.items() if isinstance(one, ProcessPoolExecutor)}
                self._bridge = TenureBridge(inner, functions, frozenset(processes))
            return self._bridge

    def _tell_late(self) -> None:
        late = self._opened().late
        while late:
            with suppress(IndexError):  # another thread reports it
                self._events.tell(late.popleft())

    def _heard(self, event: RunEvent) -> None:
        """Report how a run ended. If it was the last of its job, the job is over."""
        self._events.heard(event)
        if not isinstance(event, RunSucceeded | RunFailed | RunSkipped):
            return
        job_id = events.job_id_of(event.job, event.key)
        if job_id == event.job and not self._is_over(job_id, event.scheduled_for):
            return
        alias = self._store_of(job_id)
        with self._mutex:
            if self._jobs.pop(job_id, None) is not None:
                self._opened().functions.forget(job_id)
        self._events.tell(JobEvent(events.EVENT_JOB_REMOVED, job_id, alias))

    def _store_of(self, job_id: str) -> str:
        job = self._jobs.get(job_id)
        return "default" if job is None else job.jobstore

    def _is_over(self, job_id: str, since: datetime) -> bool:
        """True if nothing is due after this. Asks the ledger only about jobs that may be over."""
        job = self._jobs.get(job_id)
        if job is None and not self._events.wants(events.EVENT_JOB_REMOVED):
            return False
        if job is not None and (job.trigger is None or not ends(job.trigger, since)):
            return False
        try:
            rows, _ = self._opened().rows(job_id)
        except StoreError:
            return False
        return not rows

    def _functions(self) -> Functions:
        """The function registry. Names in stored jobs are looked up, unless `functions=` lists all functions."""
        allowed, importable = self._options.functions, self._options.importable
        if allowed is None:
            return Functions(self._events, Loaded([self._builder.package or self._builder.module, *importable]))
        if importable:
            raise ConfigurationError(
                f"importable={list(importable)!r} beside functions=[…]: with functions= no other function is looked "
                "for. Write one of the two."
            )
        functions = Functions(self._events, None)
        functions.allow(allowed)
        return functions

    def _fill_in(self, job: Job) -> None:
        """Set what was not given from `job_defaults`."""
        self._known_alias(job.executor, "executor", self._options.executors)
        for word, value in self._options.job_defaults.items():
            if word not in DEFAULTS:
                job.policy.setdefault(word, value)
            elif word not in job.given:
                setattr(job, word, value)

    def _new_alias(self, alias: str, what: str, known: Mapping[str, object]) -> None:
        if alias in known:
            raise ConfigurationError(
                f'This scheduler already has {"an" if what[0] == "e" else "a"} {what} by the alias of "{alias}". '
                "Give one of them another alias, or remove it first."
            )

    def _known_alias(self, alias: str, what: str, known: Mapping[str, object]) -> None:
        if alias != "default" and alias not in known:
            raise KeyError(f"No such {what}: {alias}")

    def _set_apart(self, bridge: TenureBridge) -> TenureBridge:
        """Give the second of two schedulers in one process its own application: both would be the same node."""
        inner = bridge.scheduler
        if not self._has_twin(inner):
            return bridge
        if self._options.application is not None:
            raise ConfigurationError(
                f"two schedulers of this process are on {inner.store.shown} as application {inner.application!r}. "
                "Write another application='…' in one of them, or use one scheduler for both."
            )
        module = self._builder.module
        for number in count(1):
            self._apart, self._bridge = module if number == 1 else f"{module} {number}", None
            bridge = self._opened()
            if not self._has_twin(bridge.scheduler):
                break
        logger.warning(
            "another scheduler of this process already has the application %r on %s; the one that %s built takes %r. "
            "Write application='…' to choose a name",
            inner.application,
            inner.store.shown,
            module,
            self._apart,
            extra={"action": "set_apart"},
        )
        return bridge

    def _has_twin(self, inner: Scheduler) -> bool:
        others = [other._bridge for other in list(_ALL) if other is not self and other.running]  # noqa: SLF001
        mine = inner.store.shown, inner.application
        return any(
            bridge is not None and (bridge.scheduler.store.shown, bridge.scheduler.application) == mine
            for bridge in others
        )

    def _at_exit(self) -> None:
        """The program ends without `shutdown`: start nothing more, and wait for running jobs, as APScheduler does."""
        refresher, inner = self._refresher, self._opened().scheduler
        if inner.started:
            _let_ctrl_c_end_it()
            if refresher is not None:
                refresher.stop()
            inner.stop(self._patience_at_exit())

    def _patience_at_exit(self) -> float:
        return WAIT

    def _running(self) -> None:
        if self.state == STATE_STOPPED:
            raise SchedulerNotRunningError

    def _not_running(self) -> None:
        if self.state != STATE_STOPPED:
            raise SchedulerAlreadyRunningError


def _once(job: Job) -> bool:
    """True for an immediate one-time run, of which nothing is left."""
    return isinstance(job.trigger, DateTrigger) and job.trigger.now


def _let_ctrl_c_end_it() -> None:
    """While the exit waits, let another Ctrl-C end the process at once, without a traceback.

    A second signal that came together with the first does not count.
    """
    began_at = boottime()

    def end(number: int, _frame: object) -> None:
        if boottime() - began_at >= TOGETHER:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        with suppress(ValueError):  # not on the main thread
            signal.signal(signal.SIGINT, end)
