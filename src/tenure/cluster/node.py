"""A node: one process taking part, with one heartbeat for everything it holds.

Three threads act for it: the heartbeat keeps the lease, the control loop wins elections, detects failures and runs
services such as the scheduler, and the callback thread tells the application. They meet in `LeaseState`, the pure
lease behind a mutex. Elections of one process that use the same store and cadence share one node.
"""

from __future__ import annotations

import functools
import logging
import threading

from tenure.cluster import base_node
from tenure.cluster.base_node import BaseNode, NodeParts
from tenure.cluster.callbacks import CallbackThread
from tenure.cluster.candidate import Candidate
from tenure.cluster.control_loop import ControlLoop, LoopService
from tenure.cluster.heartbeat import BeatWatcher, Heartbeat, HeartbeatThread
from tenure.cluster.messages import Wake
from tenure.core.cluster import Cadence
from tenure.errors import StoreUnavailable
from tenure.stores import Store
from tenure.util.clock import boottime
from tenure.util.failure_log import FailureLog
from tenure.util.fork import ForkOrder, in_child

logger = logging.getLogger("tenure")

STALLED, AT_LEAST = 3.0, 10.0
"""How many heartbeats a thread that should beat may miss before it has stalled, and the least seconds for that:
connecting may take longer than a statement, and a URL may name several hosts."""


class Node(BaseNode):
    """This process as the other nodes see it. Starts when the first election enters and leaves with the last."""

    def __init__(
        self,
        store: Store,
        cadence: Cadence,
        *,
        label: str | None = None,
        host_evidence: bool = True,
        session_evidence: bool = True,
    ) -> None:
        self._host_evidence, self._session_evidence = host_evidence, session_evidence
        self._services: list[LoopService] = []
        self._watchers: list[BeatWatcher] = []
        self._failures: FailureLog | None = None
        super().__init__(store, cadence, label)

    @property
    def lease_until(self) -> float:
        """Until when this node's runs are its own; terms may end sooner, because sessions are evidence for them."""
        return self._state.lease.until

    def enter(self, candidate: Candidate) -> None:
        with self._mutex:
            if self._candidates.get(candidate.name, candidate) is not candidate:
                raise StoreUnavailable(
                    f"election {candidate.name!r} is already entered by this process with the same settings"
                )
            if self._parts is None:
                self._start()
            self._candidates[candidate.name] = candidate
        self.look(candidate.name)

    def exit(self, candidate: Candidate) -> None:
        """Let an election go, leaving with the last one."""
        with self._mutex:
            self._candidates.pop(candidate.name, None)
            if not self._candidates:
                self._leave()
            elif (holding := self._state.lease.holdings.get(candidate.name)) is not None:
                self._hand_back(candidate.name, holding.term)

    def serve(self, service: LoopService) -> None:
        """Let the control loop call this from now on, on its thread and over its connection, while this node takes
        part.
        """
        with self._mutex:
            self._services.append(service)
        self.wake()

    def unserve(self, service: LoopService) -> None:
        """Call it no more; a turn that has begun goes on to its end."""
        with self._mutex:
            self._services[:] = [other for other in self._services if other is not service]

    def watch_beats(self, watcher: BeatWatcher) -> None:
        """Tell this function of each beat, on the callback thread."""
        if watcher not in self._watchers:
            self._watchers.append(watcher)

    def _told(self, result: str, took: float) -> None:
        """A beat has ended. Called on the thread that beats, which must not wait for watchers."""
        for watcher in self._watchers:
            self.tell(functools.partial(watcher, result, took))

    @property
    def stalled(self) -> bool:
        """True if the thread that beats has not moved for three heartbeats. It moves whatever the store does: all that
        it waits for has a timeout."""
        parts = self._parts
        limit = max(STALLED * max(self.cadence.heartbeat_every, self.cadence.attempt_timeout), AT_LEAST)
        return parts is not None and boottime() - parts.heartbeat.moved_at > limit

    @property
    def problem(self) -> str:
        """What fails at the moment between this node and its store; '' if nothing does."""
        failures = self._failures
        return "" if failures is None else failures.problem

    def wake(self) -> None:
        """A service has something to do now."""
        if parts := self._parts:
            parts.loop.post(Wake())

    def forked(self) -> None:
        self._services.clear()
        super().forked()

    def _start(self) -> None:
        self.store.prepare()
        label = self.label
        self._failures = failures = FailureLog(logger, self.store.shown)
        heartbeat = Heartbeat(self._state, self.cadence, self.store.shown, self._told)
        loop = ControlLoop(
            self.store,
            self._state,
            self.cadence,
            self._candidates,
            self._services,
            label=label,
            failures=failures,
            beat_now=heartbeat.beat_now,
            host_evidence=self._host_evidence,
        )
        thread = HeartbeatThread(
            self.store,
            self._state,
            self.cadence,
            self._candidates,
            heartbeat=heartbeat,
            loop=loop,
            label=label,
            failures=failures,
            host_evidence=self._host_evidence,
            session_evidence=self._session_evidence,
        )
        self._begin(NodeParts(heartbeat, loop, CallbackThread(self._state, label), thread))
        logger.info("node %s joined %s", label, self.store.shown, extra={"action": "node_joined", "node": self.id})


_SHARED: dict[object, Node] = {}
_SHARED_MUTEX = threading.Lock()


def shared(
    store: Store, cadence: Cadence, label: str | None, *, host_evidence: bool = True, session_evidence: bool = True
) -> Node:
    """The node of this process for these settings, shared by all that use them."""
    key = (type(store), store.key, cadence, label, host_evidence, session_evidence)
    with _SHARED_MUTEX:
        if key not in _SHARED:
            _SHARED[key] = Node(
                store, cadence, label=label, host_evidence=host_evidence, session_evidence=session_evidence
            )
        return _SHARED[key]


def retire(node: Node) -> None:
    """Share this node no more. It goes on for those who have it, and leaves with the last of them."""
    with _SHARED_MUTEX:
        for key in [key for key, kept in _SHARED.items() if kept is node]:
            del _SHARED[key]


@in_child(ForkOrder.NODES)
def _after_fork_in_child() -> None:
    global _SHARED_MUTEX  # noqa: PLW0603 - another thread of the parent may have held it
    _SHARED_MUTEX = threading.Lock()
    base_node.forget_all_in_child()
