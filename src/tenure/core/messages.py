"""Requests to a ledger and its answers: changes, claims, endings, queries (G3, G4). The rows are in `records`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tenure.core.cluster import NodeId
from tenure.core.records import (
    Change,
    IfWaiting,
    Instant,
    JobId,
    JobRow,
    JobSpec,
    JobState,
    Override,
    Rules,
    RunId,
    RunKind,
    RunRow,
    RunState,
)


@dataclass(frozen=True, slots=True)
class Action:
    """What a person does. It travels with an operation, and is recorded in the transaction of that operation."""

    what: str
    by: str = ""
    why: str = ""
    origin: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ActionQuery:
    """Which actions to list, newest first: those of an application, and those of elections that belong to none."""

    application: str
    target: str | None = None
    by: str | None = None
    since: Instant | None = None
    """From this instant on …"""
    before: Instant | None = None
    """… and before this one."""
    what: str | None = None
    below: int | None = None
    """Only actions with smaller numbers, as the next page has them."""
    limit: int = 100


@dataclass(frozen=True, slots=True)
class JobChange:
    """One change to one job, written as a whole.

    `next_due` and `runs` are what a planner would write for it from now on. Under PAUSED and REMOVED, `runs` are past
    due times that no planner has written.
    """

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
    """Change the job only if it still has this generation."""
    next_reading: str | None = None
    """The reading of `next_due`, as in `JobRow`."""
    override: Override | None = None
    """For ADDED and UPDATED, as in `JobRow`. None: `spec` is the definition in code, or no code defines the job."""
    action: Action | None = None
    """Set if a person does this."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A run requested by `run_now`, `run_at` or `backfill`. A key gives one run for `keep_keys`, whatever retention
    removes."""

    application: str
    name: str
    key: str
    scheduled_for: Instant | None
    """None: now."""
    backfill: bool = False
    even_forgotten: bool = False
    """For a backfill: allow a due time from before `kept_since`. It may have run before retention removed its run."""
    kwargs: str | None = None
    """JSON, instead of the job's own."""
    by: str = ""
    action: Action | None = None
    """Set if a person does this."""
    slot: str | None = None
    """At most one run of the job that no node has claimed has this slot."""
    if_waiting: IfWaiting = "keep"
    """What becomes of the run that has the slot already."""
    traceparent: str = ""
    """The span of the caller, as W3C Trace Context writes it; '' if there is none."""


@dataclass(frozen=True, slots=True)
class JobQuery:
    """Which jobs to list, by name."""

    application: str
    pattern: str | None = None
    """A name, or a pattern of names (`core/patterns.py`)."""
    tag: str | None = None
    queue: str | None = None
    after: str = ""
    """Names behind this one: a page of jobs begins where the one before it ended."""
    limit: int | None = None
    """None: all."""


@dataclass(frozen=True, slots=True)
class JobPageQuery:
    """A page of a list of jobs: those that everything given here applies to. Removed jobs only if asked for by state,
    and then those that code defines or has defined."""

    application: str
    contains: str = ""
    """In the name; upper and lower case of ASCII are the same."""
    state: JobState | None = None
    tag: str | None = None
    queue: str | None = None
    names: tuple[str, ...] | None = None
    first: tuple[str, ...] = ()
    """Names that come before the others."""
    by_next: bool = False
    """By when they are due next, those with nothing due last; otherwise by name."""
    limit: int = 50
    skip: int = 0


class StripRun(NamedTuple):
    """A run in a strip of the last ones: no more than is drawn and counted."""

    id: RunId
    state: RunState
    due_at: Instant
    started_at: Instant | None
    finished_at: Instant | None


ANY_RUN = RunId(-1)
"""Every number of a run is above it."""


@dataclass(frozen=True, slots=True)
class RunQuery:
    """Which runs to list, newest `scheduled_for` first (oldest first with `oldest_first`)."""

    application: str
    job: str | None = None
    states: tuple[RunState, ...] = ()
    since: Instant | None = None
    """From this instant on, by `scheduled_for` (or by `until`, for a row that stands for several due times) …"""
    before: Instant | None = None
    """… and before this one …"""
    below: RunId | None = None
    """… or at that one, with a smaller number: a page of runs begins where the one before it ended."""
    above: RunId | None = None
    """Those at `since` only with a larger number, and none that began before it: the run that follows another."""
    id: RunId | None = None
    key: str | None = None
    """The run of this key, of one job or of each."""
    slot: str | None = None
    """The runs that have this slot: no node has claimed them."""
    limit: int = 100
    oldest_first: bool = False


@dataclass(frozen=True, slots=True)
class Synced:
    """What `sync` did with a job that a node brought at its start."""

    row: JobRow
    """The job now, even if it is REMOVED."""
    was: JobRow | None
    """The job when this was decided; None if it did not exist. It has the same generation if it was left alone."""


