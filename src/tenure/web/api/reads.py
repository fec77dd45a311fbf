"""What may be read: a handler for each address."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib import resources
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from tenure.core.differences import explained
from tenure.core.explain import Explanation
from tenure.core.keys import planner_of
from tenure.core.records import Instant, RunId
from tenure.errors import ConfigurationError
from tenure.stores.base import Session
from tenure.stores.ledger import Ledger
from tenure.util.instants import moment
from tenure.views import ActionView, AlertView, BackfillView, JobView, PoolView, RunView
from tenure.web.api import load
from tenure.web.api.answers import chosen, flat, found, hidden, limit, shows_arguments
from tenure.web.ledger_reads import check_name
from tenure.web.page_request import Handler, PageRequest, Refused, whole
from tenure.web.pages import audit, backfill, now, run

OPENAPI = json.loads(resources.files("tenure.web.api").joinpath("openapi.json").read_text(encoding="utf-8"))
"""The description of every address of the API."""
_MICROS = 1_000_000


async def _openapi(request: PageRequest) -> Response:
    return found(request, OPENAPI)


async def _status(request: PageRequest) -> Response:
    page = await run_in_threadpool(now.read, request.site.reads, now.JobFilter())
    return found(
        request,
        {
            "application": request.site.reads.application,
            "ok": page.ok,
            "verdict": page.verdict,
            "attention": [one.as_dict() for one in page.attention],
            "alerts": [one.as_dict() for one in page.alerts],
            "planner": None if page.planner is None else flat(asdict(page.planner)),
            "nodes": [node.as_dict() for node in page.nodes],
            "open": page.open,
            "failed_last_day": page.bad,
            "next": [{"at": at.isoformat(), "job": name} for at, name in page.due],
        },
    )


async def _nodes(request: PageRequest) -> Response:
    reads = request.site.reads

    def look(session: Session) -> list[dict[str, Any]]:
        return [node.as_dict() for node in reads.lookup.nodes(session.ledger)]

    return found(request, await run_in_threadpool(reads.read, "api nodes", look))


async def _terms(request: PageRequest) -> Response:
    reads, most = request.site.reads, limit(request)
    election = planner_of(reads.application)

    def look(session: Session) -> list[dict[str, Any]]:
        return [{**flat(asdict(term)), "gap_at_most": term.gap_at_most} for term in session.terms(election, most)]

    return found(request, await run_in_threadpool(reads.read, ("api terms", most), look))


async def _pools(request: PageRequest) -> Response:
    reads = request.site.reads

    def look(session: Session) -> list[dict[str, Any]]:
        return [PoolView.of(pool).as_dict() for pool in session.ledger.pools(reads.application)]

    return found(request, await run_in_threadpool(reads.read, "api pools", look))


async def _next(request: PageRequest) -> Response:
    reads, most = request.site.reads, limit(request)

    def look(session: Session) -> list[dict[str, Any]]:
        return [{"at": at.isoformat(), "job": name} for at, name in reads.lookup.next(session.ledger, most)]

    return found(request, await run_in_threadpool(reads.read, ("api next", most), look))


async def _jobs(request: PageRequest) -> Response:
    reads, most, after = request.site.reads, limit(request), request.asked("after")
    check_name(after)
    shows_arguments(request)
    pattern, tag, queue = (request.asked(word) or None for word in ("pattern", "tag", "queue"))
    removed = chosen(request, "removed", ("no", "yes")) == "yes"

    def look(session: Session) -> list[JobView]:
        page: dict[str, Any] = {"after": after, "limit": most + 1}
        return reads.lookup.jobs(session.ledger, pattern, tag=tag, queue=queue, removed=removed, **page)

    jobs = await run_in_threadpool(reads.read, ("api jobs", pattern, tag, queue, removed, after, most), look)
    rows = [hidden(request, job.as_dict(), job.name, job.kwargs) for job in jobs[:most]]
    return found(request, rows, after=jobs[most - 1].name if len(jobs) > most else None)


async def _job(request: PageRequest) -> Response:
    reads, name = request.site.reads, request.asked("name")

    def look(session: Session) -> JobView:
        return reads.lookup.job(session.ledger, name)

    job = await run_in_threadpool(reads.read, ("api job", name), look)
    return found(request, hidden(request, job.as_dict(), job.name, job.kwargs))


async def _changes(request: PageRequest) -> Response:
    reads, name, most = request.site.reads, request.asked("name"), limit(request)

    def look(session: Session) -> list[dict[str, Any]]:
        row = reads.lookup.row(session.ledger, name)
        where = reads.lookup.zone(session.ledger, row)
        return [
            {
                "at": moment(one.at, where).isoformat(),
                "what": one.what.value,
                "by": one.by,
                "why": one.why,
                "until": None if one.until is None else moment(one.until, where).isoformat(),
                "generation": one.generation,
                "trigger": explained(one.trigger),
            }
            for one in reads.lookup.changes(session.ledger, name, most)
        ]

    return found(request, await run_in_threadpool(reads.read, ("api changes", name, most), look))


async def _why(request: PageRequest) -> Response:
    reads, name, at = request.site.reads, request.asked("name"), request.asked("at")

    def look(session: Session) -> Explanation:
        return reads.lookup.why(session.ledger, name, at or None)

    told = await run_in_threadpool(reads.read, ("api why", name, at), look)
    return found(request, {"job": name, "why": told.text, "cause": told.cause, "facts": flat(told.facts)})


async def _runs(request: PageRequest) -> Response:
    reads, most, after = request.site.reads, limit(request), _cursor(request.asked("after"))
    states: Any = request.http.query_params.getlist("state") or None  # what is not one is refused there
    shows_arguments(request)
    job, since = request.asked("job") or None, request.asked("since") or None
    until = request.asked("until") or "-0s"

    def look(session: Session) -> list[RunView]:
        ledger: Ledger = session.ledger
        return reads.lookup.runs(ledger, job, since=since, until=until, state=states, limit=most + 1, after=after)

    question = "api runs", job, since, until, tuple(states or ()), most, after
    runs = await run_in_threadpool(reads.read, question, look)
    rows = [hidden(request, one.as_dict(), one.job, one.kwargs) for one in runs[:most]]
    return found(request, rows, after=_after(runs[most - 1]) if len(runs) > most else None)


async def _run(request: PageRequest) -> Response:
    page = await run_in_threadpool(run.read, request.site.reads, whole(request.http.path_params["number"], "run"))
    shown = hidden(request, page.run.as_dict(), page.run.job, page.run.kwargs)
    return found(request, {**shown, "log": [line.as_dict() for line in page.log], "log_lines_before": page.cut})


async def _backfills(request: PageRequest) -> Response:
    reads, job, most = request.site.reads, request.asked("job") or None, limit(request)

    def look(session: Session) -> list[BackfillView]:
        return reads.lookup.backfills(session.ledger, job, most)

    rows = await run_in_threadpool(reads.read, ("api backfills", job, most), look)
    return found(request, [one.as_dict() for one in rows])


async def _backfill(request: PageRequest) -> Response:
    page = await run_in_threadpool(
        backfill.read, request.site.reads, whole(request.http.path_params["number"], "backfill")
    )
    return found(request, page.backfill.as_dict())


async def _actions(request: PageRequest) -> Response:
    reads, most, below = request.site.reads, limit(request), request.number("after") or None
    job, by = request.asked("job") or None, request.asked("by") or None
    since, until = request.asked("since") or None, request.asked("until") or None

    def look(session: Session) -> list[ActionView]:
        ledger: Ledger = session.ledger
        return reads.lookup.actions(ledger, job, since=since, until=until, by=by, limit=most + 1, below=below)

    actions = await run_in_threadpool(reads.read, ("api actions", job, by, since, until, most, below), look)
    rows = [one.as_dict() for one in actions[:most]]
    return found(request, rows, after=str(actions[most - 1].id) if len(actions) > most else None)


async def _alerts(request: PageRequest) -> Response:
    reads, most = request.site.reads, limit(request)

    def look(session: Session) -> list[AlertView]:
        return reads.lookup.alerts(session.ledger, most)

    alerts = await run_in_threadpool(reads.read, ("api alerts", most), look)
    return found(request, [one.as_dict() for one in alerts])


async def _audit(request: PageRequest) -> Response:
    since, until = request.asked("since") or "-1d", request.asked("until")
    page = await run_in_threadpool(audit.read, request.site.reads, request.asked("job"), since, until)
    jobs = [
        {
            "job": one.name,
            "clean": one.clean,
            "since": moment(one.since, one.tz).isoformat(),
            "until": moment(one.until, one.tz).isoformat(),
            "due": one.due,
            "counts": dict(one.counts),
            "findings": [
                {
                    **asdict(finding),
                    "first": moment(finding.first, one.tz).isoformat(),
                    "last": moment(finding.last, one.tz).isoformat(),
                }
                for finding in one.findings
            ],
        }
        for one in page.found
    ]
    return found(request, {"clean": page.clean, "jobs": jobs})


READS: dict[str, Handler] = {
    "/api/v1/openapi.json": _openapi,
    "/api/v1/status": _status,
    "/api/v1/nodes": _nodes,
    "/api/v1/terms": _terms,
    "/api/v1/pools": _pools,
    "/api/v1/next": _next,
    "/api/v1/jobs": _jobs,
    "/api/v1/job": _job,
    "/api/v1/changes": _changes,
    "/api/v1/why": _why,
    "/api/v1/runs": _runs,
    "/api/v1/runs/{number}": _run,
    "/api/v1/backfills": _backfills,
    "/api/v1/backfills/{number}": _backfill,
    "/api/v1/actions": _actions,
    "/api/v1/alerts": _alerts,
    "/api/v1/audit": _audit,
    "/api/v1/load": load.load_,
    "/api/v1/what-if": load.what_if,
}


def _after(run: RunView) -> str:
    """Where a page ends: runs are in order of their due times, and of their numbers where these are the same."""
    return f"{round(run.scheduled_for.timestamp() * _MICROS)}.{run.id}"


def _cursor(given: str) -> tuple[Instant, RunId] | None:
    if not given:
        return None
    at, _, number = given.partition(".")
    try:
        micros, run_id = int(at), whole(number, "after")
        moment(micros / _MICROS)
    except (ValueError, OverflowError, ConfigurationError):
        raise Refused(400, "No such page", f"after: {given[:60]!r} is not what the answer before said.") from None
    return micros / _MICROS, RunId(run_id)
