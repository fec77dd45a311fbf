"""The one connection of advisory mode: PostgreSQL holds the election's lock on it, and everything else goes over it too.

Lock, node and grant live and die with this session. So an exchange that the server refused for a reason that passes (a deadlock, a
lock that was not free in time) does not cost the session; only what leaves its state in doubt does.
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

_SOCKET = {  # the server's side: a client that vanished without a word must not keep the lock for the kernel's two hours
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10000",
}


def lock_key(schema: str, election: str) -> int:
    """The key of an election's advisory lock, a signed 64-bit hash. PostgreSQL itself keeps the databases apart."""
    digest = hashlib.blake2b(f"tenure {schema} {election}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


class LockSession(PostgresSession):
    """A direct connection that may hold the lock of one election. The same session never takes it twice: it would have to give it back twice."""

    def __init__(self, store: PostgresStore, connection: DeadlineConnection, election: str) -> None:
        super().__init__(store, connection)
        self._election = election
        self._key = lock_key(store.schema, election)
        self._pid = connection.info.backend_pid
        self.said_at = boottime()
        """When something was last said on it: silence is what middleboxes punish."""

    def set_up(self) -> None:
        """Ask the server to notice when we are gone."""
        self._run("set_socket", **_SOCKET)

    def mode(self) -> str | None:
        """In which mode the election is run; None if it never was."""
        rows = self._run("election_mode", name=self._election)
        return str(rows[0][0]) if rows else None

    def lock(self) -> bool:
        """Take the lock if it is free. Never waits: a waiter would keep VACUUM from its work."""
        return bool(self._one("lock_election", key=self._key)[0])

    def holds(self) -> bool:
        """Whether this very backend still has the lock, by pid and database."""
        return bool(self._one("holds_election", key=self._key, pid=self._pid)[0])

    def unlock(self) -> None:
        """Let the lock go without having led."""
        self._run("unlock_election", key=self._key)

    def give_back(self, node: NodeId, term: int, why: str) -> None:
        """Release the row, let the lock go and wake the others, in one statement: whoever wakes finds both free."""
        self._run("give_back", key=self._key, node=node, name=self._election, term=term, why=why)

    def evict(self) -> list[tuple[str, int, bool]]:
        """End the session of a node that is not alive and still has the lock: (label, pid, whether it was still there)."""
        return [(label, pid, done) for label, pid, done in self._run("evict", key=self._key)]

    def strangers(self) -> list[tuple[int, str]]:
        """Who has the lock and is no live node: (pid, role)."""
        return [(pid, role) for pid, role in self._run("strangers", key=self._key)]

    def keep_alive(self) -> None:
        """Say something, so that no middlebox forgets this connection."""
        self._run("keep_alive")

    def _run(self, name: str, /, **values: object) -> list[tuple[Any, ...]]:
        self.said_at = boottime()
        return super()._run(name, **values)

    def survives(self, error: BaseException) -> bool:
        """Whether the session, and so the lock, is still what it was before that error."""
        return isinstance(error.__cause__, _PASSING) and not (self._connection.closed or self._connection.broken)


def open_session(store: PostgresStore, election: str, purpose: str, timeout: float) -> LockSession:
    """A connection of its own for one election, never shared, never pooled."""
    try:
        return LockSession(store, store.connect(purpose, timeout), election)
    except psycopg.Error as error:
        raise store.unavailable(error) from store.showable(error)
