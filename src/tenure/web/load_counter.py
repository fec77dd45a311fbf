"""Counts the load ahead for the page: on one thread of the process, in short slices, and only when it is asked for.

A node in the same process must not lose its heartbeat, so the thread rests three times as long as it has worked, after
every slice. A slice is bounded in steps (`jobs/load_count.py`), a few milliseconds. A count serves all browsers until
it is a minute old, or longer if it took long; then the next look starts another, and shows the old one meanwhile.

What-if is computed on the thread of the request from the jobs of the last count, one question at a time, with the same
rests, and ends after a bounded number of steps or `PATIENCE`, whichever comes first.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tenure.core.load import Load, LoadJob
from tenure.core.records import Instant
from tenure.errors import Busy, TenureError
from tenure.jobs.load_count import LoadCount, Opened
from tenure.util.clock import boottime, sleep

logger = logging.getLogger("tenure")

FRESH = 60.0
"""Seconds for which a count serves, at least …"""
RESTS_BETWEEN = 10.0
"""… and at least so many times as long as it took to make."""
AGAIN = 5.0
"""Seconds after which a count that failed is tried again."""
RESTS = 3.0
"""After each slice the thread sleeps so many times as long as it has worked, …"""
SHORTEST, LONGEST = 0.001, 0.1
"""… but not for less than this, which the next rest makes up for, and not for longer."""
PATIENCE = 3.0
"""Seconds that one what-if may take, and for which another waits."""
ANSWERS = 8
"""Answers that are remembered."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CountedLoad:
    """A count, complete."""

    load: Load
    jobs: Mapping[str, LoadJob]
    """As they were then."""
    paused: int
    """Jobs that are paused until they are resumed, which are left out."""
    at: Instant
    """When it began, by the clock of the database."""
    took: float
    """Seconds from the beginning to the end."""
    made_at: float
    """When it was complete, by the clock of this process."""


@dataclass(frozen=True, slots=True)
class LoadState:
    """What is known of the load now."""

    counted: CountedLoad | None
    """None: the first count is not complete."""
    progress: tuple[int, int] | None
    """How many jobs of how many the count looked at that is being made; None if none is."""
    problem: str
    """Why the last count failed; '' if it did not."""


class Pacer:
    """Rests between pieces of work, so that other threads of the process have their turn."""

    def __init__(self, patience: float = math.inf) -> None:
        self._since = boottime()
        self._until = self._since + patience

    def rest(self) -> bool:
        """Sleep in proportion to the time since the last rest, once that is worth it. False if the patience is over."""
        now = boottime()
        if (owed := (now - self._since) * RESTS) >= SHORTEST:
            sleep(min(owed, LONGEST))
            self._since = boottime()
        return now < self._until


class BackgroundLoad:
    """The load of one application, counted in this process."""

    def __init__(self, application: str, opened: Opened) -> None:
        self._application, self._opened = application, opened
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None
        self._count: LoadCount | None = None
        self._counted: CountedLoad | None = None
        self._problem, self._failed_at = "", -AGAIN
        self._asking = threading.Lock()
        self._answers: dict[Hashable, object] = {}
        self.longest = 0
        """Steps of the longest slice so far."""

    def state(self, wait: float = 0.0) -> LoadState:
        """What is known, and see to it that it is counted again when it is old. `wait`: for how many seconds to wait
        for the first count."""
        with self._mutex:
            if self._stale():
                # A forked child has none of its parent's threads, so it starts its own.
                self._thread = threading.Thread(target=self._run, name="tenure load", daemon=True)
                self._thread.start()
            thread, first = self._thread, self._counted is None
        if first and thread is not None and wait > 0:
            thread.join(wait)
        with self._mutex:
            count = self._count if self._working() else None
            progress = None if count is None else (min(count.done, count.total), count.total)
            return LoadState(self._counted, progress, self._problem)

    def answer(self, question: Hashable, look: Callable[[CountedLoad], T]) -> T | None:
        """The answer to a what-if; None as long as nothing is counted. One at a time, and the same is remembered."""
        counted = self._counted
        if counted is None:
            return None
        key = (counted.at, question)
        if not self._asking.acquire(timeout=PATIENCE):
            raise Busy("Another what-if is being computed. Try again in a moment.")
        try:
            if key not in self._answers:
                answer = look(counted)
                self._answers = {**dict(list(self._answers.items())[1 - ANSWERS :]), key: answer}
            return self._answers[key]  # type: ignore[return-value]  # it was put there under this question
        finally:
            self._asking.release()

    def _working(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _stale(self) -> bool:
        if self._working() or boottime() < self._failed_at + AGAIN:
            return False
        counted = self._counted
        return counted is None or boottime() >= counted.made_at + max(FRESH, RESTS_BETWEEN * counted.took)

    def _run(self) -> None:
        began_at = boottime()
        try:
            count = self._count = LoadCount(self._application, self._opened)
            pacer = Pacer()
            while count.advance():
                pacer.rest()
            if count.load is not None:
                now = boottime()
                self._counted = CountedLoad(count.load, count.jobs, count.paused, count.now, now - began_at, now)
            self.longest, self._problem = max(self.longest, count.longest), ""
        except Exception as error:  # the page says what it is, and counts again
            if not isinstance(error, TenureError):
                logger.exception("the load could not be counted", extra={"action": "load_failed"})
            self._problem = str(error) if isinstance(error, TenureError) else f"{type(error).__name__}: see the log"
            self._failed_at = boottime()
        finally:
            self._count = None
