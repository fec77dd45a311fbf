"""What people do from the page. Each handler asks for its right first, and answers with the page of what it changed."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from tenure.core.arguments import decode
from tenure.errors import ConfigurationError, UnreadableArguments
from tenure.util.plurals import counted
from tenure.util.printable import spelt
from tenure.views import BackfillView, JobView
from tenure.web.backfill_offer import BackfillForm, offered
from tenure.web.page_request import Handler, PageRequest, Refused, whole
from tenure.web.times import until_of

DONE = {
    "run-now": "A run was requested.",
    "pause": "The job is paused: no further run begins.",
    "resume": "The job goes on from now.",
    "remove": "The job was removed. What runs goes on to its end.",
    "restore": "The job is back, as it was when it was removed: it is due from now on.",
    "reset": "The job runs as the code defines it from now on.",
    "cancel": "The run ends, or was asked to end.",
    "retry": "The run is tried again.",
    "backfill": "The backfill was created. Its runs begin, the oldest first.",
    "pause-backfill": "The backfill is paused: no further run of it is requested. Those that were requested go on.",
    "resume-backfill": "The backfill goes on where it was.",
    "cancel-backfill": "The backfill is over: runs that had not begun are cancelled. What runs goes on to its end.",
    "over": "The run was over already; nothing was changed.",
    "resign": "The planner was asked to resign. Another node takes over, if there is one.",
    "no-planner": "No node plans, so none was asked.",
    "no-leader": "No node leads, so none was asked.",
}
"""What a page says after an operation. The address carries the word, never the sentence."""


def done(request: PageRequest) -> str:
    """What was just done, as the address says."""
    said = DONE.get(request.asked("done"), "")
    if said and (silent := request.number("silent")):
        said += (
            f" But {counted(silent, 'node')} did not answer within the ttl: what it had claimed may still begin there "
            "until it is declared dead."
        )
    return said


def fresh_key() -> str:
    """A key for the next "run now" of this very page: pressing twice asks once."""
    return f"page-{secrets.token_hex(8)}"


def digest(text: str) -> str:
    """What tells whether the arguments of a form are still those that it was filled in with."""
    return hashlib.sha256(text.replace("\r\n", "\n").strip().encode()).hexdigest()


async def _run_now(request: PageRequest) -> Response:
    request.need("run-now")
    name, key = _job(request), request.form.get("key", "").strip() or None
    text = request.form.get("kwargs", "").strip()
    kwargs: dict[str, Any] | None = None
    if text and digest(text) != request.form.get("untouched"):
        request.need("run-now-arguments")
        try:
            kwargs = decode(text)
        except UnreadableArguments as error:
            raise ConfigurationError(f'kwargs: {error}. Write a JSON object, such as {{"customer": 7}}.') from None
    why = request.form.get("why", "").strip()
    run = await carry_out(
        request, lambda: request.site.scheduler.run_now(name, kwargs=kwargs, key=key, by=request.by, why=why)
    )
    return _back(request, f"/run/{run.id}", done="run-now")


async def _pause(request: PageRequest) -> Response:
    request.need("pause")
    name, why = _job(request), request.form.get("why", "").strip()
    if not why:
        raise Refused(400, "Why?", "Say why the job is paused: the next person on call will ask.")
    until = until_of(request.form.get("until", "").strip())
    job = await carry_out(request, lambda: request.site.scheduler.pause(name, why=why, until=until, by=request.by))
    return _back(request, "/job", name=name, done="pause", silent=len(job.unanswered))


def _on_job(verb: str) -> Handler:
    """`resume`, `restore` and `reset` take the same."""

    async def change(request: PageRequest) -> Response:
        request.need(verb)
        name, why = _job(request), request.form.get("why", "").strip()
        method: Callable[..., JobView] = getattr(request.site.scheduler, verb)
        await carry_out(request, lambda: method(name, why=why, by=request.by))
        return _back(request, "/job", name=name, done=verb)

    return change


async def _remove(request: PageRequest) -> Response:
    request.need("remove")
    name, why = _job(request), request.form.get("why", "").strip()
    if request.form.get("typed", "").strip() not in {name.strip(), spelt(name).strip()}:
        raise Refused(400, "Not removed", f"Type the name of the job to remove it: {name}")
    job = await carry_out(request, lambda: request.site.scheduler.remove(name, why=why, by=request.by))
    return _back(request, "/job", name=name, done="remove", silent=len(job.unanswered))


async def _cancel(request: PageRequest) -> Response:
    request.need("cancel")
    number, why = whole(request.form.get("run", ""), "run"), request.form.get("why", "").strip()
    run = await carry_out(request, lambda: request.site.scheduler.cancel(number, why=why, by=request.by))
    return _back(request, f"/run/{number}", done="cancel" if run.state in {"running", "cancelled"} else "over")


async def _retry(request: PageRequest) -> Response:
    request.need("retry")
    number, why = whole(request.form.get("run", ""), "run"), request.form.get("why", "").strip()
    await carry_out(request, lambda: request.site.scheduler.retry(number, why=why, by=request.by))
    return _back(request, f"/run/{number}", done="retry")


async def _backfill(request: PageRequest) -> Response:
    """The first form leads to the list of due times. Who then types how many they are, creates the backfill."""
    request.need("backfill")
    form = BackfillForm.of(_job(request), request.form)
    offer, typed = await run_in_threadpool(offered, request.site.reads, form), request.form.get("typed", "").strip()
    made = None
    if offer.due and typed.replace(",", "") == str(len(offer.due)):
        more: dict[str, Any] = {"include": form.include, "at_once": form.at_once, "why": form.why, "by": request.by}
        span, even_forgotten = (form.job, offer.since, offer.until), form.even_forgotten
        method = request.site.scheduler.backfill
        made = await carry_out(request, lambda: method(*span, dry_run=False, even_forgotten=even_forgotten, **more))
    if made is not None and made.number:
        return _back(request, "/backfill", number=made.number, done="backfill")
    status = 400 if typed else 200
    home = f"{request.root}/job?{urlencode({'name': form.job}, quote_via=quote)}"
    return request.show("backfill_offer.html", status, offer=offer, typed=typed, live="off", switched=home)


def _on_backfill(verb: str) -> Handler:
    """`pause-backfill`, `resume-backfill` and `cancel-backfill` take the same."""

    async def steer(request: PageRequest) -> Response:
        request.need(verb)
        number, why = whole(request.form.get("backfill", ""), "backfill"), request.form.get("why", "").strip()
        method: Callable[..., BackfillView] = getattr(request.site.scheduler, verb.replace("-", "_"))
        await carry_out(request, lambda: method(number, why=why, by=request.by))
        return _back(request, "/backfill", number=number, done=verb)

    return steer


async def _resign(request: PageRequest) -> Response:
    request.need("resign")
    election, why = request.form.get("election", ""), request.form.get("why", "").strip()
    if not election:
        term = await carry_out(request, lambda: request.site.scheduler.ask_planner_to_resign(by=request.by, why=why))
        return _back(request, "/", done="no-planner" if term is None else "resign")
    term = await carry_out(request, lambda: request.site.reads.ask_to_resign(election, request.by, why))
    span = next((span for span in ("1h", "7d") if span == request.form.get("span")), None)
    if term is None:
        return _back(request, "/terms", done="no-leader", span=span)
    return _back(request, "/terms", election=election, asked=term, span=span)


ROUTES = {
    "/do/run-now": _run_now,
    "/do/pause": _pause,
    "/do/resume": _on_job("resume"),
    "/do/remove": _remove,
    "/do/restore": _on_job("restore"),
    "/do/reset": _on_job("reset"),
    "/do/cancel": _cancel,
    "/do/retry": _retry,
    "/do/backfill": _backfill,
    "/do/pause-backfill": _on_backfill("pause-backfill"),
    "/do/resume-backfill": _on_backfill("resume-backfill"),
    "/do/cancel-backfill": _on_backfill("cancel-backfill"),
    "/do/resign": _resign,
}
NAMES = tuple(sorted({*(path.removeprefix("/do/") for path in ROUTES), "add", "update", "pool"}))
"""How the log of actions calls what people do."""


def _job(request: PageRequest) -> str:
    name = request.form.get("job", "")
    if not name:
        raise Refused(400, "Which job?", "The form names no job.")
    return name


async def carry_out(request: PageRequest, operation: Any) -> Any:
    """On a thread: it may wait for nodes, as `pause` does."""
    try:
        return await run_in_threadpool(operation)
    finally:
        request.site.reads.forget()
        request.site.live.tell()


def _back(request: PageRequest, path: str, **query: Any) -> Response:
    """To what was changed. The place is made here, and never comes from the request."""
    if request.asked("updates") == "off":
        query["updates"] = "off"
    kept = {word: str(value) for word, value in query.items() if value}
    return RedirectResponse(f"{request.root}{path}?{urlencode(kept, quote_via=quote)}", 303)
