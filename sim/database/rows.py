"""What the database keeps: nodes, elections, the epoch, and the ledger's tables.

One instant's work each; `server.py` says who may do it when.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sim.runtime import copies
from sim.runtime.fakes import WALL
from sim.runtime.kernel import K
from tenure.core.cluster import (
    Acquire,
    Acquired,
    AcquireOutcome,
    Advert,
    Beat,
    BeatAnswer,
    BeatVerdict,
    ElectionRow,
    Epoch,
    Identity,
    NodeCard,
    NodeId,
    Peer,
    Vacancy,
)
from tenure.core.records import Instant
from tenure.stores.notices import Notice, PeersChanged, Released, ResignRequested


@dataclass(slots=True)
class NodeRow:
    card: NodeCard
    state: str = "alive"
    seq: int = 0
    advert: Advert | None = None
    renewed_at: float = 0.0


@dataclass(slots=True)
class ElectionState:
    term: int = 0
    holder: NodeId | None = None
    held: bool = False
    asked: int | None = None
    fenced: bool = False


class NoMutex:
    """One instant's work needs none."""

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


@dataclass(slots=True)
class Clock:
    """The server's clock: it steps, and it has its own rate."""

    ahead: float = 0.0
    rate: float = 1.0

    def now(self) -> Instant:
        return round(WALL + self.ahead + self.rate * K.now, 6)


