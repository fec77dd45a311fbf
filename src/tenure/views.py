"""What queries return: jobs, runs, statistics and leaders, as frozen values with datetimes in the job's zone.
`as_dict()` is for JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, tzinfo
from functools import lru_cache
from typing import Any, Self

from tenure.core.alerts import AlertMessage, AlertRow
from tenure.core.arguments import decode_result, plain, shown
from tenure.core.attention import Concern
from tenure.core.backfills import LEFT, OVERTAKEN, BackfillRow, BackfillStateName
from tenure.core.cluster import Leader, TermRecord
from tenure.core.coverage import Coverage
from tenure.core.differences import differences, explained
from tenure.core.explain import Explanation
from tenure.core.figures import COUNTS, FiguresRow
from tenure.core.following import told
from tenure.core.messages import JobStats, LogLine, Progress
from tenure.core.records import (
    UNBEGUN,
    UNSET_SIZE,
    ActionRecord,
    AttemptRow,
    Instant,
    JobRow,
    JobState,
    JobStateName,
    NodeFacts,
    PoolRow,
    Rules,
    RunKindName,
    RunRow,
    RunState,
    RunStateName,
)
from tenure.core.trigger_text import read_trigger, zone_of
from tenure.core.waits import should_have_ended, waits_for
from tenure.errors import ConfigurationError, RunUnsuccessful, WaitTimeout
from tenure.triggers import Trigger
from tenure.util.clock import boottime, sleep
from tenure.util.durations import Duration, readable, seconds
from tenure.util.instants import moment
from tenure.util.last_line import last_line

__all__ = [
    "ActionView",
    "AlertMessageView",
    "AlertView",
    "AsyncRequestedRun",
    "AttemptView",
    "AttentionView",
    "BackfillView",
    "Explanation",
    "FiguresView",
    "JobView",
    "Leader",
    "LogLineView",
    "NodeView",
    "PoolView",
    "ProgressView",
    "RequestedBackfill",
    "RequestedRun",
    "RunView",
    "StatsView",
    "TermRecord",
]

LOOK_EVERY = 0.01, 0.5
"""Seconds between two looks at a run that is waited for: at first, and at the longest."""
_ENDS = {"lost": "was lost", "cancelled": "was cancelled", "skipped": "was skipped"}


@dataclass(frozen=True, slots=True)
class JobView:
    """A job."""

    name: str
    application: str
    state: JobStateName
    """'active', 'paused', 'done' (no due time is left and no run is open) or 'removed'."""
    function: str
    trigger: str
    """In plain words; 'after load (success)' for a job that follows another, '' for one that runs only on request."""
    tz: str
    next_due: datetime | None
    """By its trigger, or the time of a run that was requested for later. None while it is paused, and if neither is
    left."""
    kwargs: dict[str, Any]
    rules: Rules
    in_code: bool
    release: int
    generation: int
    since: datetime
    """When its trigger began to apply."""
    paused_until: datetime | None = None
    paused_by: str = ""
    paused_why: str = ""
    removed_at: datetime | None = None
    removed_by: str = ""
    changed_at: datetime | None = None
    """When an `update()` made it differ from the definition in code; None if it does not differ or no code
    defines it."""
    changed_by: str = ""
    changed_why: str = ""
    tags: tuple[str, ...] = ()
    """The tags among its `rules`."""
    code: dict[str, str] | None = None
    """What the code says instead, by option: `{"trigger": "Every 5 s …", "retries": "0"}`. `reset` restores it."""
    orphaned: str = field(default="", compare=False)
    """Why no live node can run it, such as "no live node has its function 'poll'"; '' if one can, if it is not active,
    or in the answer to a change. Two views that differ only in this are equal."""
    unanswered: tuple[str, ...] = ()
    """For the result of `pause` and `remove`: nodes that did not answer within their ttl. Runs that they had claimed
    may still begin there."""

    @classmethod
    def of(cls, row: JobRow, where: tzinfo, now: Instant, coverage: Coverage | None = None) -> Self:
        """The view of a row, in the zone of the job."""
        spec = row.spec
        gap = None
        if coverage is not None and row.state is JobState.ACTIVE:
            gap = coverage.gap(spec.function, spec.rules.queue)
        trigger, _ = read_trigger(spec.trigger)
        due, trouble = (None, "") if trigger is None or row.state != "active" else _next(trigger, row, now)
        return cls(
            name=spec.name,
            application=spec.application,
            state=row.state.value,
            function=spec.function,
            trigger=trouble or told(spec.rules) or _explained(spec.trigger),
            tz=str(where),
            next_due=due,
            kwargs=shown(spec.kwargs),
            rules=spec.rules,
            in_code=spec.in_code,
            release=spec.release,
            generation=row.generation,
            since=moment(row.since, where),
            paused_until=_moment(row.paused_until, where),
            paused_by=row.paused_by,
            paused_why=row.paused_why,
            removed_at=_moment(row.removed_at, where),
            removed_by=row.removed_by,
            tags=spec.rules.tags,
            orphaned="" if gap is None else gap.text,
            **_override(row, where),
        )

    def as_dict(self) -> dict[str, Any]:
        """Only texts, numbers, lists and dicts."""
        return _plain(self)


@dataclass(frozen=True, slots=True)
class ParentRun:
    """The run of another job that a run follows (`run.parent`), as it was when that one was claimed."""

    job: str
    key: str
    """The same as that of the run that follows."""
    state: RunStateName
    """'succeeded', 'failed' …"""
    result: Any = None
    """What its body returned, if that is kept already: after `run.complete()` it arrives within about a second."""


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One attempt of a run."""

    number: int
    """1 for the first. Numbers go on when the run is reopened."""
    node: str
    """The label of the node that had it."""
    claimed_at: datetime | None
    started_at: datetime | None
    """None if its node was lost before the ledger heard that its body had begun."""
    finished_at: datetime | None
    duration: float | None
    """Seconds from its beginning to its end."""
    outcome: str
    """'running', 'succeeded', 'failed', 'lost' (its node died), 'interrupted' (its node was stopped), 'not yet' (it
    raised `NotYet`) or 'cancelled'."""
    error: str
    """The traceback, or how its end was known, such as 'its node died'."""
    count: int = 1
    """How many attempts this stands for: looks that follow each other are one, with the number of the last."""

    @classmethod
    def of(cls, row: AttemptRow, where: tzinfo) -> Self:
        """The view of a row."""
        return cls(
            number=row.number,
            node=row.node,
            claimed_at=_moment(row.claimed_at, where),
            started_at=_moment(row.started_at, where),
            finished_at=_moment(row.finished_at, where),
            duration=_took(row.started_at, row.finished_at),
            outcome=row.outcome.value,
            error=row.error,
            count=row.count,
        )

    def as_dict(self) -> dict[str, Any]:
        """Only texts, numbers, lists and dicts."""
        return _plain(self)


