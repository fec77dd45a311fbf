"""Tables, rights, locks and sessions: every finding is provoked on a real server."""

import re
import threading
import uuid
from contextlib import contextmanager, suppress

import psycopg
import pytest

from doctor.examining import add_node, as_role, execute, finding, findings
from harness.scratch import eventually
from tenure import Election, Scheduler, doctor
from tenure.doctor.postgres import locks
from tenure.stores import store_for
from tenure.stores.postgres.advisory import lock_key


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
        execute(ready, f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA tenure TO {role}")
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

    def test_a_server_that_does_not_say_which_timeline_it_writes_serves_and_is_named(self, postgres, database, role):
        """Amazon Aurora refuses its WAL functions; here they are refused to the role that owns the schema."""
        postgres.execute(f"GRANT CREATE ON DATABASE {database.rpartition('/')[2]} TO {role}")
        execute(database, "REVOKE EXECUTE ON FUNCTION pg_walfile_name(pg_lsn) FROM PUBLIC")
        url, ran = as_role(database, role), threading.Event()
        with Election(url, "billing") as election:
            assert election.wait_until_leading(10)
        scheduler = Scheduler(url)

        @scheduler.every("1s")
        def tick(run):
            ran.set()

        with scheduler:
            assert ran.wait(10)
        assert execute(database, "SELECT timeline FROM tenure.epoch") == [(0,)]
        found = finding(url, "timeline")
        assert (found.severity, "Aurora" in found.do) == ("note", True)
        assert finding(url, "epoch").severity == "ok"

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
            f"session {pid} (role postgres, application 'shop', from 127.0.0.1) has been idle in its transaction"
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
                assert "has had a transaction open" in finding(ready, "blockers", ttl=0.5).what
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
        with psycopg.connect(ready, autocommit=True, application_name="tenure:heartbeat") as session:
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
        with psycopg.connect(ready, autocommit=True, application_name="tenure:heartbeat") as session:
            session.execute(self.LOCK, [node, 5])
            session.execute(self.LOCK, [other, 6])
            with psycopg.connect(ready, autocommit=True, application_name="shop") as stranger:
                stranger.execute("SELECT pg_advisory_lock(4242)")
                assert finding(ready, "zombie-sessions").severity == "ok"

    def test_a_lock_that_is_advertised_a_moment_later_is_no_zombie(self, ready, monkeypatch):
        node = add_node(ready)
        with psycopg.connect(ready, autocommit=True, application_name="tenure:heartbeat") as session:
            session.execute(self.LOCK, [node, 5])
            monkeypatch.setattr(
                locks, "sleep", lambda _: execute(ready, "UPDATE tenure.node SET session_nonce = 5 WHERE id = %s", node)
            )
            assert finding(ready, "zombie-sessions").severity == "ok"