@dataclass(slots=True)
class Rows:
    """All tables."""

    clock: Clock
    ring: Callable[[Notice], None]
    max_ttl: float
    mutex: NoMutex = field(default_factory=NoMutex)
    nodes: dict[NodeId, NodeRow] = field(default_factory=dict)
    elections: dict[str, ElectionState] = field(default_factory=dict)
    epoch: int = 0
    recorded: int = 1
    """The timeline that the epoch was written for."""
    tables: Any = field(default_factory=copies.memory_tables.Tables)
    effects: dict[tuple[int, str], str] = field(default_factory=dict)
    ledger: Any = None

    def __post_init__(self) -> None:
        self.ledger = copies.memory_ledger.MemoryLedger(self)

    def copy(self) -> Rows:
        """As a replica has it."""
        other = Rows(self.clock, self.ring, self.max_ttl)
        other.nodes = copy.deepcopy(self.nodes)
        other.elections = copy.deepcopy(self.elections)
        other.epoch, other.recorded = self.epoch, self.recorded
        kept = {id(row): row for row in self.tables.jobs.values()}
        other.tables = copy.deepcopy(self.tables, kept)
        other.effects = dict(self.effects)
        other.ledger = copies.memory_ledger.MemoryLedger(other)
        return other

    # What the ledger asks of the store around it

    def now(self) -> Instant:
        return self.clock.now()

    def alive(self, node: NodeId | None) -> bool:
        row = self.nodes.get(node) if node is not None else None
        return row is not None and row.state == "alive"

    def label(self, node: NodeId) -> str:
        row = self.nodes.get(node)  # a replica may not know it yet
        return "" if row is None else row.card.label

    def leader(self, election: str) -> NodeId | None:
        row = self.elections.get(election)
        return row.holder if row is not None and row.held else None

    def ttl(self, node: NodeId) -> float:
        return self.nodes[node].card.ttl

    # Nodes

    def join(self, card: NodeCard) -> None:
        self.nodes.setdefault(card.id, NodeRow(card))

    def shown(self, beat: Beat) -> tuple[int, tuple[Peer, ...], tuple[ElectionRow, ...], int]:
        """What a beat brings: a snapshot from before its own change."""
        own = self.nodes.get(beat.node)
        peers = tuple(
            Peer(i, ("row", n.seq), n.card.ttl) for i, n in self.nodes.items() if n.state == "alive" and i != beat.node
        )
        rows = tuple(
            self._row(name, e)
            for name, e in self.elections.items()
            if name in beat.names or (e.held and e.holder == beat.node)
        )
        return own.seq if own else 0, peers, rows, self.epoch

    def _row(self, name: str, e: ElectionState) -> ElectionRow:
        holder = self.nodes.get(e.holder) if e.holder else None
        if holder is None or holder.state != "alive":
            return ElectionRow(name, e.term, e.holder, e.held, e.asked == e.term)
        return ElectionRow(
            name, e.term, e.holder, e.held, e.asked == e.term, holder_alive=True, holder_seq=holder.seq,
            holder_advert=holder.advert,
        )  # fmt: skip

    def beat(self, beat: Beat, snapshot: tuple[int, tuple[Peer, ...], tuple[ElectionRow, ...], int]) -> BeatAnswer:
        node = self.nodes.get(beat.node)
        if node is None or node.state != "alive":
            return BeatAnswer(BeatVerdict.GONE)
        if node.seq >= beat.number:
            return BeatAnswer(BeatVerdict.LATE)
        node.seq, node.advert, node.renewed_at = beat.number, beat.advert, self.now()
        was, peers, rows, epoch = snapshot
        return BeatAnswer(BeatVerdict.RENEWED, was, peers, rows, self.now(), epoch)

    def leave(self, node: NodeId) -> None:
        if self.alive(node):
            self.nodes[node].state = "left"
        for name, election in self.elections.items():
            if election.held and election.holder == node:
                self.release(node, name, election.term)

    def declarable(self, dead: NodeId, seq: int | None, timeline: int) -> bool:
        return self.settled(timeline) and self.alive(dead) and (seq is None or self.nodes[dead].seq == seq)

    def declare(self, dead: NodeId) -> None:
        self.nodes[dead].state = "dead"
        self.ring(PeersChanged())

    # Elections

    def settled(self, timeline: int) -> bool:
        return self.recorded == timeline

    def vacancy(self, request: Acquire, free: Callable[[NodeId, Advert], bool]) -> str | None:
        """Why this candidate may have the election; None if it may not."""
        e = self.elections.setdefault(request.name, ElectionState())
        if e.holder is None:
            return "first"
        if not e.held:
            return "released"
        holder = self.nodes.get(e.holder)
        if holder is None or holder.state != "alive":
            return "dead"
        seen = request.vanished
        if (
            seen is not None
            and holder.advert is not None
            and seen == Vacancy(e.term, e.holder, holder.seq, holder.advert)
        ):
            return "session ended"
        if request.fenced and e.fenced and holder.advert is not None and free(e.holder, holder.advert):
            return "session lock free"
        return None

    def grant(self, request: Acquire) -> Acquired:
        e = self.elections[request.name]
        e.term, e.holder = self.next_term(e), request.node
        e.held, e.asked, e.fenced = True, None, request.fenced
        return Acquired(AcquireOutcome.GRANTED, e.term, request.node)

    def next_term(self, e: ElectionState) -> int:
        return max(e.term + 1, self.epoch << 20)

    def release(self, node: NodeId, name: str, term: int) -> bool:
        e = self.elections.get(name)
        if e is None or (e.held, e.term, e.holder) != (True, term, node):
            return False
        e.held, e.asked = False, None
        self.ring(Released(name))
        return True

    def ask(self, name: str) -> None:
        e = self.elections.get(name)
        if e is not None and e.held:
            e.asked = e.term
            self.ring(ResignRequested(name))

    def fenced_by(self, name: str, term: int, node: NodeId) -> bool:
        """Whether a transaction that is fenced so may commit."""
        e = self.elections.get(name)
        return e is not None and (e.held, e.term, e.holder) == (True, term, node)

    # The epoch

    def epoch_row(self, timeline: int) -> Epoch:
        return Epoch(
            self.epoch, self.max_ttl, Identity("one", self.recorded, "", ""), Identity("one", timeline, "", "")
        )

    def unsettle(self, epoch: Epoch) -> None:
        if self.epoch == epoch.number:
            self.recorded = -1

    def raise_epoch(self, noticed: Epoch, timeline: int) -> bool:
        if self.epoch_row(timeline) != noticed:
            return False
        self.epoch, self.recorded = max(self.epoch + 1, int(self.now())), timeline
        return True
