"""What the live nodes of an application can run, from the facts that they wrote down. Nodes that are silent, although
no other node has declared them dead so far, are left out.

A job is *orphaned* if no live node can run it. This is computed whenever it is asked for, and never stored. It informs
people; whether a node may begin a run is decided by its claim.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tenure.core.causes import Cause
from tenure.core.cluster import NodeId
from tenure.core.messages import Overdue
from tenure.core.records import NodeFacts
from tenure.core.unfit import UnfitArguments
from tenure.util.plurals import several

NAMED = 3
"""How many nodes a sentence names."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Why no live node can run a job."""

    cause: Cause
    text: str
    """A clause: "no live node has its function 'poll'"."""


class Coverage:
    """Which functions run on which queues, by the facts of the live nodes."""

    def __init__(
        self,
        application: str,
        nodes: Sequence[NodeFacts],
        running: Mapping[NodeId, int] | None = None,
        silent: Collection[NodeId] = (),
    ) -> None:
        self.application = application
        self.nodes = tuple(node for node in nodes if node.capacity > 0 and node.node not in silent)
        self._silent = {node.label for node in nodes if node.node in silent}
        self._silent.difference_update(node.label for node in nodes if node.node not in silent)
        self._running = running or {}
        self._queues: dict[str, set[str] | None] = {}
        for node in self.nodes:
            for function in node.functions:
                queues = self._queues.setdefault(function, set())
                if queues is not None and node.queues is not None:
                    queues.update(node.queues)
                else:
                    self._queues[function] = None

    @property
    def served(self) -> list[tuple[str, str | None]]:
        """Each function with each queue on which a live node runs it; None: on any queue."""
        return [
            (function, queue)
            for function, queues in self._queues.items()
            for queue in (sorted(queues) if queues is not None else (None,))
        ]

    @property
    def unfit(self) -> list[UnfitArguments]:
        """The stored arguments that do not fit, as the live nodes have found. Of two nodes that have looked at the same
        function, the one that found more."""
        found: dict[tuple[str, bool], UnfitArguments] = {}
        for one in (one for node in self.nodes for one in node.unfit):
            other = found.get((one.function, one.surely))
            if other is None or one.jobs + one.runs > other.jobs + other.runs:
                found[one.function, one.surely] = one
        return sorted(found.values(), key=lambda one: (not one.surely, one.function))

    def has(self, function: str) -> bool:
        """Whether a live node has this function."""
        return function in self._queues

    def silent(self, label: str) -> bool:
        """Whether the node of this label gives no sign of life, and was not declared dead so far."""
        return label in self._silent

    def gap(self, function: str, queue: str) -> Gap | None:
        """Why no live node can run this; None if one can."""
        if not self.nodes:
            return Gap(Cause.NO_NODE, f"no node of the application {self.application!r} is alive")
        if function not in self._queues:
            return Gap(Cause.NO_FUNCTION, f"no live node has its function {function!r}")
        queues = self._queues[function]
        if queues is None or queue in queues:
            return None
        having = [node.label for node in self.nodes if function in node.functions]
        subject = f"{having[0]}, the only live node that has" if len(having) == 1 else f"{several(having, NAMED)} have"
        so = "does not serve" if len(having) == 1 else "none of them serves"
        joint = ", " if len(having) == 1 else ", but "
        return Gap(Cause.NO_QUEUE, f"{subject} its function {function!r}{joint}{so} its queue {queue!r}")

    def able(self, function: str, queue: str) -> list[NodeFacts]:
        """The live nodes that can run this."""
        return [
            node for node in self.nodes if function in node.functions and (node.queues is None or queue in node.queues)
        ]

    def startable(self, overdue: Iterable[Overdue]) -> list[Overdue]:
        """Those of them that live nodes could have begun. The jobs of the others are orphaned, which says enough."""
        return [one for one in overdue if not self.gap(one.function, one.queue)]

    def late(self, function: str, queue: str) -> Gap:
        """Why a run of this has not begun, although it is due: the one cause that applies."""
        if gap := self.gap(function, queue):
            return gap
        able = self.able(function, queue)
        free = [node for node in able if self._running.get(node.node, 0) < node.capacity]
        if free:
            return Gap(Cause.NOT_CLAIMED, f"{free[0].label} has a free slot for it and has not begun it yet")
        slots = sum(node.capacity for node in able)
        nodes = able[0].label if len(able) == 1 else f"the {len(able)} nodes that can run it"
        return Gap(
            Cause.NO_FREE_SLOT,
            f"the only slot of {nodes} is busy" if slots == 1 else f"all {slots} slots of {nodes} are busy",
        )
