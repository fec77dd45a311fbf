"""The values of the ledger: jobs, runs and their history (G3, G4). docs/glossary.md explains the names.

An instant is a float: seconds since 1970 in UTC, rounded to microseconds. Only triggers and displayed times have zones.

    pending ──claim──▶ running ──▶ succeeded | failed | cancelled
      ▲  ▲               │  │
      │  └──retry────────┘  └─its node died──▶ pending again, or lost
    waiting (held back by overlap)          skipped (missed, overlap, paused …): a run that never began ends here
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal, NewType

from tenure.core.cluster import NodeId
from tenure.core.unfit import UnfitArguments

Instant = float

JobId = NewType("JobId", int)
RunId = NewType("RunId", int)

Missed = Literal["latest", "skip", "all"]
Overlap = Literal["skip", "wait", "replace", "allow"]
OnLost = Literal["retry", "fail"]
On = Literal["success", "failure", "end"]
IfWaiting = Literal["keep", "replace", "later"]
JobStateName = Literal["active", "paused", "done", "removed"]
RunStateName = Literal["pending", "waiting", "running", "succeeded", "failed", "lost", "cancelled", "skipped"]
RunKindName = Literal["due", "manual", "backfill"]

ON_TIME = 60.0
"""Without `grace`: how late a due time may begin before it counts as missed."""
MISSED_WINDOW = 86400.0
"""How far back missed due times are made up for …"""
MISSED_LIMIT = 100
"""… and how many of them."""
ANEW = "planned anew by the zone rules of tzdata"
"""The reason in the history of a job that was planned by other zone rules; the release follows. It tells the audit
which rules applied when."""


class JobState(StrEnum):
    """Decides whether a job is planned and claimed."""

    ACTIVE = "active"
    PAUSED = "paused"
    DONE = "done"
    """ACTIVE, but its trigger has no due time left and no run is open. The row says ACTIVE; readers derive DONE."""
    REMOVED = "removed"
    """A tombstone: the generation never starts again."""


class RunState(StrEnum):
    """The state of a run."""

    PENDING = "pending"
    WAITING = "waiting"
    """Due, but held back because its job runs already (`overlap`), or because its pool has no place."""
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"
    """Its nodes died `max_lost` times; or, under `on_lost='fail'`, its node died or was stopped while it ran."""
    CANCELLED = "cancelled"
    SKIPPED = "skipped"

    @property
    def final(self) -> bool:
        """True if no other state follows."""
        return self not in OPEN


GAVE_UP = "gave up waiting: "
"""How the reason of a run begins that raised `NotYet` until `wait_up_to` was over."""
States = RunState | RunStateName | Iterable[RunState | RunStateName]
"""One state or several, as people name them."""
STOPPED = "its node was stopped"
"""Why an attempt was interrupted."""
UNBEGUN = frozenset({RunState.PENDING, RunState.WAITING})
"""States in which the next attempt has not begun; there may have been earlier attempts."""
OPEN = UNBEGUN | {RunState.RUNNING}


class AttemptOutcome(StrEnum):
    """How an attempt ended."""

    RUNNING = "running"
    """It has not."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"
    """Its node died."""
    INTERRUPTED = "interrupted"
    """Its node was stopped."""
    NOT_YET = "not yet"
    """Its body raised `NotYet`."""
    CANCELLED = "cancelled"


class RunKind(StrEnum):
    """The origin of a run."""

    DUE = "due"
    """Planned from the trigger. Its key is its due time."""
    MANUAL = "manual"
    """Requested with `run_now`. It has a key of its own."""
    BACKFILL = "backfill"
    """A past due time that runs after all: requested by a user, or missed and made up for. It waits its turn."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The options of a job, in numbers. `tenure.core.job_options` makes them from what users write."""

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
    pool: str | None = None
    """A limit that it shares with other jobs."""
    wait_up_to: float = 86400.0
    """How long a run may go on raising `NotYet`, from the beginning of the first attempt that did."""
    expect_within: float | None = None
    """How long after a due time the job must have succeeded. None: see `tenure.core.expected`."""
    tags: tuple[str, ...] = ()
    """Sorted, each once. For people: nothing is decided by them."""
    after: str | None = None
    """The job that it follows, its parent: each run of that has a run of this job with the same key."""
    on: On = "success"
    """Which endings of the parent's runs it follows. After any other one its run is SKIPPED."""

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
    """The name under which nodes register the function. tenure never imports a function because a row names it."""
    trigger: str | None
    """`Trigger.to_json()`; None for a job that runs only on request."""
    rules: Rules = field(default_factory=Rules)
    kwargs: str = "{}"
    """See `tenure.core.arguments`."""
    in_code: bool = True
    """Defined by a decorator and synced at start, or added at run time."""
    release: int = 0
    tzdata: str = ""
    """The newest release of the zone rules that it was written with; '' if its trigger does not depend on them."""

    def same_as(self, other: JobSpec) -> bool:
        """True if equal apart from the releases of code and zone rules."""
        return replace(self, release=other.release, tzdata=other.tzdata) == other


