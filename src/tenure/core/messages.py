"""What is asked of a ledger, and what it answers: changes, requests, claims, endings, queries. The rows themselves are in `records`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tenure.core.cluster import NodeId
from tenure.core.records import (
    Change,
    Instant,
    JobId,
    JobRow,
    JobSpec,
    Override,
    Rules,
    RunId,
    RunKind,
    RunRow,
    RunState,
)


@dataclass(frozen=True, slots=True)
class JobChange:
    """One change to one job, written as a whole. `next_due` and `runs` are what a planner would write for it from now on; under PAUSED and
    REMOVED, `runs` are due times of the past that no planner has written."""

    application: str
    name: str
    what: Change
    spec: JobSpec | None = None
    """For ADDED and UPDATED."""
    next_due: Instant | None = None
    """For ADDED, UPDATED and RESUMED: the first due time that is not among `runs`."""
    runs: tuple[NewRun, ...] = ()
    by: str = ""
    why: str = ""
    until: Instant | None = None
    """For PAUSED."""
    generation: int | None = None
    """Change it only if it is still of this generation."""
    next_reading: str | None = None
    """Of `next_due`, as in `JobRow`."""
    override: Override | None = None
    """For ADDED and UPDATED, as in `JobRow`. None: `spec` is what the code says, or no code defines the job."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """`run_now` and backfill: a run that somebody wants. A key is asked for once, also after retention has removed its run, for `keep_keys`."""

    application: str
    name: str
    key: str
    scheduled_for: Instant | None
    """None: now."""
    backfill: bool = False
    even_forgotten: bool = False
    """For a backfill: also a due time from before `kept_since`. It may have run already; its run was removed by retention."""
    kwargs: str | None = None
    """JSON, instead of the job's own."""
    by: str = ""


@dataclass(frozen=True, slots=True)
class RunQuery:
    """Which runs to list, newest `scheduled_for` first (oldest first with `oldest_first`)."""

    application: str
    job: str | None = None
    states: tuple[RunState, ...] = ()
    since: Instant | None = None
    """`scheduled_for` (or, for a row that stands for several, `until`) from this instant on …"""
    before: Instant | None = None
    """… and before this one."""
    id: RunId | None = None
    limit: int = 100
    oldest_first: bool = False


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
class Reconciled:
    """What the ledger believes a node has, and what it did about the dead."""

    held: tuple[Held, ...]
    lost: tuple[LostRun, ...]
    now: Instant


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
