"""What the steps of the scheduler's loop share, and what they need of the node and of the executor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tenure.core.cluster import NodeId
from tenure.core.database_clock import DatabaseClock
from tenure.core.records import Instant, RunId
from tenure.jobs.functions import Registry
from tenure.scheduling.agenda import Agenda
from tenure.scheduling.attempt import Attempt


class NodeView(Protocol):
    """What the loop needs of its node."""

    @property
    def id(self) -> NodeId: ...
    @property
    def lease_until(self) -> float: ...
    def wake(self) -> None: ...


class ExecutorView(Protocol):
    """What the loop needs of the executor."""

    def room(self) -> int: ...
    @property
    def in_hand(self) -> dict[RunId, Attempt]: ...
    def no_loop(self) -> str: ...
    def take(self, attempts: Sequence[Attempt]) -> int: ...
    def ask_to_end(self, run: RunId, token: str, why: str) -> None: ...
    def lose(self, attempts: Sequence[Attempt], why: str) -> None: ...
    def withhold(self, held: Sequence[tuple[RunId, str]]) -> tuple[list[tuple[RunId, str, Instant]], bool]: ...
    def give_back(self, older_than: float) -> None: ...
    def end_abandoned(self) -> None: ...


@dataclass(slots=True)
class LoopContext:
    """Made by the loop. Only the loop changes it."""

    node: NodeView
    executor: ExecutorView
    registry: Registry
    clock: DatabaseClock
    application: str
    every: float
    """Seconds between two reconciliations, and between two claims where nothing is due sooner."""
    plans: Callable[[], bool]
    """Whether this node is the planner."""
    agenda: Agenda = field(default_factory=Agenda)
    identity: NodeId = ""
    """The node's id as of the last turn. The node may have another one by now."""
    resting: bool = False
    """This node was asked to stop: it plans and claims no more."""
