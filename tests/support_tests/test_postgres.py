"""The servers of the harness do what tests will rely on."""

import subprocess

import psycopg
import pytest

from harness import scratch
from harness.components import need
from harness.postgres import Postgres


def test_a_crashed_server_comes_back_with_what_was_committed(own_postgres):
    own_postgres.execute("CREATE TABLE kept (n int)")
    own_postgres.execute("INSERT INTO kept VALUES (7)")
    held = psycopg.connect(own_postgres.url())
    pid = own_postgres.process.pid
    backends = scratch.children(pid)
    own_postgres.crash()
    assert not scratch.running(pid)
    assert not any(map(scratch.running, backends))
    with pytest.raises(psycopg.OperationalError):
        held.execute("SELECT 1")
    held.close()
    own_postgres.start()
    assert own_postgres.execute("SELECT n FROM kept") == [(7,)]


def test_a_restart_keeps_port_and_data(own_postgres):
    url = own_postgres.create_database()
    own_postgres.restart()
    psycopg.connect(url).close()


def test_a_frozen_server_answers_nobody_until_it_thaws(own_postgres):
    connection = psycopg.connect(own_postgres.url())
    own_postgres.freeze()
    connection.pgconn.send_query(b"SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="timeout"):
        psycopg.connect(own_postgres.url(), connect_timeout=2)
    connection.pgconn.consume_input()
    assert connection.pgconn.is_busy()
    own_postgres.thaw()
    assert connection.pgconn.get_result().get_value(0, 0) == b"1"
    connection.close()
    own_postgres.freeze()  # closing a frozen server must work as well


def test_a_replica_follows_and_both_are_writable_after_its_promotion(own_postgres):
    own_postgres.execute("CREATE TABLE log (n int)")
    standby = own_postgres.replica()
    try:
        own_postgres.execute("INSERT INTO log VALUES (1)")
        scratch.eventually(lambda: standby.execute("SELECT n FROM log") == [(1,)], what="row on the standby")
        assert standby.execute("SELECT pg_is_in_recovery()") == [(True,)]
        own_postgres.crash()
        standby.promote()
        standby.execute("INSERT INTO log VALUES (2)")
        own_postgres.start()  # the old primary knows nothing of it: split brain
        own_postgres.execute("INSERT INTO log VALUES (3)")
        assert standby.execute("SELECT n FROM log ORDER BY n") == [(1,), (2,)]
        assert own_postgres.execute("SELECT n FROM log ORDER BY n") == [(1,), (3,)]
    finally:
        standby.close()


def test_each_database_is_fresh_and_text_is_text(each_postgres):
    one, two = each_postgres.create_database(), each_postgres.create_database()
    with psycopg.connect(one) as connection:
        connection.execute("CREATE TABLE mine (word text)")
        assert connection.execute("SELECT 'Schlüssel'").fetchone() == ("Schlüssel",)
    with psycopg.connect(two) as connection:
        assert connection.execute("SELECT to_regclass('mine')").fetchone() == (None,)
    each_postgres.drop_database(one)
    each_postgres.drop_database(two)


def test_backends_are_terminated_by_application_name(postgres, database):
    mine = psycopg.connect(database, application_name="tenure:billing:n1")
    other = psycopg.connect(database, application_name="web")
    assert postgres.terminate_backends(like="tenure:billing:%") == 1
    with pytest.raises(psycopg.errors.AdminShutdown):
        mine.execute("SELECT 1")
    assert other.execute("SELECT 1").fetchone() == (1,)
    mine.close()
    other.close()


def test_a_server_that_cannot_start_shows_its_log():
    need("postgres")
    broken = Postgres(settings={"shared_buffers": "nonsense"})
    with pytest.raises(RuntimeError, match="shared_buffers"):
        broken.start()
    broken.close()


def test_a_closed_server_leaves_nothing_behind():
    need("postgres")
    server = Postgres().start()
    folder = server.folder
    segment = (server.data / "postmaster.pid").read_text().splitlines()[6].split()[1]
    assert segment in _segments()
    server.crash()
    server.close()
    assert not folder.exists()
    assert segment not in _segments()


def test_settings_and_fsync_reach_the_server():
    need("postgres")
    with Postgres(fsync=True, settings={"work_mem": "5MB"}) as server:
        assert server.execute("SHOW fsync") == [("on",)]
        assert server.execute("SHOW work_mem") == [("5MB",)]


def _segments():
    listed = subprocess.run(["ipcs", "-m"], capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[1] for line in listed if line.startswith("0x")}
