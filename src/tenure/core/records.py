"""The values of the ledger: jobs, runs, and what is said of them. Nothing here does anything; the words are those of the documentation.

An instant is a float: seconds since 1970 in UTC, rounded to microseconds. Zones belong to triggers and to what people are shown.

    pending ──claim──▶ running ──▶ succeeded | failed | cancelled
      ▲  ▲               │  │
      │  └──retry────────┘  └─its node died──▶ pending again, or lost
    waiting (held back by overlap)          skipped (missed, overlap, paused …) is where what never began ends
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal, NamedTuple, NewType

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
    """The policies of a job, in numbers. `tenure.policy` makes them of what people write."""

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
    """See `tenure.arguments`."""
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
class Synced:
    """What became of a job that a node brought at its start."""

    row: JobRow
    """As it is now, also if it is REMOVED."""
    was: JobRow | None
    """As it was when this was decided; None if it was not there. Of the same generation if its definition was left alone."""


@dataclass(frozen=True, slots=True)
class NewRun:
    """A due time on its way into the ledger."""

    scheduled_for: Instant
    due_at: Instant
    """When it may begin: after jitter and spread."""
    expires_at: Instant | None
    """When it counts as missed unless it has begun; None: never."""
    state: RunState = RunState.PENDING
    """PENDING, or SKIPPED for what is settled at once."""
    reason: str = ""
    count: int = 1
    """For one SKIPPED row that stands for several: how many due times, from `scheduled_for` …"""
    until: Instant | None = None
    """… to this one, both included."""


@dataclass(frozen=True, slots=True)
class Unplanned:
    """A job whose next due time is not in the ledger yet, or whose pause is over."""

    id: JobId
    name: str
    generation: int
    next_due: Instant | None
    trigger: str
    rules: Rules
    resumes: bool = False
    """It is paused, and the pause is over."""
    next_reading: str | None = None
    """As in `JobRow`."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What a planner found for one job. Written only if the job still has this `next_due` and `generation`."""

    id: JobId
    generation: int
    next_due: Instant
    then_due: Instant | None
    runs: tuple[NewRun, ...]
    then_reading: str | None = None
    """Of `then_due`, as in `JobRow`."""


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
class ClaimRequest:
    """A node with free slots asks for due runs."""

    node: NodeId
    application: str
    token: str
    """Random, fresh for every claim: who completes must show it."""
    limit: int
    functions: tuple[str, ...] | None = None
    """The functions it has; None: all."""
    queues: tuple[str, ...] | None = None
    """The queues it serves; None: all."""
    as_of: Instant | None = None
    """Decide what is due and what is expired by this instant, because the node doubts the ledger's clock; None: by the ledger's clock."""


class ClaimedRun(NamedTuple):
    """A run that is this node's to begin. A tuple, because hundreds are made while others wait for the next claim."""

    id: RunId
    job: JobId
    name: str
    function: str
    kwargs: str
    key: str
    kind: RunKind
    scheduled_for: Instant
    due_at: Instant
    attempt: int
    """1 for the first, counting every attempt that began."""
    failures: int
    """Attempts that failed; what `retries` counts."""
    generation: int
    rules: Rules
    trigger: str | None = None
    """The trigger of its job: its zone is the one in which the body sees its due time."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """The answer to a claim."""

    runs: tuple[ClaimedRun, ...]
    now: Instant
    """The ledger's clock when the claim was decided."""
    next_at: Instant | None
    """When the next run is due that is not due yet, of those that this node may begin."""
    more: bool
    """The limit was reached: there may be more."""
    missed: bool
    """Some run counts as missed: `missed()` and `settle()` are wanted."""
    alive: bool = True
    """This node is not alive: nothing was claimed."""


@dataclass(frozen=True, slots=True)
class MissedRun:
    """A due time that did not begin in time."""

    id: RunId
    scheduled_for: Instant


