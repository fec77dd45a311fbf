"""What nodes do with runs on SQLite: claim, end, lose and give back (G3). Functions over a connection with the write
lock.

The write lock is the lock of every row, so the facts that `tenure.core.run_rules` decides by stay true until the
decision is written. `claimable` and `nothing_claimed` only read, and need no lock. The statements are in
`sql/runs.sql`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from heapq import merge
from itertools import islice
from typing import NamedTuple

from tenure.core import run_rules
from tenure.core.cluster import NodeId
from tenure.core.job_options import rules_of
from tenure.core.messages import Claimed, ClaimedRun, ClaimRequest, Ended, Ending, Held, LostRun, Reconciled
from tenure.core.records import Instant, JobId, JobState, PoolRow, RunId, RunKind, RunState
from tenure.core.run_rules import Admission, After, AttemptState, RunCandidate
from tenure.stores.row_checks import Complaints, is_count, job_problem, storable
from tenure.stores.sqlite import attempts as sqlite_attempts
from tenure.stores.sqlite import followers
from tenure.stores.sqlite.rows import (
    Micros,
    count_of,
    execute,
    execute_many,
    instant,
    instant_or_none,
    is_micros,
    kind_of,
    micros,
    micros_or_none,
)

_JOB_STATES = {str(state): state for state in JobState}
_KINDS = {str(kind): kind for kind in RunKind}


class _Due(NamedTuple):
    """A row of `candidates`."""

    id: RunId
    job: JobId
    key: str
    kind: str
    scheduled_for: Micros
    due_at: Micros
    attempt: int
    reopened: int
    failures: int
    kwargs: str | None
    generation: int
    name: str
    function: str
    job_kwargs: str
    rules: str
    trigger: str | None
    max_running: int | None
    owes: int
    began: int

    def problem(self) -> str:
        """Why it cannot begin; '' if it can."""
        if self.kind not in _KINDS:
            return f"the kind of run {self.id} is {self.kind!r:.60}"
        if not (is_micros(self.scheduled_for) and is_micros(self.due_at)):
            return f"the due time of run {self.id} is {self.scheduled_for!r:.60}, ready at {self.due_at!r:.60}"
        if not (is_count(self.attempt) and is_count(self.reopened) and is_count(self.failures)):
            return f"run {self.id} counts {self.attempt!r:.60} attempts and {self.failures!r:.60} failures"
        if not isinstance(self.job_kwargs if self.kwargs is None else self.kwargs, str):
            return f"the arguments of run {self.id} are not text"
        return job_problem(rules_of(self.rules), self.trigger)

    def candidate(self) -> RunCandidate:
        scheduled_for, due_at = instant(self.scheduled_for), instant(self.due_at)
        return RunCandidate(self.id, _KINDS[self.kind], scheduled_for, due_at, self.attempt - self.reopened)

    def claimed(self) -> ClaimedRun:
        return ClaimedRun(
            id=self.id,
            job=self.job,
            name=self.name,
            function=self.function,
            kwargs=self.job_kwargs if self.kwargs is None else self.kwargs,
            key=self.key,
            kind=_KINDS[self.kind],
            scheduled_for=instant(self.scheduled_for),
            due_at=instant(self.due_at),
            attempt=self.attempt + 1,
            failures=self.failures,
            generation=self.generation,
            rules=rules_of(self.rules),
            trigger=self.trigger,
            owes=bool(self.owes),
        )


def claimable(connection: sqlite3.Connection, request: ClaimRequest, now: Micros) -> bool:
    """True if a claim would change anything."""
    if request.limit < 1 or execute(connection, "alive", node=request.node).fetchone() is None:
        return False
    if execute(connection, "due_lanes", now=_when(request, now), **_served(request)).fetchone():
        return True
    return execute(connection, "released", **_served(request)).fetchone() is not None


def nothing_claimed(connection: sqlite3.Connection, request: ClaimRequest, now: Micros) -> Claimed:
    """The answer to a claim that changes nothing."""
    if execute(connection, "alive", node=request.node).fetchone() is None:
        return Claimed((), instant(now), None, more=False, missed=False, alive=False)
    return _answer(connection, request, now, (), more=False)


def claim(
    connection: sqlite3.Connection, request: ClaimRequest, now: Micros, complaints: Complaints
) -> tuple[Claimed, bool]:
    """Take due runs, as `Ledger.claim` specifies. Also returns whether running ones were requested to end."""
    me = execute(connection, "alive", node=request.node).fetchone()
    if me is None:
        return nothing_claimed(connection, request, now), False
    _promote(connection, request)
    oldest = _oldest(connection, request, _when(request, now))
    found = [_Due._make(row) for row in execute(connection, "candidates", ids=oldest)]
    ready = _readable(connection, found, now, complaints)
    jobs: dict[JobId, list[_Due]] = {}
    for due in ready:
        jobs.setdefault(due.job, []).append(due)
    held_back: set[RunId] = set()
    asks: list[JobId] = []
    for job, candidates in jobs.items():
        if not _room(candidates):
            decided = _decide(connection, request.application, candidates)
            _hold_back(connection, decided, now)
            held_back.update(decided.waiting, (one for one, _ in decided.skipped))
            asks += [job] if decided.asks_to_end else []
    for job in asks:  # runs that were running before, not those that begin now
        execute(connection, "ask_to_end", job=job, why=run_rules.REPLACED)
    taken = [due for due in ready if due.id not in held_back]
    pooled = {due.id: name for due in taken if (name := rules_of(due.rules).pool)}
    if pooled:
        without = _without_place(connection, request.application, taken, pooled)
        execute_many(connection, "wait_for_pool", ((pooled[one], one) for one in without))
        taken = [due for due in taken if due.id not in without]
    ids = json.dumps([due.id for due in taken])
    if any(due.attempt for due in taken):
        sqlite_attempts.keep(connection, [due.id for due in taken])
    execute(connection, "begin", ids=ids, token=request.token, node=request.node, label=me[0], now=now)
    execute_many(connection, "enter_pool", ((pooled[due.id], due.id) for due in taken if due.id in pooled))
    claimed = followers.with_parents(connection, request.application, [due.claimed() for due in taken])
    return _answer(connection, request, now, claimed, more=len(found) == request.limit), bool(asks)


def _without_place(
    connection: sqlite3.Connection, application: str, taken: list[_Due], pooled: dict[RunId, str]
) -> set[RunId]:
    """Of the runs that have their jobs' places, those for which their pools have none."""
    without: set[RunId] = set()
    for name in sorted(set(pooled.values())):
        candidates = [due.candidate() for due in taken if pooled.get(due.id) == name]
        size, running = execute(connection, "pool_running", application=application, pool=name).fetchone()
        entered = run_rules.enter(PoolRow(name, size, running), candidates)
        without.update(run.id for run in candidates if run.id not in entered)
    return without


