"""The three schedulers that programs import. They differ in what `start()` and `shutdown()` wait for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

from tenure.ext.apscheduler.lifecycle import PATIENCE, WAIT
from tenure.ext.apscheduler.options import AsyncIOExecutor, Executor
from tenure.ext.apscheduler.scheduler import BaseScheduler
from tenure.scheduler import Scheduler, service_of


class BackgroundScheduler(BaseScheduler):
    """Runs beside the program: `start()` returns."""


class BlockingScheduler(BaseScheduler):
    """Blocks the program: `start()` returns after `shutdown()`, or raises the interrupt that ended it."""

    def __init__(
        self, gconfig: Mapping[str, Any] | None = None, prefix: str | None = "apscheduler.", **options: Any
    ) -> None:
        super().__init__(gconfig, prefix, **options)
        self._ended = threading.Event()

    def start(self, paused: bool = False) -> None:
        """Run jobs until `shutdown`."""
        self._ended.clear()
        super().start(paused)
        try:
            self._ended.wait()
        except BaseException:
            if self.running:
                # Start nothing more. `shutdown`, or the end of the program, waits for runs in progress.
                inner = self._opened().scheduler
                threading.Thread(target=inner.stop, args=(WAIT,), name="tenure interrupted", daemon=True).start()
            raise

    def shutdown(self, wait: bool = True) -> None:
        """Stop, and let `start` return."""
        super().shutdown(wait)
        self._ended.set()


class AsyncIOScheduler(BaseScheduler):
    """Runs beside a loop: coroutines on that loop, functions in threads."""

    def __init__(
        self, gconfig: Mapping[str, Any] | None = None, prefix: str | None = "apscheduler.", **options: Any
    ) -> None:
        self._given_loop: asyncio.AbstractEventLoop | None = options.pop("event_loop", None)
        super().__init__(gconfig, prefix, **options)

    def start(self, paused: bool = False) -> None:
        """Start running jobs; call it on the running loop."""
        if self._given_loop is None:
            self._loop = asyncio.get_running_loop()
        else:
            self._loop = self._given_loop
        super().start(paused)

    def _default_executor(self) -> Executor:
        return AsyncIOExecutor()

    def _take_part(self, inner: Scheduler) -> None:
        service_of(inner).start(self._loop)

    def _patience_at_exit(self) -> float:
        """Do not wait for coroutines of a stopped loop: they would never end."""
        return super()._patience_at_exit() if self._loop.is_running() or self._loop.is_closed() else 0.0

    def _leave(self, inner: Scheduler, *, wait: bool) -> None:
        """Wait for the loop's coroutines on a thread, which the end of the process waits for; the loop itself may not
        wait.

        But uvicorn ends its process by the signal that it received, which waits for no thread. So if nothing is
        running, the node has left when this returns.
        """
        drain = WAIT if wait else 0
        if not _on(self._loop):
            inner.stop(drain)
            return
        idle = not inner.health().running
        leaving = threading.Thread(target=inner.stop, args=(drain,), name="tenure shutdown")
        leaving.start()
        if idle:
            leaving.join(PATIENCE)


def _on(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
