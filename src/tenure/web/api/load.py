"""The load ahead and what-if as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from tenure.core.clock_changes import TouchedJobs
from tenure.core.load import MINUTE, QueueLoad
from tenure.core.load_outlook import QueueOutlook
from tenure.core.what_if import OutageOfJob
from tenure.triggers import ClockChange
from tenure.util.durations import written
from tenure.util.instants import moment
from tenure.web.api.answers import found
from tenure.web.page_request import PageRequest, Refused
from tenure.web.pages import load
from tenure.web.pages.load import LoadPage, LoadView
from tenure.web.what_if import OutageAnswer, ScheduleAnswer

NAMES = 1000
"""Names of a list of jobs."""


async def load_(request: PageRequest) -> Response:
    """The load of the next 24 h, as it was counted last."""
    page = await run_in_threadpool(load.read, request.site.reads)
    progress = page.state.progress
    return found(
        request,
        {
            "counting": None if progress is None else {"done": progress[0], "of": progress[1]},
            "problem": page.state.problem,
            "load": None if page.view is None else _load(page, page.view),
        },
    )


async def what_if(request: PageRequest) -> Response:
    """What a schedule or an outage would do."""
    given = load.asked(request)
    if not any(given[word].strip() for word in ("expr", "from", "to")):
        raise Refused(400, "What if what?", "Write expr=… for a schedule, or from=… and to=… for an outage.")
    answers = await run_in_threadpool(load.what_if, request.site.reads, given)
    if answers.trouble:
        raise Refused(503, "Not counted yet", answers.trouble)
    zone = request.site.reads.zone
    return found(
        request,
        {
            "schedule": None if answers.schedule is None else _schedule(answers.schedule),
            "outage": None if answers.outage is None else _outage(answers.outage, lambda at: moment(at, zone).isoformat()),
        },
    )


def _load(page: LoadPage, view: LoadView) -> dict[str, Any]:
    counted, outlook, ahead = view.counted, view.outlook, view.counted.load
    zone = view.zone

    def queue(one: QueueOutlook) -> dict[str, Any]:
        return {
            **_minutes(one.load),
            "queue": one.load.queue,
            "nodes": one.nodes,
            "places": one.places,
            "longest_wait": round(one.longest, 3),
        }

    return {
        "ok": outlook.ok,
        "text": outlook.text,
        "counted_at": view.counted_at.isoformat(),
        "took": round(counted.took, 3),
        "from": moment(ahead.start, zone).isoformat(),
        "until": moment(ahead.start + MINUTE * len(outlook.whole.load.starts), zone).isoformat(),
        "jobs": ahead.jobs,
        "paused": counted.paused,
        "unmeasured": ahead.unmeasured,
        "requested": ahead.requested,
        "unreadable": list(ahead.unreadable[:NAMES]),
        "nodes": outlook.whole.nodes,
        "places": outlook.whole.places,
        "longest_wait": round(outlook.whole.longest, 3),
        "hours": [
            {
                "at": hour.at.isoformat(),
                "due": hour.due,
                "busiest": hour.busiest.isoformat(),
                "most_due": hour.most_due,
                "most_busy": hour.most_busy,
                "longest_wait": round(hour.longest_wait, 3),
            }
            for hour in view.hours
        ],
        "queues": [queue(one) for one in outlook.queues[:NAMES]],
        "pools": [
            {
                "pool": one.pool.name,
                "size": one.pool.size,
                "due": one.due,
                "most_busy": one.most,
                "longest_wait": round(one.longest_wait, 3),
            }
            for one in view.pools
        ],
        "held_back": [
            {"job": one.job, "due": one.due, "held": one.held, "took": one.took, "overlap": one.overlap}
            for one in ahead.held_back
        ],
        "herds": [
            {
                "at": one.herd.herd.at.isoformat(),
                **_named(one.herd.herd.jobs),
                "spread": written(one.herd.herd.spread),
                "with_spread": list(one.herd.minutes),
            }
            for one in ahead.herds
        ],
        "clock_changes": [_touched(one) for one in ahead.clock_changes],
    }


def _minutes(load: QueueLoad) -> dict[str, Any]:
    return {"due": load.total, "starts": list(load.starts), "busy": list(load.busy)}


def _named(jobs: Sequence[str]) -> dict[str, Any]:
    return {"count": len(jobs), "jobs": list(jobs[:NAMES])}


def _touched(one: TouchedJobs) -> dict[str, Any]:
    return {**_change(one.change), **_named(one.jobs)}


def _change(change: ClockChange) -> dict[str, Any]:
    return {"at": change.at.isoformat(), "by": change.by.total_seconds(), "effect": change.effect}


def _schedule(one: ScheduleAnswer) -> dict[str, Any]:
    at, most = one.busiest
    return {
        "job": one.job,
        "text": one.found.explanation,
        "times": [time.isoformat() for time in one.found.times],
        "clock_changes": [_change(change) for change in one.found.clock_changes],
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
