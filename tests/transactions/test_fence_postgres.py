"""The fence on PostgreSQL: levels of isolation, conflicts, networks, sessions, and what it refuses to work with."""

import asyncio
import subprocess
import sys
import uuid

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy import orm

import callers
import work
from callers import ISOLATION, ON_POSTGRES, awaited, scene
from fencing import Court
from tenure.errors import ConfigurationError, StaleTerm
from tenure.transactions import drivers, fence
from work import WORK


@pytest.fixture
def court(prepared_database):
    work.lay(prepared_database)
    with Court(prepared_database, name=f"billing {uuid.uuid4()}") as court:
        yield court


def test_rolling_back_to_a_savepoint_by_hand_then_commit(court):
    """No block in the way that would roll back by itself."""
    old = court.depose()
    with psycopg.connect(court.url, autocommit=True) as connection:
        connection.execute("BEGIN")
        connection.execute(WORK)
        connection.execute("SAVEPOINT before")
        with pytest.raises(StaleTerm):
            fence.fence(connection, old)
        with pytest.raises(psycopg.errors.InvalidSavepointSpecification):
            connection.execute("ROLLBACK TO SAVEPOINT before")
        connection.execute("COMMIT")
    assert court.works() == []


@pytest.mark.parametrize("isolation", ISOLATION)
@pytest.mark.parametrize("kind", ON_POSTGRES, ids=lambda kind: kind.__name__)
def test_every_isolation_level_commits_for_the_leader(kind, isolation, court):
    client = kind(court.url, isolation)

    async def body():
        async with client.transaction():
            await client.execute(WORK)
            court.beat()
            await client.fence(court.term)

    scene(client, body)
    assert court.works() == ["work"]


def test_a_commit_inside_a_fenced_block_is_told(court):
    with (
        psycopg.connect(court.url) as connection,
        pytest.raises(ConfigurationError, match="committed already"),
        fence.fenced(connection, court.term),
    ):
        connection.execute(WORK)
        connection.commit()


def test_an_empty_transaction_of_a_framework_is_fenced_too(court):
    for kind in (callers.AlchemySession, callers.AsyncAlchemy, callers.AsyncAlchemySession, callers.Django):
        client = kind(court.url)

        async def body(client=client):
            async with client.transaction():
                await client.fence(court.term)
                assert locks(court.url) == 1

        scene(client, body)


@pytest.mark.parametrize("kind", [callers.Psycopg, callers.AsyncPsycopg, callers.Asyncpg])
def test_a_wrapped_connection_in_autocommit_mode_may_still_open_a_transaction(kind, court):
    client = kind(court.url)

    async def body():
        await awaited(client.autocommit())
        async with client.transaction():
            await client.execute(WORK)
            await client.fence(court.term)

    scene(client, body)
    assert court.works() == ["work"]


@pytest.mark.parametrize("change", ["number", "node"])
def test_term_and_holder_must_both_match(change, court):
    setattr(court.term, change, {"number": court.term.number + 5, "node": str(uuid.uuid4())}[change])
    with psycopg.connect(court.url) as connection:
        connection.execute(WORK)
        with pytest.raises(StaleTerm):
            fence.fence(connection, court.term)
    assert court.works() == []


def test_a_released_term_is_over_at_once(court):
    court.session.release(court.term.node, court.name, court.term.number, "done")
    with psycopg.connect(court.url) as connection:
        connection.execute(WORK)
        with pytest.raises(StaleTerm, match="given up"):
            fence.fence(connection, court.term)
    assert court.works() == []


def test_a_conflict_of_the_callers_own_is_no_stale_term(court):
    """Above READ COMMITTED the same error code may come from the caller's tables: whoever still leads retries, and must
    not stop."""
    with psycopg.connect(court.url) as one, psycopg.connect(court.url) as two:
        for connection in (one, two):
            connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
            connection.execute("SELECT count(*) FROM work")
        for connection in (one, two):
            connection.execute(WORK)
        fence.fence(one, court.term)
        one.commit()
        with pytest.raises(psycopg.errors.SerializationFailure):
            fence.fence(two, court.term)
        two.commit()
        assert locks(court.url) == 0
    assert court.works() == ["work"]


