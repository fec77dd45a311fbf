"""The fence on SQLite, for every driver of it."""

import random
import sqlite3
import threading
import time
from contextlib import suppress

import pytest
import sqlalchemy
from django.db.transaction import TransactionManagementError

import fencing
from fencing import ON_SQLITE, Court, awaited, scene
from tenure import fence
from tenure.errors import ConfigurationError, StaleTerm, StoreUnavailable, WrongDatabase
from tenure.evidence import LockFile
from tenure.model import Verdict

WORK = "INSERT INTO effect (what) VALUES ('work')"


@pytest.fixture
def court(sqlite_url):
    with Court(sqlite_url, timeout=0.1) as court:
        with connected(court) as connection:
            connection.execute("CREATE TABLE effect (what text)")
        connection.close()
        yield court


@pytest.fixture
def effects(court):
    """What was committed."""

    def read():
        connection = connected(court)
        try:
            return [what for (what,) in connection.execute("SELECT what FROM effect")]
        finally:
            connection.close()

    return read


@pytest.fixture
def connection(court):
    connection = connected(court)
    yield connection
    connection.close()


@pytest.fixture(params=ON_SQLITE, ids=lambda kind: kind.__name__)
def client(request, court):
    return request.param(court.url)


def test_the_leader_commits(client, court, effects):
    async def body():
        for _ in range(2):
            async with client.transaction():
                await client.execute(WORK)
                await client.fence(court.term)

    scene(client, body)
    assert effects() == ["work", "work"]


def test_a_fenced_block_commits(client, court, effects):
    async def body():
        async with client.transaction(), client.fenced(court.term):
            await client.execute(WORK)
        async with client.transaction(), client.fenced(court.term):
            pass  # nothing to do today
        async with client.transaction(), client.fenced(court.term):
            await client.execute(WORK)

    scene(client, body)
    assert effects() == ["work", "work"]


@pytest.mark.parametrize("change", [Court.depose, Court.succeed])
def test_a_stale_term_is_refused_and_the_connection_goes_on(change, client, court, effects):
    old = change(court)

    async def body():
        for _ in range(2):
            with pytest.raises(StaleTerm, match=f"term {old.number} is over, the current one is {old.number + 1}"):
                async with client.transaction():
                    await client.execute(WORK)
                    await client.fence(old)
        with pytest.raises(StaleTerm):
            async with client.transaction(), client.fenced(old):
                await client.execute(WORK)
        async with client.transaction():
            await client.execute("INSERT INTO effect (what) VALUES ('unfenced, later')")

    scene(client, body)
    assert effects() == ["unfenced, later"]


def test_whoever_swallows_the_refusal_commits_nothing(client, court, effects):
    old = court.depose()

    async def body():
        async with client.transaction():
            await client.execute(WORK)
            with pytest.raises(StaleTerm):
                await client.fence(old)
        async with client.transaction():
            await client.execute("INSERT INTO effect (what) VALUES ('unfenced, later')")

    scene(client, body)
    assert effects() == ["unfenced, later"]


def test_django_runs_nothing_more_in_a_refused_atomic_block(court, effects):
    """SQLite is out of the transaction then: what came next would be committed statement by statement."""
    client, old = fencing.DjangoSqlite(court.url), court.depose()

    async def body():
        async with client.transaction():
            await client.execute(WORK)
            with pytest.raises(StaleTerm):
                await client.fence(old)
            with pytest.raises(TransactionManagementError):
                await client.execute(WORK)

    scene(client, body)
    assert effects() == []


def test_rolling_back_to_a_savepoint_revives_nothing(client, court, effects):
    old = court.depose()

    async def body():
        with pytest.raises(Exception, match=r"no such savepoint|current transaction"):
            async with client.transaction():
                await client.execute(WORK)
                await client.execute("SAVEPOINT before")
                with pytest.raises(StaleTerm):
                    await client.fence(old)
                await client.execute("ROLLBACK TO before")

    scene(client, body)
    assert effects() == []


def test_without_a_transaction_it_refuses(client, court):
    async def body():
        await awaited(client.autocommit())
        with pytest.raises(ConfigurationError, match=r"term\.fence: .*transaction"):
            await client.fence(court.term)
        with pytest.raises(ConfigurationError, match=r"term\.fence: .*transaction"):
            async with client.fenced(court.term):
                raise AssertionError("the block must not begin: its work would be committed at once")

    scene(client, body)
    court.depose()  # no write lock was left


@pytest.mark.parametrize(
    "kind", [fencing.Sqlite, fencing.Aiosqlite, fencing.AlchemySqlite, fencing.AlchemySqliteSession]
)
def test_what_python_commits_at_once_is_refused_by_fence_and_held_by_fenced(kind, court, effects):
    """Python opens no transaction for `WITH … INSERT`."""
    client, old = kind(court.url), court.depose()
    hidden = "WITH it AS (SELECT 'work') INSERT INTO effect SELECT * FROM it"

    async def body():
        with pytest.raises(StaleTerm):
            async with client.transaction(), client.fenced(old):
                await client.execute(hidden)
        assert effects() == []
        with pytest.raises(ConfigurationError, match=r"WITH … INSERT"):
            async with client.transaction():
                await client.execute(hidden)
                await client.fence(old)

    scene(client, body)


