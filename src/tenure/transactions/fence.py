"""The fence (G1): work of a term that is over does not commit.

with conn.transaction():
    conn.execute("UPDATE …")
    term.fence(conn)        # or, around all of it: with term.fenced(conn):

The database decides, not this process: a function (PostgreSQL) or a trigger (SQLite) compares term and holder with the
election's row and raises inside the server. What remains is to keep a caller who swallows that error from committing
all the same:

- On PostgreSQL the transaction is aborted, but `ROLLBACK TO SAVEPOINT` would revive what came before the savepoint. So
  every fence that fails, for whatever reason, *poisons* the connection: `ROLLBACK AND CHAIN`, then a fence that cannot
  pass. The connection is left in an aborted transaction that no longer contains the work; nothing runs in it, its
  COMMIT commits nothing, and the caller's own rollback makes it usable again. A connection that cannot be poisoned is
  closed.
- On SQLite `RAISE(ROLLBACK)` ends the whole transaction, savepoints included, and all other failures are rolled back
  here.

Hence one rule: when a fence raises anything but `ConfigurationError` (which is raised before anything is sent), the
transaction is over.

`transactions/drivers.py` and `transactions/connections.py` send it.
"""

from __future__ import annotations

import re
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, overload

from tenure.errors import ConfigurationError, StaleTerm, TenureError, WrongDatabase
from tenure.transactions.connections import AsyncConnection, SyncConnection, Target, target_of
from tenure.transactions.drivers import Decision, Row, Step, on_postgres, on_sqlite

NO_TERM = -1
"""No term has this number: a fence with it is always refused."""

CALL = "term.fence"


class Fencing(Protocol):
    """What a fence needs to know about a term."""

    @property
    def election(self) -> str: ...
    @property
    def number(self) -> int: ...
    @property
    def node(self) -> str: ...
    @property
    def schema(self) -> str: ...


@overload
def fence(connection: AsyncConnection, term: Fencing) -> Coroutine[Any, Any, None]: ...
@overload
def fence(connection: SyncConnection, term: Fencing) -> None: ...
def fence(connection: Any, term: Fencing) -> Any:
    """Refuse, inside the server, to commit the connection's open transaction if this term is over."""
    return _fence(target_of(connection, CALL), term)


@overload
def fenced(connection: AsyncConnection, term: Fencing) -> AbstractAsyncContextManager[None]: ...
@overload
def fenced(connection: SyncConnection, term: Fencing) -> AbstractContextManager[None]: ...
def fenced(connection: Any, term: Fencing) -> Any:
    """A block with a fence at its end, unless it ends with an exception. The caller owns the transaction around it."""
    return Fenced(target_of(connection, CALL), term)


class Fenced:
    """`with` for connections that are not awaited, `async with` for those that are."""

    def __init__(self, target: Target, term: Fencing) -> None:
        self._target = target
        self._term = term

    def __enter__(self) -> None:
        if self._target.is_async:
            raise ConfigurationError("term.fenced: this connection is async. Write `async with term.fenced(…)`.")
        self._target.begin(CALL)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            _fence(self._target, self._term)

    async def __aenter__(self) -> None:
        if not self._target.is_async:
            raise ConfigurationError("term.fenced: this connection is not async. Write `with term.fenced(…)`.")
        await self._target.begin(CALL)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await _fence(self._target, self._term)


def _fence(target: Target, term: Fencing) -> Any:
    decision = Fence(term)
    return target.inside(CALL, lambda line: line.decide(decision))


@dataclass(frozen=True, slots=True)
class Fence(Decision):
    """The database decides whether a term is over."""

    term: Fencing

    call = CALL
    code = "TN001"
    words = "tenure: stale term"
    function = "fence"

    @property
    def what(self) -> str:
        return f"election {self.term.election!r}: the fence of term {self.term.number}"

    @property
    def schema(self) -> str:
        return self.term.schema

    def on_postgres(self) -> Step:
        return on_postgres(self.schema)["fence"], self._values()

    def hopeless(self) -> Mapping[str, object]:
        return {"term": NO_TERM}

    def refusal(self, error: BaseException) -> TenureError:
        current = re.search(r"the current one is (\d+)", str(error))
        return self._over(int(current[1]) if current else None)

    def on_sqlite(self) -> Sequence[Step]:
        return [(on_sqlite()["fence"], self._values())]

    def standing(self) -> Step:
        return on_sqlite()["standing"], {"name": self.term.election}

    def over(self, row: Row | None) -> TenureError | None:
        return None if row == (self.term.number, self.term.node, 1) else self._over(row[0] if row else 0)

    def _values(self) -> dict[str, object]:
        return {"name": self.term.election, "term": self.term.number, "holder": self.term.node}

    def _over(self, current: int | None) -> StaleTerm | WrongDatabase:
        what = f"election {self.term.election!r}: term {self.term.number}"
        if current == 0:  # an election's row is never deleted
            return WrongDatabase(
                f"{what} is not known to this database, which has never seen that election. Nothing was committed. "
                "Pass a connection to the database that granted the term (or was it restored from an old backup?)."
            )
        if current is None or current == self.term.number:
            over = "is over: it was given up, or another node holds it"
        elif current > self.term.number:
            over = f"is over, the current one is {current}"
        else:
            over = (
                f"is unknown to this database, whose current one is {current}: another database, or one restored from "
                "a backup"
            )
        return StaleTerm(
            f"{what} {over}. The database refused the transaction and nothing of it was committed. Another node may "
            "lead: stop this work; the next leader does it again."
        )
