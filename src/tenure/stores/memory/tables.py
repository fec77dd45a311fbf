"""The tables of the ledger in memory: plain dicts, and the steps that keep them consistent. The caller
holds the mutex."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tenure.core.alerts import AlertMessage, AlertRow
from tenure.core.backfills import BackfillRow
from tenure.core.cluster import NodeId
from tenure.core.figures import HOUR, Figures
from tenure.core.keys import due_key
from tenure.core.messages import Action, ClaimedRun, LogLine, NewRun, Progress, RunQuery
from tenure.core.planning import MISSED
from tenure.core.records import (
    UNBEGUN,
    ActionRecord,
    AttemptOutcome,
    AttemptRow,
    ChangeRecord,
    Instant,
    JobId,
    JobRow,
    JobState,
    NodeFacts,
    PoolRow,
    RunId,
    RunKind,
    RunRow,
    RunState,
)
from tenure.core.run_rules import After, AttemptState, RunCandidate, with_last
from tenure.stores.row_checks import attempt_outcome


@dataclass(slots=True)
class MemoryRun:
    """A run. It has a token, and perhaps a request to end, only while it is RUNNING."""

    id: RunId
    job: JobId
    key: str
    kind: RunKind
    state: RunState
    generation: int
    scheduled_for: Instant
    due_at: Instant
    expires_at: Instant | None
    reason: str = ""
    count: int = 1
    until: Instant | None = None
    by: str = ""
    kwargs: str | None = None
    attempt: int = 0
    failures: int = 0
    losses: int = 0
    interruptions: int = 0
    stopping: bool = False
    looks: int = 0
    looking_since: Instant | None = None
    last_look: int = 0
    pool: str = ""
    node: NodeId | None = None
    label: str = ""
    token: str = ""
    asked_to_end: str = ""
    claimed_at: Instant | None = None
    started_at: Instant | None = None
    finished_at: Instant | None = None
    reopened: int = 0
    """The number of its attempts when it was last reopened, by a retry or a backfill."""
    slot: str | None = None
    owes: bool = False
    """Its job is followed: once it is final, its followers are owed their runs."""
    outcome: AttemptOutcome | None = None
    """How the last attempt ended, while it is between two attempts."""
    result: str | None = None
    traceparent: str = ""
    attempts: tuple[AttemptRow, ...] = ()
    """The attempts that others have followed."""
    progress: Progress | None = None
    log: dict[tuple[int, int], LogLine] = field(default_factory=dict)

    @property
    def began(self) -> bool:
        """True if it occupies one of its job's places."""
        if self.state is RunState.WAITING:
            return bool(self.pool)
        return self.state is RunState.RUNNING or (self.state is RunState.PENDING and self.attempt > self.reopened)

    @property
    def has_slot(self) -> bool:
        """True if no other run of its job may have its slot."""
        return self.slot is not None and self.state in UNBEGUN and self.attempt == 0

    @property
    def last(self) -> Instant:
        """The last due time that it stands for."""
        return self.scheduled_for if self.until is None else self.until

    @property
    def missed(self) -> bool:
        """True if it stands for due times that were missed."""
        return self.state is RunState.SKIPPED and self.reason == MISSED

    def expired(self, now: Instant) -> bool:
        """True if it counts as missed."""
        return self.state is RunState.PENDING and self.expires_at is not None and self.expires_at <= now

    def ready(self, now: Instant) -> bool:
        """True if it may be claimed."""
        return self.state is RunState.PENDING and self.due_at <= now and not self.expired(now)

    def candidate(self) -> RunCandidate:
        pooled = self.state is RunState.WAITING and bool(self.pool)
        return RunCandidate(self.id, self.kind, self.scheduled_for, self.due_at, self.attempt - self.reopened, pooled)

    def behind(self) -> AttemptState:
        return AttemptState(
            self.attempt,
            self.failures,
            self.losses,
            self.due_at,
            self.expires_at,
            self.asked_to_end,
            self.kind,
            self.interruptions,
            self.stopping,
            self.looks,
            self.looking_since,
            self.last_look,
        )

    def all_attempts(self) -> list[AttemptRow]:
        """All of its attempts."""
        return with_last(self.attempts, self._last() if self.attempt else None)

    def keep_attempt(self) -> None:
        """Keep the last attempt, before the row loses it."""
        self.attempts = tuple(self.all_attempts())

    def _last(self) -> AttemptRow:
        """The attempt in this row."""
        return AttemptRow(
            number=self.attempt,
            node=self.label,
            claimed_at=self.claimed_at,
            started_at=self.started_at,
            finished_at=self.finished_at,
            outcome=self.outcome or attempt_outcome(self.state.value),
            error=self.reason,
        )

    def answers(self, query: RunQuery) -> bool:
        """True if it matches the query, apart from application and job."""
        return (
            (not query.states or self.state in query.states)
            and (query.since is None or self.last >= query.since)
            and (
                query.since is None or query.above is None or (self.scheduled_for, self.id) > (query.since, query.above)
            )
            and (query.before is None or (self.scheduled_for, self.id) < (query.before, query.below or 0))
            and query.id in {None, self.id}
            and query.key in {None, self.key}
            and (query.slot is None or (self.has_slot and query.slot == self.slot))
        )

    def claimed(self, row: JobRow) -> ClaimedRun:
        return ClaimedRun(
            id=self.id,
            job=row.id,
            name=row.spec.name,
            function=row.spec.function,
            kwargs=row.spec.kwargs if self.kwargs is None else self.kwargs,
            key=self.key,
            kind=self.kind,
            scheduled_for=self.scheduled_for,
            due_at=self.due_at,
            attempt=self.attempt,
            failures=self.failures,
            generation=row.generation,
            rules=row.spec.rules,
            trigger=row.spec.trigger,
            owes=self.owes,
        )

    def row(self, name: str) -> RunRow:
        return RunRow(
            id=self.id,
            job=self.job,
            name=name,
            key=self.key,
            kind=self.kind,
            state=self.state,
            scheduled_for=self.scheduled_for,
            due_at=self.due_at,
            attempt=self.attempt,
            failures=self.failures,
            losses=self.losses,
            node=self.label,
            claimed_at=self.claimed_at,
            started_at=self.started_at,
            finished_at=self.finished_at,
            reason=self.reason,
            count=self.count,
            until=self.until,
            by=self.by,
            kwargs=self.kwargs,
            generation=self.generation,
            interruptions=self.interruptions,
            stopping=self.stopping,
            looks=self.looks,
            looking_since=self.looking_since,
            last_look=self.last_look,
            slot=self.slot or "",
            pool=self.pool,
            asked_to_end=self.asked_to_end,
        )


