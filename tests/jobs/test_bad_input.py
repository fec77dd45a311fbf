"""What is wrong is said at once, with the value and with what to write instead."""

import builtins
import sqlite3
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from harness import scratch
from harness.postgres import Postgres
from tenure import AsyncScheduler, Election, Scheduler, TenureError
from tenure.errors import ConfigurationError, SchemaOutdated, SchemaTooNew, StoreUnavailable, UnknownJob
from tenure.stores import store_for
from tenure.stores.sqlite import filesystem
from tenure.util.durations import readable, seconds
from tenure.util.urls import PostgresURL, parse


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://db/app", r"'mysql' is not a store that tenure has.*SQLite, PostgreSQL and memory"),
        ("jobs.db", r"'jobs.db' has no scheme.*sqlite:///jobs.db"),
        ("", r"is empty.*TENURE_URL"),
        (42, r"42 is an int"),
        ("sqlite://jobs.db", r"has a host name\. Three slashes"),
        ("sqlite:///:memory:", r"cannot be shared by workers\. Write memory://"),
        ("sqlite:///jobs.db?mode=ro", r"takes no options"),
        ("postgresql://app:***@db/app", r"password is masked.*render_as_string\(hide_password=False\)"),
        ("host=db password=*** dbname=app", r"password is masked"),
    ],
)
def test_urls(url: object, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Election(url, "x")


@pytest.mark.parametrize(
    "url", ["postgresql+asyncpg://u:secret@db/app", "postgres://u:secret@db/app", "host=db password=secret"]
)
def test_a_password_is_never_shown(url: str) -> None:
    parsed = parse(url)
    assert isinstance(parsed, PostgresURL)
    assert "secret" in parsed.conninfo
    assert "secret" not in str(parsed) + repr(parsed) + repr(store_for(url))


def test_a_sqlalchemy_url_is_taken_as_it_is() -> None:
    from sqlalchemy import make_url

    parsed = parse(make_url("postgresql+psycopg://u:secret@db/app"))
    assert isinstance(parsed, PostgresURL)
    assert parsed.conninfo == "postgresql://u:secret@db/app"


def test_no_url_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENURE_URL", raising=False)
    with pytest.raises(ConfigurationError, match="no store URL was given and TENURE_URL is not set"):
        Election(name="x")
    monkeypatch.setenv("TENURE_URL", "memory://from-the-environment")
    assert "from-the-environment" in repr(Election(name="x"))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "must be text"),
        (None, "must be text"),
        ("n" * 201, r"has 201 characters, at most 200"),
        ("two\nlines", "must be printable"),
        (" x", "without spaces at its ends"),
        ("?x", r"not begin with '\?'"),
    ],
)
def test_names(name: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Election("memory://", name)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"ttl": 1, "heartbeat_every": 0.5},
            r"0\.8 · ttl = 0\.8 s.*heartbeat_every \+ 2 · attempt_timeout = 0\.9 s.*Write ttl=1\.2",
        ),
        ({"ttl": 61}, r"61 s is more than the 60 s"),
        ({"ttl": 0}, r"ttl: 0 must be more than zero"),
        ({"ttl": "10"}, r"'10' has no unit\. Write '10s' for seconds or '10m' for minutes"),
        ({"ttl": "soon"}, r"'soon' is not a duration"),
        ({"ttl": True}, r"True is not a duration"),
        ({"heartbeat_every": -1}, r"heartbeat_every: -1 must be more than zero"),
        ({"session_grace": 1}, r"session_grace: 1 s is too small"),
        ({"mode": "raft"}, r"'raft' is not a way to run an election"),
        ({"schema": "Bad-Name"}, r"schema: 'Bad-Name' must be a plain lower-case name"),
    ],
)
def test_options(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Election("postgresql://db/app", "x", **options)


def test_an_election_has_events_of_its_own() -> None:
    with pytest.raises(ConfigurationError, match=r"election\.on\(Elected\)"):
        Election("memory://", "x").on(ValueError)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (5, 5),
        (0.25, 0.25),
        ("250ms", 0.25),
        ("30s", 30),
        ("20m", 1200),
        ("1h30m", 5400),
        ("2d", 172800),
        ("1w", 604800),
        (timedelta(hours=1), 3600),
    ],
)
def test_durations(written: Any, meant: float) -> None:
    assert seconds(written) == meant


