"""Operations on jobs: checked when they are called, computed once a ledger is at hand.

`Scheduler` and `AsyncScheduler` share them.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Generic, TypeVar

from tenure.core.arguments import encode
from tenure.core.differences import changed_words
from tenure.core.job_options import rules
from tenure.core.messages import Action, JobChange, RunQuery, RunRequest
from tenure.core.records import Instant, JobRow, JobState, RunRow
from tenure.errors import ConfigurationError, UnknownJob
from tenure.jobs import operations
from tenure.jobs.calls import Call, call, no_kwargs, not_registered
from tenure.jobs.decorators import Definitions
from tenure.jobs.functions import Function, bind
from tenure.jobs.operations import UNSET, ChangeNote, Later, Looks, Unset
from tenure.stores.ledger import Ledger
from tenure.triggers import Trigger
from tenure.util.durations import Duration
from tenure.util.instants import moment
from tenure.util.names import named

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DeferredOperation(Generic[T]):
    """Computes a change or a request from what the ledger says. Writes nothing."""

    verb: str
    name: str
    """The job to change or to run."""
    work: Callable[[Looks], T]

    def __call__(self, ledger: Looks) -> T:
        return self.work(ledger)


@dataclass(frozen=True, slots=True)
class Seen:
    """A job, even a removed one, as the caller's own transaction sees it.

    Everything else that an error message may need is read over a connection of our own.
    """

    name: str
    row: JobRow | None
    at: Instant
    elsewhere: Callable[[], AbstractContextManager[Ledger]]

    def now(self) -> Instant:
        return self.at

    def jobs(self, application: str, name: str | None = None, *, removed: bool = False) -> list[JobRow]:
        if name == self.name:
            return [] if self.row is None or (self.row.state is JobState.REMOVED and not removed) else [self.row]
        with self.elsewhere() as ledger:
            return ledger.jobs(application, name, removed=removed)

    def functions(self, application: str) -> frozenset[str]:
        with self.elsewhere() as ledger:
            return ledger.functions(application)

    def applications(self) -> list[str]:
        with self.elsewhere() as ledger:
            return ledger.applications()

    def runs(self, query: RunQuery) -> list[RunRow]:
        with self.elsewhere() as ledger:
            return ledger.runs(query)


@dataclass(frozen=True, slots=True)
class LoadedJobs:
    """Jobs that were read together, to work out many operations without a question for each."""

    rows: Mapping[str, JobRow]
    ledger: Ledger
    at: Instant | None = None
    """The ledger's clock; None: ask, when it is needed."""
    complete: bool = False
    """True if a job that is not among them does not exist."""

    def now(self) -> Instant:
        return self.ledger.now() if self.at is None else self.at

    def jobs(self, application: str, name: str | None = None, *, removed: bool = False) -> list[JobRow]:
        if name is not None and name in self.rows:
            return [self.rows[name]]
        if name is not None and self.complete:
            return []
        return self.ledger.jobs(application, name, removed=removed)

    def functions(self, application: str) -> frozenset[str]:
        return self.ledger.functions(application)

    def applications(self) -> list[str]:
        return self.ledger.applications()

    def runs(self, query: RunQuery) -> list[RunRow]:
        return self.ledger.runs(query)


