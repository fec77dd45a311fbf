"""How the page gets into an application: ASGI, WSGI, or alone (`tenure web`)."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp

from tenure.async_scheduler import AsyncScheduler, threaded_of
from tenure.errors import ConfigurationError
from tenure.scheduler import Scheduler
from tenure.scheduling.health import PROBES
from tenure.web.access import LOOPBACK, AccessPolicy, Authorize, Caller, caller_of
from tenure.web.site import Redact, site
from tenure.web.token_login import TokenLogin

_CALLER = "tenure.web.caller"


def web(
    scheduler: Scheduler | AsyncScheduler,
    *,
    authorize: Authorize | None = None,
    redact: Redact | None = None,
    trusted_origins: Collection[str] = (),
) -> ASGIApp:
    """The page as an ASGI application: `app.mount("/tenure", web(scheduler, authorize=…))`.

    `authorize(request)` gets the request of Starlette and returns who asks: None refuses, "read" shows everything,
    "act" allows everything, a set of operations allows these; `Caller(name, …)` says the name as well, which is written
    into the history. It may be a coroutine function. Without it, every request is answered with 403.

    `redact(job, arguments)` returns the arguments that may be shown. `trusted_origins` are further origins from which
    buttons may be pressed, such as "https://ops.example.com", where a proxy changes the host.
    """
    policy = AccessPolicy(_checked(authorize), trusted_origins=_origins(trusted_origins))
    return site(_threaded(scheduler), policy, redact=redact, streams=True)


def web_wsgi(
    scheduler: Scheduler,
    *,
    authorize: Callable[[dict[str, Any]], Any] | None = None,
    redact: Redact | None = None,
    trusted_origins: Collection[str] = (),
) -> Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]:
    """The page as a WSGI application, for Flask, Django and others.

    As `web`, except that `authorize(environ)` gets the WSGI environ, on the thread of the request, and that open pages
    ask every five seconds instead of keeping a stream open, which would occupy a worker.
    """
    return _Wsgi(_threaded(scheduler), _checked(authorize), redact, _origins(trusted_origins))


def stand_alone(
    scheduler: Scheduler, *, login: TokenLogin | None, hosts: frozenset[str] | None, name: str, read_only: bool
) -> ASGIApp:
    """The page of `tenure web`. Without a token it answers only to names of this machine, and to no proxy."""
    rights = "read" if read_only else "act"
    if login is None:
        hosts = LOOPBACK if hosts is None else hosts | LOOPBACK
    policy = AccessPolicy(lambda _request: Caller(name, rights), login=login, hosts=hosts, direct=login is None)
    return site(scheduler, policy, streams=True)


class _Wsgi:
    """A bridge with a loop on a thread of its own, made in the process that serves: threads do not survive a fork."""

    def __init__(
        self,
        scheduler: Scheduler,
        authorize: Callable[[dict[str, Any]], Any] | None,
        redact: Redact | None,
        trusted: frozenset[str],
    ) -> None:
        try:
            import a2wsgi  # noqa: F401 - what is missing is said where the page is mounted
        except ImportError:
            raise ConfigurationError(
                "web_wsgi needs a2wsgi, which is not installed. pip install 'tenure[web]'"
            ) from None
        self._scheduler, self._authorize, self._redact, self._trusted = scheduler, authorize, redact, trusted
        self._bridges: dict[int, Callable[..., Iterable[bytes]]] = {}
        self._mutex = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request. A probe gets no further than here, and asks no `authorize`."""
        if (probe := PROBES.get(environ.get("PATH_INFO", ""))) and environ.get("REQUEST_METHOD") in {"GET", "HEAD"}:
            status, text = probe(self._scheduler.health())
            start_response(
                f"{status} {HTTPStatus(status).phrase}",
                [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")],
            )
            return [text.encode()]
        try:
            for part in ("SCRIPT_NAME", "PATH_INFO"):
                environ.get(part, "").encode("latin-1").decode()
            environ.get("QUERY_STRING", "").encode("ascii")
        except UnicodeError:
            start_response("400 Bad Request", [("Content-Type", "text/plain; charset=utf-8")])
            return [b"The address is not UTF-8.\n"]
        if self._authorize is not None:
            environ[_CALLER] = caller_of(self._authorize(environ))
        return self._bridge()(environ, start_response)

    def _bridge(self) -> Callable[..., Iterable[bytes]]:
        from a2wsgi import ASGIMiddleware

        with self._mutex:
            if (bridge := self._bridges.get(os.getpid())) is None:
                authorize = None if self._authorize is None else _from_environ
                policy = AccessPolicy(authorize, trusted_origins=self._trusted)
                app: Any = site(self._scheduler, policy, redact=self._redact, streams=False)
                bridge = self._bridges[os.getpid()] = ASGIMiddleware(app)
            return bridge


def _from_environ(request: Request) -> Caller | None:
    environ: Mapping[str, Any] = request.scope["wsgi_environ"]
    found: Caller | None = environ.get(_CALLER)
    return found


def _threaded(scheduler: Scheduler | AsyncScheduler) -> Scheduler:
    if isinstance(scheduler, AsyncScheduler):
        return threaded_of(scheduler)
    if not isinstance(scheduler, Scheduler):
        raise ConfigurationError(f"web: {scheduler!r:.80} is a {type(scheduler).__name__}. Give it a Scheduler.")
    return scheduler


def _checked(authorize: Any) -> Any:
    if authorize is not None and not callable(authorize):
        raise ConfigurationError(
            f"authorize: {authorize!r:.80} is a {type(authorize).__name__}. Give a function of the request that "
            "returns None, 'read', 'act' or a Caller."
        )
    return authorize


def _origins(given: Collection[str]) -> frozenset[str]:
    if isinstance(given, str):
        raise ConfigurationError(f"trusted_origins: {given!r} is a text. Write [{given!r}].")
    for origin in given:
        scheme, separator, rest = origin.partition("://")
        if scheme not in {"http", "https"} or not separator or not rest or "/" in rest:
            raise ConfigurationError(f"trusted_origins: {origin!r} is no origin. Write 'https://ops.example.com'.")
    return frozenset(given)
