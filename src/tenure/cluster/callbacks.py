"""The callback thread tells the application what happened, and notices when trust runs out in between."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from tenure.cluster.lease_state import LeaseState
from tenure.core.lease import Phase, Tick
from tenure.util.clock import boottime
from tenure.util.vital_thread import VitalThread

logger = logging.getLogger("tenure")


class CallbackThread(VitalThread):
    """Calls what it is given, one after another. It logs what a callback raises, and goes on."""

    def __init__(self, state: LeaseState, label: str) -> None:
        super().__init__(f"tenure callbacks {label}")
        self._state = state
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def call(self, what: Callable[[], None]) -> None:
        """Call this soon, after everything that was given before."""
        self._calls.put(what)

    def look_at_clock(self) -> None:
        """A term was won: there is a deadline to watch from now on."""
        self._calls.put(lambda: None)

    def stop(self, patience: float) -> None:
        """End after what was given before."""
        self._calls.put(None)
        if threading.current_thread() is not self:
            self.join(patience)

    def work(self) -> None:
        while True:
            try:
                what = self._calls.get(timeout=self._patience())
            except queue.Empty:
                self._state.step(Tick())
                continue
            if what is None:
                return
            try:
                what()
            except BaseException:  # also SystemExit: a callback ends nothing but itself
                logger.exception("a callback failed", extra={"action": "callback_failed"})

    def _patience(self) -> float | None:
        """Until the trust of a held term runs out; for ever if nothing is held."""
        lease = self._state.lease
        if not any(holding.phase is Phase.HELD for holding in lease.holdings.values()):
            return None
        return max(lease.terms_until - boottime(), 0.0)
