"""Once a later term is granted, nothing fenced with an earlier one commits: every driver on a real PostgreSQL."""

import asyncio
import subprocess
import sys
import uuid

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy import orm

import fencing
from fencing import ISOLATION, ON_POSTGRES, WITH_SAVEPOINT_BLOCKS, Court, awaited, scene
from tenure import drivers, fence
from tenure.errors import ConfigurationError, StaleTerm, StoreError, WrongDatabase
from tenure.stores import store_for

WORK = "INSERT INTO effect (what) VALUES ('work')"


@pytest.fixture(scope="module")
def shared(postgres):
    """One database for all: each test has an election of its own."""
    url = postgres.create_database()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE effect (what text)")
    store_for(url).prepare()
    yield url
    postgres.drop_database(url)


@pytest.fixture
def court(shared):
    with psycopg.connect(shared) as connection:
        connection.execute("DELETE FROM effect")
    with Court(shared, name=f"billing {uuid.uuid4()}") as court:
        yield court


@pytest.fixture
def effects(court):
    """What was committed."""

    def read():
        with psycopg.connect(court.url) as connection:
            return [what for (what,) in connection.execute("SELECT what FROM effect")]

    return read


@pytest.fixture(params=ON_POSTGRES, ids=lambda kind: kind.__name__)
def client(request, court):
    return request.param(court.url)


@pytest.fixture(params=WITH_SAVEPOINT_BLOCKS, ids=lambda kind: kind.__name__)
def nesting(request, court):
    return request.param(court.url)


def test_the_leader_commits(client, court, effects):
    async def body():
        for _ in range(2):  # the connection is as good as before
            async with client.transaction():
                await client.execute(WORK)
                await client.fence(court.term)

    scene(client, body)
    assert effects() == ["work", "work"]


def test_a_fenced_block_commits(client, court, effects):
    async def body():
        for _ in range(2):
            async with client.transaction(), client.fenced(court.term):
                await client.execute(WORK)
        async with client.transaction(), client.fenced(court.term):
            pass  # nothing to do today

    scene(client, body)
    assert effects() == ["work", "work"]


def test_a_stale_term_is_refused_and_the_connection_goes_on(client, court, effects):
    old = court.depose()

    async def body():
        for _ in range(2):
            with pytest.raises(
                StaleTerm, match=f"{old.election}': term {old.number} is over, the current one is {old.number + 1}"
            ):
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


def test_after_a_refusal_nothing_runs_until_the_rollback(client, court, effects):
    old = court.depose()

    async def body():
        with pytest.raises(Exception, match="transaction"):
            async with client.transaction():
                with pytest.raises(StaleTerm):
                    await client.fence(old)
                await client.execute(WORK)

    scene(client, body)
    assert effects() == []


@pytest.mark.parametrize("isolation", ISOLATION)
@pytest.mark.parametrize("kind", ON_POSTGRES, ids=lambda kind: kind.__name__)
def test_rolling_back_to_a_savepoint_revives_nothing(kind, isolation, court, effects):
    """The takeover comes while the transaction is open: above READ COMMITTED its snapshot still shows the old term."""
    client, old = kind(court.url, isolation), court.term

    async def body():
        with pytest.raises(Exception, match=r"savepoint|transaction"):
            async with client.transaction():
                await client.execute(WORK)
                court.succeed()
                await client.execute("SAVEPOINT before")
                with pytest.raises(StaleTerm, match=f"the current one is {old.number + 1}"):
                    await client.fence(old)
                await client.execute("ROLLBACK TO SAVEPOINT before")
        async with client.transaction():
            await client.execute("INSERT INTO effect (what) VALUES ('unfenced, later')")

    scene(client, body)
    assert effects() == ["unfenced, later"]


def test_rolling_back_to_a_savepoint_by_hand_then_commit(court, effects):
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
    assert effects() == []


def test_the_drivers_own_savepoint_blocks_revive_nothing(nesting, court, effects):
    """Some blocks then say that their savepoint is gone, some that the transaction is; none commits."""
    old, said = court.depose(), []

    async def body():
        try:
            async with nesting.transaction():
                await nesting.execute(WORK)
                try:
                    async with nesting.savepoint():
                        await nesting.fence(old)
                except Exception as error:
                    said.append(error)
        except Exception as error:
            said.append(error)
        async with nesting.transaction():
            await nesting.execute("INSERT INTO effect (what) VALUES ('unfenced, later')")

    scene(nesting, body)
    assert effects() == ["unfenced, later"]
    print(said)
    assert isinstance(said[0], StaleTerm) or "savepoint" in str(said[0])


@pytest.mark.parametrize("isolation", ISOLATION)
@pytest.mark.parametrize("kind", ON_POSTGRES, ids=lambda kind: kind.__name__)
def test_every_isolation_level_commits_for_the_leader(kind, isolation, court, effects):
    client = kind(court.url, isolation)

    async def body():
        async with client.transaction():
            await client.execute(WORK)
            court.beat()
            await client.fence(court.term)

    scene(client, body)
    assert effects() == ["work"]


