"""A thread that must not end unseen: one that dies says so once in the log, and `health()` names it for as long as it is missed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

logger = logging.getLogger("tenure")


class VitalThread(threading.Thread):
    """Does `work` until that returns. Never holds up the exit of the process."""

    def __init__(self, name: str, work: Callable[[], None] | None = None) -> None:
        super().__init__(name=name, daemon=True)
        self._given = work
        self.begun = False
        """`start()` has succeeded; the system may refuse a thread."""
        self.died = ""
        """What it died of."""

    def work(self) -> None:
        """What this thread is for."""
        if self._given is not None:
            self._given()

    def start(self) -> None:
        super().start()
        self.begun = True

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.died = type(error).__name__
            logger.exception(
                "thread %r of tenure died of %s; its work is not done any more. Restart this process.",
                self.name,
                self.died,
                extra={"action": "thread_died"},
            )

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end; nothing to wait for if it was never started."""
        if self.begun:
            super().join(timeout)


def dead(*threads: threading.Thread | None) -> tuple[str, ...]:
    """The names of those that died."""
    return tuple(thread.name for thread in threads if isinstance(thread, VitalThread) and thread.died)
