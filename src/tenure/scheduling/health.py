"""How a scheduler is, for health checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tenure.core.cluster import NodeId
from tenure.jobs.functions import Registry
from tenure.jobs.listeners import Listeners
from tenure.scheduling.engine_options import EngineOptions
from tenure.stores import Store
from tenure.util.async_bridge import without_loop
from tenure.util.clock import boottime, walltime
from tenure.util.vital_thread import dead

if TYPE_CHECKING:
    from tenure.scheduling.engine import Parts


@dataclass(frozen=True, slots=True)
class Health:
    """`ok` is what a load balancer wants to know."""

    ok: bool
    started: bool
    label: str
    node: NodeId
    store: str
    application: str
    trusted_for: float = 0.0
    """Seconds until this node's lease ends unless a heartbeat is answered; negative when it has ended."""
    plans: bool = False
    """Whether this node is the planner."""
    running: int = 0
    capacity: int = 0
    overdue: tuple[str, ...] = ()
    """Runs whose bodies go on beyond their timeout."""
    clock_doubted: bool = False
    problem: str = ""
    """What is wrong. With `ok` still true: what fails at the moment, while this node's lease holds."""
    waits_for: tuple[str, ...] = ()
    """Runs whose bodies have not returned since a stop. The stopped node keeps its lease for them, and then leaves."""
    dead_threads: tuple[str, ...] = ()
    """Threads of tenure that died. Not ok: restart the process."""
    notes: tuple[str, ...] = ()
    """Human-readable notes that do not concern a load balancer, such as jobs that old zone rules plan."""
    live: bool = True
    """For a liveness probe: no thread of tenure died, and its heartbeat moves, whatever the database does. False:
    restart the process."""
    draining: bool = False
    """It was stopped, and waits for its running bodies."""
    takes_part: bool = True
    """False if it never will: `capacity=0`, or TENURE_OFF is set."""
    clock_offset: float | None = None
    """By how many seconds this machine's clock is ahead of the store's; None if it does not know."""

    @property
    def ready(self) -> bool:
        """For a readiness probe: it takes part, its lease holds and it is not draining; or it takes no part."""
        return (self.ok and not self.draining) or not self.takes_part


def _livez(health: Health) -> tuple[int, str]:
    return (200, "live\n") if health.live else (503, "not live\n")


def _readyz(health: Health) -> tuple[int, str]:
    return (200, "ready\n") if health.ready else (503, "not ready\n")


PROBES: dict[str, Callable[[Health], tuple[int, str]]] = {"/livez": _livez, "/readyz": _readyz}
"""The probes by their paths: what each answers, as a status and a text. They show no data and need no rights."""


def not_started(store: Store, options: EngineOptions, waits_for: tuple[str, ...]) -> Health:
    """Of a scheduler that takes no part."""
    return Health(
        ok=False,
        started=False,
        label=options.label or "",
        node="",
        store=store.shown,
        application=options.application,
        capacity=options.capacity,
        problem="not started",
        waits_for=waits_for,
        takes_part=options.capacity > 0,
    )


def health_of(parts: Parts, store: Store, options: EngineOptions, registry: Registry, listeners: Listeners) -> Health:
    """Of a scheduler that takes part."""
    node, executor = parts.node, parts.executor
    left = node.lease_until - boottime()
    problem = "" if left > 0 else f"no answer from {store.shown} for too long"
    if not problem and (stands := executor.no_loop()) and (coroutines := registry.coroutines):
        problem = without_loop(stands, coroutines)
    fallen = (
        *node.dead_threads,
        *dead(parts.completer),
        *executor.dead_threads,
        *listeners.dead_threads,
        *parts.alerts.dead_threads,
    )
    if fallen:
        problem = f"a thread of tenure died: {', '.join(fallen)}. Restart this process."
    ok = not problem
    if ok:  # the lease holds for a while, and an outage may be over before it ends
        problem = node.problem or parts.completer.problem
    return Health(
        ok=ok,
        started=True,
        label=node.label,
        node=node.id,
        store=store.shown,
        application=options.application,
        trusted_for=left,
        plans=parts.election.is_leader,
        running=executor.busy,
        capacity=options.capacity,
        overdue=tuple(f"{attempt.run.job} {attempt.run.key}" for attempt in executor.overdue()),
        clock_doubted=parts.clock.doubts,
        problem=problem,
        dead_threads=fallen,
        notes=(*parts.loop.planner.notes, *parts.alerts.problems),
        live=not fallen and not node.stalled,
        draining=executor.stopping,
        clock_offset=walltime().timestamp() - parts.clock.now(boottime()) if parts.clock.known else None,
    )
