"""What two sessions say to each other's database, in words that the model and the real stores understand alike, and answers without ids and clocks.

Instants are counted in steps of ten minutes from the beginning of a case, so that it does not matter how long the case takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, Protocol

from tenure.core.cluster import Acquire, Advert, Beat, Epoch, NodeCard, NodeId, Vacancy
from tenure.core.keys import due_key
from tenure.core.messages import (
    ClaimRequest,
    Ending,
    JobChange,
    LogLine,
    NewRun,
    Planned,
    Progress,
    RunQuery,
    RunRequest,
)
from tenure.core.records import Change, JobId, JobSpec, Override, Rules, RunId, RunState
from tenure.stores.base import Session
from tenure.stores.ledger import Ledger
from tenure.triggers import every

APPLICATION = "agreement"
STEP = 600.0
"""Seconds. Nothing is decided by less."""
TRIGGER = every(seconds=STEP).to_json()
LOST = Advert(777, 2.0)
"""The session of a node that is gone."""
APPLIED = frozenset({"fence", "complete", "change", "ask"})
"""What an application says in a transaction of its own."""
Ids = dict[tuple[str, ...], int]
"""Of jobs by name, and of runs by job and key."""


class Hand(Protocol):
    """One of the two sessions."""

    base: float
    ids: Ids
    held: Advert | None
    epoch: Epoch
    """As it was when the case began."""

    @property
    def session(self) -> Session: ...
    @property
    def ledger(self) -> Ledger: ...
    def hold(self, node: NodeId) -> Any:
        """Take the session's lock and remember what is to be advertised."""

    def check(self, names: tuple[str, ...]) -> Any: ...
    def fence(self, name: str, term: int, node: NodeId) -> Any: ...
    def complete(self, run: RunId, token: str) -> Any: ...


@dataclass(frozen=True, slots=True)
class Op:
    """A statement."""

    name: str
    args: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(repr, self.args))})"


def perform(op: Op, hand: Hand) -> Any:
    """Say it."""
    return OPS[op.name](hand, *op.args)


def _job(hand: Hand, name: str) -> JobId:
    return JobId(hand.ids.get((name,), -1))


def _run(hand: Hand, run: tuple[str, str]) -> RunId:
    return RunId(hand.ids.get((run[0], _key(hand, run[1])), -1))


def _key(hand: Hand, key: str) -> str:
    """A due time is written as the number of steps."""
    return key if not key.startswith("@") else due_key(_at(hand, float(key[1:])))


def _at(hand: Hand, steps: float) -> float:
    return hand.base + round(STEP * steps)


def _new(hand: Hand, steps: float, expires: float | None, state: str) -> NewRun:
    at = _at(hand, steps)
    return NewRun(
        at, at, None if expires is None else _at(hand, expires), RunState(state), "told" if state == "skipped" else ""
    )


def _spec(name: str, rules: Rules, release: int) -> JobSpec:
    trigger = TRIGGER if rules.after is None else None
    return JobSpec(APPLICATION, name, function_of(name), trigger, rules, release=release)


def function_of(name: str) -> str:
    """Each job has one of its own."""
    return f"function of {name}"


def _change(  # noqa: PLR0917 - as it is said
    hand: Hand,
    what: str,
    name: str,
    rules: Rules | None,
    due: float | None,
    runs: tuple[Any, ...],
    generation: int | None,
    code: Rules | None = None,
) -> JobChange:
    return JobChange(
        APPLICATION,
        name,
        Change(what),
        None if rules is None else _spec(name, rules, 0),
        None if due is None else _at(hand, due),
        tuple(_new(hand, *run) for run in runs),
        by="somebody",
        generation=generation,
        override=None if code is None else Override(_spec(name, code, 0), _at(hand, 0), "somebody"),
    )


def _beat(hand: Hand, node: NodeId, number: int, advert: str, names: tuple[str, ...]) -> Any:
    shown = {"own": hand.held, "lost": LOST, "": None}[advert]
    return hand.session.beat(Beat(node, number, 0.0, 0.0, shown, names))


