"""Every statement that production sends, as the server does it: which locks, in which order, and what in which instant.

Mutants replace single functions of this module, so each rule of the protocol stands in one place.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sim.database.server import Key, Statement, Work
from tenure.core import run_rules
from tenure.core.backfills import NewBackfill, takes
from tenure.core.cluster import Acquire, Acquired, AcquireOutcome, Advert, Beat, NodeId, Pulse, Vacancy
from tenure.core.keys import due_key
from tenure.core.messages import (
    Action,
    Claimed,
    ClaimRequest,
    Ended,
    Ending,
    Held,
    JobChange,
    Planned,
    Progress,
    Reconciled,
    RunRequest,
    Synced,
)
from tenure.core.records import Change, JobId, JobState, RunId, RunKind, RunState
from tenure.stores.base import Checked
from tenure.stores.notices import JobsChanged


def plain(st: Statement, op: str, args: tuple[Any, ...], keywords: dict[str, Any]) -> Work:
    """A statement of the ledger that is not among those below: most neither wait nor are waited for."""
    if op in LOCKING:
        return (yield from LOCKING[op](st, *args, **keywords))
    yield st.gap()
    return getattr(st.server.rows.ledger, op)(*args, **keywords)


# Nodes and elections


def join(st: Statement, card: Any) -> Work:
    yield st.gap()
    st.server.rows.join(card)


def beat(st: Statement, beat: Beat) -> Work:
    rows = st.server.rows
    snapshot = rows.shown(beat)
    yield st.gap()
    if rows.alive(beat.node) and rows.nodes[beat.node].seq < beat.number:
        yield ("node", beat.node), "U"
    return rows.beat(beat, snapshot)


def leave(st: Statement, node: NodeId) -> Work:
    rows = st.server.rows
    if rows.alive(node):
        yield ("node", node), "U"
    for name in sorted(name for name, e in rows.elections.items() if e.held and e.holder == node):
        yield ("election", name), "U"
    rows.leave(node)
    st.server.checker.left(node)


def declare(st: Statement, dead: NodeId, pulse: Pulse | None) -> Work:
    server = st.server
    if not server.rows.declarable(dead, pulse[1] if pulse else None, server.timeline) or not st.skip(
        ("node", dead), "X"
    ):
        return False
    yield st.gap()
    server.checker.declared(dead)
    server.rows.declare(dead)
    return True


def cards(st: Statement, ids: Sequence[NodeId]) -> Work:
    yield st.gap()
    rows = st.server.rows
    return [rows.nodes[node].card for node in ids if rows.alive(node)]


def acquire(st: Statement, request: Acquire) -> Work:
    server = st.server
    if server.rows.alive(request.node):
        yield ("node", request.node), "S"
    if not server.rows.alive(request.node):
        return Acquired(AcquireOutcome.GONE)
    if not server.rows.settled(server.timeline):
        return Acquired(AcquireOutcome.MOVED)
    if request.name not in server.rows.elections:  # whoever else creates it waits at the unique key
        yield ("election's name", request.name), "X"
    why = server.rows.vacancy(request, lambda holder, advert: _is_free(st, holder, advert))
    e = server.rows.elections[request.name]
    if why is None:
        return Acquired(AcquireOutcome.HELD, holder=e.holder)
    seen = (e.term, e.holder, e.held)
    yield st.gap()
    if (e.term, e.holder, e.held) != seen or not st.skip(("election", request.name), "X"):
        return Acquired(AcquireOutcome.BUSY, holder=e.holder)
    yield st.gap()
    answer = server.rows.grant(request)
    server.checker.granted(request.name, answer.term, request.node, fenced=request.fenced)
    return answer


def _is_free(st: Statement, holder: NodeId, advert: Advert) -> bool:
    """Whether a shared advisory lock is to be had: a session's own locks do not keep it out."""
    return not any(
        (holder, advert.nonce) in session.advisory for session in st.server.sessions if session is not st.session
    )


