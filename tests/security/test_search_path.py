"""A role that may create objects in `public` runs nothing as ours: sessions and functions look for names in
`pg_catalog` alone."""

import uuid

import psycopg
import pytest

from harness.scratch import eventually
from security import battery, shadows
from tenure import Election, Scheduler, doctor
from tenure.core.cluster import Cadence
from tenure.doctor.findings import Report
from tenure.doctor.postgres.inspector import Inspector
from tenure.importers import apscheduler
from tenure.stores import store_for
from tenure.stores.postgres import roles
from tenure.stores.postgres.schema import SEARCH_PATH
from tenure.triggers import every
from tenure.util.urls import parse

QUICK = {"ttl": 6, "heartbeat_every": 0.5, "attempt_timeout": 1, "migrate": False}


class Planted:
    """The shadows that one role has put into `public`."""

    def __init__(self, server, url, role):
        self._server, self._mark = server, uuid.uuid4().hex
        shadows.plant(server, url, role, self._mark)

    def ran(self):
        return shadows.ran(self._server, self._mark)


@pytest.fixture
def plant(postgres, database, role):
    return lambda: Planted(postgres, database, role)


@pytest.fixture
def node(database, postgres):
    """The URL of a role that runs nodes and is not a superuser."""
    name = f"node_{uuid.uuid4().hex[:8]}"
    postgres.execute(f"CREATE ROLE {name} LOGIN")
    store_for(database).prepare()
    postgres.execute(roles.grants("tenure", name), dbname=database.rpartition("/")[2])
    yield database.replace("postgres@", f"{name}@")
    postgres.execute(f"DROP OWNED BY {name}", dbname=database.rpartition("/")[2])
    postgres.execute(f"DROP ROLE {name}")


class TestPlantedByAStranger:
    def test_nothing_of_it_runs_in_a_node(self, node, plant):
        planted = plant()
        battery.run(node)
        assert planted.ran() == set()

    def test_nothing_of_it_runs_in_a_node_behind_a_pooler(self, node, plant, pgbouncer):
        planted = plant()
        name = node.rpartition("/")[2]
        url = pgbouncer.url(name)
        store = store_for(url, migrate=False)
        store.prepare()
        session = store.session("battery", 5.0)
        assert store.pooled
        battery.jobs(url, session)
        session.close()
        assert planted.ran() == set()

    @pytest.mark.parametrize("how", ["by itself", "printed"])
    def test_nothing_of_it_runs_in_a_migration_by_a_superuser(self, database, role, plant, how):
        planted = plant()
        if how == "printed":
            with psycopg.connect(database, autocommit=True) as connection:
                connection.execute(store_for(database).migration())
                connection.execute(roles.grants("tenure", role))
        store_for(database).prepare()
        assert planted.ran() == set()

    def test_nothing_of_it_runs_in_the_doctor(self, database, node, plant):
        del node
        planted = plant()
        found = doctor.examine(database)
        assert [one for one in found if "not checked" in one.what] == []
        assert planted.ran() == set()

    def test_nothing_of_it_runs_in_an_import(self, database, plant):
        with psycopg.connect(database) as connection:
            connection.execute("CREATE TABLE jobs (id varchar PRIMARY KEY, job_state bytea)")
            connection.execute("INSERT INTO jobs VALUES ('x', 'no pickle')")
        planted = plant()
        assert [left.source for left in apscheduler.read(database, table="jobs").left] == ["x"]
        assert planted.ran() == set()

    def test_nothing_of_it_runs_through_a_connection_of_the_application(self, node, plant):
        scheduler = Scheduler(node, **QUICK)

        @scheduler.job
        def work(run):
            with psycopg.connect(node) as connection:
                run.once(connection, "key")
                run.complete(connection)

        with scheduler, Election(node, "billing", **QUICK) as election:
            assert election.wait_until_leading(10)
            planted = plant()
            with psycopg.connect(node) as connection:
                scheduler.add(work, every("1h"), name="added", conn=connection)
                scheduler.pause("added", conn=connection)
                scheduler.resume("added", conn=connection)
                run = scheduler.run_now("added", key="k", conn=connection)
                election.term.fence(connection)
                assert connection.execute("SHOW search_path").fetchone() == ("public, pg_catalog",)
            eventually(lambda: scheduler.find_run(run.id).state == "succeeded", what="the end of the run")
            with psycopg.connect(node) as connection:
                scheduler.remove("added", conn=connection)
        assert planted.ran() == set()

    def test_it_would_run_where_a_path_is_left_to_the_role(self, database, plant):
        """So that the tests above can fail."""
        planted = plant()
        with psycopg.connect(database) as connection:
            connection.execute(
                "SELECT date_part('epoch', clock_timestamp()), cardinality(ARRAY[1, 2]), 1::float8, 1 = 1 FROM pg_locks"
            )
        names = ("date_part", "clock_timestamp", "cardinality", "type float8", "=", "pg_locks")
        assert {f"{name} ran as postgres" for name in names} <= planted.ran()


class TestSessions:
    def test_every_function_has_a_path_of_its_own(self, prepared_database):
        with psycopg.connect(prepared_database) as connection:
            found = connection.execute(
                "SELECT p.proname FROM pg_proc p WHERE p.pronamespace = 'tenure'::regnamespace"
                " AND NOT coalesce(p.proconfig, '{}') @> ARRAY['search_path=' || %s]",
                [SEARCH_PATH],
            ).fetchall()
        assert found == []

    @pytest.mark.parametrize("way", ["direct", "pooled"])
    def test_every_session_has_it(self, way, prepared_database, request):
        name = prepared_database.rpartition("/")[2]
        url = prepared_database if way == "direct" else request.getfixturevalue("pgbouncer").url(name)
        store = store_for(url)
        session = store.session("looks", 5.0)
        assert session._execute(session._cursor, "SHOW search_path", {}) == [(SEARCH_PATH,)]
        session.close()
        inspector = Inspector(Report(), store, parse(url), Cadence())
        try:
            inspector.open()
            assert inspector.ask_text("SHOW search_path") == [(SEARCH_PATH,)]
            assert tuple(inspector.plain(inspector.main, "SHOW search_path")[0]) == (SEARCH_PATH,)
            assert inspector.main.execute("SHOW search_path").fetchone() != (
                SEARCH_PATH,
            )  # nothing is left for the next client
        finally:
            inspector.close()
