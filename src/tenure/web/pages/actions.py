"""Who did what: the log of actions, newest first, by whom, on what, and from where."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from tenure.core.messages import ActionQuery
from tenure.jobs.operations import point
from tenure.stores.base import Session
from tenure.util.instants import moment
from tenure.views import ActionView
from tenure.web import operations
from tenure.web.ledger_reads import LedgerReads, check_name
from tenure.web.page_request import PageRequest

ACTIONS = 50
"""Actions of a page."""


@dataclass(frozen=True, slots=True)
class ActionFilter:
    """Which actions to show; '' leaves a question open."""

    by: str = ""
    what: str = ""
    on: str = ""
    """The job, or the election."""
    since: str = ""


@dataclass(frozen=True, slots=True)
class ActionsPage:
    """Who did what."""

    at: datetime
    actions: tuple[ActionView, ...]
    older: int | None
    """Below which number the next page begins."""


def read(reads: LedgerReads, wanted: ActionFilter, below: int | None) -> ActionsPage:
    """A page of actions."""
    for text in (wanted.by, wanted.what, wanted.on):
        check_name(text)
    return reads.read(("actions", wanted, below), lambda session: _read(reads, session, wanted, below))


def _read(reads: LedgerReads, session: Session, wanted: ActionFilter, below: int | None) -> ActionsPage:
    now = session.ledger.now()
    query = ActionQuery(
        reads.application,
        wanted.on or None,
        wanted.by or None,
        point(wanted.since, now, "since") if wanted.since else None,
        what=wanted.what or None,
        below=below,
        limit=ACTIONS + 1,
    )
    found = session.ledger.actions(query)
    shown = tuple(ActionView.of(row, reads.zone) for row in found[:ACTIONS])
    return ActionsPage(moment(now, reads.zone), shown, shown[-1].id if len(found) > ACTIONS else None)


async def show(request: PageRequest) -> Response:
    """Answer a request."""
    wanted = ActionFilter(*(request.asked(word).strip()[:1000] for word in ("by", "what", "on", "since")))
    below = request.number("below") or None
    found = await run_in_threadpool(read, request.site.reads, wanted, below)
    return request.show(
        "actions.html", page=found, at=found.at, wanted=wanted, below=below, whats=operations.NAMES, watch="actions"
    )