@dataclass(frozen=True, slots=True)
class ProgressView:
    """How far a body said it is (`run.progress`)."""

    done: float
    total: float | None
    text: str
    at: datetime
    attempt: int

    @classmethod
    def of(cls, progress: Progress, where: tzinfo) -> Self:
        """The view of a progress."""
        return cls(progress.done, progress.total, progress.text, moment(progress.at, where), progress.attempt)

    def __str__(self) -> str:
        share = f" ({100 * self.done / self.total:.0f} %)" if self.total and self.total > 0 else ""
        of = "" if self.total is None else f" of {_number(self.total)}{share}"
        return f"{_number(self.done)}{of}{f', {self.text}' if self.text else ''}"


@dataclass(frozen=True, slots=True)
class LogLineView:
    """A line that an attempt logged (`run.log`)."""

    at: datetime
    attempt: int
    text: str

    @classmethod
    def of(cls, line: LogLine, where: tzinfo) -> Self:
        """The view of a line."""
        return cls(moment(line.at, where), line.attempt, line.text)

    def as_dict(self) -> dict[str, Any]:
        """Only texts, numbers, lists and dicts."""
        return _plain(self)


@dataclass(frozen=True, slots=True)
class RunView:
    """A run."""

    id: int
    job: str
    key: str
    kind: RunKindName
    """'due', 'manual' or 'backfill'."""
    state: RunStateName
    scheduled_for: datetime
    due_at: datetime
    """When it was allowed to begin: after jitter, spread and pauses between attempts."""
    attempt: int
    failures: int
    losses: int
    """Attempts whose nodes died, the number that `max_lost` limits."""
    interruptions: int
    """Attempts that stops of nodes interrupted."""
    node: str
    """The label of the node that has it, or had its last attempt; '' while its next attempt has not begun."""
    claimed_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    duration: float | None
    """Seconds from the beginning of the last attempt to its end."""
    lateness: float | None
    """Seconds from when it was allowed to begin to when it did; None also while it waits for a retry."""
    reason: str
    count: int
    """How many due times a skipped run stands for, from `scheduled_for` …"""
    until: datetime | None
    """… to this one."""
    by: str
    kwargs: dict[str, Any] | None
    """The arguments given with `run_now` instead of the job's own."""
    stopping: bool
    """True if it is running and its node was requested to stop."""
    looks: int = 0
    """Attempts that raised `NotYet`."""
    looking_since: datetime | None = None
    """When the first of these began: `wait_up_to` counts from there."""
    waiting: str = ""
    """What it waits for: other runs of its job, a place in a pool, or between two looks 'file not there, 12 looks,
    next at …'. Else ''."""
    slot: str = ""
    """The slot that it was requested for."""
    forgotten: bool = False
    """True if retention has removed this run; its key is kept, with its state and its times."""
    running_for: float | None = None
    """Seconds since its attempt began, if it is running."""
    should_have_ended: str = ""
    """Why it should have ended, if it is running and was asked to end: it was cancelled, or its timeout has passed."""
    progress: ProgressView | None = None
    """How far its body said it is. `find_run` reads it, and `runs` for those that are running."""
    result: Any = None
    """What its body returned, if that is JSON of up to 8 KB. Only `find_run` reads it."""
    attempts: tuple[AttemptView, ...] = ()
    """All of its attempts; only `find_run` reads them."""

    @classmethod
    def of(
        cls,
        row: RunRow,
        where: tzinfo,
        *,
        now: Instant | None = None,
        rules: Rules | None = None,
        others: Iterable[RunRow] = (),
        progress: Progress | None = None,
        result: str | None = None,
        attempts: Iterable[AttemptRow] = (),
    ) -> Self:
        """The view of a row. `rules` are those of its job, and `others` open runs of its job."""
        since = row.began_at
        running_for = None
        if row.state is RunState.RUNNING and now is not None and since is not None:
            running_for = max(round(now - since, 3), 0.0)
        began, ended = row.started_at, row.finished_at if row.state.final else None
        return cls(
            id=row.id,
            job=row.name,
            key=row.key,
            kind=row.kind.value,
            state=row.state.value,
            scheduled_for=moment(row.scheduled_for, where),
            due_at=moment(row.due_at, where),
            attempt=row.attempt,
            failures=row.failures,
            losses=row.losses,
            interruptions=row.interruptions,
            node="" if row.state in UNBEGUN else row.node,
            claimed_at=_moment(row.claimed_at, where),
            started_at=_moment(began, where),
            finished_at=_moment(ended, where),
            duration=_took(began, ended),
            lateness=None if began is None or row.state in UNBEGUN else max(round(began - row.due_at, 6), 0.0),
            reason=row.reason,
            count=row.count,
            until=_moment(row.until, where),
            by=row.by,
            kwargs=None if row.kwargs is None else shown(row.kwargs),
            stopping=row.stopping and row.state is RunState.RUNNING,
            looks=row.looks,
            looking_since=_moment(row.looking_since, where),
            waiting=waits_for(row, where, rules, others),
            slot=row.slot,
            forgotten=row.digest is not None,
            running_for=running_for,
            should_have_ended="" if rules is None or now is None else should_have_ended(row, rules, now),
            progress=None if progress is None else ProgressView.of(progress, where),
            result=None if result is None else decode_result(result),
            attempts=tuple(AttemptView.of(attempt, where) for attempt in attempts),
        )

    def as_dict(self) -> dict[str, Any]:
        """Only texts, numbers, lists and dicts."""
        return _plain(self)


