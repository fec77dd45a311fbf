"""The site: which address is answered by what, and what every request has to pass before a handler sees it."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import jinja2
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route, Router, compile_path
from starlette.types import ASGIApp
from starlette.websockets import WebSocketClose

from tenure.errors import (
    Busy,
    ConfigurationError,
    JobError,
    JobExists,
    RunError,
    StoreError,
    StoreUnavailable,
    TenureError,
    UnknownBackfill,
    UnknownJob,
)
from tenure.scheduler import Scheduler
from tenure.scheduling.health import PROBES
from tenure.util.version import __version__
from tenure.web import api, drawings, history_drawings, operations
from tenure.web.access import AccessPolicy, Caller, caller_of, cross_site, foreign_host, proxied
from tenure.web.formats import FILTERS, visible
from tenure.web.headers import Headers
from tenure.web.ledger_reads import TOPIC, LedgerReads
from tenure.web.live import Live
from tenure.web.page_request import Handler, PageRequest, Refused, form_of, root_of
from tenure.web.pages import PAGES
from tenure.web.static_files import StaticFiles
from tenure.web.tracebacks import folded

logger = logging.getLogger("tenure")

Redact = Callable[[str, dict[str, Any]], Mapping[str, Any]]
"""`redact(job, arguments)`: the arguments that may be shown."""

Endpoint = Callable[[Request], Awaitable[Response]]
ALL = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]
_CALLER = "tenure.web.caller"


class Site:
    """The pages of one scheduler."""

    def __init__(self, scheduler: Scheduler, policy: AccessPolicy, redact: Redact | None, *, streams: bool) -> None:
        self.reads = LedgerReads(scheduler)
        self.scheduler, self.policy, self.redact, self.streams = scheduler, policy, redact, streams
        self.live = Live(self.reads.stamps)
        self.static = StaticFiles()
        self._templates = jinja2.Environment(
            loader=jinja2.PackageLoader("tenure.web"),
            autoescape=True,
            finalize=visible,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(FILTERS)
        self._templates.globals.update(
            strip=drawings.strip,
            timeline=drawings.timeline,
            mark=drawings.legend,
            bar=drawings.bar,
            share=drawings.share,
            day_mark=history_drawings.mark,
            folded=folded,
            version=__version__,
        )

    def routes(self) -> list[Route]:
        """Every address. What changes something is a POST, and nothing else is."""
        look, do = ["GET"], ["POST"]
        return [
            *(Route(page.path, self._guarded(page.show), methods=look) for page in PAGES),
            Route("/live", self._guarded(_live), methods=look),
            *(Route(path, self._guarded(handler), methods=do) for path, handler in operations.ROUTES.items()),
            *(Route(path, self._guarded(handler), methods=look) for path, handler in api.READS.items()),
            *(Route(path, self._guarded(change, in_json=True), methods=do) for path, change in api.CHANGES.items()),
            *(Route(path, self._probe, methods=look) for path in PROBES),
            Route("/log-in", self._caught(self._log_in), methods=["GET", "POST"]),
            Route("/log-out", self._guarded(_log_out), methods=do),
            Route("/static/{given}/{name}", self._caught(self._static), methods=look),
            *(Route(path, self._caught(_wrong_method), methods=ALL) for path in [*api.READS, *api.CHANGES]),
        ]

    # Before a handler

    def _guarded(self, handler: Handler, *, in_json: bool = False) -> Endpoint:
        """Everything that a request has to pass before this handler sees it."""

        async def guarded(request: Request) -> Response:
            self._check_host(request)
            caller = await self._enter(request)
            request.scope[_CALLER] = caller
            page_request = PageRequest(request, caller, self)
            if request.method == "POST":
                self._check_origin(request)
                if in_json:
                    page_request.fields = await api.json_of(request)
                else:
                    page_request.form = await form_of(request)
            return await handler(page_request)

        return self._caught(guarded)

    def _caught(self, endpoint: Endpoint) -> Endpoint:
        async def caught(request: Request) -> Response:
            try:
                return await endpoint(request)
            except Exception as error:
                return self.refusal(request, error)

        return caught

    def _check_host(self, request: Request) -> None:
        if text := foreign_host(request, self.policy.hosts):
            raise Refused(403, "Not this name", text)
        if self.policy.direct and proxied(request):
            raise Refused(
                403,
                "Through a proxy",
                "A proxy passed this request on, and behind a proxy every caller seems to be local. "
                "Start `tenure web` with --token-file.",
            )

    def _check_origin(self, request: Request) -> None:
        if text := cross_site(request, self.policy.trusted_origins):
            raise Refused(403, "Not from this page", text)

    async def _enter(self, request: Request) -> Caller:
        policy = self.policy
        if policy.login is not None and not policy.login.is_logged_in(request):
            raise Refused(401, "Token needed", "This page needs its token.")
        if policy.authorize is None:
            raise Refused(
                403,
                "Closed",
                "This page is closed, because nothing says who may see it. Mount it with authorize=…, a function of "
                "the request that returns None, 'read', 'act' or a Caller.",
            )
        try:
            if inspect.iscoroutinefunction(policy.authorize):
                answer = await policy.authorize(request)
            else:
                answer = await run_in_threadpool(policy.authorize, request)
                if inspect.isawaitable(answer):
                    answer = await answer
            caller = caller_of(answer)
        except Exception as error:  # also one of ours, whose text is for the application: it is logged
            raise RuntimeError("authorize= failed") from error
        if caller is None:
            raise Refused(403, "Not allowed", "You may not see this page.")
        return caller

    # Answers

    def shown(self, job: str, kwargs: dict[str, Any]) -> Mapping[str, Any]:
        """Arguments as far as they may be shown."""
        return kwargs if self.redact is None else self.redact(job, kwargs)

    def show(
        self, page_request: PageRequest | None, request: Request, template: str, status: int = 200, **given: Any
    ) -> Response:
        """A page."""
        base = root_of(request)
        updates_off = request.query_params.get("updates") == "off"
        shared = {
            "base": base,
            "here": _here(request),
            "static": lambda name: f"{base}/{self.static.path(name)}",
            "link": lambda path, **query: base + path + _query(query, updates_off=updates_off),
            "watch": "",
            "caller": None if page_request is None else page_request.caller,
            "has_token": self.policy.login is not None,
            "application": self.reads.application,
            "updates_off": updates_off,
            "live": "off" if updates_off else "stream" if self.streams else "poll",
            "switched": _switched(request, on=updates_off),
            "tab": _tab(request),
            "pages": [page for page in PAGES if page.title],
            "done": "",
            "at": None,
            **given,
        }
        text = self._templates.get_template(template).render(shared)
        return Response(text, status, media_type="text/html")

    def refusal(self, request: Request, error: Exception) -> Response:
        """The answer to a request that came to nothing. What is a bug is logged, and not shown."""
        refused = _refused(error)
        if refused is None:
            extra = {"action": "web_failed"}
            logger.error("the page could not answer %r", request.url.path, exc_info=error, extra=extra)
            refused = Refused(500, "Failed", "This is a bug in tenure, or in authorize= or redact=. The log says more.")
        path = request.url.path.removeprefix(request.scope.get("root_path", ""))
        if path.startswith("/api/"):
            return api.problem(refused.status, refused.title, refused.text)
        if refused.status == 401:  # noqa: PLR2004 - to the log-in
            wanted = _page_at(f"{path}?{request.url.query}") if request.method in {"GET", "HEAD"} else "/"
            to = "" if wanted == "/" else f"?to={quote(wanted, safe='')}"
            return RedirectResponse(f"{root_of(request)}/log-in{to}", 303)
        caller = request.scope.get(_CALLER)
        page_request = None if caller is None else PageRequest(request, caller, self)
        live = {} if request.method in {"GET", "HEAD"} else {"live": "off", "switched": f"{root_of(request)}/"}
        return self.show(page_request, request, "refused.html", refused.status, refused=refused, **live)

    # Without a caller

    async def _probe(self, request: Request) -> Response:
        """No data, and no rights: a prober sends no token, and addresses this process by its number."""
        status, text = PROBES[f"/{request.url.path.rpartition('/')[2]}"](self.scheduler.health())
        return Response(text, status, media_type="text/plain")

    async def _log_in(self, request: Request) -> Response:
        login = self.policy.login
        self._check_host(request)
        if login is None:
            raise Refused(404, "No such page", "This page needs no token.")
        if request.method in {"GET", "HEAD"}:
            return self.show(None, request, "log_in.html", wrong="", to=_page_at(request.query_params.get("to", "")))
        self._check_origin(request)
        form = await form_of(request)
        to = _page_at(form.get("to", ""))
        if not login.is_token(form.get("token", "").strip()):
            if login.note_wrong():
                text = "That is not the token, and too many wrong ones came. Wait for a minute."
                return self.show(None, request, "log_in.html", 429, wrong=text, to=to)
            return self.show(None, request, "log_in.html", 403, wrong="That is not the token.", to=to)
        answer = RedirectResponse(f"{root_of(request)}{to}", 303)
        login.log_in(request, answer)
        return answer

    async def _static(self, request: Request) -> Response:
        self._check_host(request)
        if self.policy.authorize is None:
            raise Refused(403, "Closed", "This page is closed.")
        found = self.static.find(request.path_params["given"], request.path_params["name"])
        if found is None:
            raise Refused(404, "No such file", "There is no such file.")
        data, kind, current = found
        kept = "public, max-age=31536000, immutable" if current else "no-cache"
        return Response(data, media_type=kind, headers={"cache-control": kept})


def site(scheduler: Scheduler, policy: AccessPolicy, *, redact: Redact | None = None, streams: bool) -> ASGIApp:
    """The pages of a scheduler behind a policy. `streams`: browsers may keep a stream open."""
    pages = Site(scheduler, policy, redact, streams=streams)

    async def elsewhere(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await WebSocketClose()(scope, receive, send)
            return
        request = Request(scope, receive)

        async def nothing(page_request: PageRequest) -> Response:
            if request.scope["path"] in {"", request.scope.get("root_path", "")}:
                return RedirectResponse(f"{page_request.root}/", 307)
            raise Refused(404, "No such page", "There is no such page.")

        await (await pages._guarded(nothing)(request))(scope, receive, send)  # noqa: SLF001 - of this module

    router = Router(pages.routes(), default=elsewhere, redirect_slashes=False)
    return Headers(router)


async def _live(page_request: PageRequest) -> Response:
    site = page_request.site
    if not site.streams or site.live.full:
        raise Refused(503, "No stream", "There are too many open pages, or this server keeps no streams.")
    topic = page_request.asked("watch")
    if not re.fullmatch(TOPIC, topic, re.ASCII):
        raise Refused(400, "No such topic", f"watch: {topic[:40]!r} cannot be watched.")
    return StreamingResponse(
        site.live.stream(topic), media_type="text/event-stream", headers={"x-accel-buffering": "no"}
    )


async def _wrong_method(request: Request) -> Response:
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    allowed = "POST" if path in api.CHANGES else "GET"
    text = f"{request.method} is not possible here. Send {allowed}."
    return api.problem(405, "Another method", text, {"allow": "POST" if allowed == "POST" else "GET, HEAD"})


async def _log_out(page_request: PageRequest) -> Response:
    answer = RedirectResponse(f"{page_request.root}/", 303)
    if page_request.site.policy.login is not None:
        page_request.site.policy.login.log_out(page_request.http, answer)
    return answer


def _query(query: Mapping[str, Any], *, updates_off: bool) -> str:
    """The query of a link, without what says nothing. Updates that were switched off stay off."""
    words = {word: value for word, value in query.items() if value not in {None, ""}}
    if updates_off:
        words["updates"] = "off"
    return f"?{urlencode(words, quote_via=quote)}" if words else ""


def _page_at(address: str) -> str:
    """The address of a page below the mount, written anew; '/' for all others: a log-in leads nowhere else."""
    path, _, query = address.partition("?")
    if not any(pattern.match(path) for pattern in _PAGES):
        return "/"
    words = parse_qsl(query, keep_blank_values=True)
    return quote(path) + (f"?{urlencode(words, quote_via=quote)}" if words else "")


_PAGES = [compile_path(page.path)[0] for page in PAGES]


def _here(request: Request, **other: str | None) -> str:
    """The address of this very page. What was just done is not said again."""
    words = dict(request.query_params)
    for name, value in {"done": None, "silent": None, **other}.items():
        words.pop(name, None)
        if value is not None:
            words[name] = value
    return quote(request.url.path) + (f"?{urlencode(words, quote_via=quote)}" if words else "")


def _switched(request: Request, *, on: bool) -> str:
    """The address of this page with updates switched."""
    return _here(request, updates=None if on else "off")


def _tab(request: Request) -> str:
    """Which page of the navigation this is."""
    return request.url.path.removeprefix(request.scope.get("root_path", "")) or "/"


def _refused(error: Exception) -> Refused | None:
    match error:
        case Refused():
            return error
        case UnknownJob():
            return Refused(404, "No such job", str(error))
        case UnknownBackfill():
            return Refused(404, "No such backfill", str(error))
        case Busy() | JobExists():
            return Refused(409, "Not now", str(error))
        case RunError():
            return Refused(404, "No such run", str(error))
        case JobError():
            return Refused(409, "That cannot be done", str(error))
        case StoreUnavailable():
            return Refused(503, "The database does not answer", str(error))
        case StoreError():
            return Refused(503, "The database cannot be used", str(error))
        case ConfigurationError():
            return Refused(400, "That cannot be done", str(error))
        case TenureError():
            return Refused(409, "That cannot be done", str(error))
        case _:
            return None
