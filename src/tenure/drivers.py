"""What a fence sends, over every driver's connection.

Each driver is a `Line` that says how to send a statement and whether a transaction is open. What is sent, in which order, is written
once for PostgreSQL and once for SQLite, as generators that both colours run. No driver is imported unless the caller's connection is
one of its own.
"""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from functools import cache
from typing import Any, Protocol

from tenure.errors import ConfigurationError, StaleTerm, StoreError, WrongDatabase
from tenure.stores import statements

STALE = "TN001"
SERIALIZATION_FAILURE = "40001"
MISSING = {"42883", "3F000", "42P01"}  # function, schema, table
NOT_ALLOWED = "42501"
NO_TERM = -1
"""No term has this number: a fence with it is always refused."""

PATIENCE = 2.0
"""How many seconds a cancelled fence may still take to leave its connection in order, before the connection is closed."""

SUPPORTED = (
    "sqlite3, aiosqlite, psycopg (sync and async), psycopg2 and asyncpg connections, SQLAlchemy's Connection, Session, "
    "AsyncConnection and AsyncSession, and Django's connection"
)

Row = tuple[Any, ...]
Steps = Generator[tuple[str, Mapping[str, object]], Row | None, None]
"""What to send, statement by statement; each answer (its first row) or error comes back into the generator."""


class Fencing(Protocol):
    """What a fence needs to know of a term."""

    @property
    def election(self) -> str: ...
    @property
    def number(self) -> int: ...
    @property
    def node(self) -> str: ...
    @property
    def schema(self) -> str: ...


def line_of(connection: Any) -> Line:
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
        f"term.fence: a {found.__module__}.{found.__qualname__} cannot be fenced. Pass the connection that does the work; "
        f"supported are {SUPPORTED}."
    )


def is_a(connection: Any, module: str, *names: str) -> bool:
    """Whether it is one of these classes; of a module that nobody has loaded it cannot be."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(connection, tuple(getattr(loaded, name, ()) for name in names))


def run(line: Line, steps: Steps) -> None:
    try:
        step = next(steps)
        while True:
            try:
                row = line.send(*step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(row)
    except StopIteration:
        return


async def run_async(line: Line, steps: Steps) -> None:
    import asyncio

    try:
        step = next(steps)
        async with asyncio.timeout(None) as limit:
            while True:
                try:
                    row = await line.send(*step)
                except GeneratorExit:  # the loop is gone; nothing can be sent any more
                    line.close()
                    raise
                except BaseException as error:
                    if isinstance(error, asyncio.CancelledError) and limit.when() is None:
                        limit.reschedule(asyncio.get_running_loop().time() + PATIENCE)
                    step = steps.throw(error)
                else:
                    step = steps.send(row)
    except StopIteration:
        return


class Line(ABC):
    """One driver's connection: how to send a statement, and whether a transaction is open."""

    is_async = False
    advice = "Write `with conn.transaction():` around the work and the fence."

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    @property
    @abstractmethod
    def in_transaction(self) -> bool:
        """Whether a transaction is open, also an aborted one."""

    @property
    @abstractmethod
    def begins_by_itself(self) -> bool:
        """Whether the first statement opens a transaction that lasts until commit."""

    @abstractmethod
    def send(self, statement: str, values: Mapping[str, object]) -> Any:
        """Send it and return the first row, if any; a coroutine where `is_async`."""

    @abstractmethod
    def close(self) -> None:
        """End the connection at once, without waiting."""

    @abstractmethod
    def begin(self) -> Steps:
        """See to it that a transaction is open, or refuse."""

    @abstractmethod
    def fence(self, term: Fencing) -> Steps:
        """Fence the open transaction; when this raises anything but `ConfigurationError`, the transaction is over."""

    def not_in_transaction(self) -> ConfigurationError:
        if self.begins_by_itself:
            return ConfigurationError(
                "term.fence: no transaction is open on this connection, so that there is nothing to fence: what came before is "
                f"committed already. Fence before the commit. {self.advice}"
            )
        return ConfigurationError(
            "term.fence: this connection is in autocommit mode and in no transaction: each statement has been committed already. "
            + self.advice
        )


