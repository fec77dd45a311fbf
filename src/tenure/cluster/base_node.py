"""What nodes of both modes share: an identity, the elections entered on it, and the threads that act for it."""

from __future__ import annotations

import logging
import os
import socket
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tenure.cluster.callbacks import CallbackThread
from tenure.cluster.candidate import Candidate, Candidates
from tenure.cluster.heartbeat import Heartbeat, HeartbeatThread
from tenure.cluster.lease_state import NO_NODE, LeaseState
from tenure.cluster.message_loop import MessageLoop
from tenure.cluster.messages import GiveBack, Rewound, TryToWin
from tenure.core.cluster import Cadence, NodeId, Trust
from tenure.core.lease import Action, Announce, DatabaseRewound, Drained, Rejoin, Release, Resign, Withdraw
from tenure.stores import Session, Store
from tenure.util.vital_thread import dead

logger = logging.getLogger("tenure")

GOODBYE = 5.0
"""How many seconds leaving may take at most."""


@dataclass(frozen=True, slots=True)
class NodeParts:
    """The threads of a node that takes part."""

    heartbeat: Heartbeat
    loop: MessageLoop[Any]
    callbacks: CallbackThread
    heartbeat_thread: HeartbeatThread | None = None
    """None in advisory mode, where the loop beats."""


class BaseNode(ABC):
    """One process taking part: who it is, and until when it may act."""

    def __init__(self, store: Store, cadence: Cadence, label: str | None) -> None:
        self.store, self.cadence = store, cadence
        self._given_label = label
        self._state = LeaseState(cadence, self._perform)
        self._candidates = Candidates()
        self._mutex = threading.Lock()
        self._parts: NodeParts | None = None
        _NODES.add(self)

    @property
    def id(self) -> NodeId:
        """The present identity, '' while there is none."""
        return self._state.node

    @property
    def label(self) -> str:
        """A human-readable name."""
        return self._given_label or f"{socket.gethostname()}:{os.getpid()}"

    @property
    def trust(self) -> Trust:
        """Until when this node may act."""
        return self._state.trust

    @property
    def lock_fileno(self) -> int | None:
        """Children that run this node's work inherit this descriptor, so that nothing proves its death while they
        live.
        """
        parts = self._parts
        thread = parts.heartbeat_thread if parts else None
        lock = thread.lock_file if thread else None  # read once: the heartbeat thread may take it away meanwhile
        return lock.fileno() if lock else None

    @property
    def dead_threads(self) -> tuple[str, ...]:
        """The names of this node's threads that died."""
        parts = self._parts
        return dead(parts.heartbeat_thread, parts.loop, parts.callbacks) if parts else ()

    @abstractmethod
    def enter(self, candidate: Candidate) -> None:
        """Take an election in, starting this node if need be. Raises what is wrong with the store."""

    @abstractmethod
    def exit(self, candidate: Candidate) -> None:
        """Let an election go."""

    def session(self) -> Session:
        """A short-lived connection for questions."""
        return self.store.session(f"{self.label}:query", self.cadence.attempt_timeout)

    def look(self, name: str, at: float = 0.0) -> None:
        """Try to win an election, now or at that time."""
        if parts := self._parts:
            parts.loop.post(TryToWin(name, at))

    def resign(self, name: str, term: int, reason: str) -> None:
        """Stop believing in a term; its work is told, and it is given back when it has drained."""
        self._state.step(Resign(name, term, reason))

    def drained(self, name: str, term: int) -> None:
        """The work of a term has stopped."""
        self._state.step(Drained(name, term))

    def tell(self, what: Callable[[], None]) -> None:
        """Call the application on the callback thread."""
        if parts := self._parts:
            parts.callbacks.call(what)

    def forked(self) -> None:
        """In a forked child: take part no more, and hold nothing of the parent's."""
        self._mutex = threading.Lock()
        parts, self._parts = self._parts, None
        self._state.forked()
        if parts:
            if parts.heartbeat_thread:
                parts.heartbeat_thread.abandon()
            parts.loop.abandon()
        candidates = list(self._candidates.values())
        self._candidates.clear()
        for candidate in candidates:
            candidate.forked()

    def _begin(self, parts: NodeParts) -> None:
        """Start the threads and wait for the first beat. Raises what is wrong with the store."""
        self._parts = parts
        try:
            for thread in (parts.callbacks, parts.loop, parts.heartbeat_thread):
                if thread:
                    thread.start()
        except BaseException:  # the system gives us no thread
            self._leave()
            raise
        parts.heartbeat.first.wait()
        if parts.heartbeat.failure is not None:
            self._leave()
            raise parts.heartbeat.failure

    def _leave(self) -> None:
        parts, self._parts = self._parts, None
        if parts is None:
            return
        if parts.loop.begun:
            parts.loop.stop(GOODBYE)
        else:
            parts.loop.abandon()
        if parts.heartbeat_thread:
            parts.heartbeat_thread.leave(GOODBYE)
        parts.callbacks.stop(GOODBYE)
        self._state.become(NO_NODE)

    def _hand_back(self, name: str, term: int) -> None:
        """Give back a term of an election that was stopped while it was being won: it has no work to drain."""
        self._state.step(Resign(name, term, "stopped"))
        self._state.step(Drained(name, term))

    def _perform(self, action: Action) -> None:
        """Do what the lease decided. Called under its mutex: must not block."""
        parts = self._parts
        if parts is None:
            return
        match action:
            case Announce(name, term, trust_period):
                if candidate := self._candidates.get(name):
                    candidate.announced(term, trust_period, self.id)
                else:
                    self._hand_back(name, term)
                parts.callbacks.look_at_clock()
            case Withdraw(name, term, reason):
                if candidate := self._candidates.get(name):
                    candidate.withdrawn(term, reason)
            case Release(name, term, why):
                parts.loop.post(GiveBack(self.id, name, term, why))
            case Rejoin():
                logger.warning(
                    "this node was declared dead and comes back under a new identity", extra={"action": "node_rejoins"}
                )
                if parts.heartbeat_thread:
                    parts.heartbeat_thread.rejoin()
            case DatabaseRewound():
                parts.loop.post(Rewound())


_NODES: weakref.WeakSet[BaseNode] = weakref.WeakSet()


def forget_all_in_child() -> None:
    """In a forked child: no node takes part."""
    for node in list(_NODES):
        try:
            node.forked()
        except Exception:
            logger.exception("a forked child could not let go of a node", extra={"action": "fork_hook_failed"})