class _Requested(RunView):
    """A run that was requested through a scheduler, which can look at it again."""

    __slots__ = ("_look",)
    _look: Callable[[], RunView]

    @classmethod
    def through(cls, run: RunView, look: Callable[[], RunView]) -> Self:
        """The same run. `look` reads how it is; once it is over, with its result and its attempts."""
        found = cls(*(getattr(run, one.name) for one in fields(RunView)))
        object.__setattr__(found, "_look", look)
        return found

    def __eq__(self, other: object) -> bool:
        names = [one.name for one in fields(RunView)]
        return isinstance(other, RunView) and all(getattr(self, name) == getattr(other, name) for name in names)

    __hash__ = RunView.__hash__


class RequestedRun(_Requested):
    """What `run_now`, `run_at` and `retry` return: the run as it was requested."""

    __slots__ = ()

    def wait(self, timeout: Duration | None = None) -> RunView:
        """Wait for its end, and return the run as it succeeded, with `.result`.

        Raises `RunUnsuccessful` if it ended otherwise, and `WaitTimeout` if it has not ended within `timeout`.
        """
        patience, run = _Patience(timeout), self if self.forgotten else self._look()
        while not RunState(run.state).final:
            sleep(patience.pause(run))
            run = self._look()
        return _successful(run)


