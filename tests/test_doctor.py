"""The doctor finds what is there, says what to do, changes nothing and always comes back. Every finding is provoked on a real store."""

import io
import json
import os
import re
import shutil
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from harness import scratch
from harness.components import need
from harness.pgbouncer import PgBouncer
from harness.postgres import Postgres
from harness.scratch import eventually
from tenure import Election, clock, doctor
from tenure.doctor import sqlite as sqlite_doctor
from tenure.doctor.postgres import between, desk, locks, server
from tenure.stores import filesystem, store_for
from tenure.stores.advisory import lock_key

DOCS = Path(__file__).resolve().parents[1] / "docs" / "how-to" / "doctor.md"


def findings(url, code, **options):
    return [finding for finding in doctor.examine(url, **options) if finding.code == code]


def finding(url, code, **options):
    (only,) = findings(url, code, **options)
    return only


def bad(report):
    return [found for found in report.findings if found.severity != "ok"]


@pytest.fixture
def ready(database):
    """A database with tenure's tables."""
    store_for(database).prepare()
    return database


@pytest.fixture
def role(postgres) -> Iterator[str]:
    """A role that may connect and nothing else."""
    name = f"role_{uuid.uuid4().hex[:8]}"
    postgres.execute(f"CREATE ROLE {name} LOGIN")
    yield name
    for (database,) in postgres.execute(
        "SELECT datname FROM pg_database WHERE datallowconn AND datname <> 'template0'"
    ):
        postgres.execute(f"DROP OWNED BY {name}", dbname=database)
    postgres.execute(f"DROP ROLE {name}")


@pytest.fixture(scope="module")
def two_phase() -> Iterator[Postgres]:
    """A server that allows two-phase commit and has few connections."""
    need("postgres")
    settings = {"max_prepared_transactions": "5", "max_connections": "20", "full_page_writes": "off"}
    with Postgres(settings=settings) as own:
        yield own


@pytest.fixture(scope="module")
def healthy() -> Iterator[Postgres]:
    """A server as it should be; the harness's own saves fsync."""
    need("postgres")
    with Postgres(fsync=True, settings={"autovacuum": "off"}) as own:
        yield own


def as_role(url, name):
    return url.replace("postgres@", f"{name}@")


def execute(url, text, *values):
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(text, values or None)
        return cursor.fetchall() if cursor.description else []


def add_node(url, *, label="web-1", state="alive", nonce=None, silent="0 s"):
    node = str(uuid.uuid4())
    execute(
        url,
        "INSERT INTO tenure.node (id, ttl, label, state, session_nonce, session_grace, renewed_at)"
        " VALUES (%s, 10, %s, %s, %s, 2, clock_timestamp() - %s::interval)",
        node,
        label,
        state,
        nonce,
        silent,
    )
    return node


class TestHealthyPostgres:
    def test_a_healthy_database_has_no_finding_and_says_what_was_checked(self, healthy):
        url = healthy.create_database()
        with Election(url, "billing", label="web-1") as election:
            assert election.wait_until_leading(10)
            report = doctor.diagnose(url)
            out = io.StringIO()
            assert doctor.run(url, out=out) == 0
        assert bad(report) == []
        postgres_codes = {"configuration", "deadline", "visibility"}  # those that are never fine
        sqlite_codes = {"file-system", "sqlite-version", "writable", "journal-mode", "evidence-directory", "writer"}
        sqlite_codes |= {"leftovers", "integrity"}
        assert {found.code for found in report.findings} == set(doctor.CODES) - postgres_codes - sqlite_codes
        assert "Everything is fine. What was checked:" in out.getvalue()

    def test_it_tells_who_leads_and_who_holds_the_session_lock(self, healthy):
        url = healthy.create_database()
        with Election(url, "billing", label="web-1") as election:
            term = election.wait_until_leading(10)
            # The first beat may not yet have told the session's lock.
            eventually(lambda: doctor.diagnose(url).holders[0].session, what="the session's lock advertised")
            report = doctor.diagnose(url)
            leader = election.leader()
        (holder,) = report.holders
        assert (holder.election, holder.term, holder.label, holder.node) == (
            "billing",
            term.number,
            "web-1",
            leader.node,
        )
        assert (holder.since, holder.healthy, holder.state, holder.process) == (
            leader.since,
            True,
            "alive",
            os.getpid(),
        )
        assert holder.client == "127.0.0.1"
        (lock,) = [lock for lock in report.locks if "session lock" in lock.target]
        assert lock.pid == holder.session
        assert "web-1" in lock.target

    def test_it_changes_nothing(self, healthy):
        url = healthy.create_database()
        empty = "SELECT count(*) FROM pg_namespace WHERE nspname = 'tenure'"
        doctor.examine(url)
        assert execute(url, empty) == [(0,)], "no migration"
        store_for(url).prepare()
        execute(url, "ALTER SYSTEM RESET ALL")
        next_transaction = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"
        advisory = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
        before = execute(url, next_transaction)
        doctor.examine(url)
        assert execute(url, next_transaction) == before, "whoever writes takes a transaction id"
        assert execute(url, advisory) == [(0,)]


