"""The first page: how everything is, what needs a person, who plans, what is due, and all jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from tenure.core.alerts import EVERYTHING, OF_JOBS, AlertKind
from tenure.core.cluster import Leader, NodeRecord, TermRecord
from tenure.core.figures import Figures
from tenure.core.keys import planner_of
from tenure.core.messages import JobOutcome, JobPageQuery, RunQuery
from tenure.core.records import JobId, JobRow, JobState, RunState
from tenure.core.verdict import ORPHANS, unsaid, verdict
from tenure.jobs.queries import RECENT
from tenure.stores.base import Session
from tenure.stores.ledger import Ledger
from tenure.util.instants import moment
from tenure.views import AlertView, AttentionView, NodeView
from tenure.web import operations
from tenure.web.ledger_reads import COUNTED, LedgerReads, OwnTrust, check_name
from tenure.web.page_request import PageRequest, Refused
from tenure.web.pages.job_strips import JobStrip, strips_of, weeks_of

JOBS, DUE, TERMS = 50, 10, 1
"""Jobs, due times and handovers of the page."""
FAILED_JOBS = 20
"""Failing jobs that are shown."""
SOON = 200
"""Planned runs that are searched for those that are due next."""
STATES = {
    "active": "active",
    "paused": "paused",
    "done": "done",
    "removed": "removed",
    "failing": "failing",
    "late": "late",
    "orphaned": "orphaned",
}
LISTS = {
    AlertKind.ORPHANED: "orphaned",
    AlertKind.NOT_STARTED: "late",
    AlertKind.FAILING: "failing",
    AlertKind.PAUSED: "paused",
}
"""The states of the jobs that an alert of many jobs is about."""
SORTS = {
    "attention": "what needs attention first",
    "name": "name",
    "next": "next due",
    "duration": "longest duration first",
    "lateness": "latest first",
}
BY_FIGURES: dict[str, Callable[[Figures], float | None]] = {
    "duration": lambda figures: figures.took.percentile(0.99),
    "lateness": lambda figures: figures.late.percentile(0.99),
}
"""Orders by what is shown of a week, the most first."""
SORTED, SLICE = 1000, 100
"""At most this many jobs are sorted by their figures, which are read of so many jobs at a time: a hundred cost about
50 ms …"""
SORTED_LASTS = 60.0
"""… and serve for so many seconds."""


_TROUBLES = ("failing", "late", "orphaned")
"""States that are not stored."""


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to show; '' leaves a question open."""

    search: str = ""
    state: str = ""
    queue: str = ""
    tag: str = ""
    sort: str = "attention"
    first: int = 0
    """The place of the first one."""

    @property
    def narrows(self) -> bool:
        """Whether it leaves any job out."""
        return bool(self.search or self.state or self.queue or self.tag)


@dataclass(frozen=True, slots=True)
class NodeLine:
    """A live node, with its last sign of life."""

    node: NodeView
    record: NodeRecord | None


@dataclass(frozen=True, slots=True)
class NowView:
    """The first page."""

    at: datetime
    ok: bool
    verdict: str
    mood: str
    """'fine', 'look' or 'act'."""
    attention: tuple[AttentionView, ...]
    alerts: tuple[AlertView, ...]
    """The alerts that are open, and …"""
    unsaid: tuple[AlertView, ...]
    """… those that say what nothing else on the page says."""
    planner: Leader | None
    handover: TermRecord | None
    trust: OwnTrust | None
    """Of the planner, if it is the node of this process."""
    lines_of_nodes: tuple[NodeLine, ...]
    open: dict[str, int]
    bad: int
    """How many runs failed or were lost in a day."""
    failures: tuple[tuple[JobOutcome, datetime], ...]
    """The jobs of these runs, the latest first, and when they ended."""
    due: tuple[tuple[datetime, str], ...]
    orphans: frozenset[str]
    """Jobs that no live node can run."""
    lines: tuple[JobStrip, ...]
    jobs: int
    """How many there are, and …"""
    found: int
    """… how many of them were asked for."""
    first: int
    """The place of the first one shown."""

    @property
    def nodes(self) -> tuple[NodeView, ...]:
        """The live nodes."""
        return tuple(line.node for line in self.lines_of_nodes)

    @property
    def planner_record(self) -> NodeRecord | None:
        """The planner's last sign of life."""
        records = (line.record for line in self.lines_of_nodes if line.record is not None)
        return next((one for one in records if self.planner and one.id == self.planner.node), None)


