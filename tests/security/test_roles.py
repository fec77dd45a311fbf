"""Roles that own nothing: with exactly what `tenure migrate --grants` prints everything works, and nothing more is
allowed."""

import re
import subprocess
import sys
import threading
import uuid

import psycopg
import pytest
from psycopg import errors as pg
from psycopg import sql

from harness.scratch import eventually
from security import battery
from tenure import Election, Scheduler, doctor
from tenure.errors import ConfigurationError, StaleTerm, StoreError
from tenure.stores import store_for
from tenure.stores.postgres import roles
from tenure.stores.postgres import schema as postgres_schema
from tenure.stores.postgres.advisory import lock_key

RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")
LINES = [line for line in roles.grants("tenure", "nobody").splitlines() if line.startswith("GRANT")]


@pytest.fixture
def owned(database):
    """A database whose tables belong to somebody else."""
    store_for(database).prepare()
    return database


def execute(url, text, *values):
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(text, values or None)
        return cursor.fetchall() if cursor.description else []


def as_role(url, name):
    return url.replace("postgres@", f"{name}@")


def grant(url, name, **how):
    execute(url, roles.grants("tenure", name, **how))


def may(url, role):
    """What the catalogue says that a role may do in our schema."""
    tables = execute(
        url,
        "SELECT c.relname, r FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace CROSS JOIN unnest(%s::text[]) r"
        " WHERE n.nspname = 'tenure' AND c.relkind = 'r' AND has_table_privilege(%s, c.oid, r)",
        list(RIGHTS),
        role,
    )
    functions = execute(
        url,
        "SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
        " WHERE n.nspname = 'tenure' AND has_function_privilege(%s, p.oid, 'EXECUTE')",
        role,
    )
    ((creates,),) = execute(url, "SELECT has_schema_privilege(%s, 'tenure', 'CREATE')", role)
    return set(tables), {name for (name,) in functions}, creates


class TestNodes:
    def test_everything_that_a_node_does_works(self, owned, role):
        grant(owned, role)
        battery.run(as_role(owned, role))

    @pytest.mark.parametrize("quarter", range(4))  # each takes the battery dozens of times
    def test_nothing_is_granted_that_is_not_needed(self, owned, role, quarter):
        grant(owned, role)
        parts = [f"{right} ON tenure.{table}" for table, rights in roles.TABLES.items() for right in rights]
        parts += [re.fullmatch("GRANT (.*) TO .*;", line)[1] for line in LINES if "EXECUTE" in line or "USAGE" in line]
        for part in parts[quarter::4]:
            execute(owned, f"REVOKE {part} FROM {role}")
            with pytest.raises((StoreError, pg.InsufficientPrivilege)):
                battery.run(as_role(owned, role))
                pytest.fail(f"{part} is not needed")
            execute(owned, f"GRANT {part} TO {role}")
        battery.run(as_role(owned, role))

    def test_it_may_do_no_more_than_that(self, owned, role):
        grant(owned, role)
        tables, functions, creates = may(owned, role)
        assert tables == {(table, right) for table, rights in roles.TABLES.items() for right in rights}
        listed = set(re.findall(r"FUNCTION tenure\.(\w+)\(", "\n".join(LINES)))
        assert functions == listed
        assert not listed & set(roles.INSIDE)
        assert not creates
        for harm in (
            "DROP TABLE tenure.run",
            "TRUNCATE tenure.run",
            "DELETE FROM tenure.election",
            "DELETE FROM tenure.job",
            "INSERT INTO tenure.effect VALUES (1, 'x')",
            "UPDATE tenure.schema_version SET version = 0",
            "ALTER FUNCTION tenure.fence(text, bigint, uuid) SECURITY INVOKER",
        ):
            with pytest.raises(pg.InsufficientPrivilege):
                execute(as_role(owned, role), harm)

    def test_a_scheduler_runs_with_them(self, owned, role):
        grant(owned, role)
        ran = threading.Event()
        scheduler = Scheduler(as_role(owned, role), ttl=6, heartbeat_every=0.5, attempt_timeout=1, migrate=False)

        @scheduler.every("1s")
        def tick():
            ran.set()

        scheduler.start()
        try:
            assert ran.wait(15)
        finally:
            assert scheduler.stop(5)

    def test_the_doctor_is_content(self, owned, role):
        grant(owned, role)
        (found,) = [one for one in doctor.examine(as_role(owned, role)) if one.code == "privileges"]
        assert found.severity == "ok", found


