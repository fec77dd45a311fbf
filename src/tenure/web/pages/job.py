"""The page of a job: when it is due, how its runs went, who changed it, and what may be done."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from tenure.core.arguments import decode, encode
from tenure.core.messages import RunQuery
from tenure.core.records import Change, Rules, RunId
from tenure.core.trigger_text import expressions, read_trigger
from tenure.errors import ConfigurationError
from tenure.jobs.operations import unknown
from tenure.stores.base import Session
from tenure.triggers.base import ClockChange
from tenure.util.instants import moment
from tenure.util.printable import spelt
from tenure.views import BackfillView, JobView, RunView
from tenure.web import operations
from tenure.web.backfill_offer import INCLUDES
from tenure.web.ledger_reads import LedgerReads, check_name
from tenure.web.page_request import PageRequest
from tenure.web.pages import job_history
from tenure.web.pages.job_strips import JobStrip, strips_of
from tenure.web.times import in_zone, instant_of

RUNS, CHANGES, NEXT, BACKFILLS = 50, 50, 5, 5
"""Runs, changes, due times and backfills of the page. To count how far a backfill is may mean 10,000 rows."""


@dataclass(frozen=True, slots=True)
class ChangeLine:
    """A line of the history of a job."""

    at: datetime
    what: str
    by: str
    why: str
    until: datetime | None


@dataclass(frozen=True, slots=True)
class JobPage:
    """A job."""

    at: datetime
    line: JobStrip
    times: tuple[datetime, ...]
    clock_changes: tuple[ClockChange, ...]
    explained: str
    expressions: tuple[str, ...]
    """The cron expressions of its trigger, as they were written."""
    arguments: str
    """Its arguments as they are stored."""
    runs: tuple[RunView, ...]
    older: tuple[datetime, int] | None
    """The due time and the number of the last run of this page: the next one begins below it."""
    changes: tuple[ChangeLine, ...]
    why: str
    """What the job is doing."""
    backfills: tuple[BackfillView, ...]
    has_due_times: bool
    """It has a trigger of its own, so due times of the past can be run."""

    @property
    def job(self) -> JobView:
        """The job."""
        return self.line.job


def read(reads: LedgerReads, name: str, before: datetime | None, below: int | None) -> JobPage:
    """A job, with its runs before an instant, and those at this instant whose numbers are below this one."""
    check_name(name)
    return reads.read(("job", name, before, below), lambda session: _read(reads, session, name, before, below))


def _read(reads: LedgerReads, session: Session, name: str, before: datetime | None, below: int | None) -> JobPage:
    application, lookup = reads.application, reads.lookup
    ledger = session.ledger
    rows = ledger.jobs(application, name, removed=True)
    if not rows:
        raise unknown(ledger, application, name)
    row, now = rows[0], ledger.now()
    (line,) = strips_of(reads, ledger, [row], now)
    until = now + 1e-6 if before is None else before.timestamp()
    number = None if below is None or before is None else RunId(below)
    found = ledger.runs(RunQuery(application, name, before=until, below=number, limit=RUNS + 1))
    runs = tuple(lookup.shown_runs(ledger, found[:RUNS]))
    changes = ledger.changes(application, name)[-CHANGES:]
    why = lookup.why(ledger, name, None).text
    trigger, _ = read_trigger(row.spec.trigger)
    times: tuple[datetime, ...] = ()
    clock_changes: tuple[ClockChange, ...] = ()
    explained = ""
    if trigger is not None:
        try:
            preview = trigger.preview(NEXT if row.state.value == "active" else 0, moment(now))
            times, clock_changes, explained = preview.times, preview.changes, preview.explanation
        except ConfigurationError as error:
            explained = f"cannot be planned: {error}"
    return JobPage(
        at=moment(now, reads.zone),
        line=line,
        times=times,
        clock_changes=clock_changes,
        explained=explained or line.job.trigger,
        expressions=() if trigger is None else expressions(trigger),
        arguments=row.spec.kwargs,
        runs=runs,
        older=(runs[-1].scheduled_for, runs[-1].id) if len(found) > RUNS else None,
        changes=tuple(
            ChangeLine(
                moment(one.at, line.zone),
                one.what.value,
                one.by,
                one.why,
                None if one.until is None or one.what is not Change.PAUSED else moment(one.until, line.zone),
            )
            for one in reversed(changes)
        ),
        why=why,
        backfills=tuple(lookup.backfills(ledger, name, BACKFILLS)),
        has_due_times=trigger is not None,
    )


def why(reads: LedgerReads, name: str, at: str) -> str:
    """Why a job ran, or did not, at a time as people write it; without a zone, that of the job."""
    check_name(name)

    def look(session: Session) -> str:
        ledger = session.ledger
        rows = ledger.jobs(reads.application, name, removed=True)
        when: datetime | str = at.strip()
        if rows and isinstance(when, str) and not when.startswith("-"):
            when = in_zone(when, reads.lookup.zone(ledger, rows[0]), "at")
        return reads.lookup.why(ledger, name, when).text

    return reads.read(("why", name, at), look)


def _prefilled(request: PageRequest, found: JobPage) -> str:
    """The arguments of the job, for who may run it with others, if they may be shown as they are; else ''."""
    if not (request.caller.may("run-now") and request.caller.may("run-now-arguments")):
        return ""
    try:
        arguments = decode(found.arguments)  # anew: `redact` may change what it is given
        if not arguments or encode(request.site.shown(found.job.name, arguments)) != found.arguments:
            return ""
    except Exception:  # of `redact`, which says so where arguments are asked for
        return ""
    text = json.dumps(json.loads(found.arguments), indent=2, ensure_ascii=False)
    return text if spelt(text) == text else json.dumps(json.loads(found.arguments), indent=2)


def _options(rules: Rules) -> list[tuple[str, Any, bool]]:
    """The options of a job, those first that differ from what they are where nothing is said."""
    default = Rules()
    names = Rules.__dataclass_fields__
    rows = [(name, getattr(rules, name), getattr(rules, name) != getattr(default, name)) for name in names]
    return sorted(rows, key=lambda row: not row[2])


async def show(request: PageRequest) -> Response:
    """Answer a request."""
    name, before, asked = request.asked("name"), request.asked("before"), request.asked("at").strip()
    below = request.number("below") if request.asked("below") else None
    found = await run_in_threadpool(read, request.site.reads, name, instant_of(before), below)
    answer = await run_in_threadpool(why, request.site.reads, name, asked) if asked else ""
    kwargs = request.site.shown(found.job.name, found.job.kwargs) if request.asked("arguments") == "shown" else None
    prefilled = _prefilled(request, found)
    return request.show(
        "job.html",
        page=found,
        at=found.at,
        asked=asked,
        answer=answer,
        before=before,
        kwargs=kwargs,
        options=_options(found.job.rules),
        done=operations.done(request),
        key=operations.fresh_key(),
        includes=INCLUDES,
        prefilled=prefilled,
        untouched=operations.digest(prefilled),
        history=await run_in_threadpool(job_history.read, request.site.reads, name),
    )