class AsyncRequestedRun(_Requested):
    """The same for `AsyncScheduler`."""

    __slots__ = ()

    async def wait(self, timeout: Duration | None = None) -> RunView:  # noqa: ASYNC109 - the words of the other
        """Wait for its end; see `RequestedRun.wait`."""
        patience, run = _Patience(timeout), self if self.forgotten else await asyncio.to_thread(self._look)
        while not RunState(run.state).final:
            await asyncio.sleep(patience.pause(run))
            run = await asyncio.to_thread(self._look)
        return _successful(run)


class _Patience:
    """How long to wait for a run before the next look at it."""

    def __init__(self, timeout: Duration | None) -> None:
        self._timeout = None if timeout is None else seconds(timeout, "timeout")
        self._end = None if self._timeout is None else boottime() + self._timeout
        self._next = LOOK_EVERY[0]

    def pause(self, run: RunView) -> float:
        """Seconds. Raises when the time is up."""
        pause, self._next = self._next, min(1.5 * self._next, LOOK_EVERY[1])
        if self._end is None or self._timeout is None:
            return pause
        left = self._end - boottime()
        if left <= 0:
            where = f" on {run.node}" if run.state == "running" else f": {run.waiting}" if run.waiting else ""
            raise WaitTimeout(
                f"wait: run {run.id} of {run.job!r} has not ended within {readable(self._timeout)}: it is "
                f"{run.state}{where}. It goes on; `tenure show {run.id}` and `tenure why {run.job}` tell more."
            )
        return min(pause, left)


def _successful(run: RunView) -> RunView:
    if run.state == "succeeded":
        return run
    reason = f": {last_line(run.reason)}" if run.reason else ""
    raise RunUnsuccessful(
        f"run {run.id} of {run.job!r} {_ENDS.get(run.state, run.state)}"
        f"{f' on attempt {run.attempt}' if run.attempt > 1 else ''}{reason}. "
        f"The whole story: tenure show {run.id}",
        run,
    )


@dataclass(frozen=True, slots=True)
class StatsView:
    """Statistics of a job's recent runs, in seconds; None without runs."""

    job: str
    runs: int
    failed: int
    duration_p50: float | None
    duration_p99: float | None
    lateness_p50: float | None
    lateness_p99: float | None
    last_state: RunStateName | None
    last_at: datetime | None

    @classmethod
    def of(cls, job: str, stats: JobStats, where: tzinfo) -> Self:
        """The view of statistics."""
        return cls(
            job=job,
            runs=stats.runs,
            failed=stats.failed,
            duration_p50=stats.duration_p50,
            duration_p99=stats.duration_p99,
            lateness_p50=stats.lateness_p50,
            lateness_p99=stats.lateness_p99,
            last_state=None if stats.last_state is None else stats.last_state.value,
            last_at=_moment(stats.last_at, where),
        )

    def as_dict(self) -> dict[str, Any]:
        """Only texts, numbers, lists and dicts."""
        return _plain(self)


