"""What other threads tell the loop of a node. Each loop matches its messages in one place, `_receive`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tenure.core.cluster import BeatAnswer, NodeId, Vacancy


@dataclass(frozen=True, slots=True)
class BeatRenewed:
    """The database answered a beat at this time, and the lease was renewed."""

    answer: BeatAnswer
    at: float


@dataclass(frozen=True, slots=True)
class LocksChecked:
    """A check found the session locks of these elections' leaders free."""

    free: Mapping[str, Vacancy]
    at: float


@dataclass(frozen=True, slots=True)
class IdentityChanged:
    """The node has a new identity."""


@dataclass(frozen=True, slots=True)
class TryToWin:
    """Try to win this election, now or at that time."""

    name: str
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Give back a term that this identity won."""

    node: NodeId
    name: str
    term: int
    why: str


@dataclass(frozen=True, slots=True)
class WorkStopped:
    """The work of this term has stopped. An identity that was lost with it may be let go."""

    term: int


@dataclass(frozen=True, slots=True)
class Rewound:
    """The database was put back in time: no grants before the epoch is raised."""


@dataclass(frozen=True, slots=True)
class Wake:
    """A service has something to do now."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End, after the messages that came before."""


LoopMessage = BeatRenewed | LocksChecked | IdentityChanged | TryToWin | GiveBack | WorkStopped | Rewound | Wake | Stop
