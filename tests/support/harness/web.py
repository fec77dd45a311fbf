"""The page on a real socket, and a browser's manners without a browser."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode
from wsgiref.simple_server import WSGIRequestHandler, make_server

import httpx
import uvicorn

from harness.scratch import eventually


@contextmanager
def served(app: Any) -> Iterator[str]:
    """An ASGI application under uvicorn, on a thread; its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio does so only for sockets of its own
    config = uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=1, ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        eventually(lambda: server.started, within=10)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_args: object) -> None:
        return


@contextmanager
def served_wsgi(app: Any) -> Iterator[str]:
    """A WSGI application under the server of the standard library."""
    with make_server("127.0.0.1", 0, app, handler_class=_Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(10)


class Browser(httpx.Client):
    """Keeps cookies, and says where its requests come from, as browsers do. It follows no redirect by itself."""

    def __init__(self, base: str, **options: Any) -> None:
        super().__init__(base_url=base, timeout=20, **options)
        self.home = "/".join(base.split("/")[:3])

    def press(self, path: str, **fields: object) -> httpx.Response:
        """Press a button of the page itself."""
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        headers = {"Origin": self.home, "Sec-Fetch-Site": "same-origin", **form}
        return self.post(path, content=urlencode(fields), headers=headers)
