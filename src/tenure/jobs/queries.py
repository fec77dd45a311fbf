"""Queries on the ledger. Their answers are views, with datetimes in the zones of the jobs."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from itertools import islice
from typing import Any

from tenure.core.alerts import AlertMessage, AlertRow
from tenure.core.attention import LIMIT, Concern, concerns
from tenure.core.audit import JobAudit
from tenure.core.audit import audit as audit_of
from tenure.core.audit_following import ParentPast, audit_follower, followed_jobs, merged
from tenure.core.backfills import BackfillRow
from tenure.core.coverage import Coverage
from tenure.core.explain import Explanation, explain, explain_run
from tenure.core.figures import DAY, HOUR
from tenure.core.following import first_trigger
from tenure.core.job_history import Spend, stretches
from tenure.core.job_options import tag as tag_of
from tenure.core.messages import ActionQuery, JobOutcome, JobPageQuery, JobQuery, Past, RunQuery
from tenure.core.overdue import SLACK
from tenure.core.patterns import checked, is_pattern, matches
from tenure.core.records import (
    OPEN,
    ChangeRecord,
    Instant,
    JobId,
    JobRow,
    JobSpec,
    JobState,
    RunId,
    RunRow,
    RunState,
    States,
)
from tenure.core.trigger_text import read_trigger, zone_of
from tenure.core.unfit import UnfitArguments
from tenure.errors import ConfigurationError
from tenure.jobs import operations
from tenure.jobs.run_log import with_gaps
from tenure.stores.ledger import Ledger
from tenure.util.instants import moment
from tenure.util.names import named
from tenure.util.plurals import a_type
from tenure.views import (
    ActionView,
    AlertView,
    AttentionView,
    BackfillView,
    FiguresView,
    JobView,
    LogLineView,
    NodeView,
    RunView,
    StatsView,
)

MAX_RUNS = 10_000
"""The most runs in one answer."""
AUDITED = 1_000_000
"""The most runs of one job that an audit reads."""
NEARBY = 1000
"""The most runs of a job that an explanation reads."""
FIGURED = (10, 100_000)
"""Statistics of all jobs read at least this many runs of each job, and about this many in total."""
SEVERAL = 500
"""The most jobs that a pattern may stand for where the runs of each are asked for."""
RECENT = 86400.0
"""Seconds in which failures count as recent."""
FAILURES = 10_000
"""How many of the newest failures are searched for the jobs that fail."""
UNUSUAL = 200
"""Up to so many jobs that are late or paused, and runs of paused ones, are looked at for what is next."""
ALERTS = 1000
"""At most this many open alerts are shown."""
ONE_BY_ONE = 50
"""Up to this many jobs are read one by one, more all at once."""
PAGE = 200
"""How many jobs one query of an audit covers."""
_NOTHING = Past({}, ())


@dataclass(frozen=True, slots=True)
class Overview:
    """How a job does."""

    outcome: JobOutcome | None
    """How its newest run ended; None if it has none."""
    orphaned: str = ""
    """Why no live node can run it; '' if one can."""
    late: bool = False
    """A due time is past its grace, no attempt has begun, and nothing explains it."""


class Lookup:
    """Queries on one application."""

    def __init__(self, application: str, tz: str) -> None:
        self._application, self._tz = application, tz

    def jobs(
        self,
        ledger: Ledger,
        pattern: str | None = None,
        *,
        tag: str | None = None,
        queue: str | None = None,
        removed: bool = False,
        after: str = "",
        limit: int | None = None,
    ) -> list[JobView]:
        """The jobs of this name or pattern, with this tag, on this queue; by name. With `removed` also those that were
        removed and that code still defines. `after` and `limit`: a page of them."""
        now, coverage = ledger.now(), self.coverage(ledger)
        rows = self.rows(ledger, pattern, tag=tag, queue=queue, removed=removed, after=after, limit=limit)
        return self._with_requests(ledger, self._shown_jobs(ledger, rows, now, coverage))

    def coverage(self, ledger: Ledger, *, busy: bool = False) -> Coverage:
        """What the live nodes can run; with `busy` also how many runs each has."""
        running = ledger.running(self._application) if busy else None
        nodes = ledger.nodes(self._application)
        return Coverage(self._application, nodes, running, ledger.silent([node.node for node in nodes]))

    def concerns(self, ledger: Ledger) -> list[Concern]:
        """What needs attention, the worst first."""
        application, coverage = self._application, self.coverage(ledger, busy=True)
        orphaned = ledger.unserved(application, coverage.served, LIMIT)
        overdue = ledger.overdue(application, ledger.now() - SLACK, LIMIT)
        return concerns(coverage, orphaned, overdue, self._removed(ledger, coverage))

    def unfit(self, ledger: Ledger, name: str | None = None) -> list[UnfitArguments]:
        """The stored arguments that do not fit, or only those of one job."""
        found = self.coverage(ledger).unfit
        if name is None or not found:
            return found
        spec = self._row(ledger, name).spec
        return [one for one in found if name in one.named or one.applies_to(spec.name, spec.function, spec.kwargs)]

    def nodes(self, ledger: Ledger) -> list[NodeView]:
        """The nodes that were not declared dead, by label."""
        nodes, running = ledger.nodes(self._application), ledger.running(self._application)
        silent = ledger.silent([node.node for node in nodes])
        having = Counter(function for node in nodes if node.node not in silent for function in node.functions)
        return [
            NodeView.of(
                node,
                running.get(node.node, 0),
                frozenset(function for function in node.functions if having[function] > (node.node not in silent)),
                self._tz,
                silent=node.node in silent,
            )
            for node in nodes
        ]

    def attention(self, ledger: Ledger) -> list[AttentionView]:
        """The same for people."""
        return [AttentionView.of(concern, self._tz) for concern in self.concerns(ledger)]

    def alerts(self, ledger: Ledger, limit: int) -> list[AlertView]:
        """The alerts that were opened: open ones first, then the others, each the newest first."""
        if type(limit) is not int or not 1 <= limit <= MAX_RUNS:
            raise ConfigurationError(f"limit: {limit!r} must be a whole number from 1 to {MAX_RUNS:,}.")
        there = self._open_alerts(ledger)
        if len(there) < limit:
            known = {row.id for row in there}
            there += [row for row in ledger.alert_history(self._application, limit) if row.id not in known]
        return self._told(ledger, there[:limit])

    def open_alerts(self, ledger: Ledger) -> list[AlertView]:
        """The alerts that are open, the newest first, at most `ALERTS`."""
        return self._told(ledger, self._open_alerts(ledger)[:ALERTS])

    def _open_alerts(self, ledger: Ledger) -> list[AlertRow]:
        there = [row for row in ledger.open_alerts(self._application) if row.open]
        return sorted(there, key=lambda row: row.opened_at or 0.0, reverse=True)

    def _told(self, ledger: Ledger, rows: list[AlertRow]) -> list[AlertView]:
        """Alerts with what their sinks were told."""
        told: dict[str, list[AlertMessage]] = {row.id: [] for row in rows}
        for message in ledger.alert_messages(self._application, list(told)):
            told[message.alert.id].append(message)
        return [AlertView.of(row, told[row.id], self._tz) for row in rows]

    def rows(
        self,
        ledger: Ledger,
        pattern: str | None = None,
        *,
        tag: str | None = None,
        queue: str | None = None,
        removed: bool = False,
        after: str = "",
        limit: int | None = None,
    ) -> list[JobRow]:
        """The same, as rows of the ledger."""
        given = None if pattern is None else checked(_storable(pattern))
        query = JobQuery(
            self._application,
            given,
            None if tag is None else tag_of(tag, "tag"),
            None if queue is None else named(queue, "queue"),
            after,
            limit,
        )
        rows = ledger.find_jobs(query)
        if removed and (gone := self._removed(ledger, None)):
            rows += [
                row
                for row in gone
                if row.spec.name > after
                and (given is None or matches(given, row.spec.name))
                and (tag is None or tag in row.spec.rules.tags)
                and queue in {None, row.spec.rules.queue}
            ]
            rows.sort(key=lambda row: row.spec.name)
        return rows[:limit]

    def _removed(self, ledger: Ledger, coverage: Coverage | None) -> list[JobRow]:
        """Jobs that were removed by hand and that code still defines: a live node has their function, or a start has
        defined them since."""
        gone = ledger.removed(self._application)
        if gone and coverage is None:
            coverage = self.coverage(ledger)
        return [
            row
            for row in gone
            if (coverage and coverage.has(row.spec.function)) or row.defined_at > (row.removed_at or 0.0)
        ]

    def those(self, ledger: Ledger, names: Iterable[str]) -> list[JobView]:
        """The jobs of these names, as far as they exist."""
        now, coverage = ledger.now(), self.coverage(ledger)
        rows = [row for name in names for row in ledger.jobs(self._application, name)]
        return self._shown_jobs(ledger, rows, now, coverage)

    def job(self, ledger: Ledger, name: str) -> JobView:
        """One job."""
        row = operations.known(ledger, self._application, name)
        view = self.shown_job(ledger, row, ledger.now(), self.coverage(ledger))
        return self._with_requests(ledger, [view])[0]

    def runs(
        self,
        ledger: Ledger,
        job: str | None,
        *,
        since: datetime | str | None,
        until: datetime | str | None,
        state: States | None,
        limit: int,
        after: tuple[Instant, RunId] | None = None,
    ) -> list[RunView]:
        """Runs, the newest first; those that follow a run of this due time and number."""
        if type(limit) is not int or not 1 <= limit <= MAX_RUNS:
            raise ConfigurationError(f"limit: {limit!r} must be a whole number from 1 to {MAX_RUNS:,}.")
        now = ledger.now()
        query = RunQuery(
            self._application,
            None if job is None else _storable(job),
            operations.states(state),
            None if since is None else operations.point(since, now, "since"),
            None if until is None else operations.point(until, now, "until"),
            limit=limit,
        )
        if after is not None and (query.before is None or after[0] < query.before):
            query = replace(query, before=after[0], below=after[1])
        if job is not None and is_pattern(job) and not ledger.jobs(self._application, job, removed=True):
            return self.shown_runs(ledger, self._runs_of_several(ledger, job, query))
        rows = ledger.runs(query)
        if job is not None and not rows:
            self._row(ledger, job)
        return self.shown_runs(ledger, rows)

    def _runs_of_several(self, ledger: Ledger, pattern: str, query: RunQuery) -> list[RunRow]:
        """The runs of the jobs that a pattern stands for."""
        jobs = self.rows(ledger, pattern, removed=True)
        if len(jobs) > SEVERAL:
            raise ConfigurationError(
                f"runs: {pattern!r} stands for {len(jobs):,} jobs, and at most {SEVERAL} are looked at. Write a "
                "pattern for fewer of them, or name none: then the runs of all jobs are listed."
            )
        rows = [row for job in jobs for row in ledger.runs(replace(query, job=job.spec.name))]
        return sorted(rows, key=lambda row: (row.scheduled_for, row.id), reverse=True)[: query.limit]

    def run(self, ledger: Ledger, run: int | str, job: str | None = None) -> RunView:
        """One run with its attempts, by its number or by its key."""
        row = operations.found(ledger, self._application, run, job)
        where, known = self._zone_of(ledger, row), self._beside(ledger, [row])
        if not row.attempt:
            return RunView.of(row, where, **known(row))
        return RunView.of(
            row,
            where,
            **known(row),
            progress=ledger.progress([row.id]).get(row.id),
            result=ledger.result(row.id) if row.state is RunState.SUCCEEDED else None,
            attempts=ledger.attempts(row.id),
        )

    def log(self, ledger: Ledger, run: int | str, job: str | None = None) -> list[LogLineView]:
        """What its attempts logged, with a line for lines that were dropped."""
        row = operations.found(ledger, self._application, run, job)
        where = self._zone_of(ledger, row)
        return [LogLineView.of(line, where) for line in with_gaps(ledger.log(row.id))]

    def backfills(self, ledger: Ledger, job: str | None, limit: int) -> list[BackfillView]:
        """The newest backfills, or those of a job, which may be removed."""
        if job is not None:
            self._row(ledger, job)
        if type(limit) is not int or limit < 1:
            raise ConfigurationError(f"limit: {limit!r:.40} is not a number from 1 on.")
        return self.shown_backfills(ledger, ledger.backfills(self._application, job=job, limit=limit))

    def shown_backfills(self, ledger: Ledger, rows: list[BackfillRow]) -> list[BackfillView]:
        """The views of backfills, each in the zone of its job."""
        triggers = ledger.triggers({row.job for row in rows}) if rows else {}
        return [BackfillView.of(row, zone_of(triggers.get(row.job), row.since, default=self._tz)) for row in rows]

    def actions(
        self,
        ledger: Ledger,
        job: str | None,
        *,
        since: datetime | str | None,
        until: datetime | str | None,
        by: str | None,
        limit: int,
        below: int | None = None,
    ) -> list[ActionView]:
        """What people did, the newest first; below an action of this number.

        All times are in the zone of the application.
        """
        if type(limit) is not int or not 1 <= limit <= MAX_RUNS:
            raise ConfigurationError(f"limit: {limit!r} must be a whole number from 1 to {MAX_RUNS:,}.")
        if by is not None:
            operations.ChangeNote(by)  # what is wrong with it is said there
        now = ledger.now()
        query = ActionQuery(
            self._application,
            None if job is None else _storable(job),
            by,
            None if since is None else operations.point(since, now, "since"),
            None if until is None else operations.point(until, now, "until"),
            limit=limit,
            below=below,
        )
        where = zone_of(None, default=self._tz)
        return [ActionView.of(row, where) for row in ledger.actions(query)]

    def next(self, ledger: Ledger, n: int) -> list[tuple[datetime, str]]:
        """The next due times of all jobs, in order."""
        if type(n) is not int or not 0 <= n <= MAX_RUNS:
            raise ConfigurationError(f"next: n={n!r} must be a whole number from 0 to {MAX_RUNS:,}.")
        now = ledger.now()
        return self.next_of(ledger, self._due_next(ledger, now, n), now, n)

    def _due_next(self, ledger: Ledger, now: Instant, n: int) -> list[JobRow]:
        """Jobs that have the next `n` due times among them: not all jobs, unless unusually many are late or paused.

        Of due times that are not planned, the next `n` are those of the `n` jobs whose `next_due` is the nearest. The
        planned ones, and the runs that were requested for later, are pending runs.
        """
        application = self._application
        planned = ledger.planned_beyond(application, (0.0, JobId(0)), n + UNUSUAL)
        late = sum(row.next_due is not None and row.next_due <= now for row in planned)
        held, paused = ledger.job_page(JobPageQuery(application, state=JobState.PAUSED, limit=UNUSUAL))
        limit = n + UNUSUAL
        query = RunQuery(application, states=(RunState.PENDING,), since=now, limit=limit, oldest_first=True)
        runs, waiting = ledger.runs(query), {row.spec.name for row in held}
        crowded = len(runs) == limit and sum(run.name not in waiting for run in runs) < n
        if late > UNUSUAL or paused > UNUSUAL or crowded:
            return ledger.jobs(application)
        names = tuple(sorted({run.name for run in runs}))
        begun, _ = ledger.job_page(JobPageQuery(application, names=names, limit=limit))
        return [*{row.id: row for row in (*planned, *held, *begun)}.values()]

    def next_of(self, ledger: Ledger, rows: Sequence[JobRow], now: Instant, n: int) -> list[tuple[datetime, str]]:
        """The next due times of these jobs, in order, and of the runs of them that were requested for later."""
        due = islice(heapq.merge(*(_walk(row, moment(now)) for row in rows)), n)
        active = {row.spec.name for row in rows if row.state is JobState.ACTIVE}
        asked = ((run.scheduled_for, run.job) for run in self.coming(ledger, MAX_RUNS) if run.job in active)
        return sorted([*due, *asked], key=lambda one: one[0])[:n]

    def overview(
        self, ledger: Ledger, pattern: str | None = None, *, tag: str | None = None, queue: str | None = None
    ) -> list[tuple[JobView, Overview]]:
        """The jobs that match, by name, also those that code defines although they were removed; and how they do."""
        rows, now = self.rows(ledger, pattern, tag=tag, queue=queue, removed=True), ledger.now()
        outcomes = {one.name: one for one in ledger.outcomes(self._application, since=now - RECENT)}
        coverage = self.coverage(ledger)
        late = {one.name for one in ledger.overdue(self._application, now - SLACK, MAX_RUNS)}
        views = self._with_requests(ledger, self._shown_jobs(ledger, rows, now, coverage))
        return [
            (view, Overview(outcomes.get(row.spec.name), _orphaned(row, coverage), row.spec.name in late))
            for view, row in zip(views, rows, strict=True)
        ]

    def seen(self, ledger: Ledger, row: JobRow) -> Overview:
        """How one job does."""
        outcomes = ledger.outcomes(self._application, since=ledger.now() - RECENT, name=row.spec.name)
        overdue = ledger.overdue(self._application, ledger.now() - SLACK, MAX_RUNS)
        late = any(one.job == row.id for one in overdue)
        return Overview(outcomes[0] if outcomes else None, _orphaned(row, self.coverage(ledger)), late)

    def failing(self, ledger: Ledger) -> list[JobOutcome]:
        """The jobs whose newest run failed or was lost, and those that failed in the last day; the longest series of
        failures first."""
        found = ledger.outcomes(self._application, since=ledger.now() - RECENT, failing=FAILURES)
        return sorted(found, key=lambda one: (-one.failures, -one.recent, one.name))

    def changes(self, ledger: Ledger, name: str, n: int) -> list[ChangeRecord]:
        """The newest changes of a job, newest first."""
        return ledger.changes(self._application, name)[: -n - 1 : -1]

    def _with_requests(self, ledger: Ledger, jobs: list[JobView]) -> list[JobView]:
        """Jobs that are due next by their triggers, or because a run was requested for a time before."""
        nearest: dict[str, datetime] = {}
        for run in self.coming(ledger, MAX_RUNS):
            nearest.setdefault(run.job, run.scheduled_for)
        return [
            replace(job, next_due=min(filter(None, (job.next_due, nearest[job.name]))))
            if job.name in nearest and job.state == "active"
            else job
            for job in jobs
        ]

    def coming(self, ledger: Ledger, limit: int) -> list[RunView]:
        """The runs that were requested for a time to come, the nearest first."""
        return self.shown_runs(ledger, ledger.coming(self._application, limit))

    def figures(self, ledger: Ledger) -> list[tuple[JobView, StatsView]]:
        """All jobs by name, also removed ones that code still defines, each with statistics of its last runs.

        The more jobs there are, the fewer runs of each are counted.
        """
        rows, now, coverage = self.rows(ledger, removed=True), ledger.now(), self.coverage(ledger)
        last = min(max(FIGURED[1] // max(len(rows), 1), FIGURED[0]), NEARBY)
        figures = ledger.figures(self._application, last)
        views = self._with_requests(ledger, self._shown_jobs(ledger, rows, now, coverage))
        zones = self.zones(ledger, rows)
        return [
            (view, StatsView.of(row.spec.name, found, zones[row.id]))
            for row, view in zip(rows, views, strict=True)
            if (found := figures.get(row.spec.name)) is not None
        ]

    def history(
        self, ledger: Ledger, name: str, since: datetime | str, until: datetime | str | None, by: str
    ) -> list[FiguresView]:
        """The figures of a job by hour or by day, oldest first."""
        if by not in {"hour", "day"}:
            raise ConfigurationError(f"by: {by!r} must be 'hour' or 'day'.")
        now, row = ledger.now(), self._row(ledger, _storable(name))
        first = operations.point(since, now, "since")
        last = now if until is None else operations.point(until, now, "until")
        width, look = (HOUR, ledger.hours) if by == "hour" else (DAY, ledger.days)
        found = look(self._application, row.spec.name, first // width * width, last)
        return [FiguresView.of(name, one) for one in found]

    def stats(self, ledger: Ledger, name: str) -> StatsView:
        """Statistics of the last runs of a job."""
        row = self._row(ledger, _storable(name))
        return StatsView.of(name, ledger.stats(self._application, name), self.zone(ledger, row))

    def audit(
        self,
        ledger: Ledger,
        name: str | None,
        since: datetime | str,
        until: datetime | str | None,
        progress: Callable[[int, int], None] | None = None,
        *,
        spend: Spend | None = None,
    ) -> list[JobAudit]:
        """What became of every due time of a span, job by job. `spend` is told of due times twice: before their runs
        are read, as far as they can be counted, and when they are gone through."""
        now = ledger.now()
        start = operations.point(since, now, "since")
        end = now if until is None else operations.point(until, now, "until")
        coverage = self.coverage(ledger, busy=True)
        if name is not None:
            return [self._audited(ledger, self._row(ledger, _storable(name)), start, end, coverage, spend=spend)]
        rows = ledger.jobs(self._application, removed=True)
        zones = self.zones(ledger, rows)
        changes: dict[JobId, list[ChangeRecord]] = {}
        for change in ledger.changes(self._application):
            changes.setdefault(change.job, []).append(change)
        found: list[JobAudit] = []
        for first in range(0, len(rows), PAGE):
            page = rows[first : first + PAGE]
            if spend is not None:
                spend(sum(_due(row, changes.get(row.id, ()), start, end) for row in page))
            past = ledger.past([row.id for row in page], start, end)
            for row in page:
                runs = past.get(row.id, _NOTHING)
                if followed_jobs(row, changes.get(row.id, ())):
                    found.append(self._audited(ledger, row, start, end, coverage, spend=spend))
                    continue
                audited = audit_of(
                    row,
                    changes.get(row.id, ()),
                    runs.others,
                    since=start,
                    until=end,
                    now=now,
                    plain=runs.plain,
                    coverage=coverage,
                    zone=zones[row.id],
                    spend=spend,
                )
                if not audited.clean:  # what it read may have changed meanwhile, and it has not read all
                    audited = self._audited(ledger, self._row(ledger, row.spec.name), start, end, coverage, spend=spend)
                found.append(audited)
            if progress is not None:
                progress(len(found), len(rows))
        return found

    def why(self, ledger: Ledger, name: str, at: datetime | str | None) -> Explanation:
        """Why a job ran, or did not, at a time or now."""
        row, now = self._row(ledger, _storable(name)), ledger.now()
        when = None if at is None else operations.point(at, now, "at")
        query = RunQuery(self._application, name, before=None if when is None else when + 86400.0, limit=NEARBY)
        changes = ledger.changes(self._application, name)
        coverage = self.coverage(ledger, busy=True)
        parent, followed = None, []
        if (parent_name := row.spec.rules.after) is not None:
            parents = ledger.jobs(self._application, parent_name, removed=True)
            parent, followed = parents[0] if parents else None, ledger.runs(replace(query, job=parent_name))
        return explain(
            row,
            changes,
            ledger.runs(query),
            at=when,
            now=now,
            coverage=coverage,
            zone=self.zone(ledger, row),
            parent=parent,
            followed=followed,
        )

    def why_run(self, ledger: Ledger, run: int | str, job: str | None = None) -> Explanation:
        """What became of a run, or what it waits for."""
        found = operations.found(ledger, self._application, run, job)
        row, query = self._row(ledger, found.name), RunQuery(self._application, found.name, limit=NEARBY)
        around = ledger.runs(replace(query, before=found.scheduled_for + 86400.0))
        there = {one.id: one for one in (*around, *ledger.runs(replace(query, states=tuple(OPEN))), found)}
        return explain_run(
            row,
            ledger.changes(self._application, found.name),
            there.values(),
            found,
            now=ledger.now(),
            coverage=self.coverage(ledger, busy=True),
            zone=self._zone_of(ledger, found),
        )

    def shown_job(
        self,
        ledger: operations.Looks,
        row: JobRow,
        now: float,
        coverage: Coverage | None = None,
        where: tzinfo | None = None,
    ) -> JobView:
        """The view of a job. Without `coverage` it does not say whether the job is orphaned. `where` is its zone, if
        that is known."""
        return JobView.of(row, self.zone(ledger, row) if where is None else where, now, coverage)

    def _shown_jobs(self, ledger: Ledger, rows: list[JobRow], now: float, coverage: Coverage) -> list[JobView]:
        zones = self.zones(ledger, rows)
        return [self.shown_job(ledger, row, now, coverage, zones[row.id]) for row in rows]

    def shown_run(self, ledger: operations.Looks, row: RunRow) -> RunView:
        """The view of a run, in the zone of its job."""
        return RunView.of(row, self._zone_of(ledger, row))

    def shown_runs(self, ledger: Ledger, rows: list[RunRow]) -> list[RunView]:
        """The views of runs, each in the zone of its job."""
        if not rows:
            return []
        triggers, known = ledger.triggers({row.job for row in rows}), self._beside(ledger, rows)
        running = [row.id for row in rows if row.state is RunState.RUNNING]
        progress = ledger.progress(running) if running else {}
        return [
            RunView.of(
                row,
                zone_of(triggers.get(row.job), row.scheduled_for, default=self._tz),
                progress=progress.get(row.id),
                **known(row),
            )
            for row in rows
        ]

    def _beside(self, ledger: Ledger, rows: Sequence[RunRow]) -> Callable[[RunRow], dict[str, Any]]:
        """What the view of a run needs to know besides its row, if it is running or waits behind others."""
        held = [row for row in rows if row.state is RunState.WAITING and not row.pool]
        there = [row for row in rows if row.state is RunState.RUNNING] + held
        if not there:
            return lambda _: {}
        now, jobs = ledger.now(), self._those(ledger, {row.name for row in there})
        names, others = {row.name for row in held}, []
        if names:
            query = RunQuery(self._application, next(iter(names)) if len(names) == 1 else None, states=tuple(OPEN))
            others = ledger.runs(replace(query, limit=MAX_RUNS))

        def known(row: RunRow) -> dict[str, Any]:
            job = jobs.get(row.job)
            return {"now": now, "rules": None if job is None else job.spec.rules, "others": others}

        return known

    def _those(self, ledger: operations.Looks, names: Collection[str]) -> dict[JobId, JobRow]:
        """The jobs of these names, also removed ones."""
        if len(names) > ONE_BY_ONE:
            rows = ledger.jobs(self._application, removed=True)
        else:
            rows = [row for name in names for row in ledger.jobs(self._application, name, removed=True)]
        return {row.id: row for row in rows}

    def _audited(
        self, ledger: Ledger, row: JobRow, start: Instant, end: Instant, coverage: Coverage, *, spend: Spend | None
    ) -> JobAudit:
        """Audit one job from everything the ledger has of it.

        If that finds something, audit once more: retention may have removed runs between the queries.
        """
        name, zone = row.spec.name, self.zone(ledger, row)
        query = RunQuery(self._application, name, since=start, before=end, limit=AUDITED, oldest_first=True)

        def look(row: JobRow) -> JobAudit:
            changes = ledger.changes(self._application, name)
            if spend is not None:
                spend(_due(row, changes, start, end))
            parents = {parent: self._parent(ledger, parent, start, end) for parent in followed_jobs(row, changes)}
            if not parents:
                runs = ledger.runs(query)
                return audit_of(
                    row,
                    changes,
                    runs,
                    since=start,
                    until=end,
                    now=ledger.now(),
                    coverage=coverage,
                    zone=zone,
                    spend=spend,
                )
            past, now = ledger.past([row.id], start, end).get(row.id, _NOTHING), ledger.now()
            there = {name: parent for name, parent in parents.items() if parent is not None}
            span: dict[str, float] = {"since": start, "until": end, "now": now}
            following, left = audit_follower(row, changes, past, there, **span, coverage=coverage, zone=zone)
            alone = audit_of(
                row, changes, left.others, **span, plain=left.plain, coverage=coverage, zone=zone, spend=spend
            )
            return merged(following, alone)

        audited = look(row)
        return audited if audited.clean else look(self._row(ledger, name))

    def _parent(self, ledger: Ledger, name: str, start: Instant, end: Instant) -> ParentPast | None:
        """What the ledger has of a job that another follows. None if that job is forgotten."""
        rows = ledger.jobs(self._application, name, removed=True)
        if not rows:
            return None
        past = ledger.past([rows[0].id], start, end).get(rows[0].id, _NOTHING)
        return ParentPast(rows[0], past, [one for one in ledger.owed(self._application, AUDITED) if one.job == name])

    def row(self, ledger: Ledger, name: str) -> JobRow:
        """A job, also one that was removed, as the ledger has it."""
        return self._row(ledger, _storable(name))

    def _row(self, ledger: Ledger, name: str) -> JobRow:
        """A job, even if it was removed: its history is still there."""
        rows = ledger.jobs(self._application, name, removed=True)
        if not rows:
            raise operations.unknown(ledger, self._application, name)
        return rows[0]

    # Zones

    def zone(self, ledger: operations.Looks, row: JobRow) -> tzinfo:
        """The zone of a job: that of its trigger, of the job that it follows, or of the application."""
        return self.zones(ledger, [row])[row.id]

    def zones(self, ledger: operations.Looks, rows: Iterable[JobRow]) -> dict[JobId, tzinfo]:
        """The zones of these jobs."""
        there = list(rows)
        triggers = self._triggers(ledger, there)
        return {row.id: zone_of(triggers[row.id], default=self._tz) for row in there}

    def _zone_of(self, ledger: operations.Looks, row: RunRow) -> tzinfo:
        """The zone of a run."""
        jobs = [job for job in ledger.jobs(self._application, row.name, removed=True) if job.id == row.job]
        return zone_of(self._triggers(ledger, jobs).get(row.job), row.scheduled_for, default=self._tz)

    def _triggers(self, ledger: operations.Looks, rows: Iterable[JobRow]) -> dict[JobId, str | None]:
        """What `Ledger.triggers` answers, where the rows are there."""
        there = list(rows)
        known: dict[str, JobSpec | None] = {row.spec.name: row.spec for row in there}

        def spec(application: str, name: str) -> JobSpec | None:
            if name not in known:
                jobs = ledger.jobs(application, name, removed=True)
                known[name] = jobs[0].spec if jobs else None
            return known[name]

        return {row.id: first_trigger(row.spec, spec) for row in there}


def _storable(name: object) -> str:
    """A name to look for. Names that are refused for new jobs are allowed: another program may have written them."""
    if not isinstance(name, str):
        raise ConfigurationError(f"job name: {name!r} is {a_type(name)}. Write a text.")
    if wrong := next((c for c in name if c == "\0" or "\ud800" <= c <= "\udfff"), None):
        raise ConfigurationError(f"job name: {name!r} contains {wrong!r}, which cannot be shown. Leave it out.")
    return name


def _due(row: JobRow, changes: Sequence[ChangeRecord], start: Instant, end: Instant) -> int:
    """How many due times an audit of a job goes through, as far as they can be counted."""
    return sum(stretch.count(start, end) for stretch in stretches(row, changes))


def _orphaned(row: JobRow, coverage: Coverage) -> str:
    """Why no live node can run an active job; '' if one can, and if there is no node at all, which is said once."""
    if not coverage.nodes or row.state is not JobState.ACTIVE:
        return ""
    gap = coverage.gap(row.spec.function, row.spec.rules.queue)
    return "" if gap is None else gap.text


def _walk(row: JobRow, now: datetime) -> Iterator[tuple[datetime, str]]:
    """The due times of a job from now on, or from the end of its pause."""
    if row.spec.trigger is None or (row.state is not JobState.ACTIVE and row.paused_until is None):
        return
    trigger, _ = read_trigger(row.spec.trigger)
    if trigger is None:
        return
    due: datetime | None = now if row.paused_until is None else max(now, moment(row.paused_until))
    while due is not None:
        try:
            due = trigger.next_after(due)
        except ConfigurationError:
            return  # `jobs` says what is wrong with it
        if due is not None:
            yield due, row.spec.name
