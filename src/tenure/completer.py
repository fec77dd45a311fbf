"""The completer: a thread that tells the ledger how attempts ended, in batches, on a connection of its own while there is something to tell.

An ending whose outcome is unknown is sent again: the ledger compares the token, and what it refuses it explains. Equal is fine.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from tenure.attempt import Attempt
from tenure.backoff import Backoff
from tenure.clock import boottime, sleep
from tenure.errors import StoreError
from tenure.ledger import Ended, Ending, RunState
from tenure.quiet import Quiet
from tenure.stores import Session, Store
from tenure.vital import Vital

logger = logging.getLogger("tenure")

BATCH = 1000
PACE = 0.01
"""Endings that come one after another are told together, so often; one that comes alone is told at once …"""
PRESSED = 0.03
"""… or when it has waited so long, while more is due than was claimed: beginnings go first."""
STEP = 0.002
HASTE = 0.1
"""The longest pause after a failure when the node is about to leave."""
IDLE = 30.0
"""After so many seconds without an ending the connection is closed."""

Told = Callable[[Attempt, Ending, Ended], None]


class Completer(Vital):
    """Runs until it is told to stop. `told` hears what the ledger said to each ending, on this thread."""

    def __init__(
        self, store: Store, *, label: str, timeout: float, quiet: Quiet, pressed: Callable[[], bool], told: Told
    ) -> None:
        super().__init__(f"tenure completer {label}")
        self._store, self._label, self._timeout, self._quiet = store, label, timeout, quiet
        self._pressed, self._told = pressed, told
        self._endings: deque[tuple[Attempt, Ending]] = deque()
        self._wake = threading.Event()
        self._stopping = False
        self._session: Session | None = None
        self._backoff = Backoff()
        self._sent: list[tuple[Attempt, Ending]] = []
        self._told_at = self._waits_since = 0.0

    def put(self, attempt: Attempt, ending: Ending) -> None:
        """Tell this soon."""
        if not self._endings:
            self._waits_since = boottime()
        self._endings.append((attempt, ending))
        if not self._wake.is_set():
            self._wake.set()

    def stop(self, patience: float | None) -> bool:
        """End when everything is told. Wait for that, but no longer than this; True if nothing was left."""
        self._stopping = True
        self._wake.set()
        self.join(patience)
        return not self._endings and not self._sent

    def abandon(self) -> None:
        """In a forked child, where this thread does not run."""
        if self._session is not None:
            self._session.abandon()

    def work(self) -> None:
        while True:
            if not self._endings and not self._wake.wait(IDLE):
                self._drop()
                self._wake.wait()
            self._wake.clear()
            while self._endings:
                if (early := self._early()) > 0:
                    sleep(early)
                    continue
                try:
                    self._tell()
                    self._backoff.worked()
                    self._quiet.worked("completer")
                except Exception as error:
                    self._drop()
                    self._quiet.failed("completer", error)
                    self._endings.extendleft(reversed(self._sent))
                    self._sent = []
                    pause = self._backoff.pause(self._timeout)
                    sleep(min(pause, HASTE) if self._stopping else pause)
            if self._stopping:
                self._drop()
                return

    def _early(self) -> float:
        """For how long to wait for more endings, to be told together with these; then ask again."""
        if self._stopping or len(self._endings) >= BATCH:
            return 0.0
        if self._pressed():
            return min(self._waits_since + PRESSED - boottime(), STEP)
        return self._told_at + PACE - boottime()

    def _tell(self) -> None:
        if self._session is None:
            self._session = self._store.session(f"{self._label}:completer", self._timeout)
        self._told_at = boottime()
        take = min(len(self._endings), BATCH)
        self._sent = [self._endings.popleft() for _ in range(take)]
        answers = self._session.ledger.finish([ending for _, ending in self._sent])
        for (attempt, ending), answer in zip(self._sent, answers, strict=True):
            if ending.log and not answer.accepted and attempt.run.completed:
                self._session.ledger.keep_log(ending.id, ending.log)
        sent, self._sent = self._sent, []
        for (attempt, ending), answer in zip(sent, answers, strict=True):
            try:
                self._told(attempt, ending, answer)
            except Exception:
                logger.exception("telling how a run ended failed", extra={"action": "completer_failed"})

    def _drop(self) -> None:
        if self._session is not None:
            with suppress(StoreError, OSError):
                self._session.close()
        self._session = None


def settled_as_said(attempt: Attempt, ending: Ending, answer: Ended) -> bool:
    """Whether a refused ending is none: it was said before and the answer was lost, or the body's own transaction completed the run."""
    if attempt.run.completed:
        return answer.state is RunState.SUCCEEDED
    return answer.state is ending.state
