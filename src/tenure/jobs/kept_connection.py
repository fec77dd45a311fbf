"""Keeps the connection of the last operation or query for the next one.

Opening a connection costs far more than most operations. So each scheduler keeps the one it used last open for a while.
No thread watches it. PostgreSQL ends it after it has been idle for too long, and before it is used again it is checked,
so that nothing is ever sent over a stale connection. A call that failed keeps none.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from tenure.stores import Session, Store
from tenure.util.clock import boottime
from tenure.util.fork import ForkOrder, in_child

KEPT = 60.0
"""For how many seconds an unused connection is kept."""


class Spare:
    """At most one idle connection. Takes no lock: a signal handler may close it, and a fork may happen any time."""

    def __init__(self) -> None:
        self._idle: deque[tuple[Session, Store, float]] = deque()
        self._inherited: list[object] = []
        _ALL.add(self)

    @contextmanager
    def session(self, store: Store, purpose: str, timeout: float) -> Iterator[Session]:
        """The kept connection if it can still be used, else a new one. Each is used by one thread at a time."""
        session = self._take(store) or store.session(purpose, timeout)
        try:
            yield session
        except BaseException:
            session.close()
            raise
        if not session.keep(KEPT):
            session.close()
            return
        self._idle.append((session, store, boottime()))
        self._close_all_but(1)

    def close(self) -> None:
        """Close what is idle. The next use opens another."""
        self._close_all_but(0)

    def forked(self) -> None:
        """In a forked child: the connection is the parent's. Keep a reference to it, because closing it would end the
        parent's session."""
        for session, _, _ in self._idle:
            session.abandon()
        self._inherited += self._idle
        self._idle = deque()

    def _take(self, store: Store) -> Session | None:
        try:
            session, its_store, since = self._idle.pop()
        except IndexError:
            return None
        idle = boottime() - since
        if its_store is store and idle < KEPT and session.fresh(idle):
            return session
        session.close()
        return None

    def _close_all_but(self, left: int) -> None:
        while len(self._idle) > left:
            try:
                session, _, _ = self._idle.popleft()
            except IndexError:  # another thread was faster
                return
            session.close()


_ALL: weakref.WeakSet[Spare] = weakref.WeakSet()


@in_child(ForkOrder.CONNECTIONS)
def _after_fork_in_child() -> None:
    for spare in list(_ALL):
        spare.forked()
