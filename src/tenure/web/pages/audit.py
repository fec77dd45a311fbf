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
from tenure.web.load_counter import Pacer
from tenure.web.page_request import PageRequest, Refused

SPAN = 31 * 86400.0
"""The longest span of an audit on the page."""
STEPS = 1_000_000
"""Steps of an audit on the page: half as many due times, because each is counted and gone through."""
SLICE = 2000
"""Steps between two rests."""


@dataclass(frozen=True, slots=True)
class AuditPage:
    """What became of every due time."""

    at: datetime
    found: tuple[JobAudit, ...]
    due: int
    clean: bool
    took: float


class _Budget:
    """Bounds an audit, and rests as what-if does: a node in the same process must not lose its heartbeat."""

    def __init__(self) -> None:
        self._pacer, self._spent, self._rest_at = Pacer(), 0, SLICE

    def spend(self, steps: int) -> None:
        """So many steps are about to be taken, or were."""
        self._spent += steps
        if self._spent > STEPS:
            raise Refused(
                400,
                "Too much at once",
                f"More than {STEPS // 2:,} due times are in the span. Take a shorter one or a single job, or run "
                "`tenure audit`.",
            )
        if self._spent >= self._rest_at:
            self._pacer.rest()
            self._rest_at = self._spent + SLICE


def read(reads: LedgerReads, name: str, since: str, until: str) -> AuditPage:
    """What became of every due time of a span. One at a time in a process, because it may take long."""
    return reads.read_alone(("audit", name, since, until), lambda session: _read(reads, session, name, since, until))


def _read(reads: LedgerReads, session: Session, name: str, since: str, until: str) -> AuditPage:
    ledger, began = session.ledger, boottime()
    now = ledger.now()
    start = point(since, now, "since")
    end = now if not until else point(until, now, "until")
    if end > now:
        raise ConfigurationError(f"until: {until!r:.60} is still to come. Write an earlier time, or nothing for now.")
    if start >= end:
        raise ConfigurationError(f"since: {since!r:.60} is not before the end of the span. Write an earlier time.")
    if end - start > SPAN:
        raise ConfigurationError("The span is longer than 31 days. Take a shorter one, or run `tenure audit`.")
    found = reads.lookup.audit(ledger, name or None, moment(start), moment(end), spend=_Budget().spend)
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