class TestBetween:
    def test_a_transaction_pooler_is_told_from_two_clients_on_one_server_process(self, ready, pgbouncer):
        url = pgbouncer.url(ready.rpartition("/")[2])
        found = finding(url, "pooler")
        assert found.severity == "warning"
        assert "transaction mode" in found.what
        assert re.search(r"server process \d+", found.what)

    def test_through_a_transaction_pooler_sessions_lose_their_locks_and_none_is_left_behind(self, ready, pgbouncer):
        found = finding(pgbouncer.url(ready.rpartition("/")[2]), "session-lock")
        assert found.severity == "warning"
        assert "lose their locks" in found.what
        assert execute(
            ready,
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = "
            "(SELECT oid FROM pg_database WHERE datname = current_database())",
        ) == [(0,)]

    def test_a_session_pooler_is_noted_and_keeps_locks(self, postgres, ready):
        need("pgbouncer")
        with PgBouncer(postgres, "session") as bouncer:
            report = doctor.diagnose(bouncer.url(ready.rpartition("/")[2]))
        told = {found.code: found for found in report.findings}
        assert told["pooler"].severity == "note"
        assert "session mode" in told["pooler"].what
        assert told["session-lock"].severity == "ok"

    @pytest.mark.parametrize(
        ("mode", "words"), [("transaction", "transaction mode"), ("session", "no server connection")]
    )
    def test_a_pool_of_one_is_survived(self, postgres, ready, mode, words, monkeypatch):
        need("pgbouncer")
        monkeypatch.setattr(between, "POOL_PATIENCE", 0.2)
        with PgBouncer(postgres, mode, pool_size=1) as bouncer:
            found = finding(bouncer.url(ready.rpartition("/")[2]), "pooler")
        assert found.severity == "warning"
        assert words in found.what

    def test_a_session_that_loses_its_lock_without_a_pooler_is_a_problem(self, ready, monkeypatch):
        """Something resets the session between two statements, as some proxies do."""
        usual = desk.Desk.plain

        def reset(self, connection, text, *values):
            rows = usual(self, connection, text, *values)
            if "pg_try_advisory_lock" in text:
                connection.execute("SELECT pg_advisory_unlock_all()")
            return rows

        monkeypatch.setattr(desk.Desk, "plain", reset)
        found = finding(ready, "session-lock")
        assert found.severity == "problem"
        assert "held by nobody" in found.what

    @pytest.mark.parametrize(
        "scene", [(0.015, 0.5, "warning"), (0.055, 0.5, "problem"), (0.015, 10.0, "ok")], ids=lambda scene: scene[2]
    )
    def test_a_ttl_too_small_for_the_measured_latency(self, ready, proxy, scene, monkeypatch):
        delay, ttl, severity = scene
        monkeypatch.setattr(between, "SAMPLE_TIME", 0.3)
        proxy.delay(delay)
        found = finding(proxy.url(ready.rpartition("/")[2]), "latency", ttl=ttl)
        assert found.severity == severity
        assert f"attempt_timeout = {'100 ms' if ttl == 0.5 else '2.0 s'}" in found.what
        if severity != "ok":
            wanted = float(re.search(r"ttl=(\d+)", found.do)[1])
            assert wanted / 5 >= 4 * 2 * delay, "a beat takes a quarter of attempt_timeout, which is a fifth of the ttl"


