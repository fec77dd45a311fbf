"""Sends decisions to the server inside the caller's transaction, over the connection of any driver (G1, G5).

Each driver is a `Line` that knows how to send a statement and whether a transaction is open. A `Decision` is what the
server decides there: a fence, the completion of a run, an effect. The statements and their order are written once for
PostgreSQL and once for SQLite, as generators that sync and async code both run. No driver is imported unless the
caller's connection is one of its own.
"""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from functools import cache
from typing import Any, ClassVar, TypeVar

from tenure.errors import ConfigurationError, StoreError, TenureError, WrongDatabase
from tenure.stores import statements

SERIALIZATION_FAILURE = "40001"
MISSING = {"42883", "3F000", "42P01"}  # function, schema, table
NOT_ALLOWED = "42501"
PATIENCE = 2.0
"""How many seconds a cancelled decision may take to clean up its connection before the connection is closed."""

SUPPORTED = (
    "sqlite3, aiosqlite, psycopg (sync and async), psycopg2 and asyncpg connections, SQLAlchemy's Connection, Session, "
    "AsyncConnection and AsyncSession, and Django's connection"
)

T = TypeVar("T")
Row = tuple[Any, ...]
Step = tuple[str, Mapping[str, object]]
Steps = Generator[Step, Row | None, T]
"""The statements to send, one by one. Each answer (its first row) or error comes back into the generator."""


class Decision(ABC):
    """A decision of the server inside the caller's transaction: it passes, or the transaction is over."""

    call: ClassVar[str]
    """What the caller wrote, such as `term.fence`."""
    code: ClassVar[str]
    """The SQLSTATE of a refusal by PostgreSQL …"""
    words: ClassVar[str]
    """… and the message of one by SQLite."""
    function: ClassVar[str]
    """The function that a role must be allowed to call."""

    @property
    @abstractmethod
    def what(self) -> str:
        """The beginning of its error messages."""

    @property
    @abstractmethod
    def schema(self) -> str:
        """The schema of tenure on PostgreSQL."""

    @abstractmethod
    def on_postgres(self) -> Step: ...

    @abstractmethod
    def hopeless(self) -> Mapping[str, object]:
        """Values with which it never passes."""

    @abstractmethod
    def refusal(self, error: BaseException) -> TenureError:
        """The error for a refusal by PostgreSQL."""

    @abstractmethod
    def on_sqlite(self) -> Sequence[Step]: ...

    @abstractmethod
    def standing(self) -> Step:
        """Asks SQLite for the current state …"""

    @abstractmethod
    def over(self, row: Row | None) -> TenureError | None:
        """… and turns it into an error; None if another try may succeed."""


def line_of(connection: Any, call: str) -> Line:
    for module, names, kind in (
        ("sqlite3", ("Connection",), Sqlite3),
        ("psycopg", ("Connection",), Psycopg),
        ("psycopg", ("AsyncConnection",), AsyncPsycopg),
        ("psycopg2.extensions", ("connection",), Psycopg2),
        ("asyncpg.connection", ("Connection",), Asyncpg),
        ("asyncpg.pool", ("PoolConnectionProxy",), Asyncpg),
        ("aiosqlite", ("Connection",), Aiosqlite),
    ):
        if is_a(connection, module, *names):
            line: Line = kind(connection)
            return line
    found = type(connection)
    raise ConfigurationError(
        f"{call}: a {found.__module__}.{found.__qualname__} cannot be used. Pass the connection that does the work; "
        f"supported are {SUPPORTED}."
    )


