"""Advisory mode: PostgreSQL itself holds the lock (promises G1 and G2, for those who want a lock and not a lease).

One dedicated connection, one thread, one election. The connection holds two session locks, that of its node and,
while it leads or is about to, that of the election; the node's row, its beats and the grant go over the same
connection. So all of it lives and dies together: **one session, one identity**. A session that is lost takes its
identity with it. The next session starts with a new identity, and says goodbye for the old one as soon as the work of
its last term has stopped.

The state machine is that of leases (`lease.step` behind `LeaseState`). Only what feeds it differs:

- The node's advertised session lock is always in force, and a *check* is a look into `pg_locks`, by pid and database,
  that finds the election's lock. So belief ends at the start of the last good check + `session_grace`, and at the
  beat bound `s + 0.8 ttl`, whichever comes first; both are read before sending.
- A beat is sent only after a check on the same connection, with nothing in between: the row is never refreshed by a
  node without the lock. There is no second connection to fall back on, so an exchange is given up no sooner than
  belief would end anyway.
- No node is granted a term without the lock. A node that gets it while the row still names a live holder waits
  `1.25 · session_grace` of that holder, and then the grant compares term, holder, count and nonce, as for session
  evidence. If the term was released, is the first, or its holder was declared dead, there is no wait: no node believes
  in it any more.
- A lock that is held by a session whose node is not alive (frozen, or cut off behind a network that keeps the socket
  open) is freed by `pg_terminate_backend`. The node was declared dead first, by the rule of silence in
  `core/liveness.py`; no stored time is ever looked at. If the server refuses, the loop logs that and tries the lock
  again and again.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from tenure.cluster.advisory_loop import AdvisoryLoop
from tenure.cluster.base_node import BaseNode, NodeParts
from tenure.cluster.callbacks import CallbackThread
from tenure.cluster.candidate import Candidate
from tenure.cluster.heartbeat import Heartbeat
from tenure.cluster.messages import WorkStopped
from tenure.core.cluster import Cadence
from tenure.errors import ConfigurationError
from tenure.stores import Store
from tenure.util.failure_log import FailureLog

if TYPE_CHECKING:
    from tenure.stores.postgres.store import PostgresStore

logger = logging.getLogger("tenure")


class AdvisoryNode(BaseNode):
    """The node of one election whose lock PostgreSQL holds."""

    def __init__(self, store: Store, cadence: Cadence, name: str, *, label: str | None = None) -> None:
        self._postgres, self._name = _on_postgres(store, name), name
        super().__init__(store, cadence, label)

    def enter(self, candidate: Candidate) -> None:
        """Take the election in and start. Raises where advisory locks mean nothing, too."""
        with self._mutex:
            if self._candidates.get(self._name, candidate) is not candidate:
                raise ConfigurationError(
                    f"election {self._name!r} in advisory mode has a connection of its own, which is taken"
                )
            if self._parts is None:
                self._start(candidate)

    def exit(self, candidate: Candidate) -> None:
        with self._mutex:
            self._leave()
            self._candidates.pop(candidate.name, None)

    def drained(self, name: str, term: int) -> None:
        super().drained(name, term)
        if parts := self._parts:
            parts.loop.post(WorkStopped(term))

    def _start(self, candidate: Candidate) -> None:
        self.store.prepare()
        if self._postgres.pooled:
            raise ConfigurationError(
                f"election {self._name!r}: mode='advisory' does not work through a pooler, and one stands before "
                f"{self.store.shown}: a pooler lends server connections out, so that the lock would stay with one that "
                "others use, or vanish under a living leader. Connect to the server directly, or leave mode out: the "
                "default mode needs no session."
            )
        label = self.label
        heartbeat = Heartbeat(self._state, self.cadence, self.store.shown)
        loop = AdvisoryLoop(
            self._postgres,
            self._state,
            self.cadence,
            candidate,
            heartbeat,
            label=label,
            failures=FailureLog(logger, self.store.shown),
        )
        self._candidates[self._name] = candidate
        try:
            self._begin(NodeParts(heartbeat, loop, CallbackThread(self._state, label)))
        except BaseException:
            self._candidates.clear()
            raise
        logger.info(
            "node %s joined %s for election %r in advisory mode",
            label,
            self.store.shown,
            self._name,
            extra={"action": "node_joined", "node": self.id},
        )


def _on_postgres(store: Store, name: str) -> PostgresStore:
    with suppress(ImportError):  # without the driver there is no such store either
        from tenure.stores.postgres.store import PostgresStore

        if isinstance(store, PostgresStore):
            return store
    raise ConfigurationError(
        f"election {name!r}: mode='advisory' needs PostgreSQL, which holds the lock; {store.shown} has no advisory "
        "locks. Leave mode out: the default mode works on every store."
    )
