"""The ledger on PostgreSQL (G3, G4): one statement per operation. An operation that needs several is a function in the
server."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tenure.core import patterns, unfit
from tenure.core.cluster import NodeId
from tenure.core.figures import Figures, FiguresRow, by_day, whole_days
from tenure.core.job_options import rules_of
from tenure.core.keys import due_key, planner_of, set_key
from tenure.core.messages import (
    ANY_RUN,
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
from tenure.core.records import (
    ActionRecord,
    AttemptRow,
    Change,
    ChangeRecord,
    Instant,
    JobId,
    JobRow,
    NodeFacts,
    PoolRow,
    Rules,
    RunId,
    RunKind,
    RunRow,
    RunState,
)
from tenure.core.run_rules import cancelled_by, with_last
from tenure.core.stats import COUNTED, REASON, stats_of
from tenure.stores import statements
from tenure.stores.ledger import FIRST, SUCCESS_WITHIN, Ledger
from tenure.stores.postgres.alerts import ALERT, MESSAGE, PostgresAlerts
from tenure.stores.postgres.arrays import Longs, doubles, longs, texts
from tenure.stores.postgres.backfills import PostgresBackfills
from tenure.stores.postgres.claim_floor import Look
from tenure.stores.postgres.rows import (
    ACTION,
    FIGURES_SINCE,
    JOB,
    REACHING,
    RUN,
    SPAN,
    WAS,
    attempt_row,
    job_row,
    run_row,
    synced_row,
    written_action,
    written_change,
    written_request,
)
from tenure.stores.row_checks import (
    Complaints,
    clamped,
    clamped_or_none,
    counts_of,
    figures_of,
    figures_row,
    is_instant,
    job_problem,
    storable,
)

Execute = Callable[[str, Mapping[str, object]], list[tuple[Any, ...]]]
"""Executes one statement in a transaction of its own and returns all rows. Raises as a session does."""

_STATES = {state.value: state for state in RunState}
DEFINITIONS = 20_000
"""How many job definitions a session caches."""


class ClaimedDefinition(NamedTuple):
    """The part of a job that a claim does not repeat with every run."""

    generation: int
    name: str
    function: str
    kwargs: str
    rules: Rules
    trigger: str | None
    problem: str
    """Why its runs cannot begin."""


@functools.cache
def load(schema: str, order: str) -> dict[str, str]:
    """The ledger's statements; lists of runs are in this order."""
    return statements.load(
        statements.POSTGRES,
        "jobs",
        "runs",
        "guards",
        "actions",
        "figures",
        "alerts",
        "backfills",
        alert=ALERT,
        message=MESSAGE,
        job=JOB,
        was=WAS,
        run=RUN,
        span=SPAN,
        reaching=REACHING,
        action=ACTION,
        figures_since=FIGURES_SINCE,
        order=order,
        schema=schema,
    )