@dataclass(frozen=True, slots=True)
class Override:
    """An `update()` of a job that code defines. It holds until the code's definition changes, or `reset`."""

    code: JobSpec
    """The definition in code; its release is that of the row."""
    at: Instant
    by: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as the ledger stores it."""

    id: JobId
    spec: JobSpec
    state: JobState
    generation: int
    next_due: Instant | None
    """The first due time that is not in the ledger yet; None if no due time is left."""
    paused_until: Instant | None = None
    paused_by: str = ""
    paused_why: str = ""
    since: Instant = 0.0
    """When its trigger began to apply: when it was added, changed or resumed."""
    kept_since: Instant = 0.0
    """Retention may have removed final runs from before this instant."""
    defined_at: Instant = 0.0
    """When it was last written; for a REMOVED or DONE job, when code that defines it was last seen."""
    removed_at: Instant | None = None
    """For REMOVED: when, and who removed it."""
    removed_by: str = ""
    next_reading: str | None = None
    """The meaning of `next_due` if the trigger depends on a zone: release of the zone rules, '@', wall-clock time."""
    override: Override | None = None
    """Set if an `update()` made the definition in force differ from the code's."""

    @property
    def code(self) -> JobSpec:
        """The definition in code; for a job that was added at run time, the definition in force."""
        return self.spec if self.override is None else replace(self.override.code, release=self.spec.release)


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a node brings to an application, as it wrote at its start or at the last change.

    Used for display and for planning. Never decides whether a run may be claimed (the claim decides that), nor who is
    dead.
    """

    node: NodeId
    application: str
    functions: frozenset[str]
    """The names of its registered functions."""
    queues: tuple[str, ...] | None
    """The queues it serves; None: all."""
    capacity: int
    release: int
    library: str
    """The version of tenure."""
    tzdata: str
    """The release of the zone rules."""
    host: str = ""
    """The name of its machine."""
    signatures: str = ""
    """A digest of the parameters of its functions: it changes if stored arguments may no longer fit."""
    clock_offset: float | None = None
    """By how many seconds its machine's clock is ahead of the database's; None if that is not known."""
    unfit: tuple[UnfitArguments, ...] = ()
    """The stored arguments that do not fit its functions, as far as it was for this node to look."""
    label: str = ""
    """Its human-readable name, from its row."""
    plans: bool = False
    """True if it is the application's planner, by the election's row."""
    since: Instant = 0.0
    """When it joined, from its row."""


class Change(StrEnum):
    """An operation on a job."""

    ADDED = "added"
    UPDATED = "updated"
    PAUSED = "paused"
    RESUMED = "resumed"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class ChangeRecord:
    """One line of a job's history of changes. It tells the audit which trigger applied when."""

    job: JobId
    generation: int
    at: Instant
    what: Change
    trigger: str | None
    """The trigger that applies from here on, whatever was changed."""
    by: str = ""
    why: str = ""
    until: Instant | None = None
    after: str | None = None
    """The job that it follows from here on, whatever was changed."""


UNSET_SIZE = 1
"""How many runs of a pool begin whose size was never set."""


@dataclass(frozen=True, slots=True)
class PoolRow:
    """A limit shared by several jobs."""

    name: str
    size: int | None
    """How many runs of its jobs may be RUNNING; None: it was never set, and counts as `UNSET_SIZE`."""
    running: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class ActionRecord:
    """One line of the log of actions: what a person did."""

    id: int
    at: Instant
    application: str
    """'' for the election of no application."""
    by: str
    what: str
    """The operation, as the command line spells it: 'pause', 'run-now' …"""
    target: str
    """The job, or the election."""
    run: RunId | None
    """The run, if the operation was about one."""
    why: str
    origin: str
    """Where it came from: a command line, or the label of a process."""
    detail: str
    """What else there is to say of it: how long, how many, what changed."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as the ledger stores it."""

    id: RunId
    job: JobId
    name: str
    key: str
    kind: RunKind
    state: RunState
    scheduled_for: Instant
    due_at: Instant
    attempt: int
    """How many attempts began, also before the run was reopened."""
    failures: int
    losses: int
    node: str
    """The label of the node that has or had it; '' if no node began it."""
    claimed_at: Instant | None = None
    started_at: Instant | None = None
    finished_at: Instant | None = None
    """When it ended; between two attempts, when the last one ended."""
    reason: str = ""
    """Why it was skipped or cancelled, or how it failed."""
    count: int = 1
    until: Instant | None = None
    by: str = ""
    """Who requested it."""
    kwargs: str | None = None
    generation: int = 0
    interruptions: int = 0
    """Attempts interrupted by stops of nodes."""
    stopping: bool = False
    """While RUNNING: its node was requested to stop."""
    looks: int = 0
    """Attempts that raised `NotYet`: they looked, and what they need was not there."""
    looking_since: Instant | None = None
    """When the first of these began."""
    last_look: int = 0
    """The number of the last of these."""
    slot: str = ""
    """The slot that it was requested for. It has the slot until a node claims it."""
    pool: str = ""
    """While WAITING: the pool in which it waits for a place, '' if its job's overlap holds it back. While RUNNING: the
    pool in which it has one."""
    asked_to_end: str = ""
    """While RUNNING: why it was requested to end, such as "cancelled by ops"."""
    digest: str | None = None
    """For a run that retention removed while keeping its key: a digest of its arguments, '' for the job's own. Besides,
    only the outcome and the times are kept."""

    @property
    def began_at(self) -> Instant | None:
        """When its last attempt began: its body, or as long as that is not known, the claim."""
        return self.claimed_at if self.started_at is None else self.started_at

    @property
    def looking(self) -> bool:
        """True if its last attempt raised `NotYet`, and the next one has not begun."""
        return self.state is RunState.PENDING and self.looks > 0 and self.last_look == self.attempt


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt of a run."""

    number: int
    """1 for the first. Goes on when the run is reopened."""
    node: str
    """The label of the node that had it."""
    claimed_at: Instant | None
    started_at: Instant | None
    """When its body was called; None if the ledger never heard of that."""
    finished_at: Instant | None
    outcome: AttemptOutcome
    error: str = ""
    """The traceback, or how the end was known, such as 'its node died'."""
    count: int = 1
    """How many attempts this stands for. Looks that follow each other are one row, which has the number of the last and
    the beginning of the first."""
