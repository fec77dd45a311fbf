"""Each way in which the proxy breaks, seen by a real driver."""

import select
import time

import psycopg
import pytest


@pytest.fixture
def connection(proxy):
    connection = psycopg.connect(proxy.url(), autocommit=True)
    yield connection
    connection.close()


def test_a_healthy_proxy_passes_everything(proxy, connection):
    assert connection.execute("SELECT repeat('x', 1000000)").fetchone() == ("x" * 1_000_000,)


def test_a_black_hole_swallows_on_old_and_new_connections_until_it_heals(proxy, connection):
    proxy.black_hole()
    connection.pgconn.send_query(b"SELECT 1")
    assert not _readable(connection, 0.2)
    with pytest.raises(psycopg.OperationalError, match="timeout"):
        psycopg.connect(proxy.url(), connect_timeout=2)
    proxy.heal()
    assert _readable(connection, 5), "a connection that lost bytes must be told"
    with psycopg.connect(proxy.url()) as fresh:
        assert fresh.execute("SELECT 1").fetchone() == (1,)


def test_lost_answers_leave_the_outcome_unknown_but_the_statement_done(proxy, connection, postgres):
    postgres.execute("DROP TABLE IF EXISTS outcome")
    postgres.execute("CREATE TABLE outcome (n int)")
    proxy.black_hole(answers_only=True)
    connection.pgconn.send_query(b"INSERT INTO outcome VALUES (1)")
    assert not _readable(connection, 0.2)
    assert postgres.execute("SELECT n FROM outcome") == [(1,)]
    postgres.execute("DROP TABLE outcome")


def test_what_is_held_arrives_late(proxy, connection):
    proxy.hold()
    connection.pgconn.send_query(b"SELECT 1")
    assert not _readable(connection, 0.2)
    proxy.heal()
    assert _readable(connection, 5)
    assert connection.pgconn.get_result().get_value(0, 0) == b"1"


def test_refusing_turns_away_only_newcomers(proxy, connection):
    proxy.refuse()
    with pytest.raises(psycopg.OperationalError, match="refused"):
        psycopg.connect(proxy.url())
    assert connection.execute("SELECT 1").fetchone() == (1,)
    proxy.heal()
    psycopg.connect(proxy.url()).close()


def test_a_cut_resets_what_is_connected(proxy, connection):
    proxy.cut()
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
    psycopg.connect(proxy.url()).close()


def test_a_delay_is_felt_each_way(proxy, connection):
    proxy.delay(0.1)
    began = time.monotonic()
    connection.execute("SELECT 1")
    assert 0.2 <= time.monotonic() - began < 2


def _readable(connection, within):
    return bool(select.select([connection.pgconn.socket], [], [], within)[0])
