"""Who led when: the elections of the database with their terms and gaps, the epoch, and how each node ended."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from tenure.core.cluster import Epoch, Leader, NodeRecord, TermRecord
from tenure.core.keys import is_planners, planner_of
from tenure.stores.base import Session
from tenure.util.instants import moment
from tenure.web import operations
from tenure.web.leadership_chart import epoch_of, gap_text, leadership
from tenure.web.ledger_reads import LedgerReads, check_name
from tenure.web.page_request import PageRequest, Refused

SPANS = {
    "1h": ("hour", timedelta(hours=1)),
    "24h": ("24 hours", timedelta(hours=24)),
    "7d": ("7 days", timedelta(days=7)),
}
ELECTIONS, EACH, ENDED = 20, 200, 50
"""Elections of a page, the newest terms of each that are read, and nodes that ended."""


@dataclass(frozen=True, slots=True)
class ElectionTerms:
    """An election, and its terms in the span, the newest first."""

    name: str
    leader: Leader | None
    terms: tuple[TermRecord, ...]
    cut: bool
    """Earlier terms of the span are not shown."""
    plans: bool
    """Its leader is the planner of this application."""


@dataclass(frozen=True, slots=True)
class TermsPage:
    """Who led when."""

    at: datetime
    since: datetime
    elections: tuple[ElectionTerms, ...]
    more: str
    """After which name the next page begins; '' if there is none."""
    epoch: Epoch
    nodes: tuple[NodeRecord, ...]


def read(reads: LedgerReads, span: str, after: str) -> TermsPage:
    """The terms of a span."""
    check_name(after)
    return reads.read(("terms", span, after), lambda session: _read(reads, session, span, after))


def _read(reads: LedgerReads, session: Session, span: str, after: str) -> TermsPage:
    own, zone = planner_of(reads.application), reads.zone
    now = moment(session.ledger.now(), zone)
    since = now - SPANS[span][1]
    leaders = {leader.election: leader for leader in session.elections()}
    terms: dict[str, list[TermRecord]] = {} if after else {own: session.terms(own, EACH)}
    found = session.recent_terms(after, ELECTIONS + 1, EACH)
    names = list(dict.fromkeys(record.election for record in found))
    more = names[ELECTIONS - 1] if len(names) > ELECTIONS else ""
    for record in found:
        if record.election in names[:ELECTIONS] and not is_planners(record.election):
            terms.setdefault(record.election, []).append(record)
    return TermsPage(
        at=now,
        since=since,
        elections=tuple(
            _election(name, leaders.get(name), past, since, zone, plans=name == own) for name, past in terms.items()
        ),
        more=more,
        epoch=session.epoch(),
        nodes=tuple(_in_zone(node, zone) for node in session.node_records(ENDED)),
    )


def _election(
    name: str, leader: Leader | None, past: list[TermRecord], since: datetime, zone: tzinfo, *, plans: bool
) -> ElectionTerms:
    within = [record for record in past if record.ended_at is None or record.ended_at >= since] or past[:1]
    shown = tuple(
        replace(
            record,
            began_at=record.began_at.astimezone(zone),
            ended_at=None if record.ended_at is None else record.ended_at.astimezone(zone),
        )
        for record in within
    )
    if leader is not None:
        leader = replace(leader, since=leader.since.astimezone(zone))
    return ElectionTerms(name, leader, shown, len(within) == EACH, plans)


def _in_zone(node: NodeRecord, zone: tzinfo) -> NodeRecord:
    def there(at: datetime | None) -> datetime | None:
        return None if at is None else at.astimezone(zone)

    return replace(
        node, joined_at=node.joined_at.astimezone(zone), seen_at=there(node.seen_at), ended_at=there(node.ended_at)
    )


async def show(request: PageRequest) -> Response:
    """Answer a request."""
    span, after = request.asked("span") or "24h", request.asked("after")
    if span not in SPANS:
        raise Refused(400, "No such span", f"span: {span[:40]!r} is not 1h, 24h or 7d.")
    found = await run_in_threadpool(read, request.site.reads, span, after)
    return request.show(
        "terms.html",
        page=found,
        at=found.at,
        span=span,
        spans={word: text for word, (text, _) in SPANS.items()},
        after=after,
        asked=request.number("asked"),
        election=request.asked("election"),
        chart=leadership,
        gap_text=gap_text,
        epoch_of=epoch_of,
        done=operations.done(request),
        ended=ENDED,
        watch="terms",
    )
