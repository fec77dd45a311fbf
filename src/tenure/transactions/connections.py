"""The caller's connection, of whatever kind: a driver's own, SQLAlchemy's or Django's, sync or async.

This module asks a framework whether a transaction is open, and then sends its statements to the driver underneath.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from tenure.errors import ConfigurationError
from tenure.transactions.drivers import Line, Postgres, Steps, is_a, line_of, run, run_async

Procedure = Callable[[Line], Steps[Any]]
"""The statements to send over a line."""


class SyncConnection(Protocol):
    """As far as types can tell: a connection or session whose methods are not awaited."""

    def commit(self) -> None: ...


class AsyncConnection(Protocol):
    """As far as types can tell: a connection or session whose methods are awaited."""

    def execute(self, *args: Any, **kwargs: Any) -> Awaitable[Any]: ...


class Target(Protocol):
    """A connection as the caller knows it. Both methods return a coroutine if `is_async`. The caller wrote `call`."""

    is_async: bool

    def begin(self, call: str) -> Any:
        """Make sure that a transaction is open, or refuse."""

    def inside(self, call: str, procedure: Procedure, *, opens: bool = False) -> Any:
        """Run the procedure in the open transaction, or refuse. With `opens` it may be the first of a transaction that
        begins by itself."""


def target_of(connection: Any, call: str) -> Target:
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
    return Driver(line_of(connection, call))


class Driver:
    """A driver's connection without a framework."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.is_async = line.is_async

    def begin(self, call: str) -> Any:
        return self._run(self._line.begin(call))

    def inside(self, call: str, procedure: Procedure, *, opens: bool = False) -> Any:
        return self._run(_opened(self._line, call, procedure) if opens else procedure(self._line))

    def _run(self, steps: Steps[Any]) -> Any:
        return run_async(self._line, steps) if self.is_async else run(self._line, steps)


class Sqlalchemy:
    """A Connection or a Session, also inside `run_sync`."""

    is_async = False

    def __init__(self, given: Any) -> None:
        self._given = given

    def begin(self, call: str) -> None:
        self._run(call, self._begun(), lambda line: line.begin(call))

    def inside(self, call: str, procedure: Procedure, *, opens: bool = False) -> Any:
        if opens:
            connection = self._begun()
        elif self._given.in_transaction():
            connection = self._connection()
        else:
            raise ConfigurationError(
                f"{call}: this SQLAlchemy connection or session is not in a transaction: earlier work is committed "
                "already. Write `with engine.begin() as connection:` or `with session.begin():`, and call it before "
                "that commits."
            )
        if connection.get_transaction().__class__.__name__ == "TwoPhaseTransaction":
            raise ConfigurationError(f"{call}: two-phase commit is not supported. Write `begin()`.")
        return self._run(call, connection, (lambda line: _opened(line, call, procedure)) if opens else procedure)

    def _begun(self) -> Any:
        connection = self._connection()
        if not connection.in_transaction():
            connection.exec_driver_sql("SELECT 1").close()  # SQLAlchemy begins at the first statement
        return connection

    def _connection(self) -> Any:
        if not is_a(self._given, "sqlalchemy.orm", "Session"):
            return self._given
        self._given.flush()  # pending objects of the session are part of the work
        return self._given.connection()

    def _run(self, call: str, connection: Any, procedure: Procedure) -> Any:
        proxied = connection.connection
        line = line_of(proxied.driver_connection, call)
        if isinstance(line, Postgres) and not line.in_transaction:
            connection.exec_driver_sql("SELECT 1").close()  # open for SQLAlchemy, but nothing was sent yet
        if line.is_async:
            return proxied.dbapi_connection.run_async(lambda _: run_async(line, procedure(line)))
        return run(line, procedure(line))


class AsyncSqlalchemy:
    """An AsyncConnection or an AsyncSession."""

    is_async = True

    def __init__(self, given: Any) -> None:
        self._given = given

    async def begin(self, call: str) -> None:
        await self._given.run_sync(lambda given: Sqlalchemy(given).begin(call))

    async def inside(self, call: str, procedure: Procedure, *, opens: bool = False) -> Any:
        return await self._given.run_sync(lambda given: Sqlalchemy(given).inside(call, procedure, opens=opens))


class Django:
    """`django.db.connection`, or one of `django.db.connections`."""

    is_async = False

    def __init__(self, wrapper: Any) -> None:
        self._wrapper = wrapper

    def begin(self, call: str) -> None:
        line = self._line(call)
        run(line, line.begin(call))

    def inside(self, call: str, procedure: Procedure, *, opens: bool = False) -> Any:
        del opens  # inside atomic() perhaps nothing was sent yet
        line = self._line(call)
        run(line, line.begin(call))
        try:
            return run(line, procedure(line))
        except ConfigurationError:
            raise
        except BaseException:
            if self._wrapper.in_atomic_block:
                self._wrapper.set_rollback(True)  # no atomic() around us may commit, even if the caller swallows this
            raise

    def _line(self, call: str) -> Line:
        self._wrapper.ensure_connection()
        if not self._wrapper.in_atomic_block and self._wrapper.get_autocommit():
            raise ConfigurationError(
                f"{call}: Django's connection {self._wrapper.alias!r} is in autocommit mode: each statement is "
                "committed at once. Write `with transaction.atomic():` around the work and this call."
            )
        self._wrapper.validate_no_broken_transaction()
        return line_of(self._wrapper.connection, call)


def _opened(line: Line, call: str, procedure: Procedure) -> Steps[Any]:
    yield from line.begin(call)
    return (yield from procedure(line))
