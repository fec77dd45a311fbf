"""What tenure reports to the application: frozen values, delivered on a thread of their own. An exception there is
harmless."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Elected:
    """This node now leads an election, as long as the term is trusted."""

    election: str
    term: int
    label: str


@dataclass(frozen=True, slots=True)
class Lost:
    """This node stopped leading: it resigned, its trust ran out, or the database said so."""

    election: str
    term: int
    label: str
    reason: str


ElectionEvent = Elected | Lost


@dataclass(frozen=True, slots=True)
class AnyEvent:
    """What `scheduler.on` takes: a `RunEvent` or an `OrphanEvent`."""

    job: str


@dataclass(frozen=True, slots=True)
class RunEvent(AnyEvent):
    """An event of one run. The kinds below have the same fields; `scheduler.on(RunEvent)` means all of them."""

    run_id: int
    key: str
    scheduled_for: datetime
    """The due time, aware."""
    attempt: int = 0
    """The number of the attempt; 0 if none began."""
    label: str = ""
    """The label of the node that had it; '' if none began."""
    duration: float | None = None
    """How long the attempt took, in seconds."""
    error: str = ""
    """How it failed, or why it was skipped, cancelled, lost or retried."""
    lateness: float | None = None
    """How many seconds after it was due the attempt began; None if it did not begin here."""


@dataclass(frozen=True, slots=True)
class OrphanEvent(AnyEvent):
    """An event of one job. `scheduler.on(OrphanEvent)` means both kinds below. The node that plans tells them, once for
    each change of what live nodes can run."""

    function: str
    queue: str
    label: str
    """The label of the node that tells it."""
    cause: str = ""
    """A stable word, such as 'no_function'."""
    text: str = ""
    """The cause in words."""


@dataclass(frozen=True, slots=True)
class JobOrphaned(OrphanEvent):
    """No live node can run the job any more."""


@dataclass(frozen=True, slots=True)
class JobServed(OrphanEvent):
    """A live node can run the job again, or it was paused or removed."""


@dataclass(frozen=True, slots=True)
class RunSucceeded(RunEvent):
    """A run has succeeded."""


@dataclass(frozen=True, slots=True)
class RunFailed(RunEvent):
    """A run failed, and no retry is left."""


@dataclass(frozen=True, slots=True)
class RunRetried(RunEvent):
    """An attempt failed, or its node died or was stopped; the run will be retried."""


@dataclass(frozen=True, slots=True)
class RunNotYet(RunEvent):
    """The body raised `NotYet`: what it needs is not there, and the run will be tried again. `error` says what."""


@dataclass(frozen=True, slots=True)
class RunLost(RunEvent):
    """The node of a run died or was stopped, and the run is not retried."""


@dataclass(frozen=True, slots=True)
class RunCancelled(RunEvent):
    """A run was requested to end, or was cancelled before it began."""


@dataclass(frozen=True, slots=True)
class RunSkipped(RunEvent):
    """A due time was missed, and is not made up for. Runs that `overlap` holds back are not events: see
    `scheduler.runs(state="skipped")`."""
