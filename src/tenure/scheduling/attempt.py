"""One attempt in this node's hand, from its claim until its ending is acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Any

from tenure.core.arguments import decode
from tenure.core.cluster import NodeId
from tenure.core.messages import ClaimedRun, Ended, Ending
from tenure.core.records import RunId, RunState
from tenure.jobs.functions import Function
from tenure.run import Run, control_of
from tenure.scheduling.hangs import Hang

OUT_OF_TIME = "out of time"
"""How the reason begins for which a body is asked to end that has taken longer than its timeout."""


class AttemptPhase(Enum):
    """How far an attempt is."""

    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"
    """The body has returned, or will never be called. The ledger has not acknowledged that."""


MakeRun = Callable[[ClaimedRun, str, NodeId], Run]
"""Makes what a body is called with: from a claimed run, the token of the claim, and the node's identity then."""


class Attempt:
    """Changed by the thread that runs it. Whether it may begin is decided once, by the executor, under its mutex."""

    __slots__ = (
        "asked_to_end", "called", "claimed", "control", "failure", "function", "hang", "node",
        "phase", "queued_at", "result", "run", "started_at", "task", "thread", "timed_out", "token",
    )  # fmt: skip

    def __init__(
        self, claimed: ClaimedRun, token: str, node: NodeId, *, function: Function, run: Run, at: float
    ) -> None:
        self.claimed, self.token, self.node, self.function, self.run = claimed, token, node, function, run
        self.control = control_of(run)
        self.phase = AttemptPhase.QUEUED
        self.queued_at = at
        self.started_at: float | None = None
        self.called = False
        """Its body has been called: a pause need not wait for it any more."""
        self.timed_out = False
        self.thread: int | None = None
        """The thread that calls the body of a plain function."""
        self.hang: Hang | None = None
        """Where the body was when it was out of time."""
        self.asked_to_end = ""
        self.failure: BaseException | None = None
        """What the body raised, for the log. None if it cannot be printed."""
        self.result: str | None = None
        """What its body returned, as text."""
        self.task: asyncio.Task[None] | None = None

    @property
    def id(self) -> RunId:
        """The number of the run."""
        return self.claimed.id

    def kwargs(self) -> dict[str, Any]:
        """The arguments of the body. Raises `UnreadableArguments`."""
        return decode(self.claimed.kwargs)

    def named(self, action: str, label: str, duration: float | None = None) -> dict[str, object]:
        """The fields of a log record about this attempt, on the node of this label."""
        run, late = self.claimed, self.lateness
        return fields(action, run.name, run.id, run.key, run.attempt, node=label, duration=duration, lateness=late)

    @property
    def lateness(self) -> float | None:
        """How many seconds after it was due its body was called; None if it was not."""
        began_at = self.control.began_at
        return None if began_at is None else max(began_at - self.claimed.due_at, 0.0)

    def overdue(self, now: float) -> bool:
        """Whether its body goes on beyond its timeout."""
        limit = self.claimed.rules.timeout
        return limit is not None and self.started_at is not None and now > self.started_at + limit


def fields(
    action: str,
    job: str,
    run_id: RunId,
    key: str,
    attempt: int,
    *,
    node: str,
    duration: float | None = None,
    lateness: float | None = None,
) -> dict[str, object]:
    """The fields (`extra`) of every log record about an attempt. Durations are in seconds; None: not known."""
    return {
        "action": action,
        "job": job,
        "run_id": run_id,
        "key": key,
        "attempt": attempt,
        "node": node,
        "duration": duration,
        "lateness": lateness,
    }


def confirms(attempt: Attempt, ending: Ending, answer: Ended) -> bool:
    """True if a rejected ending is harmless.

    Either an earlier send succeeded and its reply was lost, or `run.complete()` already finished the run.
    """
    if attempt.control.completed:
        return answer.state is RunState.SUCCEEDED
    if ending.wait_up_to is not None and answer.state is RunState.FAILED:
        return True
    return answer.state is ending.state or (ending.interrupted and answer.state is RunState.LOST)
