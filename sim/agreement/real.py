"""PostgreSQL with two sessions of the store whose transactions stay open. That a step waits is read from `pg_blocking_pids`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import psycopg

from sim.agreement.model import RUN, WAITS, told
from sim.agreement.words import APPLICATION, Ids, Op, perform, plainly
from tenure.core.cluster import Advert, Epoch, NodeId
from tenure.core.records import RunId
from tenure.errors import AttemptLost, StaleTerm, WrongDatabase
from tenure.stores.base import Session
from tenure.stores.ledger import Ledger
from tenure.stores.postgres.store import PostgresStore
from tenure.transactions import effects, fence

PATIENCE = 20.0
"""Seconds that no step takes."""
TABLES = (
    "effect",
    "kept_key",
    "run_log",
    "run_progress",
    "attempt",
    "run",
    "job_change",
    "job",
    "term",
    "election",
    "node",
    "guard",
    "pool",
)
REFUSALS = (StaleTerm, AttemptLost, WrongDatabase)


class Term:
    """What a fence must know."""

    def __init__(self, election: str, number: int, node: NodeId, schema: str) -> None:
        self.election, self.number, self.node, self.schema = election, number, node, schema


class RealHand:
    """A session of a real store; effects go over a connection of the application's."""

    def __init__(self, session: Session, raw: Callable[[], Any], schema: str) -> None:
        self.session, self._raw, self._schema = session, raw, schema
        self.base = 0.0
        self.ids: Ids = {}
        self.held: Advert | None = None
        self.epoch: Epoch

    @property
    def ledger(self) -> Ledger:
        return self.session.ledger

    def hold(self, node: NodeId) -> None:
        self.held = self.session.hold_session_lock(node, 2.0)

    def check(self, names: tuple[str, ...]) -> Any:
        return self.session.check_session_lock(names, PATIENCE)

    def fence(self, name: str, term: int, node: NodeId) -> bool:
        return self._unless_refused(lambda: fence.fence(self._raw(), Term(name, term, node, self._schema)))

    def complete(self, run: int, token: str) -> bool:
        claim = effects.RunClaim(run, token, "key", self._schema, "job")
        return self._unless_refused(lambda: effects.complete(self._raw(), claim))

    def _unless_refused(self, what: Callable[[], None]) -> bool:
        try:
            what()
        except REFUSALS:
            return False
        return True


class Real:
    """What both engines have in common: a thread for each session."""

    hands: list[RealHand]

    def __init__(self) -> None:
        self._threads = [ThreadPoolExecutor(1) for _ in range(2)]
        self._under_way: list[Future[Any] | None] = [None, None]

    def close(self) -> None:
        for thread in self._threads:
            thread.shutdown()
        for hand in self.hands:
            hand.session.close()

    def begin(self, base: float) -> None:
        """An empty database."""
        for hand in self.hands:
            hand.base, hand.ids, hand.held = base, {}, None
        self._clear()

    def do(self, who: int, op: Op) -> Any:
        """A statement in a transaction of its own."""
        return perform(op, self.hands[who])

    def _send(self, who: int, what: Callable[[], Any]) -> None:
        self._under_way[who] = self._threads[who].submit(what)

    def _taken(self, who: int) -> Any:
        future, self._under_way[who] = self._under_way[who], None
        assert future is not None
        return future.result()

    def _clear(self) -> None:
        raise NotImplementedError

    def select(self, statement: str) -> list[tuple[Any, ...]]:
        """What is committed."""
        raise NotImplementedError

    def _look(self, jobs: str, runs: str) -> None:
        names = dict(self.select(jobs))
        found = {(name,): job for job, name in names.items()}
        found.update({(names[job], key): run for run, job, key in self.select(runs)})
        for hand in self.hands:
            hand.ids, hand.epoch = found, hand.session.epoch()  # type: ignore[assignment]

    def _shown(self, **rows: list[tuple[Any, ...]]) -> dict[str, Any]:
        base, hand = self.hands[0].base, self.hands[0]
        jobs = hand.ledger.jobs(APPLICATION, removed=True)
        names = {row.id: row.spec.name for row in jobs}
        return {
            "epoch": plainly(hand.session.epoch(), base),
            "node": {i: tuple(rest) for i, *rest in rows["node"]},
            "election": {name: (plainly(term, base), *rest) for name, term, *rest in rows["election"]},
            "job": {row.spec.name: plainly(row, base) for row in jobs},
            "change": sorted((names[c.job], *plainly(c, base)) for c in hand.ledger.changes(APPLICATION)),
            "run": {(name, key): tuple(plainly(part, base) for part in rest) for name, key, *rest in rows["run"]},
            "attempt": sorted(
                (name, key, *told(attempt, base))
                for run, name, key in rows["ids"]
                for attempt in hand.ledger.attempts(RunId(run))
            ),
            "log": sorted(rows["log"]),
            "progress": sorted(rows["progress"]),
            "guard": {key: plainly((at, by, until), base) for key, at, by, until in rows["guard"]},
            "pool": plainly(hand.ledger.pools(APPLICATION), base),
        }


