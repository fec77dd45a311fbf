"""Signals that request the end of a process: which they are, who handles them, and how often they came."""

from __future__ import annotations

import logging
import math
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType, TracebackType
from typing import Self

from tenure.util.clock import boottime

logger = logging.getLogger("tenure")

Handler = Callable[[int, FrameType | None], object]

STOPS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGBREAK") if hasattr(signal, name))

SAME = 0.5
"""A signal that follows so soon is the same request: supervisors and terminals signal a process and then its group."""


class Requests:
    """How often this process was requested to end. Counted in signal handlers, which run one after the other."""

    def __init__(self) -> None:
        self.count = 0
        self._last = -math.inf

    def add(self) -> bool:
        """Count a signal; False if it is the same request as the last."""
        now = boottime()
        if now < self._last + SAME:
            return False
        self._last = now
        self.count += 1
        return True


@contextmanager
def handled(handler: Handler) -> Iterator[None]:
    """Call this handler for the signals that end a process. For the main thread only.

    An ignored signal (`nohup`) stays ignored. A signal that the embedding program handles in C stays with that program:
    Python could not give it back.
    """
    known = {number: signal.getsignal(number) for number in STOPS}
    ours = {number: before for number, before in known.items() if before is not None and before is not signal.SIG_IGN}
    if foreign := [signal.Signals(number).name for number, before in known.items() if before is None]:
        logger.warning(
            "%s: handled by the program that Python is embedded in, and left to it. Call stop() to end this.",
            ", ".join(foreign),
            extra={"action": "signals_not_ours"},
        )
    try:
        for number in ours:
            signal.signal(number, handler)
        yield
    finally:
        for number, before in ours.items():
            signal.signal(number, before)


def receive_exit_codes() -> None:
    """Undo an ignored SIGCHLD, which some supervisors pass on: all exit codes would be read as 0."""
    main = threading.current_thread() is threading.main_thread()
    if main and hasattr(signal, "SIGCHLD") and signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


class Wakeups:
    """Wakes a main thread that waits for signals and for news of the election."""

    def __init__(self) -> None:
        self.caught: int | None = None
        """The first signal that requested the end of this process."""
        self._requests = Requests()

    @property
    def impatient(self) -> bool:
        """True after a second request."""
        return self._requests.count > 1

    def __enter__(self) -> Self:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        with ExitStack() as stack:
            self._old_fd = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
            stack.callback(self._close)
            stack.enter_context(handled(self._stop))
            stack.enter_context(_children_noticed())
            self._undo = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()

    def _close(self) -> None:
        signal.set_wakeup_fd(self._old_fd)
        self._writer, writer = -1, self._writer
        os.close(writer)
        os.close(self._reader)

    def wake(self) -> None:
        """Wake the main thread, from any thread."""
        with suppress(OSError):
            os.write(self._writer, b".")

    def wait(self, seconds: float) -> None:
        """Return after this time, or sooner."""
        if readable_within(self._reader, seconds):
            with suppress(BlockingIOError):
                os.read(self._reader, 4096)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._requests.add()
        self.caught = self.caught or number


@contextmanager
def _children_noticed() -> Iterator[None]:
    """Let the end of a child wake us: a signal without a handler writes nothing to the wakeup descriptor."""
    before = signal.getsignal(signal.SIGCHLD)
    if before is None:  # handled in C and cannot be given back: the next tick notices the end
        yield
        return
    signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, before)


def readable_within(fd: int, seconds: float | None) -> bool:
    """Wait until there is something to read, at most this long. `select` accepts no descriptor above 1,023."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))