class TestServer:
    def test_a_standby_is_a_problem_and_the_rest_is_still_looked_at(self, own_postgres):
        url = own_postgres.create_database()
        store_for(url).prepare()
        standby = own_postgres.replica()
        try:
            there = standby.url(url.rpartition("/")[2])
            eventually(lambda: execute(there, "SELECT to_regclass('tenure.node')") != [(None,)], what="replicated")
            report = doctor.diagnose(there)
        finally:
            standby.close()
        told = {found.code: found for found in report.findings}
        assert told["read-only"].severity == "problem"
        assert "recovery" in told["read-only"].what
        assert "target_session_attrs=read-write" in told["read-only"].do
        assert told["schema"].severity == "ok"
        assert "the epoch" in told["visibility"].what
        assert report.exit_code == 1

    def test_read_only_transactions_by_the_databases_settings(self, ready):
        execute(ready, f"ALTER DATABASE {ready.rpartition('/')[2]} SET default_transaction_read_only = on")
        found = finding(ready, "read-only")
        assert found.severity == "problem"
        assert "ALTER DATABASE" in found.what

    @pytest.mark.parametrize("source", ["role", "database", "url"])
    def test_synchronous_commit_off_and_where_it_comes_from(self, postgres, ready, role, source):
        url, words = as_role(ready, role), {"role": "ALTER ROLE", "database": "ALTER DATABASE", "url": "options"}
        if source == "role":
            postgres.execute(f"ALTER ROLE {role} SET synchronous_commit = off")
        elif source == "database":
            postgres.execute(f"ALTER DATABASE {ready.rpartition('/')[2]} SET synchronous_commit = off")
        else:
            url += "?options=-csynchronous_commit%3Doff"
        found = finding(url, "synchronous-commit")
        assert found.severity == "warning"
        assert words[source] in found.what

    def test_fsync_and_full_page_writes_off(self, two_phase):
        found = finding(two_phase.url(), "durability")
        assert found.severity == "problem"
        assert "fsync and full_page_writes are off" in found.what

    @pytest.mark.parametrize(("oldest", "newest", "severity"), [(99, 99, "problem"), (14, 14, "note")])
    def test_server_versions_outside_of_what_was_tested(self, database, monkeypatch, oldest, newest, severity):
        monkeypatch.setattr(server, "OLDEST", oldest)
        monkeypatch.setattr(server, "NEWEST", newest)
        assert finding(database, "server-version").severity == severity

    def test_every_supported_version_is_understood(self, each_postgres):
        url = each_postgres.create_database()
        try:
            store_for(url).prepare()
            assert {found.code for found in bad(doctor.diagnose(url))} == {"durability"}, "the harness saves fsync"
        finally:
            each_postgres.drop_database(url)

    def test_connection_slots_nearly_full(self, two_phase):
        url = two_phase.url()
        assert finding(url, "slots").severity == "ok"
        crowd = [psycopg.connect(url) for _ in range(15)]
        try:
            eventually(lambda: finding(url, "slots").severity == "warning", what="all counted")
            assert re.search(r"1[4-9] of 20 connections", finding(url, "slots").what)
        finally:
            for connection in crowd:
                connection.close()

    def test_a_roles_own_limit_nearly_full(self, postgres, ready, role):
        postgres.execute(f"ALTER ROLE {role} CONNECTION LIMIT 4")
        found = finding(as_role(ready, role), "slots")
        assert found.severity == "warning"
        assert f"of the 4 of role {role}" in found.what

    def test_a_full_role_is_unreachable_and_told_why(self, postgres, ready, role):
        postgres.execute(f"ALTER ROLE {role} CONNECTION LIMIT 0")
        out = io.StringIO()
        assert doctor.run(as_role(ready, role), out=out) == 3
        assert "CONNECTION LIMIT" in out.getvalue()

    def test_clocks_that_differ_are_noted_and_harmless(self, database, monkeypatch):
        from datetime import timedelta

        monkeypatch.setattr(server, "walltime", lambda: clock.walltime() + timedelta(hours=2))
        found = finding(database, "clock")
        assert (found.severity, "2 h behind" in found.what) == ("note", True)


class TestSchemaAndRights:
    def test_a_missing_schema(self, database, role):
        assert finding(database, "schema").severity == "warning", "this role can create it by starting a node"
        found = finding(as_role(database, role), "schema")
        assert found.severity == "problem"
        assert "may not create it" in found.what

    def test_an_outdated_schema_and_one_too_new(self, ready):
        execute(ready, "UPDATE tenure.schema_version SET version = 0")
        found = finding(ready, "schema")
        assert (found.severity, "version 0" in found.what, "migrate" in found.do) == ("problem", True, True)
        execute(ready, "UPDATE tenure.schema_version SET version = 900, oldest = 900")
        found = finding(ready, "schema")
        assert (found.severity, "900" in found.what, "Upgrade" in found.do) == ("problem", True, True)

    def test_a_schema_without_our_tables(self, database):
        execute(database, "CREATE SCHEMA tenure")
        found = finding(database, "schema")
        assert (found.severity, "no tables" in found.what) == ("problem", True)

    def test_unlogged_tables(self, ready):
        execute(ready, "ALTER TABLE tenure.election SET UNLOGGED")
        found = finding(ready, "unlogged")
        assert found.severity == "problem"
        assert found.do.endswith("ALTER TABLE tenure.election SET LOGGED;")
        execute(ready, found.do.partition(": ")[2])
        assert finding(ready, "unlogged").severity == "ok"

    def test_the_grants_it_prints_are_what_a_node_needs(self, ready, role):
        execute(ready, "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA tenure FROM PUBLIC")
        url = as_role(ready, role)
        found = finding(url, "privileges")
        assert found.severity == "problem"
        assert f"role {role} lacks USAGE on schema tenure" in found.what
        for grant in found.do.splitlines()[1:]:
            assert grant.startswith("GRANT ")
            execute(ready, grant)
        assert finding(url, "privileges").severity == "ok"
        with Election(url, "billing") as election:
            assert election.wait_until_leading(10), "and a node runs with them"

    def test_only_what_is_missing_is_asked_for(self, ready, role):
        execute(ready, f"GRANT USAGE ON SCHEMA tenure TO {role}")
        execute(ready, f"GRANT ALL ON ALL TABLES IN SCHEMA tenure TO {role}")
        execute(ready, f"REVOKE INSERT, UPDATE ON tenure.election FROM {role}")
        found = finding(as_role(ready, role), "privileges")
        assert found.do.splitlines()[1:] == [f'GRANT INSERT, UPDATE ON tenure.election TO "{role}";']
        assert "It may fence" in found.what

    def test_a_weak_role_is_told_what_it_could_not_see(self, ready, role):
        told = " ".join(found.what for found in findings(as_role(ready, role), "visibility"))
        assert "the contents of tenure's tables" in told
        assert "sessions of other roles" in told

    def test_an_epoch_that_is_not_settled(self, ready):
        execute(ready, "UPDATE tenure.epoch SET timeline = -1")
        found = finding(ready, "epoch")
        assert found.severity == "problem"
        assert "timeline -1 instead of 1" in found.what

    def test_a_silent_node_and_what_it_leads(self, ready):
        node = add_node(ready, label="web-7", silent="90 s")
        execute(
            ready,
            "INSERT INTO tenure.election (name, term, holder, state, granted_at) VALUES ('billing', 41, %s, 'held', now())",
            node,
        )
        report = doctor.diagnose(ready)
        (found,) = [found for found in report.findings if found.code == "silent-nodes"]
        assert found.severity == "warning"
        assert "'web-7'" in found.what
        assert "silent for 1 min 30 s" in found.what
        assert "still leads 'billing'" in found.what
        (holder,) = report.holders
        assert (holder.term, holder.healthy, holder.state) == (41, False, "silent for 1 min 30 s")

    def test_another_schema_is_looked_at_when_it_is_named(self, database):
        store_for(database, schema="other").prepare()
        assert "no schema tenure" in finding(database, "schema").what
        assert finding(database, "schema", schema="other").severity == "ok"


