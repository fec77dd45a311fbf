"""The campaign: a thread that tries to win elections, gives back what is over, and declares the dead.

It owns the second connection of a node and waits on everything that may mean work: its inbox, notices from other nodes, and a pidfd
for every node on this host. What the pacemaker learns from a beat comes in through the inbox, with the time at which it arrived.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from tenure.cluster.epoch import EpochGuard
from tenure.cluster.lease_state import LeaseState
from tenure.core import liveness
from tenure.core.cluster import Acquire, AcquireOutcome, BeatAnswer, Cadence, ElectionRow, NodeCard, NodeId, Vacancy
from tenure.core.lease import AcquireAnswered, AcquireFailed, ReleaseAcked
from tenure.errors import StoreError
from tenure.stores import Session, Store, host_lock
from tenure.stores.notices import JobsChanged, Notice, PeersChanged, Released, ResignRequested
from tenure.util.backoff import Backoff
from tenure.util.clock import boottime, sleep, walltime
from tenure.util.failure_log import FailureLog
from tenure.util.randomness import between
from tenure.util.vital_thread import VitalThread

logger = logging.getLogger("tenure")

WAKE_JITTER = 0.05
"""Those who hear of a vacancy at the same moment spread over this many seconds."""
BUSY_RETRY = (0.02, 0.1)
PROBE_AGAIN = (0.05, 0.25)
"""How soon to look again for a process that ended while its children still hold its lock; the second number after two seconds."""
FINE = 0.001
"""What `poll` cannot count; the rest of a wait is slept."""
SWEEP_EVERY = 3600.0
DAY = 86400.0


@dataclass(frozen=True, slots=True)
class Candidacy:
    """What the campaign must know of an election."""

    name: str
    fenced: bool
    not_before: float


class LoopService(Protocol):
    """Regular work that shares the campaign's thread and connection. Called on that thread alone."""

    def turn(self, session: Session) -> None:
        """Do what is due. What it raises costs the connection, and is tried again later."""

    def next_at(self) -> float:
        """When to be called again at the latest."""

    def heard(self, notice: Notice) -> None:
        """A node died or left, or jobs of some application changed."""


@dataclass(slots=True)
class _Probing:
    since: float
    at: float
    ended: bool
    """Its process is known to have ended, or cannot be watched: look again until the lock is free."""