@dataclass(slots=True)
class KeptFigures:
    """The figures of a job, by the beginnings of hours and days."""

    hours: dict[Instant, Figures] = field(default_factory=dict)
    """Of the runs that are there."""
    removed: dict[Instant, Figures] = field(default_factory=dict)
    """By hour, of runs that retention has removed."""
    days: dict[Instant, Figures] = field(default_factory=dict)
    """Of days whose hours are gone."""
    touched: set[Instant] = field(default_factory=set)
    """Hours in which a run was inserted or reopened since they were counted."""


@dataclass(slots=True)
class MemoryMessage:
    """A message about an alert."""

    message: AlertMessage
    claimed_until: Instant | None = None


@dataclass(slots=True)
class BackfilledTime:
    """A due time of a backfill."""

    run: RunId | None = None
    outcome: str = ""
    """How it was settled; '': it was not."""

    @property
    def left(self) -> bool:
        """True if nothing has requested its run."""
        return self.run is None and not self.outcome

    @property
    def open(self) -> bool:
        """True if its run was requested, and is not known to be over."""
        return self.run is not None and not self.outcome


@dataclass(slots=True)
class MemoryBackfill:
    """A backfill, and its due times, oldest first."""

    row: BackfillRow
    due: dict[Instant, BackfilledTime]