class TestLocks:
    @contextmanager
    def holding(self, url, text="SELECT FROM tenure.election FOR UPDATE", application="shop"):
        execute(url, "INSERT INTO tenure.election (name) VALUES ('billing') ON CONFLICT DO NOTHING")
        with psycopg.connect(url, application_name=application) as connection:
            connection.execute(text)
            yield connection, connection.info.backend_pid
            if not connection.closed:
                connection.rollback()

    def test_an_idle_transaction_with_a_row_of_ours(self, ready, monkeypatch):
        monkeypatch.setattr(locks, "IDLE", 0.0)
        with self.holding(ready, "SELECT 'secret' FROM tenure.election FOR UPDATE") as (_, pid):
            report = doctor.diagnose(ready)
        (found,) = [found for found in report.findings if found.code == "blockers"]
        assert found.severity == "warning"
        assert (
            f"session {pid} (role postgres, application 'shop', from 127.0.0.1) is idle in its transaction"
            in found.what
        )
        assert "RowShareLock on tenure.election" in found.what
        assert "secret" not in found.what
        assert f"pg_terminate_backend({pid})" in found.do
        lock = next(lock for lock in report.locks if lock.target == "tenure.election")
        assert (lock.pid, lock.application, lock.granted) == (pid, "shop", True)

    def test_a_transaction_that_has_just_begun_is_nobodys_fault(self, ready):
        with self.holding(ready):
            assert finding(ready, "blockers").severity == "ok"

    def test_an_idle_reader_is_only_noted(self, ready, monkeypatch):
        monkeypatch.setattr(locks, "IDLE", 0.0)
        with self.holding(ready, "SELECT FROM tenure.election"):
            assert finding(ready, "blockers").severity == "note"

    def test_a_table_lock_is_a_problem_and_does_not_hold_up_the_doctor(self, ready, monkeypatch):
        monkeypatch.setattr(locks, "IDLE", 0.0)
        with self.holding(ready, "LOCK TABLE tenure.node"):
            report = doctor.diagnose(ready)
        told = {found.code: found for found in report.findings}
        assert told["blockers"].severity == "problem"
        assert "AccessExclusiveLock on tenure.node" in told["blockers"].what
        assert "lock timeout" in told["visibility"].what, "what could not be read is said"

    def test_somebody_who_waits_makes_it_a_problem(self, ready):
        with self.holding(ready) as (blocker, blocking), psycopg.connect(ready, application_name="tenure:x") as waiter:
            pid = waiter.info.backend_pid
            waiting = threading.Thread(target=waiter.execute, args=["UPDATE tenure.election SET term = term"])
            waiting.start()
            try:
                eventually(
                    lambda: execute(ready, "SELECT 1 FROM pg_locks WHERE pid = %s AND NOT granted", pid),
                    what="one waits",
                )
                report = doctor.diagnose(ready)
            finally:
                blocker.rollback()
                waiting.join()
        (found,) = [found for found in report.findings if found.code == "blockers"]
        assert found.severity == "problem"
        assert f"session {blocking} " in found.what
        assert f"session {pid} (tenure:x) waits for it" in found.what
        assert [(lock.pid, lock.waits_for) for lock in report.locks if not lock.granted] == [(pid, (blocking,))]

    def test_a_long_transaction_that_works(self, ready):
        def work(connection):
            with suppress(psycopg.errors.QueryCanceled):
                connection.execute("SELECT pg_sleep(30)")

        with self.holding(ready) as (connection, _):
            working = threading.Thread(target=work, args=[connection])
            working.start()
            try:
                eventually(lambda: finding(ready, "blockers", ttl=0.5).severity == "warning", what="older than a ttl")
                assert "has a transaction open" in finding(ready, "blockers", ttl=0.5).what
                assert finding(ready, "blockers", ttl=30).severity == "ok"
            finally:
                connection.cancel()
                working.join()

    def test_a_weak_role_still_learns_who_holds_something(self, ready, role):
        with self.holding(ready) as (_, pid):
            found = finding(as_role(ready, role), "blockers")
        assert found.severity == "note"
        assert f"session {pid}" in found.what

    def test_a_prepared_transaction_with_a_fence(self, two_phase):
        url = two_phase.create_database()
        store_for(url).prepare()
        node = add_node(url)
        execute(url, "INSERT INTO tenure.election (name, term, holder, state) VALUES ('billing', 7, %s, 'held')", node)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("BEGIN")
            connection.execute("SELECT tenure.fence('billing', 7, %s)", [node])
            connection.execute("PREPARE TRANSACTION 'pay''d'")
            connection.execute("BEGIN")
            connection.execute("CREATE TABLE other ()")
            connection.execute("PREPARE TRANSACTION 'other'")
        report = doctor.diagnose(url)
        ours, other = [found for found in report.findings if found.code == "prepared-transactions"]
        assert (ours.severity, other.severity) == ("problem", "note")
        assert "RowShareLock on tenure.election" in ours.what
        assert "prepared by postgres at" in ours.what
        (lock,) = [lock for lock in report.locks if lock.target == "tenure.election"]
        assert (lock.pid, "pay" in lock.application) == (None, True)
        execute(url, re.search(r"ROLLBACK PREPARED '.*'(?=\.$)", ours.do)[0])
        execute(url, "ROLLBACK PREPARED 'other'")
        assert finding(url, "prepared-transactions").severity == "ok"

    def test_two_phase_commit_is_noted(self, two_phase):
        found = finding(two_phase.url(), "two-phase")
        assert (found.severity, "max_prepared_transactions is 5" in found.what) == ("note", True)


