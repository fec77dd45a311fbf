"""Whoever lost a term or a run, and asks inside a transaction, commits nothing of it: every driver on both databases.

Asked is by `fence`, `complete` and `once`. What each of them does for those who lost nothing has files of its own.
"""

import asyncio
import sqlite3
import uuid
from contextlib import closing

import psycopg
import pytest
from django.db.transaction import TransactionManagementError

import callers
import work
from attempts import Desk
from callers import ISOLATION, ON_POSTGRES, ON_SQLITE, WITH_SAVEPOINT_BLOCKS, awaited, scene
from fencing import Court
from tenure.errors import AttemptLost, ConfigurationError, StaleTerm, StoreError, WrongDatabase
from tenure.transactions import effects, fence
from work import LATER, WORK


class Deposed(Court):
    """A leader that was declared dead."""

    call, function = "term.fence", "fence"
    refusal = StaleTerm
    rows = "tenure.election WHERE name = '{0.name}'"
    ask = staticmethod(fence.fence)
    lose = Court.depose

    def __init__(self, url):
        super().__init__(url, name=f"billing {uuid.uuid4()}")

    @property
    def held(self):
        return self.term

    def said(self, old):
        return f"'{old.election}': term {old.number} is over, the current one is {old.number + 1}"

    def untouched(self):
        return True


class Succeeded(Deposed):
    """A leader that gave up."""

    lose = Court.succeed


class Attempt(Desk):
    """An attempt whose run was given to another."""

    refusal = AttemptLost
    rows = "tenure.run WHERE id = {0.claim.run}"

    @property
    def held(self):
        return self.claim

    def said(self, old):
        return f"'billing', run '{old.key}'.*another attempt has it.*nothing of it was committed"

    def untouched(self):
        return self.state == "running" and self.effects() == 0


class Completing(Attempt):
    call, function = "run.complete", "complete"
    ask = staticmethod(effects.complete)


class Guarding(Attempt):
    call, function = "run.once", "once"

    @staticmethod
    def ask(connection, claim):
        return effects.once(connection, claim, "invoice")


WAYS = [Deposed, Succeeded, Completing, Guarding]


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def way(request, url):
    with request.param(url) as way:
        yield way


@pytest.fixture
def url(request):
    """On the database of the driver, where a test has one; else on PostgreSQL."""
    kind = request.getfixturevalue("kind") if "kind" in request.fixturenames else None
    url = request.getfixturevalue("sqlite_url" if kind in ON_SQLITE else "prepared_database")
    work.lay(url)
    return url


every_driver = pytest.mark.parametrize("kind", [*ON_POSTGRES, *ON_SQLITE], ids=lambda kind: kind.__name__)
on_postgres = pytest.mark.parametrize("kind", ON_POSTGRES, ids=lambda kind: kind.__name__)
on_sqlite = pytest.mark.parametrize("kind", ON_SQLITE, ids=lambda kind: kind.__name__)
with_python_alone = pytest.mark.parametrize("kind", [callers.Sqlite], ids=[""])


@every_driver
def test_it_is_told_and_the_connection_goes_on(kind, way):
    client, old = kind(way.url), way.lose()

    async def body():
        for _ in range(2):
            with pytest.raises(way.refusal, match=way.said(old)):
                async with client.transaction():
                    await client.execute(WORK)
                    await awaited(way.ask(client.connection, old))
        async with client.transaction():
            await client.execute(LATER)

    scene(client, body)
    assert way.works() == ["later"]
    assert way.untouched()


@every_driver
def test_whoever_swallows_the_refusal_commits_nothing(kind, way):
    client, old = kind(way.url), way.lose()

    async def body():
        async with client.transaction():
            await client.execute(WORK)
            with pytest.raises(way.refusal):
                await awaited(way.ask(client.connection, old))
        async with client.transaction():
            await client.execute(LATER)

    scene(client, body)
    assert way.works() == ["later"]


@on_postgres
def test_after_a_refusal_nothing_runs_until_the_rollback(kind, way):
    client, old = kind(way.url), way.lose()

    async def body():
        with pytest.raises(Exception, match="transaction"):
            async with client.transaction():
                await client.execute("SELECT 1")
                with pytest.raises(way.refusal):
                    await awaited(way.ask(client.connection, old))
                await client.execute(WORK)

    scene(client, body)
    assert way.works() == []


