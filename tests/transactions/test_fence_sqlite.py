"""The fence on SQLite: statements that Python hides, one writer, and everything at once."""

import random
import sqlite3
import threading
import time
from contextlib import closing, suppress

import pytest

import callers
import work
from callers import scene
from fencing import Court
from tenure.core.cluster import BeatVerdict
from tenure.errors import ConfigurationError, StaleTerm, StoreUnavailable, WrongDatabase
from tenure.stores.host_lock import LockFile
from tenure.transactions import fence
from work import WORK


@pytest.fixture
def court(sqlite_url):
    work.lay(sqlite_url)
    with Court(sqlite_url, timeout=0.1) as court:
        yield court


@pytest.fixture
def connection(court):
    with closing(work.connected(court.url)) as connection:
        yield connection


@pytest.mark.parametrize(
    "kind", [callers.Sqlite, callers.Aiosqlite, callers.AlchemySqlite, callers.AlchemySqliteSession]
)
def test_what_python_commits_at_once_is_refused_by_fence_and_held_by_fenced(kind, court):
    """Python opens no transaction for `WITH … INSERT`."""
    client, old = kind(court.url), court.depose()
    hidden = "WITH it AS (SELECT 'work') INSERT INTO work SELECT * FROM it"

    async def body():
        with pytest.raises(StaleTerm):
            async with client.transaction(), client.fenced(old):
                await client.execute(hidden)
        assert court.works() == []
        with pytest.raises(ConfigurationError, match=r"WITH … INSERT"):
            async with client.transaction():
                await client.execute(hidden)
                await client.fence(old)

    scene(client, body)


def test_a_takeover_waits_for_the_fenced_commit_and_beats_do_not(connection, court):
    court.session.use_lock_file(LockFile(court.store.evidence_directory, court.term.node))
    connection.execute(WORK)
    fence.fence(connection, court.term)
    assert court.beat().verdict is BeatVerdict.RENEWED
    with pytest.raises(StoreUnavailable):
        court.depose()
    connection.commit()
    court.depose()
    assert court.works() == ["work"]


def test_once_a_term_is_granted_no_row_of_an_older_one_is_committed(court):
    """As on PostgreSQL: count the rows of older terms right after each grant, and again at the end."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    terms, counted, done, failures = [court.term], [], threading.Event(), []

    def write(dice):
        connection = sqlite3.connect(work.path(court.url), timeout=5)
        try:
            while not done.is_set():
                attempt(connection, dice)
        except Exception as error:
            failures.append(error)
        finally:
            connection.close()

    def attempt(connection, dice):
        term, early = dice.choice(terms[-2:]), dice.random() < 0.5
        with connection, suppress(StaleTerm):
            if early:  # reads in a snapshot of its own before it writes
                connection.execute("BEGIN")
                connection.execute("SELECT * FROM work LIMIT 1").fetchall()
                time.sleep(dice.random() * 0.002)
            try:
                connection.execute("INSERT INTO work VALUES (?)", [term.number])
                connection.execute("SAVEPOINT before")
            except sqlite3.OperationalError:  # somebody wrote in between
                connection.rollback()
                return
            fence.fence(connection, term)
            time.sleep(dice.random() * 0.002)

    def older_than(term):
        return reader.execute("SELECT count(*) FROM work WHERE CAST(what AS INTEGER) < ?", [term.number]).fetchone()[0]

    workers = [threading.Thread(target=write, args=[random.Random(seed + i)]) for i in range(2)]
    for worker in workers:
        worker.start()
    reader = work.connected(court.url)
    deadline = time.monotonic() + 30
    while len(terms) < 30 and time.monotonic() < deadline and not failures:
        try:
            court.session.release(court.term.node, court.name, court.term.number, "said the test")
            court.try_grant()
        except StoreUnavailable:  # the workers had the write lock all the time
            continue
        counted.append((court.term, older_than(court.term)))
        terms.append(court.term)
        time.sleep(0.005)
    done.set()
    for worker in workers:
        worker.join(20)
    late = {term.number: older_than(term) - before for term, before in counted if older_than(term) != before}
    kinds = reader.execute("SELECT count(DISTINCT what) FROM work").fetchone()[0]
    reader.close()
    assert not failures
    assert not late, f"rows of older terms that were committed after the grant of these: {late}"
    assert kinds > 3, "hardly anything was committed: nothing was tested"


def test_the_memory_store_has_nothing_to_fence_with(tmp_path):
    connection = sqlite3.connect(tmp_path / "app.db")
    connection.execute(work.TABLE)
    with Court("memory://fence") as court, pytest.raises(WrongDatabase), connection:
        connection.execute(WORK)
        fence.fence(connection, court.term)
    assert connection.execute("SELECT * FROM work").fetchall() == []
    connection.close()
