"""The fence: work of a term that is over does not commit.

with conn.transaction():
    conn.execute("UPDATE …")
    term.fence(conn)        # or, around all of it: with term.fenced(conn):

The database decides, not this process: a function (PostgreSQL) or a trigger (SQLite) compares term and holder with the election's
row and raises inside the server. What remains is to keep a caller who swallows that error from committing all the same:

- On PostgreSQL the transaction is aborted, but `ROLLBACK TO SAVEPOINT` would revive what came before the savepoint. So every fence
  that fails, for whatever reason, *poisons* the connection: `ROLLBACK AND CHAIN`, then a fence that cannot pass. The connection is
  left in an aborted transaction that no longer contains the work; nothing runs in it, its COMMIT commits nothing, and the caller's
  own rollback makes it usable again. A connection that cannot be poisoned is closed.
- On SQLite `RAISE(ROLLBACK)` ends the whole transaction, savepoints included, and whatever else goes wrong is rolled back here.

Hence one rule: when a fence raises anything but `ConfigurationError` (which is raised before anything is sent), the transaction is over.

What is sent stands in `drivers.py`. Frameworks (SQLAlchemy, Django) are asked whether a transaction is open, and then passed by: the
fence and the poison go to the driver underneath.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Any, Protocol, overload

from tenure.drivers import Fencing, Line, Postgres, Steps, is_a, line_of, run, run_async
from tenure.errors import ConfigurationError


class SyncConnection(Protocol):
    """As far as types can tell: a connection or session whose methods are not awaited."""

    def commit(self) -> None: ...


class AsyncConnection(Protocol):
    """As far as types can tell: a connection or session whose methods are awaited."""

    def execute(self, *args: Any, **kwargs: Any) -> Awaitable[Any]: ...


@overload
def fence(connection: AsyncConnection, term: Fencing) -> Coroutine[Any, Any, None]: ...
@overload
def fence(connection: SyncConnection, term: Fencing) -> None: ...
def fence(connection: Any, term: Fencing) -> Any:
    """Refuse, inside the server, to commit the connection's open transaction if this term is over."""
    return _target(connection).fence(term)


@overload
def fenced(connection: AsyncConnection, term: Fencing) -> AbstractAsyncContextManager[None]: ...
@overload
def fenced(connection: SyncConnection, term: Fencing) -> AbstractContextManager[None]: ...
def fenced(connection: Any, term: Fencing) -> Any:
    """A block that is fenced at its end, unless it ends by an exception. The transaction around it is the caller's."""
    return Fenced(_target(connection), term)


class Fenced:
    """`with` for connections that are not awaited, `async with` for those that are."""

    def __init__(self, target: Target, term: Fencing) -> None:
        self._target = target
        self._term = term

    def __enter__(self) -> None:
        if self._target.is_async:
            raise ConfigurationError("term.fenced: this connection is asynchronous. Write `async with term.fenced(…)`.")
        self._target.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._target.fence(self._term)

    async def __aenter__(self) -> None:
        if not self._target.is_async:
            raise ConfigurationError("term.fenced: this connection is not asynchronous. Write `with term.fenced(…)`.")
        await self._target.begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self._target.fence(self._term)


# What the caller has in hand


class Target(Protocol):
    """A connection as the caller knows it. Both methods return a coroutine where `is_async`."""

    is_async: bool

    def begin(self) -> Any:
        """See to it that a transaction is open, or refuse."""

    def fence(self, term: Fencing) -> Any:
        """Fence the open transaction, or refuse."""


def _target(connection: Any) -> Target:
    if is_a(connection, "sqlalchemy.orm.scoping", "scoped_session"):
        connection = connection()
    if is_a(connection, "sqlalchemy.ext.asyncio", "async_scoped_session"):
        connection = connection()
    if is_a(connection, "django.utils.connection", "ConnectionProxy"):
        connection = sys.modules["django.db"].connections[connection.alias]
    if is_a(connection, "sqlalchemy.engine", "Connection") or is_a(connection, "sqlalchemy.orm", "Session"):
        return Sqlalchemy(connection)
    if is_a(connection, "sqlalchemy.ext.asyncio", "AsyncConnection", "AsyncSession"):
        return AsyncSqlalchemy(connection)
    if is_a(connection, "django.db.backends.base.base", "BaseDatabaseWrapper"):
        return Django(connection)
    return Driver(line_of(connection))


