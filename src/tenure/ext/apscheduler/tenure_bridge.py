"""Writes jobs to the ledger and reads them back: the only module here that calls tenure's own scheduler."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from tenure.core.arguments import encode, shown
from tenure.core.job_options import rules
from tenure.core.keys import due_key
from tenure.core.messages import JobChange, RunQuery, Synced
from tenure.core.planning import MISSED
from tenure.core.records import JobRow, JobSpec, JobState, RunState
from tenure.core.trigger_text import read_trigger
from tenure.errors import ConfigurationError
from tenure.ext.apscheduler.events import EVENT_JOB_MISSED, NOW, JobExecutionEvent
from tenure.ext.apscheduler.functions import Functions
from tenure.ext.apscheduler.job import UNDEFINED, Job, Undefined, as_json, plain_name, reference
from tenure.ext.apscheduler.trigger_translation import Starting, from_ledger, last_listed, stored_trigger
from tenure.ext.apscheduler.triggers import BaseTrigger, DateTrigger
from tenure.jobs import operations
from tenure.jobs.deferred_operations import DeferredOperation
from tenure.jobs.definition_news import DefinitionNews
from tenure.jobs.start_report import StartReport
from tenure.scheduler import Scheduler, service_of
from tenure.stores.ledger import Ledger
from tenure.triggers import Trigger, from_json
from tenure.util.instants import instant, moment

logger = logging.getLogger("tenure")

SOON = timedelta(seconds=1)
"""A `next_run_time` or `run_date` within this time means now."""


class TenureBridge:
    """The jobs of one application, on a scheduler of tenure."""

    def __init__(self, scheduler: Scheduler, functions: Functions, processes: frozenset[str]) -> None:
        self.scheduler, self.functions = scheduler, functions
        self._processes = processes
        self.late: deque[JobExecutionEvent] = deque()
        """Events for dates that were already over when they were added."""
        self._service = service_of(scheduler)
        self._service.definitions.use_registry(functions)

    # Writing

    def add_all(self, jobs: Sequence[Job]) -> None:
        """At the start: write the jobs that the program defines."""
        with self._service.ledger() as ledger:
            now = ledger.now()
            there = {row.spec.name for row in ledger.jobs(self.scheduler.application, removed=True)}
            lasting = [job for job in jobs if not self._once_and_now(job, moment(now))]
            changes = [operations.added(self._spec(job, moment(now)), now) for job in lasting]
            if changes:
                self._sync(ledger, changes)
        firsts = {job.id: self._begin(job, moment(now), new=job.id not in there) for job in jobs}
        if jobs:
            rows = self._service.look(lambda ledger: ledger.jobs(self.scheduler.application))
            self._foretell(jobs, firsts, rows, moment(now))

    def add(self, job: Job) -> None:
        """While running: add a job, or update one that already exists."""
        with self._service.ledger() as ledger:
            now = ledger.now()
            new = False
            if not self._once_and_now(job, moment(now)):
                change = operations.added(self._spec(job, moment(now)), now)
                new = ledger.change(change) is not None
                if not new:
                    self._sync(ledger, [change])
        first = self._begin(job, moment(now), new=new)
        rows = self._service.look(lambda ledger: ledger.jobs(self.scheduler.application, job.id))
        self._foretell([job], {job.id: first}, rows, moment(now))
        self._service.poke()

    def update(self, job: Job, *, trigger: bool = False, function: bool = False, name: bool = False) -> None:
        """Write the changes of a job."""
        policy = self._policy(job)

        def work(ledger: operations.Looks) -> JobChange:
            row, now = operations.known(ledger, self.scheduler.application, job.id), ledger.now()
            spec = self._spec(job, moment(now))
            words: dict[str, Any] = {}
            if trigger:
                words["trigger"] = None if spec.trigger is None else from_json(spec.trigger)
            # This is the program, as at its start, not a change by hand: at the next start its definition counts again.
            # Changes by hand stay in force and marked, unless this gives the job another trigger.
            by_hand = None if trigger else row.override
            change = replace(operations.updated(row, now, policy=policy, **words), override=by_hand)
            if function and change.spec is not None:
                change = replace(change, spec=replace(change.spec, function=spec.function, kwargs=spec.kwargs))
            elif name and change.spec is not None and job.executor not in self._processes:
                kept = {word: value for word, value in shown(row.spec.kwargs).items() if word != "job"}
                said = {"job": about} if (about := job.about(row.spec.function)) else {}
                change = replace(change, spec=replace(change.spec, kwargs=encode(kept | said)))
            return change

        self._service.change(DeferredOperation("update", job.id, work))

    def poke(self) -> None:
        """Let this node check the ledger at once."""
        self._service.poke()

    def remove(self, job_id: str) -> None:
        """Remove a job."""
        self.scheduler.remove(job_id)
        self.functions.forget(job_id)

    def start_at(self, job: Job, when: datetime | None) -> None:
        """Set `next_run_time` of an existing job: None pauses it, now runs it, a later time makes it begin then."""
        now = moment(self._service.look(lambda ledger: ledger.now()))
        if when is None:
            self.scheduler.pause(job.id)
        elif when <= now + SOON:
            if job.next_run_time is None:
                self.scheduler.resume(job.id)
            self.scheduler.run_now(job.id)
        elif job.trigger is not None:
            job.starts = when
            self.update(job, trigger=True)
            if job.next_run_time is None:
                self.scheduler.resume(job.id)

    def write_on(self, job: Job) -> None:
        """Extend the list of due times of a job, unless another node has done so."""
        if (schedule := _schedule(job)) is None:
            return
        with self._service.ledger() as ledger:
            rows, now = ledger.jobs(self.scheduler.application, job.id), moment(ledger.now())
        there = None if not rows or rows[0].spec.trigger is None else last_listed(from_json(rows[0].spec.trigger))
        fresh = stored_trigger(schedule, now)
        job.write_on_at = fresh.write_on_at
        if there is None:
            job.write_on_at = None  # removed, or it has another trigger now
        elif fresh.trigger is not None and ((end := last_listed(fresh.trigger)) is None or end > there):
            self._list_further(job.id, fresh.trigger)

    # Reading

    def look_for_functions(self) -> None:
        """Look up the functions that jobs in the ledger name, in what the application has loaded."""
        self.functions.wanted(self._service.look(lambda ledger: ledger.functions(self.scheduler.application)))

    def rows(self, job_id: str | None = None, *, due: bool = False) -> tuple[list[JobRow], datetime]:
        """The jobs with a next run time, and the ledger's time.

        With `due`, include those whose last run has not ended.
        """
        with self._service.ledger() as ledger:
            now = moment(ledger.now())
            rows = ledger.jobs(self.scheduler.application, job_id)
        wanted = (
            row
            for row in rows
            if (due and row.state is JobState.ACTIVE) or (not row.spec.name.endswith(NOW) and _lives(row, now))
        )
        return list(wanted), now

    def show(self, job: Job, row: JobRow, now: datetime) -> Job:
        """Update a job's attributes from the ledger."""
        text = row.spec.trigger
        rule = None if text is None else from_json(text)
        job.pending = False
        active = row.state is JobState.ACTIVE and rule is not None
        job.next_run_time = rule.next_after(max(now, moment(row.since))) if active and rule is not None else None
        mine = None if (schedule := _schedule(job)) is None else stored_trigger(schedule, now).trigger
        if rule is not None and last_listed(rule) is None and mine != rule:
            job.trigger, job.starts = from_ledger(rule), None
        if job.executor not in self._processes:
            job.name = about(row.spec).get("name", job.name)
            if job.shared:  # another worker may have changed them
                kept = shown(row.spec.kwargs)
                if isinstance(args := kept.get("args"), list):
                    job.args = tuple(args)
                if isinstance(kwargs := kept.get("kwargs"), dict):
                    job.kwargs = kwargs
        return job

    def added_elsewhere(self, row: JobRow, blank: Job) -> Job:
        """A job that another process has added."""
        spec, job = row.spec, blank
        job.func_ref, job.func = spec.function, self.functions.named(spec.function)
        job.shared = True
        job.trigger = None if spec.trigger is None else from_ledger(from_json(spec.trigger))
        job.name, job.jobstore = plain_name(spec.function), about(spec).get("jobstore", "default")
        job.misfire_grace_time, job.coalesce = spec.rules.grace, spec.rules.missed != "all"
        job.max_instances = spec.rules.max_running or 1
        return job

    # Helpers

    def _sync(self, ledger: Ledger, changes: Sequence[JobChange]) -> None:
        synced = ledger.sync(self.scheduler.application, 0, changes)
        brought = {change.name: change.spec for change in changes if change.spec is not None}
        definitions, report = self._service.definitions, StartReport()
        news = DefinitionNews(ledger, self.scheduler.application, 0, definitions.tz)
        report.tell(news.of(filter(_is_news, synced), brought))
        report.close()

    def _list_further(self, job_id: str, trigger: Trigger) -> None:
        """Write it both in force and as the program's definition: it is not a change by hand."""

        def work(ledger: operations.Looks) -> JobChange:
            row = operations.known(ledger, self.scheduler.application, job_id)
            change = operations.updated(
                row, ledger.now(), trigger=trigger, said=operations.ChangeNote(why="further due times")
            )
            said = row.override
            if said is not None:
                said = replace(said, code=replace(said.code, trigger=trigger.to_json()))
            return replace(change, override=said)

        self._service.change(DeferredOperation("update", job_id, work))

    def _spec(self, job: Job, now: datetime) -> JobSpec:
        """The job as the ledger stores it. Also registers its function."""
        trigger = _with_first_run(job, now)
        found = stored_trigger(trigger, now)
        job.write_on_at = found.write_on_at
        function, kwargs = self._function(job)
        given = rules(self._policy(job), where=f"job {job.id!r}")
        return self._service.definitions.spec(
            job.id, function, self._service.definitions.placed(found.trigger), given, kwargs, in_code=not job.shared
        )

    def _function(self, job: Job) -> tuple[str, str]:
        """The name under which the function is registered, and the arguments that the ledger stores."""
        func = job.func
        if func is None:
            return job.func_ref or job.id, as_json(job.args, job.kwargs, job.about(job.func_ref or job.id)) or "{}"
        shared = self.functions.put_shared(func)
        if job.executor in self._processes:
            return job.id, self.functions.put_process(job.id, func, job.args, job.kwargs)
        if job.shared and shared is not None:
            text = as_json(job.args, job.kwargs, job.about(shared))
            if text is not None:
                return shared, text
        job.shared = False
        self.functions.put(job.id, func, job.args, job.kwargs)
        return job.id, encode({"job": said} if (said := job.about(job.id)) else {})

    def _policy(self, job: Job) -> dict[str, Any]:
        policy: dict[str, Any] = {"max_running": job.max_instances, "overlap": "skip"}
        policy["jitter"] = 0 if job.trigger is None else job.trigger.jitter or 0
        if job.misfire_grace_time is not None:
            policy |= {"grace": job.misfire_grace_time, "missed": "skip"}
        else:
            policy |= {"grace": None, "missed": "latest" if job.coalesce else "all"}
        return policy | job.policy

    def _once_and_now(self, job: Job, now: datetime) -> bool:
        """True for an immediate one-time run whose arguments can be stored: it needs no job of its own."""
        trigger = job.trigger
        if not isinstance(trigger, DateTrigger) or not trigger.now or job.executor in self._processes:
            return False
        return (
            job.first_run is UNDEFINED
            and reference(job.func) is not None
            and as_json(job.args, job.kwargs) is not None
            and trigger.run_date <= now + SOON
        )

    def _begin(self, job: Job, now: datetime, *, new: bool) -> datetime | None:
        """After writing a job: pause it, or request a run that is already due. Returns the requested first run time."""
        trigger, first = job.trigger, job.first_run
        if self._once_and_now(job, now):
            self._run_once(job, now)
        elif first is None:
            if new:
                self.scheduler.pause(job.id)
        elif not isinstance(first, Undefined):
            if first <= now + SOON:
                self._run_first(job, now)
        elif isinstance(trigger, DateTrigger) and trigger.run_date <= now:
            self._run_late(job, trigger, now)
        job.pending, job.first_run = False, UNDEFINED
        return first if isinstance(first, datetime) else trigger.run_date if isinstance(trigger, DateTrigger) else None

    def _foretell(
        self, jobs: Sequence[Job], firsts: Mapping[str, datetime | None], rows: Sequence[JobRow], now: datetime
    ) -> None:
        """Set the next run time of jobs that were just added."""
        found = {row.spec.name: row for row in rows}
        for job in jobs:
            row, first = found.get(job.id), firsts[job.id]
            if row is not None:
                self.show(job, row, now)
            if first is not None and (row is None or row.state is not JobState.PAUSED):
                job.next_run_time = first

    def _run_once(self, job: Job, now: datetime) -> None:
        func = job.func
        assert func is not None  # noqa: S101 - it was just added
        shared = self.functions.put_shared(func)
        name = f"{shared}{NOW}"
        with self._service.ledger() as ledger:
            if not ledger.jobs(self.scheduler.application, name):
                spec = self._service.definitions.spec(
                    name, str(shared), None, rules({"overlap": "allow"}, where=name), "{}", in_code=False
                )
                ledger.change(operations.added(spec, instant(now)))
        self.scheduler.run_now(name, kwargs={"args": list(job.args), "kwargs": job.kwargs}, key=job.id)

    def _run_first(self, job: Job, now: datetime) -> None:
        """Request one run before the next due time, however many workers request it."""
        due = None if job.trigger is None else job.trigger.get_next_fire_time(None, now)
        before = "ever" if due is None else due.astimezone(now.tzinfo).isoformat()
        self.scheduler.run_now(job.id, key=f"first before {before}")

    def _run_late(self, job: Job, trigger: DateTrigger, now: datetime) -> None:
        """Handle a date in the past.

        Within its grace the ledger has its run. Without any limit the run is requested under the same key, so it runs
        once, ever.
        """
        due = instant(trigger.run_date)
        with self._service.ledger() as ledger:
            row = next(iter(ledger.jobs(self.scheduler.application, job.id)), None)
            if row is None or row.state is JobState.PAUSED or due < row.kept_since:
                return  # removed, paused, or so old that the ledger no longer knows whether it ran
            query = RunQuery(row.spec.application, job.id, since=due, before=due + 1, limit=100)
            run = next((run for run in ledger.runs(query) if run.key == due_key(due)), None)
            if run is None and due + row.spec.rules.on_time > instant(now):
                return  # it is about to be planned
            if run is not None and (run.state is not RunState.SKIPPED or run.reason != MISSED):
                return  # it has run or will run, or it was cancelled
            if "misfire_grace_time" in job.given and job.misfire_grace_time is None:
                ledger.request_runs(operations.backfilled(row, [due]))
                return
        logger.warning(
            "job %r: its date %s is over; it does not run", job.id, trigger.run_date, extra={"action": "missed"}
        )
        self.late.append(JobExecutionEvent(EVENT_JOB_MISSED, job.id, job.jobstore, trigger.run_date))


