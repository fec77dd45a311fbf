"""What a claim must not pay for: runs that its node may not begin, and runs that are over but still in the indexes.

Counted in pages that the server touches, and in steps of SQLite's machine, so that a slow machine changes nothing.
"""

import json
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from tenure.core.cluster import NodeCard
from tenure.core.messages import ClaimRequest, Ending, JobChange, RunRequest
from tenure.core.records import Change, JobSpec, Rules, RunState
from tenure.stores import Session, store_for
from tenure.stores.ledger import Ledger
from tenure.stores.postgres.arrays import register

MANY = 20_000
PAGES = 250
"""That a claim of up to three runs may touch: about 150 are needed.

To walk along what is in the way would take 400 and more.
"""
STEPS = 20
"""Thousands, of SQLite's machine."""
RULES = Rules(overlap="allow", max_running=None)
FOREIGN = {
    "another queue": Rules(overlap="allow", max_running=None, queue="gpu"),
    "another function": RULES,
    "paused": RULES,
}


def add(ledger: Ledger, name: str, function: str, rules: Rules) -> None:
    spec = JobSpec("app", name, function, None, rules)
    assert ledger.change(JobChange("app", name, Change.ADDED, spec))


def add_foreign(ledger: Ledger, why: str) -> None:
    """A job that a node which has f and serves the default queue may not run, with a backlog to come."""
    add(ledger, "ours", "f", RULES)
    add(ledger, "theirs", "g" if why == "another function" else "f", FOREIGN[why])


def pause(ledger: Ledger, why: str) -> None:
    if why == "paused":
        assert ledger.change(JobChange("app", "theirs", Change.PAUSED))


class Server:
    """A node on PostgreSQL whose claims are weighed."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.session: Session = store_for(url).session("test", timeout=60.0)
        self.ledger: Ledger = self.session.ledger
        self.node = str(uuid.uuid4())
        self.session.join(NodeCard(self.node, "a node", 600.0))
        self._execute = self.ledger._execute  # type: ignore[attr-defined]
        self.ledger._execute = self._watched  # type: ignore[attr-defined]
        self.pages: list[int] = []
        self.weighs = True

    def _watched(self, text: str, values: dict[str, object]) -> list[tuple[object, ...]]:
        if self.weighs and ("claim_runs" in text or "reconcile" in text):  # another one, told apart and rolled back
            with psycopg.connect(self.url) as connection:
                register(connection)
                connection.execute("SET plan_cache_mode = force_generic_plan")  # as after five claims
                ((plan,),) = connection.execute("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + text, values).fetchall()
                connection.execute("ROLLBACK; SET plan_cache_mode = force_generic_plan")
                ((again,),) = connection.execute("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + text, values).fetchall()
                connection.rollback()
            del plan  # the first one also reads the catalogue
            node = (json.loads(again) if isinstance(again, str) else again)[0]["Plan"]
            self.pages.append(node["Shared Hit Blocks"] + node["Shared Read Blocks"])
        return self._execute(text, values)

    def claim(self, limit: int = 10, **more: object) -> list[tuple[int, str]]:
        token = str(uuid.uuid4())
        asked = ClaimRequest(self.node, "app", token, limit, ("f",), ("default",), **more)  # type: ignore[arg-type]
        return [(run.id, token) for run in self.ledger.claim(asked).runs]

    def run(self, count: int) -> None:
        """Ask for so many runs and bring them to their end."""
        self.ledger.request_runs([RunRequest("app", "ours", str(uuid.uuid4()), None) for _ in range(count)])
        while claimed := self.claim(500):
            self.ledger.finish([Ending(run, token, RunState.SUCCEEDED) for run, token in claimed])

    def has_run(self, count: int) -> None:
        """As if this node had run so many."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(
                "INSERT INTO tenure.run (job, application, lane, generation, kind, key, scheduled_for, due_at, state, attempt, node, token)"
                " SELECT j.id, j.application, j.lane, 1, 'manual', 'k' || n, now(), now(), 'running', 1, %s::uuid, 'token'"
                " FROM tenure.job j, generate_series(1, %s) n WHERE j.name = 'ours'",
                [self.node, count],
            )
            connection.execute("UPDATE tenure.run SET state = 'succeeded', token = NULL, finished_at = now()")
            connection.execute("ANALYZE tenure.run")  # the planner believes that nothing runs


@pytest.fixture
def server(database) -> Iterator[Server]:
    store_for(database).prepare()
    with psycopg.connect(database, autocommit=True) as connection:
        for table in ("run", "job"):
            connection.execute(f"ALTER TABLE tenure.{table} SET (autovacuum_enabled = off)")
    opened = Server(database)
    yield opened
    opened.session.close()


