"""What the pages show, read from the ledger as `tenure status`, `jobs`, `runs` and `why` read it.

Every number is bounded here: jobs of a page, runs of a strip, lines of a log. A page reads over one connection; at most
`AT_ONCE` pages are read at a time in one process, so that many open browsers leave the database to the workers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from typing import Any, TypeVar

from tenure.core.audit import JobAudit
from tenure.core.explain import last_line
from tenure.core.keys import planner_of
from tenure.core.messages import JobOutcome, RunQuery
from tenure.core.records import UNBEGUN, Change, JobRow, JobState, RunRow, RunState
from tenure.core.trigger_text import read_trigger, zone_of
from tenure.core.verdict import verdict
from tenure.errors import Busy, ConfigurationError
from tenure.jobs import operations
from tenure.scheduler import Scheduler, service_of
from tenure.stores.ledger import Ledger
from tenure.triggers.base import ClockChange
from tenure.util.clock import boottime
from tenure.util.durations import readable
from tenure.util.instants import moment
from tenure.views import AttentionView, JobView, Leader, LogLineView, NodeView, RunView, TermRecord

STRIP = 60
"""Runs of a strip."""
JOBS, RUNS, DUE, CHANGES, TERMS = 50, 50, 10, 50, 1
"""Jobs, runs, due times, changes and handovers of a page."""
NEXT = 5
"""Due times of one job."""
LINES, LINE = 2000, 4000
"""Log lines of a run, and characters of one, that a page shows."""
RECENT = 86400.0
FAILED_JOBS = 20
"""Failing jobs that are shown."""
COUNTED = 10_000
"""Failures of a day are counted up to this number."""
AT_ONCE, PATIENCE = 2, 5.0
"""Pages that are read at a time, and how many seconds another one waits for its turn."""
FRESH = 1.0
"""Seconds for which an answer serves other browsers that ask the same."""
SPAN = 31 * 86400.0
"""The longest span of an audit on the page."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JobStrip:
    """A job in the list, with its last runs, the newest first."""

    job: JobView
    runs: tuple[RunRow, ...]
    zone: tzinfo

    @property
    def last(self) -> RunRow | None:
        """The last run that ended by running."""
        return next((run for run in self.runs if run.state in _RAN), None)

    @property
    def last_at(self) -> datetime | None:
        """When that was."""
        last = self.last
        return None if last is None else moment(last.finished_at or last.due_at, self.zone)

    @property
    def typical(self) -> float | None:
        """The median duration, in seconds."""
        durations = self.durations
        return durations[len(durations) // 2] if durations else None

    @property
    def durations(self) -> list[float]:
        """Seconds, ascending."""
        return sorted(
            max(run.finished_at - run.started_at, 0.0) for run in self.runs if run.finished_at and run.started_at
        )

    @property
    def lateness(self) -> float | None:
        """The longest time that one of these runs began after it was allowed to."""
        began = [run.started_at - run.due_at for run in self.runs if run.started_at and run.state not in UNBEGUN]
        return max(0.0, *began) if began else None

    @property
    def success(self) -> tuple[int, int]:
        """How many of those that ran succeeded, and how many ran."""
        ran = [run for run in self.runs if run.state in _RAN]
        return sum(run.state is RunState.SUCCEEDED for run in ran), len(ran)


_RAN = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.LOST})


@dataclass(frozen=True, slots=True)
class Now:
    """The first page."""

    at: datetime
    ok: bool
    verdict: str
    mood: str
    """'fine', 'look' or 'act'."""
    attention: tuple[AttentionView, ...]
    planner: Leader | None
    handover: TermRecord | None
    nodes: tuple[NodeView, ...]
    open: dict[str, int]
    bad: int
    """How many runs failed or were lost in a day."""
    failures: tuple[tuple[JobOutcome, datetime], ...]
    """The jobs of these runs, the latest first, and when they ended."""
    due: tuple[tuple[datetime, str], ...]
    lines: tuple[JobStrip, ...]
    jobs: int
    """How many there are, and …"""
    found: int
    """… how many of them were asked for."""
    first: int
    """The place of the first one shown."""


