"""Every statement that production sends, as the server does it: which locks, in which order, and what in which instant.

Mutants replace single functions of this module, so each rule of the protocol stands in one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sim.server import Statement, Work
from tenure.ledger import Claimed, ClaimRequest, Ending, Held, Planned, RollCall, RunId, RunState
from tenure.model import Acquire, Acquired, Beat, NodeId, Outcome, Pulse, Vacancy
from tenure.stores.ledger import JobChange
from tenure.stores.protocol import Checked


def plain(st: Statement, op: str, args: tuple[Any, ...], keywords: dict[str, Any]) -> Work:
    """A statement of the ledger that neither waits nor is waited for."""
    yield st.gap()
    return getattr(st.server.rows.ledger, op)(*args, **keywords)


# Nodes and elections


def join(st: Statement, card: Any) -> Work:
    yield st.gap()
    st.server.rows.join(card)


def beat(st: Statement, beat: Beat) -> Work:
    snapshot = st.server.rows.shown(beat)
    yield st.gap()
    yield ("node", beat.node), "U"
    return st.server.rows.beat(beat, snapshot)


def leave(st: Statement, node: NodeId) -> Work:
    yield ("node", node), "U"
    st.server.rows.leave(node)


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
    yield ("node", request.node), "S"
    if not server.rows.alive(request.node):
        return Acquired(Outcome.GONE)
    if not server.rows.settled(server.timeline):
        return Acquired(Outcome.MOVED)
    why = server.rows.vacancy(request, server.lock_free)
    e = server.rows.elections[request.name]
    if why is None:
        return Acquired(Outcome.HELD, holder=e.holder)
    seen = (e.term, e.holder, e.held)
    yield st.gap()
    if (e.term, e.holder, e.held) != seen or not st.skip(("election", request.name), "X"):
        return Acquired(Outcome.BUSY, holder=e.holder)
    yield st.gap()
    answer = server.rows.grant(request)
    server.checker.granted(request.name, answer.term, request.node, fenced=request.fenced)
    return answer


def succeed(st: Statement, dead: NodeId, request: Acquire) -> Work:
    declared = yield from declare(st, dead, None)
    answer = yield from acquire(st, request)
    return declared, answer


def release(st: Statement, node: NodeId, name: str, term: int) -> Work:
    yield st.gap()
    yield ("election", name), "U"
    return st.server.rows.release(node, name, term)


def epoch(st: Statement) -> Work:
    yield st.gap()
    return st.server.rows.epoch_row(st.server.timeline)


def unsettle(st: Statement, noticed: Any) -> Work:
    yield st.gap()
    st.server.rows.unsettle(noticed)


def raise_epoch(st: Statement, noticed: Any) -> Work:
    yield st.gap()
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
    yield ("election", name), "S"
    if not st.server.rows.fenced_by(name, term, node):
        return False
    st.keep = True
    return True


def complete(st: Statement, run: RunId, token: str) -> Work:
    yield ("run", run), "U"
    if not holds(st.server.rows, run, token):
        return False
    st.keep = True
    return True


def holds(rows: Any, run: RunId, token: str) -> bool:
    found = rows.tables.runs.get(run)
    return found is not None and found.state is RunState.RUNNING and found.token == token


# The ledger


def claim(st: Statement, request: ClaimRequest) -> Work:
    rows = st.server.rows
    yield ("node", request.node), "S"
    if not rows.alive(request.node):
        return Claimed((), rows.now(), None, more=False, missed=False, alive=False)
    locked = [
        row.spec.function
        for row in rows.tables.jobs.values()
        if not st.skip(("job", row.id), "U" if row.spec.rules.max_running is not None else "S")
    ]
    yield st.gap()
    return claim_now(st, replace(request, strangers=(*request.strangers, *locked)) if locked else request)


def claim_now(st: Statement, request: ClaimRequest) -> Claimed:
    """Count and claim, in the instant of the commit."""
    answer: Claimed = st.server.rows.ledger.claim(request)
    st.server.checker.claimed(answer.runs, request.token, request.node, doubted=request.as_of is not None)
    return answer


def change(st: Statement, change: JobChange) -> Work:
    row = st.server.rows.tables.job(change.application, change.name)
    if row is not None:
        yield ("job", row.id), "X"
    yield st.gap()
    return st.server.rows.ledger.change(change)


def plan(st: Statement, batch: Sequence[Planned]) -> Work:
    mine = [planned for planned in batch if st.skip(("job", planned.id), "U")]
    yield st.gap()
    before = dict(st.server.rows.tables.jobs)
    inserted = st.server.rows.ledger.plan(mine)
    st.server.checker.planned(mine, before)
    return inserted


def settle(st: Statement, job: Any, generation: int, choices: dict[str, Any]) -> Work:
    if not st.skip(("job", job), "X"):
        return False
    yield st.gap()
    return st.server.rows.ledger.settle(job, generation, **choices)


def finish(st: Statement, endings: Sequence[Ending]) -> Work:
    tables = st.server.rows.tables
    for ending in sorted(endings, key=lambda ending: ending.id):
        run = tables.runs.get(ending.id)
        if run is not None:
            if ending.state is RunState.PENDING:
                yield ("job", run.job), "S"
            yield ("run", ending.id), "U"
    yield st.gap()
    return finish_now(st, endings)


def finish_now(st: Statement, endings: Sequence[Ending]) -> Any:
    answers = st.server.rows.ledger.finish(endings)
    for ending, answer in zip(endings, answers, strict=True):
        if answer.accepted:
            st.server.checker.ended(ending.id, ending.token, answer.state)
    return answers


def roll_call(st: Statement, node: NodeId, application: str) -> Work:
    rows = st.server.rows
    yield st.gap()
    lost, held = [], []
    for row in rows.tables.of(application):
        for run in rows.tables.opened(row.id, RunState.RUNNING):
            if run.node is not None and not rows.alive(run.node):
                if st.skip(("job", row.id), "S") and st.skip(("run", run.id), "U"):
                    st.server.checker.taken_back(run.id, run.token)
                    lost.append(rows.ledger._lose(row, run, run.node, rows.now()))
                    st.server.checker.lost(run, row)
            elif run.node == node:
                held.append(Held(run.id, run.token, run.asked_to_end))
    if lost:
        rows.ring("!" + application)
    return RollCall(tuple(held), tuple(lost), rows.now())


def put_back(st: Statement, held: Sequence[tuple[RunId, str]]) -> Work:
    rows = st.server.rows
    mine = [(run, token) for run, token in held if holds(rows, run, token) and st.skip(("run", run), "U")]
    for run, _ in mine:
        yield ("job", rows.tables.runs[run].job), "S"
    yield st.gap()
    for run, token in mine:
        if holds(rows, run, token):
            st.server.checker.taken_back(run, token)
    return rows.ledger.put_back(mine)
