"""A term, as the leader sees it: a number to fence with (G1), and trust that ends in time (G2)."""

from __future__ import annotations

import threading
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, overload

from tenure.core.cluster import NodeId, Trust
from tenure.errors import TermLost
from tenure.transactions import fence
from tenure.transactions.connections import AsyncConnection, SyncConnection
from tenure.util.clock import boottime
from tenure.util.durations import Duration, positive, readable

if TYPE_CHECKING:
    from collections.abc import Callable


class TermState:
    """The election's side of a term: what a fence needs, and whether the term is over. Not public."""

    def __init__(
        self, election: str, number: int, *, node: NodeId, trust_period: int, trust: Callable[[], Trust], schema: str
    ) -> None:
        self.election = election
        self.number = number
        self.node = node
        self.schema = schema
        """The schema of the fence on PostgreSQL."""
        self.told = threading.Event()
        self.reason = ""
        self.ended_at: float | None = None
        self._trust_period = trust_period
        self._trust = trust

    @property
    def trusted_until(self) -> float | None:
        """Until when this term is trusted, on `boottime`; None when it is over."""
        trust = self._trust()
        return trust.until if trust.trust_period == self._trust_period and self.ended_at is None else None

    @property
    def lease_until(self) -> float:
        """Until when the node's lease is trusted, in whatever term."""
        return self._trust().until

    def end(self, reason: str) -> None:
        """This term is over."""
        if not self.told.is_set():
            self.reason, self.ended_at = reason, boottime()
            self.told.set()

    def forked(self) -> None:
        """In a forked child this term is over, whatever the parent does."""
        self.told = threading.Event()
        self.end("this process is a forked child of the one that leads")


class Term:
    """One unbroken period of leadership. `number` only ever grows, and `trusted` is computed at every look."""

    def __init__(self, state: TermState) -> None:
        self._state = state
        self.election, self.number, self.node = state.election, state.number, state.node

    def __repr__(self) -> str:
        return f"<Term {self.number} of {self.election!r}, {'trusted' if self.trusted else 'over'}>"

    @property
    def trusted(self) -> bool:
        """Whether this node leads at this very moment."""
        until = self._state.trusted_until
        return until is not None and boottime() < until  # the clock is read last

    @property
    def remaining(self) -> float:
        """For how many seconds this term is trusted if no further heartbeat is acknowledged; 0 when it is over."""
        until = self._state.trusted_until
        return 0.0 if until is None else max(until - boottime(), 0.0)

    @property
    def reason(self) -> str:
        """Why it ended; '' while it lasts."""
        return self._state.reason or ("" if self.trusted else "trust ran out")

    def wait(self, seconds: Duration | None = None) -> bool:
        """Wait that long: True afterwards, False at once when trust ends. Without a time, wait until trust ends."""
        deadline = None if seconds is None else boottime() + positive(seconds, "seconds")
        while True:
            left = self.remaining
            if left <= 0:
                return False
            if deadline is not None:
                if boottime() >= deadline:
                    return True
                left = min(left, deadline - boottime())
            self._state.told.wait(max(left, 0.0))

    def check(self) -> None:
        """Raise `TermLost` unless this node leads."""
        if self.trusted:
            return
        ended_at = self._state.ended_at or min(self._state.lease_until, boottime())
        ago = f" {readable(boottime() - ended_at)} ago" if ended_at > 0 else ""
        raise TermLost(
            f"election {self.election!r} lost term {self.number}{ago} ({self.reason}). "
            "Another node may lead: stop side effects, or guard them with term.fence(conn)."
        )

    @overload
    def fence(self, connection: AsyncConnection) -> Coroutine[Any, Any, None]: ...
    @overload
    def fence(self, connection: SyncConnection) -> None: ...
    def fence(self, connection: Any) -> Any:
        """Make the database refuse to commit the connection's transaction if this term is over. Awaitable if async."""
        return fence.fence(connection, self._state)

    @overload
    def fenced(self, connection: AsyncConnection) -> AbstractAsyncContextManager[None]: ...
    @overload
    def fenced(self, connection: SyncConnection) -> AbstractContextManager[None]: ...
    def fenced(self, connection: Any) -> Any:
        """`with term.fenced(conn):` fences at the end of the block; write `async with` for async connections."""
        return fence.fenced(connection, self._state)


def state_of(term: Term) -> TermState:
    """The election's side of a term, for tenure's own modules."""
    return term._state  # noqa: SLF001 - the one way in
