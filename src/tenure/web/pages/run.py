"""The page of a run: from its due time to its end, each attempt, its log, its arguments, and what ran beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from tenure.core.messages import RunQuery
from tenure.core.records import RunId, RunState
from tenure.stores.base import Session
from tenure.stores.ledger import Ledger
from tenure.util.durations import readable
from tenure.util.instants import moment
from tenure.util.last_line import last_line
from tenure.views import AttemptView, LogLineView, RunView
from tenure.web import operations
from tenure.web.ledger_reads import LedgerReads
from tenure.web.page_request import PageRequest, whole

LINES, LINE = 2000, 4000
"""Log lines of a run, and characters of one, that a page shows."""
SEARCHED, BESIDE = 200, 20
"""Runs that are searched for those that ran on the same node meanwhile, and how many of them are shown."""
_BEGAN = (RunState.RUNNING, RunState.SUCCEEDED, RunState.FAILED, RunState.LOST, RunState.CANCELLED)


@dataclass(frozen=True, slots=True)
class Beside:
    """What ran on the node of a run while its last attempt ran."""

    runs: tuple[RunView, ...] = ()
    """The first of them, those that were due last."""
    found: int = 0
    cut: bool = False
    """There are runs that were not searched."""


@dataclass(frozen=True, slots=True)
class RunPage:
    """A run."""

    at: datetime
    run: RunView
    told: str
    """What became of it, in a sentence."""
    attempts: tuple[AttemptView, ...]
    """The newest first."""
    log: tuple[LogLineView, ...]
    cut: int
    """How many log lines before these are not shown."""
    kwargs: dict[str, Any]
    own: bool
    """Whether these arguments were given for this run, and are not those of the job."""
    before: RunView | None
    after: RunView | None
    beside: Beside
    retriable: bool

    @property
    def reason(self) -> str:
        """Why it ended as it did, unless one of its attempts says so."""
        said = any(attempt.error == self.run.reason for attempt in self.attempts)
        return "" if said else self.run.reason


def read(reads: LedgerReads, number: int) -> RunPage:
    """A run."""
    return reads.read(("run", number), lambda session: _read(reads, session, number))


def _read(reads: LedgerReads, session: Session, number: int) -> RunPage:
    lookup = reads.lookup
    ledger = session.ledger
    now, run = ledger.now(), lookup.run(ledger, number)
    lines = lookup.log(ledger, number)
    own = run.kwargs is not None
    job = ledger.jobs(reads.application, run.job, removed=True)
    kwargs = run.kwargs if run.kwargs is not None else lookup.shown_job(ledger, job[0], now).kwargs if job else {}
    at = run.scheduled_for.timestamp()
    earlier = RunQuery(reads.application, run.job, before=at, below=RunId(run.id), limit=1)
    before = lookup.shown_runs(ledger, ledger.runs(earlier))
    later = RunQuery(reads.application, run.job, since=at, above=RunId(run.id), before=now, limit=1, oldest_first=True)
    after = lookup.shown_runs(ledger, ledger.runs(later))
    return RunPage(
        at=moment(now, run.scheduled_for.tzinfo or reads.zone),
        run=run,
        told=_told(run, moment(now, reads.zone)),
        attempts=run.attempts[::-1],
        log=tuple(replace(line, text=line.text[:LINE]) for line in lines[-LINES:]),
        cut=max(len(lines) - LINES, 0),
        kwargs=kwargs,
        own=own,
        before=before[0] if before else None,
        after=after[0] if after else None,
        beside=_beside(reads, ledger, run, now),
        retriable=run.state in {"failed", "lost", "cancelled", "skipped"}
        and run.count == 1
        and not run.forgotten
        and bool(job)
        and job[0].state != "removed",
    )


def _beside(reads: LedgerReads, ledger: Ledger, run: RunView, now: float) -> Beside:
    """The runs that shared a node with the last attempt of a run, among those that were due last before its end.

    While a run runs, the ledger knows when it was claimed, and hears later when its body began.
    """
    since = run.started_at or run.claimed_at
    if not run.node or since is None:
        return Beside()
    began = since.timestamp()
    ended = now if run.finished_at is None else run.finished_at.timestamp()
    query = RunQuery(reads.application, states=_BEGAN, before=ended + 1e-6, limit=SEARCHED)
    searched = ledger.runs(query)
    found = [
        other
        for other in searched
        if other.id != run.id
        and other.node == run.node
        and (other.started_at or other.claimed_at or now) <= ended
        and (other.finished_at or now) >= began
    ]
    shown = tuple(reads.lookup.shown_runs(ledger, found[:BESIDE]))
    return Beside(shown, len(found), cut=len(searched) == SEARCHED)


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


async def show(request: PageRequest) -> Response:
    """Answer a request."""
    found = await run_in_threadpool(read, request.site.reads, whole(request.http.path_params["number"], "run"))
    kwargs = request.site.shown(found.run.job, found.kwargs) if request.asked("arguments") == "shown" else None
    return request.show(
        "run.html",
        page=found,
        at=found.at,
        kwargs=kwargs,
        done=operations.done(request),
        watch=f"run-{found.run.id}",
        SEARCHED=SEARCHED,
    )
