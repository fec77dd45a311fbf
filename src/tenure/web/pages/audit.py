"""The audit: what became of every due time of a span."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from tenure.core.audit import JobAudit
from tenure.errors import ConfigurationError
from tenure.jobs.operations import point
from tenure.stores.base import Session
from tenure.util.clock import boottime
from tenure.util.instants import moment
from tenure.web.ledger_reads import LedgerReads
from tenure.web.page_request import PageRequest

SPAN = 31 * 86400.0
"""The longest span of an audit on the page."""


@dataclass(frozen=True, slots=True)
class AuditPage:
    """What became of every due time."""

    at: datetime
    found: tuple[JobAudit, ...]
    due: int
    clean: bool
    took: float


def read(reads: LedgerReads, name: str, since: str, until: str) -> AuditPage:
    """What became of every due time of a span. One at a time in a process, because it may take long."""
    return reads.read_alone(("audit", name, since, until), lambda session: _read(reads, session, name, since, until))


def _read(reads: LedgerReads, session: Session, name: str, since: str, until: str) -> AuditPage:
    ledger, began = session.ledger, boottime()
    now = ledger.now()
    start = point(since, now, "since")
    end = now if not until else point(until, now, "until")
    if end - start > SPAN:
        raise ConfigurationError("The span is longer than 31 days. Take a shorter one, or run `tenure audit`.")
    found = reads.lookup.audit(ledger, name or None, moment(start), moment(end))
    return AuditPage(
        at=moment(now, reads.zone),
        found=tuple(sorted(found, key=lambda one: (one.clean, one.name))),
        due=sum(one.due for one in found),
        clean=all(one.clean for one in found),
        took=boottime() - began,
    )


async def show(request: PageRequest) -> Response:
    """Answer a request."""
    name, since, until = request.asked("job"), request.asked("since") or "-1d", request.asked("until")
    found = await run_in_threadpool(read, request.site.reads, name, since, until)
    span: dict[str, Any] = {"job": name, "since": since, "until": until}
    return request.show("audit.html", page=found, at=found.at, live="off", **span)