class Postgres(Line):
    """The fence on PostgreSQL."""

    def begin(self) -> Steps:
        self.check()
        if not self.in_transaction:
            if not self.begins_by_itself:
                raise self.not_in_transaction()
            yield "SELECT 1", {}

    def fence(self, term: Fencing) -> Steps:
        self.check()
        if not self.in_transaction:
            raise self.not_in_transaction()
        statement, values = _postgres_fence(term.schema), _values(term)
        try:
            yield statement, values
        except BaseException as error:
            told = yield from self._poison(statement, values, error)
            raise_refusal(term, told)
            raise
        if not self.in_transaction:  # a pooler in statement mode
            raise StoreError(
                f"election {term.election!r}: the fence of term {term.number} ran outside the transaction, so that it protects nothing. "
                "Something between here and the server spreads transactions over connections: put the pooler into transaction mode."
            )

    def _poison(
        self, statement: str, values: Mapping[str, object], error: BaseException
    ) -> Generator[tuple[str, Mapping[str, object]], Row | None, BaseException]:
        """Leave an aborted transaction without the work. Returns the error that says what was wrong."""
        told = error
        try:
            yield "ROLLBACK AND CHAIN", {}
            if sqlstate(error) == SERIALIZATION_FAILURE:
                # Above READ COMMITTED a takeover shows as a conflict with the old snapshot, and so does any conflict of the
                # caller's own. A new snapshot tells them apart: a caller who still leads should retry, not stop.
                try:
                    yield statement, values
                except Exception as again:
                    told = again if sqlstate(again) == STALE else error
            if told is error:
                try:
                    yield statement, {**values, "term": NO_TERM}
                except Exception as refused:
                    if sqlstate(refused) is None:
                        raise
        except BaseException:
            self.close()  # a connection that is gone commits nothing either
        return told

    def check(self) -> None:
        """Refuse what the driver's modes make impossible."""


class Psycopg(Postgres):
    """psycopg 3."""

    @property
    def in_transaction(self) -> bool:
        return bool(self.raw.info.transaction_status.name != "IDLE")  # of a closed one the driver tells

    @property
    def begins_by_itself(self) -> bool:
        return not self.raw.autocommit

    def send(self, statement: str, values: Mapping[str, object]) -> Any:
        import psycopg

        # Not connection.execute(): the caller's cursor and row factories may read statements and rows in their own way.
        with psycopg.Cursor(self.raw) as cursor:
            cursor.execute(statement.encode(), values or None, prepare=False)
            return cursor.fetchone() if cursor.description else None

    def close(self) -> None:
        self.raw.pgconn.finish()

    def check(self) -> None:
        if self.raw.pgconn.pipeline_status:
            raise ConfigurationError(
                "term.fence: this connection is in pipeline mode, where a refusal comes too late. Fence after the pipeline block."
            )


class AsyncPsycopg(Psycopg):
    """psycopg 3, awaited."""

    is_async = True
    advice = "Write `async with conn.transaction():` around the work and the fence."

    async def send(self, statement: str, values: Mapping[str, object]) -> Any:
        import psycopg

        async with psycopg.AsyncCursor(self.raw) as cursor:
            await cursor.execute(statement.encode(), values or None, prepare=False)
            return await cursor.fetchone() if cursor.description else None


class Psycopg2(Postgres):
    """psycopg2."""

    advice = "Leave `conn.autocommit` off and write `with conn:` around the work and the fence."

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

    def check(self) -> None:
        if self.raw.async_:
            raise ConfigurationError(
                "term.fence: psycopg2's asynchronous mode cannot be fenced. Use psycopg 3 or asyncpg."
            )


