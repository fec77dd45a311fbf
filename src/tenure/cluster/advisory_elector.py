"""The elector of advisory mode takes the lock of an election, then its term, and gives both back (promises G1 and G2).

A lock that is held by the session of a dead node is freed by ending that session.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tenure.cluster.candidate import Candidate
from tenure.cluster.elector import BUSY_RETRY
from tenure.cluster.epoch import EpochGuard
from tenure.cluster.failure_detector import FailureDetector
from tenure.cluster.heartbeat import Heartbeat
from tenure.cluster.lease_state import LeaseState
from tenure.core import liveness
from tenure.core.cluster import Acquire, AcquireOutcome, Advert, Cadence, ElectionRow, NodeId, Vacancy
from tenure.core.lease import ReleaseAcked, SessionChecked
from tenure.errors import ConfigurationError, StoreError, StoreUnavailable
from tenure.util.backoff import SOON
from tenure.util.clock import boottime
from tenure.util.randomness import between

if TYPE_CHECKING:
    from tenure.stores.postgres.advisory import LockSession
    from tenure.stores.postgres.store import PostgresStore

logger = logging.getLogger("tenure")

MODE = "advisory"


class AdvisoryElector:
    """The lock of one election, and the attempts to win it."""

    def __init__(
        self,
        store: PostgresStore,
        state: LeaseState,
        cadence: Cadence,
        candidate: Candidate,
        *,
        detector: FailureDetector,
        heartbeat: Heartbeat,
    ) -> None:
        self._store, self._state, self._cadence, self._candidate = store, state, cadence, candidate
        self._heartbeat, self._name = heartbeat, candidate.name
        self._advert: Advert | None = None
        self._row: ElectionRow | None = None
        self._suspicion: liveness.Suspicion | None = None
        self._releases: dict[tuple[NodeId, int], str] = {}
        self._complained: set[object] = set()
        self._strangers: dict[int, float] = {}
        self.locked = False
        """The session holds the election's lock."""
        self.check_at = self.try_at = 0.0
        self.epoch = EpochGuard(forget=lambda: self._watch_anew(detector), resume=self.try_now)

    def next_at(self) -> Iterable[float]:
        """When to check the lock, to try again, or to raise the epoch."""
        if self.locked:
            yield self.check_at
        if self._name not in self._state.lease.holdings and self._candidate.ready_at() is not None:
            yield self.try_at
        yield self.epoch.ripe_at

    def joined(self, advert: Advert | None) -> None:
        """Begin with a new session, which is a new identity."""
        self._advert, self._row, self.try_at = advert, None, 0.0

    def lost(self) -> None:
        """The session is gone, and with it the lock."""
        self._advert, self.locked, self._suspicion = None, False, None

    def try_now(self) -> None:
        """Try to win at once."""
        self.try_at = 0.0

    def try_by(self, at: float) -> None:
        """Try to win at that time at the latest."""
        self.try_at = min(self.try_at, at)

    def release(self, node: NodeId, term: int, why: str) -> None:
        """Give a term back on the next turn, and the lock with it."""
        self._releases[node, term] = why

    def observe(self, rows: Iterable[ElectionRow], at: float) -> None:
        """Take in how a beat showed the election.

        With the lock in hand and a live holder in the row, wait until that holder has stopped believing. A sign of life
        starts the wait anew.
        """
        row = self._row = next((row for row in rows if row.name == self._name), None)
        if row is None or row.vacant:
            self.try_by(at)
            self._suspicion = None
        elif self.locked and row.holder is not None and row.holder != self._state.node and row.holder_advert:
            vacancy = Vacancy(row.term, row.holder, row.holder_seq, row.holder_advert)
            known = {} if self._suspicion is None else {self._name: self._suspicion}
            self._suspicion = liveness.suspect(known, {self._name: vacancy}, at)[self._name]
            self.try_at = self._suspicion.ripe_at

    def check(self, session: LockSession) -> None:
        """See that the lock is still there. If it is not, this session proves nothing any more."""
        began_at = boottime()
        if not session.holds():
            raise StoreUnavailable(f"{self._store.shown}: the session lost the lock of election {self._name!r}")
        self._vouch(began_at)

    def check_mode(self, session: LockSession) -> None:
        """Raise if the election is run in the other mode."""
        found = session.mode()
        if found not in {None, MODE}:
            raise ConfigurationError(self._other_mode(found))

    def give_back(self, session: LockSession) -> None:
        """Release what was given up under the present identity."""
        for (node, term), why in list(self._releases.items()):
            if node == self._state.node:
                session.give_back(node, term, why)
                self.locked, self._suspicion = False, None
                self._state.step(ReleaseAcked(self._name, term), only=node)
            del self._releases[node, term]

    def turn(self, session: LockSession) -> None:
        """Lock first, then the row; give up the lock if the election does not want to be won."""
        if self._name in self._state.lease.holdings:
            return
        ready_at = self._candidate.ready_at()
        if ready_at is None or ready_at > boottime():
            if self.locked:
                session.unlock()
                self.locked, self._suspicion = False, None
            self.try_at = max(self.try_at, ready_at or 0.0)
        elif boottime() >= self.try_at and (self.locked or self._lock(session)):
            self._attempt(session)

    def _watch_anew(self, detector: FailureDetector) -> None:
        detector.watch_anew()
        self._suspicion = None

    def _vouch(self, began_at: float) -> None:
        if self._advert is not None:
            self._state.step(SessionChecked(self._advert.nonce, began_at))
        self.check_at = began_at + self._cadence.validate_every

    def _lock(self, session: LockSession) -> bool:
        began_at = boottime()
        self.locked = session.lock()
        if self.locked:
            self._vouch(began_at)
            return True
        self.try_at = began_at + self._cadence.validate_every
        self._candidate.refused()
        if self._row is None or self._row.vacant:
            self._evict(session)
        return False

    def _evict(self, session: LockSession) -> None:
        """No node leads and a session has the lock: end that session if its node is not alive."""
        evicted: list[tuple[str, int, bool]] = []
        try:
            evicted = session.evict()
        except StoreUnavailable:
            raise
        except StoreError:  # the session of another role, which this one may not end
            pass
        if not evicted:
            now = boottime()
            strangers = dict(session.strangers())
            self._strangers = {pid: self._strangers.get(pid, now) for pid in strangers}
            # A node that has just joined is known by its lock from its second beat on.
            for pid, role in strangers.items():
                if self._strangers[pid] > now - 2 * self._cadence.heartbeat_every:
                    continue
                self._complain(
                    pid,
                    "election %r: no node can lead, because a session that is not a live node has its lock: %s",
                    f"role {role}, server process {pid}. It may be a dead node of that role, or any client: an "
                    "advisory lock needs no privilege. This node may not end it; an administrator can: "
                    f"SELECT pg_terminate_backend({pid});",
                )
        for label, pid, _ in evicted:
            self._complain(pid, "election %r: node %s is dead and its session had the lock; it was ended", label)
            self.try_at = boottime() + SOON / 2

    def _attempt(self, session: LockSession) -> None:
        suspicion, fenced = self._suspicion, self._candidate.fenced
        vanished = suspicion.vacancy if suspicion is not None and suspicion.ripe_at <= boottime() else None
        answer = self._state.acquire(
            self._name, lambda node: session.acquire(Acquire(node, self._name, fenced, mode=MODE, vanished=vanished))
        )
        if answer is None:
            self.try_at = boottime() + SOON  # no beat was acknowledged yet, or the check is too old
            return
        self.try_at = boottime() + self._cadence.heartbeat_every
        if answer.outcome is not AcquireOutcome.GRANTED:
            self._candidate.refused()
        match answer.outcome:
            case AcquireOutcome.GRANTED:
                self._suspicion = None
                self._complained.clear()
            case AcquireOutcome.BUSY:
                self.try_at = boottime() + between(*BUSY_RETRY)
            case AcquireOutcome.HELD | AcquireOutcome.GONE:
                self._heartbeat.beat_now()  # who holds it, and in which session? or are we dead?
            case AcquireOutcome.MOVED:
                self.epoch.notice(session)
            case AcquireOutcome.MISMATCH:
                session.unlock()
                self.locked = False
                self._complain("mode", "election %r: %s", self._other_mode(answer.detail))

    def _complain(self, about: object, message: str, detail: object) -> None:
        """Log a warning once, until a term was won again."""
        if about not in self._complained:
            self._complained.add(about)
            logger.warning(message, self._name, detail, extra={"action": "advisory_lock", "election": self._name})

    def _other_mode(self, found: str | None) -> str:
        change = f"SET mode = '{MODE}' WHERE name = '{self._name}' AND state = 'released'"
        return (
            f"election {self._name!r} is run in mode {found!r}, and one election has one mode on all its nodes. Use "
            "that mode or another name; or stop all its nodes and change it: "
            f"UPDATE {self._store.schema}.election {change}."
        )