class RealPostgres(Real):
    """Two sessions of the store, and a third that sees who waits for whom."""

    def __init__(self, store: PostgresStore) -> None:
        super().__init__()
        store.prepare()
        self._schema = store.schema
        self._sessions = [store.session("agreement", PATIENCE) for _ in range(2)]
        self.hands = [RealHand(session, lambda s=session: s._connection, store.schema) for session in self._sessions]  # type: ignore[misc]
        self._watch = store.connect("agreement", PATIENCE)
        self._pids = [session._connection.info.backend_pid for session in self._sessions]
        for session in self._sessions:
            session._connection.execute("SET deadlock_timeout = '60s'")  # it is seen here, and ended here

    def close(self) -> None:
        super().close()
        self._watch.close()

    def select(self, statement: str) -> list[tuple[Any, ...]]:
        return self._watch.execute(statement.replace("{schema}", self._schema).encode()).fetchall()

    def step(self, who: int, op: Op) -> Any:
        """Send a statement: its answer, or WAITS."""
        connection = self._sessions[who]._connection
        if connection.info.transaction_status is psycopg.pq.TransactionStatus.IDLE:
            connection.execute("BEGIN")
        self._send(who, lambda: perform(op, self.hands[who]))
        return self.again(who)

    def again(self, who: int) -> Any:
        """The answer to what is under way, or WAITS."""
        future = self._under_way[who]
        assert future is not None
        while not wait([future], 0.002).done:
            ((blockers,),) = self._watch.execute("SELECT pg_blocking_pids(%s)", [self._pids[who]]).fetchall()
            if self._pids[1 - who] in blockers:
                return WAITS
        return self._taken(who)

    def end(self, who: int, *, commit: bool) -> None:
        """Commit or roll back; what is under way is cancelled."""
        connection = self._sessions[who]._connection
        if self._under_way[who] is not None:
            connection.cancel()
            wait([self._under_way[who]])  # type: ignore[list-item]
            self._under_way[who] = None
        if commit:
            connection.commit()
        else:
            connection.rollback()

    def _clear(self) -> None:
        for session in self._sessions:
            session._connection.execute("SELECT pg_advisory_unlock_all()")
        deleted = "".join(f"DELETE FROM {self._schema}.{table};" for table in TABLES)  # noqa: S608 - our own names
        self._watch.execute(
            f"{deleted} UPDATE {self._schema}.epoch e SET number = 0, timeline = h.timeline FROM {self._schema}.server_identity() h".encode()  # noqa: S608
        )

    def look(self) -> None:
        """What a case finds when it begins."""
        self._look("SELECT id, name FROM {schema}.job", "SELECT id, job, key FROM {schema}.run")

    def shown(self) -> dict[str, Any]:
        """All rows that are committed."""
        columns = ", ".join(_COLUMNS.get(column, f"r.{column}") for column in RUN)
        return self._shown(
            node=self.select("SELECT id::text, state, seq, session_nonce IS NOT NULL FROM {schema}.node"),
            election=self.select(
                "SELECT name, term, holder::text, state = 'held', coalesce(asked_term = term, false), fenced FROM {schema}.election"
            ),
            run=self.select(
                f"SELECT j.name, r.key, {columns} FROM {{schema}}.run r JOIN {{schema}}.job j ON j.id = r.job"  # noqa: S608
            ),
            log=self.select(
                "SELECT j.name, r.key, l.line FROM {schema}.run_log l JOIN {schema}.run r ON r.id = l.run JOIN {schema}.job j ON j.id = r.job"
            ),
            progress=self.select(
                "SELECT j.name, r.key, p.attempt, p.done "
                "FROM {schema}.run_progress p JOIN {schema}.run r ON r.id = p.run JOIN {schema}.job j ON j.id = r.job"
            ),
            ids=self.select("SELECT r.id, j.name, r.key FROM {schema}.run r JOIN {schema}.job j ON j.id = r.job"),
            guard=self.select("SELECT key, date_part('epoch', at), by, date_part('epoch', until) FROM {schema}.guard"),
        )


_COLUMNS = {
    **{
        name: f"date_part('epoch', r.{name})"
        for name in RUN
        if name.endswith(("_at", "_for", "_since")) or name == "until"
    },
    "looks": "coalesce(r.looks, 0)",
    "pool": "coalesce(r.pool, '')",
    "last_look": "coalesce(r.last_look, 0)",
    "kind": "r.kind::text",
    "state": "r.state::text",
    "node": "r.node::text",
    "token": "coalesce(r.token, '')",
}
