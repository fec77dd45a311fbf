"""What the steps of the scheduler's loop share, and what passes between it and the other threads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tenure.core.cluster import NodeId
from tenure.core.database_clock import DatabaseClock
from tenure.core.messages import Ending
from tenure.core.records import Instant, RunId
from tenure.core.unfit import UnfitArguments
from tenure.jobs.functions import Registry
from tenure.jobs.run_log import LogQueue
from tenure.scheduling.agenda import Agenda
from tenure.scheduling.alert_sender import AlertSender
from tenure.scheduling.attempt import Attempt
from tenure.scheduling.engine_options import EngineOptions
from tenure.util.clock import boottime


class NodeHandle(Protocol):
    """What the loop and the executor need of their node."""

    @property
    def id(self) -> NodeId: ...
    @property
    def label(self) -> str: ...
    @property
    def lease_until(self) -> float: ...
    @property
    def lock_fileno(self) -> int | None: ...
    def wake(self) -> None: ...


class Leadership(Protocol):
    """What the loop needs of the planner's election."""

    @property
    def is_leader(self) -> bool: ...


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


class LoopSignals:
    """What other threads tell the loop, and what it tells the completer."""

    def __init__(self, node: NodeHandle) -> None:
        self._node = node
        self.poked = self.freed = self.owed = self.backfilled = self.sent = False
        self.pressed = False
        """More is due than the last claim brought."""

    def poke(self) -> None:
        """Something was requested or changed: look at once."""
        self.poked = True
        self._node.wake()

    def free(self) -> None:
        """A slot is free, and there was none."""
        self.freed = True
        self._node.wake()

    def owe(self) -> None:
        """A run is over whose followers are owed."""
        self.owed = True
        self._node.wake()

    def backfill(self) -> None:
        """A run is over that a backfill may have requested."""
        self.backfilled = True
        self._node.wake()

    def note_sent(self) -> None:
        """A sink has been told what was claimed for it, or has not accepted it."""
        self.sent = True
        self._node.wake()


class EndingQueue:
    """Endings on their way from the executor's threads to the completer's."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Attempt, Ending]] = deque()
        self.waits_since = 0.0
        self.wake = threading.Event()
        self.logs = LogQueue(self.wake)
        """What bodies log, on the same way."""

    def put(self, attempt: Attempt, ending: Ending) -> None:
        """Send this soon."""
        if not self.waiting:
            self.waits_since = boottime()
        self.waiting.append((attempt, ending))
        if not self.wake.is_set():
            self.wake.set()


@dataclass(slots=True)
class LoopContext:
    """Made once per start. Only the loop changes it."""

    node: NodeHandle
    election: Leadership
    executor: ExecutorView
    registry: Registry
    clock: DatabaseClock
    options: EngineOptions
    signals: LoopSignals
    agenda: Agenda = field(default_factory=Agenda)
    sender: AlertSender | None = None
    """Tells the sinks of this node. None: no alert is looked for."""
    unfit: tuple[UnfitArguments, ...] = ()
    """The stored arguments that did not fit when this node looked last."""
    identity: NodeId = ""
    """The node's id as of the last turn. The node may have another one by now."""
    resting: bool = False
    """This node was asked to stop: it plans and claims no more."""

    @property
    def application(self) -> str:
        return self.options.application

    @property
    def every(self) -> float:
        """Seconds between two reconciliations, and between two claims where nothing is due sooner."""
        return self.options.cadence.heartbeat_every

    @property
    def plans(self) -> bool:
        """Whether this node is the planner."""
        return self.election.is_leader