class TestEffects:
    def test_transactions_fence_and_complete_and_see_nothing(self, owned, role):
        grant(owned, role, effects_only=True)
        mine = as_role(owned, role)
        with Election(owned, "billing") as election:
            term = election.wait_until_leading(10) and election.term
            with psycopg.connect(mine) as connection, connection.transaction():
                term.fence(connection)
        with psycopg.connect(mine) as connection, pytest.raises(StaleTerm), connection.transaction():
            term.fence(connection)
        run, token = running(owned)
        with psycopg.connect(mine) as connection:
            assert connection.execute("SELECT tenure.once(%s, %s, 'a')", [run, token]).fetchone() == (True,)
            connection.execute("SELECT tenure.complete(%s, %s, NULL)", [run, token])
        assert execute(owned, "SELECT state::text FROM tenure.run WHERE id = %s", run) == [("succeeded",)]

    def test_it_may_do_no_more_than_that(self, owned, role):
        grant(owned, role, effects_only=True)
        assert may(owned, role) == (set(), set(roles.EFFECTS), False)
        run, _ = running(owned)
        for harm in (
            "SELECT token FROM tenure.run",
            "SELECT * FROM tenure.server_identity()",
            "SELECT tenure.limit_idling(NULL)",
            f"SELECT tenure.cancel_runs(ARRAY[{run}], 'x', NULL)",
            "SELECT * FROM tenure.change_job('{}')",
        ):
            with pytest.raises(pg.InsufficientPrivilege):
                execute(as_role(owned, role), harm)
        with pytest.raises(psycopg.Error, match="this attempt no longer counts"):
            execute(as_role(owned, role), "SELECT tenure.complete(%s, 'guessed', NULL)", run)

    def test_who_may_only_see_the_schema_may_call_nothing(self, owned, role):
        execute(owned, f"GRANT USAGE ON SCHEMA tenure TO {role}")
        assert may(owned, role) == (set(), set(), False)


def running(url):
    """A run in somebody's hand, and the token that goes with it."""
    store = store_for(url)
    session = store.session("test", 5.0)
    application = f"app {uuid.uuid4()}"
    now = session.ledger.now()
    due = (battery.NewRun(now - 1, now - 1, None),)
    session.ledger.change(battery.change(application, "job", battery.Change.ADDED, runs=due))
    ((run, token),) = battery.claim(session.ledger, battery.join(session), application).items()
    session.close()
    return run, token


class TestNames:
    def test_a_role_is_only_a_name(self, owned):
        hostile = 'x"; DROP SCHEMA tenure CASCADE; --'
        execute(owned, sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(hostile)).as_string())
        try:
            grant(owned, hostile)
            assert execute(owned, "SELECT count(*) FROM tenure.node") == [(0,)]
        finally:
            for what in ("DROP OWNED BY {}", "DROP ROLE {}"):
                execute(owned, sql.SQL(what).format(sql.Identifier(hostile)).as_string())

    @pytest.mark.parametrize("name", ["", "a\0b", "x" * 64, "ü" * 32])
    def test_what_cannot_be_a_role_is_refused(self, name):
        with pytest.raises(ConfigurationError, match="cannot be the name of a role"):
            roles.quoted(name)


class TestCommand:
    def tenure(self, *words):
        return subprocess.run([sys.executable, "-m", "tenure", *words], capture_output=True, text=True, check=False)

    def test_it_prints_and_changes_nothing(self, database):
        done = self.tenure("migrate", "--url", database, "--grants", "web")
        assert done.returncode == 0
        assert done.stdout.strip() == roles.grants("tenure", "web").strip()
        assert execute(database, "SELECT 1 FROM pg_namespace WHERE nspname = 'tenure'") == []

    def test_only_effects(self):
        done = self.tenure(
            "migrate", "--url", "postgresql:///x", "--schema", "jobs", "--grants", "web", "--effects-only"
        )
        assert done.stdout.strip() == roles.grants("jobs", "web", effects_only=True).strip()

    def test_a_file_has_no_roles(self, sqlite_url):
        done = self.tenure("migrate", "--url", sqlite_url, "--grants", "web")
        assert (done.returncode, "no roles" in done.stderr) == (2, True)

    def test_effects_of_whom(self, sqlite_url):
        done = self.tenure("migrate", "--url", sqlite_url, "--effects-only")
        assert (done.returncode, "--grants ROLE" in done.stderr) == (2, True)
        done = self.tenure("migrate", "--url", sqlite_url, "--from", "4")
        assert (done.returncode, "Write --print --from 4" in done.stderr) == (2, True)


