"""The same views as JSON, under /api/v1: the `as_dict` of the views in Python. Errors are problem+json (RFC 9457)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from tenure.core.arguments import plain
from tenure.util.instants import moment
from tenure.web.visits import Refused, Visit, whole

RUNS = 100
MOST = 1000
"""Runs of one answer."""


def problem(status: int, title: str, text: str) -> Response:
    """An error."""
    body = {"type": "about:blank", "title": title, "status": status, "detail": text}
    headers = {"www-authenticate": "Bearer"} if status == HTTPStatus.UNAUTHORIZED else None
    return Response(json.dumps(body), status, headers, media_type="application/problem+json")


async def _status(visit: Visit) -> Response:
    page = await run_in_threadpool(visit.site.reader.now, "", "", 0)
    return _json(
        visit,
        {
            "application": visit.site.reader.application,
            "ok": page.ok,
            "verdict": page.verdict,
            "attention": [one.as_dict() for one in page.attention],
            "planner": None if page.planner is None else _plain(asdict(page.planner)),
            "nodes": [_plain(asdict(node)) for node in page.nodes],
            "open": page.open,
            "failed_last_day": page.bad,
            "next": [{"at": at.isoformat(), "job": name} for at, name in page.due],
        },
    )


async def _jobs(visit: Visit) -> Response:
    jobs = await run_in_threadpool(visit.site.scheduler.jobs)
    return _json(visit, [_hidden(visit, job.as_dict(), job.name, job.kwargs) for job in jobs])


async def _job(visit: Visit) -> Response:
    job = await run_in_threadpool(visit.site.scheduler.find_job, visit.asked("name"))
    return _json(visit, _hidden(visit, job.as_dict(), job.name, job.kwargs))


async def _why(visit: Visit) -> Response:
    name, at = visit.asked("name"), visit.asked("at")
    text = await run_in_threadpool(visit.site.scheduler.why, name, at or None)
    return _json(visit, {"job": name, "why": str(text)})


async def _runs(visit: Visit) -> Response:
    limit = visit.number("limit", RUNS)
    if not 1 <= limit <= MOST:
        raise Refused(400, "Too many", f"limit: {limit} is not from 1 to {MOST:,}.")
    states: Any = visit.request.query_params.getlist("state") or None  # what is not one is refused there

    def look() -> Any:
        return visit.site.scheduler.runs(
            visit.asked("job") or None,
            since=visit.asked("since") or None,
            until=visit.asked("until") or "-0s",
            state=states,
            limit=limit,
        )

    runs = await run_in_threadpool(look)
    return _json(visit, [_hidden(visit, run.as_dict(), run.job, run.kwargs) for run in runs])


async def _run(visit: Visit) -> Response:
    page = await run_in_threadpool(visit.site.reader.run, whole(visit.request.path_params["number"], "run"))
    run = _hidden(visit, page.run.as_dict(), page.run.job, page.run.kwargs)
    return _json(visit, {**run, "log": [line.as_dict() for line in page.log], "log_lines_before": page.cut})


async def _audit(visit: Visit) -> Response:
    since, until = visit.asked("since") or "-1d", visit.asked("until")
    page = await run_in_threadpool(visit.site.reader.audit, visit.asked("job"), since, until)
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
    return _json(visit, {"clean": page.clean, "jobs": jobs})


ROUTES = {
    "/api/v1/status": _status,
    "/api/v1/jobs": _jobs,
    "/api/v1/job": _job,
    "/api/v1/why": _why,
    "/api/v1/runs": _runs,
    "/api/v1/runs/{number}": _run,
    "/api/v1/audit": _audit,
}


def _hidden(visit: Visit, view: dict[str, Any], job: str, kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """Arguments are shown only where they are asked for, and as far as `redact` lets them."""
    if kwargs is None:
        return view
    asked = visit.asked("arguments") == "shown"
    return {**view, "kwargs": plain(dict(visit.site.shown(job, kwargs))) if asked else None}


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {word: plain(value) for word, value in fields.items()}


def _json(visit: Visit, value: Any) -> Response:
    body = json.dumps(value, ensure_ascii=True).encode()
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"etag": tag, "cache-control": "private, no-cache"}
    given = visit.request.headers.get("if-none-match", "")
    if tag in {one.strip().removeprefix("W/") for one in given.split(",")}:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")
