"""The jobs of a scheduler: APScheduler's methods, on tenure's engine."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, TextIO, TypeVar

from tenure.core.records import JobRow
from tenure.errors import ConfigurationError, UnknownJob
from tenure.ext.apscheduler import events
from tenure.ext.apscheduler.errors import ConflictingIdError, JobLookupError, unsupported
from tenure.ext.apscheduler.events import JobEvent, SchedulerEvent
from tenure.ext.apscheduler.job import UNDEFINED, Job, reference, resolved
from tenure.ext.apscheduler.lifecycle import MANY_JOBS, STATE_STOPPED, Lifecycle
from tenure.ext.apscheduler.options import DEFAULTS, SQLAlchemyJobStore, check_max_instances
from tenure.ext.apscheduler.triggers import DateTrigger, make
from tenure.ext.apscheduler.zones import aware
from tenure.util.clock import walltime

logger = logging.getLogger("tenure")

_CHANGEABLE = ("func", "args", "kwargs", "name", "trigger", "executor", *DEFAULTS, "next_run_time")

_PAST = timedelta(hours=1)

Fn = TypeVar("Fn", bound=Callable[..., Any])


class BaseScheduler(Lifecycle):
    """Operations on jobs. On a started scheduler they apply to the whole cluster."""

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
        """Add a job. `policy` takes tenure's own options: `policy={"timeout": "20m", "retries": 2}`."""
        called = resolved(func)
        made = make(trigger, trigger_args, self.timezone)
        self._known_alias(jobstore, "job store", self._options.jobstores)
        job = Job(self, id or "", called, made)
        job.func_ref = func if isinstance(func, str) else job.func_ref
        job.args, job.kwargs = tuple(args or ()), dict(kwargs or {})
        job.executor, job.jobstore, job.policy = executor, jobstore, dict(policy or {})
        options = {"misfire_grace_time": misfire_grace_time, "coalesce": coalesce, "max_instances": max_instances}
        given = {word: value for word, value in options.items() if value is not UNDEFINED}
        check_max_instances(given)
        job.given = frozenset(given)
        for word, value in given.items():
            setattr(job, word, value)
        job.first_run = (
            next_run_time if next_run_time in {UNDEFINED, None} else aware(next_run_time, self._tz, "next_run_time")
        )
        with self._mutex:
            job.id = job.id or self._id_for(func, job)
            job.name = name or str(getattr(called, "__name__", job.id))
            if job.id in self._jobs and not replace_existing and not self._is_done(job.id):
                raise ConflictingIdError(job.id)
            if self.state != STATE_STOPPED:
                self._fill_in(job)
                job.shared = self._opened().functions.lasts(called)
                self._opened().add(job)
                self._warn_if_not_kept(job)
            self._keep(job)
        if not job.pending:
            self._events.tell(JobEvent(events.EVENT_JOB_ADDED, job.id, jobstore))
            self._tell_late()
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
        for word in changes.keys() - set(_CHANGEABLE):
            raise ConfigurationError(
                f"modify_job: {word}={changes[word]!r} cannot be changed. Change {', '.join(_CHANGEABLE)}."
            )
        check_max_instances(changes)
        job = self._find(job_id, jobstore)
        if "func" in changes:
            job.func = resolved(changes["func"])
            job.func_ref = reference(job.func)
        if "trigger" in changes:
            job.trigger, job.starts = make(changes["trigger"], {}, self.timezone), None
        if "args" in changes:
            job.args = tuple(changes["args"])
        if "kwargs" in changes:
            job.kwargs = dict(changes["kwargs"])
        for word in changes.keys() & {"name", "executor", *DEFAULTS}:
            setattr(job, word, changes[word])
        job.given |= changes.keys() & set(DEFAULTS)
        first = changes.get("next_run_time", UNDEFINED)
        first = first if first in {UNDEFINED, None} else aware(first, self._tz, "next_run_time")
        if job.pending:
            job.first_run = first
            self._events.tell(JobEvent(events.EVENT_JOB_MODIFIED, job_id, job.jobstore))
            return job
        bridge = self._opened()
        function = bool(changes.keys() & {"func", "args", "kwargs", "executor"})
        job.shared = job.shared or function
        named = "name" in changes and job.func is not None
        if changes.keys() - {"name", "next_run_time"} or named:
            bridge.update(job, trigger="trigger" in changes, function=function, name=named)
        if first is not UNDEFINED:
            bridge.start_at(job, first)
        if self._refresher is not None:
            self._refresher.wake()
        self._events.tell(JobEvent(events.EVENT_JOB_MODIFIED, job_id, job.jobstore))
        return self.get_job(job_id) or job

    def reschedule_job(self, job_id: str, jobstore: str | None = None, trigger: Any = None, **trigger_args: Any) -> Job:
        """Give a job another trigger, from now on. A paused job is resumed."""
        job = self.modify_job(job_id, jobstore, trigger=make(trigger, trigger_args, self.timezone))
        if not job.pending and job.next_run_time is None:
            self._opened().scheduler.resume(job_id)
        return self.get_job(job_id) or job

    def pause_job(self, job_id: str, jobstore: str | None = None) -> Job:
        """Start no more runs of this job, on any node."""
        return self.modify_job(job_id, jobstore, next_run_time=None)

    def resume_job(self, job_id: str, jobstore: str | None = None) -> Job | None:
        """Resume a job from now on."""
        job = self._find(job_id, jobstore)
        if job.pending:
            job.first_run = UNDEFINED
            return job
        self._opened().scheduler.resume(job_id)
        self._events.tell(JobEvent(events.EVENT_JOB_MODIFIED, job_id, job.jobstore))
        return self.get_job(job_id)

    def get_jobs(self, jobstore: str | None = None, pending: bool | None = None) -> list[Job]:
        """The jobs of the cluster, by next run time; before the start, those that were added here."""
        if self.state == STATE_STOPPED:
            return [] if pending is False else [job for job in self._jobs.values() if jobstore in {None, job.jobstore}]
        return [] if pending else self._listed(jobstore)

    def get_job(self, job_id: str, jobstore: str | None = None) -> Job | None:
        """One job; None if there is none."""
        if self.state == STATE_STOPPED:
            job = self._jobs.get(job_id)
        else:
            rows, now = self._opened().rows(job_id)
            job = self._shown(rows[0], now) if rows else None
        return job if job is not None and jobstore in {None, job.jobstore} else None

    def remove_job(self, job_id: str, jobstore: str | None = None) -> None:
        """Remove a job, for all nodes. Runs in progress go on to their end."""
        alias = self._store_of(job_id) if jobstore is None else self._find(job_id, jobstore).jobstore
        self._remove(job_id)
        self._events.tell(JobEvent(events.EVENT_JOB_REMOVED, job_id, alias))

    def remove_all_jobs(self, jobstore: str | None = None) -> None:
        """Remove all jobs of the application, or of one job store, for all nodes. Runs in progress go on."""
        for job in self.get_jobs(jobstore) if self.state == STATE_STOPPED else self._listed(jobstore, due=True):
            self._remove(job.id)
        self._events.tell(SchedulerEvent(events.EVENT_ALL_JOBS_REMOVED, jobstore))

    def print_jobs(self, jobstore: str | None = None, out: TextIO | None = None) -> None:
        """Print one line per job."""
        out, jobs = out or sys.stdout, self.get_jobs(jobstore)
        if self.state == STATE_STOPPED:
            shown = {"Pending jobs:": [str(job) for job in jobs] or ["No pending jobs"]}
        else:
            aliases = sorted({"default", *self._options.jobstores}) if jobstore is None else [jobstore]
            shown = {
                f"Jobstore {alias}:": [str(job) for job in jobs if job.jobstore == alias] or ["No scheduled jobs"]
                for alias in aliases
            }
        for title, lines in shown.items():
            print(title, *(f"    {line}" for line in lines), sep="\n", file=out)

    def export_jobs(self, *_given: object, **_words: object) -> None:
        """Refused: the jobs are rows of a database."""
        raise unsupported(
            "export_jobs", "The jobs are in the database: `tenure jobs --json` prints them, a dump of it keeps them."
        )

    def import_jobs(self, *_given: object, **_words: object) -> None:
        """Refused: nothing is imported because a file says so."""
        raise unsupported("import_jobs", "Add the jobs with add_job.")

    # Helpers

    def _id_for(self, given: Callable[..., Any] | str, job: Job) -> str:
        called, running = job.func, self.state != STATE_STOPPED
        assert called is not None  # noqa: S101 - it is just being added
        return self._identities.of(
            given, called, job.trigger, job.args, job.kwargs, taken=self._jobs.keys(), running=running
        )

    def _remove(self, job_id: str) -> None:
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

    def _is_done(self, job_id: str) -> bool:
        """True for a job that this process has added and that is over."""
        return self.state != STATE_STOPPED and not self._opened().rows(job_id)[0]

    def _keep(self, job: Job) -> None:
        """Remember a job, unless it is an immediate one-time run."""
        if job.pending or not isinstance(job.trigger, DateTrigger) or not job.trigger.now:
            self._jobs[job.id] = job
            if len(self._jobs) >= self._forget_from:
                self._forget_dates()
            if self._refresher is not None:
                self._refresher.wake()

    def _forget_dates(self) -> None:
        """Forget past dates that this process has added and others have run: nothing else says that they are over."""
        past = walltime() - _PAST
        over = [job.id for job in self._jobs.values() if not job.pending and _before(job.trigger, past)]
        for job_id in over:
            del self._jobs[job_id]
        self._forget_from = max(2 * len(self._jobs), MANY_JOBS)

    def _warn_if_not_kept(self, job: Job) -> None:
        """Warn of a job that the store cannot hold; APScheduler refuses such a job, or pickles it."""
        if (
            job.shared
            or _at_once(job.trigger)
            or not isinstance(self._options.jobstores.get(job.jobstore), SQLAlchemyJobStore)
        ):
            return
        logger.warning(
            "job %r: its function or its arguments cannot be stored in the database. Only processes that add it run "
            "it; after a restart none does until it is added again",
            job.id,
            extra={"action": "not_kept"},
        )

    def _find(self, job_id: str, jobstore: str | None = None) -> Job:
        job = self.get_job(job_id, jobstore)
        if job is None:
            raise JobLookupError(job_id)
        return job

    def _listed(self, jobstore: str | None, *, due: bool = False) -> list[Job]:
        rows, now = self._opened().rows(due=due)
        jobs = [job for row in rows if jobstore in {None, (job := self._shown(row, now)).jobstore}]
        return sorted(jobs, key=lambda job: (job.next_run_time is None, job.next_run_time or now, job.id))

    def _shown(self, row: JobRow, now: datetime) -> Job:
        bridge, job_id = self._opened(), row.spec.name
        job = self._jobs.get(job_id)
        if job is None:
            job = bridge.added_elsewhere(row, Job(self, job_id, None, None))
        return bridge.show(job, row, now)


def _at_once(trigger: object) -> bool:
    return isinstance(trigger, DateTrigger) and trigger.now


def _before(trigger: object, moment: datetime) -> bool:
    return isinstance(trigger, DateTrigger) and trigger.run_date < moment
