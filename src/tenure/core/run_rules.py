"""What the ledger decides, as pure functions (G3): which runs may begin, and where a run goes after an attempt.

The ledgers in memory and on SQLite call these functions. PostgreSQL decides the same in its own functions; the
conformance suite checks that. The caller holds the lock, so its facts stay true until the answer is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from tenure.core.keys import digest_of
from tenure.core.messages import Action, Ending, NewRun
from tenure.core.records import (
    GAVE_UP,
    STOPPED,
    UNSET_SIZE,
    AttemptOutcome,
    AttemptRow,
    Instant,
    JobRow,
    JobSpec,
    JobState,
    On,
    PoolRow,
    Rules,
    RunId,
    RunKind,
    RunRow,
    RunState,
)
from tenure.util.plurals import counted

OVERLAP = "overlap"
SUPERSEDED = "superseded"
REPLACED = "replaced"
PAUSED = "paused"
REMOVED = "removed"
AFTER = "after: "
"""How the reason of a run begins that was skipped because the run it would have followed did not end as `on` says."""


@dataclass(frozen=True, slots=True)
class RunCandidate:
    """A run that wants to begin: due and PENDING, or WAITING."""

    id: RunId
    kind: RunKind
    scheduled_for: Instant
    due_at: Instant
    attempt: int = 0
    """Its attempts since it was planned, requested or last reopened."""
    pooled: bool = False
    """It is WAITING for a place in its pool, and has its job's place."""


@dataclass(frozen=True, slots=True)
class Admission:
    """The decision about the candidates of one job."""

    claimed: tuple[RunId, ...] = ()
    waiting: tuple[RunId, ...] = ()
    """Candidates that become WAITING."""
    skipped: tuple[tuple[RunId, str], ...] = ()
    """With the reason. Under `wait` and `replace` they may include runs that waited before."""
    asks_to_end: str = ""
    """Why every run of the job that was RUNNING before is requested to end; '' if none is."""


def places(rules: Rules, began: int) -> int | None:
    """How many more runs may begin; None: any number. `began`: RUNNING, between attempts, or WAITING for a pool."""
    return None if rules.max_running is None else max(0, rules.max_running - began)


def promoted(rules: Rules, began: int, waiting: Sequence[RunCandidate]) -> tuple[RunId, ...]:
    """The WAITING runs that become PENDING because there are places, oldest first. They do not expire from then on."""
    free = places(rules, began)
    return tuple(run.id for run in sorted(waiting, key=_turn)[:free])


def admit(
    rules: Rules, began: int, candidates: Sequence[RunCandidate], waiting: Sequence[RunCandidate] = ()
) -> Admission:
    """Decide about all these candidates of one job. `waiting` are the runs that still wait after `promoted`.

    A candidate between attempts is counted in `began` already: it has its place and is always claimed. The caller
    passes no more candidates than it may claim.
    """
    free = places(rules, began)
    claimed: list[RunId] = []
    held_back: list[RunCandidate] = []
    replaces = rules.overlap == "replace"
    for run in sorted(candidates, key=_newest_due_first if replaces else _turn):
        if run.attempt > 0 or free is None:
            claimed.append(run.id)
        elif free > 0:
            claimed.append(run.id)
            free -= 1
        else:
            held_back.append(run)
    due = [run for run in held_back if run.kind is RunKind.DUE]
    begins = {run.id for run in candidates if run.kind is RunKind.DUE and run.attempt == 0}.intersection(claimed)
    if rules.overlap == "skip":
        skipped = [(run.id, OVERLAP) for run in due]
    elif rules.overlap == "allow" or not due:
        skipped = []
    elif replaces and begins:  # a newer one begins right now: there is nothing to wait for
        skipped = [(run.id, SUPERSEDED) for run in due]
    else:
        # A run that waits for its pool has its turn. Only under `replace` does a newer one take it, if it never began.
        behind = (run for run in waiting if not run.pooled or (replaces and run.attempt == 0))
        others = sorted((*due, *(run for run in behind if run.kind is RunKind.DUE)), key=_age)[:-1]
        skipped = [(run.id, SUPERSEDED) for run in others]
    gone = {run for run, _ in skipped}
    return Admission(
        claimed=tuple(claimed),
        waiting=tuple(run.id for run in held_back if run.id not in gone),
        skipped=tuple(skipped),
        asks_to_end=REPLACED if replaces and due and not begins else "",
    )


