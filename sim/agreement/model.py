"""The modelled statements in two transactions that stay open: what they answer, who waits, and which rows there are in the end.

In a history a statement decides in the instant of its commit. Here it decides when it is sent, keeps its locks, and what it wrote is
seen by its own transaction alone until that commits, as in a database. Both come to the same only where the locks are right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from sim.agreement.words import APPLICATION, Ids, Op, perform, plainly
from sim.database import statements
from sim.database.rows import ElectionState, NodeRow, Rows
from sim.database.server import Connection, Key2, Server, Statement, Work
from sim.database.store import SimLedger, SimSession
from sim.runtime.copies import memory_tables
from tenure.core.cluster import Advert, NodeId
from tenure.core.records import AttemptRow, RunState

WAITS = object()
"""Instead of an answer."""
State = dict[tuple[Any, ...], Any]


class Refused(Exception):
    """The transaction is over, and nothing of it was committed."""


@dataclass(slots=True)
class Transaction:
    """One that is open. Its locks are the statement's."""

    statement: Statement
    wrote: State = field(default_factory=dict)
    work: Work | None = None
    wants: Key2 | None = None


class Model:
    """The server of the simulator, with two sessions. `serial`: nobody needs locks, because they come one at a time."""

    def __init__(self, base: float, *, serial: bool = False) -> None:
        self.server = Server(60.0)
        self.server.clock = self.server.rows.clock = Slow(base)  # type: ignore[assignment]
        self.server.checker = Unasked()
        self.rows: Rows = self.server.rows
        self.base = base
        self._kind = Unlocked if serial else Statement
        self._committed = dump(self.rows)
        self._open: list[Transaction | None] = [None, None]
        self.connections = [Connection(self.server, None, "", 60.0) for _ in range(2)]  # type: ignore[arg-type]
        self.server.sessions.update(dict.fromkeys(self.connections))
        self.hands = [ModelHand(self, connection) for connection in self.connections]

    def step(self, who: int, op: Op, *, busy: bool = False) -> Any:
        """Send a statement: its answer, or WAITS. `busy`: it waits at its first lock, whoever has it."""
        transaction = self._open[who]
        if transaction is None:
            transaction = self._open[who] = Transaction(self._kind(self.connections[who], op.name, lambda *_: None))
        if isinstance(transaction.statement, Unlocked):
            transaction.statement.busy = busy
        work, args = self.hands[who].sent(op)
        transaction.work = work(transaction.statement, *args)
        return self._advance(who, transaction)

    def again(self, who: int) -> Any:
        """The answer to what waited for a lock, or WAITS still."""
        transaction = self._open[who]
        assert transaction is not None
        if isinstance(transaction.statement, Unlocked):
            transaction.statement.busy = False
        if transaction.wants is not None and not transaction.statement.skip(*transaction.wants):
            return WAITS
        return self._advance(who, transaction)

    def wrote(self, who: int) -> bool:
        """Whether its open transaction changed anything."""
        transaction = self._open[who]
        return transaction is not None and bool(transaction.wrote)

    def end(self, who: int, *, commit: bool) -> None:
        """Commit or roll back, unless it was refused and is over already."""
        transaction, self._open[who] = self._open[who], None
        if transaction is not None:
            if commit:
                self._committed = _over(self._committed, transaction.wrote)
                load(self.rows, self._committed)
            transaction.statement.finish()

    def do(self, who: int, op: Op) -> Any:
        """A statement in a transaction of its own."""
        answer = self.step(who, op)
        self.end(who, commit=True)
        return answer

    def look(self) -> None:
        """What a case finds when it begins."""
        names = {row.id: row.spec.name for row in self.rows.tables.jobs.values()}
        jobs: Ids = {(name,): job for job, name in names.items()}
        runs: Ids = {(names[run.job], run.key): run.id for run in self.rows.tables.runs.values()}
        for hand in self.hands:
            hand.ids, hand.epoch = {**jobs, **runs}, self.rows.epoch_row(self.server.timeline)

    def _advance(self, who: int, transaction: Transaction) -> Any:
        assert transaction.work is not None
        transaction.wants = None
        load(self.rows, _over(self._committed, transaction.wrote))
        answer: Any = WAITS
        try:
            while transaction.wants is None:
                want = next(transaction.work)
                if isinstance(want, tuple) and not transaction.statement.skip(*want):
                    transaction.wants = want
        except StopIteration as stop:
            answer = stop.value
        except Refused:
            load(self.rows, self._committed)
            self.end(who, commit=False)
            return False
        transaction.wrote = _difference(self._committed, dump(self.rows))
        load(self.rows, self._committed)
        return answer

    def shown(self) -> dict[str, Any]:
        """All rows that are committed."""
        tables = self.rows.tables
        names = {row.id: row.spec.name for row in tables.jobs.values()}
        return {
            "epoch": plainly(self.rows.epoch_row(self.server.timeline), self.base),
            "node": {i: (row.state, row.seq, row.advert is not None) for i, row in self.rows.nodes.items()},
            "election": {
                name: (plainly(e.term, self.base), e.holder, e.held, e.asked == e.term, e.fenced)
                for name, e in self.rows.elections.items()
            },
            "job": {row.spec.name: plainly(row, self.base) for row in tables.jobs.values()},
            "change": sorted((names[c.job], *plainly(c, self.base)) for c in tables.changes),
            "run": {
                (names[run.job], run.key): tuple(plainly(getattr(run, column), self.base) for column in RUN)
                for run in tables.runs.values()
            },
            "attempt": sorted(
                (names[run.job], run.key, *told(kept, self.base))
                for run in tables.runs.values()
                for kept in run.all_attempts()
            ),
            "log": sorted(
                (names[run.job], run.key, line.text) for run in tables.runs.values() for line in run.log.values()
            ),
            "progress": sorted(
                (names[run.job], run.key, run.progress.attempt, run.progress.done)
                for run in tables.runs.values()
                if run.progress is not None
            ),
            "guard": {key: plainly(guard, self.base) for (_, key), guard in tables.guards.items()},
            "pool": plainly(self.rows.ledger.pools(APPLICATION), self.base),
        }


