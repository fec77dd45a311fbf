"""Calls the listeners of run events, on a thread of its own. The threads that run jobs only queue the events."""

from __future__ import annotations

import logging
import os
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, overload

from tenure.errors import ConfigurationError
from tenure.events import (
    AnyEvent,
    JobOrphaned,
    JobServed,
    OrphanEvent,
    RunCancelled,
    RunEvent,
    RunFailed,
    RunLost,
    RunNotYet,
    RunRetried,
    RunSkipped,
    RunSucceeded,
)
from tenure.util.vital_thread import VitalThread, dead

logger = logging.getLogger("tenure")

OF_JOBS: tuple[type[AnyEvent], ...] = (JobOrphaned, JobServed)
KINDS: tuple[type[AnyEvent], ...] = (RunSucceeded, RunFailed, RunRetried, RunNotYet, RunLost, RunCancelled, RunSkipped)
BACKLOG = 10_000
"""How many events may wait for slow listeners. Further ones are dropped, so that listeners never delay runs."""

Listener = TypeVar("Listener", bound=Callable[..., object])
Returned = TypeVar("Returned")
Event = TypeVar("Event", bound=AnyEvent)
Event1 = TypeVar("Event1", bound=AnyEvent)
Event2 = TypeVar("Event2", bound=AnyEvent)
Event3 = TypeVar("Event3", bound=AnyEvent)
Event4 = TypeVar("Event4", bound=AnyEvent)


class Listens(Protocol[Event]):
    """Takes a function that can be called for events of these kinds, and returns it."""

    def __call__(self, listener: Callable[[Event], Returned], /) -> Callable[[Event], Returned]: ...


class Listening(ABC):
    """`@scheduler.on(RunFailed, RunLost)`, typed: the listener must take an event of each of these kinds."""

    @overload
    def on(self, kind: type[Event1], /) -> Listens[Event1]: ...
    @overload
    def on(self, kind1: type[Event1], kind2: type[Event2], /) -> Listens[Event1 | Event2]: ...
    @overload
    def on(
        self, kind1: type[Event1], kind2: type[Event2], kind3: type[Event3], /
    ) -> Listens[Event1 | Event2 | Event3]: ...
    @overload
    def on(
        self, kind1: type[Event1], kind2: type[Event2], kind3: type[Event3], kind4: type[Event4], /
    ) -> Listens[Event1 | Event2 | Event3 | Event4]: ...
    @overload
    def on(self, *kinds: type[RunEvent]) -> Listens[RunEvent]: ...
    def on(self, *kinds: type[AnyEvent]) -> Any:
        """Call a function for `RunFailed`, `RunLost` …, on a thread of its own; `RunEvent` means all of them.

        An exception in the function is logged and nothing else. With an `AsyncScheduler` it may be a coroutine
        function: it is called on the loop of `start`.
        """
        return self._listen(kinds)

    @abstractmethod
    def _listen(self, kinds: tuple[type[AnyEvent], ...]) -> Callable[[Listener], Listener]: ...


class Listeners:
    """The functions to call. `tell` never blocks, and an exception in a listener is logged and nothing else."""

    _pid: int
    _queue: queue.SimpleQueue[AnyEvent | threading.Event | None]
    _thread: VitalThread | None
    _dropping: bool

    def __init__(self) -> None:
        self.of_beats: list[Callable[[str, float], None]] = []
        """Are told how each heartbeat ended and how many seconds it took, by the node, from the next start on."""
        self._listeners: list[tuple[frozenset[type[AnyEvent]], Callable[[Any], object]]] = []
        self._wanted: frozenset[type[AnyEvent]] = frozenset()
        self._reset()

    def on(self, *kinds: type[AnyEvent]) -> Callable[[Listener], Listener]:
        """Call a function for events of these kinds."""
        wanted = _checked(kinds)

        def register(listener: Listener) -> Listener:
            if not callable(listener):
                raise ConfigurationError(
                    f"on(): {listener!r} cannot be called. Put it above a function of one argument."
                )
            self._listeners = [*self._listeners, (wanted, listener)]
            self._wanted |= wanted
            return listener

        return register

    def off(self, listener: Callable[..., object]) -> None:
        """Stop calling this function."""
        self._listeners = [entry for entry in self._listeners if entry[1] is not listener]
        self._wanted = frozenset().union(*(kinds for kinds, _ in self._listeners))

    def wants(self, kind: type[AnyEvent]) -> bool:
        """True if this kind has listeners; check before building an event."""
        return kind in self._wanted

    def tell(self, event: AnyEvent) -> None:
        """Call the listeners soon, after those of earlier events."""
        if type(event) not in self._wanted:
            return
        if self._pid != os.getpid():  # a forked child: the thread, and whatever it held, stayed in the parent
            self._reset()
        if self._queue.qsize() >= BACKLOG:
            if not self._dropping:
                self._dropping = True
                logger.warning(
                    "%d events wait for listeners that are too slow; further ones are dropped",
                    BACKLOG,
                    extra={"action": "events_dropped"},
                )
            return
        self._dropping = False
        with self._mutex:
            self._queue.put(event)
            if self._thread is None:
                thread = VitalThread("tenure listeners", self._run)
                thread.start()
                self._thread = thread

    def flush(self, patience: float) -> bool:
        """Wait until the listeners of all events so far have returned; False if that takes longer."""
        thread = self._thread
        if self._pid != os.getpid() or thread is None or thread is threading.current_thread():
            return True
        heard = threading.Event()
        self._queue.put(heard)
        return heard.wait(patience)

    def stop(self, patience: float) -> None:
        """End the thread after the events so far, and wait that long for it. The next event starts another thread."""
        if self._pid != os.getpid():
            return
        with self._mutex:
            thread = self._thread
            if thread is not None:
                self._queue.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(patience)

    @property
    def dead_threads(self) -> tuple[str, ...]:
        """The name of the listeners' thread, if it died."""
        return dead(self._thread) if self._pid == os.getpid() else ()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._queue = queue.SimpleQueue()
        self._mutex = threading.Lock()
        self._thread = None
        self._dropping = False

    def _run(self) -> None:
        while True:
            told = self._queue.get()
            if told is None:
                with self._mutex:
                    if self._queue.empty():
                        self._thread = None
                        return
                continue
            if isinstance(told, threading.Event):
                told.set()
                continue
            for kinds, listener in self._listeners:
                if type(told) in kinds:
                    try:
                        listener(told)
                    except BaseException:  # also SystemExit: a listener ends nothing but itself
                        logger.exception(
                            "job %r: a listener for %s failed",
                            told.job,
                            type(told).__name__,
                            extra={"action": "listener_failed"},
                        )


def _checked(kinds: tuple[type[AnyEvent], ...]) -> frozenset[type[AnyEvent]]:
    found: set[type[AnyEvent]] = set()
    for kind in kinds:
        if kind is RunEvent:
            found.update(KINDS)
        elif kind is OrphanEvent:
            found.update(OF_JOBS)
        elif kind in KINDS or kind in OF_JOBS:
            found.add(kind)
        else:
            raise ConfigurationError(f"on(): {kind!r} is not an event of a run or of a job. {_CHOICE}")
    if not found:
        raise ConfigurationError(f"on(): no event was given. {_CHOICE}")
    return frozenset(found)


_CHOICE = (
    f"Write one or more of {', '.join(kind.__name__ for kind in (*KINDS, *OF_JOBS))}; RunEvent or OrphanEvent means "
    "all of a run or of a job."
)