@pytest.mark.parametrize("state", ["pending", "waiting"])
@pytest.mark.parametrize("why", FOREIGN)
def test_what_a_node_may_not_begin_costs_its_claims_nothing(server, why, state):
    add_foreign(server.ledger, why)
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO tenure.run (job, application, lane, generation, kind, key, scheduled_for, due_at, expires_at, state)"
            " SELECT j.id, j.application, j.lane, 1, 'manual', 'k' || n, now(), now(), now() + interval '1 hour', %s::tenure.run_state"
            " FROM tenure.job j, generate_series(1, %s) n WHERE j.name = 'theirs'",
            [state, MANY],
        )
        pause(server.ledger, why)
        connection.execute("VACUUM ANALYZE tenure.run")
    assert server.claim() == []
    server.run(3)
    assert max(server.pages) < PAGES


def test_runs_that_are_over_cost_claims_nothing_while_an_old_snapshot_keeps_them(server):
    add(server.ledger, "ours", "f", RULES)
    add(server.ledger, "later", "f", RULES)
    with psycopg.connect(server.url) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM tenure.run")
        server.weighs = False
        server.run(MANY // 4)
        server.claim()
        server.weighs = True
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("VACUUM tenure.run")  # which may remove nothing
        for _ in range(3):
            assert server.claim() == []
            server.run(1)
    assert max(server.pages) < PAGES


def test_candidates_without_a_place_cost_little_while_an_old_snapshot_keeps_what_ran(server):
    """They are held back by a look at their own jobs, not at everything that runs or ran."""
    add(server.ledger, "ours", "f", RULES)
    add(server.ledger, "one at a time", "f", Rules(overlap="skip", max_running=1))
    with psycopg.connect(server.url) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM tenure.run")
        server.has_run(MANY)
        server.ledger.request_runs([RunRequest("app", "one at a time", str(uuid.uuid4()), None)])
        assert len(server.claim()) == 1
        for _ in range(3):
            server.ledger.request_runs([RunRequest("app", "one at a time", str(uuid.uuid4()), None)])
            assert server.claim() == []
    assert max(server.pages) < PAGES


def test_a_reconciliation_costs_little_while_an_old_snapshot_keeps_what_others_ran(server):
    """It looks for the runs of the dead between those of live nodes."""
    add(server.ledger, "ours", "f", RULES)
    other = Server(server.url)
    other.weighs = False
    with psycopg.connect(server.url) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM tenure.run")
        other.has_run(MANY)
        other.ledger.request_runs([RunRequest("app", "ours", "last", None)])
        ((run, _),) = other.claim()
        assert server.ledger.reconcile(server.node, "app").lost == ()
        assert max(server.pages) < PAGES
        other.session.leave(other.node, "gone")
        assert [lost.id for lost in server.ledger.reconcile(server.node, "app").lost] == [run]
    other.session.close()


def test_what_was_claimed_in_time_is_not_looked_at_when_it_would_have_expired(server):
    """The dead entries of what expires, too."""
    add(server.ledger, "ours", "f", RULES)
    with psycopg.connect(server.url, autocommit=True) as connection, psycopg.connect(server.url) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM tenure.run")
        connection.execute(
            "INSERT INTO tenure.run (job, application, lane, generation, kind, key, scheduled_for, due_at, expires_at, state)"
            " SELECT j.id, j.application, j.lane, 1, 'due', 'k' || n, now() - interval '2 hours', now() - interval '2 hours',"
            " now() - interval '1 hour', 'pending' FROM tenure.job j, generate_series(1, %s) n WHERE j.name = 'ours'",
            [MANY],
        )
        connection.execute("UPDATE tenure.run SET state = 'succeeded'")  # as if each had been in time
        server.claim()
        server.pages.clear()
        for _ in range(3):
            assert server.claim() == []
            server.run(1)
    assert max(server.pages) < PAGES


@pytest.mark.parametrize("why", FOREIGN)
def test_what_a_node_may_not_begin_costs_its_claims_nothing_on_sqlite(sqlite_url, why):
    store = store_for(sqlite_url)
    store.prepare()
    session = store.session("test", timeout=60.0)
    ledger, node = session.ledger, str(uuid.uuid4())
    session.join(NodeCard(node, "a node", 600.0))
    add_foreign(ledger, why)
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as file, file:
        file.execute(
            "WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < ?)"
            " INSERT INTO tenure_run (job, application, lane, key, kind, state, generation, scheduled_for, due_at, expires_at)"
            " SELECT j.id, 'app', j.lane, 'k' || n, 'manual', 'pending', 1, n, n, 1e18 FROM number, tenure_job j WHERE j.name = 'theirs'",
            [MANY],
        )
    pause(ledger, why)
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1

    connection = ledger._connection  # type: ignore[attr-defined]
    connection.set_progress_handler(step, 1000)
    token = str(uuid.uuid4())
    request = ClaimRequest(node, "app", token, 10, ("f",), ("default",))
    assert ledger.claim(request).runs == ()
    ledger.request_runs([RunRequest("app", "ours", "one", None)])
    (run,) = ledger.claim(request).runs
    assert run.name == "ours"
    connection.set_progress_handler(None, 0)
    assert steps < STEPS
    session.close()
