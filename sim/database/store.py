"""The store that production runs on here: sessions whose statements travel to the server and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from sim.database import statements
from sim.database.server import Connection, Server, Statement, Work
from sim.runtime import fakes
from sim.runtime.hosts import File
from sim.runtime.kernel import K, Process
from sim.runtime.network import NEVER, Network
from tenure.core.cluster import Acquire, Acquired, Advert, Beat, BeatAnswer, Epoch, NodeCard, NodeId, Pulse
from tenure.core.messages import Claimed, ClaimRequest, Ending, JobChange, Planned
from tenure.core.records import JobId, RunId
from tenure.errors import StoreUnavailable
from tenure.stores.base import Checked, Session, Store
from tenure.stores.ledger import FIRST, Ledger
from tenure.stores.notices import Notice


class SimStore(Store):
    """One database; which process asks is known from whose thread it is."""

    def __init__(self, server: Server, network: Network, *, host_evidence: bool, session_evidence: bool) -> None:
        self.server, self.network = server, network
        self._host_evidence, self._session_evidence = host_evidence, session_evidence
        self.freeze: Callable[[Process, float], None] = lambda _process, _seconds: None

    @property
    def shown(self) -> str:
        return "simulated"

    @property
    def key(self) -> object:
        return id(self)

    @property
    def evidence_directory(self) -> Path | None:
        return Path() if self._host_evidence else None

    @property
    def sessions_are_evidence(self) -> bool:
        return self._session_evidence

    def prepare(self) -> None:
        """Nothing to do."""

    def migration(self, since: int = 0) -> str:
        del since
        return ""

    def session(self, purpose: str, timeout: float) -> SimSession:
        process = K.process
        assert process is not None
        return SimSession(self, process, purpose, timeout)


class SimSession(Session):
    """One connection."""

    def __init__(self, store: SimStore, process: Process, purpose: str, timeout: float) -> None:
        self._store, self._process, self._timeout = store, process, timeout
        self.connection = Connection(store.server, process, purpose, timeout)
        self._file: File | None = None
        self._notices: list[Notice] = []
        self._lock: tuple[NodeId, int] = ("", 0)
        self._ledger = SimLedger(self)  # type: ignore[abstract]  # the rest of its methods come below
        self.call("connect", _connect)

    def call(self, op: str, work: Callable[..., Work], *args: Any, timeout: float | None = None) -> Any:
        """Send a statement and wait for its answer."""
        me, network, process = K.current, self._store.network, self._process
        assert me is not None
        self._own("speaks")
        placed = network.place(process, op)
        there, back = network.ways(process, op, placed)
        if op == "finish" and not network.passes(len(args[0])):
            there = NEVER
        ticket = me.ticket
        statement = Statement(
            self.connection, op, lambda answer, error: self._answered(me, ticket, answer, error, back)
        )
        statement.placed = placed
        if there < NEVER:
            K.after(there, self._arrive, statement, work, args)
        if placed is not None and placed.freeze:
            self._store.freeze(process, placed.freeze)
        got = K.block(timeout or self._timeout)
        if got is None:
            raise StoreUnavailable(f"no answer to {op}")
        answer, error = got
        if error is not None:
            raise error
        return answer, statement

    def _arrive(self, statement: Statement, work: Callable[..., Work], args: tuple[Any, ...]) -> None:
        server = self._store.server
        if not server.up or (not self.connection.alive and statement.op != "connect"):
            statement.abort(StoreUnavailable("the server is not there"))
            return
        statement.begin(work(statement, *args))

    def _answered(self, task: Any, ticket: int, answer: Any, error: Exception | None, delay: float) -> None:
        if isinstance(answer, Claimed) and not self._store.network.passes(len(answer.runs)):
            delay = NEVER
        if delay < NEVER:
            K.after(self._store.network.back(self._process, delay), K.resume, task, ticket, (answer, error))

    def ask(self, op: str, work: Callable[..., Work], *args: Any, timeout: float | None = None) -> Any:  # type: ignore[override]
        """A statement of which only the answer counts."""
        return self.call(op, work, *args, timeout=timeout)[0]

    def _own(self, what: str) -> None:
        if self.connection.client is not K.process:
            self._store.server.checker.broken("G6", f"{K.process} {what} on the connection of {self.connection.client}")

    def close(self) -> None:
        self._own("hangs up")
        # A statement that is on its way goes on: only what holds locks between statements ends with the connection.
        K.after(0.0, _hang_up, self.connection)
        if self._file is not None:
            fakes.close(self._file.number)

    def abandon(self) -> None:
        """A descriptor less; the connection is the parent's, and goes on."""

    def listen(self, node: NodeId) -> None:
        del node
        if self._file is None:
            self._file = File()
            self.connection.hear = self._hear

    def _hear(self, notice: Notice) -> None:
        self._notices.append(notice)
        if self._file is not None:
            self._file.ring()

    def fileno(self) -> int | None:
        return self._file.number if self._file is not None else None

    def notices(self) -> list[Notice]:
        heard, self._notices = self._notices, []
        if self._file is not None:
            self._file.readable = False
        return heard

    def join(self, card: NodeCard) -> None:
        self.ask("join", statements.join, card)

    def beat(self, beat: Beat) -> BeatAnswer:
        answer: BeatAnswer = self.ask("beat", statements.beat, beat)
        return answer

    def leave(self, node: NodeId, why: str) -> None:
        del why
        self.ask("leave", statements.leave, node)

    def declare(self, dead: NodeId, pulse: Pulse | None, why: str) -> bool:
        del why
        return bool(self.ask("declare", statements.declare, dead, pulse))

    def cards(self, ids: Iterable[NodeId]) -> list[NodeCard]:
        found: list[NodeCard] = self.ask("cards", statements.cards, sorted(ids))
        return found

    def acquire(self, request: Acquire) -> Acquired:
        answer: Acquired = self.ask("acquire", statements.acquire, request)
        return answer

    def succeed(self, dead: NodeId, why: str, request: Acquire) -> tuple[bool, Acquired]:
        del why
        answer: tuple[bool, Acquired] = self.ask("succeed", statements.succeed, dead, request)
        return answer

    def release(self, node: NodeId, name: str, term: int, why: str) -> bool:
        del why
        return bool(self.ask("release", statements.release, node, name, term))

    def epoch(self) -> Epoch:
        answer: Epoch = self.ask("epoch", statements.epoch)
        return answer

    def unsettle(self, epoch: Epoch) -> None:
        self.ask("unsettle", statements.unsettle, epoch)

    def raise_epoch(self, noticed: Epoch) -> bool:
        return bool(self.ask("raise_epoch", statements.raise_epoch, noticed))

    def hold_session_lock(self, node: NodeId, grace: float) -> Advert | None:
        nonce = K.rng.getrandbits(40)
        self.ask("lock", statements.hold_lock, node, nonce)
        self._lock = (node, nonce)
        return Advert(nonce, grace)

    def check_session_lock(self, names: tuple[str, ...], timeout: float) -> Checked:
        node, nonce = self._lock
        answer: Checked = self.ask("check", statements.check_lock, node, nonce, names, timeout=timeout)
        return answer

    def sweep(self) -> None:
        """Histories are shorter than a week."""

    @property
    def ledger(self) -> SimLedger:
        return self._ledger

    # Nothing below is asked by the runtime.

    def leader(self, name: str) -> Any:
        raise NotImplementedError(name)

    def elections(self) -> Any:
        raise NotImplementedError

    def silent(self, nodes: Iterable[NodeId]) -> Any:
        raise NotImplementedError(nodes)

    def terms(self, name: str | None, limit: int) -> Any:
        raise NotImplementedError(name, limit)

    def recent_terms(self, after: str, elections: int, each: int) -> Any:
        raise NotImplementedError(after, elections, each)

    def node_records(self, ended: int) -> Any:
        raise NotImplementedError(ended)


