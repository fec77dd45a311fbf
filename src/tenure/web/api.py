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
from tenure.web.page_request import PageRequest, Refused, whole
from tenure.web.pages import audit, now, run

RUNS = 100
MOST = 1000
"""Runs of one answer."""


def problem(status: int, title: str, text: str) -> Response:
    """An error."""
    body = {"type": "about:blank", "title": title, "status": status, "detail": text}
    headers = {"www-authenticate": "Bearer"} if status == HTTPStatus.UNAUTHORIZED else None
    return Response(json.dumps(body), status, headers, media_type="application/problem+json")


async def _status(request: PageRequest) -> Response:
    page = await run_in_threadpool(now.read, request.site.reads, "", "", 0)
    return _json(
        request,
        {
            "application": request.site.reads.application,
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


async def _jobs(request: PageRequest) -> Response:
    jobs = await run_in_threadpool(request.site.scheduler.jobs)
    return _json(request, [_hidden(request, job.as_dict(), job.name, job.kwargs) for job in jobs])


async def _job(request: PageRequest) -> Response:
    job = await run_in_threadpool(request.site.scheduler.find_job, request.asked("name"))
    return _json(request, _hidden(request, job.as_dict(), job.name, job.kwargs))


async def _why(request: PageRequest) -> Response:
    name, at = request.asked("name"), request.asked("at")
    text = await run_in_threadpool(request.site.scheduler.why, name, at or None)
    return _json(request, {"job": name, "why": str(text)})


async def _runs(request: PageRequest) -> Response:
    limit = request.number("limit", RUNS)
    if not 1 <= limit <= MOST:
        raise Refused(400, "Too many", f"limit: {limit} is not from 1 to {MOST:,}.")
    states: Any = request.http.query_params.getlist("state") or None  # what is not one is refused there

    def look() -> Any:
        return request.site.scheduler.runs(
            request.asked("job") or None,
            since=request.asked("since") or None,
            until=request.asked("until") or "-0s",
            state=states,
            limit=limit,
        )

    runs = await run_in_threadpool(look)
    return _json(request, [_hidden(request, run.as_dict(), run.job, run.kwargs) for run in runs])


async def _run(request: PageRequest) -> Response:
    page = await run_in_threadpool(run.read, request.site.reads, whole(request.http.path_params["number"], "run"))
    shown = _hidden(request, page.run.as_dict(), page.run.job, page.run.kwargs)
    return _json(request, {**shown, "log": [line.as_dict() for line in page.log], "log_lines_before": page.cut})


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
    return _json(request, {"clean": page.clean, "jobs": jobs})


ROUTES = {
    "/api/v1/status": _status,
    "/api/v1/jobs": _jobs,
    "/api/v1/job": _job,
    "/api/v1/why": _why,
    "/api/v1/runs": _runs,
    "/api/v1/runs/{number}": _run,
    "/api/v1/audit": _audit,
}


def _hidden(request: PageRequest, view: dict[str, Any], job: str, kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """Arguments are shown only where they are asked for, and as far as `redact` lets them."""
    if kwargs is None:
        return view
    asked = request.asked("arguments") == "shown"
    return {**view, "kwargs": plain(dict(request.site.shown(job, kwargs))) if asked else None}


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {word: plain(value) for word, value in fields.items()}


def _json(request: PageRequest, value: Any) -> Response:
    body = json.dumps(value, ensure_ascii=True).encode()
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"etag": tag, "cache-control": "private, no-cache"}
    given = request.http.headers.get("if-none-match", "")
    if tag in {one.strip().removeprefix("W/") for one in given.split(",")}:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")
