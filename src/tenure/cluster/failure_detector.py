"""The failure detector finds out which nodes are dead and declares them so (promise G2, seen from the other side).

There are two kinds of proof. Silence: a node's pulse did not change for its whole ttl, by the rules of
`core/liveness.py`. And, among nodes on one host, a free host lock: the kernel frees it when the process ends, and a
pidfd tells at once when to look. Both modes use this detector, but advisory mode goes by silence alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tenure.cluster.lease_state import LeaseState
from tenure.core import liveness
from tenure.core.cluster import Cadence, NodeCard, NodeId, Peer
from tenure.stores import Session, host_lock
from tenure.util.clock import boottime

logger = logging.getLogger("tenure")

PROBE_AGAIN = (0.05, 0.25)
"""Seconds until the next look at the lock of a process that ended while its children still hold it; the second number
applies after two seconds.
"""


@dataclass(slots=True)
class _Probe:
    since: float
    at: float
    ended: bool
    """Its process is known to have ended, or cannot be watched: look again until the lock is free."""


class FailureDetector:
    """What one node knows about the life of the others.

    `directory` holds the host locks; None where they are not evidence.
    """

    def __init__(self, state: LeaseState, cadence: Cadence, directory: Path | None) -> None:
        self._state, self._cadence, self._directory = state, cadence, directory
        self._watches: dict[NodeId, liveness.Watch] = {}
        self._declarations: dict[NodeId, liveness.Declaration] = {}
        self._cards: dict[NodeId, NodeCard] = {}
        self._unknown: set[NodeId] = set()
        self._processes: dict[int, set[NodeId]] = {}
        """A pidfd for each process on this host, and the nodes that live in it."""
        self._probes: dict[NodeId, _Probe] = {}

    @property
    def pidfds(self) -> Iterable[int]:
        """Descriptors to poll: one becomes readable when its process has ended."""
        return self._processes

    def next_at(self) -> Iterable[float]:
        """When to look, or to declare, next."""
        declarations = (declaration.at for declaration in self._declarations.values())
        return [*declarations, *(probe.at for probe in self._probes.values())]

    def observe(self, peers: Sequence[Peer], at: float) -> None:
        """Take in the live nodes that a beat showed."""
        self._watches = liveness.observe(self._watches, peers, at)
        alive = {peer.id for peer in peers}
        for node in [node for node in self._cards if node not in alive]:
            self._part_from(node)
        if self._directory is not None:
            self._unknown |= alive - self._cards.keys()
            watched = set().union(*self._processes.values(), self._probes)
            self._probes.update({node: _Probe(at, at, ended=False) for node in self._cards.keys() - watched})
        silent = liveness.silent(self._watches, alive, self._state.node, self._cadence.heartbeat_every, boottime())
        self._declarations = silent | self._declarations

    def meet_soon(self, node: NodeId) -> None:
        """Read the card of a node that no beat has shown yet."""
        if self._directory is not None and node not in self._cards:
            self._unknown.add(node)

    def watch_anew(self) -> None:
        """What was seen in another database says nothing about this one."""
        self._watches.clear()

    def forget(self) -> None:
        """A new identity starts with an empty memory of the others."""
        self.close()
        for memory in (self._cards, self._probes, self._watches, self._declarations):
            memory.clear()

    def close(self) -> None:
        """Watch no process any more."""
        for fd in self._processes:
            host_lock.forget_process(fd)
        self._processes.clear()

    def process_ended(self, pidfd: int) -> None:
        """A watched process has ended."""
        nodes = self._processes.pop(pidfd)
        host_lock.forget_process(pidfd)
        for node in nodes:
            self._probe_ended(node)

    def turn(self, session: Session) -> None:
        """Read the cards of new nodes, so that their deaths can be proved, and look at locks that may be free."""
        if self._unknown:
            for card in session.cards(self._unknown):
                self._cards[card.id] = card
                self._watch_process(card)
            self._unknown.clear()
        self._probe()

    def declare(
        self, session: Session, succeed: Callable[[Session, NodeId, str], bool | None] | None = None
    ) -> Iterator[NodeId]:
        """Declare nodes dead whose time has come, and yield each one that is not alive any more.

        A leader whose death is proved by its lock is offered to `succeed` first, which may declare it dead and take
        over in one step.
        """
        now = boottime()
        for node, declaration in list(self._declarations.items()):
            if declaration.at > now:
                continue
            del self._declarations[node]
            if not declaration.stands(self._watches.get(node)):
                continue
            declared = succeed(session, node, declaration.why) if succeed and declaration.pulse is None else None
            if declared is None:
                declared = session.declare(node, declaration.pulse, declaration.why)
            if declared:
                label = self._cards[node].label if node in self._cards else node
                logger.info("node %s is dead: %s", label, declaration.why, extra={"action": "node_dead", "node": node})
                if self._directory is not None:
                    host_lock.clear(self._directory, node)
            self._watches.pop(node, None)
            self._part_from(node)
            yield node

    def _watch_process(self, card: NodeCard) -> None:
        if card.host is None or card.host.boot_id != host_lock.boot_id():
            return
        pidfd = host_lock.watch_process(card.host)
        if pidfd is None:
            self._probe_ended(card.id)
            return
        if pidfd in self._processes:
            host_lock.forget_process(pidfd)  # one descriptor for each process is enough
        self._processes.setdefault(pidfd, set()).add(card.id)

    def _part_from(self, node: NodeId) -> None:
        self._cards.pop(node, None)
        self._probes.pop(node, None)
        self._declarations.pop(node, None)
        for fd, nodes in list(self._processes.items()):
            nodes.discard(node)
            if not nodes:
                del self._processes[fd]
                host_lock.forget_process(fd)

    def _probe(self) -> None:
        now = boottime()
        for node, probe in list(self._probes.items()):
            card = self._cards.get(node)
            if probe.at > now:
                continue
            if card is None or card.host is None or self._directory is None:
                del self._probes[node]
                continue
            proof = host_lock.probe(self._directory, node, card.host)
            if proof is host_lock.Proof.DEAD:
                del self._probes[node]
                at = now if probe.ended else now + self._turn_for(node)
                self._declarations[node] = liveness.Declaration(at, None, "its host lock is free")
            elif proof is host_lock.Proof.ALIVE and probe.ended:
                # The process is gone, but children that do its work are not.
                probe.at = now + PROBE_AGAIN[now > probe.since + 2.0]
            else:
                del self._probes[node]

    def _probe_ended(self, node: NodeId) -> None:
        """The first node in rank looks at once. The others look later, when there is usually nothing left to prove."""
        now = boottime()
        self._probes[node] = _Probe(now, now + self._turn_for(node), ended=True)

    def _turn_for(self, node: NodeId) -> float:
        """How long to let other nodes on this host go first if they can prove this death too."""
        here = [card.id for card in self._cards.values() if card.host and card.host.boot_id == host_lock.boot_id()]
        return liveness.turn(here, node, self._state.node, self._cadence.heartbeat_every)
