"""Operations and queries on the jobs of one application, for any process, whether or not it runs jobs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Literal, Unpack, overload

from tenure.core.audit import JobAudit
from tenure.core.backfills import DEFAULT_INCLUDE, Include, NewBackfill, Steer, included
from tenure.core.job_options import Policy
from tenure.core.keys import planner_of
from tenure.core.records import IfWaiting, States
from tenure.jobs import backfills, operations
from tenure.jobs.calls import Additions, Call, NeedsNothing, P, PlainAdditions, WithRun, additions, requested, requests
from tenure.jobs.client import JobClient
from tenure.jobs.decorators import Decorators
from tenure.jobs.operations import UNSET, ChangeNote, Later, Unset, Which
from tenure.stores import Store
from tenure.stores.ledger import Ledger
from tenure.triggers import Trigger
from tenure.util.durations import Duration, positive
from tenure.util.instants import moment
from tenure.util.names import named
from tenure.util.plurals import counted
from tenure.views import (
    ActionView,
    AlertView,
    AttentionView,
    BackfillView,
    Explanation,
    FiguresView,
    JobView,
    LogLineView,
    NodeView,
    PoolView,
    RequestedBackfill,
    RequestedRun,
    RunView,
    StatsView,
)


class SchedulerApi(Decorators):
    """The methods of a scheduler that work before its start, too."""

    _service: JobClient

    @property
    def application(self) -> str:
        """The application that the jobs belong to."""
        return self._service.application

    @property
    def store(self) -> Store:
        """The store behind the URL, or behind TENURE_URL if none was given. Opens nothing."""
        return self._service.store

    @property
    def label(self) -> str:
        """The human-readable name of this node."""
        return self._service.label

    # Operations

    @overload
    def add(
        self,
        fn: Callable[..., object],
        trigger: None,
        *,
        name: str,
        conn: Any = None,
        by: str = "",
        **policy: Unpack[Policy],
    ) -> JobView: ...
    @overload
    def add(
        self,
        fn: Call | NeedsNothing | str,
        trigger: Trigger | None,
        *,
        name: str,
        conn: Any = None,
        by: str = "",
        **policy: Unpack[Policy],
    ) -> JobView: ...
    @overload
    def add(
        self,
        fn: Callable[..., object] | str,
        trigger: Trigger | None,
        *,
        name: str,
        kwargs: Mapping[str, Any] | None,
        conn: Any = None,
        by: str = "",
        **policy: Unpack[Policy],
    ) -> JobView: ...
    def add(
        self,
        fn: Call | Callable[..., object] | str,
        trigger: Trigger | None,
        *,
        name: str,
        kwargs: Mapping[str, Any] | None = None,
        conn: Any = None,
        by: str = "",
        **policy: Unpack[Policy],
    ) -> JobView:
        """Add a job at run time, for a registered function (`@scheduler.job`); with `conn`, in that transaction.

        `add(call(report, customer_id=3), cron("0 3 * * *"), name="report:3")` gives it arguments. You can add a job
        again if it was added at run time and is done. If its due time has run already, it does not run again: the
        returned job is 'done', and a warning is logged.
        """
        return self._service.change(
            self._service.operations.add(fn, trigger, name, kwargs=kwargs, policy=policy, said=ChangeNote(by)), conn
        )

    @overload
    def add_many(self, jobs: Additions, /, *, by: str = "", **policy: Unpack[Policy]) -> list[JobView]: ...
    @overload
    def add_many(
        self, fn: Callable[..., object] | str, jobs: PlainAdditions, *, by: str = "", **policy: Unpack[Policy]
    ) -> list[JobView]: ...
    def add_many(self, fn: Any, jobs: Any = None, *, by: str = "", **policy: Unpack[Policy]) -> list[JobView]:
        """Add many jobs by name: `{"report:7": (call(report, customer=7), cron("0 3 * * *")), …}`.

        Or for one function, by its name as well: `add_many("report", {"report:7": (trigger, {"customer": 7}), …})`.
        200 jobs share a transaction. Jobs that exist already are left as they are, and `JobExists` names them when all
        others have been added.
        """
        said = ChangeNote(by)
        return self._service.add_many(
            [
                self._service.operations.add(one, trigger, name, kwargs=kwargs, policy=policy, said=said)
                for name, one, trigger, kwargs in additions(fn, jobs)
            ]
        )

    def update(
        self,
        name: str,
        *,
        trigger: Trigger | Unset | None = UNSET,
        kwargs: Mapping[str, Any] | Unset = UNSET,
        conn: Any = None,
        by: str = "",
        why: str = "",
        **policy: Unpack[Policy],
    ) -> JobView:
        """Change what is given and keep the rest.

        For a job that code defines, this holds until its definition in the code changes, or until `reset`.
        """
        return self._service.change(
            self._service.operations.update(
                name, trigger=trigger, kwargs=kwargs, policy=policy, said=ChangeNote(by, why)
            ),
            conn,
        )

    def remove(self, name: str, *, conn: Any = None, by: str = "", why: str = "") -> JobView:
        """Remove a job: cancel what has not begun, and let what runs finish. It returns when nothing more begins."""
        return self._service.change(self._service.operations.remove(name, ChangeNote(by, why)), conn)

    def restore(self, name: str, *, conn: Any = None, by: str = "", why: str = "") -> JobView:
        """Undo a removal: the job is due again from now on, as it was when it was removed."""
        return self._service.change(self._service.operations.restore(name, ChangeNote(by, why)), conn)

    def reset(self, name: str, *, conn: Any = None, by: str = "", why: str = "") -> JobView:
        """Undo updates: from now on the job is what its definition in the code says."""
        return self._service.change(self._service.operations.reset(name, ChangeNote(by, why)), conn)

    def pause(
        self, name: str, *, why: str = "", until: Duration | datetime | None = None, by: str = "", conn: Any = None
    ) -> JobView:
        """Begin no more runs of this job, until `resume` or for that long (`until="2h"`).

        It waits until every node has given back the runs that it had claimed but not begun, for the ttl at the longest.
        `unanswered` of the result names the nodes that did not answer. With `conn` it does not wait: nodes learn of the
        pause within one heartbeat of the commit.
        """
        return self._service.change(self._service.operations.pause(name, until, ChangeNote(by, why)), conn)

    def resume(self, name: str, *, by: str = "", why: str = "", conn: Any = None) -> JobView:
        """Go on from now. Due times that fell into the pause are not made up; see `backfill`."""
        return self._service.change(self._service.operations.resume(name, ChangeNote(by, why)), conn)

    @overload
    def run_now(
        self,
        job: Call | str,
        /,
        *,
        kwargs: Mapping[str, Any] | None = None,
        key: str | None = None,
        by: str = "",
        why: str = "",
        conn: Any = None,
    ) -> RequestedRun: ...
    @overload
    def run_now(self, job: WithRun[P], /, *args: P.args, **kwargs: P.kwargs) -> RequestedRun: ...
    @overload
    def run_now(self, job: Callable[P, object], /, *args: P.args, **kwargs: P.kwargs) -> RequestedRun: ...
    def run_now(self, job: Any, /, *args: Any, **given: Any) -> RequestedRun:
        """Run a job as soon as there is room: `run_now(report, customer_id=3)`.

        With options: `run_now(call(report, customer_id=3), key="march")`, or by the name of the job:
        `run_now("report", kwargs={"customer_id": 3}, key="march")`. Arguments stand for all of the job's own.

        The same `key` twice is the same run: the result says how that run is, or how it ended. That holds for
        `keep_keys`, even after retention has removed the run (`forgotten` is then True). Other arguments under the same
        key are refused. `.wait()` waits for the end.
        """
        wanted, options = requested(job, args, given)
        return self._run_now(wanted, **options)

    def _run_now(
        self,
        job: Call | str,
        *,
        kwargs: Mapping[str, Any] | None = None,
        key: str | None = None,
        by: str = "",
        why: str = "",
        conn: Any = None,
    ) -> RequestedRun:
        operation = self._service.operations.run_now(job, kwargs, key, ChangeNote(by, why))
        return self._requested(self._service.request(operation, conn))

    @overload
    def run_now_many(
        self, calls: Iterable[Call], /, *, keys: Iterable[str] | None = None, by: str = "", why: str = ""
    ) -> list[RequestedRun]: ...
    @overload
    def run_now_many(
        self,
        name: str,
        kwargs: Iterable[Mapping[str, Any] | None],
        *,
        keys: Iterable[str] | None = None,
        by: str = "",
        why: str = "",
    ) -> list[RequestedRun]: ...
    def run_now_many(
        self, name: Any, kwargs: Any = None, *, keys: Iterable[str] | None = None, by: str = "", why: str = ""
    ) -> list[RequestedRun]:
        """Request many runs: `run_now_many(call(report, customer=n) for n in customers)`, or of one job, by its name:
        `run_now_many("report", [{"customer": 7}, …])`.

        `keys` gives each its own key, in the same order, as in `run_now`. 200 runs share a transaction.
        """
        wanted = requests(name, kwargs, keys)
        run_now, said = self._service.operations.run_now, ChangeNote(by, why)
        return [
            self._requested(run)
            for run in self._service.request_runs([run_now(job, given, key, said) for job, given, key in wanted])
        ]

    def run_at(
        self,
        job: Call | NeedsNothing | str,
        when: datetime | str | None = None,
        *,
        in_: Duration | None = None,
        kwargs: Mapping[str, Any] | None = None,
        key: str | None = None,
        slot: str | None = None,
        if_waiting: IfWaiting = "keep",
        by: str = "",
        why: str = "",
        conn: Any = None,
    ) -> RequestedRun:
        """Run a job once, at a time to come: `run_at(call(remind, order=7), in_="5m")`.

        `key` is as in `run_now`. Under a `slot` at most one run of the job waits to begin. If there is one already,
        `if_waiting` says what becomes of it: "keep" leaves it as it is; "replace" gives it the time and the arguments
        of this call; "later" gives it the arguments of this call and the later one of both times. Returns the run that
        waits.
        """
        later = Later(when, in_, slot, if_waiting)
        operation = self._service.operations.run_at(job, later, kwargs, key, ChangeNote(by, why))
        return self._requested(self._service.request(operation, conn))

    def _requested(self, run: RunView) -> RequestedRun:
        return RequestedRun.through(run, lambda: self._service.look_at(run))

    @overload
    def backfill(
        self,
        name: str,
        since: datetime | str,
        until: datetime | str,
        *,
        dry_run: Literal[True] = True,
        include: Include | Collection[Include] = DEFAULT_INCLUDE,
        at_once: int | None = None,
        even_forgotten: bool = False,
        by: str = "",
        why: str = "",
    ) -> list[datetime]: ...
    @overload
    def backfill(
        self,
        name: str,
        since: datetime | str,
        until: datetime | str,
        *,
        dry_run: Literal[False],
        include: Include | Collection[Include] = DEFAULT_INCLUDE,
        at_once: int | None = None,
        even_forgotten: bool = False,
        by: str = "",
        why: str = "",
    ) -> RequestedBackfill: ...
    def backfill(
        self,
        name: str,
        since: datetime | str,
        until: datetime | str,
        *,
        dry_run: bool = True,
        include: Include | Collection[Include] = DEFAULT_INCLUDE,
        at_once: int | None = None,
        even_forgotten: bool = False,
        by: str = "",
        why: str = "",
    ) -> list[datetime] | RequestedBackfill:
        """List the due times in [since, until) that have not run; with `dry_run=False`, run them.

        They are fixed then, and the result has the `number` under which the backfill can be looked at, paused and
        cancelled. `include` says which: "missing" ones, which never ran, were skipped or cancelled; "lost" ones;
        "failed" ones, which also means lost ones. At most `at_once` of the runs are open at once, the oldest first.

        Due times whose runs retention has removed are left out, with a warning: the ledger cannot say whether they ran.
        `even_forgotten=True` includes them, and they may run a second time.
        """
        words, limit = included(include), backfills.at_once_of(at_once)
        with self._service.ledger() as ledger:
            job, now, said = operations.known(ledger, self.application, name), ledger.now(), ChangeNote(by, why)
            span = operations.point(since, now, "since"), operations.point(until, now, "until")
            where = self._service.lookup.zone(ledger, job)
            found = operations.backfillable(ledger, job, *span, now, even_forgotten=even_forgotten, include=words)
            operations.warn_of_forgotten(job, found.forgotten, where, even_forgotten=even_forgotten)
            if dry_run:
                return [moment(at, where) for at in found.due]
            action = self._service.operations.action("backfill", said, counted(len(found.due), "due time"))
            more: dict[str, Any] = {"even_forgotten": even_forgotten, "by": by, "why": why, "action": action}
            more["traceparent"] = self._service.operations.traceparent()
            wanted = NewBackfill(self.application, name, *span, tuple(found.due), words, limit, **more)
            row, runs = backfills.created(ledger, wanted)
            backfill = RequestedBackfill.through(row, where, self._service.lookup.shown_runs(ledger, runs))
        self._service.poke()
        return backfill

    def pause_backfill(self, number: int, *, by: str = "", why: str = "") -> BackfillView:
        """Request no further runs of a backfill until it is resumed. What it has requested goes on."""
        return self._steer(number, Steer.PAUSE, ChangeNote(by, why))

    def resume_backfill(self, number: int, *, by: str = "", why: str = "") -> BackfillView:
        """Go on with a backfill where it was."""
        return self._steer(number, Steer.RESUME, ChangeNote(by, why))

    def cancel_backfill(self, number: int, *, by: str = "", why: str = "") -> BackfillView:
        """End a backfill: its runs that have not begun are cancelled, and no further ones are requested. Running ones
        go on to their end."""
        return self._steer(number, Steer.CANCEL, ChangeNote(by, why))

    def _steer(self, number: int, steer: Steer, said: ChangeNote) -> BackfillView:
        action = self._service.operations.action(steer, said, f"backfill {number}")
        with self._service.ledger() as ledger:
            row = backfills.steered(ledger, self.application, number, steer, said=said, action=action)
            [view] = self._service.lookup.shown_backfills(ledger, [row])
        self._service.poke()
        return view

    def retry(self, run_id: int, *, why: str = "", by: str = "", conn: Any = None) -> RequestedRun:
        """Run a run again that failed, was lost, cancelled or skipped: the same key, due time and arguments.

        It waits its turn and is never missed. Its attempts are numbered on; `retries` and `max_lost` count anew.
        """
        return self._requested(self._service.retry(run_id, ChangeNote(by, why), conn))

    def retry_failed(
        self,
        job: str,
        since: datetime | str = "-1d",
        until: datetime | str | None = None,
        *,
        dry_run: bool = True,
        why: str = "",
        by: str = "",
    ) -> list[RunView]:
        """The runs of a job scheduled from `since` (inclusive) to `until` (exclusive) that failed or were lost.

        With `dry_run=False` they are retried.
        """
        with self._service.ledger() as ledger:
            row, now, said = operations.known(ledger, self.application, job), ledger.now(), ChangeNote(by, why)
            start = operations.point(since, now, "since")
            end = None if until is None else operations.point(until, now, "until")
            runs = operations.failed_runs(ledger, row, start, end)
            if not dry_run:
                action = self._service.operations.action("retry", said, counted(len(runs), "run"))
                runs = operations.retried(
                    ledger, [run.id for run in runs], said.by, action, self._service.operations.traceparent()
                )
            views = self._service.lookup.shown_runs(ledger, runs)
        if not dry_run:
            self._service.poke()
        return views

    def cancel(
        self,
        run_id: int | None = None,
        *,
        job: str | None = None,
        key: str | None = None,
        slot: str | None = None,
        why: str = "",
        by: str = "",
    ) -> RunView:
        """Cancel a run at once if it has not begun; otherwise ask its body to end (`run.cancelled`).

        Name the run by its number, by its job and key, or by the slot that it waits in.
        """
        which, said = Which(run_id, job, key, slot), ChangeNote(by, why)
        action = self._service.operations.action("cancel", said)
        with self._service.ledger() as ledger:
            row = operations.cancelled(ledger, self.application, which, said, action)
            view = self._service.lookup.shown_run(ledger, row)
        self._service.poke()
        return view

    def pool(self, name: str, size: int, *, by: str = "", why: str = "") -> PoolView:
        """Set how many runs of the jobs with `pool=name` may run at once, on all nodes together. 0 begins none.

        Holds from the next claim on; a smaller size ends no run. The size is kept in the database, not in code.
        """
        name = operations.pool_name(name)
        size = operations.pool_size(size)
        action = self._service.operations.action("pool", ChangeNote(by, why), f"size {size}")
        with self._service.ledger() as ledger:
            ledger.set_pool(self.application, name, size, action)
            found = [PoolView.of(row) for row in ledger.pools(self.application) if row.name == name]
        self._service.poke()
        return found[0]

    def ask_planner_to_resign(self, *, by: str = "", why: str = "") -> int | None:
        """Ask the node that plans to let another one plan; returns its term, None if no node plans."""
        action = self._service.operations.action("resign", ChangeNote(by, why))
        with self._service.session() as session:
            return session.ask(planner_of(self.application), self.application, action)

    @contextmanager
    def once(self, key: str, within: Duration | None = None) -> Iterator[bool]:
        """`with scheduler.once("2026-11-15") as first:` is True for the first caller in any process.

        An exception in the block gives the key back. With `within`, True again that long after the last time.
        """
        key, by = named(key, "key"), self._service.signature()
        limit = None if within is None else positive(within, "within")
        with self._service.ledger() as ledger:
            first = ledger.guard(self.application, key, limit, by)
        try:
            yield first
        except BaseException:
            if first:
                with self._service.ledger() as ledger:
                    ledger.unguard(self.application, key, by)
            raise

    def close(self) -> None:
        """Close the connection that is kept for the next call, as `stop()` and the end of the process do."""
        self._service.close()

    # Queries

    def jobs(
        self, pattern: str | None = None, *, tag: str | None = None, queue: str | None = None, removed: bool = False
    ) -> list[JobView]:
        """All jobs, by name, or those that match: `jobs("report:*", tag="customer-7")`.

        `*` stands for any text, `?` for one character. With `removed`, also removed ones that code still defines.
        """
        return self._service.look(
            lambda ledger: self._service.lookup.jobs(ledger, pattern, tag=tag, queue=queue, removed=removed)
        )

    def find_job(self, name: str) -> JobView:
        """One job."""
        return self._service.look(lambda ledger: self._service.lookup.job(ledger, name))

    def runs(
        self,
        job: str | None = None,
        *,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        state: States | None = None,
        limit: int = 100,
    ) -> list[RunView]:
        """Runs, newest first: `runs(job="daily_aggregate", since="-1d", state="failed")`."""
        return self._service.look(
            lambda ledger: self._service.lookup.runs(ledger, job, since=since, until=until, state=state, limit=limit)
        )

    def find_run(self, run: int | str, job: str | None = None) -> RunView:
        """One run with all of its attempts, by its number or by its key. `job` says whose key it is."""
        return self._service.look(lambda ledger: self._service.lookup.run(ledger, run, job))

    def log(self, run: int | str, job: str | None = None) -> list[str]:
        """What the attempts of a run have logged so far; the run as for `find_run`."""
        return [line.text for line in self.log_lines(run, job)]

    def log_lines(self, run: int | str, job: str | None = None) -> list[LogLineView]:
        """The same, with the time and the attempt of each line."""
        return self._service.look(lambda ledger: self._service.lookup.log(ledger, run, job))

    def actions(
        self,
        job: str | None = None,
        *,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        by: str | None = None,
        limit: int = 100,
    ) -> list[ActionView]:
        """Who did what to jobs, runs and elections, newest first: operations that gave `by=` or `why=`."""
        return self._service.look(
            lambda ledger: self._service.lookup.actions(ledger, job, since=since, until=until, by=by, limit=limit)
        )

    def next(self, n: int = 10) -> list[tuple[datetime, str]]:
        """The next due times of all jobs: when, and which."""
        return self._service.look(lambda ledger: self._service.lookup.next(ledger, n))

    def backfills(self, job: str | None = None, *, limit: int = backfills.RECENT) -> list[BackfillView]:
        """The newest backfills and how far they are, or those of one job."""
        return self._service.look(lambda ledger: self._service.lookup.backfills(ledger, job, limit))

    def find_backfill(self, number: int) -> BackfillView:
        """One backfill, by its number."""

        def look(ledger: Ledger) -> BackfillView:
            row = backfills.backfill_of(ledger, self.application, number)
            return self._service.lookup.shown_backfills(ledger, [row])[0]

        return self._service.look(look)

    def pools(self) -> list[PoolView]:
        """The pools that jobs name or whose size was set, by name: how many runs have a place, and how many wait."""
        return self._service.look(lambda ledger: [PoolView.of(row) for row in ledger.pools(self.application)])

    def history(
        self, name: str, *, since: datetime | str = "-7d", until: datetime | str | None = None, by: str = "hour"
    ) -> list[FiguresView]:
        """What became of the runs of a job by hour or by day (UTC), oldest first. Hours are kept for 14 days, days for
        400."""
        return self._service.look(lambda ledger: self._service.lookup.history(ledger, name, since, until, by))

    def stats(self, name: str) -> StatsView:
        """Statistics of the last runs of a job."""
        return self._service.look(lambda ledger: self._service.lookup.stats(ledger, name))

    def audit(
        self, job: str | None = None, since: datetime | str = "-1d", until: datetime | str | None = None
    ) -> list[JobAudit]:
        """What became of every due time in [since, until), job by job."""
        return self._service.look(lambda ledger: self._service.lookup.audit(ledger, job, since, until))

    def why(self, job: str, at: datetime | str | None = None) -> str:
        """Why a job ran or did not run, at that time or now, in a sentence or two."""
        return self.explain(job, at).text

    def explain(self, job: str, at: datetime | str | None = None) -> Explanation:
        """The same as `.text`, with the one `.cause` that applies, as a stable word, and the `.facts` it rests on."""
        return self._service.look(lambda ledger: self._service.lookup.why(ledger, job, at))

    def nodes(self) -> list[NodeView]:
        """The live nodes: since when, where, what they can run, and how many runs they have."""
        return self._service.look(self._service.lookup.nodes)

    def attention(self) -> list[AttentionView]:
        """What needs attention, the worst first: orphaned jobs, overdue due times, jobs removed against the code."""
        return self._service.look(self._service.lookup.attention)

    def alerts(self, limit: int = 100) -> list[AlertView]:
        """What the sinks of `alert_to` are told of: open alerts first, then past ones, each the newest first."""
        return self._service.look(lambda ledger: self._service.lookup.alerts(ledger, limit))
