"""What the parts of the ledger on SQLite share: the connection of their session, its transactions, and the clock."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tenure.core.cluster import NodeId
from tenure.core.records import Instant
from tenure.stores.notices import JobsChanged, Notice
from tenure.stores.sqlite.rows import Micros, micros
from tenure.util.clock import walltime


@dataclass(frozen=True, slots=True)
class SqliteScope:
    """What a session lends to its ledger."""

    connection: Callable[[], sqlite3.Connection]
    read: Callable[[], AbstractContextManager[None]]
    write: Callable[[], AbstractContextManager[None]]
    ring: Callable[[Notice], None]
    silent: Callable[[Iterable[NodeId]], set[NodeId]]


class SqlitePart:
    """A part of the ledger, over the connection of one session."""

    def __init__(self, scope: SqliteScope) -> None:
        self._scope = scope

    def now(self) -> Instant:
        """The ledger's clock."""
        return walltime().timestamp()

    @property
    def _connection(self) -> sqlite3.Connection:
        return self._scope.connection()

    def _now(self) -> Micros:
        return micros(self.now())

    def _read(self) -> AbstractContextManager[None]:
        return self._scope.read()

    def _write(self) -> AbstractContextManager[None]:
        return self._scope.write()

    def _wake(self, *applications: str) -> None:
        for application in applications:
            self._scope.ring(JobsChanged(application))
