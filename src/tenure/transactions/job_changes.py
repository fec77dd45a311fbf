"""Changes of jobs inside the caller's own transaction: `scheduler.add(…, conn=session)` commits with the caller's work,
or not at all.

On PostgreSQL this module calls the ledger's own functions over the caller's driver. On SQLite the ledger's own steps
run on the caller's connection; other nodes are not woken then, and find the change when they next look.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from tenure.core.messages import Action, JobChange, RunRequest
from tenure.core.records import Change, Instant, JobRow, RunId, RunRow
from tenure.errors import ConfigurationError, StoreError, WrongDatabase
from tenure.stores import Store
from tenure.stores.row_checks import storable
from tenure.transactions.connections import AsyncConnection, SyncConnection, target_of
from tenure.transactions.drivers import MISSING, NOT_ALLOWED, Line, Postgres, Sqlite3, Steps, is_a, sqlstate
from tenure.util.clock import walltime

if TYPE_CHECKING:
    import sqlite3

TOO_ISOLATED = "TN003"
"""The error of `change_job` for a caller whose snapshot may be too old."""

T = TypeVar("T")

VERBS = {
    Change.ADDED: "add",
    Change.UPDATED: "update",
    Change.PAUSED: "pause",
    Change.RESUMED: "resume",
    Change.REMOVED: "remove",
}


Sight = tuple[JobRow | None, Instant]
"""A job, even a removed one; None if it does not exist. And the ledger's clock."""


@overload
def look(
    connection: AsyncConnection, store: Store, verb: str, application: str, name: str
) -> Coroutine[Any, Any, Sight]: ...
@overload
def look(connection: SyncConnection, store: Store, verb: str, application: str, name: str) -> Sight: ...
def look(connection: Any, store: Store, verb: str, application: str, name: str) -> Any:
    """A job, even if it is removed, as the connection's transaction sees it."""

    def on_postgres(schema: str) -> Steps[Sight]:
        from tenure.stores.postgres import ledger as postgres_ledger
        from tenure.stores.postgres import rows as postgres_rows

        statement = postgres_ledger.load(schema, "DESC")["seen"]
        row = yield statement, {"application": application, "name": name}
        if row is None:
            raise StoreError(f"scheduler.{verb}(conn=…): the server did not answer a question about job {name!r}.")
        now, *columns = row
        return (None if columns[0] is None else postgres_rows.job_row(application, tuple(columns))), now

    def on_sqlite(raw: sqlite3.Connection) -> Sight:
        from tenure.stores.sqlite import changes as sqlite_changes

        return sqlite_changes.job(raw, application, name), walltime().timestamp()

    return _over(connection, store, f"scheduler.{verb}(conn=…)", on_postgres, on_sqlite)


@overload
def change(connection: AsyncConnection, store: Store, change: JobChange) -> Coroutine[Any, Any, JobRow | None]: ...
@overload
def change(connection: SyncConnection, store: Store, change: JobChange) -> JobRow | None: ...
def change(connection: Any, store: Store, change: JobChange) -> Any:
    """`Ledger.change` in the connection's transaction."""
    call = f"scheduler.{VERBS[change.what]}(conn=…)"

    def on_postgres(schema: str) -> Steps[JobRow | None]:
        from tenure.stores.postgres import ledger as postgres_ledger
        from tenure.stores.postgres import rows as postgres_rows

        statement = postgres_ledger.load(schema, "DESC")["change"]
        row = yield statement, {"change": json.dumps(postgres_rows.written_change(change))}
        return postgres_rows.job_row(change.application, row) if row else None

    def on_sqlite(raw: sqlite3.Connection) -> JobRow | None:
        from tenure.stores.sqlite import changes as sqlite_changes

        return sqlite_changes.change(raw, change, _now())

    return _over(connection, store, call, on_postgres, on_sqlite)


@overload
def request_run(
    connection: AsyncConnection, store: Store, request: RunRequest
) -> Coroutine[Any, Any, RunRow | None]: ...
@overload
def request_run(connection: SyncConnection, store: Store, request: RunRequest) -> RunRow | None: ...
def request_run(connection: Any, store: Store, request: RunRequest) -> Any:
    """`Ledger.request_runs` of one run in the connection's transaction."""

    def on_postgres(schema: str) -> Steps[RunRow | None]:
        from tenure.stores.postgres import ledger as postgres_ledger
        from tenure.stores.postgres import rows as postgres_rows

        statement = postgres_ledger.load(schema, "DESC")["request_runs"]
        row = yield statement, {"requests": json.dumps([postgres_rows.written_request(request)])}
        return postgres_rows.run_row(row) if row and row[0] is not None else None

    def on_sqlite(raw: sqlite3.Connection) -> RunRow | None:
        from tenure.stores.sqlite import changes as sqlite_changes

        return sqlite_changes.request_run(raw, request, _now())

    verb = "run_now" if request.scheduled_for is None else "run_at"
    return _over(connection, store, f"scheduler.{verb}(conn=…)", on_postgres, on_sqlite)