class Driver:
    """A driver's connection, bare."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.is_async = line.is_async

    def begin(self) -> Any:
        return self._run(self._line.begin())

    def fence(self, term: Fencing) -> Any:
        return self._run(self._line.fence(term))

    def _run(self, steps: Steps) -> Any:
        return run_async(self._line, steps) if self.is_async else run(self._line, steps)


class Sqlalchemy:
    """A Connection or a Session, also those inside `run_sync`."""

    is_async = False

    def __init__(self, given: Any) -> None:
        self._given = given

    def begin(self) -> None:
        connection = self._connection()
        if not connection.in_transaction():
            connection.exec_driver_sql("SELECT 1").close()  # SQLAlchemy begins at the first statement
        self._run(connection, lambda line: line.begin())

    def fence(self, term: Fencing) -> None:
        if not self._given.in_transaction():
            raise ConfigurationError(
                "term.fence: this SQLAlchemy connection or session is not in a transaction, so that there is nothing to fence. "
                "Write `with engine.begin() as connection:` or `with session.begin():`, and fence before it commits."
            )
        connection = self._connection()
        if connection.get_transaction().__class__.__name__ == "TwoPhaseTransaction":
            raise ConfigurationError("term.fence: two-phase commit is not supported with a fence. Write `begin()`.")
        self._run(connection, lambda line: line.fence(term))

    def _connection(self) -> Any:
        if not is_a(self._given, "sqlalchemy.orm", "Session"):
            return self._given
        self._given.flush()  # what is only pending in the session is part of the work
        return self._given.connection()

    def _run(self, connection: Any, procedure: Callable[[Line], Steps]) -> None:
        proxied = connection.connection
        line = line_of(proxied.driver_connection)
        if isinstance(line, Postgres) and not line.in_transaction:
            connection.exec_driver_sql("SELECT 1").close()  # open for SQLAlchemy, but nothing was sent yet
        if line.is_async:
            proxied.dbapi_connection.run_async(lambda _: run_async(line, procedure(line)))
        else:
            run(line, procedure(line))


class AsyncSqlalchemy:
    """An AsyncConnection or an AsyncSession."""

    is_async = True

    def __init__(self, given: Any) -> None:
        self._given = given

    async def begin(self) -> None:
        await self._given.run_sync(lambda given: Sqlalchemy(given).begin())

    async def fence(self, term: Fencing) -> None:
        await self._given.run_sync(lambda given: Sqlalchemy(given).fence(term))


class Django:
    """`django.db.connection`, or one of `django.db.connections`."""

    is_async = False

    def __init__(self, wrapper: Any) -> None:
        self._wrapper = wrapper

    def begin(self) -> None:
        line = self._line()
        run(line, line.begin())

    def fence(self, term: Fencing) -> None:
        line = self._line()
        run(line, line.begin())  # inside atomic() but nothing was sent yet
        try:
            run(line, line.fence(term))
        except ConfigurationError:
            raise
        except BaseException:
            if self._wrapper.in_atomic_block:
                self._wrapper.set_rollback(True)  # no atomic() around us may commit, whoever swallows this
            raise

    def _line(self) -> Line:
        self._wrapper.ensure_connection()
        if not self._wrapper.in_atomic_block and self._wrapper.get_autocommit():
            raise ConfigurationError(
                f"term.fence: Django's connection {self._wrapper.alias!r} is in autocommit mode: each statement has been committed "
                "already. Write `with transaction.atomic():` around the work and the fence."
            )
        self._wrapper.validate_no_broken_transaction()
        return line_of(self._wrapper.connection)
