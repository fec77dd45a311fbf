"""The heartbeat: one numbered beat after another keeps this node's lease (promise G2).

In lease mode a thread with a connection of its own sends it and does nothing else: the beat goes on, whatever the
application does with its event loop, its pools and its locks. Between beats, where sessions are evidence, the thread
checks that its session still holds the lock that its row advertises. In advisory mode the loop that holds the lock
sends the beats.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tenure.cluster.candidate import Candidates
from tenure.cluster.control_loop import ControlLoop
from tenure.cluster.lease_state import LeaseState
from tenure.cluster.messages import BeatRenewed, IdentityChanged
from tenure.core.cluster import Advert, Beat, BeatAnswer, BeatVerdict, Cadence, NodeCard
from tenure.core.lease import BeatAnswered, BeatFailed, BeatSent, SessionChecked
from tenure.errors import ConfigurationError, StoreError, StoreUnavailable, TenureError
from tenure.stores import Session, Store
from tenure.stores.host_lock import LockFile
from tenure.util.backoff import SOON, Backoff
from tenure.util.clock import boottime
from tenure.util.failure_log import FailureLog
from tenure.util.vital_thread import VitalThread

START_WITHIN = 5.0
"""The store answered when it was prepared; for this many seconds a first beat that was too slow is tried again."""

logger = logging.getLogger("tenure")

BeatWatcher = Callable[[str, float], None]
"""Is told how a beat ended ('renewed', 'late', 'failed' …), and how many seconds that took."""


class Heartbeat:
    """When the next beat of a node is due, how to send it, and what became of the first."""

    def __init__(
        self, state: LeaseState, cadence: Cadence, shown: str, told: BeatWatcher = lambda _result, _took: None
    ) -> None:
        self._state, self._cadence, self._shown, self._told = state, cadence, shown, told
        self.moved_at = boottime()
        """When the thread that beats was last seen at work. It waits for the store for `attempt_timeout` at a time."""
        self.due_at = 0.0
        self.wake = threading.Event()
        self.first: threading.Event = threading.Event()
        """Set after the first beat, or the failure in `failure`."""
        self.failure: TenureError | None = None

    def beat_now(self) -> None:
        """The answer to the next beat is needed at once."""
        self.due_at = 0.0
        self.wake.set()

    def send(self, session: Session, advert: Advert | None, names: tuple[str, ...]) -> tuple[BeatAnswer, float]:
        """Send a beat: its answer, and when that arrived."""
        lease = self._state.lease
        number, sent_at = lease.sent + 1, boottime()
        self._state.step(BeatSent(number, sent_at, advert))
        try:
            answer = session.beat(Beat(lease.node, number, sent_at, lease.until, advert, names))
        except BaseException:
            self._state.step(BeatFailed(number))
            self._told("failed", boottime() - sent_at)
            raise
        self.moved_at = received_at = boottime()
        late = answer.verdict is BeatVerdict.LATE
        self.due_at = received_at + SOON if late else sent_at + self._cadence.heartbeat_every
        self._state.step(BeatAnswered(number, answer))
        self._told(answer.verdict.value, received_at - sent_at)
        return answer, received_at

    @contextmanager
    def until_it_ends(self) -> Iterator[None]:
        """Wrap the work of the thread that beats: when it ends, nothing must wait for a first beat any more."""
        try:
            yield
        except BaseException as error:
            self.failure = StoreUnavailable(f"{self._shown}: the heartbeat ended with {type(error).__name__}")
            raise
        finally:
            self.first.set()

    def could_not_start(self, error: Exception) -> None:
        """There will be no first beat, for this reason."""
        self.failure = error if isinstance(error, TenureError) else StoreUnavailable(f"{self._shown}: {error}")
        self.first.set()


class HeartbeatThread(VitalThread):
    """Beats until it is told to leave, and tells the control loop what it learns."""

    def __init__(
        self,
        store: Store,
        state: LeaseState,
        cadence: Cadence,
        candidates: Candidates,
        *,
        heartbeat: Heartbeat,
        loop: ControlLoop,
        label: str,
        failures: FailureLog,
        host_evidence: bool,
        session_evidence: bool,
    ) -> None:
        super().__init__(f"tenure heartbeat {label}")
        self._store, self._state, self._cadence, self._candidates = store, state, cadence, candidates
        self._heartbeat, self._loop = heartbeat, loop
        self._label, self._failures = label, failures
        self._host_evidence, self._session_evidence = host_evidence, session_evidence
        self._session: Session | None = None
        self._lock: LockFile | None = None
        self._advert: Advert | None = None
        self._check_at = 0.0
        self._backoff = Backoff()
        self._leaving: str | None = None
        self._needs_identity = True
        self._start_by = boottime() + START_WITHIN

    @property
    def lock_file(self) -> LockFile | None:
        """Children that run this node's work inherit it."""
        return self._lock

    def rejoin(self) -> None:
        """Take a new identity: the present one is dead."""
        self._needs_identity = True
        self._heartbeat.beat_now()

    def leave(self, patience: float) -> None:
        """Say goodbye and end."""
        self._leaving = "left"
        self._heartbeat.wake.set()
        self.join(patience)

    def abandon(self) -> None:
        """In a forked child, where this thread does not run."""
        if self._session is not None:
            self._session.abandon()
        if self._lock is not None:
            self._lock.let_go()

    def work(self) -> None:
        with self._heartbeat.until_it_ends():
            while self._leaving is None:
                self._heartbeat.wake.clear()
                self._heartbeat.moved_at = boottime()
                try:
                    self._turn()
                    self._backoff.worked()
                    self._failures.worked("heartbeat")
                    self._heartbeat.first.set()
                except Exception as error:
                    self._recover(error)
                self._heartbeat.moved_at = boottime()
                if self._leaving is None:
                    self._heartbeat.wake.wait(max(self._next() - boottime(), 0.0))
            self._goodbye()

    def _next(self) -> float:
        due = self._heartbeat.due_at
        return due if self._advert is None else min(due, self._check_at)

    def _turn(self) -> None:
        if self._session is None:
            self._session = self._store.session(f"{self._label}:heartbeat", self._cadence.attempt_timeout)
            if self._lock is not None:
                self._session.use_lock_file(self._lock)  # or it would beat where no node looks
            self._heartbeat.moved_at = boottime()
        if self._needs_identity:
            self._take_identity(self._session)
        if self._advert is None and self._session_evidence and self._store.sessions_are_evidence:
            self._hold_lock(self._session)
        self._heartbeat.moved_at = boottime()
        if boottime() >= self._heartbeat.due_at:
            self._beat(self._session)
        elif self._advert is not None and boottime() >= self._check_at:
            self._check(self._session, self._advert)

    def _take_identity(self, session: Session) -> None:
        """Join as a new node. The lock file comes first: a node that sees our row must be able to prove our death."""
        if self._lock is not None:
            self._lock.remove()
            self._lock = None
        node = str(uuid.uuid4())
        directory = self._store.evidence_directory
        if directory is not None and (self._host_evidence or self._store.pulse_in_file):
            try:
                self._lock = LockFile(directory, node)
            except OSError as error:
                if self._store.pulse_in_file:
                    raise
                logger.warning(
                    "no host evidence: %s (failover on this host takes a ttl)",
                    error,
                    extra={"action": "no_host_evidence"},
                )
        host = self._lock.card() if self._lock is not None and self._host_evidence else None
        if self._lock is not None:
            session.use_lock_file(self._lock)
            host = host or (self._lock.card() if self._store.pulse_in_file else None)
        if self._cadence.ttl > (longest := session.epoch().max_ttl):
            raise ConfigurationError(
                f"ttl: {self._cadence.ttl:g} s is more than the {longest:g} s that this database was set up for."
            )
        self._state.become(node)
        session.join(NodeCard(node, self._label, self._cadence.ttl, host))
        self._needs_identity = False
        self._advert = None
        self._heartbeat.due_at = 0.0
        self._loop.post(IdentityChanged())

    def _hold_lock(self, session: Session) -> None:
        began_at = boottime()
        self._advert = session.hold_session_lock(self._state.node, self._cadence.session_grace)
        if self._advert is not None:
            self._state.step(SessionChecked(self._advert.nonce, began_at))
            self._check_at = began_at + self._cadence.validate_every
            self._heartbeat.due_at = 0.0  # the row must say so at once, or must stop saying something else

    def _beat(self, session: Session) -> None:
        if self._lock is not None and not self._lock.still_open():
            logger.error("the application closed the descriptor of this node's lock", extra={"action": "lock_closed"})
            self._take_identity(session)  # others may have taken it for our death already
        answer, received_at = self._heartbeat.send(session, self._advert, self._candidates.wanted())
        if self._lock is not None and not self._store.pulse_in_file:
            self._lock.pulse(self._state.lease.sent)  # a file that changes is not cleaned up
        if answer.verdict is BeatVerdict.RENEWED:
            self._loop.post(BeatRenewed(answer, received_at))

    def _check(self, session: Session, advert: Advert) -> None:
        began_at = boottime()
        checked = session.check_session_lock(self._candidates.wanted(), self._cadence.validate_timeout)
        self._check_at = began_at + self._cadence.validate_every
        if not checked.held:
            raise StoreUnavailable(
                f"{self._store.shown}: the session lost its lock (a pooler, or pg_advisory_unlock_all)"
            )
        self._state.step(SessionChecked(advert.nonce, began_at))
        self._loop.locks_checked(dict(checked.free), boottime())

    def _recover(self, error: Exception) -> None:
        """Drop the connection and try again soon, then less soon, never less often than a heartbeat."""
        self._drop_session()
        first = self._heartbeat.first.is_set()
        passing = isinstance(error, (StoreUnavailable, OSError)) and boottime() < self._start_by
        if not first and not passing:
            self._leaving = "could not start"
            self._heartbeat.could_not_start(error)
            return
        if first:
            self._failures.failed("heartbeat", error)
        self._heartbeat.due_at = boottime() + self._backoff.pause(self._cadence.heartbeat_every)

    def _drop_session(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session, self._advert = None, None

    def _goodbye(self) -> None:
        with suppress(StoreError, OSError):
            if self._session is not None and not self._needs_identity:
                self._session.leave(self._state.node, self._leaving or "left")
        self._drop_session()
        if self._lock is not None:
            self._lock.remove()
            self._lock = None