def _oldest(connection: sqlite3.Connection, request: ClaimRequest, when: Micros) -> str:
    """The due runs, oldest first across the lanes, as a JSON array. Reads no more of each lane than is needed.

    A claim uses as few statements as possible: after each one it waits for the computing bodies of its process.
    """
    lanes = execute(connection, "due_lanes", now=when, **_served(request)).fetchall()
    if len(lanes) == 1:
        ((found,),) = execute(connection, "due_in_one_lane", lane=lanes[0][0], now=when, limit=request.limit)
        return str(found)
    with ExitStack() as stack:
        ordered = [
            stack.enter_context(closing(execute(connection, "due_in_lane", lane=lane, now=when, limit=request.limit)))
            for (lane,) in lanes
        ]
        return json.dumps([run for _, run in islice(merge(*ordered), request.limit)])


def _readable(connection: sqlite3.Connection, found: list[_Due], now: Micros, complaints: Complaints) -> list[_Due]:
    """End the runs that cannot begin, and return the others."""
    ready: list[_Due] = []
    for due in found:
        if problem := due.problem():
            complaints.tell(due.job, due.generation, due.name, problem)
            sqlite_attempts.keep(connection, [due.id])
            execute(connection, "fail", id=due.id, reason=f"cannot be read: {problem}", now=now)
        else:
            ready.append(due)
    return ready