@dataclass(slots=True)
class Tables:
    """Jobs, runs, the history of changes, the facts of nodes, and guards."""

    jobs: dict[JobId, JobRow] = field(default_factory=dict)
    names: dict[tuple[str, str], JobId] = field(default_factory=dict)
    runs: dict[RunId, MemoryRun] = field(default_factory=dict)
    keys: dict[JobId, dict[str, MemoryRun]] = field(default_factory=dict)
    open: dict[JobId, dict[RunId, MemoryRun]] = field(default_factory=dict)
    """The runs that are not final, so that no step has to search all runs."""
    changes: list[ChangeRecord] = field(default_factory=list)
    actions: list[ActionRecord] = field(default_factory=list)
    facts: dict[tuple[NodeId, str], NodeFacts] = field(default_factory=dict)
    forgotten: dict[str, tuple[Instant, int]] = field(default_factory=dict)
    """By application, for forgotten jobs: the instant up to which they may have run, and their highest generation."""
    kept_keys: dict[tuple[JobId, str], RunRow] = field(default_factory=dict)
    """Keys of requested runs that retention has removed."""
    followed: set[JobId] = field(default_factory=set)
    """Jobs that others follow, or have followed."""
    pools: dict[tuple[str, str], int] = field(default_factory=dict)
    """The sizes that were set, by application and name."""
    figures: dict[JobId, KeptFigures] = field(default_factory=dict)
    counted_up_to: dict[str, Instant] = field(default_factory=dict)
    """By application: before this instant, every hour was counted when it was over."""
    alerts: dict[str, AlertRow] = field(default_factory=dict)
    messages: dict[int, MemoryMessage] = field(default_factory=dict)
    backfills: dict[int, MemoryBackfill] = field(default_factory=dict)
    guards: dict[tuple[str, str], tuple[Instant, str, Instant | None]] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def job(self, application: str, name: str) -> JobRow | None:
        """A job, even if it is removed."""
        known = self.names.get((application, name))
        return None if known is None else self.jobs[known]

    def there(self, application: str, name: str) -> JobRow | None:
        """A job that is not removed."""
        row = self.job(application, name)
        return None if row is None or row.state is JobState.REMOVED else row

    def of(self, application: str) -> list[JobRow]:
        """All jobs of an application by name."""
        return sorted((r for r in self.jobs.values() if r.spec.application == application), key=lambda r: r.spec.name)

    def put(self, row: JobRow) -> JobRow:
        """Write a job."""
        self.jobs[row.id] = row
        self.names[row.spec.application, row.spec.name] = row.id
        self.keys.setdefault(row.id, {})
        self.open.setdefault(row.id, {})
        self.figures.setdefault(row.id, KeptFigures())
        return row

    def link(self, row: JobRow) -> None:
        """A job was added or defined anew. The runs of its parent that have not begun owe it a run."""
        if self.followers(row.spec.application, row.spec.name):
            self.followed.add(row.id)
        parent = self.job(row.spec.application, row.spec.rules.after or "")
        if parent is not None and parent.id not in self.followed:
            self.followed.add(parent.id)
            for run in self.opened(parent.id, *UNBEGUN):
                run.owes = True

    def followers(self, application: str, parent: str | None = None) -> list[JobRow]:
        """The jobs that follow this one, or any, by name."""
        return [
            row
            for row in self.of(application)
            if row.state is not JobState.REMOVED
            and row.spec.rules.after is not None
            and parent in {None, row.spec.rules.after}
        ]

    def above(self, row: JobRow) -> list[JobId]:
        """The job that this one follows, the one that that follows, and so on."""
        found: list[JobId] = []
        while row.state is not JobState.REMOVED:
            parent = self.job(row.spec.application, row.spec.rules.after or "")
            if parent is None or parent.id in found:
                break
            found.append(parent.id)
            row = parent
        return found

    def behind(self, row: JobRow, key: str) -> list[MemoryRun]:
        """The skipped runs with this key of the jobs that follow this one, and of those that follow them."""
        found: list[MemoryRun] = []
        parents = [row]
        for parent in parents:
            for follower in self.of(row.spec.application):
                if follower.spec.rules.after == parent.spec.name and follower not in parents:
                    parents.append(follower)
                    run = self.keys[follower.id].get(key)
                    found += [run] if run is not None and run.state is RunState.SKIPPED else []
        return found

    def owed(self, application: str) -> list[MemoryRun]:
        """The runs that are over and owe their followers, by job, the oldest of each first."""
        found = (run for row in self.of(application) for run in self.keys[row.id].values())
        return sorted((run for run in found if run.owes and run.state.final), key=lambda run: (run.job, run.id))

    def forget(self, row: JobRow) -> None:
        """Delete a job and everything that belongs to it."""
        for run in list(self.keys[row.id].values()):
            self.delete(run)
        self.changes = [change for change in self.changes if change.job != row.id]
        self.kept_keys = {kept: run for kept, run in self.kept_keys.items() if kept[0] != row.id}
        del self.jobs[row.id], self.names[row.spec.application, row.spec.name], self.keys[row.id], self.open[row.id]
        del self.figures[row.id]

    def number(self) -> int:
        """A new id."""
        return next(self._numbers)

    def note_action(
        self, application: str, target: str, action: Action | None, now: Instant, run: RunId | None = None
    ) -> None:
        """Record what a person does. Every operation that carries an action calls this, in its own transaction."""
        if action is not None:
            said = action.by, action.what, target, run, action.why, action.origin, action.detail
            self.actions.append(ActionRecord(self.number(), now, application, *said))

    def opened(self, job: JobId, *states: RunState) -> list[MemoryRun]:
        """The open runs of a job, in these states, oldest first."""
        found = [run for run in self.open[job].values() if not states or run.state in states]
        return sorted(found, key=lambda run: (run.due_at, run.id)) if len(found) > 1 else found

    def began(self, job: JobId) -> int:
        """How many places of a job are occupied."""
        return sum(run.began for run in self.open[job].values())

    def pool(self, application: str, name: str) -> PoolRow:
        """A pool, and who is in it."""
        of_app = (run for row in self.of(application) for run in self.open[row.id].values() if run.pool == name)
        states = Counter(run.state for run in of_app)
        size = self.pools.get((application, name))
        return PoolRow(name, size, states[RunState.RUNNING], states[RunState.WAITING])

    def insert(self, job: JobRow, runs: Iterable[NewRun]) -> int:
        """Insert due times whose keys do not exist yet. Returns how many."""
        inserted = 0
        for new in runs:
            key = due_key(new.scheduled_for)
            if key in self.keys[job.id]:
                continue
            self.add(
                MemoryRun(
                    id=RunId(self.number()),
                    job=job.id,
                    key=key,
                    kind=RunKind.DUE,
                    state=new.state,
                    generation=job.generation,
                    scheduled_for=new.scheduled_for,
                    due_at=new.due_at,
                    expires_at=new.expires_at,
                    reason=new.reason,
                    count=new.count,
                    until=new.until,
                    owes=job.id in self.followed,
                )
            )
            inserted += 1
        return inserted

    def add(self, run: MemoryRun) -> MemoryRun:
        """Write a run, possibly over the final one with the same id and key."""
        self.figures[run.job].touched.add(run.scheduled_for // HOUR * HOUR)
        self.runs[run.id] = self.keys[run.job][run.key] = run
        if not run.state.final:
            self.open[run.job][run.id] = run
        return run

    def delete(self, run: MemoryRun) -> None:
        """Forget a run."""
        del self.runs[run.id], self.keys[run.job][run.key]
        self.open[run.job].pop(run.id, None)

    def end(self, run: MemoryRun, state: RunState, reason: str, now: Instant) -> None:
        """End a run."""
        run.state, run.reason, run.finished_at = state, reason, now
        run.token = run.asked_to_end = ""
        self.open[run.job].pop(run.id, None)

    def over(self, run: MemoryRun, after: After, now: Instant) -> None:
        """End an attempt of a run."""
        run.attempt, run.failures, run.losses = after.attempt, after.failures, after.losses
        run.interruptions, run.stopping = after.interruptions, False
        run.looks, run.looking_since, run.last_look = after.looks, after.looking_since, after.last_look
        run.due_at, run.expires_at = after.due_at, after.expires_at
        run.outcome = after.outcome
        if after.attempt == 0:  # it never began
            run.label, run.claimed_at, run.slot = "", None, None
        if after.state.final:
            self.end(run, after.state, after.reason, now)
        else:
            run.state, run.reason, run.token, run.asked_to_end, run.pool = after.state, after.reason, "", "", ""
            run.finished_at = None if after.outcome is None else now
