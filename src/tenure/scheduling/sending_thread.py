"""A thread that sends one thing after the other. It begins with the first, and a stop ends it."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from tenure.alerts import NotAccepted
from tenure.util.clock import boottime
from tenure.util.printable import printable
from tenure.util.vital_thread import VitalThread, dead

logger = logging.getLogger("tenure")

T = TypeVar("T")

TRIES, PAUSES = 3, (1.0, 2.0)
"""How often something is tried in a row, and the seconds between these tries."""


def tried(send: Callable[[], None], pause: Callable[[float], bool]) -> str:
    """Try a few times. `pause` waits this many seconds, and returns True if there is to be no further try. Returns why
    the last try was not accepted, '' if it was."""
    error = ""
    for number in range(TRIES):
        try:
            send()
        except NotAccepted as refusal:
            error = printable(refusal) or "it did not say why"
        else:
            return ""
        if number < TRIES - 1 and pause(PAUSES[number]):
            break
    return error


class SendingThread(Generic[T]):
    """`send` raises nothing; if it does so all the same, the log says it and the thread goes on.

    `rested` is called whenever nothing is left to send.
    """

    def __init__(
        self, name: str, send: Callable[[T], None], most: int, rested: Callable[[], None] = lambda: None
    ) -> None:
        self._name, self._send, self._most, self._rested = name, send, most, rested
        self._waiting: deque[T] = deque()
        self._changed = threading.Condition()
        self._sending = self._stopped = False
        self._thread: VitalThread | None = None

    @property
    def busy(self) -> bool:
        """Something is being sent, or waits for that."""
        return self._sending or bool(self._waiting)

    @property
    def dead_threads(self) -> tuple[str, ...]:
        """Its name, if it died."""
        return dead(self._thread)

    def put(self, one: T) -> bool:
        """Send this soon. False if too much waits already, or after a stop."""
        with self._changed:
            if self._stopped or len(self._waiting) >= self._most:
                return False
            if self._thread is None:
                thread = VitalThread(self._name, self._work)
                try:
                    thread.start()
                except RuntimeError:  # the system refuses a thread
                    return False
                self._thread = thread
            self._waiting.append(one)
            self._changed.notify_all()
            return True

    def pause(self, seconds: float) -> bool:
        """On its own thread: wait. True if it was stopped meanwhile."""
        with self._changed:
            return self._changed.wait_for(lambda: self._stopped, seconds)

    def finish(self, until: float) -> bool:
        """Wait until everything is sent, but not beyond this moment. False if something is left."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.busy, max(until - boottime(), 0.0))

    def stop(self) -> None:
        """Send nothing more. What is being sent goes on, and nothing waits for it."""
        with self._changed:
            self._stopped = True
            self._waiting.clear()
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting or self._stopped)
                if self._stopped:
                    return
                one, self._sending = self._waiting.popleft(), True
            try:
                self._send(one)
            except BaseException:
                logger.exception("%s: sending failed", self._name, extra={"action": "sending_failed"})
            with self._changed:
                self._sending = False
                rests = not self._waiting
            if rests:
                self._rested()
