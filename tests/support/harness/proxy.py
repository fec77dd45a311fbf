"""A TCP proxy on loopback that breaks in the ways networks break; it runs on a thread of its own.

proxy = Proxy(server.port)
proxy.black_hole()                    # nothing passes, nobody is told
proxy.black_hole(answers_only=True)   # requests arrive, answers are lost: the outcome is unknown to the client
proxy.hold()                          # as a partition that heals: what was sent meanwhile arrives late
proxy.refuse()  proxy.cut()           # no new connections; reset of the existing ones
proxy.delay(0.2)                      # each way
proxy.narrow(50_000)                  # so many bytes a second, each way, on each connection
proxy.heal()
"""

import asyncio
import math
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any, Self, TypeVar

T = TypeVar("T")


class Proxy:
    """In front of `host:port`, on `port` of its own. All its state belongs to its loop's thread."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.target = (host, port)
        self.port = 0
        self._links: set[Link] = set()
        self._swallow_requests = self._swallow_answers = False
        self._delay = 0.0
        self._rate = math.inf
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._listener: asyncio.Task[None] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._call(self._open())

    def url(self, dbname: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{dbname}"

    def black_hole(self, *, answers_only: bool = False) -> None:
        """Accept and swallow everything, on existing and new connections; with `answers_only` requests still arrive."""

        async def swallow() -> None:
            self._swallow_requests, self._swallow_answers = not answers_only, True

        self._call(swallow())

    def hold(self) -> None:
        """Nothing passes until `heal`; then all of it does, late."""

        async def hold() -> None:
            self._flowing.clear()

        self._call(hold())

    def delay(self, seconds: float) -> None:
        """Each way: a request and its answer together take twice as long."""

        async def slow_down() -> None:
            self._delay = seconds

        self._call(slow_down())

    def narrow(self, rate: float) -> None:
        """So many bytes a second, each way, on each connection."""

        async def slow_down() -> None:
            self._rate = rate

        self._call(slow_down())

    def refuse(self) -> None:
        """New connections are refused; the existing ones live on."""
        self._call(self._stop_listening())

    def cut(self) -> None:
        """Reset the existing connections; new ones are welcome."""
        self._call(self._reset(lambda _: True))

    def heal(self) -> None:
        """As if nothing had been, except for connections of which bytes were lost: they are reset."""
        self._call(self._heal())

    def close(self) -> None:
        if not self._loop.is_closed():
            self._call(self._shut())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _open(self) -> None:
        door = socket.create_server(("127.0.0.1", self.port), backlog=128)
        door.setblocking(False)
        self.port = door.getsockname()[1]
        self._listener = self._loop.create_task(self._listen(door))

    async def _listen(self, door: socket.socket) -> None:
        with door:
            while True:
                client, _ = await self._loop.sock_accept(door)
                link = Link(client)
                self._links.add(link)
                link.task = self._loop.create_task(self._serve(link))

    async def _serve(self, link: "Link") -> None:
        try:
            if self._swallow_requests:
                await self._pump(link, link.client, link.client, lambda: True)
            await self._flowing.wait()
            link.server.setblocking(False)
            await self._loop.sock_connect(link.server, self.target)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(link, link.client, link.server, lambda: self._swallow_requests))
                group.create_task(self._pump(link, link.server, link.client, lambda: self._swallow_answers))
        except* OSError:
            pass  # one side went away, so the other goes too
        finally:
            self._links.discard(link)
            link.close()

    async def _pump(
        self, link: "Link", source: socket.socket, sink: socket.socket, swallowed: Callable[[], bool]
    ) -> None:
        while data := await self._loop.sock_recv(source, 65536 if math.isinf(self._rate) else 4096):
            await asyncio.sleep(self._delay + len(data) / self._rate)
            await self._flowing.wait()
            if swallowed():
                link.lossy = True
            else:
                await self._loop.sock_sendall(sink, data)
        raise ConnectionAbortedError("end of stream")

    async def _reset(self, which: Callable[["Link"], bool]) -> None:
        for link in list(filter(which, self._links)):
            link.abrupt = True
            await _end(link.task)
            self._links.discard(link)  # a task that was ended before it began has not done so itself
            link.close()

    async def _heal(self) -> None:
        self._swallow_requests = self._swallow_answers = False
        self._delay, self._rate = 0.0, math.inf
        await self._reset(lambda link: link.lossy)
        self._flowing.set()
        if self._listener is None:
            await self._open()

    async def _stop_listening(self) -> None:
        await _end(self._listener)
        self._listener = None

    async def _shut(self) -> None:
        await self._stop_listening()
        await self._reset(lambda _: True)

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)


class Link:
    """One client's connection through the proxy."""

    def __init__(self, client: socket.socket) -> None:
        self.client, self.server = client, socket.socket()
        self.task: asyncio.Task[None] | None = None
        self.lossy = False  # bytes were swallowed: it can only be reset, never healed
        self.abrupt = False  # end it by RST, not FIN

    def close(self) -> None:
        with ExitStack() as stack:
            for end in (self.client, self.server):
                stack.callback(end.close)
                if self.abrupt and end.fileno() >= 0:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def _end(task: "asyncio.Task[None] | None") -> None:
    if task:
        task.cancel()
        await asyncio.wait([task])
