"""The keeper: the thread of advisory mode, with the one connection that everything goes over.

It locks, checks, beats, is granted terms, gives them back and declares the dead, one after another on the same connection, so that
nothing comes in between what belongs together. `advisory.py` says why.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from tenure.cluster.epoch import EpochGuard
from tenure.cluster.lease_state import NOBODY, LeaseState
from tenure.core import liveness
from tenure.core.cluster import (
    Acquire,
    AcquireOutcome,
    Advert,
    Beat,
    BeatAnswer,
    BeatVerdict,
    Cadence,
    ElectionRow,
    NodeCard,
    NodeId,
    Vacancy,
)
from tenure.core.lease import (
    AcquireAnswered,
    AcquireFailed,
    BeatAnswered,
    BeatFailed,
    BeatSent,
    Phase,
    ReleaseAcked,
    Resign,
    SessionChecked,
)
from tenure.errors import ConfigurationError, StoreError, StoreUnavailable, TenureError
from tenure.stores.notices import PeersChanged, Released, ResignRequested
from tenure.util.backoff import SOON, Backoff
from tenure.util.clock import boottime
from tenure.util.failure_log import FailureLog
from tenure.util.randomness import between
from tenure.util.vital_thread import VitalThread

if TYPE_CHECKING:
    from tenure.stores.postgres.advisory import LockSession
    from tenure.stores.postgres.store import PostgresStore

logger = logging.getLogger("tenure")

MODE = "advisory"
WAKE_JITTER = 0.05
"""Those who hear of a vacancy at the same moment spread over this many seconds."""
BUSY_RETRY = (0.02, 0.1)
SWEEP_EVERY = 3600.0


class AdvisoryCandidate(Protocol):
    """What the keeper must know of the election."""

    name: str
    fenced: bool

    def ready_at(self) -> float | None:
        """From when on it wants to be won; None if it does not want to."""

    def refused(self) -> None:
        """A try to win was answered with no."""


class AdvisoryLoop(VitalThread):
    """Keeps the connection that has the lock: the only thread that uses it, and the strong reference that keeps it."""

    def __init__(
        self,
        store: PostgresStore,
        standing: LeaseState,
        cadence: Cadence,
        candidate: AdvisoryCandidate,
        *,
        label: str,
        quiet: FailureLog,
    ) -> None:
        super().__init__(f"tenure advisory loop {label}")
        self._store, self._standing, self._cadence = store, standing, cadence
        self._candidate, self._name = candidate, candidate.name
        self._label, self._quiet = label, quiet
        # A hung exchange is all there is to wait for. It is given up when belief would end: see the arithmetic of `Cadence.check`.
        self._patience = min(cadence.attempt_timeout, cadence.session_grace - cadence.validate_every)
        self._session: LockSession | None = None
        self._advert: Advert | None = None
        self._locked = False
        self._beats_from = self._checks_from = self._tries_from = self._not_before = 0.0
        self._backoff = Backoff()
        self._row: ElectionRow | None = None
        self._watches: dict[NodeId, liveness.Watch] = {}
        self._declarations: dict[NodeId, liveness.Declaration] = {}
        self._suspicion: liveness.Suspicion | None = None
        self._releases: dict[tuple[NodeId, int], str] = {}
        self._farewells: dict[NodeId, int | None] = {}
        """Identities whose session was lost, each with the term whose work has not stopped yet."""
        self._complained: set[object] = set()
        self._strangers: dict[int, float] = {}
        self._failover = EpochGuard(forget=self._watch_anew, resume=self._try_now)
        self._sweep_at = boottime() + between(60, SWEEP_EVERY)
        self._inbox: deque[Callable[[], None]] = deque()
        self._ear, self._bell = socket.socketpair()
        self._bell.setblocking(False)
        self._leaving: str | None = None
        self.first: threading.Event = threading.Event()
        """Set after the first beat, or the failure in `failure`."""
        self.failure: TenureError | None = None

    # From other threads

    def look(self, at: float = 0.0) -> None:
        """Try to win, now or at that time."""
        self._post(lambda: setattr(self, "_tries_from", at))

    def release(self, term: int, why: str) -> None:
        """Give a term back, and the lock with it."""
        node = self._standing.node
        self._post(lambda: self._releases.__setitem__((node, term), why))

    def drained(self, term: int) -> None:
        """The work of a term has stopped; an identity that was lost with it may be let go."""
        self._post(
            lambda: self._farewells.update({node: None for node, last in self._farewells.items() if last == term})
        )

    def put_back(self) -> None:
        """The database was put back in time: no grants before the epoch is raised."""
        self._post(self._failover.put_back)

    def leave(self, why: str, patience: float) -> None:
        """Say goodbye and end after what was asked for before."""
        self._post(lambda: setattr(self, "_leaving", why))
        self.join(patience)

    def abandon(self) -> None:
        """In a forked child, where this thread does not run."""
        if self._session is not None:
            self._session.abandon()
        self._ear.close()
        self._bell.close()

    def _post(self, message: Callable[[], None]) -> None:
        self._inbox.append(message)
        with suppress(OSError):  # full: it will wake up anyway; closed: it has ended
            self._bell.send(b".")

    # The loop

    def work(self) -> None:
        try:
            self._keep_until_told()
        except BaseException as error:
            self.failure = StoreUnavailable(f"{self._store.shown}: the heartbeat ended with {type(error).__name__}")
            raise
        finally:
            self.first.set()  # there will be none for whoever still waits for it

    def _keep_until_told(self) -> None:
        while self._leaving is None:
            try:
                self._turn()
                self._wait(self._next())
            except Exception as error:
                self._stumble(error)
            self._take_inbox()
        self._goodbye()

    def _turn(self) -> None:
        if boottime() < self._not_before:
            return
        session = self._session or self._open()
        self._hear(session)
        if boottime() >= self._beats_from:
            if not self._beat(session):
                self._lose("this node was declared dead")
                return
            self.first.set()
        elif self._locked and boottime() >= self._checks_from:
            self._check(session)
        self._give_back(session)
        self._say_farewells(session)
        self._declare(session)
        self._campaign(session)
        self._failover.turn(session)
        if boottime() >= self._sweep_at:
            self._sweep_at = boottime() + SWEEP_EVERY
            session.sweep()
        if boottime() >= session.said_at + self._cadence.keepalive_every:
            session.keep_alive()
        self._hear(session)  # what was said while our own statements ran does not ring again
        self._backoff.worked()
        self._quiet.worked("advisory loop")

    def _next(self) -> float:
        """When something is due that nobody will wake us for."""
        if self._session is None:
            return self._not_before
        moments = [self._beats_from, self._session.said_at + self._cadence.keepalive_every]
        if self._locked:
            moments.append(self._checks_from)
        if self._name not in self._standing.lease.hands and self._candidate.ready_at() is not None:
            moments.append(self._tries_from)
        moments += [declaration.at for declaration in self._declarations.values()]
        moments.append(self._failover.ripe_at)
        return max(min(moments), self._not_before)

    def _wait(self, until: float) -> None:
        poll = select.poll()
        poll.register(self._ear, select.POLLIN)
        notices = self._session.fileno() if self._session else None
        if notices is not None and self._not_before <= boottime():
            poll.register(notices, select.POLLIN)
        for fd, _ in poll.poll(max(until - boottime(), 0.0) * 1000):
            if fd == self._ear.fileno():
                self._ear.recv(4096)

    def _take_inbox(self) -> None:
        while self._inbox:
            self._inbox.popleft()()

    # The session, which is the identity

    def _open(self) -> LockSession:
        """Connect as somebody new. The session lock comes first: whoever sees the row must be able to find its backend."""
        from tenure.stores.postgres.advisory import open_session

        session = self._session = open_session(self._store, self._name, f"{self._label}:advisory", self._patience)
        session.set_up()
        found = session.mode()
        if found not in {None, MODE}:
            raise ConfigurationError(_other_mode(self._name, found, self._store.schema))
        node = str(uuid.uuid4())
        self._advert = session.hold_session_lock(node, self._cadence.session_grace)
        self._standing.become(node)
        session.listen(node)
        session.join(NodeCard(node, self._label, self._cadence.ttl))
        self._beats_from = self._tries_from = 0.0
        self._watches, self._declarations, self._row = {}, {}, None
        return session

    def _lose(self, reason: str) -> None:
        """The session is gone, and with it the lock and this identity. Belief first."""
        node = self._standing.node
        hand = self._standing.lease.hands.get(self._name)
        if hand is not None and hand.phase is Phase.HELD:
            self._standing.step(Resign(self._name, hand.term, reason), only=node)
        if node:
            undrained = hand is not None and hand.phase in {Phase.HELD, Phase.DRAINING}
            self._farewells[node] = hand.term if hand is not None and undrained else None
        self._standing.become(NOBODY)
        if self._session is not None:
            self._session.close()
        self._session, self._advert, self._locked, self._suspicion = None, None, False, None

    def _say_farewells(self, session: LockSession) -> None:
        """Release what a lost identity held, once nobody works under it. Until then the others wait for as long as it may believe."""
        for node, undrained in list(self._farewells.items()):
            if undrained is None:
                session.leave(node, "its session ended")
                del self._farewells[node]
                self._tries_from = 0.0

    def _stumble(self, error: Exception) -> None:
        """Keep the session if it is still what it was; otherwise start anew, at once, then less and less soon."""
        session = self._session
        kept = session is not None and session.survives(error)
        if not kept:
            self._lose(f"its session was lost: {error}")
        if not self.first.is_set():
            self.failure = (
                error if isinstance(error, TenureError) else StoreUnavailable(f"{self._store.shown}: {error}")
            )
            self._leaving = "could not start"
            self.first.set()
            return
        self._quiet.failed("advisory loop", error)
        longest = self._cadence.validate_every if kept else self._cadence.heartbeat_every
        self._not_before = boottime() + self._backoff.pause(longest)

    def _goodbye(self) -> None:
        session = self._session
        with suppress(StoreError, OSError):
            if session is not None and self._standing.node:
                self._give_back(session)
                self._say_farewells(session)
                if self._locked:
                    session.unlock()
                session.leave(self._standing.node, self._leaving or "left")
        if session is not None:
            session.close()
        self._session = None
        self._ear.close()
        self._bell.close()

    # What comes in

    def _hear(self, session: LockSession) -> None:
        for notice in session.notices():
            if notice == ResignRequested(self._name):
                self._beats_from = 0.0
            elif notice in {Released(self._name), PeersChanged()}:
                self._tries_from = min(self._tries_from, boottime() + between(0, WAKE_JITTER))

    def _check(self, session: LockSession) -> None:
        """The lock is still there. If it is not, this session proves nothing any more."""
        began_at = boottime()
        if not session.holds():
            raise StoreUnavailable(f"{self._store.shown}: the session lost the lock of election {self._name!r}")
        self._vouch(began_at)

    def _vouch(self, began_at: float) -> None:
        if self._advert is not None:
            self._standing.step(SessionChecked(self._advert.nonce, began_at))
        self._checks_from = began_at + self._cadence.validate_every

    def _beat(self, session: LockSession) -> bool:
        """Refresh the row; with the lock, only after it was seen in place. False if this identity is dead."""
        if self._locked:
            self._check(session)
        standing = self._standing.lease
        number, sent_at = standing.sent + 1, boottime()
        self._standing.step(BeatSent(number, sent_at, self._advert))
        try:
            answer = session.beat(Beat(standing.node, number, sent_at, standing.until, self._advert, (self._name,)))
        except BaseException:
            self._standing.step(BeatFailed(number))
            raise
        received_at = boottime()
        late = answer.verdict is BeatVerdict.LATE
        self._beats_from = received_at + SOON if late else sent_at + self._cadence.heartbeat_every
        self._standing.step(BeatAnswered(number, answer))
        if answer.verdict is BeatVerdict.RENEWED:
            self._observe(answer, received_at)
        return answer.verdict is not BeatVerdict.GONE

    def _watch_anew(self) -> None:
        """What was seen in another database says nothing."""
        self._watches, self._suspicion = {}, None

    def _try_now(self) -> None:
        self._tries_from = 0.0

    def _observe(self, answer: BeatAnswer, at: float) -> None:
        self._row = next((row for row in answer.elections if row.name == self._name), None)
        self._watches = liveness.observe(self._watches, answer.peers, at)
        alive = [peer.id for peer in answer.peers]
        silent = liveness.silent(self._watches, alive, self._standing.node, self._cadence.heartbeat_every, boottime())
        self._declarations = silent | self._declarations
        self._suspect(at)

    def _suspect(self, at: float) -> None:
        """With the lock in hand and a live holder in the row, wait until that holder has stopped believing. A sign of life starts anew."""
        row = self._row
        if row is None or row.vacant:
            self._tries_from, self._suspicion = min(self._tries_from, at), None
        elif self._locked and row.holder is not None and row.holder != self._standing.node and row.holder_advert:
            vacancy = Vacancy(row.term, row.holder, row.holder_seq, row.holder_advert)
            known = {} if self._suspicion is None else {self._name: self._suspicion}
            self._suspicion = liveness.suspect(known, {self._name: vacancy}, at)[self._name]
            self._tries_from = self._suspicion.ripe_at

    # What goes out

    def _give_back(self, session: LockSession) -> None:
        for (node, term), why in list(self._releases.items()):
            if node == self._standing.node:
                session.give_back(node, term, why)
                self._locked, self._suspicion = False, None
                self._standing.step(ReleaseAcked(self._name, term), only=node)
            del self._releases[node, term]

    def _declare(self, session: LockSession) -> None:
        now = boottime()
        for node, declaration in list(self._declarations.items()):
            if declaration.at > now:
                continue
            del self._declarations[node]
            seen = self._watches.pop(node, None)
            if not declaration.stands(seen):
                continue
            if session.declare(node, declaration.pulse, declaration.why):
                logger.info("node %s is dead: %s", node, declaration.why, extra={"action": "node_dead", "node": node})
            self._beats_from = self._tries_from = 0.0  # is it the holder? the row tells

    def _campaign(self, session: LockSession) -> None:
        """Lock first, then the row; nothing of either for who does not want to lead."""
        if self._name in self._standing.lease.hands:
            return
        ready_at = self._candidate.ready_at()
        if ready_at is None or ready_at > boottime():
            if self._locked:
                session.unlock()
                self._locked, self._suspicion = False, None
            self._tries_from = max(self._tries_from, ready_at or 0.0)
        elif boottime() >= self._tries_from and (self._locked or self._lock(session)):
            self._attempt(session)

    def _lock(self, session: LockSession) -> bool:
        began_at = boottime()
        self._locked = session.lock()
        if self._locked:
            self._vouch(began_at)
            return True
        self._tries_from = began_at + self._cadence.validate_every
        self._candidate.refused()
        if self._row is None or self._row.vacant:
            self._evict(session)
        return False

    def _evict(self, session: LockSession) -> None:
        """Nobody leads and somebody has the lock: end its session if its node is not alive."""
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
                    "election %r: nobody can lead, because a session that is no live node has its lock: %s",
                    f"role {role}, server process {pid}. It may be a dead node of that role, or anybody who may connect: an advisory lock needs no "
                    f"right. This node may not end it; an administrator can: SELECT pg_terminate_backend({pid});",
                )
        for label, pid, _ in evicted:
            self._complain(pid, "election %r: node %s is dead and its session had the lock; it was ended", label)
            self._tries_from = boottime() + SOON / 2

    def _attempt(self, session: LockSession) -> None:
        opened = self._standing.open(self._name)
        if opened is None:
            self._tries_from = boottime() + SOON  # no beat was acknowledged yet, or the check is too old
            return
        node, attempt = opened
        suspicion, fenced = self._suspicion, self._candidate.fenced
        vanished = suspicion.vacancy if suspicion is not None and suspicion.ripe_at <= boottime() else None
        try:
            answer = session.acquire(Acquire(node, self._name, fenced, mode=MODE, vanished=vanished))
        except BaseException:
            self._standing.step(AcquireFailed(self._name, attempt), only=node)
            raise
        granted = answer.outcome is AcquireOutcome.GRANTED
        self._standing.step(AcquireAnswered(self._name, attempt, answer.term if granted else None), only=node)
        self._tries_from = boottime() + self._cadence.heartbeat_every
        if not granted:
            self._candidate.refused()
        match answer.outcome:
            case AcquireOutcome.GRANTED:
                self._suspicion = None
                self._complained.clear()
            case AcquireOutcome.BUSY:
                self._tries_from = boottime() + between(*BUSY_RETRY)
            case AcquireOutcome.HELD | AcquireOutcome.GONE:
                self._beats_from = 0.0  # who holds it, and in which session? or are we dead?
            case AcquireOutcome.MOVED:
                self._failover.notice(session)
            case AcquireOutcome.MISMATCH:
                session.unlock()
                self._locked = False
                self._complain("mode", "election %r: %s", _other_mode(self._name, answer.detail, self._store.schema))

    def _complain(self, about: object, message: str, detail: object) -> None:
        """Once, until a term was won again."""
        if about not in self._complained:
            self._complained.add(about)
            logger.warning(message, self._name, detail, extra={"action": "advisory_lock", "election": self._name})


def _other_mode(name: str, found: str | None, schema: str) -> str:
    change = f"SET mode = '{MODE}' WHERE name = '{name}' AND state = 'released'"
    return (
        f"election {name!r} is run in mode {found!r}, and one election has one mode for all its nodes. Use that mode or another "
        f"name; or stop all its nodes and change it: UPDATE {schema}.election {change}."
    )
