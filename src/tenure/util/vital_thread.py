"""A thread that must not end unseen (G6): if it dies, the log says so once, and `health()` names it until a restart."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

logger = logging.getLogger("tenure")


class VitalThread(threading.Thread):
    """Runs `work` until that returns. Never delays the exit of the process."""

    def __init__(self, name: str, work: Callable[[], None] | None = None) -> None:
        super().__init__(name=name, daemon=True)
        self._given = work
        self.begun = False
        """True once `start()` has succeeded; the system may refuse a thread."""
        self.died = ""
        """The exception that ended it."""

    def work(self) -> None:
        """The task of this thread."""
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
        """Wait for its end; return at once if it was never started."""
        if self.begun:
            super().join(timeout)


def dead(*threads: threading.Thread | None) -> tuple[str, ...]:
    """The names of the threads that died."""
    return tuple(thread.name for thread in threads if isinstance(thread, VitalThread) and thread.died)