def succeed(st: Statement, dead: NodeId, request: Acquire) -> Work:
    declared = yield from declare(st, dead, None)
    answer = yield from acquire(st, request)
    return declared, answer


def release(st: Statement, node: NodeId, name: str, term: int) -> Work:
    yield st.gap()
    if st.server.rows.fenced_by(name, term, node):
        yield ("election", name), "U"
    return st.server.rows.release(node, name, term)


def resign(st: Statement, name: str) -> Work:
    """Somebody asks the holder to resign."""
    yield st.gap()
    e = st.server.rows.elections.get(name)
    if e is None or not e.held:
        return None
    yield ("election", name), "U"
    st.server.rows.ask(name)
    return e.term if st.server.rows.elections[name].held else None


def epoch(st: Statement) -> Work:
    yield st.gap()
    return st.server.rows.epoch_row(st.server.timeline)


def unsettle(st: Statement, noticed: Any) -> Work:
    yield st.gap()
    if st.server.rows.epoch == noticed.number:
        yield ("epoch", None), "U"
    st.server.rows.unsettle(noticed)


def raise_epoch(st: Statement, noticed: Any) -> Work:
    yield st.gap()
    if st.server.rows.epoch_row(st.server.timeline) == noticed:
        yield ("epoch", None), "U"
    return st.server.rows.raise_epoch(noticed, st.server.timeline)


def hold_lock(st: Statement, node: NodeId, nonce: int) -> Work:
    yield st.gap()
    if st.session.alive:
        st.session.advisory.add((node, nonce))


def check_lock(st: Statement, node: NodeId, nonce: int, names: tuple[str, ...]) -> Work:
    yield st.gap()
    rows = st.server.rows
    free = {}
    for name in names:
        e = rows.elections.get(name)
        if e is None or not e.held or e.holder is None or e.holder == node or not rows.alive(e.holder):
            continue
        holder = rows.nodes[e.holder]
        if holder.advert is not None and st.server.lock_free(e.holder, holder.advert):
            free[name] = Vacancy(e.term, e.holder, holder.seq, holder.advert)
    return Checked(held=(node, nonce) in st.session.advisory, free=free)


# Transactions of the application


def fence(st: Statement, name: str, term: int, node: NodeId) -> Work:
    """The last statement of the caller's transaction: it stays open until the commit."""
    if st.server.rows.fenced_by(name, term, node):
        yield ("election", name), "S"
    if not st.server.rows.fenced_by(name, term, node):
        return False
    st.keep = True
    return True


def complete(st: Statement, run: RunId, token: str) -> Work:
    if holds(st.server.rows, run, token):
        yield ("run", run), "U"
    if not holds(st.server.rows, run, token):
        return False
    st.keep = True
    return True


def holds(rows: Any, run: RunId, token: str) -> bool:
    found = rows.tables.runs.get(run)
    return found is not None and found.state is RunState.RUNNING and found.token == token


# The ledger


HELD = "a pool that nobody enters"


def claim(st: Statement, request: ClaimRequest) -> Work:
    rows = st.server.rows
    if rows.alive(request.node) and finds(rows, request):
        yield ("node", request.node), "S"
    if not rows.alive(request.node):
        return Claimed((), rows.now(), None, more=False, missed=False, alive=False)
    mine, others = _passed_by(st, request)
    yield st.gap()
    running = {
        run.id: run.asked_to_end
        for of in rows.tables.open.values()
        for run in of.values()
        if run.state is RunState.RUNNING
    }
    hidden = [run for run in others if not run.began and rows.tables.open[run.job].pop(run.id, None) is not None]
    placed = [(run, run.due_at, run.pool) for run in others if run.began]  # they count, whoever has them
    for run, *_ in placed:
        run.due_at, run.pool = math.inf, run.pool and HELD
    rows.tables.pools[request.application, HELD] = 0
    answer = claim_now(st, replace(request, functions=mine))
    for run, due_at, pool in placed:
        run.due_at, run.pool = due_at, pool
    del rows.tables.pools[request.application, HELD]
    for run in hidden:
        rows.tables.open[run.job][run.id] = run
    # What comes next, and what is missed, is looked for without a lock.
    when = answer.now if request.as_of is None else request.as_of
    pending = _pending(rows, request)
    answer = replace(
        answer,
        next_at=min((run.due_at for run in pending if run.due_at > when), default=None),
        more=answer.more or any(run.ready(when) for run in pending),
    )
    if request.as_of is None:
        answer = replace(answer, missed=bool(rows.ledger.missed(request.application, 1, request.functions)))
    for run, asked in running.items():  # who is asked to end is skipped where its own body has it
        if rows.tables.runs[run].asked_to_end != asked and not st.skip(("run", run), "U"):
            rows.tables.runs[run].asked_to_end = asked
    return answer