class TestZombies:
    LOCK = "SELECT pg_advisory_lock(tenure.session_key(%s, %s))"

    @pytest.fixture(autouse=True)
    def look_again_soon(self, monkeypatch):
        monkeypatch.setattr(locks, "SECOND_LOOK", 0.01)

    def test_a_session_lock_of_a_dead_node(self, ready):
        node = add_node(ready, label="web-3", state="dead", nonce=5)
        with psycopg.connect(ready, autocommit=True, application_name="forgotten") as session:
            session.execute(self.LOCK, [node, 5])
            found = finding(ready, "zombie-sessions")
            pid = session.info.backend_pid
        assert found.severity == "warning"
        assert f"session {pid} (role postgres, application 'forgotten', from 127.0.0.1" in found.what
        assert "session lock of node 'web-3', and node 'web-3' is dead" in found.what
        assert f"pg_terminate_backend({pid})" in found.do

    def test_a_session_of_ours_whose_lock_belongs_to_no_node(self, ready):
        with psycopg.connect(ready, autocommit=True, application_name="tenure:pacemaker") as session:
            session.execute(self.LOCK, [str(uuid.uuid4()), 5])
            found = finding(ready, "zombie-sessions")
        assert (found.severity, "no live node is behind it" in found.what) == ("warning", True)

    def test_the_lock_of_an_election_in_the_hand_of_a_stranger(self, ready):
        execute(ready, "INSERT INTO tenure.election (name, mode) VALUES ('billing', 'advisory')")
        with psycopg.connect(ready, autocommit=True, application_name="psql") as session:
            session.execute("SELECT pg_advisory_lock(%s)", [lock_key("tenure", "billing")])
            found = finding(ready, "zombie-sessions")
        assert (found.severity, "lock of election 'billing'" in found.what) == ("warning", True)

    def test_a_leader_in_advisory_mode_is_no_zombie(self, ready):
        with Election(ready, "billing", mode="advisory", label="web-9") as election:
            assert election.wait_until_leading(10)
            report = doctor.diagnose(ready)
        assert [found.severity for found in report.findings if found.code == "zombie-sessions"] == ["ok"]
        assert {"lock of election 'billing'", "session lock of node 'web-9'"} == {lock.target for lock in report.locks}
        assert report.holders[0].mode == "advisory"

    def test_locks_of_live_nodes_and_of_strangers_are_left_alone(self, ready):
        node = add_node(ready, nonce=5)
        store_for(ready, schema="other").prepare()
        other = str(uuid.uuid4())
        execute(ready, "INSERT INTO other.node (id, ttl, label, session_nonce) VALUES (%s, 10, 'x', 6)", other)
        with psycopg.connect(ready, autocommit=True, application_name="tenure:pacemaker") as session:
            session.execute(self.LOCK, [node, 5])
            session.execute(self.LOCK, [other, 6])
            with psycopg.connect(ready, autocommit=True, application_name="shop") as stranger:
                stranger.execute("SELECT pg_advisory_lock(4242)")
                assert finding(ready, "zombie-sessions").severity == "ok"

    def test_a_lock_that_is_advertised_a_moment_later_is_no_zombie(self, ready, monkeypatch):
        node = add_node(ready)
        with psycopg.connect(ready, autocommit=True, application_name="tenure:pacemaker") as session:
            session.execute(self.LOCK, [node, 5])
            monkeypatch.setattr(
                locks, "sleep", lambda _: execute(ready, "UPDATE tenure.node SET session_nonce = 5 WHERE id = %s", node)
            )
            assert finding(ready, "zombie-sessions").severity == "ok"


