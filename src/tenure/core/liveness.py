"""Death is watched, not read (G2, from the side of the watchers).

A node declares another one dead after it has seen the same pulse for the watched node's ttl *on its own clock*. The
time counts from the response that first showed that pulse and is summed over the intervals between the watcher's own
successful answers. Each interval counts for at most a quarter of the ttl, so a watcher that was frozen or cut off
itself condemns no other node, and nothing counts after the last answer. No stored time is ever compared with a clock.

The declaring statement compares the pulse once more inside the database. Many watchers see a death at the same time, so
each waits for its rank among the live nodes after the dead one, twenty milliseconds a place, and then looks again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from tenure.core.cluster import MARGIN, NodeId, Peer, Pulse, Vacancy

LARGEST_INTERVAL = 0.25
"""The part of a watched node's ttl that one interval between two answers may count for."""

PLACE = 0.02
"""How many seconds a watcher waits for each watcher before it in rank."""


@dataclass(frozen=True, slots=True)
class Watch:
    """How long one pulse of one node has been seen unchanged."""

    pulse: Pulse
    ttl: float
    since: float
    last: float | None
    """The last answer that showed it; None while it cannot be observed."""
    unchanged: float = 0.0

    @property
    def over(self) -> bool:
        """True if the node has been silent for its whole ttl."""
        return self.unchanged >= self.ttl


Watches = Mapping[NodeId, Watch]


def observe(watches: Watches, peers: Iterable[Peer], now: float) -> dict[NodeId, Watch]:
    """The watches after an answer that arrived at `now`. Nodes that the answer does not show are no longer watched."""
    return {peer.id: watch for peer in peers if (watch := _observed(watches.get(peer.id), peer, now)) is not None}


def rank(alive: Iterable[NodeId], dead: NodeId, watcher: NodeId) -> int:
    """How many live nodes come after the dead one and before the watcher, in the circle of ids."""
    others = sorted(node for node in alive if node not in {dead, watcher})
    if watcher > dead:
        return sum(1 for node in others if dead < node < watcher)
    return sum(1 for node in others if node > dead or node < watcher)


def turn(alive: Iterable[NodeId], dead: NodeId, watcher: NodeId, longest: float) -> float:
    """How many seconds a watcher leaves the declaration to those before it in rank."""
    return min(rank([*alive, watcher], dead, watcher) * PLACE, longest)


@dataclass(frozen=True, slots=True)
class Declaration:
    """A node to declare dead when the watcher's turn has come."""

    at: float
    pulse: Pulse | None
    """The pulse that was seen for too long; None if the proof is not silence."""
    why: str

    def stands(self, seen: Watch | None) -> bool:
        """True if there was no sign of life since."""
        return self.pulse is None or (seen is not None and seen.over and seen.pulse == self.pulse)


def silent(
    watches: Watches, alive: Collection[NodeId], watcher: NodeId, longest: float, now: float
) -> dict[NodeId, Declaration]:
    """The nodes to declare dead for their silence, and when."""
    return {
        node: Declaration(now + turn(alive, node, watcher, longest), seen.pulse, f"silent for {seen.ttl:g} s")
        for node, seen in watches.items()
        if seen.over
    }


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A holder's session lock was seen free at `since`. Ripe when the holder must have stopped believing."""

    vacancy: Vacancy
    since: float

    @property
    def ripe_at(self) -> float:
        """From here on the holder no longer believes that it leads, unless it has beaten since."""
        return self.since + MARGIN * self.vacancy.advert.grace


Suspicions = Mapping[str, Suspicion]


def suspect(suspicions: Suspicions, free: Mapping[str, Vacancy], now: float) -> dict[str, Suspicion]:
    """The suspicions after a check that found these holders' locks free. Any sign of life starts the wait anew."""
    return {
        name: known
        if (known := suspicions.get(name)) is not None and known.vacancy == vacancy
        else Suspicion(vacancy, now)
        for name, vacancy in free.items()
    }


def _observed(watch: Watch | None, peer: Peer, now: float) -> Watch | None:
    if peer.pulse is None:
        return None if watch is None else replace(watch, last=None)
    if watch is None or watch.pulse != peer.pulse:
        return Watch(peer.pulse, peer.ttl, since=now, last=now)
    if watch.last is None:
        return replace(watch, last=now)
    counted = min(max(now - watch.last, 0.0), LARGEST_INTERVAL * peer.ttl)
    return replace(watch, last=now, unchanged=watch.unchanged + counted)