def _turns(rows: Any, request: ClaimRequest) -> list[Any]:
    """The runs of this node that wait for pools with free places: the oldest."""
    waiting: dict[str, list[Any]] = {}
    for row in may_run(rows, request):
        for run in rows.tables.opened(row.id, RunState.WAITING):
            if run.pool:
                waiting.setdefault(run.pool, []).append(run)
    return [
        rows.tables.runs[one]
        for name, runs in waiting.items()
        for one in run_rules.enter(rows.tables.pool(request.application, name), [run.candidate() for run in runs])
    ]


def may_run(rows: Any, request: ClaimRequest) -> list[Any]:
    """The jobs that this node may run. Each has a function of its own here."""
    return [
        row
        for row in rows.ledger.jobs(request.application)
        if row.state is JobState.ACTIVE
        and (request.queues is None or row.spec.rules.queue in request.queues)
        and (request.functions is None or row.spec.function in request.functions)
    ]


def finds(rows: Any, request: ClaimRequest) -> bool:
    """A look that locks nothing: whether anything is due, even if it has expired, or waits and has a place."""
    when = rows.now() if request.as_of is None else request.as_of
    for row in may_run(rows, request):
        free = run_rules.places(row.spec.rules, rows.tables.began(row.id))
        for run in rows.tables.open[row.id].values():
            due = run.state is RunState.PENDING and run.due_at <= when
            if due or (run.state is RunState.WAITING and not run.pool and free != 0):
                return True
    return bool(_turns(rows, request))


def _pending(rows: Any, request: ClaimRequest) -> list[Any]:
    """The runs that this node may begin, now or later."""
    return [run for row in may_run(rows, request) for run in rows.tables.opened(row.id, RunState.PENDING)]


def _passed_by(st: Statement, request: ClaimRequest) -> tuple[tuple[str, ...], list[Any]]:
    """The functions of jobs that are ours to claim from (something is due, and nobody has them: SKIP LOCKED), and the runs that others have."""
    rows, when = st.server.rows, request.as_of or st.server.rows.now()
    ours: list[str] = []
    others: list[Any] = []
    turns = [
        run
        for run in _turns(rows, request)
        if st.skip(("job", run.job), "U") and st.skip(("pool", run.pool), "U")  # of one job and one pool they are alike
    ]
    for row in may_run(rows, request):
        if not any(run.state is RunState.WAITING or run.ready(when) for run in rows.tables.open[row.id].values()):
            continue
        waiting = [run for run in rows.tables.opened(row.id, RunState.WAITING) if not run.pool]
        mine_to_promote = [run for run in turns if run.job == row.id]
        others += [
            run
            for run in rows.tables.opened(row.id, RunState.WAITING)
            if run.pool and all(run is not one for one in turns)
        ]
        free = run_rules.places(row.spec.rules, rows.tables.began(row.id))
        promotes = bool(waiting) and free != 0 and st.skip(("job", row.id), "U")
        if not promotes:
            others += waiting if free != 0 else ()
        ready = [run for run in rows.tables.open[row.id].values() if run.ready(when)]
        mine = [run for run in ready if st.skip(("run", run.id), "U")]
        others += [run for run in ready if all(run is not one for one in mine)]
        mode = "U" if row.spec.rules.max_running is not None else "S"
        if (mine or promotes or mine_to_promote) and st.skip(("job", row.id), mode):
            ours.append(row.spec.function)
            pool = row.spec.rules.pool
            if pool and (mine or mine_to_promote or promotes) and not st.skip(("pool", pool), "U"):
                others += mine
    return tuple(ours), others


