"""The control loop of a node: one thread and one connection for everything but the heartbeat.

On each turn it lets the failure detector declare the dead, the elector win and give back, and services such as the
scheduler do what is due. In between it waits for whatever may mean work: its inbox, notices from other nodes, and a
pidfd for every process on this host in which another node lives.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

from tenure.cluster.candidate import Candidates
from tenure.cluster.elector import WAKE_JITTER, Elector
from tenure.cluster.failure_detector import FailureDetector
from tenure.cluster.lease_state import LeaseState
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
from tenure.core.cluster import Cadence, NodeId, Vacancy
from tenure.errors import StoreError
from tenure.stores import Session, Store, host_lock
from tenure.stores.notices import JobsChanged, Notice, PeersChanged, Released, ResignRequested
from tenure.util.backoff import Backoff
from tenure.util.clock import boottime, sleep, walltime
from tenure.util.failure_log import FailureLog
from tenure.util.randomness import between

FINE = 0.001
"""`poll` counts milliseconds; what is left of a wait below that is slept."""
SWEEP_EVERY = 3600.0
"""How often a node removes what nodes that died long ago left behind; the first time at random, so that nodes do not
do it together.
"""
DAY = 86400.0


class LoopService(Protocol):
    """Regular work that shares the control loop's thread and connection. The loop's thread alone calls it."""

    def turn(self, session: Session) -> None:
        """Do what is due. What it raises costs the connection, and is tried again later."""

    def next_at(self) -> float:
        """When to be called again at the latest."""

    def heard(self, notice: Notice) -> None:
        """A node died or left, or jobs of some application changed."""


class ControlLoop(MessageLoop[Session]):
    """Runs until it is told to stop.

    `candidates` and `services` belong to the node, which adds to them and takes away.
    """

    def __init__(
        self,
        store: Store,
        state: LeaseState,
        cadence: Cadence,
        candidates: Candidates,
        services: list[LoopService],
        *,
        label: str,
        failures: FailureLog,
        beat_now: Callable[[], None],
        host_evidence: bool,
    ) -> None:
        super().__init__(f"tenure control loop {label}")
        self._store, self._state, self._cadence, self._label = store, state, cadence, label
        self._services, self._failures, self._beat_now = services, failures, beat_now
        self._directory = store.evidence_directory if host_evidence else None
        self._detector = FailureDetector(state, cadence, self._directory)
        self._elector = Elector(state, candidates, self._detector, beat_now)
        self._listening_as: NodeId = ""
        self._stopping = False
        self._backoff = Backoff()
        self._not_before = 0.0
        self._sweep_at = boottime() + between(60, SWEEP_EVERY)

    def locks_checked(self, free: Mapping[str, Vacancy], at: float) -> None:
        """Post what a check of the session found, if it can matter. For the thread of the heartbeat."""
        if free or self._elector.suspicions:
            self.post(LocksChecked(free, at))

    # The loop

    def work(self) -> None:
        while not self._stopping:
            try:
                self._turn()
            except Exception as error:
                self._drop_session()
                self._failures.failed("control loop", error)
                self._not_before = boottime() + self._backoff.pause(self._cadence.heartbeat_every)
            if not self._stopping:
                self._wait(self._next())
            self._take_messages()
        with suppress(StoreError, OSError):
            self._elector.give_back(self._session)
        self._drop_session()
        self._inbox.close()
        self._detector.close()

    def _turn(self) -> None:
        if boottime() < self._not_before or not self._state.node:
            return
        session = self._connected()
        self._hear(session)
        self._elector.give_back(session)
        self._detector.turn(session)
        for _ in self._detector.declare(session, self._elector.succeed):
            self._elector.try_all()
            self._tell_services(PeersChanged())
        self._elector.turn(session)
        self._elector.epoch.turn(session)
        for service in list(self._services):
            service.turn(session)
        if boottime() >= self._sweep_at:
            self._sweep_at = boottime() + SWEEP_EVERY
            session.sweep()
            if self._directory is not None:
                host_lock.sweep(self._directory, older_than=walltime().timestamp() - DAY)
        self._hear(session)  # notices that came in with the answers to our own statements make nothing readable
        self._backoff.worked()
        self._failures.worked("control loop")

    def _wait(self, until: float) -> None:
        poll = select.poll()
        poll.register(self._inbox.fileno(), select.POLLIN)
        for pidfd in self._detector.pidfds:
            poll.register(pidfd, select.POLLIN)
        notices = self._session.fileno() if self._session else None
        if notices is not None:
            poll.register(notices, select.POLLIN)
        left = max(until - boottime(), 0.0)
        ready = poll.poll(int(left / FINE))
        if not ready and (left := until - boottime()) <= FINE:
            sleep(left)
        for fd, _ in ready:
            if fd == self._inbox.fileno():
                self._inbox.hush()
            elif fd in self._detector.pidfds:
                self._detector.process_ended(fd)

    def _next(self) -> float:
        """When something is due that nothing will wake this thread for."""
        moments = [boottime() + self._cadence.heartbeat_every, *self._elector.next_at(), *self._detector.next_at()]
        if self._state.node:
            moments += [service.next_at() for service in list(self._services)]
        return max(min(moments), self._not_before)

    def _connected(self) -> Session:
        if self._session is None:
            self._session = self._store.session(f"{self._label}:control", self._cadence.attempt_timeout)
            self._session.rehearse()
            self._listening_as = ""
        if self._listening_as != self._state.node:
            self._listening_as = self._state.node
            self._session.listen(self._listening_as)
            self._elector.try_all()  # notices from before did not reach this session
            self._tell_services(PeersChanged())
        return self._session

    def _drop_session(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = None

    # What comes in

    def _receive(self, message: LoopMessage) -> None:
        match message:
            case BeatRenewed(answer, at):
                self._detector.observe(answer.peers, at)
                self._elector.observe(answer.elections, at)
            case LocksChecked(free, at):
                self._elector.suspect(free, at)
            case IdentityChanged():
                self._detector.forget()
                self._elector.forget()
            case TryToWin(name, at):
                self._elector.try_at(name, at)
            case GiveBack(node, name, term, why):
                self._elector.release(node, name, term, why)
            case Rewound():
                self._elector.epoch.put_back()
            case Stop():
                self._stopping = True
            case Wake() | WorkStopped():
                pass

    def _hear(self, session: Session) -> None:
        for notice in session.notices():
            at = boottime() + between(0, WAKE_JITTER)
            match notice:
                case ResignRequested():
                    self._beat_now()
                case JobsChanged():
                    self._tell_services(notice)
                case Released(name):
                    self._elector.try_by(name, at)
                case PeersChanged():
                    self._elector.try_all(at)
                    self._tell_services(notice)

    def _tell_services(self, notice: Notice) -> None:
        for service in list(self._services):
            service.heard(notice)