def is_a(connection: Any, module: str, *names: str) -> bool:
    """True if it is one of these classes. It cannot be one of a module that is not loaded."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(connection, tuple(getattr(loaded, name, ()) for name in names))


def run(line: Line, steps: Steps[T]) -> T:
    try:
        step = next(steps)
        while True:
            try:
                row = line.send(*step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(row)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def run_async(line: Line, steps: Steps[T]) -> T:
    import asyncio

    try:
        step = next(steps)
        async with asyncio.timeout(None) as limit:
            while True:
                try:
                    row = await line.send(*step)
                except GeneratorExit:  # the loop is gone; nothing more can be sent
                    line.close()
                    raise
                except BaseException as error:
                    if isinstance(error, asyncio.CancelledError) and limit.when() is None:
                        limit.reschedule(asyncio.get_running_loop().time() + PATIENCE)
                    step = steps.throw(error)
                else:
                    step = steps.send(row)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


class Line(ABC):
    """One driver's connection: how to send a statement, and whether a transaction is open."""

    is_async = False
    advice = "Write `with conn.transaction():` around the work and this call."

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    @property
    @abstractmethod
    def in_transaction(self) -> bool:
        """True if a transaction is open, even an aborted one."""

    @property
    @abstractmethod
    def begins_by_itself(self) -> bool:
        """True if the first statement opens a transaction that lasts until commit."""

    @abstractmethod
    def send(self, statement: str, values: Mapping[str, object]) -> Any:
        """Send it and return the first row, if any; a coroutine if `is_async`."""

    @abstractmethod
    def close(self) -> None:
        """End the connection at once, without waiting."""

    @abstractmethod
    def begin(self, call: str) -> Steps[None]:
        """Make sure that a transaction is open, or refuse."""

    @abstractmethod
    def decide(self, decision: Decision) -> Steps[Row | None]:
        """Let the server decide. If this raises anything but `ConfigurationError`, the transaction is over."""

    def not_in_transaction(self, call: str) -> ConfigurationError:
        if self.begins_by_itself:
            return ConfigurationError(
                f"{call}: no transaction is open on this connection: earlier work is committed already. "
                f"Call it before the commit. {self.advice}"
            )
        return ConfigurationError(
            f"{call}: this connection is in autocommit mode and in no transaction: each statement is committed at "
            "once. " + self.advice
        )


class Postgres(Line):
    """Decisions by PostgreSQL."""

    def begin(self, call: str) -> Steps[None]:
        self.refuse_modes(call)
        if not self.in_transaction:
            if not self.begins_by_itself:
                raise self.not_in_transaction(call)
            yield "SELECT 1", {}

    def decide(self, decision: Decision) -> Steps[Row | None]:
        self.refuse_modes(decision.call)
        if not self.in_transaction:
            raise self.not_in_transaction(decision.call)
        try:
            row = yield decision.on_postgres()
        except BaseException as error:
            told = yield from self._poison(decision, error)
            raise_refusal(decision, told)
            raise
        if not self.in_transaction:  # a pooler in statement mode
            raise StoreError(
                f"{decision.what} ran outside the transaction, so it protects nothing. Something between here and the "
                "server spreads transactions over connections: put the pooler into transaction mode."
            )
        return row

    def _poison(self, decision: Decision, error: BaseException) -> Steps[BaseException]:
        """Leave an aborted transaction without the work. Returns the error that explains it."""
        told = error
        statement, values = decision.on_postgres()
        try:
            yield "ROLLBACK AND CHAIN", {}
            if sqlstate(error) == SERIALIZATION_FAILURE:
                # Above READ COMMITTED a takeover shows as a conflict with the old snapshot, and so does any conflict of
                # the caller's own. A new snapshot distinguishes them: a caller who still leads should retry, not stop.
                try:
                    yield statement, values
                except Exception as again:
                    told = again if sqlstate(again) == decision.code else error
            if told is error:
                try:
                    yield statement, {**values, **decision.hopeless()}
                except Exception as refused:
                    if sqlstate(refused) is None:
                        raise
        except BaseException:
            self.close()  # a closed connection commits nothing either
        return told

    def refuse_modes(self, call: str) -> None:
        """Refuse modes of the driver in which this cannot work."""


