"""A thread that waits for messages from other threads, besides whatever else it polls."""

from __future__ import annotations

import os
import threading
from collections import deque
from contextlib import suppress
from typing import Generic, TypeVar

from tenure.cluster.messages import LoopMessage, Stop
from tenure.stores import Session
from tenure.util.vital_thread import VitalThread

SessionT = TypeVar("SessionT", bound=Session)


class Inbox:
    """Messages, and a descriptor that becomes readable when one arrives. Any thread posts; the loop alone takes."""

    def __init__(self) -> None:
        self.messages: deque[LoopMessage] = deque()
        self._readable, self._writable = os.pipe()
        os.set_blocking(self._writable, False)
        self._mutex = threading.Lock()
        self._closed = False

    def post(self, message: LoopMessage) -> None:
        """Leave a message and wake the loop."""
        self.messages.append(message)
        with self._mutex, suppress(BlockingIOError):  # the pipe is full: the loop will wake up anyway
            if not self._closed:  # else the number may be that of another file by now
                os.write(self._writable, b".")

    def fileno(self) -> int:
        """The descriptor to poll."""
        return self._readable

    def hush(self) -> None:
        """Make the descriptor wait for the next message."""
        os.read(self._readable, 4096)

    def close(self) -> None:
        """Accept no more wake-ups."""
        with self._mutex:
            self.abandon()

    def abandon(self) -> None:
        """Close without the mutex, which another thread of the parent may have held when this child was forked."""
        self._closed = True
        os.close(self._readable)
        os.close(self._writable)


class MessageLoop(VitalThread, Generic[SessionT]):
    """A loop with an inbox and one connection."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._inbox = Inbox()
        self._session: SessionT | None = None

    def post(self, message: LoopMessage) -> None:
        """Take this in after what was posted before."""
        self._inbox.post(message)

    def stop(self, patience: float) -> None:
        """End after what was posted before."""
        self.post(Stop())
        self.join(patience)

    def abandon(self) -> None:
        """Let go what this thread would use: it was never started, or this is a forked child, where it does not run."""
        if self._session is not None:
            self._session.abandon()
        self._inbox.abandon()

    def _take_messages(self) -> None:
        while self._inbox.messages:
            self._receive(self._inbox.messages.popleft())

    def _receive(self, message: LoopMessage) -> None:
        raise NotImplementedError
