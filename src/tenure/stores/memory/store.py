"""The store in memory, for tests and one-process tools. It follows the rules of the others, with a mutex as
database."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from tenure.core.alerts import DeadNode
from tenure.core.cluster import (
    MAX_TTL,
    RELEASED,
    Acquire,
    Acquired,
    AcquireOutcome,
    Beat,
    BeatAnswer,
    BeatVerdict,
    ElectionRow,
    Epoch,
    Identity,
    Leader,
    NodeCard,
    NodeId,
    NodeRecord,
    Peer,
    Pulse,
    TermRecord,
)
from tenure.core.messages import Action
from tenure.errors import ConfigurationError
from tenure.stores.base import Session, Store
from tenure.stores.memory.ledger import MemoryLedger
from tenure.stores.memory.tables import Tables
from tenure.stores.notices import Notice, PeersChanged, Released, ResignRequested, decode, encode
from tenure.util.clock import walltime
from tenure.util.urls import MemoryURL


@dataclass(slots=True)
class _NodeRow:
    card: NodeCard
    joined_at: datetime
    state: Literal["alive", "left", "dead"] = "alive"
    seq: int = 0
    ended_by: str = ""
    ended_at: datetime | None = None
    seen_at: datetime | None = None

    def end(self, state: Literal["left", "dead"], why: str, at: datetime) -> None:
        self.state, self.ended_by, self.ended_at = state, why, at


@dataclass(slots=True)
class _Election:
    term: int = 0
    holder: NodeId | None = None
    held: bool = False
    asked: int | None = None


def _wall() -> float:
    return walltime().timestamp()


@dataclass(slots=True)
class _Database:
    """The data that a server would keep."""

    clock: Callable[[], float] = _wall
    mutex: threading.RLock = field(default_factory=threading.RLock)
    nodes: dict[NodeId, _NodeRow] = field(default_factory=dict)
    elections: dict[str, _Election] = field(default_factory=dict)
    terms: list[TermRecord] = field(default_factory=list)
    epoch: int = 0
    settled: bool = True
    bells: list[int] = field(default_factory=list)
    tables: Tables = field(default_factory=Tables)

    def now(self) -> float:
        return round(self.clock(), 6)

    def moment(self) -> datetime:
        return datetime.fromtimestamp(self.now(), UTC)

    def label(self, node: NodeId) -> str:
        return self.nodes[node].card.label

    def leader(self, election: str) -> NodeId | None:
        row = self.elections.get(election)
        return row.holder if row is not None and row.held else None

    def ttl(self, node: NodeId) -> float:
        return self.nodes[node].card.ttl

    def dead(self) -> list[tuple[NodeId, DeadNode]]:
        return [
            (one, DeadNode(node.card.label, node.ended_at.timestamp(), node.ended_by))
            for one, node in self.nodes.items()
            if node.state == "dead" and node.ended_at is not None
        ]

    def ring(self, notice: Notice) -> None:
        for bell in self.bells:
            try:
                os.write(bell, f"{encode(notice)}\n".encode())
            except BlockingIOError:
                continue

    def alive(self, node: NodeId | None) -> bool:
        return node is not None and node in self.nodes and self.nodes[node].state == "alive"


_DATABASES: dict[str, _Database] = {}
_HERE = Identity("memory", 0, "", "")


class MemoryStore(Store):
    """Equal names share one store in this process. A `clock` (seconds since 1970) replaces its wall clock."""

    def __init__(self, url: MemoryURL, *, clock: Callable[[], float] | None = None) -> None:
        self._url = url
        self._clock = clock

    @property
    def shown(self) -> str:
        return str(self._url)

    @property
    def key(self) -> object:
        return self._url

    @property
    def evidence_directory(self) -> Path | None:
        return None

    def prepare(self) -> None:
        """Nothing to do."""

    def session(self, purpose: str, timeout: float) -> MemorySession:
        del purpose, timeout
        database = _DATABASES.setdefault(self._url.name, _Database())
        if self._clock is not None:
            database.clock = self._clock
        return MemorySession(database)

    def forget(self) -> None:
        """Drop the data under this name. Open sessions keep it."""
        _DATABASES.pop(self._url.name, None)

    def migration(self, since: int = 0) -> str:
        del since
        return "-- The memory store has no tables.\n"


class MemorySession(Session):
    """A view of the shared store."""

    def __init__(self, database: _Database) -> None:
        self._db = database
        self._bell: tuple[int, int] | None = None
        self._ledger = MemoryLedger(database)

    def close(self) -> None:
        with self._db.mutex:
            if self._bell:
                self._db.bells.remove(self._bell[1])
                os.close(self._bell[0])
                os.close(self._bell[1])
                self._bell = None

    def abandon(self) -> None:
        if self._bell:
            os.close(self._bell[0])
            os.close(self._bell[1])

    def listen(self, node: NodeId) -> None:
        del node
        with self._db.mutex:
            if self._bell is None:
                self._bell = os.pipe()
                os.set_blocking(self._bell[0], False)
                os.set_blocking(self._bell[1], False)
                self._db.bells.append(self._bell[1])

    def fileno(self) -> int | None:
        return self._bell[0] if self._bell else None

    def notices(self) -> list[Notice]:
        if self._bell is None:
            return []
        try:
            return [decode(text) for text in os.read(self._bell[0], 65536).decode().split("\n")[:-1]]
        except BlockingIOError:
            return []

    def join(self, card: NodeCard) -> None:
        with self._db.mutex:
            self._db.nodes.setdefault(card.id, _NodeRow(card, self._db.moment()))

    def beat(self, beat: Beat) -> BeatAnswer:
        with self._db.mutex:
            node = self._db.nodes.get(beat.node)
            if node is None or node.state != "alive":
                return BeatAnswer(BeatVerdict.GONE)
            if node.seq >= beat.number:
                return BeatAnswer(BeatVerdict.LATE)
            was, node.seq, node.seen_at = node.seq, beat.number, self._db.moment()
            peers = [
                Peer(i, ("row", n.seq), n.card.ttl)
                for i, n in self._db.nodes.items()
                if n.state == "alive" and i != beat.node
            ]
            rows = [
                ElectionRow(name, e.term, e.holder, e.held, e.asked == e.term, self._db.alive(e.holder))
                for name, e in self._db.elections.items()
                if name in beat.names or (e.held and e.holder == beat.node)
            ]
        return BeatAnswer(BeatVerdict.RENEWED, was, tuple(peers), tuple(rows), self._db.now(), self._db.epoch)

    def leave(self, node: NodeId, why: str) -> None:
        with self._db.mutex:
            if self._db.alive(node):
                self._db.nodes[node].end("left", why, self._db.moment())
            for name, election in self._db.elections.items():
                if election.held and election.holder == node:
                    self.release(node, name, election.term, why)

    def declare(self, dead: NodeId, pulse: Pulse | None, why: str) -> bool:
        with self._db.mutex:
            if (
                not self._db.alive(dead)
                or (pulse is not None and self._db.nodes[dead].seq != pulse[1])
                or not self._db.settled
            ):
                return False
            self._db.nodes[dead].end("dead", why, self._db.moment())
            self._db.ring(PeersChanged())
            return True

    def cards(self, ids: Iterable[NodeId]) -> list[NodeCard]:
        with self._db.mutex:
            return [self._db.nodes[node].card for node in ids if self._db.alive(node)]

    def acquire(self, request: Acquire) -> Acquired:
        if request.mode != "lease":
            raise ConfigurationError(
                "mode: 'advisory' needs PostgreSQL's advisory locks. In memory use the default mode."
            )
        with self._db.mutex:
            if not self._db.alive(request.node):
                return Acquired(AcquireOutcome.GONE)
            if not self._db.settled:
                return Acquired(AcquireOutcome.MOVED)
            election = self._db.elections.setdefault(request.name, _Election())
            if election.holder is None:
                why = "first"
            elif not election.held:
                why = RELEASED
            elif not self._db.alive(election.holder):
                gone = self._db.nodes.get(election.holder)
                why = f"{gone.state}: {gone.ended_by}" if gone else "dead: its row is gone"
            else:
                return Acquired(AcquireOutcome.HELD, holder=election.holder)
            gone_since = self._gone_since(election.holder)
            self._end(request.name, election.term, why)
            election.term, election.holder = max(election.term + 1, self._db.epoch << 20), request.node
            election.held, election.asked = True, None
            self._begin(request, election.term, why, gone_since)
            return Acquired(AcquireOutcome.GRANTED, election.term, request.node, why)

    def release(self, node: NodeId, name: str, term: int, why: str) -> bool:
        with self._db.mutex:
            election = self._db.elections.get(name)
            if election is None or (election.held, election.term, election.holder) != (True, term, node):
                return False
            election.held, election.asked = False, None
            self._end(name, term, why)
            self._db.ring(Released(name))
            return True

    def ask(self, name: str, application: str = "", action: Action | None = None) -> int | None:
        with self._db.mutex:
            election = self._db.elections.get(name)
            if election is None or not election.held:
                return None
            election.asked = election.term
            self._db.tables.note_action(application, name, action, self._db.now())
            self._db.ring(ResignRequested(name))
            return election.term

    def leader(self, name: str) -> Leader | None:
        return next((leader for leader in self.elections() if leader.election == name), None)

    def elections(self) -> list[Leader]:
        with self._db.mutex:
            since = {(record.election, record.number): record.began_at for record in self._db.terms}
            return [
                Leader(
                    name,
                    e.term,
                    e.holder,
                    self._db.nodes[e.holder].card.label,
                    since[name, e.term],
                    self._db.alive(e.holder),
                )
                for name, e in sorted(self._db.elections.items())
                if e.held and e.holder is not None
            ]

    def terms(self, name: str | None, limit: int) -> list[TermRecord]:
        with self._db.mutex:
            return [record for record in reversed(self._db.terms) if name in {None, record.election}][:limit]

    def recent_terms(self, after: str, elections: int, each: int) -> list[TermRecord]:
        with self._db.mutex:
            names = sorted(name for name in self._db.elections if name > after)[:elections]
            return [record for name in names for record in self.terms(name, each)]

    def node_records(self, ended: int) -> list[NodeRecord]:
        with self._db.mutex:
            records = [
                NodeRecord(
                    node,
                    row.card.label,
                    row.state,
                    row.card.ttl,
                    row.joined_at,
                    row.seen_at,
                    row.ended_at,
                    row.ended_by,
                )
                for node, row in self._db.nodes.items()
            ]
        alive = sorted((one for one in records if one.state == "alive"), key=lambda one: (one.label, one.id))
        gone = [one for one in records if one.ended_at is not None]
        gone.sort(key=lambda one: one.ended_at or one.joined_at, reverse=True)
        return [*alive, *gone[:ended]]

    def epoch(self) -> Epoch:
        with self._db.mutex:
            return Epoch(
                self._db.epoch,
                MAX_TTL,
                recorded=_HERE if self._db.settled else replace(_HERE, timeline=-1),
                actual=_HERE,
            )

    def unsettle(self, epoch: Epoch) -> None:
        with self._db.mutex:
            self._db.settled = self._db.settled and self._db.epoch != epoch.number

    def raise_epoch(self, noticed: Epoch) -> bool:
        with self._db.mutex:
            if self.epoch() != noticed:
                return False
            self._db.epoch, self._db.settled = max(self._db.epoch + 1, int(walltime().timestamp())), True
            return True

    def sweep(self) -> None:
        self._ledger.sweep_guards()  # the process ends long before the rest is due for removal

    @property
    def ledger(self) -> MemoryLedger:
        return self._ledger

    def _gone_since(self, holder: NodeId | None) -> datetime | None:
        """The last heartbeat of a holder that is no longer alive."""
        node = None if holder is None else self._db.nodes.get(holder)
        return None if node is None or node.state == "alive" else node.seen_at

    def _begin(self, request: Acquire, term: int, why: str, gone_since: datetime | None) -> None:
        before = next((record for record in reversed(self._db.terms) if record.election == request.name), None)
        now = self._db.moment()
        since = before.ended_at if before and why == RELEASED else gone_since
        gap = None if since is None else now - since
        label = self._db.nodes[request.node].card.label
        self._db.terms.append(
            TermRecord(request.name, term, request.node, label, now, why, None, None, gap and max(gap, timedelta()))
        )

    def _end(self, name: str, term: int, why: str) -> None:
        for index, record in enumerate(self._db.terms):
            if (record.election, record.number) == (name, term) and record.ended_at is None:
                self._db.terms[index] = replace(record, ended_at=self._db.moment(), ended_by=why)