@overload
def retry_run(
    connection: AsyncConnection, store: Store, run: RunId, by: str, action: Action | None, *, traceparent: str = ""
) -> Coroutine[Any, Any, RunRow | None]: ...
@overload
def retry_run(
    connection: SyncConnection, store: Store, run: RunId, by: str, action: Action | None, *, traceparent: str = ""
) -> RunRow | None: ...
def retry_run(
    connection: Any, store: Store, run: RunId, by: str, action: Action | None, *, traceparent: str = ""
) -> Any:
    """`Ledger.retry` of one run in the connection's transaction."""

    def on_postgres(schema: str) -> Steps[RunRow | None]:
        from tenure.stores.postgres import ledger as postgres_ledger
        from tenure.stores.postgres import rows as postgres_rows

        statement = postgres_ledger.load(schema, "DESC")["retry"]
        noted = None if action is None else json.dumps(postgres_rows.written_action(action))
        row = yield statement, {"runs": [run], "by": storable(by), "action": noted, "traceparent": traceparent}
        return postgres_rows.run_row(row) if row else None

    def on_sqlite(raw: sqlite3.Connection) -> RunRow | None:
        from tenure.stores.sqlite import changes as sqlite_changes

        ((row,), _) = sqlite_changes.retry(raw, [run], by, now=_now(), action=action, traceparent=traceparent)
        return row

    return _over(connection, store, "scheduler.retry(conn=…)", on_postgres, on_sqlite)


def _over(
    connection: Any,
    store: Store,
    call: str,
    on_postgres: Callable[[str], Steps[Any]],
    on_sqlite: Callable[[sqlite3.Connection], Any],
) -> Any:
    def procedure(line: Line) -> Steps[Any]:
        if isinstance(line, Postgres) and is_a(store, "tenure.stores.postgres.store", "PostgresStore"):
            schema: str = store.schema  # type: ignore[attr-defined]
            return (yield from _told(call, schema, on_postgres(schema)))
        if isinstance(line, Sqlite3) and is_a(store, "tenure.stores.sqlite.store", "SqliteStore"):
            _same_file(call, store, line.raw)
            return _whole(line.raw, on_sqlite)
        found = type(line.raw)
        raise ConfigurationError(
            f"{call}: a connection of {found.__module__}.{found.__qualname__} cannot change what {store.shown} has. "
            "Pass a connection to that very database (for SQLite: sqlite3's, or SQLAlchemy's or Django's over it), "
            "or leave `conn` out."
        )

    return target_of(connection, call).inside(call, procedure, opens=True)


def _told(call: str, schema: str, steps: Steps[T]) -> Steps[T]:
    """Translate PostgreSQL's errors about a database or a role that cannot be used."""
    try:
        return (yield from steps)
    except Exception as error:
        state = sqlstate(error)
        if state in MISSING:
            raise WrongDatabase(
                f"{call}: this database has no tenure in schema {schema!r}, or an older one. "
                "Pass a connection to the scheduler's database."
            ) from error
        if state == TOO_ISOLATED:
            raise ConfigurationError(
                f"{call}: this transaction is REPEATABLE READ or SERIALIZABLE, and does not see runs that others have "
                "changed since it began: they would be left behind. Nothing was changed, and the transaction is "
                "aborted. Write `SET TRANSACTION ISOLATION LEVEL READ COMMITTED` as its first statement, or leave "
                "`conn` out. New jobs can be added, and runs requested, at any level."
            ) from error
        if state == NOT_ALLOWED:
            raise StoreError(
                f"{call}: this role may not write to schema {schema!r} ({error}). Ask `tenure doctor` what it needs."
            ) from error
        raise


def _whole(raw: sqlite3.Connection, steps: Callable[[sqlite3.Connection], T]) -> T:
    """All of the steps or none: a caller who catches the error may commit what came before."""
    raw.execute("SAVEPOINT tenure_change")
    try:
        return steps(raw)
    except BaseException:
        if raw.in_transaction:
            raw.execute("ROLLBACK TO tenure_change")
        raise
    finally:
        if raw.in_transaction:
            raw.execute("RELEASE tenure_change")


def _same_file(call: str, store: Store, raw: sqlite3.Connection) -> None:
    cursor = raw.cursor()
    cursor.row_factory = None
    main = next(file for _, name, file in cursor.execute("PRAGMA database_list") if name == "main")
    path: Path = store.path  # type: ignore[attr-defined]
    if not main or not path.exists() or not path.samefile(main):
        raise WrongDatabase(
            f"{call}: this connection is to {main or 'a database in memory'}, the scheduler's is {path}. "
            "Pass a connection to that file."
        )


def _now() -> int:
    return round(walltime().timestamp() * 1_000_000)