class Asyncpg(Postgres):
    """asyncpg, from a pool or not."""

    is_async = True
    advice = "Write `async with conn.transaction():` around the work and the fence."

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
    """The fence on SQLite."""

    advice = "Write `with conn:` around the work and the fence."

    def begin(self) -> Steps:
        if self.in_transaction:
            return
        if not self.begins_by_itself:
            raise self.not_in_transaction()
        # Python begins only before INSERT, UPDATE, DELETE and REPLACE: `WITH … INSERT` and CREATE would be committed on the spot.
        # IMMEDIATE, because whoever reads first and writes later may find that somebody else wrote in between.
        yield "BEGIN IMMEDIATE", {}

    def fence(self, term: Fencing) -> Steps:
        if not self.in_transaction:
            raise self.not_in_transaction()
        sql = _sqlite_statements()
        try:
            yield sql["fence"], _values(term)
        except BaseException as error:
            if str(error).startswith("no such table"):
                yield from self._roll_back()
                raise WrongDatabase(
                    f"election {term.election!r}: this SQLite file has no tables of tenure, so that term {term.number} was granted "
                    "elsewhere. Nothing was committed. The work and the election must be in one file, the one that the connection opened."
                ) from error
            yield from self._roll_back()
            # A refused term has been rolled back by the trigger. SQLITE_BUSY_SNAPSHOT means that this transaction has only read so
            # far (whoever wrote has the write lock, and no term can be granted beside it) and that somebody has written since:
            # it can never write again, hence never be fenced. Whether the writer was a takeover is asked of the present.
            if str(error) == "tenure: stale term" or getattr(error, "sqlite_errorname", "") == "SQLITE_BUSY_SNAPSHOT":
                row = yield sql["standing"], {"name": term.election}
                if row != (term.number, term.node, 1):
                    raise _over(term, row[0] if row else 0) from error
            raise

    def _roll_back(self) -> Steps:
        if self.in_transaction:
            try:
                yield "ROLLBACK", {}
            except Exception:
                self.close()
        if getattr(self.raw, "autocommit", None) is False:
            yield "BEGIN", {}  # sqlite3.connect(autocommit=False) takes for granted that a transaction is always open

    @property
    def in_transaction(self) -> bool:
        return bool(self.raw.in_transaction)

    @property
    def begins_by_itself(self) -> bool:
        return self.raw.isolation_level is not None and getattr(self.raw, "autocommit", None) is not True

    def not_in_transaction(self) -> ConfigurationError:
        if self.begins_by_itself:
            return ConfigurationError(
                "term.fence: no transaction is open on this SQLite connection, so that there is nothing to fence. Python opens one at "
                "the first INSERT, UPDATE, DELETE or REPLACE; anything else (`WITH … INSERT`, CREATE) was committed at once. "
                "Write `with conn, term.fenced(conn):` around the work, or `conn.execute('BEGIN IMMEDIATE')` before it."
            )
        return ConfigurationError(
            "term.fence: this SQLite connection is in autocommit mode and in no transaction: each statement has been committed already. "
            "Write `conn.execute('BEGIN IMMEDIATE')` before the work."
        )


class Sqlite3(Sqlite):
    """Python's own sqlite3."""

    def send(self, statement: str, values: Mapping[str, object]) -> Any:
        cursor = self.raw.cursor()
        try:
            cursor.row_factory = None
            return cursor.execute(statement, values).fetchone()
        finally:
            cursor.close()

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


def _values(term: Fencing) -> dict[str, object]:
    return {"name": term.election, "term": term.number, "holder": term.node}


@cache
def _postgres_fence(schema: str) -> str:
    if not re.fullmatch(r"\w+", schema):
        raise ConfigurationError(f"schema: {schema!r} must be a plain name such as 'tenure'.")
    return statements.load("postgres", schema=schema, channel=schema)["fence"]


@cache
def _sqlite_statements() -> dict[str, str]:
    return statements.load("sqlite")


# What went wrong


def sqlstate(error: BaseException) -> str | None:
    """PostgreSQL's code for it, whichever driver says so; None where the server did not answer."""
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)


def raise_refusal(term: Fencing, error: BaseException) -> None:
    """Raise what the server's refusal means; return where it means nothing special."""
    state = sqlstate(error)
    what = f"election {term.election!r}: the fence of term {term.number}"
    if state == STALE:
        current = re.search(r"the current one is (\d+)", str(error))
        raise _over(term, int(current[1]) if current else None) from error
    if state in MISSING:
        raise WrongDatabase(
            f"{what} was refused, because this database has no tenure in schema {term.schema!r}: the term was granted elsewhere. "
            "Nothing was committed. The work and the election must be in one database: pass a connection to the one with the election."
        ) from error
    if state == NOT_ALLOWED:
        raise StoreError(
            f"{what} was refused, because this role may not call it. Nothing was committed. As the owner: GRANT USAGE ON SCHEMA "
            f"{term.schema} TO …; GRANT EXECUTE ON FUNCTION {term.schema}.fence TO …"
        ) from error


def _over(term: Fencing, current: int | None) -> StaleTerm | WrongDatabase:
    what = f"election {term.election!r}: term {term.number}"
    if current == 0:  # an election's row is never deleted
        return WrongDatabase(
            f"{what} is not known to this database, which has never seen that election. Nothing was committed. "
            "Pass a connection to the database that granted the term (or was it restored from an old backup?)."
        )
    if current is None or current == term.number:
        over = "is over: it was given up, or another node holds it"
    elif current > term.number:
        over = f"is over, the current one is {current}"
    else:
        over = f"is unknown to this database, whose current one is {current}: another database, or one restored from a backup"
    return StaleTerm(
        f"{what} {over}. The database refused the transaction and nothing of it was committed. Another node may lead: stop this work; "
        "the next leader does it again."
    )
