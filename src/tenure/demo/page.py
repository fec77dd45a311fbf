"""The page of the demo, in a browser, while its processes are killed and frozen.

It is served by a thread of the demo itself, on loopback. Who looks may ask the planner to resign, and nothing else:
whatever removes or adds runs would make the summary wrong.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from tenure.errors import ConfigurationError
from tenure.scheduler import Scheduler

if TYPE_CHECKING:
    from starlette.types import ASGIApp

PORT = 8321
"""The same as that of `tenure web`, if it is free."""
GRACE = 1
"""Seconds that open streams get when the demo ends."""
NOT_HERE = "without the page in a browser: pip install 'tenure[web]' to have it"


@contextmanager
def page_of(scheduler: Scheduler) -> Iterator[str]:
    """Serve the page until the block ends. What to say about it: its address, or how to get it."""
    try:
        import uvicorn  # noqa: F401 - only to know whether it is there

        from tenure.web.access import LOOPBACK, AccessPolicy, Caller
        from tenure.web.site import site
    except (ImportError, ConfigurationError):
        yield NOT_HERE
        return
    policy = AccessPolicy(lambda _request: Caller("demo", {"resign"}), hosts=LOOPBACK, direct=True)
    with closing(scheduler), _listener() as listener, _served(site(scheduler, policy, streams=True), listener):
        yield f"watch it in a browser: http://127.0.0.1:{listener.getsockname()[1]}/ (until the demo ends)"


def _listener() -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", PORT))
    except OSError:  # another program has it, perhaps another demo
        return socket.create_server(("127.0.0.1", 0))


@contextmanager
def _served(app: ASGIApp, listener: socket.socket) -> Iterator[None]:
    """On a thread: signals are for the demo."""
    import uvicorn

    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio does so only for sockets of its own
    config = uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=GRACE, ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), name="tenure demo page", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(2 * GRACE + 1)