def claim_now(st: Statement, request: ClaimRequest) -> Claimed:
    """Count and claim, in the instant of the commit."""
    answer: Claimed = st.server.rows.ledger.claim(request)
    st.server.checker.claimed(answer.runs, request.token, request.node, doubted=request.as_of is not None)
    return answer


def lock_parents(st: Statement, changes: Sequence[JobChange]) -> Work:
    """The jobs that one of these changes begins to follow, together with those that are changed, by id. Nothing if no
    job gets its first follower."""
    tables = st.server.rows.tables
    named = {(change.application, change.spec.rules.after) for change in changes if change.spec is not None}
    parents = [row for of in named if of[1] is not None and (row := tables.job(*of)) and row.id not in tables.followed]
    if parents:
        changed = [tables.job(change.application, change.name) for change in changes]
        for job in sorted({row.id for row in (*parents, *changed) if row is not None}):
            yield ("job", job), "X"


def change(st: Statement, change: JobChange) -> Work:
    tables = st.server.rows.tables
    yield from lock_parents(st, [change])
    if tables.job(change.application, change.name) is None and change.what is Change.ADDED:
        yield ("job's name", (change.application, change.name)), "X"
    row = tables.job(change.application, change.name)
    if row is not None:
        yield ("job", row.id), "X"
    yield st.gap()
    return st.server.rows.ledger.change(change)


def sync(st: Statement, application: str, release: int, changes: Sequence[JobChange]) -> Work:
    tables = st.server.rows.tables
    yield from lock_parents(st, changes)
    known = {change.name: tables.job(application, change.name) for change in changes}
    for change in changes:
        assert change.spec is not None
        row = known[change.name]
        if row is not None and run_rules.must_be_seen(row, st.server.rows.now()):
            yield ("job", row.id), "U"
        match run_rules.synced(row, replace(change.spec, release=release), release):
            case run_rules.Sync.ADD if row is None:
                yield ("job's name", (application, change.name)), "X"
            case run_rules.Sync.ADD | run_rules.Sync.UPDATE if row is not None:
                yield ("job", row.id), "X"
            case run_rules.Sync.RAISE if row is not None and row.spec.release < release:
                yield ("job", row.id), "U"
    yield st.gap()
    # What was decided before the lock is not decided anew: to a job that was removed or added meanwhile nothing is done.
    still = [
        change
        for change in changes
        if (row := known[change.name]) is None
        or (row.state is JobState.REMOVED) is (tables.jobs[row.id].state is JobState.REMOVED)
    ]
    ledger = st.server.rows.ledger
    known = {
        name: row or tables.job(application, name) for name, row in known.items()
    }  # another may have added it meanwhile
    st.server.checker.synced(ledger.sync(application, release, still))
    return [
        Synced(row, was) for name, was in sorted(known.items()) for row in ledger.jobs(application, name, removed=True)
    ]


def plan(st: Statement, batch: Sequence[Planned]) -> Work:
    tables = st.server.rows.tables
    mine = [planned for planned in batch if not _as_planned(tables, planned) or st.skip(("job", planned.id), "U")]
    for planned in mine:
        for run in planned.runs:
            if _as_planned(tables, planned) and due_key(run.scheduled_for) not in tables.keys[planned.id]:
                yield ("key", (planned.id, due_key(run.scheduled_for))), "X"
    yield st.gap()
    before = dict(tables.jobs)
    inserted = st.server.rows.ledger.plan(mine)
    st.server.checker.planned(mine, before)
    return inserted