def about(spec: JobSpec) -> Mapping[str, str]:
    """What the ledger stores about a job besides its arguments."""
    kept = shown(spec.kwargs).get("job")
    return {word: text for word, text in kept.items() if isinstance(text, str)} if isinstance(kept, dict) else {}


def _with_first_run(job: Job, now: datetime) -> BaseTrigger:
    """The trigger, beginning when `next_run_time` says."""
    if isinstance(job.first_run, datetime) and job.first_run > now + SOON:
        job.starts = job.first_run
    schedule = _schedule(job)
    if schedule is None:
        raise ConfigurationError(f"job {job.id!r} has no trigger.")
    return schedule


def _schedule(job: Job) -> BaseTrigger | None:
    return job.trigger if job.trigger is None or job.starts is None else Starting(job.starts, job.trigger)


def _lives(row: JobRow, now: datetime) -> bool:
    """True unless it is finished: something is due, it is paused, or nothing was due when it was added."""
    rule, problem = read_trigger(row.spec.trigger)
    try:
        due = None if rule is None else rule.next_after(max(now, moment(row.since)))
    except ConfigurationError:
        return False  # as below
    if problem:
        return False  # the log names it; `tenure jobs` shows it
    return row.state is JobState.PAUSED or rule is None or due is not None


def _is_news(synced: Synced) -> bool:
    """True if a change is worth logging: `_run_late` reports new jobs, and lists of due times differ at every start."""
    job, was = synced.row, synced.was
    if was is None:
        return False
    if was.state is JobState.REMOVED or was.generation == job.generation:
        return True
    rules = (read_trigger(spec.trigger)[0] for spec in (was.code, job.code))
    return not all(rule is not None and last_listed(rule) is not None for rule in rules)