@dataclass(frozen=True, slots=True)
class FiguresView:
    """What became of the runs of a job that were due in an hour or on a day. Kept for 400 days, whatever retention
    removes. Percentiles are within 10 %; seconds, None without runs."""

    job: str
    start: datetime
    """The beginning of the hour or day, in UTC."""
    succeeded: int
    failed: int
    lost: int
    cancelled: int
    skipped: int
    """For another reason than that they were missed."""
    missed: int
    open: int
    """Not over yet."""
    lateness_mean: float | None
    lateness_p99: float | None
    lateness_max: float | None
    duration_p50: float | None
    duration_p95: float | None
    duration_p99: float | None
    duration_max: float | None
    duration_total: float
    worst: str
    """The worst that happened: 'lost', 'failed', 'missed', 'cancelled', 'skipped', 'succeeded' or 'open'."""

    @classmethod
    def of(cls, job: str, row: FiguresRow) -> Self:
        """The view of an hour or a day."""
        figures, late, took = row.figures, row.figures.late, row.figures.took
        return cls(
            job=job,
            start=moment(row.start),
            **{name: getattr(figures, name) for name in COUNTS},
            lateness_mean=late.mean,
            lateness_p99=late.percentile(0.99),
            lateness_max=late.longest,
            duration_p50=took.percentile(0.5),
            duration_p95=took.percentile(0.95),
            duration_p99=took.percentile(0.99),
            duration_max=took.longest,
            duration_total=took.total / 1e6,
            worst=figures.worst,
        )

    def as_dict(self) -> dict[str, Any]:
        """Only texts, numbers, lists and dicts."""
        return _plain(self)


@dataclass(frozen=True, slots=True)
class PoolView:
    """A pool: a limit shared by several jobs."""

    name: str
    size: int
    """How many runs of its jobs may run at once."""
    is_set: bool
    """False if no one has set its size: it counts as 1."""
    running: int
    waiting: int
    """How many runs wait for a place."""

    @classmethod
    def of(cls, row: PoolRow) -> Self:
        """The view of a pool."""
        size = UNSET_SIZE if row.size is None else row.size
        return cls(row.name, size, row.size is not None, row.running, row.waiting)

    def as_dict(self) -> dict[str, Any]:
        """Only texts, numbers, lists and dicts."""
        return _plain(self)


@dataclass(frozen=True, slots=True)
class BackfillView:
    """A backfill, and how far it is. Its due times were fixed when it was created."""

    number: int
    job: str
    state: BackfillStateName
    """'running', 'paused', 'cancelled' or 'done'."""
    since: datetime
    until: datetime
    include: tuple[str, ...]
    """Which due times it took: 'missing', 'lost', 'failed'."""
    at_once: int | None
    """How many of its runs may be open at once; None: all."""
    created_at: datetime
    by: str
    why: str
    state_by: str
    """Who paused, resumed or cancelled it the last time …"""
    state_why: str
    """… and why."""
    finished_at: datetime | None
    """When the last of its runs was over, and none was left to request."""
    total: int
    """How many due times it has. They are counted by how their runs first ended:"""
    succeeded: int = 0
    failed: int = 0
    lost: int = 0
    cancelled: int = 0
    skipped: int = 0
    overtaken: int = 0
    """When their turn came, their runs had been requested or had ended by other means."""
    running: int = 0
    waiting: int = 0
    """Requested, and not running: they wait for their turn, a free slot, or the next attempt."""
    left: int = 0
    """Not requested. Of a backfill that was cancelled, they stay so."""

    @classmethod
    def of(cls, row: BackfillRow, where: tzinfo) -> Self:
        """The view of a backfill."""
        return cls(**_backfill_fields(row, where))

    @property
    def over(self) -> int:
        """How many of its due times are settled."""
        return self.total - self.left - self.waiting - self.running

    @property
    def progress(self) -> str:
        """How far it is, in words: '120 of 300 finished: 118 succeeded, 2 failed; 2 running, 178 left'."""
        ended = _counts(self, ("succeeded", "failed", "lost", "cancelled", "skipped", "overtaken"))
        open_ = _counts(self, ("running", "waiting", "left"))
        return f"{self.over:,} of {self.total:,} finished{f': {ended}' if ended else ''}{f'; {open_}' if open_ else ''}"

    def as_dict(self) -> dict[str, Any]:
        """Only texts, numbers, lists and dicts."""
        return _plain(self)


@dataclass(frozen=True, slots=True)
class RequestedBackfill(BackfillView):
    """What `backfill` returns: the backfill as it was created, and a sequence of the runs that it has requested so far.

    `number` is 0 if there was nothing to run: then no backfill was created.
    """

    runs: tuple[RunView, ...] = ()

    @classmethod
    def through(cls, row: BackfillRow, where: tzinfo, runs: Iterable[RunView] = ()) -> Self:
        """The view of a backfill that has just requested these runs."""
        return cls(**_backfill_fields(row, where), runs=tuple(runs))

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[RunView]:
        return iter(self.runs)

    def __getitem__(self, place: int) -> RunView:
        return self.runs[place]


