"""A node: one process taking part, with one heartbeat for everything it holds.

Three threads: the pacemaker beats, the campaign wins and gives back, the herald tells the application. All three meet in `Standing`,
which is the pure lease behind a mutex. Elections of one process that use the same store and cadence share one node.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable
from typing import Protocol

from tenure.cluster.callbacks import CallbackThread
from tenure.cluster.control_loop import Candidacy, ControlLoop, LoopService
from tenure.cluster.heartbeat import HeartbeatThread
from tenure.cluster.lease_state import BaseNode
from tenure.core.cluster import BeatAnswer, Cadence, NodeId, Vacancy
from tenure.core.lease import Action, Announce, DatabaseRewound, Drained, Rejoin, Release, Resign, Withdraw
from tenure.errors import StoreUnavailable
from tenure.stores import Store
from tenure.util.failure_log import FailureLog
from tenure.util.vital_thread import dead

logger = logging.getLogger("tenure")

GOODBYE = 5.0
"""How long leaving may take at most."""


class Candidate(Protocol):
    """What an election is to its node. Called under the node's mutex: must not block."""

    name: str
    fenced: bool

    def ready_at(self) -> float | None:
        """From when on this election wants to be won; None if it does not want to."""

    def announced(self, term: int, stretch: int, node: NodeId) -> None:
        """A term was won."""

    def withdrawn(self, term: int, reason: str) -> None:
        """Belief is off."""

    def refused(self) -> None:
        """A try to win was answered with no."""

    def forked(self) -> None:
        """This is a forked child now."""


