"""The ledger in memory (G3, G4): the readable reference. Every operation holds the world's mutex, the only lock."""

from __future__ import annotations

import math
import sys
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from heapq import nsmallest
from itertools import islice
from typing import Protocol

from tenure.core import run_rules
from tenure.core.alerts import DeadNode
from tenure.core.cluster import NodeId
from tenure.core.figures import Figures, FiguresRow
from tenure.core.following import first_trigger
from tenure.core.keys import is_generated, planner_of
from tenure.core.messages import (
    PLAIN,
    Action,
    ActionQuery,
    Claimed,
    ClaimedRun,
    ClaimRequest,
    CountedHours,
    Ended,
    Ending,
    FollowedRun,
    FollowedUp,
    Forgotten,
    Held,
    JobChange,
    JobEnds,
    JobOutcome,
    JobPageQuery,
    JobQuery,
    JobStats,
    LaneJob,
    LogLine,
    LogTrim,
    LostRun,
    MissedJob,
    MissedRun,
    OpenRuns,
    Overdue,
    OwedRun,
    Past,
    Planned,
    Progress,
    Pruned,
    Reconciled,
    Result,
    RunQuery,
    RunRequest,
    StoredArguments,
    StripRun,
    Synced,
    Tally,
    Unplanned,
)
from tenure.core.overdue import latest_start
from tenure.core.patterns import matches
from tenure.core.records import (
    OPEN,
    ActionRecord,
    AttemptRow,
    Change,
    ChangeRecord,
    Instant,
    JobId,
    JobRow,
    JobSpec,
    JobState,
    NodeFacts,
    PoolRow,
    RunId,
    RunKind,
    RunRow,
    RunState,
)
from tenure.core.run_rules import Sync
from tenure.core.stats import EndedRun, FinalRun, durations_of, ends_of, outcome_of, stats_of
from tenure.stores.ledger import FIRST, SUCCESS_WITHIN, Ledger
from tenure.stores.memory import figures as memory_figures
from tenure.stores.memory.alerts import MemoryAlerts
from tenure.stores.memory.backfills import MemoryBackfills
from tenure.stores.memory.tables import MemoryRun, Tables
from tenure.stores.notices import JobsChanged, Notice
from tenure.stores.row_checks import attempt_outcome

MISSED_AT_ONCE = 1000
MICROSECOND = 1e-6


class MemoryWorld(Protocol):
    """What the ledger needs from the store around it."""

    mutex: threading.RLock
    tables: Tables

    def now(self) -> Instant:
        """The clock."""

    def alive(self, node: NodeId | None) -> bool:
        """True if a node may be given runs and keeps them."""

    def label(self, node: NodeId) -> str:
        """The human-readable name of a node."""

    def leader(self, election: str) -> NodeId | None:
        """Which node holds an election."""

    def dead(self) -> list[tuple[NodeId, DeadNode]]:
        """The nodes that were declared dead."""

    def ttl(self, node: NodeId) -> float:
        """After how many seconds of silence the others take the node for dead."""

    def ring(self, notice: Notice) -> None:
        """Wake the listening nodes."""