@dataclass(frozen=True, slots=True)
class ChangeLine:
    """A line of the history of a job."""

    at: datetime
    what: str
    by: str
    why: str
    until: datetime | None


@dataclass(frozen=True, slots=True)
class JobPage:
    """A job."""

    at: datetime
    line: JobStrip
    times: tuple[datetime, ...]
    clock_changes: tuple[ClockChange, ...]
    explained: str
    runs: tuple[RunView, ...]
    older: datetime | None
    """From which instant on the next page looks back."""
    changes: tuple[ChangeLine, ...]
    why: str
    """What the job is doing."""

    @property
    def job(self) -> JobView:
        """The job."""
        return self.line.job


@dataclass(frozen=True, slots=True)
class RunPage:
    """A run."""

    at: datetime
    run: RunView
    told: str
    """What became of it, in a sentence."""
    log: tuple[LogLineView, ...]
    cut: int
    """How many log lines before these are not shown."""
    kwargs: dict[str, Any]
    own: bool
    """Whether these arguments were given for this run, and are not those of the job."""
    before: RunView | None
    after: RunView | None


@dataclass(frozen=True, slots=True)
class AuditPage:
    """What became of every due time."""

    at: datetime
    found: tuple[JobAudit, ...]
    due: int
    clean: bool
    took: float