class Psycopg(Postgres):
    """psycopg 3."""

    @property
    def in_transaction(self) -> bool:
        return bool(self.raw.info.transaction_status.name != "IDLE")  # for a closed connection the driver raises

    @property
    def begins_by_itself(self) -> bool:
        return not self.raw.autocommit

    def send(self, statement: str, values: Mapping[str, object]) -> Any:
        import psycopg

        # Not connection.execute(): the caller's cursor and row factories may read statements and rows in their own way.
        with psycopg.Cursor(self.raw, row_factory=psycopg.rows.tuple_row) as cursor:
            cursor.execute(statement.encode(), values or None, prepare=False)
            return _as_text(cursor.fetchone()) if cursor.description else None

    def close(self) -> None:
        self.raw.pgconn.finish()

    def refuse_modes(self, call: str) -> None:
        if self.raw.pgconn.pipeline_status:
            raise ConfigurationError(
                f"{call}: this connection is in pipeline mode, where a refusal comes too late. "
                "Call it after the pipeline block."
            )


class AsyncPsycopg(Psycopg):
    """psycopg 3, awaited."""

    is_async = True
    advice = "Write `async with conn.transaction():` around the work and this call."

    async def send(self, statement: str, values: Mapping[str, object]) -> Any:
        import psycopg

        async with psycopg.AsyncCursor(self.raw, row_factory=psycopg.rows.tuple_row) as cursor:
            await cursor.execute(statement.encode(), values or None, prepare=False)
            return _as_text(await cursor.fetchone()) if cursor.description else None


def _as_text(row: Row | None) -> Row | None:
    """Decode the bytes that a caller with `client_encoding` SQL_ASCII gets. The database is UTF8."""
    return row and tuple(value.decode() if isinstance(value, bytes) else value for value in row)


class Psycopg2(Postgres):
    """psycopg2."""

    advice = "Leave `conn.autocommit` off and write `with conn:` around the work and this call."

    @property
    def in_transaction(self) -> bool:
        return bool(self.raw.get_transaction_status() != 0)

    @property
    def begins_by_itself(self) -> bool:
        return not self.raw.autocommit

    def send(self, statement: str, values: Mapping[str, object]) -> Any:
        import psycopg2.extensions

        with psycopg2.extensions.cursor(self.raw) as cursor:
            cursor.execute(statement, values or None)
            return cursor.fetchone() if cursor.description else None

    def close(self) -> None:
        self.raw.close()

    def refuse_modes(self, call: str) -> None:
        if self.raw.async_:
            raise ConfigurationError(f"{call}: psycopg2's asynchronous mode cannot be used. Use psycopg 3 or asyncpg.")


class Asyncpg(Postgres):
    """asyncpg, from a pool or not."""

    is_async = True
    advice = "Write `async with conn.transaction():` around the work and this call."

    @property
    def in_transaction(self) -> bool:
        return bool(self.raw.is_in_transaction())

    @property
    def begins_by_itself(self) -> bool:
        return False

    async def send(self, statement: str, values: Mapping[str, object]) -> Any:
        numbered = statement
        for number, name in enumerate(values, start=1):
            numbered = numbered.replace(f"%({name})s", f"${number}")
        if not values:
            await self.raw.execute(numbered)
            return None
        return await self.raw.fetchrow(numbered, *values.values())

    def close(self) -> None:
        self.raw.terminate()