def enter(pool: PoolRow, candidates: Sequence[RunCandidate]) -> tuple[RunId, ...]:
    """Of the candidates that have their jobs' places, those that get places in the pool: the oldest."""
    size = UNSET_SIZE if pool.size is None else pool.size
    return tuple(run.id for run in sorted(candidates, key=_turn)[: max(0, size - pool.running)])


class AttemptState(NamedTuple):
    """The counters and times of a RUNNING run."""

    attempt: int
    failures: int
    losses: int
    due_at: Instant
    expires_at: Instant | None
    asked_to_end: str = ""
    kind: RunKind = RunKind.DUE
    interruptions: int = 0
    stopping: bool = False
    looks: int = 0
    looking_since: Instant | None = None
    last_look: int = 0


class After(NamedTuple):
    """A run after its attempt. The token and any request to end are gone in any case."""

    state: RunState
    attempt: int
    failures: int
    losses: int
    due_at: Instant
    expires_at: Instant | None
    reason: str = ""
    interruptions: int = 0
    looks: int = 0
    looking_since: Instant | None = None
    last_look: int = 0
    outcome: AttemptOutcome | None = None
    """How the attempt ended, if another one follows."""


def after_ending(run: AttemptState, ending: Ending, rules: Rules, *, job: JobState, now: Instant) -> After:
    """The run after an accepted ending."""
    removed = job is JobState.REMOVED
    match ending.state, ending.again_in:
        case RunState.PENDING, None if ending.interrupted:
            return after_interruption(run, rules, removed=removed)
        case RunState.PENDING, None:
            return after_return(run, rules, job=job, now=now)
        case RunState.PENDING, again_in if ending.wait_up_to is not None:
            return after_look(run, ending, again_in or 0.0, ending.wait_up_to, removed=removed, now=now)
        case RunState.PENDING, _ if run.asked_to_end:
            return _over(run, RunState.CANCELLED, run.asked_to_end)._replace(failures=run.failures + 1)
        case RunState.PENDING, _ if removed:
            return _over(run, RunState.FAILED, ending.error)._replace(failures=run.failures + 1)
        case RunState.PENDING, again_in:
            again = _over(run, RunState.PENDING, ending.error)
            since = now if ending.finished_at is None else ending.finished_at
            due_at = since + (again_in or 0.0)
            return again._replace(
                failures=run.failures + 1, due_at=due_at, expires_at=None, outcome=AttemptOutcome.FAILED
            )
        case RunState.FAILED, _:
            return _over(run, RunState.FAILED, ending.error)._replace(failures=run.failures + 1)
        case RunState.CANCELLED, _:
            return _over(run, RunState.CANCELLED, ending.error or run.asked_to_end)
        case state, _:
            return _over(run, state, ending.error)


def after_look(
    run: AttemptState, ending: Ending, again_in: float, wait_up_to: float, *, removed: bool, now: Instant
) -> After:
    """The run after its body raised `NotYet`. Neither a failure nor a loss; the last look is when the wait is over."""
    ended = now if ending.finished_at is None else ending.finished_at
    began = ended if ending.started_at is None else ending.started_at
    since = began if run.looking_since is None else run.looking_since
    until = since + wait_up_to
    look = _over(run, RunState.PENDING, ending.error)._replace(
        looks=run.looks + 1, looking_since=since, last_look=run.attempt
    )
    if run.asked_to_end:
        return look._replace(state=RunState.CANCELLED, reason=run.asked_to_end)
    if removed:
        return look._replace(state=RunState.CANCELLED, reason=REMOVED)
    if ended >= until:
        return look._replace(state=RunState.FAILED, reason=GAVE_UP + ending.error)
    return look._replace(due_at=min(ended + again_in, until), expires_at=None, outcome=AttemptOutcome.NOT_YET)