@pytest.mark.parametrize("written", ["", "s", "1x", "1h30", "-5s", "1 h x", float("nan"), float("inf"), None, [1]])
def test_what_is_no_duration(written: Any) -> None:
    with pytest.raises(ConfigurationError):
        seconds(written)


def test_durations_for_people() -> None:
    assert [readable(value) for value in (0.08, 1.3, 250, 3600, 11100)] == [
        "80 ms",
        "1.3 s",
        "4 min 10 s",
        "1 h",
        "3 h 5 min",
    ]


def test_an_unreachable_server() -> None:
    with pytest.raises(StoreUnavailable, match=r"(?i)refused"):
        Election(f"postgresql://app@127.0.0.1:{scratch.free_port()}/app", "x").start()


def test_a_wrong_password(own_postgres: Postgres) -> None:
    own_postgres.execute("CREATE ROLE app LOGIN PASSWORD 'right'")
    hba = own_postgres.data / "pg_hba.conf"
    hba.write_text("host all app all scram-sha-256\n" + hba.read_text())
    own_postgres.execute("SELECT pg_reload_conf()")
    scratch.eventually(lambda: _refused(own_postgres), within=5, what="the server asks for passwords")
    with pytest.raises(StoreUnavailable, match="password authentication failed") as error:
        Election(f"postgresql://app:wrong@127.0.0.1:{own_postgres.port}/postgres", "x").start()
    assert "wrong" not in str(error.value).replace("wrong password", "")


def _refused(server: Postgres) -> bool:
    try:
        Election(f"postgresql://app:wrong@127.0.0.1:{server.port}/postgres", "x").leader()
    except TenureError as error:
        return "password" in str(error)
    return False


def test_a_missing_database(postgres: Postgres) -> None:
    with pytest.raises(StoreUnavailable, match='database "nowhere" does not exist'):
        Election(postgres.url("nowhere"), "x").start()