@pytest.mark.parametrize("kind", [callers.DjangoSqlite], ids=[""])
def test_django_runs_nothing_more_in_a_refused_atomic_block(kind, way):
    """SQLite is out of the transaction then: what came next would be committed statement by statement."""
    client, old = kind(way.url), way.lose()

    async def body():
        async with client.transaction():
            await client.execute(WORK)
            with pytest.raises(way.refusal):
                await awaited(way.ask(client.connection, old))
            with pytest.raises(TransactionManagementError):
                await client.execute(WORK)

    scene(client, body)
    assert way.works() == []


@pytest.mark.parametrize("way", [Deposed, Succeeded, Completing], indirect=True)
@pytest.mark.parametrize("isolation", ISOLATION)
@on_postgres
def test_rolling_back_to_a_savepoint_revives_nothing(kind, isolation, way):
    """It is lost while the transaction is open: above READ COMMITTED its snapshot still shows the old state.

    `once` believes that snapshot: there the key decides, see test_effects_races.py.
    """
    client, old = kind(way.url, isolation), way.held

    async def body():
        with pytest.raises(Exception, match=r"savepoint|transaction"):
            async with client.transaction():
                await client.execute(WORK)
                way.lose()
                await client.execute("SAVEPOINT before")
                with pytest.raises(way.refusal, match=way.said(old)):
                    await awaited(way.ask(client.connection, old))
                await client.execute("ROLLBACK TO SAVEPOINT before")
        async with client.transaction():
            await client.execute(LATER)

    scene(client, body)
    assert way.works() == ["later"]
    assert way.untouched()


@on_sqlite
def test_rolling_back_to_a_savepoint_revives_nothing_on_sqlite(kind, way):
    client, old = kind(way.url), way.lose()

    async def body():
        with pytest.raises(Exception, match=r"no such savepoint|current transaction"):
            async with client.transaction():
                await client.execute(WORK)
                await client.execute("SAVEPOINT before")
                with pytest.raises(way.refusal):
                    await awaited(way.ask(client.connection, old))
                await client.execute("ROLLBACK TO before")

    scene(client, body)
    assert way.works() == []


@pytest.mark.parametrize("kind", WITH_SAVEPOINT_BLOCKS, ids=lambda kind: kind.__name__)
def test_the_drivers_own_savepoint_blocks_revive_nothing(kind, way):
    """Some blocks then say that their savepoint is gone, some that the transaction is; none commits."""
    client, old, said = kind(way.url), way.lose(), []

    async def body():
        try:
            async with client.transaction():
                await client.execute(WORK)
                try:
                    async with client.savepoint():
                        await awaited(way.ask(client.connection, old))
                except Exception as error:
                    said.append(error)
        except Exception as error:
            said.append(error)
        async with client.transaction():
            await client.execute(LATER)

    scene(client, body)
    assert way.works() == ["later"]
    assert isinstance(said[0], way.refusal) or "savepoint" in str(said[0])


@every_driver
def test_without_a_transaction_it_refuses_and_leaves_nothing_behind(kind, way):
    client = kind(way.url)

    async def body():
        await awaited(client.autocommit())
        with pytest.raises(ConfigurationError, match=rf"{way.call}: .*(transaction|autocommit)"):
            await awaited(way.ask(client.connection, way.held))
        assert way.untouched()
        way.lose()  # no lock was left

    scene(client, body)


@pytest.mark.parametrize("way", [Deposed, Completing], indirect=True)
@pytest.mark.parametrize("kind", [callers.PsycopgByHand, callers.Psycopg2, callers.Alchemy, callers.AlchemySession])
def test_asked_after_the_commit_it_refuses(kind, way):
    client = kind(way.url)

    async def body():
        async with client.transaction():
            await client.execute(WORK)
        with pytest.raises(ConfigurationError, match=rf"{way.call}: .*committed already.*[Cc]all it before"):
            await awaited(way.ask(client.connection, way.held))
        way.lose()  # no lock was left

    scene(client, body)


@pytest.mark.parametrize("kind", [callers.AsyncPsycopg, callers.Asyncpg, callers.AsyncAlchemySession])
def test_asked_and_cancelled_it_commits_nothing(kind, way):
    client = kind(way.url)

    async def body():
        with psycopg.connect(way.url) as stuck:
            stuck.execute(f"SELECT 1 FROM {way.rows.format(way)} FOR UPDATE")
            with pytest.raises(Exception, match="savepoint"):
                async with client.transaction():
                    await client.execute(WORK)
                    await client.execute("SAVEPOINT before")
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(0.05):
                            await way.ask(client.connection, way.held)
                    await client.execute("ROLLBACK TO SAVEPOINT before")
        async with client.transaction():
            await client.execute(LATER)
            await way.ask(client.connection, way.held)

    scene(client, body)
    assert way.works() == ["later"]


