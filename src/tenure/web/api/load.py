"""The load ahead and what-if as JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from tenure.core.load import MINUTE
from tenure.core.what_if import OutageOfJob
from tenure.jobs.load_view import NAMES, change_as_dict, load_as_dict
from tenure.util.instants import moment
from tenure.web.api.answers import found
from tenure.web.page_request import PageRequest, Refused
from tenure.web.pages import load
from tenure.web.pages.load import LoadView
from tenure.web.what_if import OutageAnswer, ScheduleAnswer


async def load_(request: PageRequest) -> Response:
    """The load of the next 24 h, as it was counted last."""
    page = await run_in_threadpool(load.read, request.site.reads)
    progress = page.state.progress
    return found(
        request,
        {
            "counting": None if progress is None else {"done": progress[0], "of": progress[1]},
            "problem": page.state.problem,
            "load": None if page.view is None else _load(page.view),
        },
    )


async def what_if(request: PageRequest) -> Response:
    """What a schedule or an outage would do."""
    given = load.question_of(request)
    if not any(given[word].strip() for word in ("expr", "from", "to")):
        raise Refused(400, "What if what?", "Write expr=… for a schedule, or from=… and to=… for an outage.")
    answers = await run_in_threadpool(load.what_if, request.site.reads, given)
    if answers.trouble:
        raise Refused(503, "Not counted yet", answers.trouble)
    zone = request.site.reads.zone

    def time(at: float) -> str:
        return moment(at, zone).isoformat()

    return found(
        request,
        {
            "schedule": None if answers.schedule is None else _schedule(answers.schedule),
            "outage": None if answers.outage is None else _outage(answers.outage, time),
        },
    )


def _load(view: LoadView) -> dict[str, Any]:
    counted = view.counted
    return {
        "counted_at": view.counted_at.isoformat(),
        "took": round(counted.took, 3),
        "paused": counted.paused,
        **load_as_dict(counted.load, view.outlook, view.pools, view.zone),
    }


def _schedule(one: ScheduleAnswer) -> dict[str, Any]:
    at, most = one.busiest
    return {
        "job": one.job,
        "text": one.found.explanation,
        "times": [time.isoformat() for time in one.found.times],
        "clock_changes": [change_as_dict(change) for change in one.found.clock_changes],
        "due": one.found.load.total,
        "before": None if one.before is None else one.before.total,
        "starts": list(one.found.load.starts),
        "others": list(one.others.starts),
        "busiest": {"at": moment(one.start + at * MINUTE).isoformat(), "due": most},
        "quietest_minute": None if one.quiet is None else one.quiet[0],
        "cut": one.found.cut,
        "outages": [
            {"lasts": length, "becomes": None if outage is None else _fate(outage)} for length, outage in one.examples
        ],
    }


def _fate(one: OutageOfJob) -> dict[str, Any]:
    return {
        "due": one.due,
        "late": one.late,
        "made_up": len(one.made_up),
        "never_run": one.skipped,
        "unharmed": one.unharmed,
        "cut": one.cut,
    }


def _outage(one: OutageAnswer, time: Callable[[float], str]) -> dict[str, Any]:
    return {
        "from": one.since.isoformat(),
        "until": one.until.isoformat(),
        "jobs": one.jobs,
        "looked_at": one.looked_at,
        "concerned": one.concerned,
        "unknown": list(one.unknown[:NAMES]),
        "due": one.due,
        "late": one.late,
        "made_up": one.made_up,
        "never_run": one.skipped,
        "unharmed": one.unharmed,
        "at_once": one.at_once,
        "work": round(one.work, 3),
        "cut": one.cut,
        "of": [
            {
                "job": row.job,
                **_fate(row),
                "overlap": row.overlap,
                "overlapping": row.overlapping,
                "made_up_for": [time(at) for at in row.made_up],
                "first_never_run": None if row.first_skipped is None else time(row.first_skipped),
                "last_never_run": None if row.last_skipped is None else time(row.last_skipped),
            }
            for row in one.rows
        ],
    }
