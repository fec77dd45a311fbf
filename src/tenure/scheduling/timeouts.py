"""The timeouts of all attempts of a node, on one thread."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable

from tenure.scheduling.attempt import Attempt, AttemptPhase
from tenure.util.clock import boottime
from tenure.util.vital_thread import VitalThread


class TimeoutThread:
    """One thread for all timeouts, started when the first is set."""

    def __init__(self, label: str, time_out: Callable[[Attempt], None]) -> None:
        self._label, self._time_out = label, time_out
        self._changed = threading.Condition()
        self._heap: list[tuple[float, int, Attempt]] = []
        self._count = 0
        self.thread: VitalThread | None = None

    def set(self, at: float, attempt: Attempt) -> None:
        """Call `time_out` at this time, if the attempt still runs then. RuntimeError: the system refuses the thread."""
        with self._changed:
            if self.thread is None or self.thread.died:
                thread = VitalThread(f"tenure timeouts {self._label}", self._watch)
                thread.start()
                self.thread = thread
            self._count += 1
            heapq.heappush(self._heap, (at, self._count, attempt))
            if self._heap[0][2] is attempt:
                self._changed.notify()

    def stop(self) -> None:
        """Call it no more."""
        with self._changed:
            self._heap.clear()
            self.thread = None
            self._changed.notify()

    def _watch(self) -> None:
        me = threading.current_thread()
        while True:
            with self._changed:
                while self._heap and self._heap[0][2].phase is AttemptPhase.ENDED:
                    heapq.heappop(self._heap)
                if self.thread is not me:
                    return
                left = self._heap[0][0] - boottime() if self._heap else None
                if left is None or left > 0:
                    self._changed.wait(left)
                    continue
                attempt = heapq.heappop(self._heap)[2]
            self._time_out(attempt)