@dataclass(frozen=True, slots=True)
class MissedJob:
    """All missed due times of a job, oldest first; settled together."""

    id: JobId
    name: str
    generation: int
    rules: Rules
    runs: tuple[MissedRun, ...]
    in_time: bool
    """A later due time of the job is due now and not missed."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt ended, as its node says it."""

    id: RunId
    token: str
    state: RunState
    """SUCCEEDED, FAILED or CANCELLED; PENDING for another attempt (see `again_in`)."""
    error: str = ""
    again_in: float | None = None
    """For PENDING: in how many seconds. None: at once. If `started_at` is None too, its body was never called and it goes back uncounted."""
    started_at: Instant | None = None
    finished_at: Instant | None = None
    """By the ledger's clock as the node knows it. A retry is due `again_in` seconds after it, so that a clock that jumped while
    the attempt ran does not put it off."""

    @property
    def interrupted(self) -> bool:
        """The stop of its node has interrupted the body: this attempt is spent."""
        return self.state is RunState.PENDING and self.again_in is None and self.started_at is not None


class Ended(NamedTuple):
    """What the ledger says to an ending."""

    id: RunId
    accepted: bool
    state: RunState
    """Where the run is now."""
    wakes: bool = False
    """A run of the same job waits, and may begin now."""
    busy: bool = False
    """Not decided: another transaction has the run or its job locked. Send the ending again."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that an attempt logged."""

    run: RunId
    began: Instant
    """When its attempt began: tells the attempts of a run apart, and puts them in order."""
    place: int
    """Which line of the attempt it is."""
    text: str


@dataclass(frozen=True, slots=True)
class Held:
    """A run that the ledger believes a node has in hand."""

    id: RunId
    token: str
    asked_to_end: str = ""
    """Why it should end: cancelled by somebody, or replaced by the next run."""
    must_answer: bool = False
    """Its job was paused or removed, and the ledger does not know whether its body has begun: give it back, or say that it has."""


@dataclass(frozen=True, slots=True)
class LostRun:
    """A run whose node died."""

    id: RunId
    job: str
    key: str
    scheduled_for: Instant
    attempt: int
    node: NodeId
    state: RunState
    """PENDING (tried again) or LOST."""
    reason: str = "its node died"


@dataclass(frozen=True, slots=True)
class RollCall:
    """What the ledger believes a node has, and what it did about the dead."""

    held: tuple[Held, ...]
    lost: tuple[LostRun, ...]
    now: Instant


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


@dataclass(frozen=True, slots=True)
class Pruned:
    """What retention did in some of the jobs of an application."""

    removed: int
    """Runs, and keys that were kept of runs."""
    up_to: JobId | None
    """The last job that was looked at; None: there is none beyond."""
    more: bool = False
    """As many as were allowed were found in these jobs: there may be more. Fewer may have been removed, because others had some of them locked."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What retention did to jobs that are over."""

    jobs: int
    """How many were deleted."""
    more: bool = False
    """There may be more."""


@dataclass(frozen=True, slots=True)
class JobStats:
    """Figures of a job's recent runs, in seconds; None where there are none."""

    runs: int
    failed: int
    duration_p50: float | None
    duration_p99: float | None
    lateness_p50: float | None
    lateness_p99: float | None
    last_state: RunState | None
    last_at: Instant | None


@dataclass(frozen=True, slots=True)
class Tally:
    """How many runs of an application are in a state; of running ones, on which node."""

    state: RunState
    label: str
    runs: int


PLAIN = (RunState.SUCCEEDED, RunState.FAILED, RunState.LOST)
"""How a run of one due time ends that is simply over."""


@dataclass(frozen=True, slots=True)
class Past:
    """The runs of one job in a span, as briefly as an audit needs them: there may be millions."""

    plain: Mapping[RunState, Sequence[int]]
    """Due times, in microseconds from 1970, of runs of kind DUE that stand for one due time, by how they ended: PLAIN."""
    others: tuple[RunRow, ...]
    """All other runs, and rows that stand for several and reach into the span."""