def after_return(run: AttemptState, rules: Rules, *, job: JobState, now: Instant) -> After:
    """Return a run whose body was never called, as if it had not been claimed, with enough time to be claimed again.

    A due time is SKIPPED if its job is paused by now, as it would have been without the claim.
    """
    back = _over(run, RunState.PENDING, "")._replace(attempt=run.attempt - 1)
    if run.asked_to_end:
        return back._replace(state=RunState.CANCELLED, reason=run.asked_to_end)
    if job is JobState.REMOVED:
        return back._replace(state=RunState.CANCELLED, reason=REMOVED)
    if job is JobState.PAUSED and run.kind is RunKind.DUE and back.attempt == 0:
        return back._replace(state=RunState.SKIPPED, reason=PAUSED)
    return back if run.expires_at is None else back._replace(expires_at=max(run.expires_at, now + rules.on_time))


def after_loss(run: AttemptState, rules: Rules, *, removed: bool) -> After:
    """The run after its node died. It keeps its `due_at`: that is past, whatever the clock says now."""
    if run.stopping:  # the node did as requested
        return after_interruption(run, rules, removed=removed)
    lost = _over(run, RunState.LOST, "its node died")._replace(losses=run.losses + 1)
    if run.asked_to_end:
        return lost._replace(state=RunState.CANCELLED, reason=run.asked_to_end)
    if removed or rules.on_lost == "fail" or lost.losses >= rules.max_lost:
        return lost
    return lost._replace(state=RunState.PENDING, expires_at=None, outcome=AttemptOutcome.LOST)


def after_interruption(run: AttemptState, rules: Rules, *, removed: bool) -> After:
    """The run after the stop of its node interrupted the body. The attempt is spent, but that is not a loss."""
    over = _over(run, RunState.LOST, STOPPED)._replace(interruptions=run.interruptions + 1)
    if run.asked_to_end:
        return over._replace(state=RunState.CANCELLED, reason=run.asked_to_end)
    if removed or rules.on_lost == "fail":
        return over
    return over._replace(state=RunState.PENDING, expires_at=None, outcome=AttemptOutcome.INTERRUPTED)


def followed(on: On, state: RunState, attempt: int) -> bool:
    """True if a run that follows this one begins: it ended as `on` says."""
    match on:
        case "success":
            return state is RunState.SUCCEEDED
        case "failure":
            return state in {RunState.FAILED, RunState.LOST}
        case _:
            return attempt > 0


def not_followed(parent: str, state: RunState, reason: str) -> str:
    """Why a run is SKIPPED that would have followed this one."""
    if state is not RunState.SKIPPED:
        return f"{AFTER}{parent} {'was ' if state in {RunState.LOST, RunState.CANCELLED} else ''}{state}"
    # A chain: the reason of the first one that did not run.
    return reason if reason.startswith(AFTER) else f"{AFTER}{parent} was skipped ({reason})"


def follows_again(follower: RunRow, parent_ended: Instant | None, state: RunState, reason: str) -> bool:
    """True if a run that never began becomes this by a new ending of the run that it follows."""
    if follower.state is not RunState.SKIPPED or follower.attempt or follower.count > 1:
        return False
    if (follower.state, follower.reason) == (state, reason):
        return False
    earlier = follower.finished_at is not None and parent_ended is not None and follower.finished_at < parent_ended
    return earlier or follower.reason.startswith(AFTER)


def with_last(kept: Sequence[AttemptRow], last: AttemptRow | None) -> list[AttemptRow]:
    """The attempts of a run: those that were kept when another one followed, and the one in the run's own row.

    The row has none before the first attempt. It has one that is kept already if a later one was given back unbegun,
    and if the run was cancelled between two attempts. Looks that follow each other are one.
    """
    if last is None or any(attempt.number == last.number for attempt in kept):
        return [*kept]
    before = kept[-1] if kept else None
    looks = last.outcome is AttemptOutcome.NOT_YET and before is not None and before.outcome is last.outcome
    if before is None or not looks or before.number != last.number - 1:
        return [*kept, last]
    all_looks = replace(last, count=before.count + 1, claimed_at=before.claimed_at, started_at=before.started_at)
    return [*kept[:-1], all_looks]