@dataclass(frozen=True, slots=True)
class NewRun:
    """A due time on its way into the ledger."""

    scheduled_for: Instant
    due_at: Instant
    """When it may begin, after jitter and spread."""
    expires_at: Instant | None
    """When it counts as missed if it has not begun; None: never."""
    state: RunState = RunState.PENDING
    """PENDING, or SKIPPED if it is settled at once."""
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
    """True if it is paused and the pause is over."""
    next_reading: str | None = None
    """As in `JobRow`."""


@dataclass(frozen=True, slots=True)
class Planned:
    """The due times that a planner found for one job. Written only if its `next_due` and `generation` are the same."""

    id: JobId
    generation: int
    next_due: Instant
    then_due: Instant | None
    runs: tuple[NewRun, ...]
    then_reading: str | None = None
    """The reading of `then_due`, as in `JobRow`."""


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """A node's request for due runs, as many as it has free slots."""

    node: NodeId
    application: str
    token: str
    """Random, new for every claim. An ending must show it."""
    limit: int
    functions: tuple[str, ...] | None = None
    """The functions it has; None: all."""
    queues: tuple[str, ...] | None = None
    """The queues it serves; None: all."""
    as_of: Instant | None = None
    """Decide by this instant what is due and what has expired, because the node doubts the ledger's clock; None: by the
    ledger's clock."""


class FollowedRun(NamedTuple):
    """The run that another one follows, as it was when that one was claimed."""

    job: str
    key: str
    state: RunState | None
    """None: retention has removed it."""
    result: str | None = None
    """What its body returned, see `tenure.core.arguments`."""


class ClaimedRun(NamedTuple):
    """A run for this node to begin. A tuple, because hundreds are made while others wait for the next claim."""

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
    """1 for the first. Counts every attempt that began."""
    failures: int
    """Attempts that failed, the number that `retries` limits."""
    generation: int
    rules: Rules
    trigger: str | None = None
    """The trigger of its job; of one that follows another, that of the first in the chain. The body sees its due time
    in the trigger's zone."""
    traceparent: str = ""
    """The span that requested it. Read only where spans are made: see `Ledger.traceparents`."""
    owes: bool = False
    """A job follows its job: once this run is over, `follow_up` has something to do."""
    parent: FollowedRun | None = None
    """The run that it follows, if its job follows another."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """The answer to a claim."""

    runs: tuple[ClaimedRun, ...]
    now: Instant
    """The ledger's clock when the claim was decided."""
    next_at: Instant | None
    """The next due time, still in the future, of the runs that this node may begin."""
    more: bool
    """The limit was reached: there may be more."""
    missed: bool
    """Some runs count as missed: call `missed()` and `settle()`."""
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
    """How an attempt ended, as reported by its node."""

    id: RunId
    token: str
    state: RunState
    """SUCCEEDED, FAILED or CANCELLED; PENDING for another attempt (see `again_in`)."""
    error: str = ""
    again_in: float | None = None
    """For PENDING: in how many seconds. None: at once. If `started_at` is None too, the body was never called and the
    run goes back uncounted."""
    started_at: Instant | None = None
    finished_at: Instant | None = None
    """By the ledger's clock as the node knows it. A retry is due `again_in` seconds after it, so a clock that jumped
    during the attempt does not postpone the retry."""
    wait_up_to: float | None = None
    """For PENDING with `again_in`, if the body raised `NotYet`: how long the run may go on doing so."""
    result: str | None = None
    """For SUCCEEDED: what the body returned, see `tenure.core.arguments`."""

    @property
    def interrupted(self) -> bool:
        """True if the stop of its node interrupted the body: this attempt is spent."""
        return self.state is RunState.PENDING and self.again_in is None and self.started_at is not None


class Ended(NamedTuple):
    """The ledger's answer to an ending."""

    id: RunId
    accepted: bool
    state: RunState
    """The state of the run now."""
    wakes: bool = False
    """True if a run of the same job waits and may begin now, or if it is final and a run of its pool waits."""
    busy: bool = False
    """Not decided: another transaction has locked the run or its job. Send the ending again."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that an attempt logged."""

    run: RunId
    attempt: int
    place: int
    """The number of the line within the attempt, from 0 on. A gap shows that lines were dropped."""
    at: Instant
    text: str


@dataclass(frozen=True, slots=True)
class LogTrim:
    """Lines of an attempt that are dropped because later ones take their room."""

    run: RunId
    attempt: int
    first: int
    before: int
    """From the line with the number `first` on, up to and without this one."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the body of a run said it is."""

    run: RunId
    attempt: int
    done: float
    total: float | None
    text: str
    at: Instant


@dataclass(frozen=True, slots=True)
class Result:
    """What the body of a run returned whose own transaction completed it."""

    run: RunId
    attempt: int
    text: str