def test_a_fence_that_times_out_commits_nothing(court):
    with psycopg.connect(court.url) as stuck, psycopg.connect(court.url) as connection:
        stuck.execute("SELECT 1 FROM tenure.election FOR UPDATE")
        connection.execute("SET LOCAL lock_timeout = '20ms'")
        connection.execute(WORK)
        connection.execute("SAVEPOINT before")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            fence.fence(connection, court.term)
        with pytest.raises(psycopg.errors.InvalidSavepointSpecification):
            connection.execute("ROLLBACK TO SAVEPOINT before")
        connection.commit()
    assert court.works() == []


def test_a_cancelled_fence_does_not_wait_for_a_dead_network(monkeypatch, proxy, court):
    monkeypatch.setattr(drivers, "PATIENCE", 0.1)

    async def body():
        connection = await asyncpg.connect(proxy.url(court.url.rpartition("/")[2]))
        await connection.execute("BEGIN")
        await connection.execute(WORK)
        proxy.black_hole()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await fence.fence(connection, court.term)
        assert connection.is_closed()

    asyncio.run(body())
    assert court.works() == []


def test_a_connection_that_is_gone_says_so_in_the_drivers_words(court):
    with psycopg.connect(court.url) as connection:
        connection.execute(WORK)
        with psycopg.connect(court.url, autocommit=True) as admin:
            admin.execute("SELECT pg_terminate_backend(%s)", [connection.info.backend_pid])
        with pytest.raises(psycopg.OperationalError):
            fence.fence(connection, court.term)
        assert connection.closed
    assert court.works() == []


def test_pending_objects_of_a_session_are_part_of_the_work(court):
    class Base(orm.DeclarativeBase):
        pass

    class Work(Base):
        __tablename__ = "work"
        what: orm.Mapped[str] = orm.mapped_column(primary_key=True)

    engine = sqlalchemy.create_engine(court.url.replace("postgresql:", "postgresql+psycopg:"))
    with orm.Session(engine) as session, session.begin():
        session.add(Work(what="object"))
        fence.fence(session, court.term)
    assert court.works() == ["object"]
    old = court.depose()
    with orm.Session(engine) as session, session.begin():
        session.add(Work(what="stale object"))
        with pytest.raises(StaleTerm):
            fence.fence(session, old)
    assert court.works() == ["object"]
    engine.dispose()


def test_two_phase_commit_is_refused(court):
    engine = sqlalchemy.create_engine(court.url.replace("postgresql:", "postgresql+psycopg2:"))
    with (
        engine.connect() as connection,
        connection.begin_twophase(),
        pytest.raises(ConfigurationError, match="two-phase"),
    ):
        fence.fence(connection, court.term)
    engine.dispose()


def test_pipeline_mode_is_refused(court):
    with psycopg.connect(court.url) as connection, connection.pipeline():
        connection.execute(WORK)
        with pytest.raises(ConfigurationError, match="pipeline"):
            fence.fence(connection, court.term)


@pytest.mark.parametrize("thing", [None, "postgresql:///app", object()], ids=["None", "a URL", "an object"])
def test_anything_else_is_refused_with_a_list(thing, court):
    with pytest.raises(ConfigurationError, match=r"sqlite3.*psycopg.*asyncpg.*SQLAlchemy.*Django"):
        fence.fence(thing, court.term)


def test_the_two_kinds_of_with_are_told_apart(court):
    with psycopg.connect(court.url) as connection:

        async def wrong():
            async with fence.fenced(connection, court.term):
                pass

        with pytest.raises(ConfigurationError, match="Write `with"):
            asyncio.run(wrong())

    async def wrong_too():
        connection = await asyncpg.connect(court.url)
        try:
            with fence.fenced(connection, court.term):
                pass
        finally:
            await connection.close()

    with pytest.raises(ConfigurationError, match="Write `async with"):
        asyncio.run(wrong_too())


def test_no_driver_is_imported_for_the_callers_sake():
    program = """
import sys
import tenure.transactions.fence
from tenure.errors import ConfigurationError
try:
    tenure.transactions.fence.fence(object(), None)
except ConfigurationError:
    drivers = {"psycopg", "psycopg2", "asyncpg", "aiosqlite", "sqlalchemy", "django", "sqlite3"}
    print(sorted(drivers & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def locks(url):
    """How many transactions have looked at elections and are still open: those in which a fence was left."""
    with psycopg.connect(url) as connection:
        return connection.execute(
            "SELECT count(DISTINCT pid) FROM pg_locks WHERE relation = 'tenure.election'::regclass AND mode = 'RowShareLock'"
        ).fetchone()[0]
