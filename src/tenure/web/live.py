"""Tells open browsers that something has changed. One poller per process, however many browsers are open.

A message carries no data: each browser then fetches its own page again, and the answer to the same page is shared.
A stream ends by itself after `LASTS`, and the browser opens another: a server that shuts down gracefully waits for
open streams, and must not wait long.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Hashable, Mapping
from contextlib import suppress

from starlette.concurrency import run_in_threadpool

from tenure.errors import TenureError
from tenure.util.clock import boottime

logger = logging.getLogger("tenure")

EVERY = 1.0
"""Seconds between two looks at the ledger, while a browser is open."""
AT_LEAST = 10.0
"""Seconds after which browsers look anew though nothing has changed: relative times and pauses pass by themselves."""
LASTS = 10.0
"""Seconds of one stream."""
JUST = 2.0
"""Seconds: what was told so lately, a browser may have missed while it opened its stream."""
MOST = 200
"""Streams of a process. Further browsers try again later, and show what they have."""

CHANGED = b"event: changed\ndata: 1\n\n"
HELLO = b"retry: 500\n\n"


class Live:
    """The poller of a process, and the streams that it feeds."""

    def __init__(self, stamps: Callable[[frozenset[str]], Mapping[str, Hashable]]) -> None:
        self._stamps = stamps
        self._streams: dict[asyncio.Event, str] = {}
        """Each with the topic that its page shows besides what all pages show."""
        self._task: asyncio.Task[None] | None = None
        self._told_at = 0.0
        self._last: Mapping[str, Hashable] = {}
        self.looks = 0
        """How often the ledger was asked."""

    @property
    def full(self) -> bool:
        """Whether there are as many streams as there may be."""
        return len(self._streams) >= MOST

    def tell(self) -> None:
        """Something was changed from here."""
        self._told_at = boottime()
        for changed in self._streams:
            changed.set()

    async def stream(self, topic: str = "") -> AsyncIterator[bytes]:
        """What one browser is sent."""
        changed = asyncio.Event()
        self._streams[changed] = topic
        self._look_out()
        end = asyncio.get_running_loop().time() + LASTS
        try:
            yield HELLO
            if boottime() - self._told_at < JUST:
                changed.set()
            while (left := end - asyncio.get_running_loop().time()) > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await changed.wait()
                    changed.clear()
                    yield CHANGED
        finally:
            self._streams.pop(changed, None)

    def _look_out(self) -> None:
        """Poll for as long as there is a stream. A loop that is gone took its poller along."""
        if self._task is None or self._task.done() or self._task.get_loop() is not asyncio.get_running_loop():
            self._task = asyncio.get_running_loop().create_task(self._poll())

    async def _poll(self) -> None:
        quiet_since = boottime()
        while self._streams or boottime() - quiet_since < 2 * EVERY:  # between two streams of one browser, too
            if self._streams:
                quiet_since = boottime()
            topics = frozenset(self._streams.values())
            found, last = await run_in_threadpool(self._look, topics), self._last
            self._last = found
            if found.get("") != last.get("") or boottime() - self._told_at >= AT_LEAST:
                self.tell()
            else:
                for changed, topic in self._streams.items():
                    if topic in last and found.get(topic) != last[topic]:
                        changed.set()
            await asyncio.sleep(EVERY)

    def _look(self, topics: frozenset[str]) -> Mapping[str, Hashable]:
        self.looks += 1
        try:
            return self._stamps(topics)
        except TenureError as error:
            return {"": type(error).__name__}
        except Exception:
            logger.exception("the page could not look for changes", extra={"action": "web_look"})
            return {"": "failed"}