def _as_planned(tables: Any, planned: Planned) -> bool:
    row = tables.jobs.get(planned.id)
    return (
        row is not None
        and row.state is JobState.ACTIVE
        and (row.next_due, row.generation) == (planned.next_due, planned.generation)
    )


def settle(st: Statement, job: Any, generation: int, choices: dict[str, Any]) -> Work:
    row = st.server.rows.tables.jobs.get(job)
    if row is None or row.generation != generation or not st.skip(("job", job), "X"):
        return False
    yield st.gap()
    return st.server.rows.ledger.settle(job, generation, **choices)


def request_runs(st: Statement, requests: Sequence[RunRequest]) -> Work:
    tables = st.server.rows.tables
    for one in requests:
        row = tables.there(one.application, one.name)
        if row is None:
            continue
        yield ("job", row.id), "S"
        if one.key not in tables.keys[row.id]:
            yield from _slot(st, row, one)
            yield ("key", (row.id, one.key)), "X"
        run = tables.keys[row.id].get(one.key)
        if run is not None and one.backfill and run_rules.reopens(run.state, run.count):
            yield ("run", run.id), "U"
    yield st.gap()
    for one in requests:
        row = tables.there(one.application, one.name)
        run = None if row is None else tables.keys[row.id].get(one.key)
        if run is not None and one.backfill and run_rules.reopens(run.state, run.count):
            st.server.checker.reopened((run.job, run.key))
    answers = st.server.rows.ledger.request_runs(requests)
    st.server.checker.slotted()
    return answers


def _slot(st: Statement, row: Any, one: RunRequest) -> Work:
    """Lock the slot of a request, or the run that has it."""
    ledger, seen = st.server.rows.ledger, object()
    while one.slot is not None and seen is not (run := ledger._in_slot(row, one.slot)):
        yield (("slot", (row.id, one.slot)), "X") if run is None else (("run", run.id), "U")
        seen = run


def retry(st: Statement, runs: Sequence[RunId], by: str, action: Action | None = None, traceparent: str = "") -> Work:
    tables = st.server.rows.tables
    for one in sorted(set(runs)):
        run = tables.runs.get(one)
        if run is None or tables.jobs[run.job].state is JobState.REMOVED:
            continue
        yield ("job", run.job), "S"
        if run_rules.retries(run.state, run.count):
            yield ("run", one), "U"
    yield st.gap()
    for one in runs:
        run = tables.runs.get(one)
        if run is not None and run_rules.retries(run.state, run.count):
            st.server.checker.reopened((run.job, run.key))
    before = {one: tables.runs[one].key for one in runs if one in tables.runs}
    answers = st.server.rows.ledger.retry(runs, by, action, traceparent)
    st.server.checker.retried(before)
    return answers


def cancel_many(st: Statement, runs: Sequence[RunId], by: str, why: str, action: Action | None = None) -> Work:
    tables = st.server.rows.tables
    for job in sorted({tables.runs[run].job for run in runs if run in tables.runs}):
        yield ("job", job), "X"
    yield st.gap()
    ours = []
    for run in sorted(runs):
        found = tables.runs.get(run)
        if found is not None and not st.skip(("run", run), "U"):
            if found.state is RunState.RUNNING:  # in the hands of its own body, which is about to complete it
                continue
            yield ("run", run), "U"  # a claim has it for a moment
        ours.append(run)
    st.server.rows.ledger.cancel_many(ours, by, why, action)
    names = {run: tables.jobs[tables.runs[run].job].spec.name for run in runs if run in tables.runs}
    return [tables.runs[run].row(names[run]) if run in names else None for run in runs]