def _acquire(node: NodeId, name: str, fenced: bool, seen: tuple[int, NodeId, int] | None) -> Acquire:
    return Acquire(node, name, fenced, vanished=None if seen is None else Vacancy(*seen, LOST))


def _plan(hand: Hand, name: str, generation: int, due: float, then: float | None, runs: tuple[Any, ...]) -> Any:  # noqa: PLR0917 - as it is said
    written = tuple(_new(hand, *run) for run in runs)
    return hand.ledger.plan(
        [Planned(_job(hand, name), generation, _at(hand, due), None if then is None else _at(hand, then), written)]
    )


def _settle(hand: Hand, name: str, generation: int, make_up: tuple[Any, ...], skip: tuple[Any, ...]) -> Any:
    chosen = {"make_up": [_run(hand, run) for run in make_up], "skip": [_run(hand, run) for run in skip]}
    return hand.ledger.settle(_job(hand, name), generation, **chosen, reason="missed")


def _finish(hand: Hand, *endings: tuple[Any, str, str, float | None]) -> Any:
    return hand.ledger.finish([_ending(hand, _run(hand, run), *rest) for run, *rest in endings])  # type: ignore[arg-type]


def _ending(hand: Hand, run: RunId, token: str, state: str, again: float | None) -> Ending:
    if state == "interrupted":
        return Ending(run, token, RunState.PENDING, "", None, _at(hand, 0.0))
    if state in {"look", "last look"}:  # the wait is over five steps after the first one
        began = _at(hand, 0.0 if state == "look" else -9.0)
        return Ending(run, token, RunState.PENDING, "not there", again, began, wait_up_to=5 * STEP)
    return Ending(run, token, RunState(state), "said" if state == "failed" else "", again)


def _asked(hand: Hand, name: str, key: str) -> Any:
    due = float(key[1:]) if key.startswith("@") else None
    at = None if due is None else _at(hand, due)
    return hand.ledger.request_runs(
        [RunRequest(APPLICATION, name, _key(hand, key), at, backfill=due is not None, by="somebody")]
    )