def test_a_missing_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_psycopg(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".", maxsplit=1)[0] == "psycopg":
            raise ImportError("No module named 'psycopg'")
        return real(name, *args, **kwargs)

    for name in [name for name in sys.modules if name.startswith("tenure.stores.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without_psycopg)
    with pytest.raises(ConfigurationError, match=r"pip install 'tenure\[postgres\]'"):
        Election("postgresql://db/app", "x")


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"does not exist\. Create it"):
        Election(f"sqlite:///{tmp_path}/nowhere/jobs.db", "x").start()


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear colleagues, " * 100)
    with pytest.raises(ConfigurationError, match="not a SQLite database"):
        Election(f"sqlite:///{path}", "x").start()


@pytest.mark.parametrize(("number", "name"), sorted(filesystem.SHARED.items()))
def test_a_file_system_that_others_may_write(
    number: int, name: str, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystem, "type_number", lambda _: number)
    with pytest.raises(ConfigurationError, match=f"lies on {name}, which other machines may write too"):
        Election(sqlite_url, "x").start()


def test_tables_that_are_missing_and_may_not_be_made(database: str, sqlite_url: str) -> None:
    with pytest.raises(SchemaOutdated, match=r"there is no such file"):
        Election(sqlite_url, "x", migrate=False).start()
    Path(sqlite_url.removeprefix("sqlite:///")).touch()
    for url in (database, sqlite_url):
        with pytest.raises(SchemaOutdated, match=r"missing, this library needs version \d+\. .*tenure migrate"):
            Election(url, "x", migrate=False).start()


def test_tables_that_are_too_new(database: str, postgres: Postgres, sqlite_url: str) -> None:
    store_for(database).prepare()
    postgres.execute("UPDATE tenure.schema_version SET version = 900, oldest = 800", dbname=database.rsplit("/", 1)[1])
    store_for(sqlite_url).prepare()
    with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as connection:
        connection.execute("UPDATE tenure_schema_version SET version = 900, oldest = 800")
    connection.close()
    for url in (database, sqlite_url):
        with pytest.raises(
            SchemaTooNew, match=r"version 900 and needs? a library that knows version 800.*Upgrade tenure"
        ):
            Election(url, "x").start()


def test_newer_tables_that_this_library_may_still_use(database: str, postgres: Postgres) -> None:
    store_for(database).prepare()
    postgres.execute("UPDATE tenure.schema_version SET version = 900", dbname=database.rsplit("/", 1)[1])
    with Election(database, "x") as election:
        assert election.wait_until_leading(10)


def test_a_role_that_may_not_migrate(database: str, postgres: Postgres) -> None:
    postgres.execute("DROP ROLE IF EXISTS weak; CREATE ROLE weak LOGIN; ")
    weak = database.replace("postgres@", "weak@")
    with pytest.raises(
        SchemaOutdated, match=r"may not use or migrate tenure's schema 'tenure'.*tenure migrate --print"
    ):
        Election(weak, "x").start()


def test_a_role_that_owns_a_prepared_schema_may_migrate(database: str, postgres: Postgres) -> None:
    name = database.rsplit("/", 1)[1]
    postgres.execute(f"DROP ROLE IF EXISTS owner_of_{name}; CREATE ROLE owner_of_{name} LOGIN")
    postgres.execute(f"CREATE SCHEMA tenure AUTHORIZATION owner_of_{name}", dbname=name)
    with Election(database.replace("postgres@", f"owner_of_{name}@"), "x") as election:
        assert election.wait_until_leading(10)


def test_printed_migrations_can_be_applied_by_hand(database: str, postgres: Postgres, sqlite_url: str) -> None:
    postgres.execute(store_for(database).migration(), dbname=database.rsplit("/", 1)[1])
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    connection.executescript(store_for(sqlite_url).migration())
    connection.close()
    for url in (database, sqlite_url):
        with Election(url, "x", migrate=False) as election:
            assert election.wait_until_leading(10)


def test_many_start_at_once_and_migrate_once(database: str, sqlite_url: str, run_together: Callable[..., None]) -> None:
    for url in (database, sqlite_url):
        run_together(6, lambda _, url=url: store_for(url).prepare())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"timezone": "Europe/Berlin"}, r"timezone= is an option of another library\. Write tz='Europe/Berlin'\."),
        ({"max_workers": 8}, r"Write capacity=8\."),
        ({"app_name": "shop"}, r"Write application='shop'\."),
        ({"jobstores": {}}, r"All jobs are in the database of the URL"),
        ({"capasity": 8}, r"capasity= is not an option\. Did you mean capacity=\?"),
        ({"frobnicate": 1}, r"The options are url, application, tz, "),
    ],
)
@pytest.mark.parametrize("kind", [Scheduler, AsyncScheduler])
def test_options_of_a_scheduler(kind: type, words: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        kind("memory://words", **words)


def test_a_job_that_is_defined_here_and_that_no_node_has_brought() -> None:
    scheduler = Scheduler("memory://not-brought")
    scheduler.job(name="dup")(lambda: None)
    for ask in (scheduler.run_now, scheduler.find_job, scheduler.pause):
        with pytest.raises(
            UnknownJob, match=r"no job 'dup' yet\. It is defined in this process, and no node has brought it"
        ):
            ask("dup")
    with pytest.raises(UnknownJob, match=r"has no job 'other'\. It has none"):
        scheduler.run_now("other")