def _backfill_fields(row: BackfillRow, where: tzinfo) -> dict[str, Any]:
    waiting = row.counts.get(RunState.PENDING, 0) + row.counts.get(RunState.WAITING, 0)
    words = (*(state.value for state in RunState if state not in UNBEGUN), OVERTAKEN, LEFT)
    return {
        "number": row.number,
        "job": row.name,
        "state": row.state.value,
        "since": moment(row.since, where),
        "until": moment(row.until, where),
        "include": row.include,
        "at_once": row.at_once,
        "created_at": moment(row.created_at, where),
        "by": row.by,
        "why": row.why,
        "state_by": row.state_by,
        "state_why": row.state_why,
        "finished_at": _moment(row.finished_at, where),
        "total": sum(row.counts.values()),
        "waiting": waiting,
        **{word: row.counts.get(word, 0) for word in words},
    }


def _counts(view: BackfillView, words: Iterable[str]) -> str:
    return ", ".join(f"{getattr(view, word):,} {word}" for word in words if getattr(view, word))


@dataclass(frozen=True, slots=True)
class ActionView:
    """What a person did: one line of the log of actions."""

    id: int
    at: datetime
    by: str
    what: str
    """The operation, as the command line spells it: 'pause', 'run-now' …"""
    target: str
    """The job, or the election."""
    run: int | None
    """The number of the run, if the operation was about one."""
    why: str
    origin: str
    """Where it came from: a command line, or the label of a process."""
    detail: str
    """What else there is to say of it: how long, how many, what changed."""

    @classmethod
    def of(cls, row: ActionRecord, where: tzinfo) -> Self:
        """The view of a line."""
        return cls(
            id=row.id,
            at=moment(row.at, where),
            by=row.by,
            what=row.what,
            target=row.target,
            run=row.run,
            why=row.why,
            origin=row.origin,
            detail=row.detail,
        )

    def as_dict(self) -> dict[str, Any]:
        """Only texts, numbers, lists and dicts."""
        return _plain(self)


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node that was not declared dead, by what it wrote down."""

    label: str
    """Its human-readable name."""
    id: str
    host: str
    since: datetime
    """When it joined."""
    plans: bool
    """True if it is the planner."""
    release: int
    library: str
    """The version of tenure."""
    tzdata: str
    """The release of the zone rules."""
    queues: tuple[str, ...] | None
    """The queues that it serves; None: all."""
    capacity: int
    running: int
    """How many runs it has, counted from the runs."""
    clock_offset: float | None
    """By how many seconds its clock is ahead of the database's; None if it does not know."""
    functions: tuple[str, ...]
    only_here: tuple[str, ...]
    """Its functions that no other live node has."""
    silent: bool = False
    """True if it gave no sign of life within its ttl, and no other node has declared it dead so far: it was killed, is
    frozen or cut off, and nothing runs there."""

    @classmethod
    def of(cls, node: NodeFacts, running: int, others: frozenset[str], tz: str, *, silent: bool = False) -> Self:
        """The view of a node; `others` are the functions of all other nodes."""
        return cls(
            label=node.label,
            id=node.node,
            host=node.host,
            since=moment(node.since, zone_of(None, default=tz)),
            plans=node.plans,
            release=node.release,
            library=node.library,
            tzdata=node.tzdata,
            queues=node.queues,
            capacity=node.capacity,
            running=running,
            clock_offset=node.clock_offset,
            functions=tuple(sorted(node.functions)),
            only_here=tuple(sorted(node.functions - others)),
            silent=silent,
        )

    def as_dict(self) -> dict[str, Any]:
        """Only texts, numbers, lists and dicts."""
        return _plain(self)


