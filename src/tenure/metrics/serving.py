"""The exporter of `tenure metrics --listen`: `/metrics`, and the probes."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from tenure.scheduling.health import PROBES, Health

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
PATIENCE = 10.0
"""Seconds that a client may take to say what it wants."""


def exporter(registry: CollectorRegistry, health: Callable[[], Health], hosts: frozenset[str] | None) -> Application:
    """A WSGI application. `hosts` are the names that it shows metrics under, so that no foreign page reads them through
    a browser of this machine; None: any."""
    metrics = make_wsgi_app(registry)

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        def plain(status: int, text: str) -> Iterable[bytes]:
            headers = [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")]
            start(f"{status} {HTTPStatus(status).phrase}", headers)
            return [text.encode()]

        path = environ.get("PATH_INFO", "")
        if environ.get("REQUEST_METHOD") not in {"GET", "HEAD"}:
            return plain(405, "Only GET.\n")
        if path in PROBES:
            return plain(*PROBES[path](health()))
        if path != "/metrics":
            return plain(404, "Metrics are at /metrics, probes at /livez and /readyz.\n")
        if hosts is not None and _name(environ.get("HTTP_HOST", "")) not in hosts:
            return plain(403, "These metrics do not answer to that name.\n")
        found: Iterable[bytes] = metrics(environ, start)
        return found

    return answer


def _name(host: str) -> str:
    name = host.strip().lower()
    return name.partition("]")[0] + "]" if name.startswith("[") else name.partition(":")[0]


class ExporterServer(ThreadingMixIn, WSGIServer):
    """A thread for each request: a scrape that waits for the store holds up no probe."""

    daemon_threads = True


class _Handler(WSGIRequestHandler):
    timeout = PATIENCE

    def log_message(self, *_: object) -> None:
        """Nothing of each scrape."""


def server(listener: socket.socket, application: Application) -> ExporterServer:
    """A server on a bound socket."""
    made = ExporterServer(listener.getsockname()[:2], _Handler, bind_and_activate=False)
    made.socket.close()
    made.socket = listener
    made.server_name, made.server_port = listener.getsockname()[:2]
    made.setup_environ()
    made.set_app(application)
    made.server_activate()
    return made
