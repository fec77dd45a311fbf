"""One SQLite file: which one it is, how to write to it without starving others, and tenure's tables in it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tenure.errors import SchemaOutdated, SchemaTooNew
from tenure.stores import host_lock, statements
from tenure.stores.sqlite.fork_gate import gate
from tenure.util.clock import boottime, sleep
from tenure.util.randomness import between

if TYPE_CHECKING:
    from tenure.stores.sqlite.store import SqliteStore

_SCHEMA = """CREATE TABLE tenure_schema_version (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL, oldest INTEGER NOT NULL);
INSERT INTO tenure_schema_version (one, version, oldest) VALUES (1, 0, 0);
"""
_STAMP = "UPDATE tenure_schema_version SET version = {version}, oldest = 1;"


def version(store: SqliteStore, connection: sqlite3.Connection, *, allowed: bool) -> int | None:
    """The version of the tables, None without any; refuses what this library cannot use and may not change."""
    newest = statements.migrations("sqlite")[-1][0]
    found = None
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'tenure_schema_version'").fetchone() is not None:
        found, oldest = connection.execute(store.statements["schema_version"]).fetchone()
        if oldest > newest:
            raise SchemaTooNew(
                f"{store.shown}: tenure's tables have version {found} and need a library that knows version {oldest}; "
                f"this one knows {newest}. Upgrade tenure here."
            )
    if not allowed and (found is None or found < newest):
        state = "missing" if found is None else f"at version {found}"
        raise SchemaOutdated(
            f"{store.shown}: tenure's tables are {state}, this library needs version {newest}. Run `tenure migrate`, "
            "or apply what `tenure migrate --print` prints."
        )
    return None if found is None else int(found)


def migrate(store: SqliteStore, connection: sqlite3.Connection, *, allowed: bool) -> None:
    steps = statements.migrations("sqlite")
    newest = steps[-1][0]
    found = version(store, connection, allowed=allowed)
    if found is None or found < newest:
        with writing(connection, deadline=boottime() + 5.0):
            found = version(store, connection, allowed=allowed)
            text = _SCHEMA if found is None else ""
            text += "".join(step for number, step in steps if number > (found or 0))
            for statement in _split(text + _STAMP.format(version=newest)):
                connection.execute(statement)
    # Looked at first: whoever has begun to write to this file, on another connection, must not wait for himself here.
    if connection.execute(store.statements["epoch"]).fetchone() is None:
        with writing(connection, deadline=boottime() + 5.0):
            if connection.execute(store.statements["epoch"]).fetchone() is None:
                connection.execute(store.statements["begin_epoch"], identity(store.path))


def printed() -> str:
    """The SQL that creates the tables, for people to read or run."""
    steps = statements.migrations("sqlite")
    return "\n".join(
        ["BEGIN IMMEDIATE;", _SCHEMA, *(text for _, text in steps), _STAMP.format(version=steps[-1][0]), "COMMIT;", ""]
    )


@contextmanager
def writing(connection: sqlite3.Connection, deadline: float) -> Iterator[None]:
    """A write transaction. SQLite's own busy handler starves waiters; short tries at random moments are fair."""
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
            break
        except sqlite3.OperationalError as error:
            if not is_busy(error) or gate.shut or boottime() >= deadline:
                raise
            sleep(between(0.001, 0.01))
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _split(script: str) -> Iterator[str]:
    """The statements of a script; `executescript` would commit the transaction first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def identity(path: Path) -> dict[str, str]:
    status = path.stat()
    return {"boot_id": host_lock.boot_id(), "device": str(status.st_dev), "inode": str(status.st_ino)}
