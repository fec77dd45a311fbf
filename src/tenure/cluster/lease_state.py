"""The lease of this process behind a mutex: events in from any thread, actions out in order, trust to be read by everybody."""

from __future__ import annotations

import math
import os
import socket
import threading
from collections.abc import Callable

from tenure.core import lease
from tenure.core.cluster import Cadence, NodeId, Trust
from tenure.core.lease import AcquireSent, Action, Event, Lease, Phase, Resign, Withdraw
from tenure.stores import Session, Store
from tenure.util.clock import boottime

NOBODY = ""


class LeaseState:
    """Drives `lease.step`. Actions are performed under the mutex, so that nobody hears of a loss before the win: they must not block."""

    def __init__(self, cadence: Cadence, perform: Callable[[Action], None]) -> None:
        self._cadence = cadence
        self._perform = perform
        self._mutex = threading.RLock()
        self._lease = Lease(NOBODY, cadence)
        self.trust = Trust(-math.inf, 0)
        """Read without a lock: replaced as a whole, never changed."""

    @property
    def lease(self) -> Lease:
        """The standing as it is now."""
        return self._lease

    @property
    def node(self) -> NodeId:
        """The present identity, '' before the first."""
        return self._lease.node

    def become(self, node: NodeId) -> None:
        """Take on a new identity: nothing of the old one is believed any more."""
        with self._mutex:
            old, self._lease = self._lease, Lease(node, self._cadence, stretch=self._lease.stretch + 1)
            self.trust = self._lease.trust
            for name, hand in old.hands.items():
                if hand.phase is Phase.HELD:
                    self._perform(Withdraw(name, hand.term, "this node has another identity now"))

    def forked(self) -> None:
        """In a forked child: the parent's identity is not ours, and its threads, which may have held the mutex, are not here."""
        self._mutex = threading.RLock()
        self.become(NOBODY)

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

    def open(self, name: str) -> tuple[NodeId, int] | None:
        """Enter an attempt to acquire before it is sent; None if this is no time to try."""
        with self._mutex:
            standing = self._lease
            if name in standing.hands or standing.gone or boottime() >= standing.terms_until:
                return None
            hand = self.step(AcquireSent(name)).hands[name]
            return standing.node, hand.attempt


class BaseNode:
    """A node of either mode, as far as its standing says: who it is, and until when it may act."""

    def __init__(self, store: Store, cadence: Cadence, label: str | None, perform: Callable[[Action], None]) -> None:
        self.store, self.cadence = store, cadence
        self._given_label = label
        self._standing = LeaseState(cadence, perform)

    @property
    def id(self) -> NodeId:
        """The present identity, '' while there is none."""
        return self._standing.node

    @property
    def label(self) -> str:
        """For people."""
        return self._given_label or f"{socket.gethostname()}:{os.getpid()}"

    @property
    def trust(self) -> Trust:
        """Until when this node may act."""
        return self._standing.trust

    def resign(self, name: str, term: int, reason: str) -> None:
        """Stop believing in a term; its work is told, and it is given back when it has drained."""
        self._standing.step(Resign(name, term, reason))

    def session(self) -> Session:
        """A short-lived connection for questions."""
        return self.store.session(f"{self.label}:query", self.cadence.attempt_timeout)