class TestItAlwaysComesBack:
    def test_a_closed_port(self):
        report = doctor.diagnose(f"postgresql://u@127.0.0.1:{scratch.free_port()}/x")
        (found,) = report.findings
        assert (found.code, found.severity, report.exit_code) == ("connection", "problem", 3)

    def test_a_network_that_swallows_everything(self, ready, proxy, monkeypatch):
        monkeypatch.setattr(desk, "CONNECT_TIMEOUT", 2)
        proxy.black_hole()
        began = time.monotonic()
        assert doctor.run(proxy.url(ready.rpartition("/")[2]), out=io.StringIO()) == 3
        assert time.monotonic() - began < 5

    def test_a_server_that_freezes_during_the_examination(self, ready, proxy, monkeypatch):
        monkeypatch.setattr(desk, "ANSWER_TIMEOUT", 0.3)
        monkeypatch.setattr(server, "clock", lambda _: proxy.black_hole())
        monkeypatch.setattr(desk, "CONNECT_TIMEOUT", 2)
        report = doctor.diagnose(proxy.url(ready.rpartition("/")[2]))
        assert report.exit_code == 3
        assert any("stopped answering" in found.what for found in report.findings)
        assert "server-version" in {found.code for found in report.findings}, "what was seen before is told"

    def test_whatever_hangs_the_whole_has_a_deadline(self, sqlite_url, monkeypatch):
        release = threading.Event()
        monkeypatch.setattr(doctor, "DEADLINE", 0.1)
        monkeypatch.setattr(filesystem, "type_number", lambda _: release.wait(10))
        report = doctor.diagnose(sqlite_url)
        release.set()
        assert (report.findings[0].code, report.exit_code) == ("deadline", 3)

    def test_a_bug_of_its_own_is_told(self, sqlite_url, monkeypatch):
        monkeypatch.setattr(sqlite_doctor, "examine", lambda *_: 1 / 0)
        (found,) = doctor.examine(sqlite_url)
        assert (found.code, "ZeroDivisionError" in found.what) == ("deadline", True)

    @pytest.mark.parametrize(
        ("url", "options", "words"),
        [
            ("postgresql://u:***@h/x", {}, "masked"),
            ("mysql://h/x", {}, "mysql"),
            ("postgresql://h/x", {"schema": "Bad-Name"}, "schema"),
            ("memory://", {"ttl": 100}, "ttl"),
            ("postgresql://h/x?nonsense=1", {}, "nonsense"),
        ],
    )
    def test_what_was_written_wrongly_is_a_finding(self, url, options, words):
        (found,) = doctor.examine(url, **options)
        assert (found.code, found.severity, words in found.what) == ("configuration", "problem", True)
        assert doctor.run(url, out=io.StringIO(), **options) == 1

    def test_the_url_may_come_from_the_environment(self, sqlite_url, monkeypatch):
        monkeypatch.setenv("TENURE_URL", sqlite_url)
        assert doctor.diagnose().store == sqlite_url
        assert [found.severity for found in doctor.examine("memory://")] == ["ok"]


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Root may do everything; the tests of rights must not run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