class Sqlite(Line):
    """Decisions by SQLite."""

    advice = "Write `with conn:` around the work and this call."

    def begin(self, call: str) -> Steps[None]:
        if self.in_transaction:
            return
        if not self.begins_by_itself:
            raise self.not_in_transaction(call)
        # Python begins only before INSERT, UPDATE, DELETE and REPLACE: `WITH … INSERT` and CREATE would be committed at
        # once. IMMEDIATE, because a transaction that reads first and writes later may find that another one wrote in
        # between.
        yield "BEGIN IMMEDIATE", {}

    def decide(self, decision: Decision) -> Steps[Row | None]:
        if not self.in_transaction:
            raise self.not_in_transaction(decision.call)
        row = None
        try:
            for step in decision.on_sqlite():
                row = yield step
        except BaseException as error:
            yield from self._roll_back()
            if str(error).startswith("no such table"):
                raise WrongDatabase(
                    f"{decision.what} was refused, because this SQLite file has no tables of tenure, or too old ones. "
                    "Nothing was committed. Pass a connection to the file that tenure uses, opened as its main one."
                ) from error
            # The trigger has rolled back a refused transaction. SQLITE_BUSY_SNAPSHOT means that this transaction has
            # only read so far (a writer has the write lock, and nothing can be granted beside it) and that another one
            # has written since: it can never write again. The present state tells whether that writer was a successor.
            asked = str(error) == decision.words or getattr(error, "sqlite_errorname", "") == "SQLITE_BUSY_SNAPSHOT"
            if asked and (over := decision.over((yield decision.standing()))):
                raise over from error
            raise
        return row

    def _roll_back(self) -> Steps[None]:
        if self.in_transaction:
            try:
                yield "ROLLBACK", {}
            except Exception:
                self.close()
        if getattr(self.raw, "autocommit", None) is False:
            yield "BEGIN", {}  # sqlite3.connect(autocommit=False) expects an open transaction at all times

    @property
    def in_transaction(self) -> bool:
        return bool(self.raw.in_transaction)

    @property
    def begins_by_itself(self) -> bool:
        return self.raw.isolation_level is not None and getattr(self.raw, "autocommit", None) is not True

    def not_in_transaction(self, call: str) -> ConfigurationError:
        if self.begins_by_itself:
            return ConfigurationError(
                f"{call}: no transaction is open on this SQLite connection. Python opens one at the first INSERT, "
                "UPDATE, DELETE or REPLACE; anything else (`WITH … INSERT`, CREATE) was committed at once. Write "
                "`conn.execute('BEGIN IMMEDIATE')` before the work, or, for a term, `with conn, term.fenced(conn):` "
                "around it."
            )
        return ConfigurationError(
            f"{call}: this SQLite connection is in autocommit mode and in no transaction: each statement is committed "
            "at once. Write `conn.execute('BEGIN IMMEDIATE')` before the work."
        )


class Sqlite3(Sqlite):
    """Python's own sqlite3."""

    def send(self, statement: str, values: Mapping[str, object]) -> Any:
        with closing(self.raw.cursor()) as cursor:
            cursor.row_factory = None
            return cursor.execute(statement, values).fetchone()

    def close(self) -> None:
        self.raw.close()


class Aiosqlite(Sqlite):
    """aiosqlite: sqlite3 on a thread of its own."""

    is_async = True

    async def send(self, statement: str, values: Mapping[str, object]) -> Any:
        async with self.raw.cursor() as cursor:
            cursor.row_factory = None
            await cursor.execute(statement, values)
            return await cursor.fetchone()

    def close(self) -> None:
        self.raw.stop()


@cache
def on_postgres(schema: str) -> dict[str, str]:
    """PostgreSQL's statements by name."""
    if not re.fullmatch(r"\w+", schema):
        raise ConfigurationError(f"schema: {schema!r} must be a plain name such as 'tenure'.")
    return statements.load(statements.POSTGRES, "effects", schema=schema)


@cache
def on_sqlite() -> dict[str, str]:
    """SQLite's statements by name."""
    return statements.load(statements.SQLITE, "effects")


def sqlstate(error: BaseException) -> str | None:
    """PostgreSQL's code of an error, from any driver; None if the server did not answer."""
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)


def raise_refusal(decision: Decision, error: BaseException) -> None:
    """Raise the error for the server's refusal; return if it is not one."""
    state, schema = sqlstate(error), decision.schema
    if state == decision.code:
        raise decision.refusal(error) from error
    if state in MISSING:
        raise WrongDatabase(
            f"{decision.what} was refused, because this database has no tenure in schema {schema!r}, or an older one. "
            "Nothing was committed. The work must be in tenure's own database: pass a connection to that one."
        ) from error
    if state == NOT_ALLOWED:
        raise StoreError(
            f"{decision.what} was refused, because this role may not call it. Nothing was committed. As the owner: "
            f"GRANT USAGE ON SCHEMA {schema} TO …; GRANT EXECUTE ON FUNCTION {schema}.{decision.function} TO …"
        ) from error