def prune(st: Statement, application: str, **bounds: Any) -> Work:
    yield st.gap()
    ledger, tables = st.server.rows.ledger, st.server.rows.tables
    old = {row.id: ledger._old(row, bounds["before"], bounds["keep"]) for row in tables.of(application)}
    free = {job: runs for job, runs in old.items() if not runs or st.skip(("job", job), "U")}
    free = {job: [run for run in runs if st.skip(("run", run.id), "X")] for job, runs in free.items()}
    for run in (run for runs in free.values() for run in runs if run.progress is not None):
        yield ("progress", run.id), "X"
    st.server.checker.forgets(run for runs in free.values() for run in runs)
    ledger._old = lambda row, *_: free.get(row.id, [])  # locked ones are passed by
    try:
        return ledger.prune(application, **bounds)
    finally:
        del ledger._old


def guard(st: Statement, name: str, key: str, within: float | None, by: str) -> Work:
    yield st.gap()
    yield ("guard", (name, key)), "X"
    return st.server.rows.ledger.guard(name, key, within, by)


def unguard(st: Statement, name: str, key: str, by: str) -> Work:
    yield st.gap()
    if st.server.rows.tables.guards.get((name, key), (0.0, None))[1] == by:
        yield ("guard", (name, key)), "X"
    st.server.rows.ledger.unguard(name, key, by)


def keep_progress(st: Statement, progress: Sequence[Progress]) -> Work:
    rows = st.server.rows
    for one in progress:
        if one.run in rows.tables.runs:
            yield ("progress", one.run), "X"
    yield st.gap()
    rows.ledger.keep_progress(progress)


def note_begun(st: Statement, begun: Sequence[tuple[RunId, str, float]]) -> Work:
    rows = st.server.rows
    mine = [(run, token, at) for run, token, at in begun if holds(rows, run, token) and st.skip(("run", run), "U")]
    yield st.gap()
    rows.ledger.note_begun(mine)


def set_pool(st: Statement, application: str, name: str, size: int, action: Any = None) -> Work:
    yield ("pool", name), "U"
    st.server.rows.ledger.set_pool(application, name, size, action)


def create_backfill(st: Statement, wanted: NewBackfill) -> Work:
    """Lock the job, and the runs that are opened again; pass by what is locked."""
    rows = st.server.rows
    row = rows.tables.there(wanted.application, wanted.name)
    if row is not None:
        yield ("job", row.id), "U"
    yield st.gap()
    with requesting(st):
        answer = rows.ledger.create_backfill(wanted)
    check_at_once(st)
    return answer


def advance_backfills(st: Statement, application: str, limit: int, as_of: float | None = None) -> Work:
    """Pass by the backfills, the jobs and the runs that others have locked."""
    yield st.gap()
    ledger = st.server.rows.ledger
    free = [one for one in ledger._of(application) if st.skip(("backfill", one.row.number), "U")]
    free = [one for one in free if st.skip(("job", one.row.job), "S")]
    ledger._of = lambda _application: free
    try:
        with requesting(st):
            answer = ledger.advance_backfills(application, limit, as_of=as_of)
    finally:
        del ledger._of
    check_at_once(st)
    return answer


@contextmanager
def requesting(st: Statement) -> Iterator[None]:
    """Runs that backfills open again are opened only if nobody has locked them."""
    ledger, requested = st.server.rows.ledger, st.server.rows.ledger._requested

    def request(job: Any, backfill: Any, at: float, now: float) -> Any:
        run = st.server.rows.tables.keys[job.id].get(due_key(at))
        if run is not None and takes(backfill.include, run.state, run.count):
            if not st.skip(("run", run.id), "U"):
                return None
            st.server.checker.reopened((run.job, run.key))
        return requested(job, backfill, at, now)

    ledger._requested = request
    try:
        yield
    finally:
        del ledger._requested


def check_at_once(st: Statement) -> None:
    """Of no backfill are more runs open than may be."""
    for one in st.server.rows.tables.backfills.values():
        open_ = sum(time.open for time in one.due.values())
        if one.row.at_once is not None and open_ > one.row.at_once:
            st.server.checker.broken("G4", f"backfill {one.row.number} has {open_} runs open, of {one.row.at_once}")