class TestSqlite:
    @pytest.fixture
    def path(self, sqlite_url):
        store_for(sqlite_url).prepare()
        return Path(sqlite_url.removeprefix("sqlite:///"))

    @pytest.fixture
    def open_folder(self) -> Path:
        """A folder that an ordinary user can reach, owned by that user."""
        return scratch.new_folder("doctor")

    def write(self, path, text, *values):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(text, values)

    def add_node(self, path, label="web-1", *, state="alive"):
        """A node whose process is gone: its file is there, its lock is free."""
        from dataclasses import asdict

        from tenure.evidence import LockFile

        node = str(uuid.uuid4())
        lock = LockFile(path.with_name(path.name + "-tenure"), node)
        card = json.dumps(asdict(lock.card()))
        self.write(
            path,
            "INSERT INTO tenure_node (id, ttl, label, state, joined_at, host) VALUES (?, 10, ?, ?, 0, ?)",
            node,
            label,
            state,
            card,
        )
        return node, lock

    def test_a_healthy_file_has_no_finding(self, sqlite_url):
        with Election(sqlite_url, "billing", label="web-1") as election:
            term = election.wait_until_leading(10)
            report = doctor.diagnose(sqlite_url)
        assert bad(report) == []
        wanted = {
            "connection",
            "schema",
            "epoch",
            "silent-nodes",
            "file-system",
            "sqlite-version",
            "writable",
            "writer",
        }
        wanted |= {"journal-mode", "evidence-directory", "leftovers", "integrity"}
        assert {found.code for found in report.findings} == wanted
        (holder,) = report.holders
        assert (holder.election, holder.term, holder.label) == ("billing", term.number, "web-1")
        assert (holder.healthy, holder.state, holder.process) == (True, "alive", os.getpid())

    def test_it_changes_nothing(self, path):
        before = {entry.name: entry.stat().st_mtime_ns for entry in path.parent.iterdir() if entry.is_file()}
        doctor.examine(f"sqlite:///{path}")
        assert {entry.name: entry.stat().st_mtime_ns for entry in path.parent.iterdir() if entry.is_file()} == before

    def test_a_file_that_is_not_there_is_not_made(self, tmp_path):
        report = doctor.diagnose(f"sqlite:///{tmp_path}/new.db")
        (found,) = bad(report)
        assert (found.code, found.severity, report.exit_code) == ("schema", "warning", 1)
        assert list(tmp_path.iterdir()) == []

    def test_a_folder_that_is_not_there(self, tmp_path):
        report = doctor.diagnose(f"sqlite:///{tmp_path}/nowhere/new.db")
        assert [(found.code, found.severity) for found in bad(report)] == [("connection", "problem")]
        assert report.exit_code == 3

    def test_something_else_than_a_database(self, tmp_path):
        (tmp_path / "notes.db").write_text("no database, " * 100)
        report = doctor.diagnose(f"sqlite:///{tmp_path}/notes.db")
        assert [(found.code, found.severity) for found in bad(report)] == [("connection", "problem")]
        assert report.exit_code == 3

    @pytest.mark.parametrize(("number", "severity"), [(0x6969, "problem"), (None, "note"), (0xEF53, "ok")])
    def test_the_file_system(self, path, monkeypatch, number, severity):
        monkeypatch.setattr(filesystem, "type_number", lambda _: number)
        found = finding(f"sqlite:///{path}", "file-system")
        assert found.severity == severity
        assert ("NFS" in found.what) == (severity == "problem")

    def test_an_old_sqlite(self, path, monkeypatch):
        monkeypatch.setattr(sqlite_doctor, "OLDEST_SQLITE", (99, 0, 0))
        assert finding(f"sqlite:///{path}", "sqlite-version").severity == "problem"

    def test_another_journal_mode(self, path):
        self.write(path, "PRAGMA journal_mode = DELETE")
        found = finding(f"sqlite:///{path}", "journal-mode")
        assert (found.severity, "'delete'" in found.what) == ("warning", True)
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",), "it is told, not changed"

    @pytest.mark.parametrize("what", ["file", "folder"])
    def test_what_may_not_be_written(self, open_folder, what):
        path = open_folder / "tenure.db"
        store_for(f"sqlite:///{path}").prepare()
        if os.geteuid() == 0:
            scratch.give(path)
        target = path if what == "file" else open_folder
        target.chmod(0o444 if what == "file" else 0o555)
        try:
            with ordinary_user():
                found = findings(f"sqlite:///{path}", "writable")
        finally:
            target.chmod(0o755)
        assert [(one.severity, str(target) in one.what) for one in found] == [("problem", True)]

    def test_a_missing_evidence_directory(self, path):
        directory = path.with_name(path.name + "-tenure")
        shutil.rmtree(directory)
        assert finding(f"sqlite:///{path}", "evidence-directory").severity == "ok", "no node needs it yet"
        directory.mkdir()
        _, lock = self.add_node(path)
        lock.remove()
        shutil.rmtree(directory)
        found = finding(f"sqlite:///{path}", "evidence-directory")
        assert (found.severity, "missing" in found.what) == ("problem", True)
        assert "without a lock file" in finding(f"sqlite:///{path}", "silent-nodes").what

    def test_an_evidence_directory_that_cannot_be_entered(self, open_folder):
        path = open_folder / "tenure.db"
        store_for(f"sqlite:///{path}").prepare()
        if os.geteuid() == 0:
            for entry in open_folder.iterdir():
                scratch.give(entry)
        directory = path.with_name(path.name + "-tenure")
        directory.chmod(0)
        try:
            with ordinary_user():
                found = finding(f"sqlite:///{path}", "evidence-directory")
        finally:
            directory.chmod(0o755)
        assert (found.severity, str(directory) in found.what) == ("problem", True)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
    def test_an_evidence_directory_of_somebody_else(self, path):
        os.chown(path.with_name(path.name + "-tenure"), 12345, -1)
        found = finding(f"sqlite:///{path}", "evidence-directory")
        assert (found.severity, "user 12345" in found.what) == ("warning", True)

    def test_tables_missing_outdated_and_too_new(self, path):
        url = f"sqlite:///{path}"
        self.write(path, "UPDATE tenure_schema_version SET version = 0")
        assert (finding(url, "schema").severity, "version 0" in finding(url, "schema").what) == ("problem", True)
        self.write(path, "UPDATE tenure_schema_version SET version = 900, oldest = 900")
        assert (finding(url, "schema").severity, "Upgrade" in finding(url, "schema").do) == ("problem", True)
        self.write(path, "DROP TABLE tenure_schema_version")
        assert (finding(url, "schema").severity, "no tables" in finding(url, "schema").what) == ("warning", True)

    def test_a_transaction_that_keeps_writing_and_its_process(self, path, monkeypatch):
        monkeypatch.setattr(sqlite_doctor, "PATIENCE", 0.05)
        need_proc = Path("/proc/locks").exists()
        with closing(sqlite3.connect(path, isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            found = finding(f"sqlite:///{path}", "writer")
            writer.execute("ROLLBACK")
        assert found.severity == "warning"
        assert f"process {os.getpid()}" in found.what or not need_proc
        assert finding(f"sqlite:///{path}", "writer").severity == "ok"

    def test_a_copy_of_the_file_is_not_settled(self, path):
        copy = path.with_name("copy.db")
        shutil.copy(path, copy)
        found = finding(f"sqlite:///{copy}", "epoch")
        assert (found.severity, str(copy.stat().st_ino) in found.what) == ("problem", True)
        self.write(path, "DELETE FROM tenure_epoch")
        assert finding(f"sqlite:///{path}", "epoch").severity == "note"

    def test_a_node_whose_lock_is_free(self, path):
        node, lock = self.add_node(path)
        self.write(
            path, "INSERT INTO tenure_election (name, term, holder, state) VALUES ('billing', 7, ?, 'held')", node
        )
        assert doctor.diagnose(f"sqlite:///{path}").holders[0].state == "alive", "this process still has its lock"
        os.close(lock.fileno())
        report = doctor.diagnose(f"sqlite:///{path}")
        (found,) = [found for found in report.findings if found.code == "silent-nodes"]
        assert (found.severity, "proved dead" in found.what) == ("warning", True)
        assert (report.holders[0].healthy, report.holders[0].state) == (False, "proved dead (its lock is free)")

    def test_a_silent_node(self, path):
        _, lock = self.add_node(path)
        past = time.time() - 90
        os.utime(lock.path, (past, past))
        found = finding(f"sqlite:///{path}", "silent-nodes")
        lock.remove()
        assert (found.severity, "silent for 1 min" in found.what) == ("warning", True)

    def test_files_that_dead_nodes_left(self, path):
        node, lock = self.add_node(path, state="dead")
        found = finding(f"sqlite:///{path}", "leftovers")
        lock.remove()
        assert (found.severity, f"{node}.lock" in found.what) == ("note", True)

    def test_a_broken_file(self, path):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("CREATE TABLE big (x)")
            connection.executemany("INSERT INTO big VALUES (?)", [("y" * 500,) for _ in range(500)])
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with path.open("r+b") as file:
            file.seek(path.stat().st_size - 4096 * 8)
            file.write(b"\xff" * 4096 * 2)
        report = doctor.diagnose(f"sqlite:///{path}")
        (found,) = [found for found in report.findings if found.code == "integrity"]
        assert (found.severity, report.exit_code) == ("problem", 1)

    def test_a_large_file_is_not_read_from_end_to_end(self, path, monkeypatch):
        monkeypatch.setattr(sqlite_doctor, "SMALL", 10)
        assert "not checked" in finding(f"sqlite:///{path}", "integrity").what
        monkeypatch.undo()
        monkeypatch.setattr(sqlite_doctor, "LONGEST", -1.0)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("CREATE TABLE big (x)")
            connection.executemany("INSERT INTO big VALUES (?)", [(n,) for n in range(20_000)])
        assert finding(f"sqlite:///{path}", "integrity").severity == "note"


class Terminal(io.StringIO):
    def isatty(self):
        return True


class TestWhatItPrints:
    def test_problems_come_first_with_why_and_what_to_do(self, tmp_path):
        out = io.StringIO()
        assert doctor.run(f"sqlite:///{tmp_path}/nowhere/x.db", out=out) == 3
        text = out.getvalue()
        assert text.index("Problems") < text.index("Fine")
        assert "why: Without the store no term is granted" in text
        assert "do:  Create it" in text
        assert "1 problem, 1 check fine. The store could not be examined to the end." in text

    def test_colour_only_on_a_terminal_and_not_against_the_users_wish(self, tmp_path, monkeypatch):
        url = f"sqlite:///{tmp_path}/x.db"
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setenv("TERM", "xterm")
        plain, terminal, wished = io.StringIO(), Terminal(), Terminal()
        doctor.run(url, out=plain)
        doctor.run(url, out=terminal)
        monkeypatch.setenv("NO_COLOR", "1")
        doctor.run(url, out=wished)
        assert "\033[" in terminal.getvalue()
        assert "\033[" not in plain.getvalue() + wished.getvalue()

    def test_json_has_everything(self, sqlite_url):
        out = io.StringIO()
        with Election(sqlite_url, "billing") as election:
            election.wait_until_leading(10)
            assert doctor.run(sqlite_url, as_json=True, out=out) == 0
        whole = json.loads(out.getvalue())
        assert set(whole) == {"store", "server", "reachable", "exit", "findings", "holders", "locks"}
        assert set(whole["findings"][0]) == {"code", "severity", "what", "why", "do"}
        assert whole["holders"][0]["election"] == "billing"

    def test_the_how_to_page_has_every_code(self):
        text = DOCS.read_text(encoding="utf-8")
        assert set(re.findall(r"^\| `([a-z-]+)` \|", text, flags=re.MULTILINE)) == set(doctor.CODES)
