"""The lease of this node behind a mutex: events come in from any thread, and actions go out in order."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from tenure.core import lease
from tenure.core.cluster import Acquired, AcquireOutcome, Cadence, NodeId, Trust
from tenure.core.lease import AcquireAnswered, AcquireFailed, AcquireSent, Action, Event, Lease, Phase, Withdraw
from tenure.util.clock import boottime

NO_NODE = ""
"""The identity of a node that has none."""


class LeaseState:
    """Drives `lease.step`.

    Performs actions under the mutex, so that a loss is never told before its win: they must not block.
    """

    def __init__(self, cadence: Cadence, perform: Callable[[Action], None]) -> None:
        self._cadence = cadence
        self._perform = perform
        self._mutex = threading.RLock()
        self._lease = Lease(NO_NODE, cadence)
        self.trust = Trust(-math.inf, 0)
        """Read without a lock: replaced as a whole, never changed."""

    @property
    def lease(self) -> Lease:
        """The lease as it is now."""
        return self._lease

    @property
    def node(self) -> NodeId:
        """The present identity, '' before the first."""
        return self._lease.node

    def become(self, node: NodeId) -> None:
        """Take on a new identity: nothing of the old one is believed any more."""
        with self._mutex:
            old, self._lease = self._lease, Lease(node, self._cadence, trust_period=self._lease.trust_period + 1)
            self.trust = self._lease.trust
            for name, holding in old.holdings.items():
                if holding.phase is Phase.HELD:
                    self._perform(Withdraw(name, holding.term, "this node has another identity now"))

    def forked(self) -> None:
        """In a forked child: drop the parent's identity, and the mutex, which a thread of the parent may have held."""
        self._mutex = threading.RLock()
        self.become(NO_NODE)

    def step(self, event: Event, *, only: NodeId | None = None) -> Lease:
        """Take an event in; `only` drops it unless the identity is still the one that it speaks of."""
        with self._mutex:
            if only is not None and only != self._lease.node:
                return self._lease
            self._lease, actions = lease.step(self._lease, event, boottime())
            self.trust = self._lease.trust
            for action in actions:
                self._perform(action)
            return self._lease

    def acquire(self, name: str, send: Callable[[NodeId], Acquired]) -> Acquired | None:
        """Try to win: enter the attempt, send it, take its answer in. None if this is not the time to try."""
        opened = self._open(name)
        if opened is None:
            return None
        node, attempt = opened
        try:
            answer = send(node)
        except BaseException:
            self.step(AcquireFailed(name, attempt), only=node)
            raise
        granted = answer.outcome is AcquireOutcome.GRANTED
        self.step(AcquireAnswered(name, attempt, answer.term if granted else None), only=node)
        return answer

    def _open(self, name: str) -> tuple[NodeId, int] | None:
        with self._mutex:
            lease = self._lease
            if name in lease.holdings or lease.gone or boottime() >= lease.terms_until:
                return None
            return lease.node, self.step(AcquireSent(name)).holdings[name].attempt
