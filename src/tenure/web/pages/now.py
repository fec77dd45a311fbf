"""The first page: how everything is, what needs a person, who plans, what is due, and all jobs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from tenure.core.keys import planner_of
from tenure.core.messages import JobOutcome
from tenure.core.records import JobState, RunState
from tenure.core.verdict import verdict
from tenure.jobs.queries import RECENT
from tenure.stores.base import Session
from tenure.util.instants import moment
from tenure.views import AttentionView, Leader, NodeView, TermRecord
from tenure.web import operations
from tenure.web.ledger_reads import COUNTED, LedgerReads
from tenure.web.page_request import PageRequest, Refused
from tenure.web.pages.job_strips import JobStrip, strips_of

JOBS, DUE, TERMS = 50, 10, 1
"""Jobs, due times and handovers of the page."""
FAILED_JOBS = 20
"""Failing jobs that are shown."""


@dataclass(frozen=True, slots=True)
class NowView:
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


def read(reads: LedgerReads, search: str, state: str, first: int) -> NowView:
    """The page, for jobs whose names contain a text, in a state."""
    return reads.read(("now", search, state, first), lambda session: _read(reads, session, search, state, first))


def _read(reads: LedgerReads, session: Session, search: str, state: str, first: int) -> NowView:
    application, lookup = reads.application, reads.lookup
    ledger = session.ledger
    now, rows = ledger.now(), lookup.rows(ledger, removed=True)
    tally = ledger.tally(application, now - RECENT, COUNTED)
    election = planner_of(application)
    planner, terms = session.leader(election), session.terms(election, TERMS)
    nodes, attention = lookup.nodes(ledger), lookup.attention(ledger)
    asked = [
        row for row in rows if search.casefold() in row.spec.name.casefold() and (not state or row.state.value == state)
    ]
    first = min(max(first, 0), max(len(asked) - 1, 0) // JOBS * JOBS)
    lines = strips_of(reads, ledger, asked[first : first + JOBS], now)
    due = tuple(lookup.next_of(ledger, rows, now, DUE))
    outcomes = lookup.failing(ledger)
    failing = sum(one.failures > 0 for one in outcomes)
    live = sum(row.state is not JobState.REMOVED for row in rows)
    judged = verdict(application, planner, live, attention, failing)
    latest = sorted(outcomes, key=lambda one: -one.at)
    return NowView(
        at=moment(now, reads.zone),
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
        failures=tuple((one, moment(one.at, reads.zone)) for one in latest[:FAILED_JOBS]),
        due=due,
        lines=lines,
        jobs=len(rows),
        found=len(asked),
        first=first,
    )


async def show(request: PageRequest) -> Response:
    """Answer a request."""
    search, state, first = request.asked("q")[:200], request.asked("state"), request.number("first")
    if state and state not in set(JobState):
        raise Refused(400, "No such state", f"There is no state {state[:40]!r} of a job.")
    found = await run_in_threadpool(read, request.site.reads, search, state, first)
    return request.show(
        "now.html", page_size=JOBS, page=found, at=found.at, search=search, state=state, done=operations.done(request)
    )
