"""Old snapshots that keep vacuum from tenure's tables are named, each kind with what to do about it."""

import re
from contextlib import closing

import psycopg
import pytest

from doctor.examining import execute, finding, findings
from harness.scratch import eventually
from tenure.doctor.postgres import snapshots
from tenure.stores import store_for

HELD = "SELECT 1 FROM pg_replication_slots WHERE xmin IS NOT NULL AND active"


@pytest.fixture
def impatient(monkeypatch):
    """What is held at all counts as old."""
    monkeypatch.setattr(snapshots, "OLD", 0.0)
    monkeypatch.setattr(snapshots, "MANY", 0)


@pytest.mark.usefixtures("impatient")
def test_a_forgotten_transaction_is_named_and_what_is_advised_ends_it(ready):
    with psycopg.connect(ready, application_name="a dump") as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT 1")
        found = finding(ready, "snapshots")
        assert found.severity == "warning"
        assert f"session {old.info.backend_pid} (role postgres, application 'a dump', idle in transaction" in found.what
        assert "transactions old" in found.what
        execute(ready, re.search(r"SELECT pg_terminate_backend\(\d+\)", found.do)[0])
        with pytest.raises(psycopg.OperationalError):
            old.execute("SELECT 1")
    assert finding(ready, "snapshots").severity == "ok"


def test_a_short_transaction_and_one_of_another_database_are_fine(ready, postgres):
    other = postgres.create_database()
    with psycopg.connect(ready) as short, psycopg.connect(other) as elsewhere:
        for connection in (short, elsewhere):
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.execute("SELECT 1")
        assert finding(ready, "snapshots").severity == "ok"
    postgres.drop_database(other)


@pytest.mark.usefixtures("impatient")
def test_a_transaction_of_another_database_holds_nothing_back(ready, postgres):
    other = postgres.create_database()
    with psycopg.connect(other) as elsewhere:
        elsewhere.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        elsewhere.execute("SELECT 1")
        assert finding(ready, "snapshots").severity == "ok"
    postgres.drop_database(other)


@pytest.mark.usefixtures("impatient")
def test_a_prepared_transaction_is_named(two_phase):
    url = two_phase.create_database()
    store_for(url).prepare()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("BEGIN")
        connection.execute("CREATE TABLE other ()")
        connection.execute("PREPARE TRANSACTION 'pay''d'")
    (found,) = [one for one in findings(url, "snapshots") if "prepared" in one.what]
    assert '"pay\'d"' in found.what
    execute(url, re.search(r"ROLLBACK PREPARED '.*'(?=\.$)", found.do)[0])


@pytest.mark.usefixtures("impatient")
def test_a_replication_slot_that_a_standby_left_is_named(own_postgres):
    url = own_postgres.create_database()
    store_for(url).prepare()
    own_postgres.execute("SELECT pg_create_physical_replication_slot('left', true)")
    with closing(own_postgres.replica()) as standby:
        for setting in ("hot_standby_feedback = on", "wal_receiver_status_interval = 1", "primary_slot_name = 'left'"):
            standby.execute(f"ALTER SYSTEM SET {setting}")
        standby.execute("SELECT pg_reload_conf()")
        eventually(lambda: own_postgres.execute(HELD), what="a slot that holds a snapshot")
    found = finding(url, "snapshots")
    assert "replication slot 'left' (not in use)" in found.what
    execute(url, re.search(r"SELECT pg_drop_replication_slot\('left'\)", found.do)[0])
    assert finding(url, "snapshots").severity == "ok"
