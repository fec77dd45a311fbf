"""Sends operations and queries to the ledger: over a kept connection, or in the caller's own transaction."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import weakref
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from tenure.core.messages import Action, JobChange, RunQuery, RunRequest
from tenure.core.records import Change, Instant, JobRow, JobState, RunId, RunRow
from tenure.errors import Busy, ConfigurationError, RunError, UnknownJob
from tenure.jobs import operations
from tenure.jobs.decorators import Definitions
from tenure.jobs.deferred_operations import DeferredOperation, DeferredOperations, LoadedJobs, Seen
from tenure.jobs.importing import refuse_to_ask
from tenure.jobs.kept_connection import Spare
from tenure.jobs.queries import Lookup
from tenure.stores import Session, Store, store_for
from tenure.stores.ledger import Ledger
from tenure.util import urls
from tenure.util.clock import boottime
from tenure.util.names import named
from tenure.views import JobView, RunView

logger = logging.getLogger("tenure")

PATIENCE = 10.0
"""How long one statement of an operation or a query may take."""
SLICE = 200
"""How many jobs are changed in one transaction: claims of these jobs wait meanwhile."""
TRIES = 5
"""How often a change is computed, at most, when others change the same job at the same time."""

T = TypeVar("T")


class JobClient:
    """Access to the jobs and runs of one application. It runs no jobs and starts no threads."""

    def __init__(self, url: object, definitions: Definitions, *, label: str | None, schema: str, migrate: bool) -> None:
        self.definitions = definitions
        self.origin = ""
        """Where its operations come from, for the log of actions; '' for the label."""
        self.operations = DeferredOperations(definitions, lambda: self.origin or self.label)
        self.lookup = Lookup(definitions.application, definitions.tz)
        self._url, self._schema, self._migrate = url, schema, migrate
        self._given_label = None if label is None else named(label, "label")
        self._store: Store | None = None
        if url is not None and not isinstance(url, Store):
            urls.parse(url)  # raises here what is wrong with it
        self._prepared = False
        self._spare = Spare()
        weakref.finalize(self, self._spare.close)  # also when the process exits
        self._answer: Callable[[], None] | None = None

    @property
    def application(self) -> str:
        """The application that the jobs belong to."""
        return self.definitions.application

    @property
    def store(self) -> Store:
        """The store behind the URL, or behind TENURE_URL if none was given. Opens nothing."""
        if self._store is None:
            self._store = store_for(self._url, schema=self._schema, migrate=self._migrate)
        return self._store

    def store_as_it_is(self, url: object = None) -> Store:
        """The store, or the one behind another URL, whose tables are neither created nor upgraded."""
        return store_for(self._url if url is None else url, schema=self._schema, migrate=False)

    @property
    def shown(self) -> str:
        """The store, without its password; 'no store yet' before the first use."""
        return "no store yet" if self._store is None else self._store.shown

    @property
    def label(self) -> str:
        """The human-readable name of this node."""
        return self._given_label or f"{socket.gethostname()}:{os.getpid()}"

    def use(self, store: Store | None, answer: Callable[[], None] | None = None) -> None:
        """Use another store from now on; None means that of the URL again.

        `answer` is called where a pause waits for nodes, if the nodes of that store have no threads of their own.
        """
        self._spare.close()
        self._store, self._prepared, self._answer = store, False, answer

    @contextmanager
    def ledger(self) -> Iterator[Ledger]:
        """The ledger, over a connection that no other thread uses meanwhile."""
        with self.session() as session:
            try:
                yield session.ledger
            except UnknownJob as error:
                if error.job not in {job.name for job in self.definitions.jobs}:
                    raise
                raise UnknownJob(
                    f"application {self.application!r} has no job {error.job!r} yet. It is defined in this process, "
                    "and no node has brought it to the database: scheduler.start() or scheduler.run() does that."
                ) from None

    def poke(self) -> None:
        """A run was requested, or a job has changed. The store notifies the nodes, so there is nothing to do here."""

    def signature(self) -> str:
        """A name for the holder of a guard: this node and this call."""
        return f"{self.label} {secrets.token_hex(4)}"

    def changed(self, ledger: operations.Looks, change: JobChange, row: JobRow | None) -> JobView:
        """The job after a change. Raises if the ledger refused the change."""
        if row is None:
            if change.what is Change.ADDED and change.generation is None:
                raise operations.exists(self.application, change.name)
            operations.known(ledger, self.application, change.name)
            raise Busy(
                f"job {change.name!r} was changed by others at the same time, {TRIES} times in a row. Try again."
            )
        if change.what is Change.ADDED and row.state is JobState.DONE:
            why = operations.why_done(ledger, row, self.lookup.zone(ledger, row))
            logger.warning("job %r was added, but %s", row.spec.name, why, extra={"action": "added_done"})
        return self.lookup.shown_job(ledger, row, ledger.now())

    def requested(self, ledger: operations.Looks, request: RunRequest, row: RunRow | None) -> RunView:
        """The requested run. Raises if the ledger refused the request."""
        if row is None:
            raise operations.unknown(ledger, self.application, request.name)
        operations.refuse_other_arguments(request, row)
        return self.lookup.shown_run(ledger, row)

    def change(self, operation: DeferredOperation[JobChange], conn: Any = None) -> JobView:
        """Change a job."""
        if conn is not None:
            return self._change_in(conn, operation)
        with self.ledger() as ledger:
            left = TRIES
            while True:
                change = operation(ledger)
                row = ledger.change(change)
                left -= 1
                if row is not None or change.generation is None or not left:
                    break
            view = self.changed(ledger, change, row)
            self.poke()
            if row is not None and change.what in {Change.PAUSED, Change.REMOVED}:
                view = replace(view, unanswered=self._until_answered(ledger, row))
        return view

    def change_many(
        self,
        rows: Sequence[JobRow],
        operation: Callable[[str], DeferredOperation[JobChange]],
        progress: Callable[[int, int], None],
    ) -> list[JobView]:
        """Do the same to many jobs, in slices of one transaction each. Says how far it is. Jobs that others have
        removed meanwhile are left out."""
        views: list[JobView] = []
        asked: list[JobRow] = []
        with self.ledger() as ledger:
            for first in range(0, len(rows), SLICE):
                page = rows[first : first + SLICE]
                loaded = LoadedJobs({row.spec.name: row for row in page}, ledger, ledger.now())
                changes = [operation(row.spec.name)(loaded) for row in page]
                for change, after in zip(changes, ledger.change_many(changes), strict=True):
                    try:
                        view = self._changed_after(ledger, operation(change.name), change, after)
                    except UnknownJob:
                        continue
                    views.append(view)
                    if after is not None and change.what in {Change.PAUSED, Change.REMOVED}:
                        asked.append(after)
                self.poke()
                progress(min(first + SLICE, len(rows)), len(rows))
            silent = self._until_all_answered(ledger, asked)
        return [replace(view, unanswered=silent.get(view.name, view.unanswered)) for view in views]

    def _changed_after(
        self, ledger: Ledger, operation: DeferredOperation[JobChange], change: JobChange, row: JobRow | None
    ) -> JobView:
        """What one change of many came to; worked out anew if another session was faster."""
        return self.change(operation) if row is None else self.changed(ledger, change, row)

    def _until_all_answered(self, ledger: Ledger, rows: Sequence[JobRow]) -> dict[str, tuple[str, ...]]:
        """By job, the nodes that have not answered. The nodes were all asked before, so no job is waited for anew."""
        began_at, found = boottime(), {}
        for row in rows:
            if silent := self._until_answered(ledger, row, began_at):
                found[row.spec.name] = silent
        return found

    def _change_in(self, conn: Any, operation: DeferredOperation[JobChange]) -> JobView:
        """Change a job in the caller's transaction. The store notifies the nodes after the commit."""
        left = TRIES
        while True:
            seen = self.seen(operation, _here(self.sight(conn, operation)))
            change = operation(seen)
            row = _written(conn, self.store, change)
            left -= 1
            if row is not None or change.generation is None or not left:
                break
        return self.changed(seen, change, row)

    def _until_answered(self, ledger: Ledger, row: JobRow, began_at: float | None = None) -> tuple[str, ...]:
        if self._answer is not None:
            self._answer()
        silent = operations.until_answered(ledger, row, began_at)
        if silent:
            logger.warning(
                "job %r is %s, but %s did not answer: what it had claimed may still begin there until it is declared "
                "dead",
                row.spec.name,
                row.state,
                " and ".join(f"node {label!r}" for label in silent),
                extra={"action": "unanswered"},
            )
        return silent

    def request(self, operation: DeferredOperation[RunRequest], conn: Any = None) -> RunView:
        """Request a run."""
        if conn is not None:
            seen = self.seen(operation, _here(self.sight(conn, operation)))
            request = operation(seen)
            return self.requested(seen, request, _requested(conn, self.store, request))
        with self.ledger() as ledger:
            rows = ledger.jobs(self.application, named(operation.name, "job name"))
            jobs = LoadedJobs({row.spec.name: row for row in rows}, ledger)
            request = operation(jobs)
            view = self.requested(jobs, request, ledger.request_runs([request])[0])
        self.poke()
        return view

    def add_many(self, additions: Sequence[DeferredOperation[JobChange]]) -> list[JobView]:
        """Add many jobs, in slices of one transaction each. Leaves jobs that exist as they are, and names them at the
        end."""
        views: list[JobView] = []
        there: list[str] = []
        with self.ledger() as ledger:
            for first in range(0, len(additions), SLICE):
                page = additions[first : first + SLICE]
                gone = {row.spec.name: row for row in ledger.removed(self.application, [one.name for one in page])}
                now = ledger.now()
                changes = [one(LoadedJobs(gone, ledger, now, complete=True)) for one in page]
                for operation, change, row in zip(page, changes, ledger.change_many(changes), strict=True):
                    if row is None:
                        there.append(operation.name)
                    elif row.state is JobState.DONE:
                        views.append(self.changed(ledger, change, row))
                    else:
                        views.append(self.lookup.shown_job(ledger, row, now))
                self.poke()
        if there:
            raise operations.exist(self.application, there, len(views))
        return views

    def request_runs(self, requests: Sequence[DeferredOperation[RunRequest]]) -> list[RunView]:
        """Request many runs, in slices of one transaction each."""
        views: list[RunView] = []
        with self.ledger() as ledger:
            for first in range(0, len(requests), SLICE):
                names = {one.name for one in requests[first : first + SLICE]}
                jobs = {name: operations.known(ledger, self.application, name) for name in names}
                loaded = LoadedJobs(jobs, ledger, ledger.now())
                page = [one(loaded) for one in requests[first : first + SLICE]]
                if views:  # the first slice has recorded who does this
                    page = [replace(one, action=None) for one in page]
                rows = ledger.request_runs(page)
                if None in rows:
                    raise operations.unknown(ledger, self.application, page[rows.index(None)].name)
                there = [row for row in rows if row is not None]
                for request, row in zip(page, there, strict=True):
                    operations.refuse_other_arguments(request, row)
                views += self.lookup.shown_runs(ledger, there)
                self.poke()
        return views

    def request_many(
        self,
        rows: Sequence[JobRow],
        operation: Callable[[str], DeferredOperation[RunRequest]],
        progress: Callable[[int, int], None],
    ) -> list[RunView]:
        """Request a run of each of many jobs, in slices of one transaction each."""
        views: list[RunView] = []
        with self.ledger() as ledger:
            for first in range(0, len(rows), SLICE):
                page = rows[first : first + SLICE]
                loaded = LoadedJobs({row.spec.name: row for row in page}, ledger, ledger.now())
                requests = [operation(row.spec.name)(loaded) for row in page]
                asked = zip(requests, ledger.request_runs(requests), strict=True)
                there = [(request, run) for request, run in asked if run is not None]
                for request, run in there:
                    operations.refuse_other_arguments(request, run)
                views += self.lookup.shown_runs(ledger, [run for _, run in there])
                self.poke()
                progress(min(first + SLICE, len(rows)), len(rows))
        return views

    def cancel_many(
        self, runs: Sequence[RunView], said: operations.ChangeNote, progress: Callable[[int, int], None]
    ) -> list[RunView]:
        """Cancel many runs, in slices of one transaction each. Those that were removed meanwhile are left out."""
        views: list[RunView] = []
        ids = [RunId(run.id) for run in sorted(runs, key=lambda run: run.job)]
        action = self.operations.action("cancel", said)
        with self.ledger() as ledger:
            for first in range(0, len(ids), SLICE):
                rows = ledger.cancel_many(ids[first : first + SLICE], said.by, said.why, action)
                views += self.lookup.shown_runs(ledger, [row for row in rows if row is not None])
                progress(min(first + SLICE, len(ids)), len(ids))
        self.poke()
        return views

    def retry(self, run_id: int, said: operations.ChangeNote, conn: Any = None) -> RunView:
        """Run a run again that did not succeed."""
        action, span = self.operations.action("retry", said), self.operations.traceparent()
        with self.ledger() as ledger:
            run = operations.retriable(ledger, self.application, run_id)
            if conn is None:
                (row,) = ledger.retry([run.id], said.by, action, span)
            else:
                row = _retried(conn, self.store, run.id, said.by, action, span=span)
            view = self.retried(ledger, run, row)
        if conn is None:
            self.poke()
        return view

    def retried(self, ledger: Ledger, run: RunRow, row: RunRow | None) -> RunView:
        """What a retry came to."""
        if row is None:
            raise operations.overtaken(ledger, self.application, run.id)
        return self.lookup.shown_run(ledger, row)

    def sight(self, conn: Any, operation: DeferredOperation[Any]) -> Any:
        """The job as the caller's transaction sees it; awaitable if the connection is async."""
        from tenure.transactions import job_changes

        self.prepare()
        return job_changes.look(conn, self.store, operation.verb, self.application, named(operation.name, "job name"))

    def seen(self, operation: DeferredOperation[Any], sight: tuple[JobRow | None, Instant]) -> Seen:
        """That job, in place of a ledger."""
        return Seen(operation.name, *sight, self.ledger)

    def look_at(self, run: RunView) -> RunView:
        """A run that was requested here, as it is now; once it is over, with its result and its attempts."""
        with self.ledger() as ledger:
            rows = ledger.runs(RunQuery(self.application, run.job, id=RunId(run.id), limit=1))
            if not rows:
                raise RunError(
                    f"wait: the database has no run {run.id} of {run.job!r}. If it was requested with conn=, commit "
                    "that transaction first; otherwise retention has removed the run."
                )
            if rows[0].state.final:
                return self.lookup.run(ledger, run.id)
            if self._answer is not None:
                raise ConfigurationError(
                    f"wait: run {run.id} of {run.job!r} is {rows[0].state}, and in virtual time nothing happens while "
                    f"you wait. Write world.run_now({run.job!r}), or world.advance(by=0) first."
                )
            return self.lookup.shown_run(ledger, rows[0])

    def look(self, question: Callable[[Ledger], T]) -> T:
        """Query the ledger."""
        with self.ledger() as ledger:
            return question(ledger)

    def session(self) -> AbstractContextManager[Session]:
        """A connection that no other thread uses meanwhile. It is kept for the next call."""
        refuse_to_ask()
        self.prepare()
        return self._spare.session(self.store, f"{self.label}:query", PATIENCE)

    def close(self) -> None:
        """Close the connection that is kept for the next call."""
        self._spare.close()

    def prepare(self) -> None:
        """Make sure, once, that the tables exist."""
        if not self._prepared:
            self.store.prepare()
            self._prepared = True


def _written(conn: Any, store: Store, change: JobChange) -> JobRow | None:
    from tenure.transactions import job_changes

    outcome: JobRow | Coroutine[Any, Any, JobRow | None] | None = job_changes.change(conn, store, change)
    return _here(outcome)


def _requested(conn: Any, store: Store, request: RunRequest) -> RunRow | None:
    from tenure.transactions import job_changes

    outcome: RunRow | Coroutine[Any, Any, RunRow | None] | None = job_changes.request_run(conn, store, request)
    return _here(outcome)


def _retried(conn: Any, store: Store, run: RunId, by: str, action: Action | None, *, span: str) -> RunRow | None:
    from tenure.transactions import job_changes

    outcome: RunRow | Coroutine[Any, Any, RunRow | None] | None = job_changes.retry_run(
        conn, store, run, by, action, traceparent=span
    )
    return _here(outcome)


def _here(outcome: T | Coroutine[Any, Any, T]) -> T:
    """The outcome of a sync connection. Refuses async ones."""
    if isinstance(outcome, Coroutine):
        outcome.close()
        raise ConfigurationError("conn: this connection is for coroutines. Write await AsyncScheduler(scheduler)….")
    return outcome