class DeferredOperations:
    """Makes the operations of one application."""

    def __init__(self, definitions: Definitions, origin: Callable[[], str]) -> None:
        self._definitions = definitions
        self._origin = origin
        self.traceparent: Callable[[], str] = str
        """The span of the caller, '' if there is none."""

    def action(self, verb: str, said: ChangeNote, detail: str = "") -> Action | None:
        """What the log of actions says of an operation; None if no person does it. Give it to the ledger's operation,
        which records it in its own transaction."""
        return operations.action_of(verb, said, self._origin(), detail)

    def add(
        self,
        fn: Call | Callable[..., object] | str,
        trigger: Trigger | None,
        name: str,
        *,
        kwargs: Mapping[str, Any] | None,
        policy: Mapping[str, object],
        said: ChangeNote,
    ) -> DeferredOperation[JobChange]:
        """Add a job for a registered function."""
        name = named(name, "job name")
        function = self._function(fn.function if isinstance(fn, Call) else fn)
        if isinstance(fn, Call) and function is not None:
            no_kwargs(fn, kwargs)
            kwargs = fn.by_name(function)
        placed = self._definitions.placed(trigger)
        checked, text = rules(policy, where=f"job {name!r}"), encode(kwargs or {})
        if function is not None and (trigger is not None or kwargs or checked.after):
            bind(function, kwargs or {})

        def work(ledger: Looks) -> JobChange:
            called = function.name if function is not None else self._elsewhere(ledger, str(fn))
            spec, now = self._definitions.spec(name, called, placed, checked, text, in_code=False), ledger.now()
            operations.refuse_parent(ledger, spec)
            change = replace(operations.added(spec, now, said), action=self.action("add", said))
            there = ledger.jobs(self._definitions.application, name, removed=True)
            return operations.added_over(there[0], change, now) if there else change

        return DeferredOperation("add", name, work)

    def update(
        self,
        name: str,
        *,
        trigger: Trigger | Unset | None,
        kwargs: Mapping[str, Any] | Unset,
        policy: Mapping[str, object],
        said: ChangeNote,
    ) -> DeferredOperation[JobChange]:
        """Change the trigger, the arguments or the options of a job."""
        placed = trigger if isinstance(trigger, Unset) else self._definitions.placed(trigger)
        text = UNSET if isinstance(kwargs, Unset) else encode(kwargs)

        def work(ledger: Looks) -> JobChange:
            job = self._known(ledger, name)
            if not isinstance(kwargs, Unset):
                self._bind(job, kwargs)
            change = operations.updated(job, ledger.now(), trigger=placed, kwargs=text, policy=policy, said=said)
            if change.spec is not None and change.spec.rules.after != job.spec.rules.after:
                operations.refuse_parent(ledger, change.spec)
            detail = "" if change.spec is None else changed_words(job.spec, change.spec)
            return replace(change, action=self.action("update", said, detail))

        return DeferredOperation("update", name, work)

    def pause(self, name: str, until: Duration | datetime | None, said: ChangeNote) -> DeferredOperation[JobChange]:

        def work(ledger: Looks) -> JobChange:
            change = operations.paused(self._known(ledger, name), ledger.now(), until, said)
            detail = "" if change.until is None else f"until {moment(change.until):%Y-%m-%d %H:%M:%S %Z}"
            return replace(change, action=self.action("pause", said, detail))

        return DeferredOperation("pause", name, work)

    def resume(self, name: str, said: ChangeNote) -> DeferredOperation[JobChange]:

        def work(ledger: Looks) -> JobChange:
            change = operations.resumed(self._known(ledger, name), ledger.now(), said)
            return replace(change, action=self.action("resume", said))

        return DeferredOperation("resume", name, work)

    def remove(self, name: str, said: ChangeNote) -> DeferredOperation[JobChange]:

        def work(ledger: Looks) -> JobChange:
            change = operations.removed(self._known(ledger, name), ledger.now(), said)
            return replace(change, action=self.action("remove", said))

        return DeferredOperation("remove", name, work)

    def restore(self, name: str, said: ChangeNote) -> DeferredOperation[JobChange]:
        def work(ledger: Looks) -> JobChange:
            rows = ledger.jobs(self._definitions.application, named(name, "job name"), removed=True)
            if not rows:
                raise operations.unknown(ledger, self._definitions.application, name)
            return replace(operations.restored(rows[0], ledger.now(), said), action=self.action("restore", said))

        return DeferredOperation("restore", name, work)

    def reset(self, name: str, said: ChangeNote) -> DeferredOperation[JobChange]:

        def work(ledger: Looks) -> JobChange:
            job = self._known(ledger, name)
            change = operations.reset(job, ledger.now(), said)
            detail = "" if change.spec is None else changed_words(job.spec, change.spec)
            return replace(change, action=self.action("reset", said, detail))

        return DeferredOperation("reset", name, work)

    def run_now(
        self, job: str | Call, kwargs: Mapping[str, Any] | None, key: str | None, said: ChangeNote
    ) -> DeferredOperation[RunRequest]:
        name, kwargs = self._called("run_now", job, kwargs)
        text, span = None if kwargs is None else encode(kwargs), self.traceparent()

        def work(ledger: Looks) -> RunRequest:
            job = self._known(ledger, name)
            self._bind(job, kwargs)
            detail = "" if key is None else f"key {key}"
            request = operations.requested(job, key, text, said)
            return replace(request, action=self.action("run_now", said, detail), traceparent=span)

        return DeferredOperation("run_now", name, work)

    def run_at(
        self,
        job: str | Call | Callable[..., object],
        later: Later,
        kwargs: Mapping[str, Any] | None,
        key: str | None,
        said: ChangeNote,
    ) -> DeferredOperation[RunRequest]:
        """A run at a time to come."""
        name, kwargs = self._called("run_at", job, kwargs)
        text, span = None if kwargs is None else encode(kwargs), self.traceparent()

        def work(ledger: Looks) -> RunRequest:
            job = self._known(ledger, name)
            self._bind(job, kwargs)
            request = operations.requested_later(job, later, ledger.now(), key=key, kwargs=text, said=said)
            detail = "" if later.slot is None else f"slot {later.slot}"
            return replace(request, action=self.action("run_at", said, detail), traceparent=span)

        return DeferredOperation("run_at", name, work)

    def _called(
        self, verb: str, job: str | Call | Callable[..., object], kwargs: Mapping[str, Any] | None
    ) -> tuple[str, Mapping[str, Any] | None]:
        """The job that is meant, and its arguments by name; None: the job's own."""
        if isinstance(job, str):
            return job, kwargs
        wanted = job if isinstance(job, Call) else call(job)
        no_kwargs(wanted, kwargs)
        jobs = [one for one in self._definitions.jobs if one.function.callable == wanted.function]
        if not jobs:
            raise not_registered(verb, wanted.function)
        if len(jobs) > 1:
            names = " and ".join(repr(one.name) for one in jobs)
            raise ConfigurationError(
                f"{verb}: {jobs[0].function.place} is the function of {names}. Say which job by its name: "
                f"{verb}({jobs[0].name!r}, kwargs={{…}})."
            )
        return jobs[0].name, wanted.by_name(jobs[0].function) or None

    def _known(self, ledger: Looks, name: str) -> JobRow:
        return operations.known(ledger, self._definitions.application, name)

    def _bind(self, job: JobRow, kwargs: Mapping[str, Any] | None) -> None:
        """Refuse arguments that the function would refuse, if this process has it."""
        function = self._definitions.registry.get(job.spec.function)
        if function is not None and (kwargs is not None or job.spec.kwargs == "{}"):
            bind(function, kwargs or {})

    def _function(self, fn: Callable[..., object] | str) -> Function | None:
        """The registered function; None for a name that only other nodes may have."""
        registry = self._definitions.registry
        if isinstance(fn, str):
            return registry.get(fn)
        found = registry.find(fn)
        if found is None:
            raise not_registered("add", fn)
        return found

    def _elsewhere(self, ledger: Looks, name: str) -> str:
        """The name of a function that this process lacks but other jobs of the application use."""
        functions = ledger.functions(self._definitions.application)
        if name in functions:
            return name
        near = difflib.get_close_matches(name, {*functions, *self._definitions.registry.names}, 3)
        meant = f"Did you mean {' or '.join(map(repr, near))}?" if near else "Put @scheduler.job above its definition."
        raise UnknownJob(f"add: no function is registered as {name!r}. {meant}")
