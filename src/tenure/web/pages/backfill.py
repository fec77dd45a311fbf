"""The page of a backfill: which due times it runs, how far it is, and what may be done to it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from tenure.core.messages import RunQuery
from tenure.core.records import JobState
from tenure.jobs.backfills import backfill_of
from tenure.stores.base import Session
from tenure.util.instants import moment
from tenure.views import BackfillView, RunView
from tenure.web import operations
from tenure.web.backfill_offer import INCLUDES
from tenure.web.ledger_reads import LedgerReads
from tenure.web.page_request import PageRequest

RUNS = 50
"""Runs of the page."""
COUNTS = ("succeeded", "failed", "lost", "cancelled", "skipped", "overtaken", "running", "waiting", "left")


@dataclass(frozen=True, slots=True)
class BackfillPage:
    """A backfill."""

    at: datetime
    backfill: BackfillView
    include: str
    """Which due times it takes, in words."""
    counts: dict[str, int]
    """How many of its due times came to what; without those that are none."""
    paused_job: bool
    """Its job is paused, so none of its runs begins."""
    runs: tuple[RunView, ...]
    """The newest runs of its job that are due in its span."""


def read(reads: LedgerReads, number: int) -> BackfillPage:
    """The backfill of this number."""
    return reads.read(("backfill", number), lambda session: _read(reads, session, number))


def _read(reads: LedgerReads, session: Session, number: int) -> BackfillPage:
    ledger, application = session.ledger, reads.application
    row = backfill_of(ledger, application, number)
    [view] = reads.lookup.shown_backfills(ledger, [row])
    jobs = ledger.jobs(application, row.name, removed=True)
    runs = ledger.runs(RunQuery(application, row.name, since=row.since, before=row.until, limit=RUNS))
    return BackfillPage(
        at=moment(ledger.now(), reads.zone),
        backfill=view,
        include=INCLUDES.get(",".join(view.include), " and ".join(view.include)),
        counts={word: count for word in COUNTS if (count := getattr(view, word))},
        paused_job=view.finished_at is None and any(job.state is JobState.PAUSED for job in jobs),
        runs=tuple(reads.lookup.shown_runs(ledger, runs)),
    )


async def show(request: PageRequest) -> Response:
    """Answer a request."""
    number = request.number("number")
    found = await run_in_threadpool(read, request.site.reads, number)
    return request.show(
        "backfill.html", page=found, at=found.at, done=operations.done(request), watch=f"backfill-{number}"
    )
