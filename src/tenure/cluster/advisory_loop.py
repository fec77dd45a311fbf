"""The loop of advisory mode: one thread with the one connection that everything goes over.

It locks, checks, beats, is granted terms, gives them back and declares the dead, one after another on the same
connection, so that nothing comes in between what belongs together. `advisory.py` says why.
"""

from __future__ import annotations

import select
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

from tenure.cluster.advisory_elector import AdvisoryElector
from tenure.cluster.candidate import Candidate
from tenure.cluster.control_loop import SWEEP_EVERY
from tenure.cluster.elector import WAKE_JITTER
from tenure.cluster.failure_detector import FailureDetector
from tenure.cluster.heartbeat import Heartbeat
from tenure.cluster.lease_state import NO_NODE, LeaseState
from tenure.cluster.message_loop import MessageLoop
from tenure.cluster.messages import (
    BeatRenewed,
    GiveBack,
    IdentityChanged,
    LocksChecked,
    LoopMessage,
    Rewound,
    Stop,
    TryToWin,
    Wake,
    WorkStopped,
)
from tenure.core.cluster import Advert, BeatVerdict, Cadence, NodeCard, NodeId
from tenure.core.lease import Phase, Resign
from tenure.errors import StoreError
from tenure.stores.notices import PeersChanged, Released, ResignRequested
from tenure.util.backoff import Backoff
from tenure.util.clock import boottime
from tenure.util.failure_log import FailureLog
from tenure.util.randomness import between

if TYPE_CHECKING:
    from tenure.stores.postgres.advisory import LockSession
    from tenure.stores.postgres.store import PostgresStore


