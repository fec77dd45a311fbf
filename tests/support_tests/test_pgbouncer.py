import psycopg

from harness.components import need
from harness.pgbouncer import PgBouncer


def test_transaction_mode_shares_one_server_connection(pgbouncer, database):
    through = pgbouncer.url(database.rpartition("/")[2])
    with psycopg.connect(through, autocommit=True) as a, psycopg.connect(through, autocommit=True) as b:
        assert _backend(a) == _backend(b)


def test_session_mode_gives_each_client_its_own(postgres):
    need("pgbouncer")
    with (
        PgBouncer(postgres, "session") as bouncer,
        psycopg.connect(bouncer.url(), autocommit=True) as a,
        psycopg.connect(bouncer.url(), autocommit=True) as b,
    ):
        assert _backend(a) != _backend(b)
        assert bouncer.console("SHOW VERSION")[0][0].startswith("PgBouncer")


def _backend(connection):
    return connection.execute("SELECT pg_backend_pid()").fetchone()[0]
