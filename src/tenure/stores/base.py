"""The protocol of a store (G1, G2): nodes, elections and their terms.

The conformance suite (tests/stores/test_conformance.py) states it in behaviour, this file in names.

A `Store` opens sessions. A `Session` is one connection, used by one thread at a time. If a session raises
`StoreUnavailable`, its owner closes and replaces it. A store never retries an operation, because only the caller knows
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
    NodeRecord,
    Pulse,
    TermRecord,
    Vacancy,
)
from tenure.core.messages import Action
from tenure.errors import ConfigurationError
from tenure.stores.host_lock import LockFile
from tenure.stores.ledger import Ledger
from tenure.stores.notices import Notice


@dataclass(frozen=True, slots=True)
class Checked:
    """The answer to a check of this node's own session lock."""

    held: bool
    free: Mapping[str, Vacancy]
    """Of the elections in the request, those whose holders' session locks are free."""


class Session(ABC):
    """One connection. An operation that takes longer than the session's timeout raises `StoreUnavailable`."""

    @abstractmethod
    def close(self) -> None:
        """End the connection. Never raises."""

    @abstractmethod
    def abandon(self) -> None:
        """In a forked child: let go of the parent's connection without telling the server."""

    def keep(self, seconds: float) -> bool:
        """Prepare to stay unused, and to end by itself some time after these seconds. If False, close it instead."""
        del seconds
        return False

    def fresh(self, idle: float) -> bool:
        """True if a kept connection still works after these unused seconds. Called before anything is sent over it."""
        del idle
        return False

    @abstractmethod
    def listen(self, node: NodeId) -> None:
        """From now on receive the notices for this node."""

    @abstractmethod
    def fileno(self) -> int | None:
        """A descriptor that becomes readable when a notice arrives; None if this store has none."""

    @abstractmethod
    def notices(self) -> list[Notice]:
        """The notices that arrived since the last call."""

    @abstractmethod
    def join(self, card: NodeCard) -> None:
        """Add a node. Its first beat gives it trust."""

    @abstractmethod
    def beat(self, beat: Beat) -> BeatAnswer:
        """Send a heartbeat."""

    @abstractmethod
    def leave(self, node: NodeId, why: str) -> None:
        """Leave for good and release everything, in one transaction."""

    @abstractmethod
    def declare(self, dead: NodeId, pulse: Pulse | None, why: str) -> bool:
        """Declare another node dead if its pulse is still this one. Without a pulse there must be proof. True if this
        call declared it."""

    @abstractmethod
    def cards(self, ids: Iterable[NodeId]) -> list[NodeCard]:
        """The cards of those of these nodes that are alive."""

    @abstractmethod
    def acquire(self, request: Acquire) -> Acquired:
        """Request a term."""

    def succeed(self, dead: NodeId, why: str, request: Acquire) -> tuple[bool, Acquired]:
        """Declare a leader dead, given proof, and request its term; in one transaction where that saves time."""
        return self.declare(dead, None, why), self.acquire(request)

    def rehearse(self) -> None:
        """Execute the statements of a succession and roll them back, so that the server has planned them when they
        count. Does nothing where that saves nothing."""
        return

    @abstractmethod
    def release(self, node: NodeId, name: str, term: int, why: str) -> bool:
        """Release a term, comparing term and holder, and wake the others. False if the node no longer held it."""

    @abstractmethod
    def ask(self, name: str, application: str = "", action: Action | None = None) -> int | None:
        """Request that the leader resign. Returns the leader's term.

        The action is recorded in the same transaction, under this application ('': the election belongs to none).
        """

    @abstractmethod
    def leader(self, name: str) -> Leader | None:
        """The leader of an election."""

    @abstractmethod
    def elections(self) -> list[Leader]:
        """Every election that has a leader, by name."""

    @abstractmethod
    def terms(self, name: str | None, limit: int) -> list[TermRecord]:
        """Terms, newest first."""

    @abstractmethod
    def recent_terms(self, after: str, elections: int, each: int) -> list[TermRecord]:
        """Of each election whose name comes after this one, the newest terms, newest first, by name: at most `each` of
        at most `elections`. The cost does not depend on how many other terms are kept."""

    @abstractmethod
    def node_records(self, ended: int) -> list[NodeRecord]:
        """The nodes that are alive, by label, and those that ended last, newest first, at most `ended`."""

    @abstractmethod
    def epoch(self) -> Epoch:
        """The epoch, and whether this is still the database that it was written for."""

    @abstractmethod
    def unsettle(self, epoch: Epoch) -> None:
        """Stop all grants until the epoch is raised."""

    @abstractmethod
    def raise_epoch(self, noticed: Epoch) -> bool:
        """Raise the epoch if it and the server's identity are still as observed."""

    @abstractmethod
    def sweep(self) -> None:
        """Remove rows that are no longer needed."""

    @property
    def ledger(self) -> Ledger:
        """Jobs and runs, over this connection."""
        raise NotImplementedError

    def use_lock_file(self, lock: LockFile) -> None:
        """Write heartbeats to this file, if the store does that."""
        del lock

    def hold_session_lock(self, node: NodeId, grace: float) -> Advert | None:
        """Take a session lock that lives exactly as long as this connection; None if sessions prove nothing here."""
        del node, grace
        return None

    def check_session_lock(self, names: tuple[str, ...], timeout: float) -> Checked:
        """Check that the lock is still held, and probe those of the holders of these elections."""
        del names, timeout
        return Checked(held=False, free={})


class Store(ABC):
    """A database, not opened yet. Constructors do no I/O."""

    @property
    @abstractmethod
    def shown(self) -> str:
        """The URL without its secrets."""

    @property
    @abstractmethod
    def key(self) -> object:
        """Equal for two stores if they are the same database with the same settings."""

    @property
    @abstractmethod
    def evidence_directory(self) -> Path | None:
        """The folder with the lock files of this host's nodes; None if there can be no host evidence."""

    @property
    def pulse_in_file(self) -> bool:
        """True if the heartbeat is a counter in the lock file (SQLite), so that every node needs one."""
        return False

    @abstractmethod
    def prepare(self) -> None:
        """Check that this store can be used, and migrate it. Raises what the user must know at start."""

    @abstractmethod
    def session(self, purpose: str, timeout: float) -> Session:
        """Open a connection. Operators see `purpose` in the server's list of sessions."""

    @abstractmethod
    def migration(self, since: int = 0) -> str:
        """The SQL that creates tenure's tables, or upgrades them from a version."""

    def grants(self, role: str, *, effects_only: bool = False) -> str:
        """The SQL that gives a role what a node needs, or only what transactions need to fence and complete."""
        del role, effects_only
        raise ConfigurationError(
            f"{self.shown}: has no roles to grant anything to. A user who may write the file may do everything."
        )

    @property
    def sessions_are_evidence(self) -> bool:
        """True if a node's session may serve as evidence: over a direct PostgreSQL connection."""
        return False
