"""Advisory mode: PostgreSQL itself holds the lock (promises G1 and G2, for those who want a lock and not a lease).

One dedicated connection, one thread, one election. The connection holds two session locks, that of its node and, while it leads or is
about to, that of the election; the node's row, its beats and the grant go over the same connection. So all of it lives and dies
together: **one session, one identity**. A session that is lost takes its identity with it; the next one starts as somebody new, and
says goodbye for the old one as soon as the work of its last term has stopped.

The machine is the one of leases (`lease.step` behind `Standing`), and what differs is only what feeds it:

- The node's advertised session lock is always in force, and a *check* is a look into `pg_locks`, by pid and database, that finds the
  election's lock. So belief ends at the start of the last good check + `session_grace`, and at the beat bound `s + 0.8 ttl`, whichever
  comes first; both are read before sending.
- A beat is sent only after a check on the same connection, with nothing in between: the row is never refreshed by a node without the
  lock. There is no second connection to fall back on, so that an exchange is given up no sooner than belief would end anyway.
- Nobody is granted a term without the lock. Whoever gets it while the row still names a live holder waits `1.25 · session_grace` of
  that holder, and then the grant compares term, holder, count and nonce, as for session evidence. Released, first or declared dead:
  no wait, because nobody believes any more.
- A lock that is held by a session whose node is not alive (frozen, or cut off behind a network that keeps the socket open) is freed
  by `pg_terminate_backend`. The node was declared dead first, by the watch of `core/liveness.py`; no stored time is ever looked at. If the
  server refuses, that is logged and survived: the lock is tried again and again.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from tenure.cluster.advisory_loop import AdvisoryLoop
from tenure.cluster.callbacks import CallbackThread
from tenure.cluster.lease_state import NOBODY, BaseNode
from tenure.cluster.node import GOODBYE, Candidate
from tenure.core.cluster import Cadence
from tenure.core.lease import Action, Announce, DatabaseRewound, Drained, Rejoin, Release, Withdraw
from tenure.errors import ConfigurationError
from tenure.stores import Store
from tenure.util.failure_log import FailureLog

if TYPE_CHECKING:
    from tenure.stores.postgres.store import PostgresStore

logger = logging.getLogger("tenure")


class AdvisoryNode(BaseNode):
    """The seat of one election whose lock PostgreSQL holds."""

    def __init__(self, store: Store, cadence: Cadence, name: str, *, label: str | None = None) -> None:
        super().__init__(store, cadence, label, self._perform)
        self._postgres = _on_postgres(store, name)
        self._name = name
        self._mutex = threading.Lock()
        self._member: Candidate | None = None
        self._threads: tuple[AdvisoryLoop, CallbackThread] | None = None
        _NODES.add(self)

    @property
    def lock_fileno(self) -> int | None:
        """None: the session is the only evidence here."""
        return None

    def enter(self, member: Candidate) -> None:
        """Take the election in and start. Raises what is wrong with the store, and where advisory locks mean nothing."""
        with self._mutex:
            if self._member is not None and self._member is not member:
                raise ConfigurationError(
                    f"election {self._name!r} in advisory mode has a connection of its own, which is taken"
                )
            if self._threads is None:
                self._start(member)

    def exit(self, member: Candidate) -> None:
        """Leave."""
        del member
        with self._mutex:
            self._leave()
            self._member = None

    def look(self, name: str, at: float = 0.0) -> None:
        """Try to win, now or at that time."""
        del name
        if self._threads:
            self._threads[0].look(at)

    def drained(self, name: str, term: int) -> None:
        """The work of a term has stopped."""
        self._standing.step(Drained(name, term))
        if self._threads:
            self._threads[0].drained(term)

    def tell(self, what: Callable[[], None]) -> None:
        """Call the application on the herald's thread."""
        if self._threads:
            self._threads[1].call(what)

    def forked(self) -> None:
        """In a forked child: nobody, with nothing of the parent's in hand."""
        self._mutex = threading.Lock()
        threads, self._threads = self._threads, None
        self._standing.forked()
        if threads:
            threads[0].abandon()
        member, self._member = self._member, None
        if member is not None:
            member.forked()

    def _start(self, member: Candidate) -> None:
        self.store.prepare()
        if self._postgres.pooled:
            raise ConfigurationError(
                f"election {self._name!r}: mode='advisory' does not work through a pooler, and one stands before {self.store.shown}: "
                "a pooler lends server connections out, so that the lock would stay with one that others use, or vanish under a "
                "living leader. Connect to the server directly, or leave mode out: the default mode needs no session."
            )
        label = self.label
        self._member = member
        herald = CallbackThread(self._standing, label)
        keeper = AdvisoryLoop(
            self._postgres,
            self._standing,
            self.cadence,
            member,
            label=label,
            quiet=FailureLog(logger, self.store.shown),
        )
        self._threads = keeper, herald
        try:
            herald.start()
            keeper.start()
        except BaseException:  # the system gives us no thread
            self._leave()
            self._member = None
            raise
        keeper.first.wait()
        if keeper.failure is not None:
            self._leave()
            self._member = None
            raise keeper.failure
        logger.info(
            "node %s joined %s for election %r in advisory mode",
            label,
            self.store.shown,
            self._name,
            extra={"action": "node_joined", "node": self.id},
        )

    def _leave(self) -> None:
        threads, self._threads = self._threads, None
        if threads is None:
            return
        keeper, herald = threads
        keeper.leave("left", GOODBYE)
        herald.stop(GOODBYE)
        self._standing.become(NOBODY)

    def _perform(self, action: Action) -> None:
        if self._threads is None or self._member is None:
            return
        keeper, herald = self._threads
        match action:
            case Announce(name, term, stretch) if name == self._name:
                self._member.announced(term, stretch, self.id)
                herald.call(lambda: None)  # it has a deadline to watch from now on
            case Withdraw(name, term, reason) if name == self._name:
                self._member.withdrawn(term, reason)
            case Release(name, term, why) if name == self._name:
                keeper.release(term, why)
            case DatabaseRewound():
                keeper.put_back()
            case Rejoin():
                logger.warning(
                    "this node was declared dead and comes back under a new identity", extra={"action": "node_rejoins"}
                )
            case _:
                pass


def _on_postgres(store: Store, name: str) -> PostgresStore:
    with suppress(ImportError):  # without the driver there is no such store either
        from tenure.stores.postgres.store import PostgresStore

        if isinstance(store, PostgresStore):
            return store
    raise ConfigurationError(
        f"election {name!r}: mode='advisory' needs PostgreSQL, which holds the lock; {store.shown} has no advisory locks. "
        "Leave mode out: the default mode works on every store."
    )


_NODES: weakref.WeakSet[AdvisoryNode] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for node in list(_NODES):
        node.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
