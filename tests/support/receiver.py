"""A real HTTP server on loopback that writes down what it is sent, and answers as it is told."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from harness import scratch


@dataclass(frozen=True)
class Received:
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """`answers` are given one after the other, then 200 for ever. With `hold` it answers only after `release`."""

    answers: list[int] = field(default_factory=list)
    hold: bool = False
    received: list[Received] = field(default_factory=list)
    url: str = ""
    released: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        self.hold = False
        self.released.set()

    def of(self, event: str) -> list[dict[str, Any]]:
        """The news of this event, as webhooks send it."""
        found = [one.json for one in list(self.received)]
        return [one["data"] for one in found if one["type"] == f"alert.{event}"]

    def told(self) -> list[tuple[str, str, str]]:
        """Event, kind and target of each request."""
        news = [one.json["data"] for one in list(self.received)]
        return [(one["event"], one["kind"], one["target"]) for one in news]

    def wait(self, true: Callable[[], object], within: float = 30.0) -> None:
        """Wait until this is true; say what came if it does not become true."""
        try:
            scratch.eventually(true, within=within)
        except TimeoutError as error:
            raise AssertionError(f"{error}; received: {self.received}") from None


@contextmanager
def receiver(*answers: int, hold: bool = False) -> Iterator[Receiver]:
    """A server that runs until the end of the block."""
    kept = Receiver(list(answers), hold)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            query = dict(parse_qsl(parts.query))
            headers = {key.lower(): value for key, value in self.headers.items()}
            kept.received.append(Received(self.command, parts.path, query, headers, body))
            if kept.hold:
                kept.released.wait()
            code = kept.answers.pop(0) if kept.answers else 200
            try:
                self.send_response(code)
                if code in {301, 302}:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()
            except OSError:
                pass  # the client has gone

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    kept.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield kept
    finally:
        kept.release()
        server.shutdown()
        server.server_close()
        thread.join()