class Reader:
    """Asks the ledger. Every method blocks, so the pages call it on threads."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._service = service_of(scheduler)
        self._lookup = self._service.lookup
        self._places = threading.BoundedSemaphore(AT_ONCE)
        self._auditing = threading.Lock()
        self._known: dict[Hashable, tuple[float, object]] = {}
        self._mutex = threading.Lock()

    @property
    def application(self) -> str:
        """Whose jobs these are."""
        return self.scheduler.application

    @property
    def zone(self) -> tzinfo:
        """The zone of the application."""
        return zone_of(None, default=self._service.definitions.tz)

    def forget(self) -> None:
        """Something was changed from here: the next page is read anew."""
        with self._mutex:
            self._known.clear()

    def stamp(self) -> Hashable:
        """A small answer that differs if the pages have changed. Cheap: it is asked all the time."""
        application = self.application
        with self._place(), self._service.session() as session:
            ledger = session.ledger
            now = ledger.now()
            newest = ledger.runs(RunQuery(application, before=now, limit=STRIP))
            return (
                session.leader(planner_of(application)),
                tuple(
                    (node.node, node.plans, node.capacity, len(node.functions)) for node in ledger.nodes(application)
                ),
                tuple(ledger.tally(application, now - RECENT, COUNTED)),
                tuple((run.id, run.state, run.attempt, run.stopping, run.started_at) for run in newest),
            )

    def now(self, search: str, state: str, first: int) -> Now:
        """The first page, for jobs whose names contain a text, in a state."""
        return self._fresh(("now", search, state, first), lambda: self._now(search, state, first))

    def _now(self, search: str, state: str, first: int) -> Now:
        application, lookup = self.application, self._lookup
        with self._place(), self._service.session() as session:
            ledger = session.ledger
            now, rows = ledger.now(), lookup.rows(ledger, removed=True)
            tally = ledger.tally(application, now - RECENT, COUNTED)
            election = planner_of(application)
            planner, terms = session.leader(election), session.terms(election, TERMS)
            nodes, attention = lookup.nodes(ledger), lookup.attention(ledger)
            asked = [
                row
                for row in rows
                if search.casefold() in row.spec.name.casefold() and (not state or row.state.value == state)
            ]
            first = min(max(first, 0), max(len(asked) - 1, 0) // JOBS * JOBS)
            lines = tuple(self._line(ledger, row, now) for row in asked[first : first + JOBS])
            due = tuple(lookup.next_of(rows, now, DUE))
            outcomes = lookup.failing(ledger)
        failing = sum(one.failures > 0 for one in outcomes)
        live = sum(row.state is not JobState.REMOVED for row in rows)
        judged = verdict(application, planner, live, attention, failing)
        latest = sorted(outcomes, key=lambda one: -one.at)
        return Now(
            at=moment(now, self.zone),
            ok=judged.ok,
            verdict=judged.text,
            mood="act" if not judged.ok else "look" if attention or failing else "fine",
            attention=tuple(attention),
            planner=planner,
            handover=terms[0] if terms else None,
            nodes=tuple(nodes),
            open={
                one.value: sum(part.runs for part in tally if part.state is one)
                for one in (RunState.RUNNING, RunState.WAITING, RunState.PENDING)
            },
            bad=sum(part.runs for part in tally if part.state.final),
            failures=tuple((one, moment(one.at, self.zone)) for one in latest[:FAILED_JOBS]),
            due=due,
            lines=lines,
            jobs=len(rows),
            found=len(asked),
            first=first,
        )

    def job(self, name: str, before: datetime | None) -> JobPage:
        """A job, with its runs before an instant."""
        _check_name(name)
        return self._fresh(("job", name, before), lambda: self._job(name, before))

    def _job(self, name: str, before: datetime | None) -> JobPage:
        application, lookup = self.application, self._lookup
        with self._place(), self._service.session() as session:
            ledger = session.ledger
            rows = ledger.jobs(application, name, removed=True)
            if not rows:
                raise operations.unknown(ledger, application, name)
            row, now = rows[0], ledger.now()
            line = self._line(ledger, row, now)
            until = now + 1e-6 if before is None else before.timestamp()
            found = ledger.runs(RunQuery(application, name, before=until, limit=RUNS + 1))
            runs = tuple(lookup.shown_runs(ledger, found[:RUNS]))
            changes = ledger.changes(application, name)[-CHANGES:]
            why = lookup.why(ledger, name, None).text
        trigger, _ = read_trigger(row.spec.trigger)
        times: tuple[datetime, ...] = ()
        clock_changes: tuple[ClockChange, ...] = ()
        explained = ""
        if trigger is not None:
            try:
                preview = trigger.preview(NEXT if row.state.value == "active" else 0, moment(now))
                times, clock_changes, explained = preview.times, preview.changes, preview.explanation
            except ConfigurationError as error:
                explained = f"cannot be planned: {error}"
        return JobPage(
            at=moment(now, self.zone),
            line=line,
            times=times,
            clock_changes=clock_changes,
            explained=explained or line.job.trigger,
            runs=runs,
            older=runs[-1].scheduled_for if len(found) > RUNS else None,
            changes=tuple(
                ChangeLine(
                    moment(one.at, line.zone),
                    one.what.value,
                    one.by,
                    one.why,
                    None if one.until is None or one.what is not Change.PAUSED else moment(one.until, line.zone),
                )
                for one in reversed(changes)
            ),
            why=why,
        )

    def why(self, name: str, at: str) -> str:
        """Why a job ran, or did not, at a time as people write it; without a zone, that of the job."""
        _check_name(name)
        with self._place(), self._service.session() as session:
            ledger = session.ledger
            rows = ledger.jobs(self.application, name, removed=True)
            when: datetime | str = at.strip()
            if rows and isinstance(when, str) and not when.startswith("-"):
                when = _in_zone(when, zone_of(rows[0].spec.trigger, default=self._service.definitions.tz))
            return self._lookup.why(ledger, name, when).text

    def run(self, number: int) -> RunPage:
        """A run."""
        return self._fresh(("run", number), lambda: self._run(number))

    def _run(self, number: int) -> RunPage:
        lookup = self._lookup
        with self._place(), self._service.session() as session:
            ledger = session.ledger
            now, run = ledger.now(), lookup.run(ledger, number)
            lines = lookup.log(ledger, number)
            own = run.kwargs is not None
            job = ledger.jobs(self.application, run.job, removed=True)
            kwargs = run.kwargs if run.kwargs is not None else self._lookup.shown_job(job[0], now).kwargs if job else {}
            at = run.scheduled_for.timestamp()
            near = RunQuery(self.application, run.job, before=at, limit=1)
            before = lookup.shown_runs(ledger, ledger.runs(near))
            later = RunQuery(self.application, run.job, since=at + 1e-6, before=now, limit=1, oldest_first=True)
            after = lookup.shown_runs(ledger, ledger.runs(later))
        return RunPage(
            at=moment(now, self.zone),
            run=run,
            told=_told(run, moment(now, self.zone)),
            log=tuple(replace(line, text=line.text[:LINE]) for line in lines[-LINES:]),
            cut=max(len(lines) - LINES, 0),
            kwargs=kwargs,
            own=own,
            before=before[0] if before else None,
            after=after[0] if after else None,
        )

    def audit(self, name: str, since: str, until: str) -> AuditPage:
        """What became of every due time of a span. One at a time in a process, because it may take long."""
        return self._fresh(("audit", name, since, until), lambda: self._audit(name, since, until))

    def _audit(self, name: str, since: str, until: str) -> AuditPage:
        if not self._auditing.acquire(timeout=PATIENCE):
            raise Busy("Another audit is being made. Try again in a moment, or run `tenure audit`.")
        try:
            with self._service.session() as session:
                ledger, began = session.ledger, boottime()
                now = ledger.now()
                start = operations.point(since, now, "since")
                end = now if not until else operations.point(until, now, "until")
                if end - start > SPAN:
                    raise ConfigurationError(
                        "The span is longer than 31 days. Take a shorter one, or run `tenure audit`."
                    )
                found = self._lookup.audit(ledger, name or None, moment(start), moment(end))
        finally:
            self._auditing.release()
        return AuditPage(
            at=moment(now, self.zone),
            found=tuple(sorted(found, key=lambda one: (one.clean, one.name))),
            due=sum(one.due for one in found),
            clean=all(one.clean for one in found),
            took=boottime() - began,
        )

    def _line(self, ledger: Ledger, row: JobRow, now: float) -> JobStrip:
        query = RunQuery(self.application, row.spec.name, before=now, limit=STRIP)
        return JobStrip(self._lookup.shown_job(row, now), tuple(ledger.runs(query)), self._lookup.zone(row))

    @contextmanager
    def _place(self) -> Iterator[None]:
        if not self._places.acquire(timeout=PATIENCE):
            raise Busy("Too many pages are being read at the same time. Try again in a moment.")
        try:
            yield
        finally:
            self._places.release()

    def _fresh(self, question: Hashable, ask: Callable[[], T]) -> T:
        """The answer to the same question a moment ago, or a new one."""
        with self._mutex:
            known = self._known.get(question)
            if known is not None and boottime() - known[0] < FRESH:
                return known[1]  # type: ignore[return-value]  # it was put there under this question
        asked = boottime()
        answer = ask()
        with self._mutex:
            self._known = {key: kept for key, kept in self._known.items() if asked - kept[0] < FRESH}
            self._known[question] = asked, answer
        return answer


def _check_name(name: str) -> None:
    if "\0" in name:
        raise ConfigurationError("The name of a job cannot contain the character NUL.")


def _in_zone(text: str, zone: tzinfo) -> datetime:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"at: {text!r:.60} is not a time. Write it as 2026-11-14 12:00 (in the job's zone), or with a zone: "
            "2026-11-14T12:00Z, or -90m for an hour and a half ago."
        ) from None
    return when if when.tzinfo is not None else when.replace(tzinfo=zone)


def _told(run: RunView, now: datetime) -> str:
    """What became of a run, in a sentence."""
    on = f" on {run.node}" if run.node else ""
    took = "" if run.duration is None else f" after {readable(run.duration)}"
    tries = f", at attempt {run.attempt}" if run.attempt > 1 else ""
    match run.state:
        case "running":
            since = run.started_at or run.claimed_at or now
            return f"It has been running{on} for {readable(max((now - since).total_seconds(), 0.0))}{tries}."
        case "pending" if run.attempt:
            return f"Attempt {run.attempt} ended, and the next one begins when it is due."
        case "pending":
            return "It has not begun." if run.due_at <= now else "It is not due yet."
        case "waiting":
            return "It is due, and waits for an earlier run of the job to end."
        case "skipped":
            return f"It was not run: {last_line(run.reason) or 'no reason was given'}."
        case "cancelled":
            return f"It was cancelled: {last_line(run.reason) or 'no reason was given'}."
        case "succeeded":
            return f"It succeeded{on}{took}{tries}."
        case "lost":
            return f"It was lost{on}: {last_line(run.reason) or 'its node died'}."
        case _:
            return f"It {run.state}{on}{took}{tries}: {last_line(run.reason) or 'no reason was given'}"