@dataclass(frozen=True, slots=True)
class Held:
    """A run that, by the ledger, a node has in hand."""

    id: RunId
    token: str
    asked_to_end: str = ""
    """Why it should end: a user cancelled it, or the next run replaces it."""
    must_answer: bool = False
    """Its job was paused or removed, and the ledger does not know whether its body has begun. The node gives it back,
    or reports that it has begun."""


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
    label: str = ""
    """The human-readable name of that node."""


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The runs that, by the ledger, a node has, and those it took from dead nodes."""

    held: tuple[Held, ...]
    lost: tuple[LostRun, ...]
    now: Instant
    owed: bool = False
    """A run of the application is over whose followers are owed: call `follow_up`."""


@dataclass(frozen=True, slots=True)
class OwedRun:
    """A run that is over, and whose followers do not all have their runs yet."""

    job: str
    key: str
    scheduled_for: Instant
    finished_at: Instant | None


@dataclass(frozen=True, slots=True)
class FollowedUp:
    """The result of one `follow_up`."""

    paid: int
    """How many runs owe nothing any more."""
    begins: bool = False
    """A run can be claimed that could not before."""
    more: bool = False
    """There is more to do at once, from the first job on."""
    up_to: JobId | None = None
    """The last parent of this page; None if no one beyond it owes anything."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """The result of retention in some jobs of an application."""

    removed: int
    """Removed runs and kept keys."""
    up_to: JobId | None
    """The last job examined; None if there is none beyond."""
    more: bool = False
    """True if it found as many as were allowed in these jobs: there may be more. It may have removed fewer, because
    others had locked some of them."""


@dataclass(frozen=True, slots=True)
class CountedHours:
    """The result of counting hours of some jobs anew."""

    since: Instant
    """From where on every hour is counted in this pass."""
    up_to: JobId | None
    """The last job; None if there is none beyond."""
    runs: int
    """How many runs there were to count."""
    changed: int
    """How many rows were written."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The result of retention for jobs that are over."""

    jobs: int
    """How many were deleted."""
    more: bool = False
    """There may be more."""


@dataclass(frozen=True, slots=True)
class JobStats:
    """Statistics of a job's recent runs, in seconds; None without runs."""

    runs: int
    failed: int
    duration_p50: float | None
    duration_p99: float | None
    lateness_p50: float | None
    lateness_p99: float | None
    last_state: RunState | None
    last_at: Instant | None


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """How the newest run of a job ended. Cancelled and skipped runs do not count."""

    name: str
    run: RunId
    state: RunState
    """SUCCEEDED, FAILED or LOST."""
    at: Instant
    """When it ended."""
    reason: str = ""
    """Why it failed, or its end if that is long."""
    failures: int = 0
    """How many runs have failed or were lost since the last one that succeeded …"""
    since: Instant | None = None
    """… and when the first of them ended."""
    recent: int = 0
    """How many runs failed or were lost since an instant that the question named."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How many runs of an application are in a state; for running ones, on which node."""

    state: RunState
    label: str
    runs: int


class OpenRuns(NamedTuple):
    """How many runs on a queue are in a state, and due."""

    state: RunState
    queue: str
    runs: int


class JobEnds(NamedTuple):
    """How the newest runs of a job ended."""

    job: JobId
    succeeded_for: Instant | None = None
    """The newest due time or request of which the run succeeded …"""
    succeeded_at: Instant | None = None
    """… and when that run ended."""
    failed_at: Instant | None = None
    """When a run last failed or was lost."""
    failures: int = 0
    """How many have failed or were lost since the last one that succeeded."""
    duration: float | None = None
    """How long the last attempt of the newest run that ended took. Cancelled and skipped runs do not count."""
    missed: Instant | None = None
    """The newest due time that was missed after that run."""


class LaneJob(NamedTuple):
    """An active job, and where its runs can be claimed."""

    id: JobId
    name: str
    function: str
    queue: str


class StoredArguments(NamedTuple):
    """The arguments of a job, or those that a run of it was requested with."""

    name: str
    function: str
    kwargs: str
    """See `tenure.core.arguments`."""
    run: RunId | None = None
    """The run; None: these are those of the job."""


@dataclass(frozen=True, slots=True)
class Overdue:
    """A due time that is past its grace, although no attempt has begun."""

    job: JobId
    name: str
    function: str
    queue: str
    due: Instant
    """When it was due."""
    late_since: Instant
    """When its grace was over."""
    run: RunId | None
    """Its run; None if it is not planned."""


PLAIN = (RunState.SUCCEEDED, RunState.FAILED, RunState.LOST)
"""The final states of a run for one due time that need no further explanation in an audit."""


@dataclass(frozen=True, slots=True)
class Past:
    """The runs of one job in a period, in the short form that an audit needs: there may be millions."""

    plain: Mapping[RunState, Sequence[int]]
    """By PLAIN state: the due times, in microseconds since 1970, of runs of kind DUE that stand for one due time."""
    others: tuple[RunRow, ...]
    """All other runs, and rows that stand for several due times and reach into the period."""