def read(reads: LedgerReads, wanted: JobFilter) -> NowView:
    """The page, for the jobs that are asked for."""
    for text in (wanted.search, wanted.queue, wanted.tag):
        check_name(text)
    names = _sorted(reads, wanted) if wanted.sort in BY_FIGURES else None
    return reads.read(("now", wanted), lambda session: _read(reads, session, wanted, names))


def _sorted(reads: LedgerReads, wanted: JobFilter) -> tuple[str, ...]:
    """The names of all jobs that are asked for, in an order that the database does not know."""
    every = replace(wanted, first=0, sort="name")

    def listed(session: Session) -> tuple[Sequence[JobRow], int]:
        ledger, troubled = session.ledger, None
        if wanted.state in _TROUBLES:
            troubled = _troubled(reads.lookup.attention(ledger), reads.lookup.failing(ledger))
        return ledger.job_page(replace(_page(reads.application, every, troubled), limit=SORTED))

    rows, total = reads.read(("now listed", every), listed)
    if total > SORTED:
        raise Refused(
            400,
            "Too many to sort",
            f"sort: at most {SORTED:,} jobs can be sorted by {wanted.sort}, and these are {total:,}. "
            "Find fewer by name, state, queue or tag.",
        )
    found: dict[str, Figures] = {}
    for start in range(0, len(rows), SLICE):
        found |= _weeks(reads, rows[start : start + SLICE])
    figure = BY_FIGURES[wanted.sort]
    return tuple(sorted(found, key=lambda name: (-(figure(found[name]) or 0.0), name)))


def _weeks(reads: LedgerReads, rows: Sequence[JobRow]) -> dict[str, Figures]:
    def look(session: Session) -> dict[str, Figures]:
        return weeks_of(session.ledger, reads.application, rows, session.ledger.now())

    return reads.read(("now weeks", tuple(row.id for row in rows)), look, lasts=SORTED_LASTS)


def _read(reads: LedgerReads, session: Session, wanted: JobFilter, names: tuple[str, ...] | None) -> NowView:
    application, lookup, zone = reads.application, reads.lookup, reads.zone
    ledger = session.ledger
    now, election = ledger.now(), planner_of(application)
    tally = ledger.tally(application, now - RECENT, COUNTED)
    planner, terms = session.leader(election), session.terms(election, TERMS)
    nodes, attention = lookup.nodes(ledger), lookup.attention(ledger)
    records = {record.id: record for record in session.node_records(0)}
    outcomes, alerts = lookup.failing(ledger), lookup.open_alerts(ledger)
    failing = frozenset(one.name for one in outcomes if one.failures)
    more = unsaid(alerts, planner, attention, failing)
    troubled = _troubled(attention, outcomes, more)
    rows, found, first = _listed(ledger, application, wanted, troubled, names)
    _, live = ledger.job_page(JobPageQuery(application, limit=0)) if wanted.narrows else ([], found)
    judged = verdict(application, planner, live, attention, failing=len(failing), alerts=len(more))
    latest = sorted(outcomes, key=lambda one: -one.at)
    trust = reads.trust()
    return NowView(
        at=moment(now, zone),
        ok=judged.ok,
        verdict=judged.text,
        mood="act" if not judged.ok else "look" if attention or failing or more else "fine",
        attention=tuple(attention),
        alerts=tuple(alerts),
        unsaid=tuple(more),
        planner=planner,
        handover=terms[0] if terms else None,
        trust=trust if trust is not None and planner is not None and trust.node == planner.node else None,
        lines_of_nodes=tuple(NodeLine(node, records.get(node.id)) for node in nodes),
        open={
            one.value: sum(part.runs for part in tally if part.state is one)
            for one in (RunState.RUNNING, RunState.WAITING, RunState.PENDING)
        },
        bad=sum(part.runs for part in tally if part.state.final),
        failures=tuple((one, moment(one.at, zone)) for one in latest[:FAILED_JOBS]),
        due=_next_due(reads, ledger, now, zone),
        orphans=troubled.orphaned,
        lines=strips_of(reads, ledger, rows, now),
        jobs=live,
        found=found,
        first=first,
    )


@dataclass(frozen=True, slots=True)
class _Troubled:
    """Jobs that need attention, by what is wrong."""

    failing: frozenset[str]
    alerted: frozenset[str]
    late: frozenset[str]
    orphaned: frozenset[str]

    @property
    def all(self) -> tuple[str, ...]:
        return tuple(sorted(self.failing | self.alerted | self.late | self.orphaned))