def _when(request: ClaimRequest, now: Micros) -> Micros:
    """The instant that decides what is due."""
    return now if request.as_of is None else micros(request.as_of)


def _served(request: ClaimRequest) -> dict[str, object]:
    """The queues and functions that this node can run."""
    return {
        "application": request.application,
        "functions": _listed(request.functions),
        "queues": _listed(request.queues),
    }


def _listed(names: tuple[str, ...] | None) -> str | None:
    return None if names is None else json.dumps(names)


def _answer(
    connection: sqlite3.Connection, request: ClaimRequest, now: Micros, runs: tuple[ClaimedRun, ...], *, more: bool
) -> Claimed:
    when, functions = _when(request, now), _listed(request.functions)
    (next_at,) = execute(connection, "next_at", now=when, **_served(request)).fetchone()
    (missed,) = execute(
        connection, "expired", application=request.application, functions=functions, now=when
    ).fetchone()
    return Claimed(runs, instant(now), instant_or_none(next_at), more=more, missed=bool(missed))


def _promote(connection: sqlite3.Connection, request: ClaimRequest) -> None:
    for job, rules, began in execute(connection, "released", **_served(request)).fetchall():
        if job is None:  # a pool, and its free places
            found = execute(connection, "waiting_for_pool", pool=rules, limit=began, **_served(request)).fetchall()
            execute_many(connection, "promote", found)
            continue
        free = run_rules.places(rules_of(rules), began)
        waiting = _waiting(connection, request.application, job, free)
        execute_many(connection, "promote", ((one,) for one in run_rules.promoted(rules_of(rules), began, waiting)))


def _waiting(
    connection: sqlite3.Connection, application: str, job: JobId, limit: int | None = None, *, pooled: bool = False
) -> list[RunCandidate]:
    wanted = {"application": application, "job": job, "pooled": pooled}
    rows = execute(connection, "waiting", limit=-1 if limit is None else limit, **wanted)
    return [
        RunCandidate(RunId(one), kind_of(kind), instant(scheduled_for), instant(due_at), count_of(attempt), bool(pool))
        for one, kind, scheduled_for, due_at, attempt, pool in rows
    ]


def _room(candidates: list[_Due]) -> bool:
    """True if there is a place for all of them, so that nothing has to be decided."""
    first = candidates[0]
    new = sum(due.attempt <= due.reopened for due in candidates)
    return new == 0 or first.max_running is None or first.began + new <= first.max_running


def _decide(connection: sqlite3.Connection, application: str, candidates: list[_Due]) -> Admission:
    first = candidates[0]
    rules = rules_of(first.rules)
    keeps_newest = rules.overlap in {"wait", "replace"}
    waiting = _waiting(connection, application, first.job, pooled=True) if keeps_newest else []
    return run_rules.admit(rules, first.began, [due.candidate() for due in candidates], waiting)


def _hold_back(connection: sqlite3.Connection, decided: Admission, now: Micros) -> None:
    execute_many(connection, "hold_back", ((one,) for one in decided.waiting))
    execute_many(connection, "skip", ((reason, now, one) for one, reason in decided.skipped))


class _Attempt(NamedTuple):
    """A row of `attempts`."""

    id: RunId
    job: JobId
    application: str
    state: str
    token: str | None
    attempt: int
    failures: int
    losses: int
    due_at: Micros
    expires_at: Micros | None
    asked_to_end: str
    started_at: Micros | None
    rules: str
    state_of_job: str
    kind: str
    name: str
    key: str
    scheduled_for: Micros
    node: NodeId | None
    interruptions: int
    stopping: int
    looks: int
    looking_since: Micros | None
    last_look: int
    label: str
    pool: str | None

    def behind(self) -> AttemptState:
        due_at, expires_at = instant(self.due_at), instant_or_none(self.expires_at)
        attempt, failures, losses = count_of(self.attempt), count_of(self.failures), count_of(self.losses)
        kind, interruptions = kind_of(self.kind), count_of(self.interruptions)
        return AttemptState(
            attempt,
            failures,
            losses,
            due_at,
            expires_at,
            self.asked_to_end,
            kind,
            interruptions,
            bool(self.stopping),
            count_of(self.looks),
            instant_or_none(self.looking_since),
            count_of(self.last_look),
        )

    def job_state(self) -> JobState:
        return _JOB_STATES[self.state_of_job]