class Node(BaseNode):
    """This process in the eyes of the others. Starts when the first election enters and leaves with the last."""

    def __init__(
        self,
        store: Store,
        cadence: Cadence,
        *,
        label: str | None = None,
        host_evidence: bool = True,
        session_evidence: bool = True,
    ) -> None:
        super().__init__(store, cadence, label, self._perform)
        self._host_evidence, self._session_evidence = host_evidence, session_evidence
        self._members: dict[str, Candidate] = {}
        self._duties: tuple[LoopService, ...] = ()
        self._mutex = threading.Lock()
        self._threads: tuple[HeartbeatThread, ControlLoop, CallbackThread] | None = None
        _NODES.add(self)

    @property
    def lease_until(self) -> float:
        """Until when this node's runs are its own; terms may end sooner, because sessions are evidence for them."""
        return self._standing.lease.until

    @property
    def lock_fileno(self) -> int | None:
        """The descriptor that children inherit which run this node's work, so that its death is not proved while they live."""
        lock = self._threads[0].lock_file if self._threads else None
        return lock.fileno() if lock else None

    @property
    def dead_threads(self) -> tuple[str, ...]:
        """The names of this node's threads that died."""
        return dead(*self._threads) if self._threads else ()

    def enter(self, member: Candidate) -> None:
        """Take an election in, starting this node if need be. Raises what is wrong with the store."""
        with self._mutex:
            if member.name in self._members and self._members[member.name] is not member:
                raise StoreUnavailable(
                    f"election {member.name!r} is already entered by this process with the same settings"
                )
            if self._threads is None:
                self._start()
            self._members[member.name] = member
        self.look(member.name)

    def exit(self, member: Candidate) -> None:
        """Let an election go, leaving with the last one."""
        with self._mutex:
            self._members.pop(member.name, None)
            if not self._members:
                self._leave()
            elif (hand := self._standing.lease.hands.get(member.name)) is not None:
                self._hand_back(member.name, hand.term)

    def serve(self, duty: LoopService) -> None:
        """Call this from now on, on the campaign's thread and over its connection, while this node takes part."""
        with self._mutex:
            self._duties = (*self._duties, duty)
        self.wake()

    def unserve(self, duty: LoopService) -> None:
        """Call it no more; a turn that has begun goes on to its end."""
        with self._mutex:
            self._duties = tuple(other for other in self._duties if other is not duty)

    def wake(self) -> None:
        """A duty has something to do now."""
        if self._threads:
            self._threads[1].wake()

    def look(self, name: str, at: float = 0.0) -> None:
        """Try to win an election, now or at that time."""
        if self._threads:
            self._threads[1].look(name, at)

    def drained(self, name: str, term: int) -> None:
        """The work of a term has stopped."""
        self._standing.step(Drained(name, term))

    def tell(self, what: Callable[[], None]) -> None:
        """Call the application on the herald's thread."""
        if self._threads:
            self._threads[2].call(what)

    def forked(self) -> None:
        """In a forked child: nobody, with nothing of the parent's in hand."""
        self._mutex = threading.Lock()
        threads, self._threads = self._threads, None
        self._standing.forked()
        if threads:
            threads[0].abandon()
            threads[1].abandon()
        members, self._members, self._duties = self._members, {}, ()
        for member in members.values():
            member.forked()

    def _start(self) -> None:
        self.store.prepare()
        label = self.label
        quiet = FailureLog(logger, self.store.shown)
        herald = CallbackThread(self._standing, label)
        pacemaker = HeartbeatThread(
            self.store,
            self._standing,
            self.cadence,
            label=label,
            quiet=quiet,
            host_evidence=self._host_evidence,
            session_evidence=self._session_evidence,
            names=self._names,
            on_beat=self._beaten,
            on_check=self._checked,
            on_joined=self._joined,
        )
        campaign = ControlLoop(
            self.store,
            self._standing,
            self.cadence,
            label=label,
            quiet=quiet,
            candidacy=self._candidacy,
            names=self._names,
            refused=self._refused,
            beat_now=pacemaker.beat_now,
            duties=lambda: self._duties,
            host_evidence=self._host_evidence,
        )
        self._threads = pacemaker, campaign, herald
        try:
            herald.start()
            campaign.start()
            pacemaker.start()
        except BaseException:  # the system gives us no thread
            self._leave()
            raise
        pacemaker.first.wait()
        if pacemaker.failure is not None:
            self._leave()
            raise pacemaker.failure
        logger.info("node %s joined %s", label, self.store.shown, extra={"action": "node_joined", "node": self.id})

    def _leave(self) -> None:
        threads, self._threads = self._threads, None
        if threads is None:
            return
        pacemaker, campaign, herald = threads
        if campaign.begun:
            campaign.stop(GOODBYE)
        else:
            campaign.abandon()
        pacemaker.leave("left", GOODBYE)
        herald.stop(GOODBYE)
        self._standing.become("")

    def _hand_back(self, name: str, term: int) -> None:
        """An election that was stopped while it was being won: nobody else will drain its term."""
        self._standing.step(Resign(name, term, "stopped"))
        self._standing.step(Drained(name, term))

    def _names(self) -> tuple[str, ...]:
        """The elections for which this node is a candidate."""
        return tuple(name for name, member in list(self._members.items()) if member.ready_at() is not None)

    def _candidacy(self, name: str) -> Candidacy | None:
        member = self._members.get(name)
        ready_at = member.ready_at() if member else None
        return None if member is None or ready_at is None else Candidacy(name, member.fenced, ready_at)

    def _refused(self, name: str) -> None:
        if name in self._members:
            self._members[name].refused()

    def _beaten(self, answer: BeatAnswer, at: float) -> None:
        if self._threads:
            self._threads[1].observed(answer, at)

    def _checked(self, free: dict[str, Vacancy], at: float) -> None:
        if self._threads:
            self._threads[1].checked(free, at)

    def _joined(self, node: NodeId) -> None:
        del node
        if self._threads:
            self._threads[1].rejoined()

    def _perform(self, action: Action) -> None:
        if self._threads is None:
            return
        pacemaker, campaign, herald = self._threads
        match action:
            case Announce(name, term, stretch):
                if name in self._members:
                    self._members[name].announced(term, stretch, self.id)
                else:
                    self._hand_back(name, term)
                herald.call(lambda: None)  # it has a deadline to watch from now on
            case Withdraw(name, term, reason):
                if name in self._members:
                    self._members[name].withdrawn(term, reason)
            case Release(name, term, why):
                campaign.release(name, term, why)
            case Rejoin():
                logger.warning(
                    "this node was declared dead and comes back under a new identity", extra={"action": "node_rejoins"}
                )
                pacemaker.rejoin()
            case DatabaseRewound():
                campaign.put_back()


_NODES: weakref.WeakSet[Node] = weakref.WeakSet()
_SHARED: dict[object, Node] = {}
_SHARED_MUTEX = threading.Lock()


def shared(key: object, make: Callable[[], Node]) -> Node:
    """The node of this process for a store and a cadence."""
    with _SHARED_MUTEX:
        if key not in _SHARED:
            _SHARED[key] = make()
        return _SHARED[key]


def retire(node: Node) -> None:
    """From now on nobody who asks is given this node; it goes on for those who have it, and leaves with the last of them."""
    with _SHARED_MUTEX:
        for key in [key for key, kept in _SHARED.items() if kept is node]:
            del _SHARED[key]


def _after_fork_in_child() -> None:
    global _SHARED_MUTEX  # noqa: PLW0603 - another thread of the parent may have held it
    _SHARED_MUTEX = threading.Lock()
    for node in list(_NODES):
        node.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
