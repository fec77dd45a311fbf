"""A standby that takes over knows every commit, and the address leads to it."""

import psycopg

from harness.components import need
from harness.standby import Pair


def test_nothing_that_was_acknowledged_is_lost_by_a_failover():
    need("postgres")
    with Pair() as pair:
        pair.add_standby()
        with psycopg.connect(pair.url(), autocommit=True) as connection:
            connection.execute("CREATE TABLE kept (number int)")
            connection.execute("INSERT INTO kept VALUES (1)")
        pair.fail_over()
        with psycopg.connect(pair.url(), autocommit=True) as connection:
            connection.execute("INSERT INTO kept VALUES (2)")
            pair.add_standby()
            assert connection.execute("SELECT number FROM kept ORDER BY number").fetchall() == [(1,), (2,)]