OPS: dict[str, Callable[..., Any]] = {
    "join": lambda hand, node: hand.session.join(NodeCard(node, f"label {node[:4]}", 60.0)),
    "beat": _beat,
    "leave": lambda hand, node: hand.session.leave(node, "told to"),
    "declare": lambda hand, node, seq: hand.session.declare(node, None if seq is None else ("row", seq), "told to"),
    "cards": lambda hand, *nodes: hand.session.cards(nodes),  # in no order
    "acquire": lambda hand, *asked: hand.session.acquire(_acquire(*asked)),
    "succeed": lambda hand, dead, *asked: hand.session.succeed(dead, "told to", _acquire(*asked)),
    "release": lambda hand, node, name, term: hand.session.release(node, name, term, "told to"),
    "resign": lambda hand, name: hand.session.ask(name),
    "epoch": lambda hand: hand.session.epoch(),
    "unsettle": lambda hand: hand.session.unsettle(hand.epoch),
    "raise_epoch": lambda hand: hand.session.raise_epoch(hand.epoch),
    "hold": lambda hand, node: hand.hold(node),
    "check": lambda hand, *names: hand.check(names),
    "fence": lambda hand, name, term, node: hand.fence(name, term, node),
    "complete": lambda hand, run, token: hand.complete(_run(hand, run), token),
    "claim": lambda hand, node, token, *lanes: hand.ledger.claim(ClaimRequest(node, APPLICATION, token, 50, *lanes)),
    "change": lambda hand, *change: hand.ledger.change(_change(hand, *change)),
    "sync": lambda hand, name, rules, release, due, runs: hand.ledger.sync(
        APPLICATION, release, [_change(hand, "added", name, rules, due, runs, None)]
    ),
    "plan": _plan,
    "missed": lambda hand: hand.ledger.missed(APPLICATION, 50),
    "unplanned": lambda hand, before: hand.ledger.unplanned(APPLICATION, before=_at(hand, before), limit=50),
    "settle": _settle,
    "finish": _finish,
    "reconcile": lambda hand, node, stopping: hand.ledger.reconcile(node, APPLICATION, stopping=stopping),
    "note_begun": lambda hand, run, token: hand.ledger.note_begun([(_run(hand, run), token, _at(hand, 0))]),
    "unbegun": lambda hand, name, generation: hand.ledger.unbegun(_job(hand, name), generation),
    "put_back": lambda hand, *held: hand.ledger.put_back([(_run(hand, run), token) for run, token in held]),
    "ask": _asked,
    "retry": lambda hand, run: hand.ledger.retry([_run(hand, run)], "somebody"),
    "slot": lambda hand, name, key, slot, if_waiting, steps: hand.ledger.request_runs(
        [RunRequest(APPLICATION, name, key, _at(hand, steps), by="somebody", slot=slot, if_waiting=if_waiting)]
    ),
    "cancel": lambda hand, run: hand.ledger.cancel_many([_run(hand, run)], "somebody", ""),
    "follow_up": lambda hand: hand.ledger.follow_up(APPLICATION, 50),
    "owed": lambda hand: hand.ledger.owed(APPLICATION, 50),
    "followers": lambda hand, parent: hand.ledger.followers(APPLICATION, parent),
    "keep_log": lambda hand, run, place: hand.ledger.keep_log(
        [LogLine(_run(hand, run), 1, place, hand.base, f"line {place}")]
    ),
    "keep_progress": lambda hand, run, attempt, done: hand.ledger.keep_progress(
        [Progress(_run(hand, run), attempt, float(done), None, "", hand.base)]
    ),
    "prune": lambda hand, before, keep: hand.ledger.prune(APPLICATION, before=_at(hand, before), keep=keep, limit=50),
    "guard": lambda hand, key, within: hand.ledger.guard("guarded", key, None if within is None else STEP * within, "somebody"),
    "set_pool": lambda hand, name, size: hand.ledger.set_pool(APPLICATION, name, size),
    "unguard": lambda hand, key, by: hand.ledger.unguard("guarded", key, by),
    "jobs": lambda hand: hand.ledger.jobs(APPLICATION, removed=True),
    "runs": lambda hand: hand.ledger.runs(RunQuery(APPLICATION, oldest_first=True)),
}  # fmt: skip

UNSAID = frozenset({"id", "job", "detail", "nonce"})
"""Numbers that differ from database to database, and words for people."""
UNSEEN = UNSAID | {"was_seq", "pulse", "holder_seq", "holder_advert", "epoch"}
"""On SQLite also what beats do not bring there: they are counted in files."""
SETS = frozenset({"peers", "elections", "held", "lost", "free"})
"""In no order."""


def plainly(value: Any, base: float, without: frozenset[str] = UNSAID) -> Any:
    """An answer or a row as it can be compared."""
    if isinstance(value, Epoch):
        return "Epoch", plainly(value.number, base), value.settled
    names = [f.name for f in fields(value)] if is_dataclass(value) else getattr(value, "_fields", None)
    if names is not None and not isinstance(value, type):
        said = {name: plainly(getattr(value, name), base, without) for name in names if name not in without}
        return (type(value).__name__, *((name, _sorted(part) if name in SETS else part) for name, part in said.items()))
    match value:
        case Enum():
            return value.value
        case bool() | None | str():
            return value
        case float():
            return round((value - base) / STEP) if value > 1e9 else value
        case int():
            return value if value < 1e9 else ("epoch", value & 0xFFFFF if value > 1e12 else 0)
        case dict():
            return {plainly(key, base, without): plainly(part, base, without) for key, part in value.items()}
        case frozenset() | set():
            return _sorted(plainly(part, base, without) for part in value)
        case [NodeCard(), *_]:
            return _sorted(tuple(plainly(part, base, without) for part in value))
        case list() | tuple():
            return tuple(plainly(part, base, without) for part in value)
    raise TypeError(f"{value!r} cannot be compared")


def _sorted(parts: Any) -> Any:
    return tuple(sorted(parts, key=repr)) if isinstance(parts, tuple) else parts