LOCKING: dict[str, Any] = {
    "create_backfill": create_backfill,
    "advance_backfills": advance_backfills,
    "keep_progress": keep_progress,
    "set_pool": set_pool,
    "note_begun": note_begun,
    "sync": sync,
    "request_runs": request_runs,
    "retry": retry,
    "cancel_many": cancel_many,
    "prune": prune,
    "guard": guard,
    "unguard": unguard,
}


def finish(st: Statement, endings: Sequence[Ending]) -> Work:
    locked = {ending.id for ending in endings if lock_to_end(st, ending)}
    yield st.gap()
    busy = {e.id for e in endings if e.id not in locked and holds(st.server.rows, e.id, e.token)}
    return finish_now(st, endings, busy)


def lock_to_end(st: Statement, ending: Ending) -> bool:
    """Lock the job of what becomes PENDING, and the run, or pass by."""
    rows = st.server.rows
    run = rows.tables.runs.get(ending.id)
    if run is None or (ending.state is RunState.PENDING and not st.skip(("job", run.job), "S")):
        return False
    return holds(rows, ending.id, ending.token) and st.skip(("run", ending.id), "U")


def finish_now(st: Statement, endings: Sequence[Ending], busy: Collection[RunId] = ()) -> Any:
    rows = st.server.rows
    # A batch may hold endings of two attempts of one run: the answers are told apart by their order.
    answers = iter(rows.ledger.finish([e for e in endings if e.id not in busy]))
    said = []
    for ending in endings:
        if ending.id in busy:
            said.append(Ended(ending.id, False, rows.tables.runs[ending.id].state, busy=True))
            continue
        said.append(next(answers))
        if said[-1].accepted:
            st.server.checker.ended(ending.id, ending.token, said[-1].state)
    return said


def reconcile(st: Statement, node: NodeId, application: str, stopping: bool = False) -> Work:
    rows = st.server.rows
    yield st.gap()
    lost, held = [], []
    for row in rows.tables.of(application):
        for run in rows.tables.opened(row.id, RunState.RUNNING):
            gone = run.node is not None and not rows.alive(run.node)
            if gone and st.skip(("job", row.id), "S") and st.skip(("run", run.id), "U"):
                st.server.checker.taken_back(run.id, run.token)
                stopped = run.stopping
                lost.append(rows.ledger._lose(row, run, run.node, rows.now()))
                note = st.server.checker.interrupted if stopped else st.server.checker.lost
                note(run, row)
            elif run.node == node:
                run.stopping |= stopping and st.skip(("run", run.id), "U")
                must_answer = row.state is not JobState.ACTIVE and run.started_at is None
                held.append(Held(run.id, run.token, run.asked_to_end, must_answer))
    if lost:
        rows.ring(JobsChanged(application))
    return Reconciled(tuple(held), tuple(lost), rows.now(), owed=bool(rows.tables.owed(application)))


def follow_up(st: Statement, application: str, limit: int, beyond: JobId, as_of: float | None) -> Work:
    """Pass by the followers and the runs that others have locked, and the keys that others are about to write."""
    rows = st.server.rows
    owed = [run for run in rows.tables.owed(application) if run.job > beyond]
    page, left = owed[:limit], owed[limit:]
    parents = sorted({rows.tables.jobs[run.job].spec.name for run in page})
    followers = [row for parent in parents for row in rows.tables.followers(application, parent)]
    free = {row.id for row in followers if st.skip(("job", row.id), "S")}
    mine = [run for run in page if st.skip(("run", run.id), "U")]
    mine = [run for run in mine if _skip_all(st, _to_reopen(rows, run, free), "U")]
    mine = [run for run in mine if _claim_keys(st, _to_insert(rows, run, free))]
    yield st.gap()
    answer = follow_up_now(st, application, mine, free, as_of)
    cut = any(run.job == page[-1].job for run in left)
    up_to = page[-1].job if left and left[-1].job != page[-1].job else None
    return replace(answer, more=answer.more or (cut and answer.paid > 0), up_to=up_to)