RUN = (
    "kind", "state", "generation", "scheduled_for", "due_at", "expires_at", "reason", "count", "until", "by", "kwargs", "attempt",
    "failures", "losses", "interruptions", "reopened", "slot", "looks", "looking_since", "last_look", "pool", "stopping", "node", "label", "token", "asked_to_end", "claimed_at", "started_at", "finished_at",
    "outcome", "result", "owes",
)  # fmt: skip
"""What is compared of a run, beside its job and its key."""


def told(attempt: AttemptRow, base: float) -> tuple[Any, ...]:
    """An attempt in words that can be compared."""
    return tuple(str(plainly(getattr(attempt, column), base)) for column in ATTEMPT)


ATTEMPT = ("number", "node", "claimed_at", "started_at", "finished_at", "outcome", "error", "count")


class ModelHand:
    """A session of the simulator that does not send, but says what it would."""

    def __init__(self, model: Model, connection: Connection) -> None:
        self._model, self._connection = model, connection
        self.base = model.base
        self.ids: Ids = {}
        self.held: Advert | None = None
        self.epoch = model.rows.epoch_row(model.server.timeline)
        self.session = Unsent.__new__(Unsent)
        self.ledger = SimLedger(self.session)  # type: ignore[abstract]  # the rest of its methods come in sim/database/store.py

    def sent(self, op: Op) -> tuple[Callable[..., Work], tuple[Any, ...]]:
        """What a statement is to the server."""
        try:
            perform(op, self)
        except Sent as sent:
            return sent.work, sent.args
        raise AssertionError(f"{op} sends nothing")

    def hold(self, node: NodeId) -> None:
        self.held = Advert(id(self) & 0xFFFF, 2.0)
        raise Sent(statements.hold_lock, (node, self.held.nonce))

    def check(self, names: tuple[str, ...]) -> None:
        node, nonce = next(iter(self._connection.advisory), ("", 0))
        raise Sent(statements.check_lock, (node, nonce, names))

    def fence(self, name: str, term: int, node: NodeId) -> None:
        raise Sent(_unless_refused, (statements.fence, (name, term, node)))

    def complete(self, run: int, token: str) -> None:
        raise Sent(_unless_refused, (_completed, (run, token)))


class Sent(Exception):
    """A statement on its way."""

    def __init__(self, work: Callable[..., Work], args: tuple[Any, ...]) -> None:
        super().__init__()
        self.work, self.args = work, args


class Unsent(SimSession):
    """Nothing is sent."""

    def ask(self, op: str, work: Any = None, *args: Any, timeout: float | None = None) -> Any:
        del timeout
        raise Sent(work or statements.resign, args if work else (op,))


def _unless_refused(st: Statement, work: Callable[..., Work], args: tuple[Any, ...]) -> Work:
    if not (yield from work(st, *args)):
        raise Refused
    return True


