"""The ledger on SQLite (G3, G4). The file's one write lock is the lock of every job and every run.

An idle node must not take it. An operation that may find nothing to do first looks in a read transaction, which waits
for no other connection, and decides again under the lock only if there is something to do.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import nsmallest
from itertools import islice
from typing import Any

from tenure.core import patterns, unfit
from tenure.core.cluster import NodeId
from tenure.core.figures import Figures, FiguresRow, by_day, whole_days
from tenure.core.job_options import rules_of
from tenure.core.keys import digest_of, is_generated, planner_of, set_key
from tenure.core.messages import (
    ANY_RUN,
    Action,
    ActionQuery,
    Claimed,
    ClaimRequest,
    CountedHours,
    Ended,
    Ending,
    FollowedUp,
    Forgotten,
    JobChange,
    JobEnds,
    JobOutcome,
    JobPageQuery,
    JobQuery,
    JobStats,
    LaneJob,
    LogLine,
    LogTrim,
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
from tenure.core.records import (
    OPEN,
    ActionRecord,
    AttemptRow,
    ChangeRecord,
    Instant,
    JobId,
    JobRow,
    JobState,
    NodeFacts,
    PoolRow,
    RunId,
    RunRow,
    RunState,
)
from tenure.core.stats import Began, EndedRun, FinalRun, durations_of, ends_of, outcome_of, stats_of
from tenure.stores.ledger import FIRST, SUCCESS_WITHIN, Ledger
from tenure.stores.row_checks import Complaints, counts_of, figures_of, is_count, job_problem, storable
from tenure.stores.sqlite import attempts as sqlite_attempts
from tenure.stores.sqlite import changes as sqlite_changes
from tenure.stores.sqlite import claims as sqlite_claims
from tenure.stores.sqlite import figures as sqlite_figures
from tenure.stores.sqlite import followers
from tenure.stores.sqlite.alerts import SqliteAlerts
from tenure.stores.sqlite.backfills import SqliteBackfills
from tenure.stores.sqlite.part import SqliteScope
from tenure.stores.sqlite.rows import (
    ALWAYS,
    NEVER,
    Micros,
    action_record,
    change_record,
    execute,
    execute_many,
    instant,
    instant_or_none,
    is_micros,
    job_row,
    log_line,
    micros,
    node_facts,
    progress_of,
    run_row,
    run_state,
    sql,
    text_or_none,
)


class SqliteLedger(SqliteAlerts, SqliteBackfills, Ledger):
    """Jobs and runs in one file."""

    def __init__(self, scope: SqliteScope) -> None:
        super().__init__(scope)
        self._complaints = Complaints()
        self._left_out = 0

    def write_facts(self, facts: NodeFacts) -> None:
        key = set_key(facts.functions)
        with self._write():
            execute(self._connection, "write_functions", hash=key, names=json.dumps(sorted(facts.functions)))
            execute(
                self._connection,
                "write_facts",
                node=facts.node,
                application=facts.application,
                hash=key,
                queues=None if facts.queues is None else json.dumps(facts.queues),
                capacity=facts.capacity,
                release=facts.release,
                library=facts.library,
                tzdata=facts.tzdata,
                host=facts.host,
                signatures=facts.signatures,
                clock_offset=facts.clock_offset,
                unfit=unfit.written(facts.unfit),
            )
        self._wake(facts.application)

    def remove_facts(self, node: NodeId, application: str) -> None:
        with self._write():
            execute(self._connection, "remove_facts", node=node, application=application)

    def nodes(self, application: str) -> list[NodeFacts]:
        with self._read():
            found = execute(
                self._connection, "nodes", application=application, planner=planner_of(application)
            ).fetchall()
        return [node_facts(application, row) for row in found]

    def silent(self, nodes: Iterable[NodeId]) -> set[NodeId]:
        return self._scope.silent(nodes)

    def running(self, application: str) -> dict[NodeId, int]:
        with self._read():
            found = execute(self._connection, "running", application=application).fetchall()
        return {node: runs for node, runs in found if isinstance(node, str)}

    def unserved(self, application: str, served: Collection[tuple[str, str | None]], limit: int) -> list[LaneJob]:
        with self._read():
            found = execute(
                self._connection, "unserved", application=application, served=json.dumps(list(served)), limit=limit
            ).fetchall()
        return [LaneJob(JobId(job), str(name), str(function), str(queue)) for job, name, function, queue in found]

    def stored_arguments(self, application: str, after: str, limit: int) -> list[StoredArguments]:
        with self._read():
            found = execute(
                self._connection, "stored_arguments", application=application, after=after, limit=limit
            ).fetchall()
        return [StoredArguments(str(name), str(function), str(kwargs)) for name, function, kwargs in found]

    def requested_arguments(self, application: str, after: RunId, limit: int) -> list[StoredArguments]:
        with self._read():
            found = execute(
                self._connection, "requested_arguments", application=application, after=after, limit=limit
            ).fetchall()
        return [
            StoredArguments(str(name), str(function), str(kwargs), RunId(run)) for run, name, function, kwargs in found
        ]

    def overdue(self, application: str, before: Instant, limit: int) -> list[Overdue]:
        with self._read():
            jobs = execute(self._connection, "overdue_jobs", application=application, before=micros(before))
            unplanned = (
                Overdue(JobId(job), name, function, queue, due, latest_start(due, rules_of(rules)), None)
                for job, name, function, queue, due_, rules in jobs
                for due in (instant(due_),)
            )
            found = list(islice((one for one in unplanned if one.late_since < before), limit))
            runs = execute(
                self._connection, "overdue_runs", application=application, before=micros(before), limit=limit
            )
            late = (
                Overdue(JobId(job), name, function, queue, instant(due), since, RunId(run))
                for job, name, function, queue, due, due_at, expires_at, run, rules in runs
                for since in (
                    instant(expires_at) if expires_at is not None else instant(due_at) + rules_of(rules).on_time,
                )
                if since < before
            )
            found += nsmallest(limit, late, key=lambda one: one.late_since)
        return found

    def functions(self, application: str) -> frozenset[str]:
        with self._read():
            found = execute(self._connection, "functions", application=application).fetchall()
        return frozenset(name for (name,) in found if isinstance(name, str))

    def change(self, change: JobChange) -> JobRow | None:
        with self._write():
            changed = sqlite_changes.change(self._connection, change, self._now())
        if changed is not None:
            self._wake(change.application)
        return changed

    def change_many(self, changes: Sequence[JobChange]) -> list[JobRow | None]:
        if not changes:
            return []
        with self._write():
            now = self._now()
            changed = [sqlite_changes.change(self._connection, change, now) for change in changes]
        self._wake(*{row.spec.application for row in changed if row is not None})
        return changed

    def sync(self, application: str, release: int, changes: Sequence[JobChange]) -> list[Synced]:
        with self._read():
            rows = before = self._given(application, changes)
        if sqlite_changes.to_sync(rows, release, changes, self._now()):
            with self._write():
                before = self._given(application, changes)
                changed = sqlite_changes.sync(self._connection, before, release, changes, self._now())
                rows = self._given(application, changes)
            if changed:
                self._wake(application)
        return [Synced(row, before.get(name)) for name, row in sorted(rows.items())]

    def jobs(self, application: str, name: str | None = None, *, removed: bool = False) -> list[JobRow]:
        with self._read():
            if name is None:
                rows = [job_row(row) for row in execute(self._connection, "jobs", application=application)]
            else:
                found = sqlite_changes.job(self._connection, application, name)
                rows = [found] if found else []
        return [row for row in rows if removed or row.state is not JobState.REMOVED]

    def find_jobs(self, query: JobQuery) -> list[JobRow]:
        with self._read():
            found = execute(
                self._connection,
                "find_jobs",
                application=query.application,
                pattern=None if query.pattern is None else patterns.glob(query.pattern),
                tag=query.tag,
                queue=query.queue,
                after=query.after,
                limit=-1 if query.limit is None else query.limit,
            ).fetchall()
        return [job_row(row) for row in found]

    def count_jobs(self, application: str) -> int:
        with self._read():
            ((count,),) = execute(self._connection, "count_jobs", application=application)
        return int(count)

    def job_page(self, page: JobPageQuery) -> tuple[list[JobRow], int]:
        values: dict[str, object] = {
            "application": page.application,
            "contains": page.contains,
            "state": page.state,
            "tag": page.tag,
            "queue": page.queue,
            "names": None if page.names is None else json.dumps(page.names),
        }
        with self._read():
            (total,) = execute(self._connection, "count_job_page", **values).fetchone()
            rows = execute(
                self._connection,
                "job_page",
                **values,
                first=json.dumps(page.first),
                by_next=page.by_next,
                limit=page.limit,
                skip=page.skip,
            ).fetchall()
        return [job_row(row) for row in rows], total

    def strips(self, jobs: Sequence[JobId], before: Instant, limit: int) -> dict[JobId, list[StripRun]]:
        found: dict[JobId, list[StripRun]] = {}
        with self._read():
            for job in jobs:
                rows = execute(self._connection, "strip", job=job, before=micros(before), limit=limit).fetchall()
                if rows:
                    found[job] = [
                        StripRun(
                            RunId(run), run_state(state), instant(due), instant_or_none(began), instant_or_none(end)
                        )
                        for run, state, due, began, end in rows
                    ]
        return found

    def removed(self, application: str, names: Sequence[str] | None = None) -> list[JobRow]:
        wanted = None if names is None else json.dumps(list(names))
        with self._read():
            found = execute(self._connection, "removed", application=application, names=wanted).fetchall()
        return [job_row(row) for row in found]

    def planned_by_others(self, application: str, tzdata: str, limit: int) -> list[JobRow]:
        with self._read():
            found = execute(
                self._connection, "planned_by_others", application=application, tzdata=tzdata, limit=limit
            ).fetchall()
        return [job_row(row) for row in found]

    def planned_by_older(self, application: str, limit: int) -> list[JobRow]:
        with self._read():
            found = execute(self._connection, "planned_by_older", application=application, limit=limit).fetchall()
        return [job_row(row) for row in found]

    def planned_beyond(self, application: str, after: tuple[Instant, JobId], limit: int) -> list[JobRow]:
        due, job = after
        with self._read():
            found = execute(
                self._connection, "planned_beyond", application=application, due=micros(due), id=job, limit=limit
            ).fetchall()
        return [job_row(row) for row in found]

    def applications(self) -> list[str]:
        with self._read():
            return [name for (name,) in execute(self._connection, "applications")]

    def changes(self, application: str, name: str | None = None) -> list[ChangeRecord]:
        with self._read():
            if name is None:
                rows = execute(self._connection, "changes", application=application).fetchall()
            else:
                rows = execute(self._connection, "changes_of_job", application=application, name=name).fetchall()
        return [change_record(row) for row in rows]

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
        now = self._now()
        wanted: dict[str, object] = {
            "application": application,
            "strangers": json.dumps(strangers),
            "tzdata": tzdata,
            "overdue": micros(overdue),
            "limit": limit + self._left_out,  # unreadable jobs must not take the places of the others
        }
        with self._read():
            due = execute(self._connection, "unplanned", before=micros(before), **wanted).fetchall()
            resuming = execute(self._connection, "resuming", now=now, **wanted).fetchall()
        rows = [(row, False) for row in due] + [(row, True) for row in resuming]
        left_out: list[str] = []
        found = [(row, resumes) for row, resumes in rows if self._readable(row, micros(overdue), left_out)]
        self.unreadable = tuple(left_out)
        self._left_out = len(rows) - len(found)
        found.sort(key=lambda one: now if one[0][3] is None else one[0][3])
        return [
            Unplanned(
                JobId(job),
                name,
                generation,
                instant_or_none(next_due),
                trigger or "",
                rules_of(rules),
                resumes,
                text_or_none(reading),
            )
            for (job, name, generation, next_due, trigger, rules, reading), resumes in found[:limit]
        ]

    def _readable(self, row: tuple[Any, ...], overdue: Micros, left_out: list[str]) -> bool:
        """True if a job can be planned; otherwise the log says once why not."""
        job, name, generation, next_due, trigger, rules, _ = row
        problem = job_problem(rules_of(rules), trigger)
        if next_due is not None and not is_micros(next_due):
            problem = f"its next due time is {next_due!r:.60}"
        if not is_count(generation):
            problem = f"its generation is {generation!r:.60}"
        if problem:
            self._complaints.tell(job, generation, name, problem)
            if is_micros(next_due) and next_due < overdue:
                left_out.append(f"job {name!r} is overdue and cannot be read here: {problem}")
        return not problem

    def plan(self, batch: Sequence[Planned]) -> int:
        planned = {one.id: one for one in batch}
        wanted = json.dumps([(one.id, one.generation, micros(one.next_due)) for one in planned.values()])
        with self._read():
            there = execute(self._connection, "plannable", planned=wanted).fetchone()
        if there is None:
            return 0
        with self._write():
            ours = execute(self._connection, "plannable", planned=wanted).fetchall()
            execute_many(
                self._connection,
                "move_on",
                (
                    (None if (then := planned[job].then_due) is None else micros(then), planned[job].then_reading, job)
                    for job, _ in ours
                ),
            )
            return sqlite_changes.insert(
                self._connection,
                ((job, application, planned[job].generation, planned[job].runs) for job, application in ours),
                self._now(),
            )

    def claim(self, request: ClaimRequest) -> Claimed:
        with self._read():
            now = self._now()
            if not sqlite_claims.claimable(self._connection, request, now):
                return sqlite_claims.nothing_claimed(self._connection, request, now)
        with self._write():
            claimed, asked_to_end = sqlite_claims.claim(self._connection, request, self._now(), self._complaints)
        if asked_to_end:
            self._wake(request.application)
        return claimed

    def missed(self, application: str, limit: int, functions: tuple[str, ...] | None = None) -> list[MissedJob]:
        with self._read():
            now = self._now()
            jobs = execute(
                self._connection,
                "missed_jobs",
                application=application,
                functions=None if functions is None else json.dumps(functions),
                limit=limit,
                now=now,
            ).fetchall()
            return [self._missed_of(now, *row) for row in jobs]

    def _missed_of(self, now: Micros, job: JobId, name: str, generation: int, rules: str) -> MissedJob:
        rows = execute(self._connection, "missed_runs", job=job, now=now).fetchall()
        (in_time,) = execute(self._connection, "in_time", job=job, after=rows[-1][1], now=now).fetchone()
        runs = tuple(MissedRun(RunId(one), instant(scheduled_for)) for one, scheduled_for in rows)
        return MissedJob(job, name, generation, rules_of(rules), runs, bool(in_time))

    def settle(
        self, job: JobId, generation: int, *, make_up: Sequence[RunId], skip: Sequence[RunId], reason: str
    ) -> bool:
        with self._write():
            return sqlite_claims.settle(
                self._connection, job, generation, self._now(), make_up=make_up, skip=skip, reason=reason
            )

    def finish(self, endings: Sequence[Ending]) -> list[Ended]:
        if not endings:
            return []
        with self._write():
            ended, waking = sqlite_claims.finish(self._connection, endings, self._now())
        self._wake(*waking)
        return ended

    def reconcile(self, node: NodeId, application: str, *, stopping: bool = False) -> Reconciled:
        with self._read():
            marks = stopping and sqlite_claims.unmarked(self._connection, node, application)
            if not marks and not sqlite_claims.orphans(self._connection, application):
                return sqlite_claims.reconcile(self._connection, node, application, (), self._now())
        with self._write():
            now = self._now()
            if marks:
                sqlite_claims.mark_stopping(self._connection, node, application)
            lost = sqlite_claims.take_back(self._connection, application, now)
            called = sqlite_claims.reconcile(self._connection, node, application, lost, now)
        if lost:
            self._wake(application)
        return called

    def follow_up(
        self, application: str, limit: int, *, beyond: JobId = FIRST, as_of: Instant | None = None
    ) -> FollowedUp:
        with self._read():
            if not followers.page(self._connection, application, 1, beyond, self._complaints):
                return FollowedUp(0)
        with self._write():
            now = self._now()
            moment = followers.Moment(now, now if as_of is None else micros(as_of))
            owing = followers.page(self._connection, application, limit, beyond, self._complaints)
            full = len(owing) == limit
            done = followers.follow_up(self._connection, application, owing, moment, full=full)
        if done.begins:
            self._wake(application)
        return done

    def owed(self, application: str, limit: int) -> list[OwedRun]:
        with self._read():
            return followers.owed(self._connection, application, limit)

    def followers(self, application: str, parent: str | None = None) -> list[JobRow]:
        with self._read():
            found = execute(self._connection, "followers", application=application, parent=parent).fetchall()
        return [job_row(row) for row in found]

    def note_begun(self, begun: Sequence[tuple[RunId, str, Instant]]) -> None:
        with self._write():
            sqlite_claims.note_begun(self._connection, begun)

    def unbegun(self, job: JobId, generation: int) -> list[tuple[str, float]]:
        with self._read():
            return sqlite_claims.unbegun(self._connection, job, generation)

    def put_back(self, held: Sequence[tuple[RunId, str]]) -> int:
        if not held:
            return 0
        with self._write():
            count, waking = sqlite_claims.put_back(self._connection, held, self._now())
        self._wake(*waking)
        return count

    def request_runs(self, requests: Sequence[RunRequest]) -> list[RunRow | None]:
        if not requests:
            return []
        with self._write():
            noted: set[tuple[str, str]] = set()
            answers = [sqlite_changes.request_run(self._connection, one, self._now(), noted) for one in requests]
        self._wake(*{one.application for one, answer in zip(requests, answers, strict=True) if answer})
        return answers

    def traceparents(self, runs: Collection[RunId]) -> dict[RunId, str]:
        with self._read():
            found = execute(self._connection, "traceparents", runs=json.dumps(sorted(runs))).fetchall()
        return {RunId(run): traceparent for run, traceparent in found}

    def retry(
        self, runs: Sequence[RunId], by: str, action: Action | None = None, traceparent: str = ""
    ) -> list[RunRow | None]:
        if not runs:
            return []
        with self._write():
            answers, waking = sqlite_changes.retry(
                self._connection, runs, by, now=self._now(), action=action, traceparent=traceparent
            )
        self._wake(*waking)
        return answers

    def cancel_many(
        self, runs: Sequence[RunId], by: str, why: str, action: Action | None = None
    ) -> list[RunRow | None]:
        with self._write():
            answers, waking = sqlite_changes.cancel(self._connection, runs, by, why, now=self._now(), action=action)
        self._wake(*waking)
        return answers

    def set_pool(self, application: str, name: str, size: int, action: Action | None = None) -> None:
        with self._write():
            if not execute(self._connection, "set_pool", application=application, name=name, size=size).rowcount:
                return
            sqlite_changes.note_action(self._connection, application, name, action, now=self._now())
        self._wake(application)

    def pools(self, application: str) -> list[PoolRow]:
        with self._read():
            return [PoolRow(*row) for row in execute(self._connection, "pools", application=application)]

    def runs(self, query: RunQuery) -> list[RunRow]:
        statements = sql("ASC" if query.oldest_first else "DESC")
        values: dict[str, object] = {
            "application": query.application,
            "job": query.job,
            "states": json.dumps(query.states) if query.states else None,
            "since": ALWAYS if query.since is None else micros(query.since),
            "before": NEVER if query.before is None else micros(query.before),
            "below": query.below or 0,
            "above": ANY_RUN if query.above is None else query.above,
            "id": query.id,
            "key": query.key,
            "slot": query.slot,
            "limit": query.limit,
        }
        with self._read():
            finals: Iterable[str] = (state for state in query.states if state.final)
            if not query.states:
                finals = [
                    state for (state,) in execute(self._connection, "final_states", application=query.application)
                ]
            rows = [
                row
                for name, more in _listings(query, finals)
                for row in self._connection.execute(statements[name], {**values, **more})
            ]
        found = sorted(map(run_row, rows), key=lambda run: (run.scheduled_for, run.id), reverse=not query.oldest_first)
        return found[: query.limit]

    def keep_log(self, lines: Sequence[LogLine], trims: Sequence[LogTrim] = ()) -> None:
        if not lines and not trims:
            return
        dropped = ((trim.run, trim.attempt, trim.first, trim.before) for trim in trims)
        kept = ((line.run, line.attempt, line.place, micros(line.at), storable(line.text)) for line in lines)
        with self._write():
            execute_many(self._connection, "trim_log", dropped)
            execute_many(self._connection, "keep_log", kept)

    def keep_progress(self, progress: Sequence[Progress]) -> None:
        if not progress:
            return
        written = ((one.run, one.attempt, one.done, one.total, storable(one.text), micros(one.at)) for one in progress)
        with self._write():
            execute_many(self._connection, "keep_progress", written)

    def attempts(self, run: RunId) -> list[AttemptRow]:
        with self._read():
            return sqlite_attempts.attempts(self._connection, run)

    def keep_results(self, results: Sequence[Result]) -> None:
        if not results:
            return
        with self._write():
            execute_many(
                self._connection,
                "keep_result",
                ((result.run, result.attempt, storable(result.text)) for result in results),
            )

    def coming(self, application: str, limit: int) -> list[RunRow]:
        with self._read():
            rows = execute(self._connection, "coming", application=application, now=self._now(), limit=limit)
            return [run_row(row) for row in rows]

    def result(self, run: RunId) -> str | None:
        with self._read():
            found = execute(self._connection, "result", id=run).fetchone()
        return text_or_none(found[0]) if found else None

    def log_ends(self, runs: Collection[RunId]) -> dict[RunId, tuple[int, int]]:
        with self._read():
            rows = execute(self._connection, "log_ends", runs=json.dumps(list(runs))).fetchall()
        return {RunId(run): (attempt, place) for run, attempt, place in rows}

    def log(self, run: RunId) -> list[LogLine]:
        with self._read():
            return [log_line(row) for row in execute(self._connection, "log", id=run)]

    def progress(self, runs: Collection[RunId]) -> dict[RunId, Progress]:
        with self._read():
            found = map(progress_of, execute(self._connection, "progress", runs=json.dumps(sorted(runs))))
            return {one.run: one for one in found}

    def stats(self, application: str, name: str, last: int = 1000) -> JobStats:
        with self._read():
            rows = execute(self._connection, "last_runs", application=application, name=name, last=last).fetchall()
        return stats_of([run_row(row) for row in rows])

    def figures(self, application: str, last: int) -> dict[str, JobStats]:
        statement = sql()["figures"]
        with self._read():
            jobs = [job_row(row) for row in execute(self._connection, "jobs", application=application)]
            return {row.spec.name: self._figures(statement, row.id, last) for row in jobs}

    def _figures(self, statement: str, job: JobId, last: int) -> JobStats:
        rows = self._connection.execute(statement, (job, last))
        return stats_of([_began(row) for row in rows])

    def outcomes(
        self, application: str, *, since: Instant, name: str | None = None, failing: int | None = None
    ) -> list[JobOutcome]:
        bounds: dict[str, object] = {"application": application, "since": micros(since)}
        with self._read():
            recent = dict(execute(self._connection, "recent_failures", **bounds).fetchall())
            if failing is None:
                jobs = execute(self._connection, "job_names", application=application, name=name).fetchall()
            else:
                jobs = execute(self._connection, "jobs_with_failures", limit=failing, **bounds).fetchall()
            found = [
                outcome_of(known, map(_ended_run, execute(self._connection, "ended", job=job)), recent.get(job, 0))
                for job, known in jobs
                if name in {None, known}
            ]
        return [one for one in found if one is not None and (failing is None or one.failures or one.recent)]

    def triggers(self, jobs: Collection[JobId]) -> dict[JobId, str | None]:
        with self._read():
            rows = execute(self._connection, "triggers", jobs=json.dumps(sorted(jobs))).fetchall()
        return {JobId(job): trigger for job, trigger in rows}

    def tally(self, application: str, since: Instant, limit: int) -> list[Tally]:
        with self._read():
            found = execute(self._connection, "tally_open", application=application, now=self._now()).fetchall()
            for state in (RunState.FAILED, RunState.LOST):
                ((count,),) = execute(
                    self._connection,
                    "tally_final",
                    application=application,
                    state=state,
                    since=micros(since),
                    limit=limit,
                )
                found.append((state, "", count))
        return [Tally(RunState(state), label, runs) for state, label, runs in found]

    def open_runs(self, application: str, limit: int) -> list[OpenRuns]:
        values = {"application": application, "limit": limit}
        with self._read():
            found = execute(self._connection, "open_in_lanes", now=self._now(), **values).fetchall()
            for name in ("open_waiting", "open_running"):
                found += execute(self._connection, name, **values).fetchall()
        return [OpenRuns(RunState(state), queue, runs) for state, queue, runs in found if runs]

    def last_ends(self, application: str, jobs: Sequence[JobId], *, failing: int = 10_000) -> list[JobEnds]:
        failed: dict[JobId, int] = {}
        with self._read():
            for state in (RunState.FAILED, RunState.LOST):
                rows = execute(self._connection, "last_failures", application=application, state=state, limit=failing)
                for job, at in rows:
                    failed[job] = max(failed.get(job, at), at)
            return [
                ends_of(
                    job,
                    map(_final_run, execute(self._connection, "newest_final", job=job, limit=SUCCESS_WITHIN)),
                    instant_or_none(failed.get(job)),
                )
                for job in jobs
            ]

    def durations(self, jobs: Sequence[JobId], last: int) -> dict[JobId, tuple[int, float | None]]:
        statement = sql()["figures"]
        with self._read():
            return {job: durations_of(map(_began, self._connection.execute(statement, (job, last)))) for job in jobs}

    def past(self, jobs: Sequence[JobId], since: Instant, before: Instant) -> dict[JobId, Past]:
        values = {"jobs": json.dumps(jobs), "since": micros(since), "before": micros(before)}
        plain: dict[JobId, dict[RunState, list[int]]] = {job: {} for job in jobs}
        others: dict[JobId, list[RunRow]] = {job: [] for job in jobs}
        with self._read():
            for job, state, text in execute(self._connection, "past", **values):
                plain[job][RunState(state)] = list(map(int, text.split(",")))
            for name in ("past_others", "past_reaching"):
                for run in map(run_row, execute(self._connection, name, **values)):
                    others[run.job].append(run)
        return {job: Past(plain[job], tuple(others[job])) for job in jobs}

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
        bounds = {"application": application, "keys_before": micros(keys_before), "limit": limit}
        with self._read():
            page = [
                job
                for (job,) in execute(
                    self._connection, "page", application=application, beyond=beyond, jobs=jobs
                ).fetchall()
            ]
            up_to = JobId(page[-1]) if len(page) == jobs else None
            among = page[0] if page else beyond + 1, page[-1] if page else beyond
            (keys,) = execute(self._connection, "old_keys", **bounds).fetchone()
            if not keys and not self._old(application, among, micros(before), keep, limit):
                return Pruned(0, up_to)
        with self._write():
            old = self._old(application, among, micros(before), keep, limit)
            self._keep_keys([one for _, one, _ in old], micros(keys_before))
            gone = sqlite_figures.by_hour_of_run([(job, self._to_count(one)) for job, one, _ in old])
            execute_many(self._connection, "forget_log", ((one,) for _, one, _ in old))
            execute_many(self._connection, "forget_progress", ((one,) for _, one, _ in old))
            execute_many(self._connection, "forget_attempts", ((one,) for _, one, _ in old))
            execute_many(self._connection, "forget_run", ((one,) for _, one, _ in old))
            execute_many(self._connection, "keep_since", ((last + 1, job) for job, _, last in old))
            sqlite_figures.keep(self._connection, application, gone)
            keys = max(0, execute(self._connection, "forget_keys", **bounds).rowcount)
        return Pruned(len(old) + keys, up_to, more=max(len(old), keys) >= limit)

    def _to_count(self, run: RunId) -> tuple[Any, ...]:
        found: tuple[Any, ...] = execute(self._connection, "run_to_count", id=run).fetchone()
        return found

    def _keep_keys(self, runs: Sequence[RunId], since: Micros) -> None:
        """Keep the keys of runs that are about to be removed, if callers may request them again."""
        rows = execute(self._connection, "asked_runs", ids=json.dumps(runs), keys_before=since).fetchall()
        execute_many(
            self._connection,
            "keep_key",
            ((*kept, digest_of(kwargs)) for *kept, kwargs in rows if not is_generated(kept[1])),
        )

    def _old(
        self, application: str, among: tuple[int, int], before: Micros, keep: int, limit: int
    ) -> list[tuple[JobId, RunId, Micros]]:
        """The removable runs of jobs from one id to another, each with the last due time that it stands for."""
        low, high = among
        jobs = execute(
            self._connection,
            "prunable",
            application=application,
            low=low,
            high=high,
            before=before,
            keep=keep,
            nothing=ALWAYS,
        ).fetchall()
        found: list[tuple[JobId, RunId, Micros]] = []
        for job, bound, over in jobs:
            finished_before = before if over else NEVER
            bounds = {"before": bound, "finished_before": finished_before, "limit": limit - len(found)}
            rows = execute(self._connection, "oldest", job=job, **bounds)
            found += [(JobId(job), RunId(one), last) for one, last in rows]
            if len(found) >= limit:
                break
        return found

    def count_hours(self, application: str, *, since: Instant | None, beyond: JobId, jobs: int) -> CountedHours:
        with self._read():
            found = execute(self._connection, "page", application=application, beyond=beyond, jobs=jobs).fetchall()
            page, now = [JobId(job) for (job,) in found], self._now()
            least = now // sqlite_figures.HOUR * sqlite_figures.HOUR - sqlite_figures.HOUR
            marked = sqlite_figures.start_of(self._connection, application, now) if since is None else micros(since)
            start = min(marked, least)
            runs, changed, touched = sqlite_figures.differences(self._connection, page, start, now)
        written = 0
        if changed or touched:
            with self._write():
                again = sorted({*changed, *touched})
                _, changed, touched = sqlite_figures.differences(self._connection, again, start, self._now())
                written = sqlite_figures.write(self._connection, application, changed)
                sqlite_figures.untouch(self._connection, touched)
        return CountedHours(instant(start), page[-1] if len(page) == jobs else None, runs, written)

    def note_counted(self, application: str, up_to: Instant) -> None:
        with self._write():
            execute(self._connection, "note_counted", application=application, up_to=micros(up_to))

    def close_days(self, application: str, *, before: Instant, oldest: Instant, limit: int) -> int:
        bound = micros(before) // sqlite_figures.DAY * sqlite_figures.DAY
        bounds = {"application": application, "before": bound, "oldest": micros(oldest), "limit": limit}

        def found() -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
            connection = self._connection
            old = execute(connection, "old_days", **bounds).fetchall()
            return execute(connection, "days_to_close", **bounds).fetchall(), old

        with self._read():
            if found() == ([], []):
                return 0
        with self._write():
            days, old = found()
            sqlite_figures.close_days(self._connection, application, [(JobId(job), day) for job, day in days])
            execute_many(self._connection, "forget_day", old)
        return len(days) + len(old)

    def hours(self, application: str, name: str, since: Instant, before: Instant) -> list[FiguresRow]:
        period = {"since": micros(since), "before": micros(before)}
        with self._read():
            found = execute(self._connection, "figures_by_hour", application=application, name=name, **period)
            return sqlite_figures.by_hour(found)

    def days(self, application: str, name: str, since: Instant, before: Instant) -> list[FiguresRow]:
        first, last = whole_days(since, before)
        period = {"since": micros(since), "before": micros(before)}
        with self._read():
            over = execute(self._connection, "figures_by_day", application=application, name=name, **period)
            closed = sqlite_figures.rows_of(over)
        return by_day([*closed, *self.hours(application, name, first, last)])

    def totals(self, application: str, since: Instant, names: Collection[str] | None = None) -> dict[str, Figures]:
        values: dict[str, object] = {"application": application, "since": micros(since)}
        with self._read():
            if names is None:
                found = execute(self._connection, "figures_of_jobs", **values)
            else:
                found = execute(self._connection, "figures_of_named", **values, names=json.dumps(sorted(names)))
            return {name: figures_of(*columns) for name, *columns in found}

    def counts_by_queue(self, application: str, since: Instant) -> dict[str, Figures]:
        with self._read():
            found = execute(self._connection, "counts_by_queue", application=application, since=micros(since))
            return {queue: counts_of(*columns) for queue, *columns in found}

    def forget(self, application: str, *, before: Instant, defined: Collection[str], limit: int) -> Forgotten:
        now = self._now()
        old = min(micros(before), now)
        bounds: dict[str, object] = {
            "application": application,
            "defined": json.dumps(sorted(defined)),
            "before": old,
            "seen_before": now - (now - old) // 10,
            "limit": limit,
        }
        with self._read():
            seen = execute(self._connection, "live_code", **bounds).fetchone()
            if seen is None and execute(self._connection, "forgettable", **bounds).fetchone() is None:
                return Forgotten(0)
        with self._write():
            for (job,) in execute(self._connection, "live_code", **bounds).fetchall():
                execute(self._connection, "see_defined", id=job, now=now)
            found = execute(self._connection, "forgettable", **bounds).fetchall()
            jobs = json.dumps([job for job, _ in found])
            execute(self._connection, "forget_changes", jobs=jobs, rows=limit * 10)
            left = {job for (job,) in execute(self._connection, "with_changes", jobs=jobs).fetchall()}
            left |= sqlite_figures.forget(self._connection, [job for job, _ in found], limit * 10)
            gone = [(job, generation) for job, generation in found if job not in left]
            execute_many(self._connection, "forget_job", ((job,) for job, _ in gone))
            if gone:
                highest = max(generation for _, generation in gone)
                execute(self._connection, "note_forgotten", application=application, before=old, generation=highest)
        return Forgotten(len(gone), more=len(found) == limit or bool(left))

    def actions(self, query: ActionQuery) -> list[ActionRecord]:
        name = "actions" if query.target is None else "actions_on"
        with self._read():
            rows = execute(
                self._connection,
                name,
                application=query.application,
                target=query.target,
                by=query.by,
                since=ALWAYS if query.since is None else micros(query.since),
                before=NEVER if query.before is None else micros(query.before),
                what=query.what,
                below=NEVER if query.below is None else query.below,
                limit=query.limit,
            ).fetchall()
        return [action_record(row) for row in rows]

    def forget_actions(self, application: str, *, before: Instant, keep: int, limit: int) -> int:
        values: dict[str, object] = {"application": application, "before": micros(before), "keep": keep, "limit": limit}
        with self._read():
            if execute(self._connection, "old_actions", **values).fetchone() is None:
                return 0
        with self._write():
            old = execute(self._connection, "old_actions", **values).fetchall()
            return execute_many(self._connection, "forget_action", old)

    def guard(self, name: str, key: str, within: float | None, by: str) -> bool:
        with self._read():
            last = execute(self._connection, "guarded", name=name, key=key).fetchone()
            if last is not None and last[0] > self._before(within):
                return False
        with self._write():
            now, before = self._now(), self._before(within)
            until = None if within is None else now + micros(within)
            passed = execute(self._connection, "guard", name=name, key=key, now=now, before=before, by=by, until=until)
            return passed.rowcount == 1

    def _before(self, within: float | None) -> Micros:
        """The latest time of a True that does not prevent another one now."""
        return ALWAYS if within is None else self._now() - micros(within)

    def unguard(self, name: str, key: str, by: str) -> None:
        with self._write():
            execute(self._connection, "unguard", name=name, key=key, by=by)

    def _given(self, application: str, changes: Sequence[JobChange]) -> dict[str, JobRow]:
        """The existing jobs that these changes are about."""
        names = {change.name for change in changes}
        rows = (sqlite_changes.job(self._connection, application, name) for name in names)
        return {row.spec.name: row for row in rows if row is not None}


def _began(row: tuple[Any, ...]) -> Began:
    state, due_at, started_at, finished_at = row
    return Began(run_state(state), instant(due_at), instant_or_none(started_at), instant_or_none(finished_at))


def _final_run(row: tuple[Any, ...]) -> FinalRun:
    state, scheduled_for, *times = row
    started_at, finished_at, missed = map(instant_or_none, times)
    return FinalRun(run_state(state), instant(scheduled_for), started_at, finished_at, missed)


def _ended_run(row: tuple[Any, ...]) -> EndedRun:
    run, state, scheduled_for, finished_at, reason = row
    return EndedRun(RunId(run), run_state(state), instant(scheduled_for), instant_or_none(finished_at), reason)


def _listings(query: RunQuery, finals: Iterable[str]) -> Iterator[tuple[str, dict[str, object]]]:
    """The statements that find these runs with the least reading, each with its additional parameters."""
    open_ones = [state for state in query.states or RunState if state in OPEN]
    if query.slot is not None:
        yield "runs_in_slot", {}
        return
    if query.key is not None:
        yield "runs_by_key", {}
        return
    if query.id is not None:
        yield "runs_by_id", {}
    elif query.job is not None and not (query.states and OPEN.issuperset(query.states)):
        yield "runs_of_job", {}
    else:
        if open_ones:
            yield "runs_open", {"states": json.dumps(open_ones)}
        for state in finals:
            yield "runs_in_state", {"state": state}
    if query.since is not None and query.above is None:
        yield "runs_reaching", {}
