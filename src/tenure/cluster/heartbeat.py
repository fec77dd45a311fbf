"""The pacemaker: a thread that sends this node's heartbeat on a connection of its own and does nothing else.

Whatever the application does with its event loop, its pools and its locks, the beat goes on. Between beats, where sessions are
evidence, it checks that its session still holds the lock that its row advertises.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress

from tenure.cluster.lease_state import LeaseState
from tenure.core.cluster import Advert, Beat, BeatAnswer, BeatVerdict, Cadence, NodeCard, NodeId, Vacancy
from tenure.core.lease import BeatAnswered, BeatFailed, BeatSent, SessionChecked
from tenure.errors import ConfigurationError, StoreError, StoreUnavailable, TenureError
from tenure.stores import Session, Store
from tenure.stores.host_lock import LockFile
from tenure.util.backoff import SOON, Backoff
from tenure.util.clock import boottime
from tenure.util.failure_log import FailureLog
from tenure.util.vital_thread import VitalThread

START_WITHIN = 5.0
"""The store answered when it was prepared; for so many seconds a first attempt that was too slow is tried again."""

logger = logging.getLogger("tenure")


class HeartbeatThread(VitalThread):
    """Beats until it is told to leave. Hooks are called on this thread and must not block."""

    def __init__(
        self,
        store: Store,
        standing: LeaseState,
        cadence: Cadence,
        *,
        label: str,
        quiet: FailureLog,
        host_evidence: bool,
        session_evidence: bool,
        names: Callable[[], tuple[str, ...]],
        on_beat: Callable[[BeatAnswer, float], None],
        on_check: Callable[[dict[str, Vacancy], float], None],
        on_joined: Callable[[NodeId], None],
    ) -> None:
        super().__init__(f"tenure heartbeat {label}")
        self._store, self._standing, self._cadence = store, standing, cadence
        self._label, self._quiet, self._names = label, quiet, names
        self._host_evidence, self._session_evidence = host_evidence, session_evidence
        self._on_beat, self._on_check, self._on_joined = on_beat, on_check, on_joined
        self._session: Session | None = None
        self._lock: LockFile | None = None
        self._advert: Advert | None = None
        self._checks_from = 0.0
        self._beats_from = 0.0
        self._backoff = Backoff()
        self._wake = threading.Event()
        self._leaving: str | None = None
        self._needs_identity = True
        self.first: threading.Event = threading.Event()
        """Set after the first beat, or the failure in `failure`."""
        self.failure: TenureError | None = None
        self._start_by = boottime() + START_WITHIN

    @property
    def lock_file(self) -> LockFile | None:
        """To be inherited by children that run our work."""
        return self._lock

    def beat_now(self) -> None:
        """Somebody has a question that the next beat answers."""
        self._beats_from = 0.0
        self._wake.set()

    def rejoin(self) -> None:
        """The present identity is dead."""
        self._needs_identity = True
        self.beat_now()

    def leave(self, why: str, patience: float) -> None:
        """Say goodbye and end."""
        self._leaving = why
        self._wake.set()
        self.join(patience)

    def abandon(self) -> None:
        """In a forked child, where this thread does not run."""
        if self._session is not None:
            self._session.abandon()
        if self._lock is not None:
            self._lock.let_go()

    def work(self) -> None:
        try:
            self._beat_until_told()
        except BaseException as error:
            self.failure = StoreUnavailable(f"{self._store.shown}: the heartbeat ended with {type(error).__name__}")
            raise
        finally:
            self.first.set()  # there will be none for whoever still waits for it

    def _beat_until_told(self) -> None:
        while self._leaving is None:
            self._wake.clear()
            try:
                self._turn()
                self._backoff.worked()
                self._quiet.worked("heartbeat")
                self.first.set()
            except Exception as error:
                self._stumble(error)
            if self._leaving is None:
                self._wake.wait(max(self._next() - boottime(), 0.0))
        self._goodbye()

    def _next(self) -> float:
        due = self._beats_from
        if self._advert is not None:
            due = min(due, self._checks_from)
        return due

    def _turn(self) -> None:
        if self._session is None:
            self._session = self._store.session(f"{self._label}:heartbeat", self._cadence.attempt_timeout)
            if self._lock is not None:
                self._session.use_lock_file(self._lock)  # or it would beat where nobody looks
        if self._needs_identity:
            self._take_identity(self._session)
        if self._advert is None and self._session_evidence and self._store.sessions_are_evidence:
            self._hold_lock(self._session)
        if boottime() >= self._beats_from:
            self._beat(self._session)
        elif self._advert is not None and boottime() >= self._checks_from:
            self._check(self._session, self._advert)

    def _take_identity(self, session: Session) -> None:
        """The lock file comes first: whoever sees the row must be able to prove our death."""
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
        self._standing.become(node)
        session.join(NodeCard(node, self._label, self._cadence.ttl, host))
        self._needs_identity = False
        self._advert = None
        self._beats_from = 0.0
        self._on_joined(node)

    def _hold_lock(self, session: Session) -> None:
        began_at = boottime()
        self._advert = session.hold_session_lock(self._standing.node, self._cadence.session_grace)
        if self._advert is not None:
            self._standing.step(SessionChecked(self._advert.nonce, began_at))
            self._checks_from = began_at + self._cadence.validate_every
            self._beats_from = 0.0  # the row must say so at once, or must stop saying something else

    def _beat(self, session: Session) -> None:
        if self._lock is not None and not self._lock.still_open():
            logger.error(
                "the descriptor of this node's lock was closed by the application", extra={"action": "lock_closed"}
            )
            self._take_identity(session)  # others may have taken it for our death already
        standing = self._standing.lease
        number, sent_at = standing.sent + 1, boottime()
        self._standing.step(BeatSent(number, sent_at, self._advert))
        try:
            answer = session.beat(Beat(standing.node, number, sent_at, standing.until, self._advert, self._names()))
        except BaseException:
            self._standing.step(BeatFailed(number))
            raise
        received_at = boottime()
        late = answer.verdict is BeatVerdict.LATE
        self._beats_from = received_at + SOON if late else sent_at + self._cadence.heartbeat_every
        self._standing.step(BeatAnswered(number, answer))
        if self._lock is not None and not self._store.pulse_in_file:
            self._lock.pulse(number)  # keeps those who clean up old files away
        if answer.verdict is BeatVerdict.RENEWED:
            self._on_beat(answer, received_at)

    def _check(self, session: Session, advert: Advert) -> None:
        began_at = boottime()
        checked = session.check_session_lock(self._names(), self._cadence.validate_timeout)
        self._checks_from = began_at + self._cadence.validate_every
        if not checked.held:
            raise StoreUnavailable(
                f"{self._store.shown}: the session lost its lock (a pooler, or pg_advisory_unlock_all)"
            )
        self._standing.step(SessionChecked(advert.nonce, began_at))
        self._on_check(dict(checked.free), boottime())

    def _stumble(self, error: Exception) -> None:
        """Drop the connection and try again soon, then less soon, never less often than a heartbeat."""
        self._drop_session()
        passing = isinstance(error, (StoreUnavailable, OSError)) and boottime() < self._start_by
        if not self.first.is_set() and not passing:
            self.failure = (
                error if isinstance(error, TenureError) else StoreUnavailable(f"{self._store.shown}: {error}")
            )
            self._leaving = "could not start"
            self.first.set()
            return
        if self.first.is_set():
            self._quiet.failed("heartbeat", error)
        self._beats_from = boottime() + self._backoff.pause(self._cadence.heartbeat_every)

    def _drop_session(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session, self._advert = None, None

    def _goodbye(self) -> None:
        with suppress(StoreError, OSError):
            if self._session is not None and not self._needs_identity:
                self._session.leave(self._standing.node, self._leaving or "left")
        self._drop_session()
        if self._lock is not None:
            self._lock.remove()
            self._lock = None