def test_without_a_transaction_it_refuses_and_leaves_nothing_behind(client, court):
    async def body():
        await awaited(client.autocommit())
        with pytest.raises(ConfigurationError, match=r"term\.fence: .*transaction"):
            await client.fence(court.term)
        with pytest.raises(ConfigurationError, match=r"term\.fence: .*transaction"):
            async with client.fenced(court.term):
                raise AssertionError("the block must not begin: its work would be committed at once")
        assert locks(court.url) == 0

    scene(client, body)


@pytest.mark.parametrize("kind", [fencing.PsycopgByHand, fencing.Psycopg2, fencing.Alchemy, fencing.AlchemySession])
def test_a_fence_after_the_commit_is_refused(kind, court):
    client = kind(court.url)

    async def body():
        async with client.transaction():
            await client.execute(WORK)
        with pytest.raises(ConfigurationError, match=r"committed already.*[Cc]all it before"):
            await client.fence(court.term)
        assert locks(court.url) == 0

    scene(client, body)


def test_a_commit_inside_a_fenced_block_is_told(court):
    with (
        psycopg.connect(court.url) as connection,
        pytest.raises(ConfigurationError, match="committed already"),
        fence.fenced(connection, court.term),
    ):
        connection.execute(WORK)
        connection.commit()


def test_a_block_that_raises_is_not_fenced(client, court, effects):
    old = court.depose()

    async def body():
        with pytest.raises(ZeroDivisionError):
            async with client.transaction(), client.fenced(old):
                await client.execute(WORK)
                raise ZeroDivisionError

    scene(client, body)
    assert effects() == []


def test_an_empty_transaction_of_a_framework_is_fenced_too(court):
    for kind in (fencing.AlchemySession, fencing.AsyncAlchemy, fencing.AsyncAlchemySession, fencing.Django):
        client = kind(court.url)

        async def body(client=client):
            async with client.transaction():
                await client.fence(court.term)
                assert locks(court.url) == 1

        scene(client, body)


@pytest.mark.parametrize("kind", [fencing.Psycopg, fencing.AsyncPsycopg, fencing.Asyncpg])
def test_a_wrapped_connection_in_autocommit_mode_may_still_open_a_transaction(kind, court, effects):
    client = kind(court.url)

    async def body():
        await awaited(client.autocommit())
        async with client.transaction():
            await client.execute(WORK)
            await client.fence(court.term)

    scene(client, body)
    assert effects() == ["work"]


@pytest.fixture(scope="module")
def bare(postgres):
    """A database that tenure does not know."""
    url = postgres.create_database()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE effect (what text)")
    yield url
    postgres.drop_database(url)


def test_a_database_without_tenure(client, bare, court):
    client.url = bare

    async def body():
        async with client.transaction():
            await client.execute(WORK)
            with pytest.raises(WrongDatabase, match="no tenure in schema 'tenure'"):
                await client.fence(court.term)

    scene(client, body)
    with psycopg.connect(bare) as connection:
        assert connection.execute("SELECT count(*) FROM effect").fetchone() == (0,)


def test_a_database_with_tenure_that_never_saw_the_election(court, effects):
    court.term.election = "another"
    with psycopg.connect(court.url) as connection:
        connection.execute(WORK)
        with pytest.raises(WrongDatabase, match=r"'another'.*never seen that election"):
            fence.fence(connection, court.term)
    assert effects() == []


@pytest.mark.parametrize("change", ["number", "node"])
def test_term_and_holder_must_both_match(change, court, effects):
    setattr(court.term, change, {"number": court.term.number + 5, "node": str(uuid.uuid4())}[change])
    with psycopg.connect(court.url) as connection:
        connection.execute(WORK)
        with pytest.raises(StaleTerm):
            fence.fence(connection, court.term)
    assert effects() == []


def test_a_released_term_is_over_at_once(court, effects):
    court.session.release(court.term.node, court.name, court.term.number, "done")
    with psycopg.connect(court.url) as connection:
        connection.execute(WORK)
        with pytest.raises(StaleTerm, match="given up"):
            fence.fence(connection, court.term)
    assert effects() == []


def test_a_conflict_of_the_callers_own_is_no_stale_term(court, effects):
    """Above READ COMMITTED the same error code may come from the caller's tables: whoever still leads retries, and must not stop."""
    with psycopg.connect(court.url) as one, psycopg.connect(court.url) as two:
        for connection in (one, two):
            connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
            connection.execute("SELECT count(*) FROM effect")
        for connection in (one, two):
            connection.execute(WORK)
        fence.fence(one, court.term)
        one.commit()
        with pytest.raises(psycopg.errors.SerializationFailure):
            fence.fence(two, court.term)
        two.commit()
        assert locks(court.url) == 0
    assert effects() == ["work"]


