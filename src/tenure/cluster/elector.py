"""The elector: wins elections for which this node is a candidate, and gives terms back (promises G1 and G2).

It runs on the thread of the control loop and sends its statements over the loop's connection. The lease decides what
may be believed; the elector only decides when to try.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from tenure.cluster.candidate import Candidates
from tenure.cluster.epoch import EpochGuard
from tenure.cluster.failure_detector import FailureDetector
from tenure.cluster.lease_state import LeaseState
from tenure.core import liveness
from tenure.core.cluster import Acquire, Acquired, AcquireOutcome, ElectionRow, NodeId, Vacancy
from tenure.core.lease import ReleaseAcked
from tenure.stores import Session
from tenure.util.clock import boottime
from tenure.util.randomness import between

logger = logging.getLogger("tenure")

WAKE_JITTER = 0.05
"""Nodes that hear of a vacancy at the same moment spread their attempts over this many seconds."""
BUSY_RETRY = (0.02, 0.1)
"""How soon to try again after another transaction held the row, at least and at most."""


class Elector:
    """Attempts, releases and suspicions of one node."""

    def __init__(
        self, state: LeaseState, candidates: Candidates, detector: FailureDetector, beat_now: Callable[[], None]
    ) -> None:
        self._state, self._candidates = state, candidates
        self._detector, self._beat_now = detector, beat_now
        self._rows: dict[str, ElectionRow] = {}
        self._tries: dict[str, float] = {}
        self._releases: dict[tuple[NodeId, str, int], str] = {}
        self.suspicions: dict[str, liveness.Suspicion] = {}
        """Leaders whose session lock was seen free, by election."""
        self.epoch = EpochGuard(forget=detector.watch_anew, resume=self.try_all)

    def next_at(self) -> Iterable[float]:
        """When to try again, or to raise the epoch."""
        ripe = (suspicion.ripe_at for suspicion in self.suspicions.values())
        return [*self._tries.values(), *ripe, self.epoch.ripe_at]

    def observe(self, rows: Iterable[ElectionRow], at: float) -> None:
        """Take in how a beat showed the elections."""
        self._rows = {row.name: row for row in rows}
        for name in self._candidates.wanted():
            row = self._rows.get(name)
            if row is None or row.vacant:
                self._tries.setdefault(name, at)

    def suspect(self, free: Mapping[str, Vacancy], at: float) -> None:
        """Take in whose session locks a check found free."""
        self.suspicions = liveness.suspect(self.suspicions, free, at)
        for name in free:
            candidate = self._candidates.get(name)
            if candidate is not None and candidate.fenced and candidate.ready_at() is not None:
                self._tries.setdefault(name, at)

    def try_at(self, name: str, at: float) -> None:
        """Try to win this election at that time, whatever was planned before."""
        self._tries[name] = at

    def try_by(self, name: str, at: float) -> None:
        """Try to win this election at that time at the latest."""
        self._tries[name] = min(self._tries.get(name, at), at)

    def try_all(self, at: float | None = None) -> None:
        """Try to win every election, at that time at the latest; now if none is given."""
        by = boottime() if at is None else at
        for name in self._candidates.wanted():
            self.try_by(name, by)

    def release(self, node: NodeId, name: str, term: int, why: str) -> None:
        """Give a term back on the next turn."""
        self._releases[node, name, term] = why

    def forget(self) -> None:
        """A new identity starts with an empty memory."""
        self.suspicions.clear()
        self._rows.clear()
        self.try_all()

    def give_back(self, session: Session | None) -> None:
        """Release what was given up under the present identity."""
        for (node, name, term), why in list(self._releases.items()):
            if session is None:
                return
            if node == self._state.node:
                session.release(node, name, term, why)
                self._state.step(ReleaseAcked(name, term), only=node)
            del self._releases[node, name, term]

    def turn(self, session: Session) -> None:
        """Make the attempts that are due."""
        now = boottime()
        for name, suspicion in list(self.suspicions.items()):
            if suspicion.ripe_at <= now:
                del self.suspicions[name]
                self._attempt(session, name, suspicion.vacancy)
        for name, at in list(self._tries.items()):
            if at <= now:
                del self._tries[name]
                self._attempt(session, name, None)

    def succeed(self, session: Session, dead: NodeId, why: str) -> bool | None:
        """Declare a leader dead and take its election over, in one statement.

        None if this node is not a candidate there now, else whether this call declared it dead.
        """
        led = [name for name, row in self._rows.items() if row.held and row.holder == dead]
        return self._attempt(session, led[0], None, heir_of=(dead, why)) if led else None

    def _attempt(
        self, session: Session, name: str, vanished: Vacancy | None, *, heir_of: tuple[NodeId, str] | None = None
    ) -> bool | None:
        """Try to win.

        Returns None if this is not the time to try; otherwise whether this attempt declared the leader in `heir_of`
        dead.
        """
        candidate = self._candidates.get(name)
        ready_at = candidate.ready_at() if candidate is not None else None
        if candidate is None or ready_at is None:
            return None
        if ready_at > boottime():
            self._tries[name] = ready_at
            return None
        declared = False

        def send(node: NodeId) -> Acquired:
            nonlocal declared
            request = Acquire(node, name, candidate.fenced, vanished=vanished)
            if heir_of is None:
                return session.acquire(request)
            declared, answer = session.succeed(*heir_of, request)
            return answer

        answer = self._state.acquire(name, send)
        if answer is None:
            return None
        if answer.outcome is not AcquireOutcome.GRANTED:
            candidate.refused()
        match answer.outcome:
            case AcquireOutcome.BUSY:
                self._tries[name] = boottime() + between(*BUSY_RETRY)
            case AcquireOutcome.GONE:
                self._beat_now()
            case AcquireOutcome.MOVED:
                self.epoch.notice(session)
            case AcquireOutcome.MISMATCH:
                logger.error(
                    "election %r runs in mode %r on other nodes; use one mode on all of them",
                    name,
                    answer.detail,
                    extra={"action": "mode_mismatch"},
                )
            case AcquireOutcome.HELD if answer.holder is not None:
                self._detector.meet_soon(answer.holder)
            case _:
                pass
        return declared