class ControlLoop(VitalThread):
    """Runs until it is told to stop."""

    def __init__(
        self,
        store: Store,
        standing: LeaseState,
        cadence: Cadence,
        *,
        label: str,
        quiet: FailureLog,
        candidacy: Callable[[str], Candidacy | None],
        names: Callable[[], tuple[str, ...]],
        refused: Callable[[str], None],
        beat_now: Callable[[], None],
        duties: Callable[[], tuple[LoopService, ...]],
        host_evidence: bool,
    ) -> None:
        super().__init__(f"tenure control loop {label}")
        self._store, self._standing, self._cadence, self._label = store, standing, cadence, label
        self._quiet, self._candidacy, self._names = quiet, candidacy, names
        self._refused, self._beat_now, self._duties = refused, beat_now, duties
        self._directory = store.evidence_directory if host_evidence else None
        self._session: Session | None = None
        self._listening_as: NodeId = ""
        self._inbox: deque[Callable[[], None]] = deque()
        self._wake_in, self._wake_out = os.pipe()
        os.set_blocking(self._wake_out, False)
        self._wake_mutex = threading.Lock()
        self._ended = False
        self._stopping = False
        self._backoff = Backoff()
        self._not_before = 0.0
        self._rows: dict[str, ElectionRow] = {}
        self._tries: dict[str, float] = {}
        self._releases: dict[tuple[NodeId, str, int], str] = {}
        self._watches: dict[NodeId, liveness.Watch] = {}
        self._suspicions: dict[str, liveness.Suspicion] = {}
        self._declarations: dict[NodeId, liveness.Declaration] = {}
        self._cards: dict[NodeId, NodeCard] = {}
        self._unknown: set[NodeId] = set()
        self._pidfds: dict[int, set[NodeId]] = {}
        """Processes on this host, and the nodes that live in them."""
        self._probing: dict[NodeId, _Probing] = {}
        self._failover = EpochGuard(forget=self._watch_anew, resume=lambda: self._try_all(boottime()))
        self._sweep_at = boottime() + between(60, SWEEP_EVERY)

    # From other threads

    def observed(self, answer: BeatAnswer, at: float) -> None:
        """A beat was answered at this time."""
        self._post(lambda: self._on_beat(answer, at))

    def checked(self, free: dict[str, Vacancy], at: float) -> None:
        """A check of the session found these holders' locks free."""
        if free or self._suspicions:
            self._post(lambda: self._on_check(free, at))

    def look(self, name: str, at: float = 0.0) -> None:
        """Try to win this election, now or at that time."""
        self._post(lambda: self._tries.__setitem__(name, at))

    def release(self, name: str, term: int, why: str) -> None:
        """Give a term back."""
        node = self._standing.node
        self._post(lambda: self._releases.__setitem__((node, name, term), why))

    def put_back(self) -> None:
        """The database was put back in time: no grants before the epoch is raised."""
        self._post(self._failover.put_back)

    def rejoined(self) -> None:
        """This node has a new identity."""
        self._post(self._forget)

    def wake(self) -> None:
        """A duty has something to do now."""
        self._post(lambda: None)

    def stop(self, patience: float) -> None:
        """End after what was asked for before."""
        self._post(lambda: setattr(self, "_stopping", True))
        self.join(patience)

    def abandon(self) -> None:
        """In a forked child, where this thread does not run."""
        if self._session is not None:
            self._session.abandon()
        for fd in (self._wake_in, self._wake_out):
            os.close(fd)

    def _post(self, message: Callable[[], None]) -> None:
        self._inbox.append(message)
        with self._wake_mutex, suppress(BlockingIOError):  # the pipe is full: it will wake up anyway
            if not self._ended:  # else the number may be that of another file by now
                os.write(self._wake_out, b".")

    # The loop

    def work(self) -> None:
        while not self._stopping:
            try:
                self._turn()
            except Exception as error:
                self._stumble(error)
            if not self._stopping:
                self._wait(self._next())
            self._take_inbox()
        with suppress(StoreError, OSError):
            self._give_back()
        self._drop_session()
        with self._wake_mutex:
            self._ended = True
            for fd in (self._wake_in, self._wake_out):
                os.close(fd)
        self._watch_no_process()

    def _turn(self) -> None:
        if boottime() < self._not_before or not self._standing.node:
            return
        session = self._ready()
        self._hear(session)
        self._give_back()
        self._meet(session)
        self._probe()
        self._declare(session)
        self._try(session)
        self._failover.turn(session)
        for duty in self._duties():
            duty.turn(session)
        if boottime() >= self._sweep_at:
            self._sweep_at = boottime() + SWEEP_EVERY
            session.sweep()
            if self._directory is not None:
                host_lock.sweep(self._directory, older_than=walltime().timestamp() - DAY)
        self._hear(session)  # what was said while our own statements ran does not ring again
        self._backoff.worked()
        self._quiet.worked("control loop")

    def _wait(self, until: float) -> None:
        poll = select.poll()
        poll.register(self._wake_in, select.POLLIN)
        for pidfd in self._pidfds:
            poll.register(pidfd, select.POLLIN)
        bell = self._session.fileno() if self._session else None
        if bell is not None:
            poll.register(bell, select.POLLIN)
        left = max(until - boottime(), 0.0)
        ready = poll.poll(int(left / FINE))
        if not ready and (left := until - boottime()) <= FINE:
            sleep(left)
        for fd, _ in ready:
            if fd == self._wake_in:
                os.read(self._wake_in, 4096)
            elif fd in self._pidfds:
                nodes = self._pidfds.pop(fd)
                host_lock.forget_process(fd)
                for node in nodes:
                    self._probe_ended(node)

    def _take_inbox(self) -> None:
        while self._inbox:
            self._inbox.popleft()()

    def _next(self) -> float:
        """When something is due that nobody will wake us for."""
        moments = [boottime() + self._cadence.heartbeat_every, *self._tries.values()]
        moments += [declaration.at for declaration in self._declarations.values()]
        moments += [probing.at for probing in self._probing.values()]
        moments += [suspicion.ripe_at for suspicion in self._suspicions.values()]
        if self._standing.node:
            moments += [duty.next_at() for duty in self._duties()]
        moments.append(self._failover.ripe_at)
        return max(min(moments), self._not_before)

    def _ready(self) -> Session:
        if self._session is None:
            self._session = self._store.session(f"{self._label}:control", self._cadence.attempt_timeout)
            self._session.rehearse()
            self._listening_as = ""
        if self._listening_as != self._standing.node:
            self._listening_as = self._standing.node
            self._session.listen(self._listening_as)
            self._try_all(boottime())  # whatever was said before was said to nobody
            self._tell_duties(PeersChanged())
        return self._session

    def _stumble(self, error: Exception) -> None:
        self._drop_session()
        self._quiet.failed("control loop", error)
        self._not_before = boottime() + self._backoff.pause(self._cadence.heartbeat_every)

    def _drop_session(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = None

    # What comes in

    def _on_beat(self, answer: BeatAnswer, at: float) -> None:
        self._rows = {row.name: row for row in answer.elections}
        self._watches = liveness.observe(self._watches, answer.peers, at)
        alive = {peer.id for peer in answer.peers}
        for node in [node for node in self._cards if node not in alive]:
            self._part_from(node)
        self._unknown |= alive - self._cards.keys()
        if self._directory is not None:
            watched = set().union(*self._pidfds.values(), self._probing)
            self._probing.update({node: _Probing(at, at, ended=False) for node in self._cards.keys() - watched})
        silent = liveness.silent(self._watches, alive, self._standing.node, self._cadence.heartbeat_every, boottime())
        self._declarations = silent | self._declarations
        for name in self._names():
            row = self._rows.get(name)
            if row is None or row.vacant:
                self._tries.setdefault(name, at)

    def _on_check(self, free: dict[str, Vacancy], at: float) -> None:
        self._suspicions = liveness.suspect(self._suspicions, free, at)
        for name in free:
            candidacy = self._candidacy(name)
            if candidacy is not None and candidacy.fenced:
                self._tries.setdefault(name, at)

    def _watch_anew(self) -> None:
        """What was seen in another database says nothing."""
        self._watches.clear()

    def _forget(self) -> None:
        """A new identity starts with an empty memory of the others."""
        self._watch_no_process()
        for memory in (self._cards, self._probing, self._watches, self._suspicions, self._declarations, self._rows):
            memory.clear()
        self._try_all(boottime())

    def _hear(self, session: Session) -> None:
        for notice in session.notices():
            at = boottime() + between(0, WAKE_JITTER)
            match notice:
                case ResignRequested():
                    self._beat_now()
                case JobsChanged():
                    self._tell_duties(notice)
                case Released(name):
                    self._tries[name] = min(self._tries.get(name, at), at)
                case PeersChanged():
                    self._try_all(at)
                    self._tell_duties(notice)

    def _tell_duties(self, notice: Notice) -> None:
        for duty in self._duties():
            duty.heard(notice)

    def _try_all(self, at: float) -> None:
        for name in self._names():
            self._tries[name] = min(self._tries.get(name, at), at)

    # What goes out

    def _give_back(self) -> None:
        for (node, name, term), why in list(self._releases.items()):
            if self._session is None:
                return
            if node == self._standing.node:
                self._session.release(node, name, term, why)
                self._standing.step(ReleaseAcked(name, term), only=node)
            del self._releases[node, name, term]

    def _meet(self, session: Session) -> None:
        """Make the acquaintance of new nodes, so that their deaths can be proved."""
        if self._directory is None or not self._unknown:
            return
        for card in session.cards(self._unknown):
            self._cards[card.id] = card
            self._watch_process(card)
        self._unknown.clear()

    def _watch_process(self, card: NodeCard) -> None:
        if card.host is None or card.host.boot_id != host_lock.boot_id():
            return
        pidfd = host_lock.watch_process(card.host)
        if pidfd is None:
            self._probe_ended(card.id)
            return
        if pidfd in self._pidfds:
            host_lock.forget_process(pidfd)  # this node needs it once
        self._pidfds.setdefault(pidfd, set()).add(card.id)

    def _part_from(self, node: NodeId) -> None:
        self._cards.pop(node, None)
        self._probing.pop(node, None)
        self._declarations.pop(node, None)
        for fd, nodes in list(self._pidfds.items()):
            nodes.discard(node)
            if not nodes:
                del self._pidfds[fd]
                host_lock.forget_process(fd)

    def _watch_no_process(self) -> None:
        for fd in self._pidfds:
            host_lock.forget_process(fd)
        self._pidfds.clear()

    def _probe(self) -> None:
        now = boottime()
        for node, probing in list(self._probing.items()):
            card = self._cards.get(node)
            if probing.at > now:
                continue
            if card is None or card.host is None or self._directory is None:
                del self._probing[node]
                continue
            proof = host_lock.probe(self._directory, node, card.host)
            if proof is host_lock.Proof.DEAD:
                del self._probing[node]
                at = now if probing.ended else now + self._turn_for(node)
                self._declarations[node] = liveness.Declaration(at, None, "its host lock is free")
            elif proof is host_lock.Proof.ALIVE and probing.ended:
                probing.at = (
                    now + PROBE_AGAIN[now > probing.since + 2.0]
                )  # the process is gone, children that do our work are not
            else:
                del self._probing[node]

    def _probe_ended(self, node: NodeId) -> None:
        """Its process has ended. Whoever comes first in rank looks at once; the others later, when there is nothing left to prove."""
        now = boottime()
        self._probing[node] = _Probing(now, now + self._turn_for(node), ended=True)

    def _turn_for(self, node: NodeId) -> float:
        """For how long to let others on this host go first who can prove this death too."""
        here = [card.id for card in self._cards.values() if card.host and card.host.boot_id == host_lock.boot_id()]
        return liveness.turn(here, node, self._standing.node, self._cadence.heartbeat_every)

    def _declare(self, session: Session) -> None:
        now = boottime()
        for node, declaration in list(self._declarations.items()):
            if declaration.at > now:
                continue
            del self._declarations[node]
            seen = self._watches.get(node)
            if not declaration.stands(seen):
                continue
            if self._bury(session, node, declaration):
                label = self._cards[node].label if node in self._cards else node
                logger.info("node %s is dead: %s", label, declaration.why, extra={"action": "node_dead", "node": node})
                if self._directory is not None:
                    host_lock.clear(self._directory, node)
            self._watches.pop(node, None)
            self._part_from(node)
            self._try_all(boottime())
            self._tell_duties(PeersChanged())

    def _bury(self, session: Session, node: NodeId, declaration: liveness.Declaration) -> bool:
        """Declare a node dead; True if it was this call that did it. Where it led, and we stand, that is one step with the succession."""
        led = [name for name, row in self._rows.items() if row.held and row.holder == node]
        if declaration.pulse is None and led:
            declared = self._attempt(session, led[0], None, heir_of=(node, declaration.why))
            if declared is not None:
                return declared
        return session.declare(node, declaration.pulse, declaration.why)

    def _try(self, session: Session) -> None:
        now = boottime()
        for name, suspicion in list(self._suspicions.items()):
            if suspicion.ripe_at <= now:
                del self._suspicions[name]
                self._attempt(session, name, suspicion.vacancy)
        for name, at in list(self._tries.items()):
            if at <= now:
                del self._tries[name]
                self._attempt(session, name, None)

    def _attempt(
        self, session: Session, name: str, vanished: Vacancy | None, *, heir_of: tuple[NodeId, str] | None = None
    ) -> bool | None:
        """Try to win. None if this was no time to try, else whether the leader in `heir_of` was declared dead by it."""
        candidacy = self._candidacy(name)
        if candidacy is None:
            return None
        if candidacy.not_before > boottime():
            self._tries[name] = candidacy.not_before
            return None
        opened = self._standing.open(name)
        if opened is None:
            return None
        node, attempt = opened
        request = Acquire(node, name, candidacy.fenced, vanished=vanished)
        try:
            declared, answer = session.succeed(*heir_of, request) if heir_of else (False, session.acquire(request))
        except BaseException:
            self._standing.step(AcquireFailed(name, attempt), only=node)
            raise
        granted = answer.outcome is AcquireOutcome.GRANTED
        self._standing.step(AcquireAnswered(name, attempt, answer.term if granted else None), only=node)
        if not granted:
            self._refused(name)
        match answer.outcome:
            case AcquireOutcome.BUSY:
                self._tries[name] = boottime() + between(*BUSY_RETRY)
            case AcquireOutcome.GONE:
                self._beat_now()
            case AcquireOutcome.MOVED:
                self._failover.notice(session)
            case AcquireOutcome.MISMATCH:
                logger.error(
                    "election %r is run in mode %r elsewhere; use one mode for all its nodes",
                    name,
                    answer.detail,
                    extra={"action": "mode_mismatch"},
                )
            case AcquireOutcome.HELD if (
                answer.holder is not None and answer.holder not in self._cards and self._directory is not None
            ):
                self._unknown.add(answer.holder)
            case _:
                pass
        return declared
