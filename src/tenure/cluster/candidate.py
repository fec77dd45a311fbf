"""An election as its node sees it."""

from __future__ import annotations

from typing import Protocol

from tenure.core.cluster import NodeId


class Candidate(Protocol):
    """What an election is to its node. Called under the mutex of the lease: must not block."""

    name: str
    fenced: bool

    def ready_at(self) -> float | None:
        """From when on this election wants to be won; None if it does not want to."""

    def announced(self, term: int, trust_period: int, node: NodeId) -> None:
        """A term was won."""

    def withdrawn(self, term: int, reason: str) -> None:
        """The term is not believed in any more."""

    def refused(self) -> None:
        """An attempt to win was refused."""

    def forked(self) -> None:
        """This is a forked child now."""


class Candidates(dict[str, Candidate]):
    """The elections that were entered on a node, by name."""

    def wanted(self) -> tuple[str, ...]:
        """The elections that this node wants to win now or later."""
        return tuple(name for name, candidate in list(self.items()) if candidate.ready_at() is not None)
