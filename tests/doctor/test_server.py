"""A server and what stands before it: every finding is provoked on a real one."""

import io
import os
import re

import psycopg
import pytest

from doctor.examining import as_role, bad, execute, finding
from harness.components import need
from harness.pgbouncer import PgBouncer
from harness.scratch import eventually
from tenure import Election, doctor
from tenure.doctor.postgres import inspector, network, server
from tenure.stores import store_for
from tenure.util import clock


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

    def test_a_statement_pooler_is_a_problem_and_is_said_to_be_one(self, postgres, ready):
        need("pgbouncer")
        with PgBouncer(postgres, "statement") as bouncer:
            report = doctor.diagnose(bouncer.url(ready.rpartition("/")[2]))
        (found,) = [found for found in bad(report) if found.code == "connection"]
        assert found.severity == "problem"
        assert "Put the pooler into transaction or session mode" in found.do

    @pytest.mark.parametrize(
        ("mode", "words"), [("transaction", "transaction mode"), ("session", "no server connection")]
    )
    def test_a_pool_of_one_is_survived(self, postgres, ready, mode, words, monkeypatch):
        need("pgbouncer")
        monkeypatch.setattr(network, "POOL_TIMEOUT", 0.2)
        with PgBouncer(postgres, mode, pool_size=1) as bouncer:
            found = finding(bouncer.url(ready.rpartition("/")[2]), "pooler")
        assert found.severity == "warning"
        assert words in found.what

    def test_a_session_that_loses_its_lock_without_a_pooler_is_a_problem(self, ready, monkeypatch):
        """Something resets the session between two statements, as some proxies do."""
        usual = inspector.Inspector.plain

        def reset(self, connection, text, *values):
            rows = usual(self, connection, text, *values)
            if "pg_try_advisory_lock" in text:
                connection.execute("SELECT pg_advisory_unlock_all()")
            return rows

        monkeypatch.setattr(inspector.Inspector, "plain", reset)
        found = finding(ready, "session-lock")
        assert found.severity == "problem"
        assert "held by no process" in found.what

    @pytest.mark.parametrize(
        "scene", [(0.015, 0.5, "warning"), (0.055, 0.5, "problem"), (0.015, 10.0, "ok")], ids=lambda scene: scene[2]
    )
    def test_a_ttl_too_small_for_the_measured_latency(self, ready, proxy, scene, monkeypatch):
        delay, ttl, severity = scene
        monkeypatch.setattr(network, "SAMPLE_TIME", 0.3)
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

    def test_a_database_that_is_not_utf8(self, postgres):
        postgres.execute("CREATE DATABASE plain TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'")
        found = finding(postgres.url("plain"), "encoding")
        postgres.drop_database(postgres.url("plain"))
        assert found.severity == "problem"
        assert "encoded in SQL_ASCII" in found.what
        assert "ENCODING 'UTF8'" in found.do

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
