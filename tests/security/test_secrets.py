"""The password of a URL is nowhere but in the URL: not in what is shown, said, logged or written, also not in
pieces."""

import logging
import subprocess
import sys
import threading
import traceback
from urllib.parse import quote

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from security.drawn import bounded
from tenure import Election, Scheduler, TenureError, doctor
from tenure.errors import ConfigurationError
from tenure.stores import store_for
from tenure.util import urls

PIECES = ("Zq7xKw", "Jb3mVt", "Hn5pLc")
PASSWORD = "".join(PIECES)
SEPARATORS = "@/:?#%&= '\"\\[]+\t\n"
WORDS = st.text("abcdefghijklmnopqrstuvwxyzABCDEF0123456789", min_size=4, max_size=8).map("Z{}Q".format)


def leaks(text, pieces=PIECES):
    return [piece for piece in pieces if piece in text]


@bounded
@given(st.lists(WORDS, min_size=1, max_size=4), st.sampled_from(SEPARATORS), st.booleans())
def test_nothing_of_it_is_shown(pieces, separator, encoded):
    password = separator.join(pieces)
    written = quote(password, safe="") if encoded else password
    escaped = password.replace("\\", "\\\\").replace("'", "\\'")
    for url in (
        f"postgresql://user:{written}@host/db",
        f"postgresql+asyncpg://user:{written}@host:5432/db?sslmode=require",
        f"postgresql://host/db?user=u&password={quote(password, safe='')}",
        f"postgresql://host/db?sslpassword={quote(password, safe='')}",
        f"postgresql://host/db?oauth_client_secret={quote(password, safe='')}",
        f"host=h scram_client_key='{escaped}' dbname=db",
        f"host=h password='{escaped}' dbname=db",
        f"host=h password={password} dbname=db",
        f"mysql://user:{written}@host/db",
        f"sqlite://user:{written}@host/db",
        f"user:{written}@host/db",
    ):
        try:
            parsed = urls.parse(url)
        except ConfigurationError as error:
            said = "".join(traceback.format_exception(error))
        else:
            said = f"{parsed} {parsed!r} {store_for(url)!r}"
        assert not leaks(said, pieces), url


def test_the_name_of_a_file_is_no_secret():
    for url in ("postgresql://host/db?sslkey=client.pem", "host=h sslkey=client.pem dbname=db"):
        assert "sslkey=client.pem" in str(urls.parse(url))


@pytest.mark.parametrize("separator", ["", *"@/:?#%&= '\"\\[]"])
@pytest.mark.parametrize("form", ["postgresql://user:{}@127.0.0.1:1/db", "host=127.0.0.1 port=1 dbname=db password={}"])
def test_nothing_of_it_is_said_when_the_connection_fails(form, separator, caplog):
    """libpq takes a badly written URL apart somewhere else, and quotes what it found there."""
    url = form.format(separator.join(PIECES))
    for start in (
        lambda: store_for(url).prepare(),
        lambda: Election(url, "x").start(),
        lambda: store_for(url).session("x", 1.0),
    ):
        with pytest.raises(TenureError) as caught:
            start()
        assert not leaks("".join(traceback.format_exception(caught.value)))
    report = doctor.examine(url)
    assert not leaks(repr(report))
    assert not leaks(caplog.text)


def test_the_command_line_does_not_say_it():
    url = f"postgresql://user:{'/'.join(PIECES)}@127.0.0.1:1/db"
    for words in (["jobs"], ["leader", "x"], ["doctor"], ["migrate"]):
        done = subprocess.run(
            [sys.executable, "-m", "tenure", *words, "--url", url, "--verbose"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in {1, 2, 3}
        assert not leaks(done.stdout + done.stderr)


def test_nothing_of_it_is_written_or_logged(database, caplog):
    caplog.set_level(logging.DEBUG)
    url = database.replace("postgres@", f"postgres:{PASSWORD}@")
    ran = threading.Event()
    scheduler = Scheduler(url, ttl=6, heartbeat_every=0.5, attempt_timeout=1)

    @scheduler.every("1s")
    def tick():
        ran.set()
        raise RuntimeError("it fails")

    scheduler.start()
    try:
        assert ran.wait(15)
        with psycopg.connect(database, autocommit=True) as connection:
            seen = str(connection.execute("SELECT a::text FROM pg_stat_activity a").fetchall())
    finally:
        scheduler.stop(5)
    with psycopg.connect(database, autocommit=True) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'tenure'").fetchall()
        for (table,) in tables:
            seen += str(connection.execute(f"SELECT t::text FROM tenure.{table} t").fetchall())
    assert "it fails" in seen, "the rows were looked at"
    assert not leaks(seen + caplog.text + repr(scheduler.health()) + repr(scheduler))
