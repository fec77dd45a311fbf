"""The doctor's connections. Every query is one round trip in one read-only transaction, with a deadline."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.rows import namedtuple_row, tuple_row

from tenure.core.cluster import Cadence
from tenure.doctor.findings import Report
from tenure.stores import statements
from tenure.stores.postgres.deadline import DeadlineConnection
from tenure.stores.postgres.schema import SEARCH_PATH
from tenure.stores.postgres.store import PostgresStore, explained
from tenure.util.urls import PostgresURL

CONNECT_TIMEOUT = 6
ANSWER_TIMEOUT = 6.0
"""For one round trip: longer than a node would wait, so that a slow network is measured and not just reported."""

_PATH = f"SET LOCAL search_path = {SEARCH_PATH}"
_LIMITS = (
    "SET LOCAL statement_timeout = '3s'; SET LOCAL lock_timeout = '500ms'; "
    "SET LOCAL idle_in_transaction_session_timeout = '8s'; SET LOCAL DateStyle = ISO"
)

Row = Any


class Inspector:
    """What all checks share: the report, the facts learned so far, and ways to query the server."""

    main: DeadlineConnection
    server: Row

    def __init__(self, report: Report, store: PostgresStore, url: PostgresURL, cadence: Cadence) -> None:
        self.report, self.store, self.cadence = report, store, cadence
        self.schema = store.schema
        self.trips = 1
        """Round trips per statement of a node: behind a pooler each is a transaction with its settings."""
        self._url = url
        self._statements = statements.load("doctor", "postgres", schema=store.schema)
        self._connections: list[DeadlineConnection] = []

    def open(self) -> None:
        """Connect, and read the settings that must be seen outside of a read-only transaction."""
        self.main = self.connect()
        self.server = self.plain(self.main, self._statements["server"])[0]

    def close(self) -> None:
        for connection in self._connections:
            connection.timeout = 0.5
            with suppress(psycopg.Error):
                connection.close()

    def connect(self) -> DeadlineConnection:
        connection = DeadlineConnection.connect(
            self._url.conninfo,
            autocommit=True,
            connect_timeout=CONNECT_TIMEOUT,
            application_name="tenure:doctor",
            client_encoding="UTF8",
            prepare_threshold=None,
        )
        connection.timeout = ANSWER_TIMEOUT
        self._connections.append(connection)
        return connection

    def attempt(self, what: str, check: Callable[[], None]) -> None:
        """Run one check; if it fails, the others still run."""
        try:
            check()
        except psycopg.Error as error:
            self.recover(error)
            self.unseen(what, explained(error))

    def recover(self, error: psycopg.Error) -> None:
        """Make the connection usable again, or raise the error."""
        if self.main.closed:
            raise error
        if self.main.info.transaction_status != TransactionStatus.IDLE:
            self.main.execute("ROLLBACK")

    def unseen(self, what: str, why: str) -> None:
        """Report a check that could not be made."""
        self.report.note(
            "visibility", f"not checked: {what} ({why})", do="Run the doctor again later, or as a role that may see it."
        )

    def ask(self, name: str, /, **values: object) -> list[Row]:
        """Run one of the doctor's own queries; rows with names."""
        with psycopg.ClientCursor(self.main, row_factory=namedtuple_row) as cursor:
            return self._asked(cursor, cursor.mogrify(self._statements[name], values))

    def ask_text(self, text: str) -> list[Row]:
        """Run a statement without parameters."""
        with psycopg.ClientCursor(self.main, row_factory=tuple_row) as cursor:
            return self._asked(cursor, text)

    def plain(self, connection: DeadlineConnection, text: str, *values: object) -> list[Row]:
        """Run a statement without a transaction around it."""
        with psycopg.ClientCursor(connection, row_factory=namedtuple_row) as cursor:
            return self._last(cursor, f"{_PATH}; {cursor.mogrify(text.encode(), values or None)}")

    def pid(self, connection: DeadlineConnection) -> int:
        """The server process that answers."""
        return int(self.plain(connection, "SELECT pg_backend_pid()")[0][0])

    def quoted(self, name: str) -> str:
        """An identifier, quoted for SQL."""
        return sql.Identifier(name).as_string(self.main)

    def _asked(self, cursor: psycopg.ClientCursor[Any], question: str) -> list[Row]:
        # One message, so that no session has to keep any state: a pooler may stand in between.
        return self._last(cursor, f"BEGIN READ ONLY; {_PATH}; {_LIMITS}; {question}; ROLLBACK")

    def _last(self, cursor: psycopg.ClientCursor[Any], questions: str) -> list[Row]:
        """The rows of the only statement that returns any."""
        cursor.execute(questions.encode())
        while cursor.description is None and cursor.nextset():
            pass
        return cursor.fetchall()