def test_a_fence_that_times_out_commits_nothing(court, effects):
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
    assert effects() == []


@pytest.mark.parametrize("kind", [fencing.AsyncPsycopg, fencing.Asyncpg, fencing.AsyncAlchemySession])
def test_a_cancelled_fence_commits_nothing(kind, court, effects):
    client = kind(court.url)

    async def body():
        with psycopg.connect(court.url) as stuck:
            stuck.execute("SELECT 1 FROM tenure.election WHERE name = %s FOR UPDATE", [court.name])
            with pytest.raises(Exception, match="savepoint"):
                async with client.transaction():
                    await client.execute(WORK)
                    await client.execute("SAVEPOINT before")
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(0.05):
                            await client.fence(court.term)
                    await client.execute("ROLLBACK TO SAVEPOINT before")
        async with client.transaction():
            await client.execute("INSERT INTO effect (what) VALUES ('later')")
            await client.fence(court.term)

    scene(client, body)
    assert effects() == ["later"]


def test_a_cancelled_fence_does_not_wait_for_a_dead_network(monkeypatch, proxy, court, effects):
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
    assert effects() == []


def test_a_connection_that_is_gone_says_so_in_the_drivers_words(court, effects):
    with psycopg.connect(court.url) as connection:
        connection.execute(WORK)
        with psycopg.connect(court.url, autocommit=True) as admin:
            admin.execute("SELECT pg_terminate_backend(%s)", [connection.info.backend_pid])
        with pytest.raises(psycopg.OperationalError):
            fence.fence(connection, court.term)
        assert connection.closed
    assert effects() == []


@pytest.fixture
def modest(postgres, court):
    """The URL for a role that may use the schema and call the fence, and nothing else of tenure."""
    role = f"modest_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(court.url) as owner:
        owner.execute("REVOKE ALL ON ALL FUNCTIONS IN SCHEMA tenure FROM PUBLIC")
        owner.execute(f"CREATE ROLE {role} LOGIN")
        owner.execute(f"GRANT USAGE ON SCHEMA tenure TO {role}")
        owner.execute(f"GRANT EXECUTE ON FUNCTION tenure.fence TO {role}")
        owner.execute(f"GRANT INSERT ON effect TO {role}")
    yield court.url.replace("postgres@", f"{role}@")
    with psycopg.connect(court.url) as owner:
        owner.execute(f"DROP OWNED BY {role}")
        owner.execute(f"DROP ROLE {role}")


def test_a_role_needs_nothing_but_usage_and_execute(modest, court, effects):
    with psycopg.connect(modest) as connection:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT * FROM tenure.election")
        connection.rollback()
        with connection.transaction():
            connection.execute(WORK)
            fence.fence(connection, court.term)
        old = court.depose()
        with pytest.raises(StaleTerm), connection.transaction():
            connection.execute(WORK)
            fence.fence(connection, old)
    assert effects() == ["work"]


def test_a_role_that_may_not_call_the_fence_is_told_the_grant(modest, court, effects):
    with psycopg.connect(court.url) as owner:
        owner.execute("REVOKE ALL ON FUNCTION tenure.fence FROM " + modest.split("//")[1].split("@")[0])
    with psycopg.connect(modest) as connection:
        connection.execute(WORK)
        with pytest.raises(StoreError, match=r"GRANT EXECUTE ON FUNCTION tenure\.fence"):
            fence.fence(connection, court.term)
    assert effects() == []


def test_through_a_pooler_in_transaction_mode(pgbouncer, court, effects):
    through = pgbouncer.url(court.url.rpartition("/")[2])
    with psycopg.connect(through) as connection, psycopg.connect(through) as neighbour:
        with connection.transaction():
            connection.execute(WORK)
            fence.fence(connection, court.term)
        old = court.depose()
        with connection.transaction():
            connection.execute(WORK)
            with pytest.raises(StaleTerm):
                fence.fence(connection, old)
            neighbour.execute("INSERT INTO effect VALUES ('neighbour')")
            neighbour.commit()
    assert effects() == ["work", "neighbour"]


def test_pending_objects_of_a_session_are_part_of_the_work(court, effects):
    class Base(orm.DeclarativeBase):
        pass

    class Effect(Base):
        __tablename__ = "effect"
        what: orm.Mapped[str] = orm.mapped_column(primary_key=True)

    engine = sqlalchemy.create_engine(court.url.replace("postgresql:", "postgresql+psycopg:"))
    with orm.Session(engine) as session, session.begin():
        session.add(Effect(what="object"))
        fence.fence(session, court.term)
    assert effects() == ["object"]
    old = court.depose()
    with orm.Session(engine) as session, session.begin():
        session.add(Effect(what="stale object"))
        with pytest.raises(StaleTerm):
            fence.fence(session, old)
    assert effects() == ["object"]
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
import tenure.fence
from tenure.errors import ConfigurationError
try:
    tenure.fence.fence(object(), None)
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