def test_every_table_and_function_is_accounted_for(owned):
    tables = execute(owned, "SELECT tablename FROM pg_tables WHERE schemaname = 'tenure'")
    assert {name for (name,) in tables} == set(roles.TABLES)
    functions = execute(
        owned,
        "SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'tenure'",
    )
    listed = {re.search(r"\.(\w+)\(", line)[1] for line in LINES if "FUNCTION" in line}
    assert {name for (name,) in functions} == listed | set(roles.INSIDE)


class TestSquatters:
    """Roles that got there first, or hold what anybody may hold."""

    def test_a_schema_that_another_role_made_is_not_migrated_into(self, postgres, database, role):
        name = database.rpartition("/")[2]
        owner = f"owner_{uuid.uuid4().hex[:8]}"
        postgres.execute(f"CREATE ROLE {owner} LOGIN")
        try:
            postgres.execute(f"GRANT CREATE ON DATABASE {name} TO {role}, {owner}")
            execute(as_role(database, role), "CREATE SCHEMA tenure")
            execute(as_role(database, role), "GRANT ALL ON SCHEMA tenure TO PUBLIC")
            for victim in (database, as_role(database, owner)):  # a superuser, too
                with pytest.raises(ConfigurationError, match=f"schema tenure belongs to role '{role}'"):
                    store_for(victim).prepare()
            assert execute(database, "SELECT 1 FROM pg_tables WHERE schemaname = 'tenure'") == []
            store_for(as_role(database, role)).prepare()  # it is her own
        finally:
            postgres.execute(f"DROP OWNED BY {owner}", dbname=name)
            postgres.execute(f"DROP OWNED BY {owner}")
            postgres.execute(f"DROP ROLE {owner}")

    def test_a_function_that_another_role_put_into_the_schema_is_not_replaced(self, database, role):
        execute(database, f"CREATE SCHEMA tenure; GRANT ALL ON SCHEMA tenure TO {role}")
        fence = "tenure.fence(election_name text, of_term bigint, of_holder uuid)"
        execute(as_role(database, role), f"CREATE FUNCTION {fence} RETURNS void LANGUAGE sql AS ''")
        with pytest.raises(ConfigurationError, match=rf"function tenure\.fence\(.*\) belongs to role '{role}'"):
            store_for(database).prepare()  # a superuser could replace it, but not own it that way
        assert execute(database, "SELECT 1 FROM pg_tables WHERE schemaname = 'tenure'") == []
        execute(database, "DROP FUNCTION tenure.fence")
        store_for(database).prepare()

    def test_a_schema_of_a_role_that_the_migrating_one_is_a_member_of_is_its_own(self, postgres, database, role):
        group = f"group_{uuid.uuid4().hex[:8]}"
        postgres.execute(f"CREATE ROLE {group}")
        try:
            postgres.execute(f"GRANT {group} TO {role}")
            execute(database, f"CREATE SCHEMA tenure AUTHORIZATION {group}")
            store_for(as_role(database, role)).prepare()
        finally:
            execute(database, "DROP SCHEMA tenure CASCADE")
            postgres.execute(f"DROP ROLE {group}")

    def test_the_doctor_names_an_owner_who_could_replace_functions_of_others(self, owned, role):
        assert not [one for one in doctor.examine(owned) if one.code == "schema" and one.severity != "ok"]
        execute(owned, f"ALTER SCHEMA tenure OWNER TO {role}")
        found = [one for one in doctor.examine(owned) if one.code == "schema" and one.severity == "problem"]
        execute(owned, "ALTER SCHEMA tenure OWNER TO postgres")
        assert [f"belongs to role {role}, but its contents to postgres" in one.what for one in found] == [True]

    def test_whoever_keeps_the_lock_of_migrations_is_named(self, database, role, monkeypatch):
        monkeypatch.setattr(postgres_schema, "MIGRATION_PATIENCE", "50ms")
        with psycopg.connect(as_role(database, role), autocommit=True) as stranger:
            stranger.execute("SELECT pg_advisory_lock(hashtextextended('tenure migrate tenure', 0))")
            pid = stranger.info.backend_pid
            with pytest.raises(StoreError, match=rf"role {role} \(server process {pid}\) has it"):
                store_for(database).prepare()
        store_for(database).prepare()

    def test_whoever_keeps_the_lock_of_an_election_is_named(self, owned, role, caplog):
        with psycopg.connect(as_role(owned, role), autocommit=True) as stranger:
            stranger.execute("SELECT pg_advisory_lock(%s)", [lock_key("tenure", "billing")])
            with Election(owned, "billing", mode="advisory", ttl=6, heartbeat_every=0.5, attempt_timeout=1):
                eventually(
                    lambda: f"role {role}, server process {stranger.info.backend_pid}" in caplog.text,
                    what="a word about it",
                )