def test_a_block_that_raises_is_not_fenced(client, court, effects):
    old = court.depose()

    async def body():
        with pytest.raises(ZeroDivisionError):
            async with client.transaction(), client.fenced(old):
                await client.execute(WORK)
                raise ZeroDivisionError

    scene(client, body)
    assert effects() == []


def test_a_takeover_waits_for_the_fenced_commit_and_beats_do_not(connection, court, effects):
    court.session.use_lock_file(LockFile(court.store.evidence_directory, court.term.node))
    connection.execute(WORK)
    fence.fence(connection, court.term)
    assert court.beat().verdict is Verdict.RENEWED
    with pytest.raises(StoreUnavailable):
        court.depose()
    connection.commit()
    court.depose()
    assert effects() == ["work"]


def test_a_reader_that_a_takeover_overtook_is_stale(connection, court, effects):
    old = court.term
    connection.execute("BEGIN")
    connection.execute("SELECT * FROM effect").fetchall()
    court.depose()
    with pytest.raises(StaleTerm, match=f"the current one is {old.number + 1}"):
        fence.fence(connection, old)
    assert not connection.in_transaction


def test_a_reader_that_another_write_overtook_may_try_again(connection, court):
    connection.execute("BEGIN")
    connection.execute("SELECT * FROM effect").fetchall()
    with connected(court) as other:
        other.execute(WORK)
    other.close()
    with pytest.raises(sqlite3.OperationalError) as caught:
        fence.fence(connection, court.term)
    assert caught.value.sqlite_errorname == "SQLITE_BUSY_SNAPSHOT"
    assert not connection.in_transaction
    with connection, fence.fenced(connection, court.term):
        connection.execute(WORK)


def test_once_a_term_is_granted_no_row_of_an_older_one_is_committed(court):
    """As on PostgreSQL: count the rows of older terms right after each grant, and again at the end."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    terms, counted, done, failures = [court.term], [], threading.Event(), []

    def work(dice):
        connection = sqlite3.connect(path(court), timeout=5)
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
                connection.execute("SELECT * FROM effect LIMIT 1").fetchall()
                time.sleep(dice.random() * 0.002)
            try:
                connection.execute("INSERT INTO effect VALUES (?)", [term.number])
                connection.execute("SAVEPOINT before")
            except sqlite3.OperationalError:  # somebody wrote in between
                connection.rollback()
                return
            fence.fence(connection, term)
            time.sleep(dice.random() * 0.002)

    def older_than(term):
        return reader.execute("SELECT count(*) FROM effect WHERE CAST(what AS INTEGER) < ?", [term.number]).fetchone()[
            0
        ]

    workers = [threading.Thread(target=work, args=[random.Random(seed + i)]) for i in range(2)]
    for worker in workers:
        worker.start()
    reader = connected(court)
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
    kinds = reader.execute("SELECT count(DISTINCT what) FROM effect").fetchone()[0]
    reader.close()
    assert not failures
    assert not late, f"rows of older terms that were committed after the grant of these: {late}"
    assert kinds > 3, "hardly anything was committed: nothing was tested"


def test_another_file(tmp_path, court):
    connection = sqlite3.connect(tmp_path / "another.db")
    connection.execute("CREATE TABLE effect (what text)")
    connection.execute("ATTACH ? AS beside", [path(court)])  # two files do not commit together
    with connection:
        connection.execute(WORK)
        with pytest.raises(WrongDatabase, match="no tables of tenure"):
            fence.fence(connection, court.term)
    assert connection.execute("SELECT * FROM main.effect").fetchall() == []
    connection.close()


def test_a_file_that_never_saw_the_election(connection, court, effects):
    court.term.election = "another"
    connection.execute(WORK)
    with pytest.raises(WrongDatabase, match=r"'another'.*never seen that election"):
        fence.fence(connection, court.term)
    connection.commit()
    assert effects() == []


def path(court):
    return sqlalchemy.make_url(court.url).database


def connected(court):
    return sqlite3.connect(path(court), timeout=0.05)


def test_the_memory_store_has_nothing_to_fence_with(tmp_path):
    connection = sqlite3.connect(tmp_path / "app.db")
    connection.execute("CREATE TABLE effect (what text)")
    with Court("memory://fence") as court, pytest.raises(WrongDatabase), connection:
        connection.execute(WORK)
        fence.fence(connection, court.term)
    assert connection.execute("SELECT * FROM effect").fetchall() == []
    connection.close()
