"""The one connection of advisory mode (G2): PostgreSQL holds the election's lock on it, and all other statements use it
too.

Lock, node and grant live and die with this session. So an exchange that the server refused for a temporary reason (a
deadlock, a lock timeout) does not cost the session. Only an error that leaves its state in doubt does.
"""

from __future__ import annotations

import hashlib
from typing import Any

import psycopg
from psycopg import errors as pg

from tenure.core.cluster import NodeId
from tenure.stores.postgres.deadline import DeadlineConnection
from tenure.stores.postgres.store import PostgresSession, PostgresStore
from tenure.util.clock import boottime

_PASSING = (pg.LockNotAvailable, pg.QueryCanceled, pg.DeadlockDetected, pg.SerializationFailure)

_SOCKET = {  # on the server: a client that vanished silently must not keep the lock for the kernel's two hours
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10000",
}


def lock_key(schema: str, election: str) -> int:
    """The key of an election's advisory lock, a signed 64-bit hash. PostgreSQL itself keeps databases apart."""
    digest = hashlib.blake2b(f"tenure {schema} {election}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


class LockSession(PostgresSession):
    """A direct connection that may hold the lock of one election. It never takes the lock twice."""

    def __init__(self, store: PostgresStore, connection: DeadlineConnection, election: str) -> None:
        super().__init__(store, connection)
        self._election = election
        self._key = lock_key(store.schema, election)
        self._pid = connection.info.backend_pid
        self.said_at = boottime()
        """When the session was last used: middleboxes drop silent connections."""

    def set_up(self) -> None:
        """Make the server notice when this client is gone."""
        self._run("set_socket", **_SOCKET)

    def mode(self) -> str | None:
        """The mode of the election; None if it was never held."""
        rows = self._run("election_mode", name=self._election)
        return str(rows[0][0]) if rows else None

    def lock(self) -> bool:
        """Take the lock if it is free. Never waits: a waiting session would hold back VACUUM."""
        return bool(self._one("lock_election", key=self._key)[0])

    def holds(self) -> bool:
        """True if this very backend still has the lock, by pid and database."""
        return bool(self._one("holds_election", key=self._key, pid=self._pid)[0])

    def unlock(self) -> None:
        """Release the lock without having led."""
        self._run("unlock_election", key=self._key)

    def give_back(self, node: NodeId, term: int, why: str) -> None:
        """Release the row and the lock and wake the others, in one statement: the nodes that wake find both free."""
        self._run("give_back", key=self._key, node=node, name=self._election, term=term, why=why)

    def evict(self) -> list[tuple[str, int, bool]]:
        """End the session of a dead node that still has the lock. Returns (label, pid, whether it still existed)."""
        return [(label, pid, done) for label, pid, done in self._run("evict", key=self._key)]

    def strangers(self) -> list[tuple[int, str]]:
        """The sessions that have the lock without being a live node: (pid, role)."""
        return [(pid, role) for pid, role in self._run("strangers", key=self._key)]

    def keep_alive(self) -> None:
        """Execute a small statement, so that no middlebox drops this connection."""
        self._run("keep_alive")

    def _run(self, name: str, /, **values: object) -> list[tuple[Any, ...]]:
        self.said_at = boottime()
        return super()._run(name, **values)

    def survives(self, error: BaseException) -> bool:
        """True if the session, and so the lock, is still intact after this error."""
        return isinstance(error.__cause__, _PASSING) and not (self._connection.closed or self._connection.broken)


def open_session(store: PostgresStore, election: str, purpose: str, timeout: float) -> LockSession:
    """Open a connection for one election, never shared, never pooled."""
    try:
        return LockSession(store, store.connect(purpose, timeout), election)
    except psycopg.Error as error:
        raise store.unavailable(error) from store.showable(error)