class AdvisoryLoop(MessageLoop["LockSession"]):
    """The only thread that uses the connection with the lock, and the strong reference that keeps it open."""

    def __init__(
        self,
        store: PostgresStore,
        state: LeaseState,
        cadence: Cadence,
        candidate: Candidate,
        heartbeat: Heartbeat,
        *,
        label: str,
        failures: FailureLog,
    ) -> None:
        super().__init__(f"tenure advisory loop {label}")
        self._store, self._state, self._cadence = store, state, cadence
        self._name, self._label, self._failures = candidate.name, label, failures
        # There is only one exchange to wait for. A hung one is given up when belief would end: see the arithmetic of
        # `Cadence.check`.
        self._patience = min(cadence.attempt_timeout, cadence.session_grace - cadence.validate_every)
        self._heartbeat = heartbeat
        self._detector = FailureDetector(state, cadence, directory=None)
        self._elector = AdvisoryElector(store, state, cadence, candidate, detector=self._detector, heartbeat=heartbeat)
        self._advert: Advert | None = None
        self._not_before = 0.0
        self._backoff = Backoff()
        self._farewells: dict[NodeId, int | None] = {}
        """Identities whose session was lost, each with the term whose work has not stopped yet."""
        self._sweep_at = boottime() + between(60, SWEEP_EVERY)
        self._leaving: str | None = None

    # The loop

    def work(self) -> None:
        with self._heartbeat.until_it_ends():
            while self._leaving is None:
                try:
                    self._turn()
                    self._wait(self._next())
                except Exception as error:
                    self._recover(error)
                self._take_messages()
            self._goodbye()

    def _turn(self) -> None:
        if boottime() < self._not_before:
            return
        session = self._session or self._open()
        self._hear(session)
        if boottime() >= self._heartbeat.due_at:
            if not self._beat(session):
                self._lose("this node was declared dead")
                return
            self._heartbeat.first.set()
        elif self._elector.locked and boottime() >= self._elector.check_at:
            self._elector.check(session)
        self._elector.give_back(session)
        self._say_farewells(session)
        for _ in self._detector.declare(session):
            self._heartbeat.due_at = self._elector.try_at = 0.0  # is it the holder? the row tells
        self._elector.turn(session)
        self._elector.epoch.turn(session)
        if boottime() >= self._sweep_at:
            self._sweep_at = boottime() + SWEEP_EVERY
            session.sweep()
        if boottime() >= session.said_at + self._cadence.keepalive_every:
            session.keep_alive()
        self._hear(session)  # notices that came in with the answers to our own statements make nothing readable
        self._backoff.worked()
        self._failures.worked("advisory loop")

    def _next(self) -> float:
        """When something is due that nothing will wake this thread for."""
        if self._session is None:
            return self._not_before
        moments = [self._heartbeat.due_at, self._session.said_at + self._cadence.keepalive_every]
        moments += [*self._elector.next_at(), *self._detector.next_at()]
        return max(min(moments), self._not_before)

    def _wait(self, until: float) -> None:
        poll = select.poll()
        poll.register(self._inbox.fileno(), select.POLLIN)
        notices = self._session.fileno() if self._session else None
        if notices is not None and self._not_before <= boottime():
            poll.register(notices, select.POLLIN)
        for fd, _ in poll.poll(max(until - boottime(), 0.0) * 1000):
            if fd == self._inbox.fileno():
                self._inbox.hush()

    # The session, which is the identity

    def _open(self) -> LockSession:
        """Connect under a new identity.

        The session lock comes first: a node that sees the row must be able to find its backend.
        """
        from tenure.stores.postgres.advisory import open_session

        session = self._session = open_session(self._store, self._name, f"{self._label}:advisory", self._patience)
        session.set_up()
        self._elector.check_mode(session)
        node = str(uuid.uuid4())
        self._advert = session.hold_session_lock(node, self._cadence.session_grace)
        self._state.become(node)
        session.listen(node)
        session.join(NodeCard(node, self._label, self._cadence.ttl))
        self._heartbeat.due_at = 0.0
        self._detector.forget()
        self._elector.joined(self._advert)
        return session

    def _beat(self, session: LockSession) -> bool:
        """Refresh the row; with the lock, only after it was seen in place. False if this identity is dead."""
        if self._elector.locked:
            self._elector.check(session)
        answer, received_at = self._heartbeat.send(session, self._advert, (self._name,))
        if answer.verdict is BeatVerdict.RENEWED:
            self._detector.observe(answer.peers, received_at)
            self._elector.observe(answer.elections, received_at)
        return answer.verdict is not BeatVerdict.GONE

    def _lose(self, reason: str) -> None:
        """The session is gone, and with it the lock and this identity. Belief ends first."""
        node = self._state.node
        holding = self._state.lease.holdings.get(self._name)
        if holding is not None and holding.phase is Phase.HELD:
            self._state.step(Resign(self._name, holding.term, reason), only=node)
        if node:
            undrained = holding is not None and holding.phase in {Phase.HELD, Phase.DRAINING}
            self._farewells[node] = holding.term if holding is not None and undrained else None
        self._state.become(NO_NODE)
        if self._session is not None:
            self._session.close()
        self._session, self._advert = None, None
        self._elector.lost()

    def _say_farewells(self, session: LockSession) -> None:
        """Release what a lost identity held, once no work goes on under it.

        Until then the others wait for as long as it may believe.
        """
        for node, undrained in list(self._farewells.items()):
            if undrained is None:
                session.leave(node, "its session ended")
                del self._farewells[node]
                self._elector.try_now()

    def _recover(self, error: Exception) -> None:
        """Keep the session if it is still what it was; otherwise start anew, at once, then less and less soon."""
        session = self._session
        kept = session is not None and session.survives(error)
        if not kept:
            self._lose(f"its session was lost: {error}")
        if not self._heartbeat.first.is_set():
            self._leaving = "could not start"
            self._heartbeat.could_not_start(error)
            return
        self._failures.failed("advisory loop", error)
        longest = self._cadence.validate_every if kept else self._cadence.heartbeat_every
        self._not_before = boottime() + self._backoff.pause(longest)

    def _goodbye(self) -> None:
        session = self._session
        with suppress(StoreError, OSError):
            if session is not None and self._state.node:
                self._elector.give_back(session)
                self._say_farewells(session)
                if self._elector.locked:
                    session.unlock()
                session.leave(self._state.node, self._leaving or "left")
        if session is not None:
            session.close()
        self._session = None
        self._inbox.close()

    # What comes in

    def _receive(self, message: LoopMessage) -> None:
        match message:
            case TryToWin(_, at):
                self._elector.try_at = at
            case GiveBack(node, _, term, why):
                self._elector.release(node, term, why)
            case WorkStopped(term):
                self._farewells.update({node: None for node, last in self._farewells.items() if last == term})
            case Rewound():
                self._elector.epoch.put_back()
            case Stop():
                self._leaving = "left"
            case BeatRenewed() | LocksChecked() | IdentityChanged() | Wake():
                pass  # this loop beats and checks by itself, and hosts no services

    def _hear(self, session: LockSession) -> None:
        for notice in session.notices():
            if notice == ResignRequested(self._name):
                self._heartbeat.due_at = 0.0
            elif notice in {Released(self._name), PeersChanged()}:
                self._elector.try_by(boottime() + between(0, WAKE_JITTER))
