"""What tenure tells the application: frozen values, delivered on a thread of their own. An exception there harms nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Elected:
    """This node leads an election from now on, as long as the term is trusted."""

    election: str
    term: int
    label: str


@dataclass(frozen=True, slots=True)
class Lost:
    """This node stopped leading: resigned, ran out of trust, or was told so by the database."""

    election: str
    term: int
    label: str
    reason: str


ElectionEvent = Elected | Lost


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Something about one run. The kinds below carry the same fields; `scheduler.on(RunEvent)` means all of them."""

    job: str
    run_id: int
    key: str
    scheduled_for: datetime
    """The due time, aware."""
    attempt: int = 0
    """Which attempt it was; 0 if none began."""
    label: str = ""
    """The node that had it, as people call it; '' if none began."""
    duration: float | None = None
    """How long the attempt took, in seconds."""
    error: str = ""
    """What failed, or why it was skipped, cancelled, lost or is tried again."""


@dataclass(frozen=True, slots=True)
class RunSucceeded(RunEvent):
    """A run is done."""


@dataclass(frozen=True, slots=True)
class RunFailed(RunEvent):
    """A run failed, and no retry is left."""


@dataclass(frozen=True, slots=True)
class RunRetried(RunEvent):
    """An attempt failed, or its node died or was stopped; the run will be tried again."""


@dataclass(frozen=True, slots=True)
class RunLost(RunEvent):
    """The node of a run died or was stopped, and the run is not tried again."""


@dataclass(frozen=True, slots=True)
class RunCancelled(RunEvent):
    """A run was asked to end, or was cancelled before it began."""


@dataclass(frozen=True, slots=True)
class RunSkipped(RunEvent):
    """A due time was missed, and is not made up for. What `overlap` holds back is no event: see `scheduler.runs(state="skipped")`."""
