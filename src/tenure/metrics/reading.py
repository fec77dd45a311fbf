"""Reads the metrics of one application from its ledger: a few questions, each answered by an index, and none of them
counts the table of runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tenure.core.alerts import AlertKind, JobMarks
from tenure.core.coverage import Coverage
from tenure.core.differences import explained
from tenure.core.expected import KNOWN, expected_by, usual_limit
from tenure.core.figures import COUNTS, HOUR, NO_FIGURES
from tenure.core.keys import planner_of
from tenure.core.messages import JobEnds, JobQuery, RunQuery
from tenure.core.overdue import SLACK
from tenure.core.records import OPEN, Instant, JobId, JobRow, JobState, RunState
from tenure.core.trigger_text import read_trigger, zone_of
from tenure.errors import ConfigurationError
from tenure.stores.base import Session
from tenure.stores.ledger import FIRST, SUCCESS_WITHIN, Ledger
from tenure.util.clock import boottime

MOST = 2000
"""With more jobs than this, none has series of its own."""
OVERDUE, ORPHANED, COUNTED, RUNNING = 1000, 1000, 10_000, 1000
"""How many due times, jobs and runs are read or counted."""
FAR = 10 * 366 * 86400.0
"""Seconds from now until which a job to plan is looked for."""
COUNTED_FOR = 30.0
"""For how many seconds counts by queue are given again: the planner counts no more often."""
HOURS = 24
"""How many hours before this one count."""
KEPT = 300.0
"""For how many seconds the usual duration of a job is taken to be known."""
DURATIONS = (KNOWN, 100, 50_000)
"""How many durations of a job are read: at least, at most, and about how many of all jobs."""
LEAST = 30.0
"""No run is unusually long before this many seconds."""
LONGEST = 200
"""Characters of a trigger in a label."""


class Sample(NamedTuple):
    """One value of one metric."""

    metric: str
    value: float
    labels: tuple[str, ...] = ()


class Usual(NamedTuple):
    """How long runs of a job take."""

    runs: int
    p99: float | None


UNKNOWN = Usual(0, None)


class LedgerReader:
    """Reads one application, and remembers for a while how long its jobs take."""

    def __init__(self, application: str, tz: str, jobs: str | None = None) -> None:
        """`jobs` is a name or a pattern: only these jobs have series of their own."""
        self._application, self._tz, self._pattern = application, tz, jobs
        self._usual: dict[JobId, Usual] = {}
        self._usual_until = 0.0
        self._ended: list[Sample] = []
        self._ended_until = 0.0

    def read(self, session: Session) -> list[Sample]:
        """All metrics of the store."""
        application, ledger = self._application, session.ledger
        now, nodes = ledger.now(), ledger.nodes(application)
        running = ledger.running(application)
        silent = ledger.silent([node.node for node in nodes])
        coverage = Coverage(application, nodes, running, silent)
        orphaned = ledger.unserved(application, coverage.served, ORPHANED)
        overdue = coverage.startable(ledger.overdue(application, now - SLACK, OVERDUE))
        oldest = min((one.due for one in overdue), default=now)
        found = [
            Sample("tenure_up", 1),
            Sample("tenure_nodes", len(nodes) - len(silent), ("alive",)),
            Sample("tenure_nodes", len(silent), ("silent",)),
            Sample("tenure_overdue_runs", len(overdue)),
            Sample("tenure_oldest_overdue_seconds", max(now - oldest, 0.0)),
            Sample("tenure_orphaned_jobs", len(orphaned)),
            *_alerts(ledger, application),
            *self._planner(session, now),
            *_of_nodes((node.label, node.capacity, running.get(node.node, 0), node.clock_offset) for node in nodes),
        ]
        total = ledger.count_jobs(application)
        rows = []
        if self._pattern is not None or total <= MOST:
            rows = ledger.find_jobs(JobQuery(application, self._pattern, limit=MOST + 1))
        if len(rows) > MOST:
            rows = []
        queues = {row.spec.rules.queue for row in rows}
        found += _open(ledger, application, queues)
        if total <= MOST:
            found += self._runs_ended(ledger, queues, now)
        found += (Sample("tenure_jobs", total), Sample("tenure_jobs_not_exported", max(total - len(rows), 0)))
        return [*found, *self._of_jobs(ledger, rows, now, {job.id for job in orphaned})] if rows else found

    def _planner(self, session: Session, now: Instant) -> list[Sample]:
        found = []
        if (planner := session.leader(planner_of(self._application))) is not None:
            found = [
                Sample("tenure_planner_info", planner.healthy, (planner.label,)),
                Sample("tenure_planner_term", planner.term),
                Sample("tenure_planner_since_timestamp_seconds", planner.since.timestamp()),
            ]
        unplanned = session.ledger.unplanned(self._application, before=now + FAR, limit=1)
        if unplanned and not unplanned[0].resumes and (until := unplanned[0].next_due) is not None:
            found.append(Sample("tenure_planned_until_timestamp_seconds", until))
        return found

    def _runs_ended(self, ledger: Ledger, queues: Iterable[str], now: Instant) -> list[Sample]:
        """How many runs ended how lately; the queues of jobs also where none has."""
        if boottime() >= self._ended_until:
            counts = dict.fromkeys(queues, NO_FIGURES)
            counts |= ledger.counts_by_queue(self._application, now // HOUR * HOUR - HOURS * HOUR)
            self._ended = [
                Sample("tenure_runs_ended", getattr(figures, outcome), (outcome, queue))
                for queue, figures in counts.items()
                for outcome in COUNTS
                if outcome != "open"
            ]
            self._ended_until = boottime() + COUNTED_FOR
        return self._ended

    def _of_jobs(self, ledger: Ledger, rows: Sequence[JobRow], now: Instant, orphaned: set[JobId]) -> Iterable[Sample]:
        begun = _begun(ledger, self._application)
        self._learn(ledger, rows, begun)
        ids = [row.id for row in rows]
        ends = {one.job: one for one in ledger.last_ends(self._application, ids)}
        expecting = [row.id for row in rows if row.state is JobState.ACTIVE and row.spec.trigger is not None]
        known = ledger.job_marks(self._application, FIRST, len(expecting), SUCCESS_WITHIN, expecting)
        marks = {one.row.id: one for one in known}
        for row in rows:
            facts = marks.get(row.id, JobMarks(row)), ends.get(row.id, JobEnds(row.id))
            yield from self._of_job(*facts, now, begun.get(row.id), orphaned)

    def _of_job(
        self, marks: JobMarks, ends: JobEnds, now: Instant, begun: Instant | None, orphaned: set[JobId]
    ) -> Iterable[Sample]:
        row, spec, usual = marks.row, marks.row.spec, self._usual.get(marks.row.id, UNKNOWN)
        job = (spec.name,)
        where = str(zone_of(spec.trigger, default=self._tz))
        yield Sample("tenure_job_info", 1, (*job, spec.rules.queue, _short(spec.trigger), where))
        yield Sample("tenure_job_since_timestamp_seconds", row.since, job)
        yield Sample("tenure_job_paused", row.state is JobState.PAUSED and row.paused_until is None, job)
        yield Sample("tenure_job_orphaned", row.id in orphaned, job)
        yield Sample("tenure_job_failures_in_a_row", ends.failures, job)
        due, expected = None, None
        trigger, _ = read_trigger(spec.trigger)
        if trigger is not None and row.state is JobState.ACTIVE:
            try:
                due = trigger.following(max(now, row.since))
                expected = expected_by(
                    trigger,
                    spec.rules,
                    since=row.since,
                    settled=marks.settled,
                    settled_at=marks.settled_at,
                    held=marks.held,
                    runs=usual.runs,
                    p99=usual.p99,
                )
            except ConfigurationError:
                pass  # `tenure jobs` says what is wrong with it
        unusual = usual_limit(usual.runs, usual.p99)
        for name, value in (
            ("next_due_timestamp_seconds", due),
            ("expected_by_timestamp_seconds", expected),
            ("last_success_timestamp_seconds", ends.succeeded_at),
            ("last_failure_timestamp_seconds", ends.failed_at),
            ("last_duration_seconds", ends.duration),
            ("missed_timestamp_seconds", ends.missed if ends.missed is not None and ends.missed >= row.since else None),
            ("running_seconds", None if begun is None else max(now - begun, 0.0)),
            ("unusual_after_seconds", None if begun is None or unusual is None else max(unusual, LEAST)),
        ):
            if value is not None:
                yield Sample(f"tenure_job_{name}", value, job)

    def _learn(self, ledger: Ledger, rows: Sequence[JobRow], begun: Iterable[JobId]) -> None:
        """How long the jobs take whose deadlines depend on it, and those that run. Asked anew every few minutes."""
        if boottime() >= self._usual_until:
            self._usual, self._usual_until = {}, boottime() + KEPT
        running = set(begun)
        wanted = [row.id for row in rows if row.id not in self._usual and (row.id in running or _depends(row))]
        if wanted:
            least, most, of_all = DURATIONS
            last = min(max(of_all // len(wanted), least), most)
            durations = ledger.durations(wanted, last)
            self._usual |= {job: Usual(*durations.get(job, UNKNOWN)) for job in wanted}


def _short(trigger: str | None) -> str:
    """The first sentence about a trigger."""
    return explained(trigger).partition(". ")[0].rstrip(".")[:LONGEST]


def _depends(row: JobRow) -> bool:
    """Whether its deadline depends on how long its runs take."""
    rules = row.spec.rules
    return row.spec.trigger is not None and rules.expect_within is None and rules.timeout is None


def _of_nodes(nodes: Iterable[tuple[str, int, int, float | None]]) -> list[Sample]:
    """Two nodes may have one label: then it stands for both."""
    capacity, running, offset = Counter[str](), Counter[str](), dict[str, float]()
    for label, slots, runs, ahead in nodes:
        capacity[label] += slots
        running[label] += runs
        if ahead is not None and abs(ahead) >= abs(offset.get(label, 0.0)):
            offset[label] = ahead
    return [
        *(Sample("tenure_node_capacity", slots, (label,)) for label, slots in capacity.items()),
        *(Sample("tenure_node_running", runs, (label,)) for label, runs in running.items()),
        *(Sample("tenure_node_clock_offset_seconds", ahead, (label,)) for label, ahead in offset.items()),
    ]


def _alerts(ledger: Ledger, application: str) -> list[Sample]:
    """Open alerts by kind, also the kinds of which none is open."""
    counts = Counter(row.kind for row in ledger.open_alerts(application) if row.open)
    kinds = (kind.value for kind in AlertKind if kind is not AlertKind.NO_ANSWER)
    return [Sample("tenure_alerts_open", counts[kind], (kind,)) for kind in kinds]


def _open(ledger: Ledger, application: str, queues: Iterable[str]) -> list[Sample]:
    """Open runs; the queues of jobs also where they are empty."""
    counts = {(state.value, queue): 0 for queue in queues for state in OPEN}
    counts |= {(part.state.value, part.queue): part.runs for part in ledger.open_runs(application, COUNTED)}
    return [Sample("tenure_runs_open", runs, labels) for labels, runs in counts.items()]


def _begun(ledger: Ledger, application: str) -> dict[JobId, Instant]:
    """When the oldest run of each job that runs began."""
    begun: dict[JobId, Instant] = {}
    for run in ledger.runs(RunQuery(application, states=(RunState.RUNNING,), limit=RUNNING)):
        since = run.claimed_at if run.started_at is None else run.started_at
        if since is not None:
            begun[run.job] = min(begun.get(run.job, since), since)
    return begun
