"""The values of the ledger: jobs, runs, and what is said of them. Nothing here does anything; the words are those of the documentation.

An instant is a float: seconds since 1970 in UTC, rounded to microseconds. Zones belong to triggers and to what people are shown.

    pending ──claim──▶ running ──▶ succeeded | failed | cancelled
      ▲  ▲               │  │
      │  └──retry────────┘  └─its node died──▶ pending again, or lost
    waiting (held back by overlap)          skipped (missed, overlap, paused …) is where what never began ends
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal, NewType

from tenure.core.cluster import NodeId

Instant = float

JobId = NewType("JobId", int)
RunId = NewType("RunId", int)

Missed = Literal["latest", "skip", "all"]
Overlap = Literal["skip", "wait", "replace", "allow"]
OnLost = Literal["retry", "fail"]

ON_TIME = 60.0
"""How late a due time may begin where no `grace` is given, before it counts as missed."""
MISSED_WINDOW = 86400.0
"""How far back missed due times are made up for."""
MISSED_LIMIT = 100
"""How many of them."""
ANEW = "planned anew by the zone rules of tzdata"
"""Why a job was changed that other zone rules had planned; the release follows. The audit knows by it which rules counted when."""


class JobState(StrEnum):
    """Whether a job is planned and claimed."""

    ACTIVE = "active"
    PAUSED = "paused"
    DONE = "done"
    """ACTIVE, but its trigger has no due time left and no run of it is open. Stored as ACTIVE: it is worked out when the row is read."""
    REMOVED = "removed"
    """A tombstone: the generation never starts again."""


class RunState(StrEnum):
    """Where a run is."""

    PENDING = "pending"
    WAITING = "waiting"
    """Due, and held back because its job runs already (`overlap`)."""
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"
    """Its nodes died `max_lost` times; or, under `on_lost='fail'`, its node died or was stopped while it ran."""
    CANCELLED = "cancelled"
    SKIPPED = "skipped"

    @property
    def final(self) -> bool:
        """Nothing follows."""
        return self not in OPEN


STOPPED = "its node was stopped"
"""Why an attempt was interrupted."""
UNBEGUN = frozenset({RunState.PENDING, RunState.WAITING})
"""The next attempt has not begun; there may have been others."""
OPEN = UNBEGUN | {RunState.RUNNING}


class RunKind(StrEnum):
    """Where a run comes from."""

    DUE = "due"
    """Planned from the trigger. Its key is its due time."""
    MANUAL = "manual"
    """`run_now`. Its key is its own."""
    BACKFILL = "backfill"
    """A due time of the past that is run after all: somebody asked for it, or it was missed and is made up for. It waits its turn."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The policies of a job, in numbers. `tenure.core.policy` makes them of what people write."""

    missed: Missed = "latest"
    grace: float | None = None
    overlap: Overlap = "skip"
    max_running: int | None = 1
    """None: no limit (`overlap='allow'` without a number)."""
    timeout: float | None = None
    retries: int = 0
    backoff: tuple[float, float] = (1.0, 300.0)
    """The pause before the first retry, doubled for each further one, and the longest."""
    on_lost: OnLost = "retry"
    max_lost: int = 3
    jitter: float = 0.0
    spread: float = 0.0
    queue: str = "default"

    @property
    def on_time(self) -> float:
        """How long after it is ready a run may begin before it counts as missed."""
        return ON_TIME if self.grace is None else self.grace


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job as it is written into the ledger."""

    application: str
    name: str
    function: str
    """The name under which nodes register the function; never imported because a row says so."""
    trigger: str | None
    """`Trigger.to_json()`; None for a job that runs only when asked."""
    rules: Rules = field(default_factory=Rules)
    kwargs: str = "{}"
    """See `tenure.core.arguments`."""
    in_code: bool = True
    """Defined by a decorator and synced at start, or added at run time."""
    release: int = 0
    tzdata: str = ""
    """The newest release of the zone rules that it was written with; '' where its trigger does not depend on them."""

    def same_as(self, other: JobSpec) -> bool:
        """Equal, apart from the releases of code and zone rules."""
        return replace(self, release=other.release, tzdata=other.tzdata) == other


@dataclass(frozen=True, slots=True)
class Override:
    """An `update()` of a job that code defines. It holds until the code's definition changes, or `reset`."""

    code: JobSpec
    """What the code says; its release is that of the row."""
    at: Instant
    by: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as the ledger has it."""

    id: JobId
    spec: JobSpec
    state: JobState
    generation: int
    next_due: Instant | None
    """The first due time that is not in the ledger yet; None when nothing is due any more."""
    paused_until: Instant | None = None
    paused_by: str = ""
    paused_why: str = ""
    since: Instant = 0.0
    """From when on its trigger counts: added, changed or resumed then."""
    kept_since: Instant = 0.0
    """Final runs before this instant may have been removed by retention."""
    defined_at: Instant = 0.0
    """When it was last written, or, once it is REMOVED or DONE, when code that defines it was last seen."""
    removed_at: Instant | None = None
    """For REMOVED: when, and by whom."""
    removed_by: str = ""
    next_reading: str | None = None
    """What `next_due` stands for where its trigger depends on a zone: the release of the zone rules, '@', and the reading of the wall clock."""
    override: Override | None = None
    """Its definition in force differs from the code's, because of an `update()`."""

    @property
    def code(self) -> JobSpec:
        """What the code last said; of a job that was added at run time, what is in force."""
        return self.spec if self.override is None else replace(self.override.code, release=self.spec.release)


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a node brings to an application, as it wrote it down at its start or at the last change.

    For people and for planning. Never for whether a run may be claimed, which the claim decides, nor for who is dead.
    """

    node: NodeId
    application: str
    functions: frozenset[str]
    """The names under which it has functions registered."""
    queues: tuple[str, ...] | None
    """The queues it serves; None: all."""
    capacity: int
    release: int
    library: str
    """The version of tenure."""
    tzdata: str
    """The release of the zone rules."""
    label: str = ""
    """What people call it, as its row says."""
    plans: bool = False
    """It is the planner of the application, as the election's row says."""


class Change(StrEnum):
    """What was done to a job."""

    ADDED = "added"
    UPDATED = "updated"
    PAUSED = "paused"
    RESUMED = "resumed"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class ChangeRecord:
    """One line of a job's history of changes, from which the audit knows which trigger counted when."""

    job: JobId
    generation: int
    at: Instant
    what: Change
    trigger: str | None
    """The trigger that counts from here on, whatever was changed."""
    by: str = ""
    why: str = ""
    until: Instant | None = None


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as the ledger has it."""

    id: RunId
    job: JobId
    name: str
    key: str
    kind: RunKind
    state: RunState
    scheduled_for: Instant
    due_at: Instant
    attempt: int
    failures: int
    losses: int
    node: str
    """The label of the node that has or had it; '' if nobody began it."""
    claimed_at: Instant | None = None
    started_at: Instant | None = None
    finished_at: Instant | None = None
    reason: str = ""
    """Why it was skipped, cancelled, or what failed."""
    count: int = 1
    until: Instant | None = None
    by: str = ""
    """Who asked for it."""
    kwargs: str | None = None
    generation: int = 0
    interruptions: int = 0
    """Attempts that stops of nodes have interrupted."""
    stopping: bool = False
    """While RUNNING: its node was asked to stop."""
    digest: str | None = None
    """Of a run that retention has removed and whose key is kept: a digest of its arguments, '' for the job's own. Only the outcome and
    the times are kept besides."""