def finish(connection: sqlite3.Connection, endings: Sequence[Ending], now: Micros) -> tuple[list[Ended], set[str]]:
    """End attempts, as `Ledger.finish` specifies. Also returns the applications in which something can begin now."""
    rows = _attempts(connection, (ending.id for ending in endings))
    over: dict[RunId, RunState] = {}
    accepted: list[bool] = []
    succeeded: list[tuple[object, ...]] = []
    written: list[tuple[object, ...]] = []
    for ending in endings:
        row = rows.get(ending.id)
        accepted.append(row is not None and row.token == ending.token and row.id not in over)
        if row is None or not accepted[-1]:
            continue
        started_at = micros_or_none(ending.started_at)
        finished_at = now if ending.finished_at is None else micros(ending.finished_at)
        if ending.state is RunState.SUCCEEDED:  # the common case: nothing depends on the run's past
            over[row.id] = ending.state
            result = None if ending.result is None else storable(ending.result)
            succeeded.append((storable(ending.error), result, started_at, finished_at, row.id))
            continue
        after = run_rules.after_ending(row.behind(), ending, rules_of(row.rules), job=row.job_state(), now=instant(now))
        over[row.id] = after.state
        written.append(_after(row.id, after, started_at, finished_at))
    execute_many(connection, "succeed", succeeded)
    execute_many(connection, "end", written)
    waking = _waking(connection, [rows[one] for one in over])
    waking |= _pools_waking(connection, [rows[one] for one, state in over.items() if state.final])
    answers = [
        _ended(ending.id, rows.get(ending.id), over.get(ending.id), accepted=taken, waking=waking)
        for ending, taken in zip(endings, accepted, strict=True)
    ]
    return answers, _to_wake(rows, over, waking)


def _ended(one: RunId, row: _Attempt | None, state: RunState | None, *, accepted: bool, waking: set[JobId]) -> Ended:
    if row is None:
        return Ended(one, accepted=False, state=RunState.LOST)
    return Ended(one, accepted, state or RunState(row.state), wakes=accepted and row.job in waking)


def put_back(connection: sqlite3.Connection, held: Sequence[tuple[RunId, str]], now: Micros) -> tuple[int, set[str]]:
    """Put back runs that the node does not have. Returns how many, and the applications where something can begin."""
    rows = _attempts(connection, (one for one, _ in held))
    over = {
        row.id: run_rules.after_return(row.behind(), rules_of(row.rules), job=row.job_state(), now=instant(now))
        for one, token in held
        if (row := rows.get(one)) is not None and row.token == token
    }
    _write_over(connection, rows, over, now)
    states = {one: after.state for one, after in over.items()}
    return len(over), _to_wake(rows, states, _waking(connection, [rows[one] for one in over]))


def orphans(connection: sqlite3.Connection, application: str) -> list[RunId]:
    """RUNNING runs of nodes that are not alive."""
    return [RunId(one) for (one,) in execute(connection, "orphans", application=application)]


def take_back(connection: sqlite3.Connection, application: str, now: Micros) -> tuple[LostRun, ...]:
    """Take RUNNING runs from dead nodes."""
    rows = _attempts(connection, orphans(connection, application))
    over = {
        row.id: run_rules.after_loss(row.behind(), rules_of(row.rules), removed=row.job_state() is JobState.REMOVED)
        for row in rows.values()
    }
    _write_over(connection, rows, over, now)
    return tuple(
        LostRun(
            id=row.id,
            job=row.name,
            key=row.key,
            scheduled_for=instant(row.scheduled_for),
            attempt=count_of(row.attempt),
            node=row.node or "",
            state=over[row.id].state,
            reason=over[row.id].reason,
            label=row.label,
        )
        for row in rows.values()
    )


