"""The load ahead: what may begin when, whether it fits, herds, clock changes; and what-if."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from functools import partial

from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from tenure.core.clock_changes import TouchedJobs, at_of
from tenure.core.load import QueueLoad
from tenure.core.load_outlook import HourOfLoad, Outlook, QueueOutlook, outlook
from tenure.core.records import Instant, NodeFacts, PoolRow
from tenure.errors import ConfigurationError
from tenure.jobs.load_view import PoolLine, pool_lines
from tenure.stores.base import Session
from tenure.util.durations import written
from tenure.util.instants import moment
from tenure.web import load_drawings
from tenure.web.ledger_reads import LedgerReads
from tenure.web.load_counter import CountedLoad, LoadState
from tenure.web.page_request import PageRequest, Refused
from tenure.web.what_if import (
    SHOWN,
    AskedOutage,
    AskedSchedule,
    OutageAnswer,
    ScheduleAnswer,
    answer_outage,
    answer_schedule,
)

FIRST = 1.0
"""Seconds for which a page waits for the first count: that of a small application is there at once."""
NAMED = 5
"""Jobs that are named; further ones are counted, and listed when they are asked for …"""
LISTED = 500
"""… up to so many."""
ASKED = ("expr", "tz", "job", "queue", "spread", "missed", "grace", "overlap", "from", "to", "jobs")
"""What the forms of what-if ask."""


@dataclass(frozen=True, slots=True)
class LoadView:
    """A count beside the nodes and pools of now."""

    counted: CountedLoad
    zone: tzinfo
    now: Instant
    outlook: Outlook
    shown: QueueOutlook
    """The queue that is asked for, or all."""
    pools: tuple[PoolLine, ...]

    @property
    def counted_at(self) -> datetime:
        """When the count began."""
        return moment(self.counted.at, self.zone)

    @property
    def hours(self) -> list[HourOfLoad]:
        """Hour by hour, of what is shown."""
        shown = Outlook(self.outlook.ok, "", self.shown, ())
        return shown.hours(self.zone, self.counted.load.start)

    @property
    def clock_changes(self) -> list[tuple[str, int, list[TouchedJobs]]]:
        """Each of the clock changes in words, how many jobs it touches, and how, what touches most of them first."""
        changes: dict[str, list[TouchedJobs]] = {}
        for touched in self.counted.load.clock_changes:
            changes.setdefault(at_of(touched.change), []).append(touched)
        return [
            (change, len({job for one in effects for job in one.jobs}), sorted(effects, key=lambda one: -len(one.jobs)))
            for change, effects in changes.items()
        ]

    @property
    def drawn(self) -> list[QueueLoad]:
        """The queues of the first drawing."""
        load = self.counted.load
        return [self.shown.load] if self.shown.load.queue else load_drawings.shaded(load.queues)


@dataclass(frozen=True, slots=True)
class LoadPage:
    """The page."""

    at: datetime
    state: LoadState
    view: LoadView | None
    """None: the first count is not complete."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What was asked, the answers, and why there is none."""

    schedule: ScheduleAnswer | None = None
    outage: OutageAnswer | None = None
    trouble: str = ""
    about: str = ""
    """Which of the forms the trouble is about."""


def read(reads: LedgerReads, queue: str = "") -> LoadPage:
    """The load, as it was counted last, beside the nodes and pools of now."""
    state = reads.load.state(FIRST)
    now, nodes, pools = reads.read("load", partial(_now, reads.application))
    counted, zone = state.counted, reads.zone
    if counted is None:
        return LoadPage(moment(now, zone), state, None)
    found = outlook(counted.load, nodes, zone)
    shown = next((one for one in found.queues if queue and one.load.queue == queue), found.whole)
    if queue and shown is found.whole:
        raise Refused(404, "No such queue", f"Nothing is due on a queue {queue!r:.80} in the next 24 h.")
    view = LoadView(counted, zone, now, found, shown, pool_lines(counted.load, pools))
    return LoadPage(moment(now, zone), state, view)


def _now(application: str, session: Session) -> tuple[Instant, list[NodeFacts], list[PoolRow]]:
    ledger = session.ledger
    return ledger.now(), ledger.present(application), ledger.pools(application)


def what_if(reads: LedgerReads, given: dict[str, str]) -> WhatIf:
    """The answers to what a request asks. Raises what is wrong with it."""
    schedule, outage = AskedSchedule.of(given), AskedOutage.of(given)
    if schedule is None and outage is None:
        return WhatIf()
    state = reads.load.state(FIRST)
    if state.counted is None:
        return WhatIf(trouble=state.problem or "The jobs are being counted for the first time. Ask again in a moment.")
    now, zone, application, load = state.counted.at, reads.zone, reads.application, reads.load
    return WhatIf(
        schedule=None
        if schedule is None
        else load.answer(schedule, lambda counted: answer_schedule(schedule, counted, application, zone)),
        outage=None
        if outage is None
        else load.answer(outage, lambda counted: answer_outage(outage, counted, application, now, zone)),
    )


def question_of(request: PageRequest) -> dict[str, str]:
    """What a request asks of what-if."""
    return {word: request.asked(word) for word in ASKED}


def _answers(reads: LedgerReads, given: dict[str, str]) -> WhatIf:
    """The same for a page, which says what is wrong beside the form."""
    found = WhatIf()
    for words in (("from", "to", "jobs"), ("expr", "tz", "job", "queue", "spread", "missed", "grace", "overlap")):
        try:
            one = what_if(reads, {word: given[word] for word in words})
        except ConfigurationError as error:
            return WhatIf(trouble=str(error), about="outage" if "from" in words else "schedule")
        found = WhatIf(one.schedule or found.schedule, one.outage or found.outage, one.trouble or found.trouble)
    return found


async def show(request: PageRequest) -> Response:
    """Answer a request."""
    reads, given = request.site.reads, question_of(request)
    queue = "" if given["expr"] else request.asked("queue")
    if "\0" in queue:
        raise Refused(400, "No such queue", "The name of a queue cannot contain the character NUL.")
    page = await run_in_threadpool(read, reads, queue)
    answers = await run_in_threadpool(_answers, reads, given)
    return request.show(
        "load.html",
        page=page,
        at=page.at,
        queue=queue,
        given=given,
        answers=answers,
        beginnings=partial(_drawn_beginnings, page.view),
        beside=_beside,
        forecast=partial(_drawn_forecast, page.view),
        legend=load_drawings.legend,
        herd=load_drawings.herd,
        moment=moment,
        zone=reads.zone,
        written=written,
        NAMED=NAMED,
        LISTED=LISTED,
        SHOWN=SHOWN,
    )


def _drawn_beginnings(view: LoadView | None, queues: Sequence[QueueLoad]) -> Markup:
    return Markup("") if view is None else load_drawings.beginnings(queues, view.counted.load.start, view.zone)


def _drawn_forecast(view: LoadView | None) -> Markup:
    return Markup("") if view is None else load_drawings.forecast(view.shown, view.counted.load.start, view.zone)


def _beside(answer: ScheduleAnswer, zone: tzinfo) -> Markup:
    """The beginnings of a schedule on top of all others."""
    return load_drawings.beginnings([answer.others, answer.found.load], answer.start, zone)
