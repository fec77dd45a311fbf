"""One SQLite file: its identity, tenure's tables in it, and how to write to it without starving other writers."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tenure.stores import host_lock
from tenure.stores.migrations import Migrations, Stamp
from tenure.stores.sqlite.fork_gate import gate
from tenure.stores.statements import SQLITE
from tenure.util.clock import boottime, sleep
from tenure.util.randomness import between

if TYPE_CHECKING:
    from tenure.stores.sqlite.store import SqliteStore


@cache
def known() -> Migrations:
    """The migrations of this library."""
    return Migrations(SQLITE, "tenure_schema_version")


def script(since: int = 0) -> str:
    """What `tenure migrate --print` prints."""
    return "\n".join(["BEGIN IMMEDIATE;", known().script(since), "COMMIT;", ""])


def check(store: SqliteStore, connection: sqlite3.Connection) -> None:
    """Refuse tables that this library cannot use as they are."""
    found = _stamp(store, connection)
    if not known().serve(found, _what(store)):
        raise known().outdated(found, _what(store))


def migrate(store: SqliteStore, connection: sqlite3.Connection) -> None:
    """Bring tenure's tables up to date."""
    if not known().serve(_stamp(store, connection), _what(store)):
        with writing(connection, deadline=boottime() + 5.0):
            found = _stamp(store, connection)
            if not known().serve(found, _what(store)):
                for statement in _split(known().script(found.version if found else 0)):
                    connection.execute(statement)
    # Read first: a caller that has begun to write to this file on another connection must not wait for itself here.
    if connection.execute(store.statements["epoch"]).fetchone() is None:
        with writing(connection, deadline=boottime() + 5.0):
            if connection.execute(store.statements["epoch"]).fetchone() is None:
                connection.execute(store.statements["begin_epoch"], identity(store.path))


def _stamp(store: SqliteStore, connection: sqlite3.Connection) -> Stamp | None:
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'tenure_schema_version'").fetchone() is None:
        return None
    return Stamp(*connection.execute(store.statements["schema_version"]).fetchone())


def _what(store: SqliteStore) -> str:
    return f"{store.shown}: tenure's schema"


@contextmanager
def writing(connection: sqlite3.Connection, deadline: float) -> Iterator[None]:
    """A write transaction. SQLite's own busy handler starves waiters; short attempts at random moments are fair."""
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