def _troubled(
    attention: Iterable[AttentionView], outcomes: Iterable[JobOutcome], alerts: Iterable[AlertView] = ()
) -> _Troubled:
    shown = list(attention)
    return _Troubled(
        failing=frozenset(one.name for one in outcomes if one.failures),
        alerted=frozenset(one.target for one in alerts if one.kind in OF_JOBS and one.target != EVERYTHING),
        late=frozenset(name for one in shown if one.overdue for name in one.jobs),
        orphaned=frozenset(name for one in shown if one.cause in ORPHANS for name in one.jobs),
    )


def _page(application: str, wanted: JobFilter, troubled: _Troubled | None) -> JobPageQuery:
    """The question for a page of the list. `troubled` may be None if the state that is asked for is none of those."""
    names: frozenset[str] | None = getattr(troubled, wanted.state) if wanted.state in _TROUBLES else None
    return JobPageQuery(
        application,
        contains=wanted.search,
        state=JobState(wanted.state) if wanted.state in set(JobState) else None,
        tag=wanted.tag or None,
        queue=wanted.queue or None,
        names=None if names is None else tuple(sorted(names)),
        first=troubled.all if troubled is not None and wanted.sort == "attention" else (),
        by_next=wanted.sort == "next",
        limit=JOBS,
        skip=wanted.first,
    )


def _listed(
    ledger: Ledger, application: str, wanted: JobFilter, troubled: _Troubled, names: tuple[str, ...] | None
) -> tuple[Sequence[JobRow], int, int]:
    """The jobs of the page, how many the whole list has, and the place of the first one shown. `names`: the whole list
    in its order, where the ledger does not know that."""
    if names is not None:
        first = wanted.first if wanted.first < len(names) else _last(len(names))
        places = {name: place for place, name in enumerate(names[first : first + JOBS])}
        rows, _ = ledger.job_page(replace(_page(application, wanted, troubled), names=tuple(places), skip=0))
        return sorted(rows, key=lambda row: places[row.spec.name]), len(names), first
    page = _page(application, wanted, troubled)
    rows, total = ledger.job_page(page)
    if rows or not wanted.first:
        return rows, total, wanted.first
    rows, total = ledger.job_page(replace(page, skip=_last(total)))
    return rows, total, _last(total)


def _last(total: int) -> int:
    """The place at which the last page begins."""
    return max(total - 1, 0) // JOBS * JOBS


def _next_due(reads: LedgerReads, ledger: Ledger, now: float, zone: tzinfo) -> tuple[tuple[datetime, str], ...]:
    """What is due next: runs that are planned or requested already, and what comes after them.

    The jobs whose first unplanned due times are the nearest have all of the next `DUE` that are not planned.
    """
    query = RunQuery(reads.application, states=(RunState.PENDING,), limit=SOON, oldest_first=True)
    planned = [
        (run.scheduled_for.astimezone(zone), run.job)
        for run in reads.lookup.shown_runs(ledger, ledger.runs(query))
        if run.scheduled_for.timestamp() > now and not run.attempt
    ]
    nearest = ledger.planned_beyond(reads.application, (now, JobId(0)), DUE)
    later = reads.lookup.next_of(ledger, nearest, now, DUE)
    return tuple(sorted(set(planned + later))[:DUE])


async def show(request: PageRequest) -> Response:
    """Answer a request."""
    search, state, queue, tag = (request.asked(word).strip()[:200] for word in ("q", "state", "queue", "tag"))
    wanted = JobFilter(search, state, queue, tag, request.asked("sort") or "attention", request.number("first"))
    if wanted.state and wanted.state not in STATES:
        raise Refused(400, "No such state", f"There is no state {wanted.state[:40]!r} of a job.")
    if wanted.sort not in SORTS:
        raise Refused(400, "No such order", f"sort: {wanted.sort[:40]!r} is not one of {', '.join(SORTS)}.")
    found = await run_in_threadpool(read, request.site.reads, wanted)
    return request.show(
        "now.html",
        page_size=JOBS,
        page=found,
        at=found.at,
        wanted=wanted,
        states=STATES,
        sorts=SORTS,
        of_jobs=OF_JOBS,
        lists=LISTS,
        done=operations.done(request),
    )