@pytest.fixture(scope="module")
def bare(postgres):
    """A database that tenure does not know."""
    url = postgres.create_database()
    work.lay(url)
    yield url
    postgres.drop_database(url)


@on_postgres
def test_a_database_without_tenure(kind, bare, way):
    client = kind(bare)

    async def body():
        async with client.transaction():
            await client.execute(WORK)
            with pytest.raises(WrongDatabase, match=r"was refused.*no tenure in schema 'tenure'"):
                await awaited(way.ask(client.connection, way.held))

    scene(client, body)
    assert work.done(bare) == []


@with_python_alone
def test_another_file(kind, tmp_path, way):
    another = f"sqlite:///{tmp_path / 'another.db'}"
    work.lay(another)
    with closing(work.connected(another)) as connection, connection:
        connection.execute("ATTACH ? AS beside", [work.path(way.url)])  # two files do not commit together
        connection.execute(WORK)
        with pytest.raises(WrongDatabase, match="no tables of tenure"):
            way.ask(connection, way.held)
    assert work.done(another) == []


@with_python_alone
def test_a_reader_that_was_overtaken_is_told(kind, way):
    with closing(work.connected(way.url)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT * FROM work").fetchall()
        old = way.lose()
        with pytest.raises(way.refusal, match=way.said(old)):
            way.ask(connection, old)
        assert not connection.in_transaction


@with_python_alone
def test_a_reader_that_another_write_overtook_may_try_again(kind, way):
    with closing(work.connected(way.url)) as connection, closing(work.connected(way.url)) as other:
        connection.execute("BEGIN")
        connection.execute("SELECT * FROM work").fetchall()
        with other:
            other.execute(WORK)
        with pytest.raises(sqlite3.OperationalError) as caught:
            way.ask(connection, way.held)
        assert caught.value.sqlite_errorname == "SQLITE_BUSY_SNAPSHOT"
        assert not connection.in_transaction
        with connection:
            connection.execute(LATER)
            way.ask(connection, way.held)
    assert way.works() == ["work", "later"]


@pytest.fixture
def modest(way):
    """The URL for a role that may use the schema and call the one function, and nothing else of tenure."""
    role = f"modest_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(way.url) as owner:
        owner.execute("REVOKE ALL ON ALL FUNCTIONS IN SCHEMA tenure FROM PUBLIC")
        owner.execute(f"CREATE ROLE {role} LOGIN")
        owner.execute(f"GRANT USAGE ON SCHEMA tenure TO {role}")
        owner.execute(f"GRANT EXECUTE ON FUNCTION tenure.{way.function} TO {role}")
        owner.execute(f"GRANT INSERT ON work TO {role}")
    yield way.url.replace("postgres@", f"{role}@")
    with psycopg.connect(way.url) as owner:
        owner.execute(f"DROP OWNED BY {role}")
        owner.execute(f"DROP ROLE {role}")


def test_a_role_needs_nothing_but_usage_and_execute(modest, way):
    with psycopg.connect(modest) as connection:
        for table in ("election", "run"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                connection.execute(f"SELECT * FROM tenure.{table}")
        old = way.lose()
        with connection.transaction():
            connection.execute(WORK)
            with pytest.raises(way.refusal):
                way.ask(connection, old)
        with connection.transaction():
            connection.execute(LATER)
            way.ask(connection, way.held)
    assert way.works() == ["later"]


def test_a_role_that_may_not_call_it_is_told_the_grant(modest, way):
    with psycopg.connect(way.url) as owner:
        owner.execute(f"REVOKE ALL ON FUNCTION tenure.{way.function} FROM " + modest.split("//")[1].split("@")[0])
    with psycopg.connect(modest) as connection:
        connection.execute(WORK)
        with pytest.raises(StoreError, match=rf"GRANT EXECUTE ON FUNCTION tenure\.{way.function}"):
            way.ask(connection, way.held)
    assert way.works() == []


def test_through_a_pooler_in_transaction_mode(pgbouncer, way):
    through = pgbouncer.url(way.url.rpartition("/")[2])
    with psycopg.connect(through) as connection, psycopg.connect(through) as neighbour:
        old = way.lose()
        with connection.transaction():
            connection.execute(WORK)
            with pytest.raises(way.refusal):
                way.ask(connection, old)
            neighbour.execute(LATER)
            neighbour.commit()
        with connection.transaction():
            connection.execute(WORK)
            way.ask(connection, way.held)
    assert way.works() == ["later", "work"]
