"""Jobs and runs of one application, from outside: define them, do something to them, look. Nothing is run here, and no thread is started."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal, TypeVar, Unpack, overload

from tenure.core.audit import JobAudit
from tenure.core.keys import planner_of
from tenure.core.policy import Policy, named
from tenure.core.records import Change, Instant, JobRow, JobState, RunRow
from tenure.errors import Busy, ConfigurationError
from tenure.jobs import operations
from tenure.jobs.decorators import Decorators, Definitions
from tenure.jobs.intents import Intent, Intents, Seen
from tenure.jobs.kept_connection import Spare
from tenure.jobs.operations import KEPT, ChangeNote, Kept
from tenure.jobs.queries import Lookup
from tenure.stores import Session, Store, store_for
from tenure.stores.ledger import JobChange, Ledger, RunRequest
from tenure.triggers import Trigger
from tenure.util import urls
from tenure.util.durations import Duration, positive
from tenure.util.instants import moment
from tenure.views import JobView, RunView, StatsView

logger = logging.getLogger("tenure")

PATIENCE = 10.0
"""How long one statement of a verb or a question may take."""
TRIES = 5
"""How often a change is worked out anew because somebody else was faster."""

T = TypeVar("T")


class Client(Decorators):
    """The verbs and questions of a scheduler. They work from any process."""

    def __init__(self, url: object, definitions: Definitions, *, label: str | None, schema: str, migrate: bool) -> None:
        self._definitions = definitions
        self._url, self._schema, self._migrate = url, schema, migrate
        self._given_label = None if label is None else named(label, "label")
        self._store: Store | None = None
        if url is not None and not isinstance(url, Store):
            urls.parse(url)  # what is wrong with it is said where it stands
        self._prepared = False
        self._spare = Spare()
        weakref.finalize(self, self._spare.close)  # also when the process exits
        self._answer: Callable[[], None] | None = None
        self._intents = Intents(definitions)
        self._lookup = Lookup(definitions.application, definitions.tz)

    @property
    def application(self) -> str:
        """Whose jobs these are."""
        return self._definitions.application

    @property
    def store(self) -> Store:
        """The store behind the URL, or behind TENURE_URL where none was given. Not opened yet."""
        if self._store is None:
            self._store = store_for(self._url, schema=self._schema, migrate=self._migrate)
        return self._store

    @property
    def label(self) -> str:
        """This node's name for people."""
        return self._given_label or f"{socket.gethostname()}:{os.getpid()}"

    # Doing something to jobs, from any process, started or not

    def add(
        self,
        fn: Callable[..., object] | str,
        trigger: Trigger | None,
        *,
        name: str,
        kwargs: Mapping[str, Any] | None = None,
        conn: Any = None,
        by: str = "",
        **policy: Unpack[Policy],
    ) -> JobView:
        """Add a job at run time for a function that is registered (`@scheduler.job`). `conn`: as part of that transaction.

        A job of the same name that was added at run time and is done may be added again; a due time of it that has run does not run again.
        The state of what is returned is then 'done', and a warning is logged.
        """
        return self.change(
            self._intents.add(fn, trigger, name, kwargs=kwargs, policy=policy, said=ChangeNote(by)), conn
        )

    def update(
        self,
        name: str,
        *,
        trigger: Trigger | Kept | None = KEPT,
        kwargs: Mapping[str, Any] | Kept = KEPT,
        conn: Any = None,
        by: str = "",
        why: str = "",
        **policy: Unpack[Policy],
    ) -> JobView:
        """Change what is given and keep the rest. For a job that is defined in code this holds until its definition there changes, or `reset`."""
        return self.change(
            self._intents.update(name, trigger=trigger, kwargs=kwargs, policy=policy, said=ChangeNote(by, why)), conn
        )

    def remove(self, name: str, *, conn: Any = None, by: str = "", why: str = "") -> JobView:
        """Take a job away: what has not begun is cancelled, what runs goes on to its end. When this returns nothing more begins, as `pause` says."""
        return self.change(self._intents.remove(name, ChangeNote(by, why)), conn)

    def restore(self, name: str, *, conn: Any = None, by: str = "", why: str = "") -> JobView:
        """Take a removal back: the job is due again from now on, as it was when it was removed."""
        return self.change(self._intents.restore(name, ChangeNote(by, why)), conn)

    def reset(self, name: str, *, conn: Any = None, by: str = "", why: str = "") -> JobView:
        """Take updates of a job back: it is again what its definition in the code says, from now on."""
        return self.change(self._intents.reset(name, ChangeNote(by, why)), conn)

    def pause(
        self, name: str, *, why: str = "", until: Duration | datetime | None = None, by: str = "", conn: Any = None
    ) -> JobView:
        """Begin nothing of this job, until `resume`, or for that long (`until="2h"`). When this returns nothing more begins.

        It waits until every node has given back what it had claimed and not begun, at the longest for the ttl; `unanswered` of what it
        returns names the nodes that did not answer. With `conn` it does not wait: nodes hear of the pause within a heartbeat of the commit.
        """
        return self.change(self._intents.pause(name, until, ChangeNote(by, why)), conn)

    def resume(self, name: str, *, by: str = "", why: str = "", conn: Any = None) -> JobView:
        """Go on from now. What fell into the pause is not made up for: see `backfill`."""
        return self.change(self._intents.resume(name, ChangeNote(by, why)), conn)

    def run_now(
        self,
        name: str,
        *,
        kwargs: Mapping[str, Any] | None = None,
        key: str | None = None,
        by: str = "",
        conn: Any = None,
    ) -> RunView:
        """Run a job as soon as there is room, with these arguments instead of its own.

        The same `key` twice is the same run: what is returned says how that one is, or how it ended, also after retention has removed it
        (for `keep_keys`; `forgotten` is then True). Other arguments under the same key are refused.
        """
        return self.request(self._intents.run_now(name, kwargs, key, ChangeNote(by)), conn)

    @overload
    def backfill(
        self,
        name: str,
        since: datetime | str,
        until: datetime | str,
        *,
        dry_run: Literal[True] = True,
        even_forgotten: bool = False,
        by: str = "",
    ) -> list[datetime]: ...
    @overload
    def backfill(
        self,
        name: str,
        since: datetime | str,
        until: datetime | str,
        *,
        dry_run: Literal[False],
        even_forgotten: bool = False,
        by: str = "",
    ) -> list[RunView]: ...
    def backfill(
        self,
        name: str,
        since: datetime | str,
        until: datetime | str,
        *,
        dry_run: bool = True,
        even_forgotten: bool = False,
        by: str = "",
    ) -> list[datetime] | list[RunView]:
        """The due times from `since` up to and without `until` that have not been run; with `dry_run=False` they are run.

        Due times whose runs retention has removed are left out, and a warning is logged: the ledger cannot say whether they ran.
        `even_forgotten=True` takes them too; they may then run a second time.
        """
        with self.ledger() as ledger:
            job, now, said = operations.known(ledger, self.application, name), ledger.now(), ChangeNote(by)
            span = operations.point(since, now, "since"), operations.point(until, now, "until")
            where = self._lookup.zone(job)
            found = operations.backfillable(ledger, job, *span, now, even_forgotten=even_forgotten)
            operations.warn_of_forgotten(job, found.forgotten, where, even_forgotten=even_forgotten)
            if dry_run:
                return [moment(at, where) for at in found.due]
            rows = ledger.request_runs(operations.backfilled(job, found.due, said, even_forgotten=even_forgotten))
            views = self._lookup.shown_runs(ledger, [row for row in rows if row is not None])
        self.poke()
        return views

    def cancel(self, run_id: int, *, why: str = "", by: str = "") -> RunView:
        """End a run: at once if it has not begun; else its body is asked (`run.cancelled`)."""
        with self.ledger() as ledger:
            view = self._lookup.shown_run(
                ledger, operations.cancelled(ledger, self.application, run_id, ChangeNote(by, why))
            )
        self.poke()
        return view

    def ask_planner_to_resign(self) -> int | None:
        """Ask the node that plans to let another one plan; returns the term that was asked, None if nobody plans."""
        with self._session() as session:
            return session.ask(planner_of(self.application))

    @contextmanager
    def once(self, key: str, within: Duration | None = None) -> Iterator[bool]:
        """`with scheduler.once("2026-11-15") as first:` is True for the first, anywhere; an exception in the body gives it back.

        With `within`, True again that long after the last time.
        """
        key, by = named(key, "key"), self.signature()
        limit = None if within is None else positive(within, "within")
        with self.ledger() as ledger:
            first = ledger.guard(self.application, key, limit, by)
        try:
            yield first
        except BaseException:
            if first:
                with self.ledger() as ledger:
                    ledger.unguard(self.application, key, by)
            raise

    def close(self) -> None:
        """Close the connection that is kept for the next call, as `stop()` and the end of the process do. The next call opens another."""
        self._spare.close()

    # Looking

    def jobs(self, *, removed: bool = False) -> list[JobView]:
        """All jobs, by name. `removed`: also those that somebody removed and code still defines."""
        return self.look(lambda ledger: self._lookup.jobs(ledger, removed=removed))

    def find_job(self, name: str) -> JobView:
        """One job."""
        return self.look(lambda ledger: self._lookup.job(ledger, name))

    def runs(
        self,
        job: str | None = None,
        *,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        state: str | Iterable[str] | None = None,
        limit: int = 100,
    ) -> list[RunView]:
        """Runs, the newest first: `runs(job="daily_aggregate", since="-1d", state="failed")`."""
        return self.look(
            lambda ledger: self._lookup.runs(ledger, job, since=since, until=until, state=state, limit=limit)
        )

    def find_run(self, run_id: int) -> RunView:
        """One run, by its number."""
        return self.look(lambda ledger: self._lookup.run(ledger, run_id))

    def log(self, run_id: int) -> list[str]:
        """What the attempts of a run logged."""
        return self.look(lambda ledger: self._lookup.log(ledger, run_id))

    def next(self, n: int = 10) -> list[tuple[datetime, str]]:
        """The next due times of all jobs: when, and which."""
        return self.look(lambda ledger: self._lookup.next(ledger, n))

    def stats(self, name: str) -> StatsView:
        """Figures of the last runs of a job."""
        return self.look(lambda ledger: self._lookup.stats(ledger, name))

    def audit(
        self, job: str | None = None, since: datetime | str = "-1d", until: datetime | str | None = None
    ) -> list[JobAudit]:
        """What became of every due time from `since` up to and without `until`, job by job."""
        return self.look(lambda ledger: self._lookup.audit(ledger, job, since, until))

    def why(self, job: str, at: datetime | str | None = None) -> str:
        """Why a job ran or did not run, at a time or now, in a sentence or two."""
        return self.look(lambda ledger: self._lookup.why(ledger, job, at))

    # For the other colour, for tests and for tools

    @property
    def intents(self) -> Intents:
        """What the verbs are made of."""
        return self._intents

    @property
    def definitions(self) -> Definitions:
        """What the decorators noted down."""
        return self._definitions

    def use(self, store: Store | None, answer: Callable[[], None] | None = None) -> None:
        """Another store from now on; None: that of the URL again. `answer`: its nodes have no thread that could answer a pause, so call this."""
        self._spare.close()
        self._store, self._prepared, self._answer = store, False, answer

    @contextmanager
    def ledger(self) -> Iterator[Ledger]:
        """Jobs and runs, over a connection that no other thread uses meanwhile."""
        with self._session() as session:
            yield session.ledger

    def poke(self) -> None:
        """Something was asked for or changed. Nodes hear of it from the store."""

    def signature(self) -> str:
        """Who holds a guard: this node, and this very call."""
        return f"{self.label} {secrets.token_hex(4)}"

    def changed(self, ledger: operations.Looks, change: JobChange, row: JobRow | None) -> JobView:
        """What a change came to."""
        if row is None:
            if change.what is Change.ADDED and change.generation is None:
                raise operations.exists(self.application, change.name)
            operations.known(ledger, self.application, change.name)
            raise Busy(
                f"job {change.name!r} was changed by others at the same time, {TRIES} times in a row. Try again."
            )
        if change.what is Change.ADDED and row.state is JobState.DONE:
            operations.warn_of_done(ledger, row, self._lookup.zone(row))
        return self._lookup.shown_job(row, ledger.now())

    def requested(self, ledger: operations.Looks, request: RunRequest, row: RunRow | None) -> RunView:
        """What a request for a run came to."""
        if row is None:
            raise operations.unknown(ledger, self.application, request.name)
        operations.refuse_other_arguments(request, row)
        return self._lookup.shown_run(ledger, row)

    def change(self, intent: Intent[JobChange], conn: Any = None) -> JobView:
        """Do what somebody wants of a job."""
        if conn is not None:
            return self._change_in(conn, intent)
        with self.ledger() as ledger:
            left = TRIES
            while True:
                change = intent(ledger)
                row = ledger.change(change)
                left -= 1
                if row is not None or change.generation is None or not left:
                    break
            view = self.changed(ledger, change, row)
            self.poke()
            if row is not None and change.what in {Change.PAUSED, Change.REMOVED}:
                view = replace(view, unanswered=self._until_answered(ledger, row))
        return view

    def _change_in(self, conn: Any, intent: Intent[JobChange]) -> JobView:
        """In the caller's transaction. Nodes hear of it from the store, after the commit."""
        left = TRIES
        while True:
            seen = self.seen(intent, _here(self.sight(conn, intent)))
            change = intent(seen)
            row = _written(conn, self.store, change)
            left -= 1
            if row is not None or change.generation is None or not left:
                break
        return self.changed(seen, change, row)

    def _until_answered(self, ledger: Ledger, row: JobRow) -> tuple[str, ...]:
        if self._answer is not None:
            self._answer()
        silent = operations.until_answered(ledger, row)
        if silent:
            logger.warning(
                "job %r is %s, but %s did not answer: what it had claimed may still begin there until it is declared dead",
                row.spec.name,
                row.state,
                " and ".join(f"node {label!r}" for label in silent),
                extra={"action": "unanswered"},
            )
        return silent

    def request(self, intent: Intent[RunRequest], conn: Any = None) -> RunView:
        """Have a run that somebody wants."""
        if conn is not None:
            seen = self.seen(intent, _here(self.sight(conn, intent)))
            request = intent(seen)
            return self.requested(seen, request, _requested(conn, self.store, request))
        with self.ledger() as ledger:
            request = intent(ledger)
            view = self.requested(ledger, request, ledger.request_runs([request])[0])
        self.poke()
        return view

    def sight(self, conn: Any, intent: Intent[Any]) -> Any:
        """What the caller's transaction sees of the job that somebody wants something of; to be awaited where the connection is."""
        from tenure.transactions import job_changes

        self.prepare()
        return job_changes.look(conn, self.store, intent.verb, self.application, named(intent.name, "job name"))

    def seen(self, intent: Intent[Any], sight: tuple[JobRow | None, Instant]) -> Seen:
        """The same, to be looked at in the place of a ledger."""
        return Seen(intent.name, *sight, self.ledger)

    def look(self, question: Callable[[Ledger], T]) -> T:
        """Ask the ledger something."""
        with self.ledger() as ledger:
            return question(ledger)

    def _session(self) -> AbstractContextManager[Session]:
        self.prepare()
        return self._spare.session(self.store, f"{self.label}:query", PATIENCE)

    def prepare(self) -> None:
        """See to it that the tables are there, once."""
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


def _here(outcome: T | Coroutine[Any, Any, T]) -> T:
    """What was written, unless the connection is of the other colour."""
    if isinstance(outcome, Coroutine):
        outcome.close()
        raise ConfigurationError("conn: this connection is for coroutines. Write await AsyncScheduler(scheduler)….")
    return outcome
