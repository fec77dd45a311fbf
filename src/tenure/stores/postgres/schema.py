"""tenure's schema in PostgreSQL: which roles may migrate it, and under which lock."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, cast

import psycopg
from psycopg import errors as pg

from tenure.errors import ConfigurationError, SchemaOutdated, SchemaTooNew, StoreError, StoreUnavailable
from tenure.stores.migrations import Migrations, Stamp
from tenure.stores.statements import POSTGRES

if TYPE_CHECKING:
    from tenure.stores.postgres.deadline import DeadlineConnection
    from tenure.stores.postgres.store import PostgresStore

MIGRATION_PATIENCE = "4s"
"""How long to wait for the lock of migrations: less than the connection waits for an answer."""
TABLE_PATIENCE = "500ms"
"""How long to wait for each table that a migration changes: heartbeats queue behind it."""
SEARCH_PATH = "pg_catalog, pg_temp"
"""Of all our sessions and functions. With the usual one, a role that may create objects in `public` could put a
function or an operator there that matches our arguments better than PostgreSQL's own. It would run as our role."""
PLANNER = (
    "SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off "
    "SET jit = off SET random_page_cost = 0.01 SET cpu_tuple_cost = 1"
)
"""Settings of the functions that nodes call all the time. A session plans their statements once, perhaps while the
tables are empty. The plan must still be good when they are full: along indexes, in nested loops."""

ABSENT = (pg.UndefinedTable, pg.UndefinedColumn, pg.UndefinedFunction, pg.InvalidSchemaName)
"""Errors that a library gets from a schema of another version."""

_CREATE_SCHEMA = "CREATE SCHEMA IF NOT EXISTS {schema};"
_HAS_SCHEMA = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s"
_HAS_TABLES = "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = %s AND tablename = 'schema_version'"
_REVOKE = "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC;"


@functools.cache
def known(schema: str) -> Migrations:
    """The migrations of this library."""
    return Migrations(POSTGRES, f"{schema}.schema_version", schema=schema, channel=schema, planner=PLANNER)


def script(schema: str, since: int = 0) -> str:
    """What `tenure migrate --print` prints."""
    lines = ["BEGIN;", f"SET LOCAL search_path = {SEARCH_PATH};"]
    if not since:
        lines.append(_CREATE_SCHEMA.format(schema=schema))
    return "\n".join([*lines, known(schema).script(since), _REVOKE.format(schema=schema), "COMMIT;", ""])


def migrate(store: PostgresStore, connection: DeadlineConnection, *, allowed: bool) -> None:
    """Bring tenure's schema up to date under one advisory lock, or raise an error that says what to do."""
    schema, migrations = store.schema, known(store.schema)
    what = f"{store.shown}: tenure's schema {schema!r}"
    found = None
    try:
        with store.transaction(connection):
            found = _stamp(store, connection)
        if migrations.serve(found, what):
            return
        if not allowed:
            raise migrations.outdated(found, what)
        with store.transaction(connection):
            connection.execute(f"SET LOCAL lock_timeout = '{MIGRATION_PATIENCE}'")
            connection.execute("SET LOCAL statement_timeout = '30s'")
            _lock_migration(store, connection)
            found = _stamp(store, connection)
            if migrations.serve(found, what):
                return
            # If the schema exists, its owner needs no right on the database.
            if not connection.execute(_HAS_SCHEMA, [schema]).fetchone():
                connection.execute(_CREATE_SCHEMA.format(schema=schema))
            _refuse_strangers(store, connection)
            _apply(store, connection, migrations.script(found.version if found else 0))
            connection.execute(_REVOKE.format(schema=schema))
    except pg.InsufficientPrivilege as error:
        raise SchemaOutdated(
            f"{store.shown}: this role may not use or migrate tenure's schema {schema!r} ({store.explained(error)}). "
            f"{migrations.how(found)}"
        ) from error


def unsuitable(store: PostgresStore, connection: DeadlineConnection, error: psycopg.Error) -> StoreError:
    """Why a statement failed with one of `ABSENT`: the schema is too new for this library, or too old."""
    what = f"{store.shown}: tenure's schema {store.schema!r}"
    try:
        with store.transaction(connection):
            found = _stamp(store, connection)
        known(store.schema).serve(found, what)
    except SchemaTooNew as newer:
        return newer
    except psycopg.Error:
        pass  # the first error says more
    return SchemaOutdated(f"{what} is missing or too old ({store.explained(error)}). Run `tenure migrate`.")


def _stamp(store: PostgresStore, connection: DeadlineConnection) -> Stamp | None:
    # Read the catalogue itself: to_regclass() may answer from a cache that is older than the lock we waited for.
    if not connection.execute(_HAS_TABLES, [store.schema]).fetchone():
        return None
    return Stamp(*cast("tuple[int, int]", connection.execute(store.statements["schema_version"]).fetchone()))


def _lock_migration(store: PostgresStore, connection: DeadlineConnection) -> None:
    """One migration at a time. Every role that may connect can hold the lock, so the error names the holder."""
    try:
        with connection.transaction():  # a savepoint: one more query follows
            connection.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"tenure migrate {store.schema}"]
            )
    except pg.LockNotAvailable as error:
        who = _sessions(connection.execute(store.statements["migrators"]).fetchall())
        raise StoreUnavailable(
            f"{store.shown}: the lock for migrations of schema {store.schema!r} was not free within "
            f"{MIGRATION_PATIENCE}: {who} has it. "
            "If that is not a migration, an administrator can end the session: SELECT pg_terminate_backend(…);"
        ) from error


def _apply(store: PostgresStore, connection: DeadlineConnection, script: str) -> None:
    """Nodes queue behind a migration that waits for a table, so it gives up soon and names what is in its way."""
    try:
        with connection.transaction():  # a savepoint: one more query follows
            connection.execute(f"SET LOCAL lock_timeout = '{TABLE_PATIENCE}'")
            connection.execute(script)
    except pg.LockNotAvailable as error:
        found = connection.execute(store.statements["users_of_tables"]).fetchall()
        raise StoreUnavailable(
            f"{store.shown}: tenure's tables were in use for longer than {TABLE_PATIENCE}, by {_sessions(found)}. "
            "Nothing was migrated, and the nodes go on. Run `tenure migrate` again when these transactions have ended."
        ) from error


def _sessions(found: list[tuple[int, str]]) -> str:
    return ", ".join(f"role {role} (server process {pid})" for pid, role in found) or "a session that is gone"


def _refuse_strangers(store: PostgresStore, connection: DeadlineConnection) -> None:
    """Raise if another role owns one of our functions: replacing keeps the owner, and an owner can replace it again."""
    found = connection.execute(store.statements["strange_owners"]).fetchone()
    if found is not None:
        owner, kind, name = cast("tuple[str, str, str]", found)
        raise ConfigurationError(
            f"{store.shown}: {kind.lower()} {name} belongs to role {owner!r}, who could replace tenure's functions "
            f"with others. Nothing was migrated. Run `tenure migrate` as {owner}, or take it over "
            f"(ALTER {kind} {name} OWNER TO …), or choose another schema with schema=."
        )