def _connect(st: Statement) -> Work:
    st.server.sessions[st.session] = None
    yield 0.0


def _hang_up(connection: Connection) -> None:
    connection.hear = None
    connection.server.sessions.pop(connection, None)
    connection.advisory.clear()
    for statement in [s for s in connection.server.open if s.session is connection and s.keep]:
        statement.finish()


class SimLedger(Ledger):
    """Jobs and runs over one connection."""

    def __init__(self, session: SimSession) -> None:
        self._session = session

    def claim(self, request: ClaimRequest) -> Any:
        return self._session.ask("claim", statements.claim, request)

    def change(self, change: JobChange) -> Any:
        return self._session.ask("change", statements.change, change)

    def plan(self, batch: Sequence[Planned]) -> int:
        return int(self._session.ask("plan", statements.plan, batch))

    def settle(self, job: Any, generation: int, **choices: Any) -> bool:
        return bool(self._session.ask("settle", statements.settle, job, generation, choices))

    def finish(self, endings: Sequence[Ending]) -> Any:
        return self._session.ask("finish", statements.finish, endings)

    def reconcile(self, node: NodeId, application: str, *, stopping: bool = False) -> Any:
        return self._session.ask("reconcile", statements.reconcile, node, application, stopping)

    def follow_up(self, application: str, limit: int, *, beyond: JobId = FIRST, as_of: float | None = None) -> Any:
        return self._session.ask("follow_up", statements.follow_up, application, limit, beyond, as_of)

    def put_back(self, held: Sequence[tuple[RunId, str]]) -> int:
        return int(self._session.ask("put_back", statements.put_back, held))


def _plainly(op: str) -> Any:
    def method(self: SimLedger, *args: Any, **keywords: Any) -> Any:
        return self._session.ask(op, statements.plain, op, args, keywords)

    return method


for _op in Ledger.__abstractmethods__ - set(vars(SimLedger)):
    setattr(SimLedger, _op, _plainly(_op))
SimLedger.__abstractmethods__ = frozenset()