class PostgresLedger(PostgresAlerts, PostgresBackfills, Ledger):
    """Jobs and runs over one connection."""

    def __init__(self, schema: str, execute: Execute) -> None:
        self._execute = execute
        self._statements = load(schema, "DESC")
        self._oldest_first = load(schema, "ASC")
        self._definitions: dict[int, ClaimedDefinition] = {}
        self._complaints = Complaints()
        self._left_out = 0
        self._look = Look()

    def now(self) -> Instant:
        return float(self._one("now"))

    def write_facts(self, facts: NodeFacts) -> None:
        self._run(
            "write_facts",
            node=facts.node,
            application=facts.application,
            hash=set_key(facts.functions),
            names=texts(sorted(facts.functions)),
            queues=None if facts.queues is None else texts(facts.queues),
            capacity=facts.capacity,
            release=facts.release,
            library=facts.library,
            tzdata=facts.tzdata,
            host=facts.host,
            signatures=facts.signatures,
            clock_offset=facts.clock_offset,
            unfit=unfit.written(facts.unfit),
        )

    def remove_facts(self, node: NodeId, application: str) -> None:
        self._run("remove_facts", node=node, application=application)

    def nodes(self, application: str) -> list[NodeFacts]:
        found = []
        for node, names, queues, *rest in self._run("nodes", application=application, planner=planner_of(application)):
            given = (*rest[:-4], unfit.read(rest[-4]), *rest[-3:])
            facts = frozenset(names), None if queues is None else tuple(queues), *given
            found.append(NodeFacts(node, application, *facts))
        return found

    def silent(self, nodes: Iterable[NodeId]) -> set[NodeId]:
        ids = list(nodes)
        return {node for (node,) in self._run("silent", ids=ids)} if ids else set()

    def running(self, application: str) -> dict[NodeId, int]:
        return dict(self._run("running", application=application))

    def unserved(self, application: str, served: Collection[tuple[str, str | None]], limit: int) -> list[LaneJob]:
        rows = self._run(
            "unserved",
            application=application,
            functions=texts([function for function, _ in served]),
            queues=texts([queue for _, queue in served]),
            limit=limit,
        )
        return [LaneJob(JobId(job), *rest) for job, *rest in rows]

    def stored_arguments(self, application: str, after: str, limit: int) -> list[StoredArguments]:
        rows = self._run("stored_arguments", application=application, after=after, limit=limit)
        return [StoredArguments(*row) for row in rows]

    def requested_arguments(self, application: str, after: RunId, limit: int) -> list[StoredArguments]:
        rows = self._run("requested_arguments", application=application, after=after, limit=limit)
        return [StoredArguments(name, function, kwargs, RunId(run)) for run, name, function, kwargs in rows]

    def overdue(self, application: str, before: Instant, limit: int) -> list[Overdue]:
        found = []
        for job, name, function, queue, due, text in self._run(
            "overdue_jobs", application=application, before=before, limit=limit
        ):
            late_since = latest_start(clamped(due), rules_of(text))
            if late_since < before:
                found.append(Overdue(JobId(job), name, function, queue, clamped(due), late_since, None))
        found += [
            Overdue(JobId(job), name, function, queue, clamped(due), clamped(late_since), RunId(run))
            for job, name, function, queue, due, late_since, run in self._run(
                "overdue_runs", application=application, before=before, limit=limit
            )
        ]
        return found

    def functions(self, application: str) -> frozenset[str]:
        return frozenset(name for (name,) in self._run("functions", application=application))

    def change(self, change: JobChange) -> JobRow | None:
        if change.spec is None and change.what in {Change.ADDED, Change.UPDATED}:
            raise ValueError(f"the change of job {change.name!r} ({change.what}) has no spec. Give it one.")
        rows = self._run("change", change=json.dumps(written_change(change)))
        return job_row(change.application, rows[0]) if rows else None

    def change_many(self, changes: Sequence[JobChange]) -> list[JobRow | None]:
        if not changes:
            return []
        rows = self._run("change_many", changes=json.dumps([written_change(change) for change in changes]))
        return [
            None if row[0] is None else job_row(change.application, row)
            for change, row in zip(changes, rows, strict=True)
        ]

    def sync(self, application: str, release: int, changes: Sequence[JobChange]) -> list[Synced]:
        written = [
            written_change(replace(change, spec=replace(change.spec, release=release), generation=None))
            for change in changes
            if change.spec is not None
        ]
        rows = self._run("sync", application=application, release=release, changes=json.dumps(written))
        return sorted((synced_row(application, row) for row in rows), key=lambda synced: synced.row.spec.name)

    def jobs(self, application: str, name: str | None = None, *, removed: bool = False) -> list[JobRow]:
        if name is None:
            rows = self._run("jobs", application=application, removed=removed)
        else:
            rows = self._run("job", application=application, name=name, removed=removed)
        return [job_row(application, row) for row in rows]

    def find_jobs(self, query: JobQuery) -> list[JobRow]:
        rows = self._run(
            "find_jobs",
            application=query.application,
            pattern=None if query.pattern is None else patterns.like(query.pattern),
            tag=query.tag,
            queue=query.queue,
            after=query.after,
            limit=query.limit,
        )
        return [job_row(query.application, row) for row in rows]

    def count_jobs(self, application: str) -> int:
        ((count,),) = self._run("count_jobs", application=application)
        return int(count)

    def job_page(self, page: JobPageQuery) -> tuple[list[JobRow], int]:
        rows = self._run(
            "job_page",
            application=page.application,
            contains=page.contains,
            state=page.state,
            tag=page.tag,
            queue=page.queue,
            names=None if page.names is None else texts(page.names),
            first=texts(page.first),
            by_next=page.by_next,
            limit=page.limit,
            skip=page.skip,
        )
        found = [job_row(page.application, row[1:]) for row in rows if row[1] is not None]
        return found, int(rows[0][0]) if rows else 0

    def strips(self, jobs: Sequence[JobId], before: Instant, limit: int) -> dict[JobId, list[StripRun]]:
        found: dict[JobId, list[StripRun]] = {}
        rows = self._run("strips", jobs=longs(list(jobs)), before=before, limit=limit)
        for job, run, state, due, began, ended in rows:
            times = clamped(due), clamped_or_none(began), clamped_or_none(ended)
            found.setdefault(JobId(job), []).append(StripRun(RunId(run), _STATES[state], *times))
        return found

    def removed(self, application: str, names: Sequence[str] | None = None) -> list[JobRow]:
        rows = self._run("removed", application=application, names=None if names is None else texts(names))
        return [job_row(application, row) for row in rows]

    def planned_by_others(self, application: str, tzdata: str, limit: int) -> list[JobRow]:
        rows = self._run("planned_by_others", application=application, tzdata=tzdata, limit=limit)
        return [job_row(application, row) for row in rows]

    def planned_by_older(self, application: str, limit: int) -> list[JobRow]:
        return [
            job_row(application, row) for row in self._run("planned_by_older", application=application, limit=limit)
        ]

    def planned_beyond(self, application: str, after: tuple[Instant, JobId], limit: int) -> list[JobRow]:
        due, job = after
        rows = self._run("planned_beyond", application=application, due=due, id=job, limit=limit)
        return [job_row(application, row) for row in rows]

    def applications(self) -> list[str]:
        return [name for (name,) in self._run("applications")]

    def changes(self, application: str, name: str | None = None) -> list[ChangeRecord]:
        return [
            ChangeRecord(job, generation, at, Change(what), trigger, by, why, until, after)
            for job, generation, at, what, trigger, by, why, until, after in (
                self._run("changes", application=application)
                if name is None
                else self._run("changes_of_job", application=application, name=name)
            )
        ]

    def triggers(self, jobs: Collection[JobId]) -> dict[JobId, str | None]:
        return {JobId(job): trigger for job, trigger in self._run("triggers", jobs=longs(sorted(jobs)))}

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
        rows = self._run(
            "unplanned",
            application=application,
            before=before,
            limit=limit + self._left_out,  # unreadable jobs must not take the places of the others
            strangers=texts(strangers),
            tzdata=tzdata,
            overdue=overdue,
        )
        found, left_out = [], []
        for job, name, generation, next_due, trigger, text, resumes, reading in rows:
            rules = rules_of(text)
            problem = job_problem(rules, trigger)
            if next_due is not None and not is_instant(next_due):
                problem = f"its next due time is {next_due!r} s from 1970"
            if problem:
                self._complaints.tell(job, generation, name, problem)
                if next_due is not None and next_due < overdue:
                    left_out.append(f"job {name!r} is overdue and cannot be read here: {problem}")
            else:
                found.append(Unplanned(JobId(job), name, generation, next_due, trigger or "", rules, resumes, reading))
        self._left_out, self.unreadable = len(rows) - len(found), tuple(left_out)
        return found[:limit]

    def plan(self, batch: Sequence[Planned]) -> int:
        if not batch:
            return 0
        places = [place for place, planned in enumerate(batch, 1) for _ in planned.runs]
        new = [run for planned in batch for run in planned.runs]
        plain = all(run.state is RunState.PENDING and run.count == 1 and run.until is None for run in new)
        return int(
            self._one(
                "plan",
                jobs=longs([planned.id for planned in batch]),
                generations=longs([planned.generation for planned in batch]),
                dues=doubles([planned.next_due for planned in batch]),
                thens=doubles([planned.then_due for planned in batch]),
                readings=texts([planned.then_reading for planned in batch]),
                places=longs(places),
                keys=texts([due_key(run.scheduled_for) for run in new]),
                scheduled=doubles([run.scheduled_for for run in new]),
                ready=doubles([run.due_at for run in new]),
                expire=doubles([run.expires_at for run in new]),
                states=None if plain else texts([run.state for run in new]),
                reasons=None if plain else texts([run.reason for run in new]),
                counts=None if plain else longs([run.count for run in new]),
                untils=None if plain else doubles([run.until for run in new]),
            )
        )

    def claim(self, request: ClaimRequest) -> Claimed:
        look = self._look.of(request)
        (answer,) = self._run(
            "claim",
            node=request.node,
            application=request.application,
            token=request.token,
            limit=request.limit,
            as_of=request.as_of,
            **look.remembered,
        )
        look.remember(answer[0], answer[1], answer[2:6])
        alive, now, next_at, more, missed, owing, ids, jobs, generations, *columns = answer[6:]
        if not ids:
            return Claimed((), now, next_at, more, missed, alive)
        definitions = self._define(jobs, generations)
        runs = tuple(
            ClaimedRun(
                run,
                job,
                definition.name,
                definition.function,
                definition.kwargs if kwargs is None else kwargs,
                key,
                _KINDS[kind],
                scheduled_for,
                clamped(due_at),
                attempt,
                failures,
                generation,
                definition.rules,
                definition.trigger,
            )
            for run, job, generation, definition, key, kind, scheduled_for, due_at, attempt, failures, kwargs in zip(
                ids, jobs, generations, definitions, *columns, strict=True
            )
        )
        if any(definition.problem for definition in definitions) or not all(map(is_instant, columns[2])):
            runs = self._without_unreadable(runs, request.token)
        if owing:
            runs = tuple(run._replace(owes=True) if run.id in owing else run for run in runs)
        if any(definition.rules.after for definition in definitions):
            runs = self._with_parents(request.application, runs)
        return Claimed(runs, now, next_at, more, missed, alive)

    def _with_parents(self, application: str, runs: Sequence[ClaimedRun]) -> tuple[ClaimedRun, ...]:
        """The same, each with the run that it follows, and the trigger of the first in the chain."""
        triggers = self.triggers({run.job for run in runs if run.rules.after})
        wanted = [(run.rules.after, run.key) for run in runs if run.rules.after]
        found = self._run(
            "parents",
            application=application,
            names=texts([name for name, _ in wanted]),
            keys=texts([key for _, key in wanted]),
        )
        states = {(name, key): (RunState(state), result) for name, key, state, result in found}
        return tuple(
            run._replace(
                parent=FollowedRun(name, run.key, *states.get((name, run.key), (None, None))),
                trigger=triggers.get(run.job),
            )
            if (name := run.rules.after)
            else run
            for run in runs
        )

    def _without_unreadable(self, runs: Sequence[ClaimedRun], token: str) -> tuple[ClaimedRun, ...]:
        """End the runs that cannot begin, and return the others."""
        endings = []
        for run in runs:
            problem = self._definitions[run.job].problem
            if not is_instant(run.scheduled_for):
                problem = f"the due time of run {run.id} is {run.scheduled_for!r} s from 1970"
            if problem:
                self._complaints.tell(run.job, run.generation, run.name, problem)
                endings.append(Ending(run.id, token, RunState.FAILED, f"cannot be read: {problem}"))
        self.finish(endings)
        ended = {ending.id for ending in endings}
        return tuple(run for run in runs if run.id not in ended)

    def _define(self, jobs: Sequence[int], generations: Sequence[int]) -> list[ClaimedDefinition]:
        """The definition of each run's job, as of its generation; the current one if the job has changed since."""
        known = self._definitions
        unknown = {
            job
            for job, generation in zip(jobs, generations, strict=True)
            if (found := known.get(job)) is None or found.generation != generation
        }
        if unknown:
            if len(known) > DEFINITIONS:
                known.clear()
                unknown = set(jobs)
            for job, generation, name, function, kwargs, text, trigger in self._run(
                "definitions", ids=longs(sorted(unknown))
            ):
                rules = rules_of(text)
                known[job] = ClaimedDefinition(
                    generation, name, function, kwargs, rules, trigger, job_problem(rules, trigger)
                )
        return [known[job] for job in jobs]

    def missed(self, application: str, limit: int, functions: tuple[str, ...] | None = None) -> list[MissedJob]:
        return [
            MissedJob(
                JobId(job),
                name,
                generation,
                rules_of(rules),
                tuple(MissedRun(RunId(run), clamped(instant)) for run, instant in zip(ids, scheduled, strict=True)),
                in_time,
            )
            for job, name, generation, rules, ids, scheduled, in_time in self._run(
                "missed",
                application=application,
                limit=limit,
                functions=None if functions is None else texts(functions),
            )
        ]

    def settle(
        self, job: JobId, generation: int, *, make_up: Sequence[RunId], skip: Sequence[RunId], reason: str
    ) -> bool:
        return bool(
            self._one("settle", job=job, generation=generation, make_up=longs(make_up), skip=longs(skip), reason=reason)
        )

    def finish(self, endings: Sequence[Ending]) -> list[Ended]:
        if not endings:
            return []
        first = {ending.id: ending for ending in reversed(endings)}
        if len(first) < len(endings):  # a run can end only once per statement
            ended = iter(self.finish([ending for ending in endings if first[ending.id] is ending]))
            others = iter(self.finish([ending for ending in endings if first[ending.id] is not ending]))
            return [next(ended if first[ending.id] is ending else others) for ending in endings]
        (answer,) = self._run(
            "finish",
            ids=longs([ending.id for ending in endings]),
            tokens=texts([ending.token for ending in endings]),
            states=texts([ending.state for ending in endings]),
            reasons=texts([ending.error for ending in endings]) if any(ending.error for ending in endings) else None,
            again=doubles([ending.again_in for ending in endings]),
            started=doubles([ending.started_at for ending in endings]),
            finished=doubles([ending.finished_at for ending in endings]),
            waits=doubles([ending.wait_up_to for ending in endings])
            if any(ending.wait_up_to is not None for ending in endings)
            else None,
            results=texts([ending.result for ending in endings]) if any(ending.result for ending in endings) else None,
        )
        if answer[0] is None:
            return [Ended(ending.id, True, ending.state) for ending in endings]
        return [
            Ended(ending.id, accepted or False, RunState(state), wakes or False, busy=accepted is None)
            for ending, accepted, state, wakes in zip(endings, *answer, strict=True)
        ]

    def reconcile(self, node: NodeId, application: str, *, stopping: bool = False) -> Reconciled:
        ((now, ids, tokens, asked, must_answer, lost, owed),) = self._run(
            "reconcile", node=node, application=application, stops=stopping
        )
        held = tuple(map(Held, ids or (), tokens or (), asked or (), must_answer or ()))
        return Reconciled(held, self._lost(lost) if lost else (), now, owed)

    def follow_up(
        self, application: str, limit: int, *, beyond: JobId = FIRST, as_of: Instant | None = None
    ) -> FollowedUp:
        values: dict[str, object] = {"application": application, "limit": limit, "beyond": beyond, "as_of": as_of}
        return FollowedUp(*self._run("follow_up", **values)[0])

    def owed(self, application: str, limit: int) -> list[OwedRun]:
        return [
            OwedRun(job, key, clamped(scheduled_for), clamped_or_none(finished_at))
            for job, key, scheduled_for, finished_at in self._run("owed", application=application, limit=limit)
        ]

    def followers(self, application: str, parent: str | None = None) -> list[JobRow]:
        rows = self._run("followers", application=application, parent=parent)
        return [job_row(application, row) for row in rows]

    def _lost(self, ids: Sequence[int]) -> tuple[LostRun, ...]:
        return tuple(
            LostRun(RunId(run), job, key, clamped(scheduled_for), attempt, node, RunState(state), reason, label)
            for run, job, key, scheduled_for, attempt, node, state, reason, label in self._run("lost", ids=longs(ids))
        )

    def note_begun(self, begun: Sequence[tuple[RunId, str, Instant]]) -> None:
        runs, tokens, started = zip(*begun, strict=True)
        self._run("note_begun", ids=longs(runs), tokens=texts(tokens), started=doubles(started))

    def unbegun(self, job: JobId, generation: int) -> list[tuple[str, float]]:
        return [(label, ttl) for label, ttl in self._run("unbegun", job=job, generation=generation)]

    def put_back(self, held: Sequence[tuple[RunId, str]]) -> int:
        if not held:
            return 0
        return int(
            self._one("put_back", ids=longs([run for run, _ in held]), tokens=texts([token for _, token in held]))
        )

    def request_runs(self, requests: Sequence[RunRequest]) -> list[RunRow | None]:
        rows = self._run("request_runs", requests=json.dumps([written_request(one) for one in requests]))
        return [None if row[0] is None else run_row(row) for row in rows]

    def traceparents(self, runs: Collection[RunId]) -> dict[RunId, str]:
        return dict(self._run("traceparents", runs=longs(list(runs))))

    def retry(
        self, runs: Sequence[RunId], by: str, action: Action | None = None, traceparent: str = ""
    ) -> list[RunRow | None]:
        if not runs:
            return []
        noted = None if action is None else json.dumps(written_action(action))
        said = {"by": storable(by), "action": noted, "traceparent": traceparent}
        rows = map(run_row, self._run("retry", runs=longs(runs), **said))
        reopened = {row.id: row for row in rows}
        return [reopened.get(run) for run in runs]

    def cancel_many(
        self, runs: Sequence[RunId], by: str, why: str, action: Action | None = None
    ) -> list[RunRow | None]:
        noted = None if action is None else json.dumps(written_action(action))
        rows = self._run("cancel", runs=longs(runs), said=storable(cancelled_by(by, why)), action=noted)
        found = {row.id: row for row in map(run_row, rows)}
        return [found.get(run) for run in runs]

    def set_pool(self, application: str, name: str, size: int, action: Action | None = None) -> None:
        noted = None if action is None else json.dumps(written_action(action))
        self._run("set_pool", application=application, name=name, size=size, action=noted)

    def pools(self, application: str) -> list[PoolRow]:
        return [PoolRow(*row) for row in self._run("pools", application=application)]

    def runs(self, query: RunQuery) -> list[RunRow]:
        chosen = self._oldest_first if query.oldest_first else self._statements
        states = query.states or tuple(RunState)
        values = {
            "application": query.application,
            "job": query.job,
            "states": texts(states),
            "finals": texts([state for state in states if state.final]),
            "since": query.since,
            "before": query.before,
            "below": query.below or 0,
            "above": ANY_RUN if query.above is None else query.above,
            "limit": query.limit,
        }
        if (one := self._named(query)) is not None:
            return [run for run in one if _answers(run, query)]
        name = "runs_of_application" if query.job is None else "runs_of_job"
        return [run_row(row) for row in self._execute(chosen[name], values)]

    def _named(self, query: RunQuery) -> list[RunRow] | None:
        """The runs with the id, the key or the slot of a query; None if it names none."""
        application = query.application
        if query.slot is not None:
            return [run_row(row) for row in self._run("runs_in_slot", application=application, slot=query.slot)]
        if query.key is not None:
            if query.job is not None:
                found = self._run("run_by_key", application=application, job=query.job, key=query.key)
            else:
                found = self._run("runs_by_key", application=application, key=query.key, limit=query.limit)
            return [run_row(row) for row in found]
        if query.id is not None:
            return [run_row(row) for row in self._run("run", run=query.id, application=application)]
        return None

    def coming(self, application: str, limit: int) -> list[RunRow]:
        return [run_row(row) for row in self._run("coming", application=application, limit=limit)]

    def keep_log(self, lines: Sequence[LogLine], trims: Sequence[LogTrim] = ()) -> None:
        written: dict[str, object] = {
            "runs": longs([line.run for line in lines]),
            "attempts": longs([line.attempt for line in lines]),
            "places": longs([line.place for line in lines]),
            "at": doubles([line.at for line in lines]),
            "lines": texts([line.text for line in lines]),
        }
        if trims:
            self._run(
                "trim_log",
                trimmed=longs([trim.run for trim in trims]),
                of=longs([trim.attempt for trim in trims]),
                first=longs([trim.first for trim in trims]),
                before=longs([trim.before for trim in trims]),
                **written,
            )
        elif lines:
            self._run("keep_log", **written)

    def keep_progress(self, progress: Sequence[Progress]) -> None:
        latest = {one.run: one for one in progress}.values()  # one row cannot be written twice by one statement
        if latest:
            self._run(
                "keep_progress",
                runs=longs([one.run for one in latest]),
                attempts=longs([one.attempt for one in latest]),
                done=doubles([one.done for one in latest]),
                totals=doubles([one.total for one in latest]),
                texts=texts([one.text for one in latest]),
                at=doubles([one.at for one in latest]),
            )

    def attempts(self, run: RunId) -> list[AttemptRow]:
        rows = self._run("attempts", run=run)
        last = next((attempt_row(row) for row in rows if not row[-1]), None)
        return with_last([attempt_row(row) for row in rows if row[-1]], last)

    def log_ends(self, runs: Collection[RunId]) -> dict[RunId, tuple[int, int]]:
        rows = self._run("log_ends", runs=longs(list(runs)))
        return {RunId(run): (attempt, place) for run, attempt, place in rows}

    def keep_results(self, results: Sequence[Result]) -> None:
        if results:
            self._run(
                "keep_results",
                runs=longs([result.run for result in results]),
                attempts=longs([result.attempt for result in results]),
                texts=texts([result.text for result in results]),
            )

    def result(self, run: RunId) -> str | None:
        return next((text for (text,) in self._run("result", run=run)), None)

    def log(self, run: RunId) -> list[LogLine]:
        return [
            LogLine(RunId(of), attempt, place, clamped(at), text)
            for of, attempt, place, at, text in self._run("log", run=run)
        ]

    def progress(self, runs: Collection[RunId]) -> dict[RunId, Progress]:
        return {
            RunId(run): Progress(RunId(run), attempt, done, total, text, clamped(at))
            for run, attempt, done, total, text, at in self._run("progress", runs=longs(sorted(runs)))
        }

    def stats(self, application: str, name: str, last: int = 1000) -> JobStats:
        return stats_of([run_row(row) for row in self._run("began", application=application, name=name, last=last)])

    def figures(self, application: str, last: int) -> dict[str, JobStats]:
        found = {}
        for name, runs, failed, took, late, state, ended_at in self._run("figures", application=application, last=last):
            (took50, took99), (late50, late99) = took or (None, None), late or (None, None)
            found[name] = JobStats(runs, failed, took50, took99, late50, late99, _state(state), ended_at)
        return found

    def outcomes(
        self, application: str, *, since: Instant, name: str | None = None, failing: int | None = None
    ) -> list[JobOutcome]:
        jobs: Longs | None = None
        if failing is not None:
            found = self._run("jobs_with_failures", application=application, limit=failing)
            jobs = longs([job for (job,) in found])
        rows = self._run(
            "outcomes", application=application, since=since, jobs=jobs, name=name, reason=REASON, counted=COUNTED
        )
        outcomes = [
            JobOutcome(
                known, RunId(run), RunState(state), clamped(at), reason, failures, clamped_or_none(since_), recent
            )
            for known, run, state, at, reason, failures, since_, recent in rows
        ]
        return [one for one in outcomes if failing is None or one.failures or one.recent]

    def tally(self, application: str, since: Instant, limit: int) -> list[Tally]:
        rows = self._run("tally", application=application, since=since, limit=limit)
        return [Tally(RunState(state), label, runs) for state, label, runs in rows]

    def open_runs(self, application: str, limit: int) -> list[OpenRuns]:
        rows = self._run("open_runs", application=application, limit=limit)
        return [OpenRuns(RunState(state), queue, runs) for state, queue, runs in rows]

    def last_ends(self, application: str, jobs: Sequence[JobId], *, failing: int = 10_000) -> list[JobEnds]:
        rows = self._run("last_ends", application=application, jobs=longs(jobs), failing=failing, within=SUCCESS_WITHIN)
        return [JobEnds(*row) for row in rows]

    def durations(self, jobs: Sequence[JobId], last: int) -> dict[JobId, tuple[int, float | None]]:
        return {job: (runs, p99) for job, runs, p99 in self._run("durations", jobs=longs(jobs), last=last)}

    def past(self, jobs: Sequence[JobId], since: Instant, before: Instant) -> dict[JobId, Past]:
        rows = self._run("past", jobs=longs(jobs), since=since, before=before, below=0, above=ANY_RUN)
        ids = [run for *_, others in rows for run in others or ()]
        others: dict[JobId, list[RunRow]] = {}
        for row in self._run("runs_by_id", ids=longs(ids)) if ids else ():
            run = run_row(row)
            others.setdefault(run.job, []).append(run)
        return {
            job: Past(
                {state: _instants(text) for state, text in zip(PLAIN, texts_, strict=True) if text},
                tuple(others.get(job, ())),
            )
            for job, *texts_, _ in rows
        }

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
        ((removed, up_to, more),) = self._run(
            "prune",
            application=application,
            before=before,
            keep=keep,
            limit=limit,
            beyond=beyond,
            jobs=jobs,
            keys_before=keys_before,
        )
        return Pruned(removed, up_to, more)

    def count_hours(self, application: str, *, since: Instant | None, beyond: JobId, jobs: int) -> CountedHours:
        ((start, up_to, runs, changed),) = self._run(
            "count_figures", application=application, since=since, beyond=beyond, jobs=jobs
        )
        return CountedHours(start, up_to, int(runs), changed)

    def note_counted(self, application: str, up_to: Instant) -> None:
        self._run("note_counted", application=application, up_to=up_to)

    def close_days(self, application: str, *, before: Instant, oldest: Instant, limit: int) -> int:
        return int(self._one("close_days", application=application, before=before, oldest=oldest, limit=limit))

    def hours(self, application: str, name: str, since: Instant, before: Instant) -> list[FiguresRow]:
        period = {"since": since, "before": before}
        return list(map(figures_row, self._run("figures_by_hour", application=application, name=name, **period)))

    def days(self, application: str, name: str, since: Instant, before: Instant) -> list[FiguresRow]:
        first, last = whole_days(since, before)
        over = self._run("figures_by_day", application=application, name=name, since=since, before=before)
        return by_day([*map(figures_row, over), *self.hours(application, name, first, last)])

    def totals(self, application: str, since: Instant, names: Collection[str] | None = None) -> dict[str, Figures]:
        if names is None:
            rows = self._run("figures_of_jobs", application=application, since=since)
        else:
            rows = self._run("figures_of_named", application=application, since=since, names=texts(sorted(names)))
        return {name: figures_of(*columns) for name, *columns in rows}

    def counts_by_queue(self, application: str, since: Instant) -> dict[str, Figures]:
        rows = self._run("counts_by_queue", application=application, since=since)
        return {queue: counts_of(*columns) for queue, *columns in rows}

    def forget(self, application: str, *, before: Instant, defined: Collection[str], limit: int) -> Forgotten:
        bounds = {"before": before, "limit": limit}
        ((jobs, more),) = self._run("forget", application=application, defined=texts(sorted(defined)), **bounds)
        return Forgotten(jobs, more)

    def actions(self, query: ActionQuery) -> list[ActionRecord]:
        return [
            ActionRecord(number, clamped(at), *rest)
            for number, at, *rest in self._run(
                "actions" if query.target is None else "actions_on",
                application=query.application,
                target=query.target,
                by=query.by,
                since=query.since,
                before=query.before,
                what=query.what,
                below=query.below,
                limit=query.limit,
            )
        ]

    def forget_actions(self, application: str, *, before: Instant, keep: int, limit: int) -> int:
        return len(self._run("forget_actions", application=application, before=before, keep=keep, limit=limit))

    def guard(self, name: str, key: str, within: float | None, by: str) -> bool:
        return bool(self._run("guard", name=name, key=key, within=within, by=by))

    def unguard(self, name: str, key: str, by: str) -> None:
        self._run("unguard", name=name, key=key, by=by)

    def _one(self, name: str, /, **values: object) -> Any:
        return self._run(name, **values)[0][0]

    def _run(self, name: str, /, **values: object) -> list[tuple[Any, ...]]:
        return self._execute(self._statements[name], values)


def _instants(text: str) -> list[int]:
    return list(map(int, text.split(",")))


def _state(text: str | None) -> RunState | None:
    return None if text is None else RunState(text)


_KINDS = {str(kind): kind for kind in RunKind}


def _answers(run: RunRow, query: RunQuery) -> bool:
    last = run.scheduled_for if run.until is None else run.until
    return (
        query.job in {None, run.name}
        and (not query.states or run.state in query.states)
        and (query.since is None or last >= query.since)
        and (query.since is None or query.above is None or (run.scheduled_for, run.id) > (query.since, query.above))
        and (query.before is None or (run.scheduled_for, run.id) < (query.before, query.below or 0))
    )