def _skip_all(st: Statement, keys: Sequence[Key], mode: str) -> bool:
    """Take those of these locks that are free. True if all were."""
    return sum(st.skip(key, mode) for key in keys) == len(keys)


def _to_reopen(rows: Any, run: Any, followers: Collection[JobId]) -> list[Key]:
    """The runs of these followers that a final run of their parent changes."""
    keys = rows.tables.keys
    free = [row for row in _followers_of(rows, run) if row.id in followers and run.key in keys[row.id]]
    return [("run", keys[row.id][run.key].id) for row in free if _begins_again(rows, row, run)]


def _to_insert(rows: Any, run: Any, followers: Collection[JobId]) -> list[Key]:
    """The keys of the runs that these followers get."""
    free = (row for row in _followers_of(rows, run) if row.id in followers)
    return [("key", (row.id, run.key)) for row in free if run.key not in rows.tables.keys[row.id]]


def _followers_of(rows: Any, run: Any) -> Any:
    spec = rows.tables.jobs[run.job].spec
    return rows.tables.followers(spec.application, spec.name)


def _claim_keys(st: Statement, keys: Sequence[Key]) -> bool:
    """All of them, or none: the others' inserts are rolled back when one would wait."""
    if any(other is not st for key in keys for other, _ in st.server.locks.get(key, ())):
        return False
    return _skip_all(st, keys, "X")


def _begins_again(rows: Any, row: Any, run: Any) -> bool:
    """Whether the run of a follower becomes another by what this run of its parent has become."""
    parent, there = rows.tables.jobs[run.job].spec.name, rows.tables.keys[row.id][run.key]
    if not run_rules.followed(row.spec.rules.on, run.state, run.attempt):
        state, reason = RunState.SKIPPED, run_rules.not_followed(parent, run.state, run.reason)
    elif row.state is JobState.PAUSED and run.kind is RunKind.DUE:
        state, reason = RunState.SKIPPED, run_rules.PAUSED
    else:
        state, reason = RunState.PENDING, ""
    return run_rules.follows_again(there.row(row.spec.name), run.finished_at, state, reason)


def follow_up_now(
    st: Statement, application: str, mine: Sequence[Any], free: Collection[JobId], as_of: float | None
) -> Any:
    """Insert, and take the marks away, in the instant of the commit."""
    rows, tables = st.server.rows, st.server.rows.tables
    others = [run for run in tables.owed(application) if all(run is not one for one in mine)]
    locked = [row for row in tables.followers(application) if row.id not in free]
    unpaid = unpaid_by(tables, locked)
    for run in others:
        run.owes = False
    for row in locked:
        tables.jobs[row.id] = replace(row, state=JobState.REMOVED)
    answer = rows.ledger.follow_up(application, sys.maxsize, as_of=as_of)
    tables.jobs.update({row.id: row for row in locked})
    for run in (*others, *(run for run in mine if run.job in unpaid)):
        run.owes = True
    st.server.checker.followed_up([run for run in mine if not run.owes])
    return replace(answer, paid=sum(not run.owes for run in mine))


def unpaid_by(tables: Any, locked: Sequence[Any]) -> set[JobId]:
    """The jobs whose runs go on to owe, because of followers that others have locked."""
    parents = (tables.job(row.spec.application, row.spec.rules.after) for row in locked)
    return {parent.id for parent in parents if parent is not None}


def put_back(st: Statement, held: Sequence[tuple[RunId, str]]) -> Work:
    rows = st.server.rows
    mine = [one for one in held if lock_to_end(st, Ending(*one, RunState.PENDING))]
    yield st.gap()
    for run, token in mine:
        if holds(rows, run, token):
            st.server.checker.taken_back(run, token)
    back = rows.ledger.put_back(mine)
    st.server.checker.slotted()
    return back
