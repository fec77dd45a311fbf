"""What a role or a database has set changes nothing: tenure's sessions choose their own encoding and formats, and
refuse a database that is not UTF8."""

import uuid

import psycopg
import pytest

from harness.scratch import eventually
from tenure import Election, Scheduler
from tenure.cli import main
from tenure.errors import ConfigurationError
from tenure.stores import store_for
from tenure.stores.notices import Notice, Released

TEXT = "é Í 한글 \N{GRINNING FACE}"
QUICK = {"ttl": 6, "heartbeat_every": 0.5, "attempt_timeout": 1}


@pytest.fixture(params=["SQL_ASCII", "LATIN1", "EUC_KR"])
def encoded(request, postgres):
    name = f"encoded_{uuid.uuid4().hex[:8]}"
    postgres.execute(
        f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{request.param}' LC_COLLATE 'C' LC_CTYPE 'C'"
    )
    yield request.param, postgres.url(name)
    postgres.drop_database(postgres.url(name))


def test_a_database_that_is_not_utf8_is_refused_with_a_sentence(encoded, capsys):
    encoding, url = encoded
    words = rf"encoded in {encoding}.*UTF8.*CREATE DATABASE"
    with pytest.raises(ConfigurationError, match=words):
        Scheduler(url).start()
    with pytest.raises(ConfigurationError, match=words):
        Election(url, "billing").start()
    assert main(["migrate", "--url", url]) != 0
    assert f"encoded in {encoding}" in capsys.readouterr().err
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'tenure'").fetchone() is None


SETTINGS = (
    "DateStyle = 'German, DMY'",
    "DateStyle = 'SQL, MDY'",
    "IntervalStyle = 'sql_standard'",
    "TimeZone = 'Asia/Kathmandu'",
    "client_encoding = 'SQL_ASCII'",
    "client_encoding = 'LATIN1'",
    "extra_float_digits = -15",
)


@pytest.mark.parametrize("way", ["direct", "pooled"])
def test_what_a_role_has_set_changes_nothing(way, postgres, database, request):
    name = database.rpartition("/")[2]
    url = database if way == "direct" else request.getfixturevalue("pgbouncer").url(name)
    for setting in SETTINGS:
        postgres.execute(f"ALTER DATABASE {name} SET {setting}")
        _everything_works(url, setting)
        postgres.execute(f"ALTER DATABASE {name} RESET ALL")


def _everything_works(url, setting):
    scheduler = Scheduler(url, **QUICK)

    @scheduler.job
    def fails(run):
        run.log(TEXT)
        raise ValueError(TEXT)

    with scheduler, Election(url, "billing", label=TEXT, **QUICK) as election:
        run = scheduler.run_now("fails", by=TEXT)
        assert election.wait_until_leading(10), setting
        leader = election.leader()
        assert (leader.label, leader.since.utcoffset().total_seconds()) == (TEXT, 0), setting
        session = store_for(url).session("looks", 5.0)
        assert [term.began_at for term in session.terms("billing", 1)] == [leader.since]
        session.close()
        eventually(lambda: scheduler.find_run(run.id).state == "failed", what=f"the end of the run with {setting}")
        eventually(lambda: scheduler.log(run.id) == [TEXT], what="its log")
        with psycopg.connect(url) as connection:  # the application's own, with what the role has set
            scheduler.pause("fails", conn=connection)
            scheduler.resume("fails", conn=connection)
        found = scheduler.find_run(run.id)
        assert (found.reason.splitlines()[-1], found.by) == (f"ValueError: {TEXT}", TEXT), setting


def test_a_notice_in_another_encoding_ends_no_session(postgres):
    """Anybody who may connect may notify.

    Such a database is refused by now, but a session of ours hears what is said in it.
    """
    name = f"notices_{uuid.uuid4().hex[:8]}"
    postgres.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'")
    url = postgres.url(name)
    session = store_for(url).session("listens", 5.0)
    heard: list[Notice] = []
    try:
        session.listen("a node")
        with psycopg.connect(url, autocommit=True, client_encoding="LATIN1") as other:
            other.pgconn.exec_(b"NOTIFY tenure, '\xe9\xff'")
            eventually(lambda: heard.extend(session.notices()) or heard, what="a notice while nothing is asked")
            other.pgconn.exec_(b"NOTIFY tenure, '\xfc'")
            assert session.ledger.now() > 0
            eventually(lambda: heard.extend(session.notices()) or len(heard) == 2, what="a notice during a statement")
        assert heard == [Released("éÿ"), Released("ü")]
    finally:
        session.close()
        postgres.drop_database(url)