def reconcile(
    connection: sqlite3.Connection, node: NodeId, application: str, lost: tuple[LostRun, ...], now: Micros
) -> Reconciled:
    """What this node has."""
    held = execute(connection, "held", application=application, node=node)
    (owed,) = execute(connection, "is_owed", application=application).fetchone()
    return Reconciled(
        tuple(Held(RunId(one), token, asked, bool(must)) for one, token, asked, must in held),
        lost,
        instant(now),
        owed=bool(owed),
    )


def unmarked(connection: sqlite3.Connection, node: NodeId, application: str) -> bool:
    """True if this node has runs that `mark_stopping` has not marked."""
    return execute(connection, "unmarked", node=node, application=application).fetchone() is not None


def mark_stopping(connection: sqlite3.Connection, node: NodeId, application: str) -> None:
    """Mark the runs of this node: it was requested to stop."""
    execute(connection, "mark_stopping", node=node, application=application)


def note_begun(connection: sqlite3.Connection, begun: Sequence[tuple[RunId, str, Instant]]) -> None:
    """Record that the bodies of these runs were called."""
    execute_many(connection, "note_begun", ((micros(at), one, token) for one, token, at in begun))


def unbegun(connection: sqlite3.Connection, job: JobId, generation: int) -> list[tuple[str, float]]:
    """The live nodes that may still begin earlier runs, as `Ledger.unbegun` specifies."""
    return execute(connection, "unbegun", job=job, generation=generation).fetchall()


def settle(
    connection: sqlite3.Connection,
    job: JobId,
    generation: int,
    now: Micros,
    *,
    make_up: Sequence[RunId],
    skip: Sequence[RunId],
    reason: str,
) -> bool:
    """Decide missed runs, as `Ledger.settle` specifies."""
    wanted = {*make_up, *skip}
    there = execute(
        connection, "still_missed", job=job, generation=generation, ids=json.dumps(list(wanted)), now=now
    ).fetchone()
    if there != (len(wanted),):
        return False
    execute_many(connection, "make_up", ((now, one) for one in make_up))
    execute_many(connection, "skip", ((reason, now, one) for one in skip))
    return True


def _attempts(connection: sqlite3.Connection, ids: Iterable[RunId]) -> dict[RunId, _Attempt]:
    found = execute(connection, "attempts", ids=json.dumps(list(ids)))
    return {row.id: row for row in map(_Attempt._make, found)}


def _write_over(
    connection: sqlite3.Connection, rows: dict[RunId, _Attempt], over: dict[RunId, After], now: Micros
) -> None:
    execute_many(connection, "end", (_after(one, after, rows[one].started_at, now) for one, after in over.items()))


def _after(one: RunId, after: After, started_at: Micros | None, finished_at: Micros) -> tuple[object, ...]:
    spent = after.state.final or after.outcome is not None
    return (
        after.state.value,
        after.attempt,
        after.failures,
        after.losses,
        micros(after.due_at),
        micros_or_none(after.expires_at),
        storable(after.reason),
        started_at,
        finished_at if spent else None,
        one,
        after.interruptions,
        after.looks,
        micros_or_none(after.looking_since),
        after.last_look,
        after.outcome,
    )


def _waking(connection: sqlite3.Connection, rows: Iterable[_Attempt]) -> set[JobId]:
    """Jobs that have a WAITING run which may begin now."""
    jobs = json.dumps(list({row.job for row in rows}))
    return {JobId(job) for (job,) in execute(connection, "wakes", jobs=jobs)}


def _pools_waking(connection: sqlite3.Connection, rows: list[_Attempt]) -> set[JobId]:
    """Jobs whose runs have left places in pools for which other runs wait."""
    left = [row for row in rows if row.pool is not None]
    if not left:
        return set()
    wanted: dict[str, object] = {"application": left[0].application}
    pools = json.dumps(sorted({row.pool for row in left if row.pool is not None}))
    found = {name for (name,) in execute(connection, "pool_wakes", pools=pools, **wanted)}
    return {row.job for row in left if row.pool in found}


def _to_wake(rows: dict[RunId, _Attempt], over: dict[RunId, RunState], waking: set[JobId]) -> set[str]:
    return {
        rows[one].application for one, state in over.items() if state is RunState.PENDING or rows[one].job in waking
    }