@dataclass(frozen=True, slots=True)
class AttentionView:
    """Something that an operator has to look at: all jobs that one cause applies to."""

    cause: str
    """A stable word, such as 'no_function': see docs/how-to/monitoring.md."""
    fails: bool
    """True if `tenure status` ends with exit code 1 because of it."""
    jobs: tuple[str, ...]
    """The names of the jobs, at most 1,000."""
    text: str
    """A sentence or two."""
    since: datetime | None
    """The oldest of the due times that should have run; for a removed job, when it was removed."""
    overdue: int
    """How many due times should have run, at most 1,000."""

    @classmethod
    def of(cls, concern: Concern, tz: str) -> Self:
        """The view of a concern."""
        return cls(
            cause=concern.cause.value,
            fails=concern.fails,
            jobs=concern.jobs,
            text=concern.text,
            since=_moment(concern.since, zone_of(None, default=tz)),
            overdue=concern.overdue,
        )

    def as_dict(self) -> dict[str, Any]:
        """Only texts, numbers, lists and dicts."""
        return _plain(self)


@dataclass(frozen=True, slots=True)
class AlertMessageView:
    """What one sink was told of an alert, or is still to be told."""

    sink: str
    event: str
    """'opened' or 'closed'."""
    sent_at: datetime | None
    """When the sink accepted it; None if it has not."""
    tries: int
    """How many times it has not."""
    error: str
    """How the last of these failed."""
    given_up: bool
    """It is not sent again."""

    @classmethod
    def of(cls, message: AlertMessage, where: tzinfo) -> Self:
        """The view of a message."""
        return cls(
            sink=message.sink,
            event=message.event,
            sent_at=_moment(message.sent_at, where),
            tries=message.tries,
            error=message.error,
            given_up=message.given_up,
        )


@dataclass(frozen=True, slots=True)
class AlertView:
    """Something that was wrong, or is, and of which the sinks of `alert_to` are told."""

    id: str
    kind: str
    """A stable word, such as 'failing': see docs/how-to/alerts.md."""
    target: str
    """The name of the job or the label of the node; '*' for many of them, '' for the application."""
    text: str
    """What is wrong, or was, in a sentence or two."""
    since: datetime
    """Since when it is wrong."""
    opened_at: datetime
    closed_at: datetime | None
    """None while it is open."""
    messages: tuple[AlertMessageView, ...]

    @classmethod
    def of(cls, row: AlertRow, messages: Iterable[AlertMessage], tz: str) -> Self:
        """The view of an alert that was opened."""
        where = zone_of(None, default=tz)
        return cls(
            id=row.id,
            kind=row.kind,
            target=row.target,
            text=row.text,
            since=moment(row.since, where),
            opened_at=moment(row.first_seen if row.opened_at is None else row.opened_at, where),
            closed_at=_moment(row.closed_at, where),
            messages=tuple(AlertMessageView.of(one, where) for one in messages),
        )

    @property
    def open(self) -> bool:
        """True if it is not over."""
        return self.closed_at is None

    @property
    def untold(self) -> tuple[AlertMessageView, ...]:
        """What a sink has not accepted yet, or never will."""
        return tuple(one for one in self.messages if one.sent_at is None)

    def as_dict(self) -> dict[str, Any]:
        """Only texts, numbers, lists and dicts."""
        return {**_plain(self), "open": self.open}


@lru_cache(maxsize=4096)
def _explained(trigger: str | None) -> str:
    return explained(trigger)


def _override(row: JobRow, where: tzinfo) -> dict[str, Any]:
    if row.override is None:
        return {}
    return {
        "changed_at": moment(row.override.at, where),
        "changed_by": row.override.by,
        "changed_why": row.override.why,
        "code": {word: theirs for word, _, theirs in differences(row.spec, row.code)},
    }


def _next(trigger: Trigger, row: JobRow, now: Instant) -> tuple[datetime | None, str]:
    """The next due time by the trigger, because the row has the first due time that is not planned yet; and what is
    wrong if it has none."""
    try:
        return trigger.next_after(moment(max(now, row.since))), ""
    except ConfigurationError as error:
        return None, f"cannot be planned: {error}"


def _moment(at: Instant | None, where: tzinfo) -> datetime | None:
    return None if at is None else moment(at, where)


def _took(began: Instant | None, ended: Instant | None) -> float | None:
    return None if began is None or ended is None else max(round(ended - began, 6), 0.0)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:,.2f}"


def _plain(
    view: ActionView
    | AlertView
    | AttemptView
    | AttentionView
    | BackfillView
    | FiguresView
    | JobView
    | LogLineView
    | NodeView
    | PoolView
    | RunView
    | StatsView,
) -> dict[str, Any]:
    return {word: plain(value) for word, value in asdict(view).items()}