def reopens(state: RunState, count: int) -> bool:
    """True if a backfill reopens the run that has its key."""
    return state in {RunState.SKIPPED, RunState.CANCELLED, RunState.LOST} and count == 1


def retries(state: RunState, count: int) -> bool:
    """True if a retry reopens a run."""
    return count == 1 and (state is RunState.FAILED or reopens(state, count))


def cancelled_by(by: str, why: str) -> str:
    """The reason of a run that a user cancelled."""
    return f"{why} (by {by})" if by and why else why or (f"cancelled by {by}" if by else "cancelled")


def cancellation(action: Action | None, runs: Sequence[RunId]) -> tuple[Action | None, RunId | None]:
    """What the log of actions says of the cancelled runs of one job: the number of the only one, or how many."""
    if len(runs) == 1:
        return action, runs[0]
    return None if action is None else replace(action, detail=counted(len(runs), "run")), None


class Sync(StrEnum):
    """What `sync` does with a job."""

    ADD = "add"
    UPDATE = "update"
    RAISE = "raise"
    """Only raise its release and tzdata."""
    LEAVE = "leave"


def synced(row: JobRow | None, spec: JobSpec, release: int) -> Sync:
    """Compare a job with its last definition in code, tombstones included. An `update()` does not matter."""
    if row is None:
        return Sync.ADD
    if row.spec.release > release:
        return Sync.LEAVE
    if spec.same_as(row.code):
        return Sync.RAISE
    return Sync.ADD if row.state is JobState.REMOVED else Sync.UPDATE


def raised(row: JobRow, spec: JobSpec) -> JobSpec:
    """Its spec, with the release of the code that still defines it, and with its zone rules unless an `update()` gave
    it another trigger."""
    tzdata = max(row.spec.tzdata, spec.tzdata) if row.override is None else row.spec.tzdata
    return replace(row.spec, release=max(row.spec.release, spec.release), tzdata=tzdata)


SEEN_EVERY = 60.0
"""How often to record that code still defines a job that is removed or done."""


def must_be_seen(row: JobRow, now: Instant) -> bool:
    """True if it must be recorded that code defines a job, because its row would be forgotten otherwise."""
    if not row.code.in_code or row.state not in {JobState.REMOVED, JobState.DONE}:
        return False
    return row.defined_at < now - SEEN_EVERY or (row.removed_at is not None and row.defined_at <= row.removed_at)


def kept_of(run: RunRow) -> RunRow:
    """What remains of a requested run after retention: its key, how and when it ended, a digest of its arguments."""
    return RunRow(
        id=run.id,
        job=run.job,
        name=run.name,
        key=run.key,
        kind=RunKind.MANUAL,
        state=run.state,
        scheduled_for=run.scheduled_for,
        due_at=run.scheduled_for,
        attempt=0,
        failures=0,
        losses=0,
        node="",
        started_at=run.started_at,
        finished_at=run.finished_at,
        digest=digest_of(run.kwargs),
    )


def not_forgotten(runs: Iterable[NewRun], kept_since: Instant, now: Instant) -> list[NewRun]:
    """The due times of a change, without past ones that may have run before retention removed their runs."""
    return [run for run in runs if run.scheduled_for > now or run.scheduled_for >= kept_since]


def _turn(run: RunCandidate) -> tuple[Instant, RunId]:
    return run.due_at, run.id


def _newest_due_first(run: RunCandidate) -> tuple[bool, Instant, RunId]:
    """Requested runs in their turn, then due times, the newest before all those it replaces."""
    if run.kind is RunKind.DUE and run.attempt == 0:
        return True, -run.scheduled_for, run.id
    return False, run.due_at, run.id


def _age(run: RunCandidate) -> tuple[Instant, RunId]:
    return run.scheduled_for, run.id


def _over(run: AttemptState, state: RunState, reason: str) -> After:
    return After(
        state,
        run.attempt,
        run.failures,
        run.losses,
        run.due_at,
        run.expires_at,
        reason,
        run.interruptions,
        run.looks,
        run.looking_since,
        run.last_look,
    )