class MemoryLedger(MemoryAlerts, MemoryBackfills, Ledger):
    """Jobs and runs of one process."""

    def __init__(self, world: MemoryWorld) -> None:
        self._world = world
        self._tables = world.tables

    def now(self) -> Instant:
        return self._world.now()

    def write_facts(self, facts: NodeFacts) -> None:
        with self._world.mutex:
            if self._world.alive(facts.node):
                known = self._tables.facts.get((facts.node, facts.application))
                since = self.now() if known is None else known.since
                self._tables.facts[facts.node, facts.application] = replace(facts, since=since)
                self._wake(facts.application)

    def remove_facts(self, node: NodeId, application: str) -> None:
        with self._world.mutex:
            self._tables.facts.pop((node, application), None)

    def nodes(self, application: str) -> list[NodeFacts]:
        with self._world.mutex:
            planner = self._world.leader(planner_of(application))
            found = [
                replace(facts, label=self._world.label(facts.node), plans=facts.node == planner)
                for facts in self._tables.facts.values()
                if facts.application == application and self._world.alive(facts.node)
            ]
            return sorted(found, key=lambda facts: (facts.label, facts.node))

    def silent(self, nodes: Iterable[NodeId]) -> set[NodeId]:
        del nodes  # a node in memory has no other sign of life than its row
        return set()

    def running(self, application: str) -> dict[NodeId, int]:
        with self._world.mutex:
            return dict(
                Counter(
                    run.node
                    for row in self._tables.of(application)
                    for run in self._tables.keys[row.id].values()
                    if run.state is RunState.RUNNING and run.node is not None
                )
            )

    def unserved(self, application: str, served: Collection[tuple[str, str | None]], limit: int) -> list[LaneJob]:
        lanes = set(served)
        with self._world.mutex:
            found = (
                LaneJob(row.id, row.spec.name, row.spec.function, row.spec.rules.queue)
                for row in self._tables.of(application)
                if self._shown(row).state is JobState.ACTIVE
                and not lanes & {(row.spec.function, None), (row.spec.function, row.spec.rules.queue)}
            )
            return list(islice(found, limit))

    def stored_arguments(self, application: str, after: str, limit: int) -> list[StoredArguments]:
        with self._world.mutex:
            found = (
                StoredArguments(row.spec.name, row.spec.function, row.spec.kwargs)
                for row in self._tables.of(application)
                if row.state is not JobState.REMOVED
                and row.spec.name > after
                and (row.spec.trigger is not None or row.spec.rules.after is not None or row.spec.kwargs != "{}")
            )
            return list(islice(found, limit))

    def requested_arguments(self, application: str, after: RunId, limit: int) -> list[StoredArguments]:
        with self._world.mutex:
            found = [
                StoredArguments(row.spec.name, row.spec.function, run.kwargs, run.id)
                for row in self._tables.of(application)
                for run in self._tables.keys[row.id].values()
                if run.kwargs is not None and run.state in {RunState.PENDING, RunState.WAITING} and run.id > after
            ]
            return sorted(found, key=lambda one: one.run or 0)[:limit]

    def overdue(self, application: str, before: Instant, limit: int) -> list[Overdue]:
        with self._world.mutex:
            active = [row for row in self._tables.of(application) if row.state is JobState.ACTIVE]
            unplanned = (
                self._overdue(row, row.next_due, latest_start(row.next_due, row.spec.rules), None)
                for row in active
                if row.next_due is not None
            )
            late = (
                self._overdue(row, run.scheduled_for, since, run.id)
                for row in active
                for run in self._tables.keys[row.id].values()
                if run.state is RunState.PENDING and not run.attempt and run.kind is not RunKind.MANUAL and not run.by
                for since in (run.due_at + row.spec.rules.on_time if run.expires_at is None else run.expires_at,)
            )
            planned = nsmallest(limit, (one for one in late if one.late_since < before), key=lambda one: one.late_since)
            missing = nsmallest(limit, (one for one in unplanned if one.late_since < before), key=lambda one: one.due)
        return [*missing, *planned]

    def _overdue(self, row: JobRow, due: Instant, late_since: Instant, run: RunId | None) -> Overdue:
        spec = row.spec
        return Overdue(row.id, spec.name, spec.function, spec.rules.queue, due, late_since, run)

    def functions(self, application: str) -> frozenset[str]:
        return frozenset(row.spec.function for row in self.jobs(application))

    def change(self, change: JobChange) -> JobRow | None:
        with self._world.mutex:
            now, tables = self.now(), self._tables
            row = tables.job(change.application, change.name)
            there = row is not None and row.state is not JobState.REMOVED
            if there is (change.what is Change.ADDED) and not (row and there and self._may_be_added_again(row)):
                return None
            if change.generation is not None and (row is None or row.generation != change.generation):
                return None
            if row is not None and change.what is Change.RESUMED and row.state is not JobState.PAUSED:
                return self._shown(row)
            after = tables.put(self._changed(row, change, now))
            tables.link(after)
            follows = row is not None and row.spec.rules.after is not None
            runs = run_rules.not_forgotten(change.runs, after.kept_since, now)
            if change.what in {Change.PAUSED, Change.REMOVED}:
                tables.insert(after, runs)
            for run in tables.opened(after.id, RunState.PENDING, RunState.WAITING):
                if run.kind is RunKind.DUE and run.attempt == 0 and run.scheduled_for > now and not follows:
                    tables.delete(run)
                elif after.state is JobState.REMOVED:
                    run.keep_attempt()
                    tables.end(run, RunState.CANCELLED, run_rules.REMOVED, now)
                elif change.what is Change.PAUSED and run.kind is RunKind.DUE and run.attempt == 0:
                    tables.end(run, RunState.SKIPPED, run_rules.PAUSED, now)
                else:
                    run.generation = after.generation
                    if run.pool:
                        run.state, run.pool = RunState.PENDING, ""
            for run in [run for run in tables.keys[after.id].values() if run.state is RunState.SKIPPED]:
                behind = tables.behind(after, run.key)
                if run.kind is RunKind.DUE and run.scheduled_for > now and not follows:
                    tables.delete(run)
                    for one in behind:  # else it would not run when this due time is planned anew
                        if one.attempt == 0 and one.reason.startswith(run_rules.AFTER):
                            tables.delete(one)
                elif run.until is not None and run.until > now:
                    for one in (run, *behind):
                        one.until = None if one.until is None else min(one.until, now)
            if after.state is JobState.ACTIVE:
                tables.insert(after, runs)
            if after.state is JobState.REMOVED:
                self._cancel_backfills(after.id, change.by)
            tables.changes.append(
                ChangeRecord(
                    after.id,
                    after.generation,
                    now,
                    change.what,
                    after.spec.trigger,
                    change.by,
                    change.why,
                    change.until,
                    after.spec.rules.after,
                )
            )
            tables.note_action(change.application, change.name, change.action, now)
            self._wake(change.application)
            return self._shown(after)

    def change_many(self, changes: Sequence[JobChange]) -> list[JobRow | None]:
        with self._world.mutex:
            return [self.change(change) for change in changes]

    def _may_be_added_again(self, row: JobRow) -> bool:
        return self._shown(row).state is JobState.DONE and not row.spec.in_code

    def _shown(self, row: JobRow) -> JobRow:
        """The row as it is read: DONE if nothing is left to do."""
        over = row.state is JobState.ACTIVE and row.next_due is None and row.spec.trigger is not None
        return replace(row, state=JobState.DONE) if over and not self._tables.open[row.id] else row

    def _changed(self, row: JobRow | None, change: JobChange, now: Instant) -> JobRow:
        if row is None:
            kept_since, generation = self._tables.forgotten.get(change.application, (0.0, 0))
            number = JobId(self._tables.number())
            row = JobRow(number, _spec(change), JobState.ACTIVE, generation, None, kept_since=kept_since)
        awake = replace(
            row,
            generation=row.generation + 1,
            paused_until=None,
            paused_by="",
            paused_why="",
            removed_at=None,
            removed_by="",
        )
        match change.what:
            case Change.ADDED:
                new = replace(
                    awake,
                    spec=_spec(change),
                    state=JobState.ACTIVE,
                    next_due=change.next_due,
                    next_reading=change.next_reading,
                    since=now,
                )
                return replace(new, defined_at=now, override=change.override)
            case Change.UPDATED:
                spec = _spec(change)
                since = row.since if spec.trigger == row.spec.trigger else now
                kept = replace(
                    row,
                    generation=awake.generation,
                    next_due=change.next_due,
                    next_reading=change.next_reading,
                    since=since,
                )
                return replace(kept, spec=spec, defined_at=now, override=change.override)
            case Change.PAUSED:
                return replace(
                    awake, state=JobState.PAUSED, paused_until=change.until, paused_by=change.by, paused_why=change.why
                )
            case Change.RESUMED:
                return replace(
                    awake, state=JobState.ACTIVE, next_due=change.next_due, next_reading=change.next_reading, since=now
                )
            case Change.REMOVED:
                return replace(
                    awake,
                    state=JobState.REMOVED,
                    next_due=None,
                    next_reading=None,
                    removed_at=now,
                    removed_by=change.by,
                )

    def sync(self, application: str, release: int, changes: Sequence[JobChange]) -> list[Synced]:
        with self._world.mutex:
            before: dict[str, JobRow | None] = {}
            for change in changes:
                spec = replace(_spec(change), release=release)
                row = before[change.name] = self._tables.job(application, change.name)
                if row is not None and run_rules.must_be_seen(self._shown(row), self.now()):
                    row = self._tables.put(replace(row, defined_at=self.now()))
                match run_rules.synced(row, spec, release):
                    case Sync.ADD:
                        self.change(replace(change, what=Change.ADDED, spec=spec, generation=None))
                    case Sync.UPDATE:
                        self.change(replace(change, what=Change.UPDATED, spec=spec, generation=None))
                    case Sync.RAISE if row is not None:
                        self._tables.put(replace(row, spec=run_rules.raised(row, spec)))
            after = ((self._tables.job(application, name), was) for name, was in sorted(before.items()))
            return [Synced(self._shown(row), was) for row, was in after if row is not None]

    def jobs(self, application: str, name: str | None = None, *, removed: bool = False) -> list[JobRow]:
        with self._world.mutex:
            return [
                self._shown(row)
                for row in self._tables.of(application)
                if name in {None, row.spec.name} and (removed or row.state is not JobState.REMOVED)
            ]

    def find_jobs(self, query: JobQuery) -> list[JobRow]:
        return [
            row
            for row in self.jobs(query.application)
            if row.spec.name > query.after
            and (query.pattern is None or matches(query.pattern, row.spec.name))
            and (query.tag is None or query.tag in row.spec.rules.tags)
            and query.queue in {None, row.spec.rules.queue}
        ][: query.limit]

    def count_jobs(self, application: str) -> int:
        return len(self.jobs(application))

    def job_page(self, page: JobPageQuery) -> tuple[list[JobRow], int]:
        if page.state is JobState.REMOVED:
            rows = self.removed(page.application)
        else:
            rows = [row for row in self.jobs(page.application) if page.state in {None, row.state}]
        found = [
            row
            for row in rows
            if page.contains.lower() in row.spec.name.lower()
            and (page.tag is None or page.tag in row.spec.rules.tags)
            and page.queue in {None, row.spec.rules.queue}
            and (page.names is None or row.spec.name in page.names)
        ]
        latest = math.inf if page.by_next else 0.0

        def place(row: JobRow) -> tuple[bool, float, str]:
            due = row.next_due if page.by_next and row.next_due is not None else latest
            return row.spec.name not in page.first, due, row.spec.name

        found.sort(key=place)
        return found[page.skip : page.skip + page.limit], len(found)

    def strips(self, jobs: Sequence[JobId], before: Instant, limit: int) -> dict[JobId, list[StripRun]]:
        with self._world.mutex:
            found = {}
            for job in jobs:
                runs = [run for run in self._tables.keys[job].values() if run.scheduled_for < before]
                runs.sort(key=lambda run: (run.scheduled_for, run.id), reverse=True)
                if runs:
                    found[job] = [
                        StripRun(run.id, run.state, run.due_at, run.started_at, run.finished_at) for run in runs[:limit]
                    ]
            return found

    def removed(self, application: str, names: Sequence[str] | None = None) -> list[JobRow]:
        return [
            row
            for row in self.jobs(application, removed=True)
            if row.state is JobState.REMOVED and row.code.in_code and (names is None or row.spec.name in names)
        ]

    def applications(self) -> list[str]:
        with self._world.mutex:
            jobs = self._tables.jobs.values()
            return sorted({row.spec.application for row in jobs if row.state is not JobState.REMOVED})

    def changes(self, application: str, name: str | None = None) -> list[ChangeRecord]:
        with self._world.mutex:
            jobs = {row.id for row in self.jobs(application, name, removed=True)}
            return [record for record in self._tables.changes if record.job in jobs]

    def unplanned(
        self,
        application: str,
        *,
        before: Instant,
        limit: int,
        strangers: tuple[str, ...] = (),
        tzdata: str = "",
        overdue: Instant = 0.0,
    ) -> list[Unplanned]:
        with self._world.mutex:
            now = self.now()
            found = [
                Unplanned(
                    row.id,
                    row.spec.name,
                    row.generation,
                    row.next_due,
                    row.spec.trigger or "",
                    row.spec.rules,
                    row.state is JobState.PAUSED,
                    row.next_reading,
                )
                for row in self.jobs(application)
                if row.spec.function not in strangers
                and (not tzdata or row.spec.tzdata <= tzdata or _due(row) < overdue)
                and (
                    (row.paused_until is not None and row.paused_until <= now)
                    if row.state is JobState.PAUSED
                    else (row.next_due is not None and row.next_due < before)
                )
            ]
            return sorted(found, key=lambda job: (now if job.next_due is None else job.next_due, job.id))[:limit]

    def planned_by_others(self, application: str, tzdata: str, limit: int) -> list[JobRow]:
        with self._world.mutex:
            found = [row for row in self._read(application) if (row.next_reading or "").partition("@")[0] != tzdata]
            return found[:limit]

    def planned_by_older(self, application: str, limit: int) -> list[JobRow]:
        with self._world.mutex:
            return [row for row in self._read(application) if (row.next_reading or "") < row.spec.tzdata][:limit]

    def _read(self, application: str) -> list[JobRow]:
        """Jobs whose next due time comes from a wall clock."""
        return [row for row in self.jobs(application) if row.state is JobState.ACTIVE and row.next_reading is not None]

    def planned_beyond(self, application: str, after: tuple[Instant, JobId], limit: int) -> list[JobRow]:
        with self._world.mutex:
            far = [
                (row.next_due, row.id, row)
                for row in self.jobs(application)
                if row.state is JobState.ACTIVE and row.next_due is not None and (row.next_due, row.id) > after
            ]
            return [row for _, _, row in sorted(far, key=lambda found: found[:2])[:limit]]

    def plan(self, batch: Sequence[Planned]) -> int:
        with self._world.mutex:
            inserted = 0
            for planned in batch:
                row = self._tables.jobs.get(planned.id)
                if row is None or row.state is not JobState.ACTIVE:
                    continue
                if (row.next_due, row.generation) == (planned.next_due, planned.generation):
                    self._tables.put(replace(row, next_due=planned.then_due, next_reading=planned.then_reading))
                    inserted += self._tables.insert(row, planned.runs)
            return inserted

    def claim(self, request: ClaimRequest) -> Claimed:
        with self._world.mutex:
            now, tables = self.now(), self._tables
            if not self._world.alive(request.node):
                return Claimed((), now, None, more=False, missed=False, alive=False)
            jobs = {
                row.id: row
                for row in self.jobs(request.application)
                if row.state is JobState.ACTIVE
                and (request.functions is None or row.spec.function in request.functions)
            }
            when = now if request.as_of is None else request.as_of
            served = [r for r in jobs.values() if request.queues is None or r.spec.rules.queue in request.queues]
            for row in served:
                self._promote(row)
            self._promote_pooled(request.application, served)
            ready = sorted(
                (run for row in served for run in tables.open[row.id].values() if run.ready(when)),
                key=lambda run: (run.due_at, run.id),
            )[: request.limit]
            admitted = [
                run
                for job in dict.fromkeys(run.job for run in ready)
                for run in self._admit(jobs[job], [run for run in ready if run.job == job], now)
            ]
            claimed = self._enter_pools(jobs, admitted)
            for run in claimed:
                self._begin(run, jobs[run.job], now)
                run.token, run.node, run.label = request.token, request.node, self._world.label(request.node)
            pending = [run for job in jobs for run in tables.open[job].values() if run.state is RunState.PENDING]
            mine = {row.id for row in served}
            return Claimed(
                runs=tuple(self._claimed(run, jobs) for run in sorted(claimed, key=lambda r: (r.due_at, r.id))),
                now=now,
                next_at=min((run.due_at for run in pending if run.job in mine and run.due_at > when), default=None),
                more=len(ready) == request.limit,
                missed=any(run.expired(when) for run in pending),
            )

    def _claimed(self, run: MemoryRun, jobs: dict[JobId, JobRow]) -> ClaimedRun:
        row = jobs[run.job]
        name = row.spec.rules.after
        if name is None:
            return run.claimed(row)
        parent = self._tables.job(row.spec.application, name)
        followed = None if parent is None else self._tables.keys[parent.id].get(run.key)
        state, result = (None, None) if followed is None else (followed.state, followed.result)
        trigger = first_trigger(row.spec, self._spec)
        return run.claimed(row)._replace(parent=FollowedRun(name, run.key, state, result), trigger=trigger)

    def _promote(self, row: JobRow) -> None:
        waiting = [run.candidate() for run in self._tables.opened(row.id, RunState.WAITING) if not run.pool]
        if waiting:
            for run in run_rules.promoted(row.spec.rules, self._tables.began(row.id), waiting):
                self._tables.runs[run].state, self._tables.runs[run].expires_at = RunState.PENDING, None

    def _promote_pooled(self, application: str, served: list[JobRow]) -> None:
        waiting: dict[str, list[MemoryRun]] = {}
        for row in served:
            for run in self._tables.opened(row.id, RunState.WAITING):
                if run.pool:
                    waiting.setdefault(run.pool, []).append(run)
        for name, runs in waiting.items():
            for one in run_rules.enter(self._tables.pool(application, name), [run.candidate() for run in runs]):
                self._tables.runs[one].state, self._tables.runs[one].pool = RunState.PENDING, ""

    def _enter_pools(self, jobs: dict[JobId, JobRow], admitted: list[MemoryRun]) -> list[MemoryRun]:
        """Those of the runs that have their jobs' places that may begin. The others wait for their pools."""
        pools: dict[str, list[MemoryRun]] = {}
        for run in admitted:
            if name := jobs[run.job].spec.rules.pool:
                pools.setdefault(name, []).append(run)
        held: set[RunId] = set()
        for name, runs in pools.items():
            pool = self._tables.pool(jobs[runs[0].job].spec.application, name)
            enter = run_rules.enter(pool, [run.candidate() for run in runs])
            for run in runs:
                run.pool = name
                if run.id not in enter:
                    run.state, run.expires_at = RunState.WAITING, None
                    held.add(run.id)
        return [run for run in admitted if run.id not in held]

    def _admit(self, row: JobRow, ready: list[MemoryRun], now: Instant) -> list[MemoryRun]:
        tables = self._tables
        decided = run_rules.admit(
            row.spec.rules,
            tables.began(row.id),
            [run.candidate() for run in ready],
            [run.candidate() for run in tables.opened(row.id, RunState.WAITING)],
        )
        for run in decided.waiting:
            tables.runs[run].state = RunState.WAITING
        for run, reason in decided.skipped:
            if tables.runs[run].pool:  # its job has a place again
                self._wake(row.spec.application)
            tables.end(tables.runs[run], RunState.SKIPPED, reason, now)
        if decided.asks_to_end:
            for running in tables.opened(row.id, RunState.RUNNING):
                running.asked_to_end = running.asked_to_end or decided.asks_to_end
        return [tables.runs[run] for run in decided.claimed]

    @staticmethod
    def _begin(run: MemoryRun, row: JobRow, now: Instant) -> None:
        run.keep_attempt()
        run.state, run.claimed_at, run.generation = RunState.RUNNING, now, row.generation
        run.attempt += 1
        run.reason, run.outcome = "", None
        run.started_at = run.finished_at = None

    def missed(self, application: str, limit: int, functions: tuple[str, ...] | None = None) -> list[MissedJob]:
        with self._world.mutex:
            now, found = self.now(), []
            for row in self.jobs(application):
                if row.state is JobState.ACTIVE and (functions is None or row.spec.function in functions):
                    expired = sorted(
                        (run for run in self._tables.open[row.id].values() if run.expired(now)),
                        key=lambda run: run.scheduled_for,
                    )[:MISSED_AT_ONCE]
                    if expired:
                        found.append(
                            MissedJob(
                                row.id,
                                row.spec.name,
                                row.generation,
                                row.spec.rules,
                                tuple(MissedRun(run.id, run.scheduled_for) for run in expired),
                                in_time=self._in_time(row, expired[-1].scheduled_for, now),
                            )
                        )
            return found[:limit]

    def _in_time(self, row: JobRow, after: Instant, now: Instant) -> bool:
        never = {RunState.SKIPPED, RunState.CANCELLED}
        return any(
            run.kind is RunKind.DUE
            and run.scheduled_for > after
            and run.due_at <= now
            and not run.expired(now)
            and run.state not in never
            for run in self._tables.keys[row.id].values()
        )

    def settle(
        self, job: JobId, generation: int, *, make_up: Sequence[RunId], skip: Sequence[RunId], reason: str
    ) -> bool:
        with self._world.mutex:
            now, tables = self.now(), self._tables
            row = tables.jobs.get(job)
            if row is None or row.generation != generation:
                return False
            runs = [tables.open[job].get(run) for run in (*make_up, *skip)]
            if any(run is None or not run.expired(now) for run in runs):
                return False
            for run in make_up:
                made_up = tables.runs[run]
                made_up.kind, made_up.due_at, made_up.expires_at = RunKind.BACKFILL, now, None
            for run in skip:
                tables.end(tables.runs[run], RunState.SKIPPED, reason, now)
            return True

    def finish(self, endings: Sequence[Ending]) -> list[Ended]:
        with self._world.mutex:
            return [self._finish(ending) for ending in endings]

    def _finish(self, ending: Ending) -> Ended:
        now, run = self.now(), self._tables.runs.get(ending.id)
        if run is None:
            return Ended(ending.id, accepted=False, state=RunState.LOST)
        if not _holds(run, ending.token):
            return Ended(ending.id, accepted=False, state=run.state)
        row, pool = self._tables.jobs[run.job], run.pool
        after = run_rules.after_ending(run.behind(), ending, row.spec.rules, job=row.state, now=now)
        run.started_at = ending.started_at
        self._tables.over(run, after, now)
        if run.finished_at is not None and ending.finished_at is not None:
            run.finished_at = ending.finished_at
        if after.state is RunState.SUCCEEDED:
            run.result = ending.result
        left = pool if after.state.final else ""
        wakes = self._wakes(row) or bool(left and self._tables.pool(row.spec.application, left).waiting)
        if wakes or after.state is RunState.PENDING:
            self._wake(row.spec.application)
        return Ended(run.id, accepted=True, state=run.state, wakes=wakes)

    def keep_log(self, lines: Sequence[LogLine], trims: Sequence[LogTrim] = ()) -> None:
        with self._world.mutex:
            for trim in trims:
                if (run := self._tables.runs.get(trim.run)) is not None:
                    for place in range(trim.first, trim.before):
                        run.log.pop((trim.attempt, place), None)
            for line in lines:
                if (run := self._tables.runs.get(line.run)) is not None:
                    run.log.setdefault((line.attempt, line.place), line)

    def keep_progress(self, progress: Sequence[Progress]) -> None:
        with self._world.mutex:
            for one in progress:
                run = self._tables.runs.get(one.run)
                if run is not None and (run.progress is None or run.progress.attempt <= one.attempt):
                    run.progress = one

    def keep_results(self, results: Sequence[Result]) -> None:
        with self._world.mutex:
            for result in results:
                run = self._tables.runs.get(result.run)
                if run is not None and run.state is RunState.SUCCEEDED and run.result is None:
                    run.result = result.text if run.attempt == result.attempt else None

    def _wakes(self, row: JobRow) -> bool:
        free = run_rules.places(row.spec.rules, self._tables.began(row.id))
        waits = row.state is JobState.ACTIVE and any(
            not run.pool for run in self._tables.opened(row.id, RunState.WAITING)
        )
        return waits and free != 0

    def reconcile(self, node: NodeId, application: str, *, stopping: bool = False) -> Reconciled:
        with self._world.mutex:
            now, lost, held = self.now(), [], []
            for row in self._tables.of(application):
                for run in self._tables.opened(row.id, RunState.RUNNING):
                    if run.node is not None and not self._world.alive(run.node):
                        lost.append(self._lose(row, run, run.node, now))
                    elif run.node == node:
                        run.stopping |= stopping
                        must_answer = row.state is not JobState.ACTIVE and run.started_at is None
                        held.append(Held(run.id, run.token, run.asked_to_end, must_answer))
            if lost:
                self._wake(application)
            return Reconciled(tuple(held), tuple(lost), now, owed=bool(self._tables.owed(application)))

    def _lose(self, row: JobRow, run: MemoryRun, node: NodeId, now: Instant) -> LostRun:
        after = run_rules.after_loss(run.behind(), row.spec.rules, removed=row.state is JobState.REMOVED)
        self._tables.over(run, after, now)
        return LostRun(
            run.id, row.spec.name, run.key, run.scheduled_for, run.attempt, node, run.state, run.reason, run.label
        )

    def follow_up(
        self, application: str, limit: int, *, beyond: JobId = FIRST, as_of: Instant | None = None
    ) -> FollowedUp:
        with self._world.mutex:
            owed = [run for run in self._tables.owed(application) if run.job > beyond]
            page, left = owed[:limit], owed[limit:]
            now = self.now()
            begins = more = False
            for run in page:
                parent = self._tables.jobs[run.job]
                for row in self._tables.followers(application, parent.spec.name):
                    follower = self._follow(row, parent.spec.name, run, now, now if as_of is None else as_of)
                    begins |= follower is not None and follower.state is RunState.PENDING
                    more |= follower is not None and follower.owes and follower.state.final
                run.owes = False
            if begins:
                self._wake(application)
            more |= any(run.job == page[-1].job for run in left)
            up_to = page[-1].job if left and left[-1].job != page[-1].job else None
            return FollowedUp(len(page), begins, more, up_to)

    def _follow(self, row: JobRow, parent: str, run: MemoryRun, now: Instant, when: Instant) -> MemoryRun | None:
        """Give a follower the run that this run of its parent owes. None if it has nothing new. `when` is the time that
        the caller goes by."""
        rules = row.spec.rules
        state, reason = RunState.PENDING, ""
        if not run_rules.followed(rules.on, run.state, run.attempt):
            state, reason = RunState.SKIPPED, run_rules.not_followed(parent, run.state, run.reason)
        elif row.state is JobState.PAUSED and run.kind is RunKind.DUE:
            state, reason = RunState.SKIPPED, run_rules.PAUSED
        due = run.kind is RunKind.DUE
        new = MemoryRun(
            id=RunId(self._tables.number()),
            job=row.id,
            key=run.key,
            kind=run.kind,
            state=state,
            generation=row.generation,
            scheduled_for=run.scheduled_for,
            due_at=min(now, when),
            expires_at=round(when + rules.on_time, 6) if due and state is RunState.PENDING else None,
            reason=reason,
            count=run.count,
            until=run.until,
            by=run.by,
            finished_at=when if state is RunState.SKIPPED else None,
            owes=row.id in self._tables.followed,
        )
        known = self._tables.keys[row.id].get(run.key)
        if known is not None:
            if not run_rules.follows_again(known.row(row.spec.name), run.finished_at, state, reason):
                return None
            del self._tables.runs[known.id]
            new.id = known.id
        elif (row.id, run.key) in self._tables.kept_keys:
            return None
        elif run.last < row.kept_since and (run.kind is not RunKind.MANUAL or is_generated(run.key)):
            return None  # it may have run; keys that callers chose are kept
        return self._tables.add(new)

    def owed(self, application: str, limit: int) -> list[OwedRun]:
        with self._world.mutex:
            jobs = self._tables.jobs
            owed = [
                OwedRun(jobs[run.job].spec.name, run.key, run.scheduled_for, run.finished_at)
                for run in self._tables.owed(application)
            ]
            return sorted(owed, key=lambda one: one.finished_at or one.scheduled_for)[:limit]

    def followers(self, application: str, parent: str | None = None) -> list[JobRow]:
        with self._world.mutex:
            return [self._shown(row) for row in self._tables.followers(application, parent)]

    def note_begun(self, begun: Sequence[tuple[RunId, str, Instant]]) -> None:
        with self._world.mutex:
            for one, token, at in begun:
                run = self._tables.runs.get(one)
                if run is not None and _holds(run, token):
                    run.started_at = at

    def unbegun(self, job: JobId, generation: int) -> list[tuple[str, float]]:
        with self._world.mutex:
            if self._tables.jobs[job].state is JobState.ACTIVE:
                return []
            nodes = {
                run.node
                for run in self._tables.opened(job, RunState.RUNNING)
                if run.generation < generation and run.started_at is None and self._world.alive(run.node)
            }
            return sorted((self._world.label(node), self._world.ttl(node)) for node in nodes if node is not None)

    def put_back(self, held: Sequence[tuple[RunId, str]]) -> int:
        with self._world.mutex:
            now, back = self.now(), 0
            for one, token in held:
                run = self._tables.runs.get(one)
                if run is not None and _holds(run, token):
                    row = self._tables.jobs[run.job]
                    after = run_rules.after_return(run.behind(), row.spec.rules, job=row.state, now=now)
                    self._tables.over(run, after, now)
                    self._wake(row.spec.application)
                    back += 1
            return back

    def request_runs(self, requests: Sequence[RunRequest]) -> list[RunRow | None]:
        with self._world.mutex:
            noted: set[tuple[str, str]] = set()
            answers = [self._request_run(one, noted) for one in requests]
            for application in dict.fromkeys(one.application for one in requests):
                self._wake(application)
            return answers

    def _request_run(self, request: RunRequest, noted: set[tuple[str, str]]) -> RunRow | None:
        """`noted`: the jobs of this call whose action is recorded already."""
        row = self._tables.there(request.application, request.name)
        if row is None:
            return None
        run = self._tables.keys[row.id].get(request.key)
        if run is not None and not request.backfill:
            return run.row(request.name)
        if not request.backfill and (kept := self._tables.kept_keys.get((row.id, request.key))) is not None:
            return kept
        if run is not None:
            if not run_rules.reopens(run.state, run.count):
                return None
            run.kwargs = run.kwargs if request.kwargs is None else request.kwargs
            self._note(request, noted, None)
            return self._reopen(row, run, request.by, request.traceparent, self.now())
        if _forgotten(row, request):
            return None
        now = self.now()
        due = now if request.scheduled_for is None else request.scheduled_for
        if (other := self._in_slot(row, request.slot)) is not None:
            if request.if_waiting != "keep":
                other.state, other.kwargs, other.by = RunState.PENDING, request.kwargs, request.by
                other.traceparent = request.traceparent
                other.scheduled_for = max(due, other.scheduled_for) if request.if_waiting == "later" else due
                other.due_at = max(now, other.scheduled_for)
                self._note(request, noted, other.id)
            return other.row(request.name)
        new = MemoryRun(
            id=RunId(self._tables.number()),
            job=row.id,
            key=request.key,
            kind=RunKind.BACKFILL if request.backfill else RunKind.MANUAL,
            state=RunState.PENDING,
            generation=row.generation,
            scheduled_for=due,
            due_at=max(now, due),
            expires_at=None,
            by=request.by,
            kwargs=request.kwargs,
            slot=request.slot,
            traceparent=request.traceparent,
            owes=row.id in self._tables.followed,
        )
        self._note(request, noted, None if request.backfill else new.id)
        return self._tables.add(new).row(request.name)

    def _note(self, request: RunRequest, noted: set[tuple[str, str]], run: RunId | None) -> None:
        """Record the action of a request, unless one of its job is recorded already."""
        if (job := (request.application, request.name)) not in noted:
            noted.add(job)
            self._tables.note_action(*job, request.action, self.now(), run)

    def _in_slot(self, row: JobRow, slot: str | None) -> MemoryRun | None:
        open_runs = self._tables.open[row.id].values()
        return next((run for run in open_runs if run.has_slot and run.slot == slot), None)

    def _reopen(self, row: JobRow, run: MemoryRun, by: str, traceparent: str, now: Instant) -> RunRow:
        run.kind = RunKind.MANUAL if run.kind is RunKind.MANUAL else RunKind.BACKFILL
        run.outcome = (run.outcome or attempt_outcome(run.state.value)) if run.attempt else None
        run.state, run.generation, run.expires_at = RunState.PENDING, row.generation, None
        run.due_at = max(now, run.scheduled_for)
        run.failures = run.losses = run.interruptions = run.looks = run.last_look = 0
        run.looking_since, run.pool = None, ""
        run.reopened, run.stopping = run.attempt, False
        run.by, run.traceparent, run.slot, run.owes = by, traceparent, None, row.id in self._tables.followed
        if not run.attempt:
            run.reason, run.finished_at = "", None
        return self._tables.add(run).row(row.spec.name)

    def traceparents(self, runs: Collection[RunId]) -> dict[RunId, str]:
        with self._world.mutex:
            found = [self._tables.runs.get(run) for run in runs]
            return {run.id: run.traceparent for run in found if run is not None and run.traceparent}

    def retry(
        self, runs: Sequence[RunId], by: str, action: Action | None = None, traceparent: str = ""
    ) -> list[RunRow | None]:
        with self._world.mutex:
            answers: list[RunRow | None] = []
            reopened: dict[JobId, list[RunId]] = {}
            for wanted in runs:
                run = self._tables.runs.get(wanted)
                row = None if run is None else self._tables.jobs[run.job]
                if run is None or row is None or not run_rules.retries(run.state, run.count) or _removed(row):
                    answers.append(None)
                    continue
                answers.append(self._reopen(row, run, by, traceparent, self.now()))
                reopened.setdefault(row.id, []).append(run.id)
            for job, ids in reopened.items():
                spec = self._tables.jobs[job].spec
                only = ids[0] if len(ids) == 1 else None
                self._tables.note_action(spec.application, spec.name, action, self.now(), only)
                self._wake(spec.application)
            return answers

    def cancel_many(
        self, runs: Sequence[RunId], by: str, why: str, action: Action | None = None
    ) -> list[RunRow | None]:
        with self._world.mutex:
            found = {run: self._tables.runs[run] for run in runs if run in self._tables.runs}
            ended: dict[JobId, list[RunId]] = {}
            for run in found.values():
                if not run.state.final:
                    ended.setdefault(run.job, []).append(run.id)
                    self._cancel(run, run_rules.cancelled_by(by, why))
            for job, ids in ended.items():
                spec = self._tables.jobs[job].spec
                noted, only = run_rules.cancellation(action, ids)
                self._tables.note_action(spec.application, spec.name, noted, self.now(), only)
                self._wake(spec.application)
            names = {run: self._tables.jobs[one.job].spec.name for run, one in found.items()}
            return [found[run].row(names[run]) if run in found else None for run in runs]

    def _cancel(self, run: MemoryRun, said: str) -> None:
        if run.state is RunState.RUNNING:
            run.asked_to_end = run.asked_to_end or said
            return
        run.keep_attempt()
        self._tables.end(run, RunState.CANCELLED, said, self.now())

    def set_pool(self, application: str, name: str, size: int, action: Action | None = None) -> None:
        with self._world.mutex:
            if self._tables.pools.get((application, name)) == size:
                return
            self._tables.pools[application, name] = size
            self._tables.note_action(application, name, action, self.now())
            self._wake(application)

    def pools(self, application: str) -> list[PoolRow]:
        with self._world.mutex:
            named = {row.spec.rules.pool for row in self.jobs(application) if row.spec.rules.pool}
            named |= {name for of, name in self._tables.pools if of == application}
            return [self._tables.pool(application, name) for name in sorted(named)]

    def runs(self, query: RunQuery) -> list[RunRow]:
        with self._world.mutex:
            found = sorted(
                (
                    run.row(row.spec.name)
                    for row in self.jobs(query.application, query.job, removed=True)
                    for run in self._tables.keys[row.id].values()
                    if run.answers(query)
                ),
                key=lambda run: (run.scheduled_for, run.id),
                reverse=not query.oldest_first,
            )
            return found[: query.limit]

    def coming(self, application: str, limit: int) -> list[RunRow]:
        with self._world.mutex:
            now = self.now()
            found = [
                (run.due_at, run.id, run.row(row.spec.name))
                for row in self._tables.of(application)
                for run in self._tables.opened(row.id, RunState.PENDING)
                if run.kind is not RunKind.DUE and run.due_at > now and run.attempt == run.reopened
            ]
            return [run for _, _, run in sorted(found, key=lambda one: one[:2])[:limit]]

    def attempts(self, run: RunId) -> list[AttemptRow]:
        with self._world.mutex:
            found = self._tables.runs.get(run)
            return [] if found is None else found.all_attempts()

    def log(self, run: RunId) -> list[LogLine]:
        with self._world.mutex:
            found = self._tables.runs.get(run)
            return [found.log[place] for place in sorted(found.log)] if found else []

    def log_ends(self, runs: Collection[RunId]) -> dict[RunId, tuple[int, int]]:
        with self._world.mutex:
            found = (self._tables.runs.get(run) for run in runs)
            return {run.id: max(run.log) for run in found if run is not None and run.log}

    def result(self, run: RunId) -> str | None:
        with self._world.mutex:
            found = self._tables.runs.get(run)
            return None if found is None else found.result

    def progress(self, runs: Collection[RunId]) -> dict[RunId, Progress]:
        with self._world.mutex:
            found = (self._tables.runs.get(run) for run in runs)
            return {run.id: run.progress for run in found if run is not None and run.progress is not None}

    def stats(self, application: str, name: str, last: int = 1000) -> JobStats:
        with self._world.mutex:
            row = self._tables.job(application, name)
            began = [run for run in self._tables.keys[row.id].values() if run.attempt > 0] if row else []
            newest = sorted(began, key=lambda run: (run.scheduled_for, run.id), reverse=True)[:last]
            return stats_of([run.row(name) for run in newest])

    def figures(self, application: str, last: int) -> dict[str, JobStats]:
        with self._world.mutex:
            return {row.spec.name: self.stats(application, row.spec.name, last) for row in self._tables.of(application)}

    def triggers(self, jobs: Collection[JobId]) -> dict[JobId, str | None]:
        with self._world.mutex:
            there = [self._tables.jobs[job] for job in jobs if job in self._tables.jobs]
            return {row.id: first_trigger(row.spec, self._spec) for row in there}

    def _spec(self, application: str, name: str) -> JobSpec | None:
        row = self._tables.job(application, name)
        return None if row is None else row.spec

    def outcomes(
        self, application: str, *, since: Instant, name: str | None = None, failing: int | None = None
    ) -> list[JobOutcome]:
        with self._world.mutex:
            rows = self.jobs(application, name)
            ended: dict[JobId, list[MemoryRun]] = {
                row.id: sorted(
                    (run for run in self._tables.keys[row.id].values() if run.state in PLAIN),
                    key=lambda run: (run.scheduled_for, run.id),
                    reverse=True,
                )
                for row in rows
            }
            bad = [run for runs in ended.values() for run in runs if run.state is not RunState.SUCCEEDED]
            if failing is not None:
                newest = sorted(bad, key=lambda run: (run.scheduled_for, run.id), reverse=True)
                of_state = [[run for run in newest if run.state is state] for state in PLAIN]
                jobs = {run.job for runs in of_state for run in runs[:failing]}
                rows = [row for row in rows if row.id in jobs]
            recent = Counter(run.job for run in bad if run.scheduled_for >= since)
            found = [
                outcome_of(
                    row.spec.name,
                    (EndedRun(r.id, r.state, r.scheduled_for, r.finished_at, r.reason) for r in ended[row.id]),
                    recent[row.id],
                )
                for row in rows
            ]
            return [one for one in found if one is not None and (failing is None or one.failures or one.recent)]

    def tally(self, application: str, since: Instant, limit: int) -> list[Tally]:
        with self._world.mutex:
            now = self.now()
            of_all = [run for row in self._tables.of(application) for run in self._tables.keys[row.id].values()]
            counts = Counter(
                (run.state, run.label if run.state is RunState.RUNNING else "")
                for run in of_all
                if (run.state in OPEN and (run.state is not RunState.PENDING or run.scheduled_for < now))
                or (run.state in {RunState.FAILED, RunState.LOST} and run.scheduled_for >= since)
            )
            return [
                Tally(state, label, min(runs, limit) if state.final else runs)
                for (state, label), runs in counts.items()
            ]

    def open_runs(self, application: str, limit: int) -> list[OpenRuns]:
        with self._world.mutex:
            now = self.now()
            counts = Counter(
                (run.state, row.spec.rules.queue)
                for row in self._tables.of(application)
                for run in self._tables.keys[row.id].values()
                if run.state in {RunState.WAITING, RunState.RUNNING}
                or (run.state is RunState.PENDING and run.due_at <= now and row.state is JobState.ACTIVE)
            )
            return [OpenRuns(state, queue, min(runs, limit)) for (state, queue), runs in counts.items()]

    def last_ends(self, application: str, jobs: Sequence[JobId], *, failing: int = 10_000) -> list[JobEnds]:
        del application, failing  # all failures are looked at
        with self._world.mutex:
            found = []
            for job in jobs:
                runs = [run for run in self._newest(job) if run.state.final]
                bad = [run for run in runs if run.state in {RunState.FAILED, RunState.LOST}]
                failed_at = max((run.finished_at or run.scheduled_for for run in bad), default=None)
                finals = (
                    FinalRun(r.state, r.scheduled_for, r.started_at, r.finished_at, r.last if r.missed else None)
                    for r in runs
                )
                found.append(ends_of(job, islice(finals, SUCCESS_WITHIN), failed_at))
            return found

    def durations(self, jobs: Sequence[JobId], last: int) -> dict[JobId, tuple[int, float | None]]:
        with self._world.mutex:
            found = {}
            for job in jobs:
                began = [run for run in self._newest(job) if run.state.final and run.attempt > 0][:last]
                found[job] = durations_of(
                    FinalRun(run.state, run.scheduled_for, run.started_at, run.finished_at) for run in began
                )
            return found

    def _newest(self, job: JobId) -> list[MemoryRun]:
        """The runs of a job, newest first."""
        return sorted(self._tables.keys[job].values(), key=lambda run: (run.scheduled_for, run.id), reverse=True)

    def past(self, jobs: Sequence[JobId], since: Instant, before: Instant) -> dict[JobId, Past]:
        with self._world.mutex:
            return {job: self._past(self._tables.jobs[job], since, before) for job in jobs}

    def _past(self, row: JobRow, since: Instant, before: Instant) -> Past:
        query = RunQuery(row.spec.application, row.spec.name, since=since, before=before, limit=sys.maxsize)
        plain: dict[RunState, list[int]] = {}
        others = []
        for run in self.runs(query):
            if run.state in PLAIN and run.kind is RunKind.DUE and run.count == 1 and run.until is None:
                plain.setdefault(run.state, []).append(round(run.scheduled_for * 1e6))
            else:
                others.append(run)
        return Past(plain, tuple(others))

    def prune(
        self,
        application: str,
        *,
        before: Instant,
        keep: int,
        limit: int,
        beyond: JobId = FIRST,
        jobs: int = 500,
        keys_before: Instant = 0.0,
    ) -> Pruned:
        with self._world.mutex:
            tables = self._tables
            page = sorted((row for row in tables.of(application) if row.id > beyond), key=lambda row: row.id)[:jobs]
            old = sorted(
                (run for row in page for run in self._old(row, before, keep)),
                key=lambda run: (run.scheduled_for, run.id),
            )
            more, old = len(old) >= limit, old[:limit]
            for run in old:
                tables.delete(run)
            memory_figures.keep(tables, old)
            for run in old:
                row = tables.jobs[run.job]
                if run.kind is RunKind.MANUAL and not is_generated(run.key) and run.scheduled_for >= keys_before:
                    tables.kept_keys[row.id, run.key] = run_rules.kept_of(run.row(row.spec.name))
                tables.put(replace(row, kept_since=max(row.kept_since, round(run.last + MICROSECOND, 6))))
            expired = [
                kept
                for kept, run in tables.kept_keys.items()
                if tables.jobs[run.job].spec.application == application and run.scheduled_for < keys_before
            ]
            for kept in expired[:limit]:
                del tables.kept_keys[kept]
            removed, more = len(old) + len(expired[:limit]), more or len(expired) >= limit
            return Pruned(removed, page[-1].id if len(page) == jobs else None, more)

    def _old(self, row: JobRow, before: Instant, keep: int) -> Iterable[MemoryRun]:
        runs = sorted(self._tables.keys[row.id].values(), key=lambda run: (run.scheduled_for, run.id))
        above = self._tables.above(row)
        left = [run.scheduled_for for run in runs if not run.state.final]
        left += [run.scheduled_for for job in above for run in self._tables.keys[job].values() if run.owes]
        left += [at for job in (row.id, *above) if (at := self._unsettled(job)) is not None]
        bound = min(left, default=before)
        final = [run for run in runs if run.state.final]
        if self._is_over(row, before):
            old = [run for run in final if (run.finished_at or 0.0) < before]
        else:
            old = final[: max(0, len(final) - keep)]
        return [run for run in old if run.last < min(before, bound) and not run.owes]

    def _is_over(self, row: JobRow, before: Instant) -> bool:
        """True if nothing has been due since this instant or will be, and no code has defined the job since."""
        done = row.state is JobState.ACTIVE and row.next_due is None and row.spec.trigger is not None
        return (done or row.state is JobState.REMOVED) and max(
            row.defined_at, row.since, row.removed_at or 0.0
        ) < before

    def count_hours(self, application: str, *, since: Instant | None, beyond: JobId, jobs: int) -> CountedHours:
        with self._world.mutex:
            now = self.now()
            return memory_figures.count_hours(self._tables, application, now, since=since, beyond=beyond, jobs=jobs)

    def note_counted(self, application: str, up_to: Instant) -> None:
        with self._world.mutex:
            marks = self._tables.counted_up_to
            marks[application] = max(marks.get(application, 0.0), up_to)

    def close_days(self, application: str, *, before: Instant, oldest: Instant, limit: int) -> int:
        with self._world.mutex:
            bounds = {"before": before, "oldest": oldest}
            return memory_figures.close_days(self._tables, application, **bounds, limit=limit)

    def hours(self, application: str, name: str, since: Instant, before: Instant) -> list[FiguresRow]:
        with self._world.mutex:
            return memory_figures.hours(self._tables, self._tables.job(application, name), since, before)

    def days(self, application: str, name: str, since: Instant, before: Instant) -> list[FiguresRow]:
        with self._world.mutex:
            return memory_figures.days(self._tables, self._tables.job(application, name), since, before)

    def totals(self, application: str, since: Instant, names: Collection[str] | None = None) -> dict[str, Figures]:
        with self._world.mutex:
            rows = (row for row in self._tables.of(application) if names is None or row.spec.name in names)
            return memory_figures.totals(self._tables, rows, since)

    def counts_by_queue(self, application: str, since: Instant) -> dict[str, Figures]:
        with self._world.mutex:
            rows = [row for row in self._tables.jobs.values() if row.spec.application == application]
            return memory_figures.counts_by_queue(self._tables, rows, since)

    def forget(self, application: str, *, before: Instant, defined: Collection[str], limit: int) -> Forgotten:
        with self._world.mutex:
            now, tables = self.now(), self._tables
            before = min(before, now)
            over = [
                row
                for row in self.jobs(application, removed=True)
                if row.state is JobState.DONE or row.state is JobState.REMOVED
            ]
            for row in over:
                if row.code.in_code and row.code.function in defined and row.defined_at < now - (now - before) / 10:
                    tables.put(replace(tables.jobs[row.id], defined_at=now))
            old = [row for row in over if self._may_be_forgotten(tables.jobs[row.id], before)]
            found = sorted(old, key=lambda row: (row.defined_at, row.id))[:limit]
            ids, left = {row.id for row in found}, limit * 10
            changes = [change for change in tables.changes if change.job in ids]
            tables.changes = [change for change in tables.changes if change.job not in ids] + changes[left:]
            gone = [row for row in found if row.id not in {change.job for change in changes[left:]}]
            for row in gone:
                tables.forget(row)
            if gone:
                kept_since, generation = tables.forgotten.get(application, (0.0, 0))
                highest = max(generation, *(row.generation for row in gone))
                tables.forgotten[application] = max(kept_since, before), highest
            return Forgotten(len(gone), more=len(found) == limit or len(gone) < len(found))

    def _may_be_forgotten(self, row: JobRow, before: Instant) -> bool:
        if not self._is_over(row, before) or self._tables.keys[row.id] or self._unsettled(row.id) is not None:
            return False
        return all(job != row.id for job, _ in self._tables.kept_keys)

    def actions(self, query: ActionQuery) -> list[ActionRecord]:
        with self._world.mutex:
            found = [
                action
                for action in reversed(self._tables.actions)
                if action.application in {query.application, ""}
                and query.target in {None, action.target}
                and query.by in {None, action.by}
                and (query.since is None or action.at >= query.since)
                and (query.before is None or action.at < query.before)
                and query.what in {None, action.what}
                and (query.below is None or action.id < query.below)
            ]
            return found[: query.limit]

    def forget_actions(self, application: str, *, before: Instant, keep: int, limit: int) -> int:
        with self._world.mutex:
            actions = self._tables.actions
            newest = {action.id for action in actions[len(actions) - min(keep, len(actions)) :]}
            old = [action for action in actions if action.at < before or action.id not in newest]
            gone = [
                action.id
                for whose in (application, "")
                for action in [action for action in old if action.application == whose][:limit]
            ]
            self._tables.actions = [action for action in actions if action.id not in gone]
            return len(gone)

    def guard(self, name: str, key: str, within: float | None, by: str) -> bool:
        with self._world.mutex:
            now, last = self.now(), self._tables.guards.get((name, key))
            if last is not None and (within is None or now - last[0] < within):
                return False
            until = None if within is None or (last is not None and last[2] is None) else now + within
            self._tables.guards[name, key] = now, by, until
            return True

    def sweep_guards(self) -> None:
        """Forget guards whose period ended a day ago."""
        with self._world.mutex:
            before = self.now() - 86400
            over = [key for key, (_, _, until) in self._tables.guards.items() if until is not None and until < before]
            for key in over:
                del self._tables.guards[key]

    def unguard(self, name: str, key: str, by: str) -> None:
        with self._world.mutex:
            last = self._tables.guards.get((name, key))
            if last is not None and last[1] == by:
                del self._tables.guards[name, key]

    def _wake(self, application: str) -> None:
        self._world.ring(JobsChanged(application))


def _spec(change: JobChange) -> JobSpec:
    if change.spec is None:
        raise ValueError(f"the change of job {change.name!r} ({change.what}) has no spec. Give it one.")
    return change.spec


def _removed(row: JobRow) -> bool:
    return row.state is JobState.REMOVED


def _forgotten(row: JobRow, request: RunRequest) -> bool:
    due = request.scheduled_for
    return request.backfill and not request.even_forgotten and due is not None and due < row.kept_since


def _due(row: JobRow) -> Instant:
    """When a job is due next, by its plan or after its pause."""
    due = row.paused_until if row.state is JobState.PAUSED else row.next_due
    return math.inf if due is None else due


def _holds(run: MemoryRun, token: str) -> bool:
    return run.state is RunState.RUNNING and run.token == token