def _completed(st: Statement, run: Any, token: str) -> Work:
    if not (yield from statements.complete(st, run, token)):
        return False
    rows = st.server.rows
    done = rows.tables.runs[run]
    rows.tables.end(done, RunState.SUCCEEDED, "", rows.now())
    done.started_at = done.claimed_at  # a figure for people, which histories leave out
    return True


class Unlocked(Statement):
    """No row is ever locked by somebody else; all of them are, while the file is."""

    __slots__ = ("busy",)
    busy: bool

    def skip(self, key: Any, mode: str) -> bool:
        del key, mode
        return not self.busy


@dataclass(slots=True)
class Slow:
    """A clock that all but stands still: what comes later is later."""

    base: float

    def now(self) -> float:
        self.base += 0.001
        return self.base


class Unasked:
    """Nobody checks a history here."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


# All rows as values, and back into the objects that statements may have in hand

_FIELDS = {kind: tuple(f.name for f in fields(kind)) for kind in (NodeRow, ElectionState, memory_tables.MemoryRun)}


def dump(rows: Rows) -> State:
    """Every row by its key."""
    tables = rows.tables
    return {
        ("epoch",): (rows.epoch, rows.recorded),
        **{("node", i): _values(row) for i, row in rows.nodes.items()},
        **{("election", name): _values(row) for name, row in rows.elections.items()},
        **{("job", i): row for i, row in tables.jobs.items()},
        **{("run", i): _values(run)[:-2] for i, run in tables.runs.items()},  # what locks no run comes last
        **{("progress", i): run.progress for i, run in tables.runs.items() if run.progress is not None},
        **{("log", i, place): line for i, run in tables.runs.items() for place, line in run.log.items()},
        **{("change", record.job, record.generation): record for record in tables.changes},
        **{("guard", *key): guard for key, guard in tables.guards.items()},
        **{("pool", *key): size for key, size in tables.pools.items()},
        **{("followed", job): True for job in tables.followed},
        **{("kept", *kept): run for kept, run in tables.kept_keys.items()},
    }


def load(rows: Rows, state: State) -> None:
    """Let these be the rows."""
    tables = rows.tables
    rows.epoch, rows.recorded = state["epoch",]
    _fill(rows.nodes, {key[1]: row for key, row in state.items() if key[0] == "node"}, NodeRow)
    _fill(rows.elections, {key[1]: row for key, row in state.items() if key[0] == "election"}, ElectionState)
    logs = {
        key[1]: {k[2]: line for k, line in state.items() if k[:2] == ("log", key[1])}
        for key in state
        if key[0] == "run"
    }
    runs = {
        key[1]: (*row, state.get(("progress", key[1])), logs[key[1]]) for key, row in state.items() if key[0] == "run"
    }
    _fill(tables.runs, runs, memory_tables.MemoryRun)
    kept = (tables.guards, tables.pools, tables.followed, tables.kept_keys)
    for place in (tables.jobs, tables.names, tables.keys, tables.open, *kept):
        place.clear()
    for key, row in state.items():
        if key[0] == "job":
            tables.put(row)
    for run in tables.runs.values():
        tables.add(run)
    tables.guards.update({key[1:]: guard for key, guard in state.items() if key[0] == "guard"})
    tables.pools.update({key[1:]: size for key, size in state.items() if key[0] == "pool"})
    tables.followed.update(key[1] for key in state if key[0] == "followed")
    tables.kept_keys.update({(key[1], key[2]): run for key, run in state.items() if key[0] == "kept"})
    tables.changes[:] = [record for key, record in state.items() if key[0] == "change"]


def _values(row: Any) -> tuple[Any, ...]:
    return tuple(getattr(row, name) for name in _FIELDS[type(row)])


def _fill(place: dict[Any, Any], values: dict[Any, tuple[Any, ...]], kind: type) -> None:
    for key in [key for key in place if key not in values]:
        del place[key]
    for key, row in values.items():
        if key not in place:
            place[key] = kind(*row)
        for name, value in zip(_FIELDS[kind], row, strict=True):
            setattr(place[key], name, value)


def _difference(before: State, after: State) -> State:
    """What was written; None: deleted."""
    changed = {key: row for key, row in after.items() if key not in before or before[key] != row}
    return {**changed, **{key: None for key in before if key not in after}}


def _over(state: State, wrote: State) -> State:
    return {key: row for key, row in {**state, **wrote}.items() if row is not None}
