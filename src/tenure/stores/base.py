"""What a store must do. The conformance suite (tests/stores/test_conformance.py) says it in behaviour, this file in names.

A `Store` knows how to open sessions; a `Session` is one connection used by one thread at a time. A session that raised
`StoreUnavailable` is closed by its owner and replaced: no operation is ever retried inside a store, because only the caller knows
what an unknown outcome means.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tenure.core.cluster import (
    Acquire,
    Acquired,
    Advert,
    Beat,
    BeatAnswer,
    Epoch,
    Leader,
    NodeCard,
    NodeId,
    Pulse,
    TermRecord,
    Vacancy,
)
from tenure.errors import ConfigurationError
from tenure.stores.host_lock import LockFile
from tenure.stores.ledger import Ledger
from tenure.stores.notices import Notice


@dataclass(frozen=True, slots=True)
class Checked:
    """The answer to a check of one's own session lock."""

    held: bool
    free: Mapping[str, Vacancy]
    """The elections asked about whose holders' session locks are free."""


class Session(ABC):
    """One connection. Every operation takes at most the session's timeout and then raises `StoreUnavailable`."""

    @abstractmethod
    def close(self) -> None:
        """End the connection; never raises."""

    @abstractmethod
    def abandon(self) -> None:
        """In a forked child: let go of what the parent's connection uses, without a goodbye to the server."""

    def keep(self, seconds: float) -> bool:
        """Get ready to lie unused, and to end by itself some time after so many seconds. False: close it instead."""
        del seconds
        return False

    def fresh(self, idle: float) -> bool:
        """Whether a kept connection that was unused for so many seconds still works. Asked before anything is sent over it."""
        del idle
        return False

    @abstractmethod
    def listen(self, node: NodeId) -> None:
        """Be woken from now on, as this node."""

    @abstractmethod
    def fileno(self) -> int | None:
        """What becomes readable when another node wants attention, if there is such a thing."""

    @abstractmethod
    def notices(self) -> list[Notice]:
        """What other nodes have told us since the last call."""

    @abstractmethod
    def join(self, card: NodeCard) -> None:
        """Enter a node. Its first beat gives it trust."""

    @abstractmethod
    def beat(self, beat: Beat) -> BeatAnswer:
        """Send a heartbeat."""

    @abstractmethod
    def leave(self, node: NodeId, why: str) -> None:
        """Leave for good and release everything, in one transaction."""

    @abstractmethod
    def declare(self, dead: NodeId, pulse: Pulse | None, why: str) -> bool:
        """Declare another node dead, comparing its pulse; without a pulse there must be proof. True if it was this call that did it."""

    @abstractmethod
    def cards(self, ids: Iterable[NodeId]) -> list[NodeCard]:
        """How these live nodes introduced themselves."""

    @abstractmethod
    def acquire(self, request: Acquire) -> Acquired:
        """Try to be granted a term."""

    def succeed(self, dead: NodeId, why: str, request: Acquire) -> tuple[bool, Acquired]:
        """Declare a leader dead, of which there is proof, and try to be granted its term; in one transaction where that saves time."""
        return self.declare(dead, None, why), self.acquire(request)

    def rehearse(self) -> None:
        """Do what a succession takes, and undo it, so that the server has planned it when it counts. Nothing where that saves nothing."""
        return

    @abstractmethod
    def release(self, node: NodeId, name: str, term: int, why: str) -> bool:
        """Release a term, comparing term and holder, and wake the others. False if it was not ours any more."""

    @abstractmethod
    def ask(self, name: str) -> int | None:
        """Ask the leader to resign; the term that was asked."""

    @abstractmethod
    def leader(self, name: str) -> Leader | None:
        """Who leads."""

    @abstractmethod
    def elections(self) -> list[Leader]:
        """Every election that is held, by name."""

    @abstractmethod
    def terms(self, name: str | None, limit: int) -> list[TermRecord]:
        """The newest terms first."""

    @abstractmethod
    def epoch(self) -> Epoch:
        """The epoch, and whether this is the database that it was written for."""

    @abstractmethod
    def unsettle(self, epoch: Epoch) -> None:
        """Stop all grants until the epoch is raised."""

    @abstractmethod
    def raise_epoch(self, noticed: Epoch) -> bool:
        """Raise the epoch if it and the server's identity are still as noticed."""

    @abstractmethod
    def sweep(self) -> None:
        """Remove rows that nobody needs."""

    @property
    def ledger(self) -> Ledger:
        """Jobs and runs, over this connection."""
        raise NotImplementedError

    def use_lock_file(self, lock: LockFile) -> None:
        """Beat through this file, where the store does that."""
        del lock

    def hold_session_lock(self, node: NodeId, grace: float) -> Advert | None:
        """Take a session lock that lives exactly as long as this connection; None where sessions prove nothing."""
        del node, grace
        return None

    def check_session_lock(self, names: tuple[str, ...], timeout: float) -> Checked:
        """Verify that the lock is still there, and probe those of the holders of these elections."""
        del names, timeout
        return Checked(held=False, free={})


class Store(ABC):
    """A database, not opened yet. Constructors do no I/O."""

    @property
    @abstractmethod
    def shown(self) -> str:
        """What may be shown of the URL."""

    @property
    @abstractmethod
    def key(self) -> object:
        """Equal for stores that are the same database with the same settings."""

    @property
    @abstractmethod
    def evidence_directory(self) -> Path | None:
        """Where the lock files of nodes on this host lie; None where there can be no host evidence."""

    @property
    def pulse_in_file(self) -> bool:
        """The beat is a counter in the lock file (SQLite), so that a node cannot do without one."""
        return False

    @abstractmethod
    def prepare(self) -> None:
        """Check that this store can be used at all, and migrate it. Raises what a user must be told at start."""

    @abstractmethod
    def session(self, purpose: str, timeout: float) -> Session:
        """Open a connection; `purpose` ends up where operators can see it."""

    @abstractmethod
    def migration(self, since: int = 0) -> str:
        """The SQL that creates tenure's tables, or upgrades them from a version, to read or to run."""

    def grants(self, role: str, *, effects_only: bool = False) -> str:
        """The SQL that gives a role what a node needs, or only what transactions need that fence and complete."""
        del role, effects_only
        raise ConfigurationError(f"{self.shown}: has no roles to grant anything to. Who may write the file may do all.")

    @property
    def sessions_are_evidence(self) -> bool:
        """Whether a node's session may serve as evidence: a direct PostgreSQL connection."""
        return False
