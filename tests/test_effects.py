"""What a run commits with its completion, or under a key, takes effect once: every driver on a real PostgreSQL."""

import asyncio
from dataclasses import replace

import psycopg
import pytest

import fencing
from attempts import Desk
from fencing import ISOLATION, ON_POSTGRES, WITH_SAVEPOINT_BLOCKS, awaited, scene
from tenure import effects
from tenure.errors import ConfigurationError, RunLost, StoreError, WrongDatabase
from tenure.ledger import Change
from tenure.stores import store_for
from tenure.stores.ledger import JobChange

WORK = "INSERT INTO work (what) VALUES ('work')"
LATER = "INSERT INTO work (what) VALUES ('later')"


@pytest.fixture(scope="module")
def shared(postgres):
    """One database for all: each test has an application of its own."""
    url = postgres.create_database()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE work (what text)")
    store_for(url).prepare()
    yield url
    postgres.drop_database(url)


@pytest.fixture
def desk(shared):
    with psycopg.connect(shared) as connection:
        connection.execute("DELETE FROM work")
    with Desk(shared) as desk:
        yield desk


@pytest.fixture
def works(desk):
    """What was committed."""

    def read():
        with psycopg.connect(desk.url) as connection:
            return [what for (what,) in connection.execute("SELECT what FROM work")]

    return read


@pytest.fixture(params=ON_POSTGRES, ids=lambda kind: kind.__name__)
def client(request, desk):
    return request.param(desk.url)


@pytest.fixture(params=WITH_SAVEPOINT_BLOCKS, ids=lambda kind: kind.__name__)
def nesting(request, desk):
    return request.param(desk.url)


async def complete(client, claim):
    return await awaited(effects.complete(client.connection, claim))


async def once(client, claim, key="invoice"):
    return await awaited(effects.once(client.connection, claim, key))


def test_the_work_and_the_mark_commit_together(client, desk, works):
    async def body():
        async with client.transaction():
            await client.execute(WORK)
            assert await complete(client, desk.claim) is None
            assert desk.state == "running", "nobody else sees it before the commit"

    scene(client, body)
    assert works() == ["work"]
    run = desk.run()
    assert (run.state, run.reason) == ("succeeded", "")
    assert run.claimed_at <= run.started_at <= run.finished_at <= desk.ledger.now()


def test_the_mark_goes_with_a_rollback(client, desk, works):
    async def body():
        with pytest.raises(ZeroDivisionError):
            async with client.transaction():
                await client.execute(WORK)
                await complete(client, desk.claim)
                raise ZeroDivisionError
        async with client.transaction():
            await client.execute(WORK)
            await complete(client, desk.claim)

    scene(client, body)
    assert works() == ["work"]
    assert desk.state == "succeeded"


def test_an_effect_is_made_once_by_all_attempts_together(client, desk):
    async def body():
        with pytest.raises(ZeroDivisionError):
            async with client.transaction():
                await client.execute(WORK)
                assert await once(client, desk.claim) is True
                raise ZeroDivisionError
        async with client.transaction():  # it may come first
            assert await once(client, desk.claim) is True
            assert await once(client, desk.claim) is False
            assert await once(client, desk.claim, "another") is True
        desk.lose()
        async with client.transaction():
            assert await once(client, desk.claim) is False
            await complete(client, desk.claim)
        claim = desk.give()
        async with client.transaction():
            assert await once(client, claim) is True, "another run has effects of its own"

    scene(client, body)
    assert desk.state == "succeeded"


def test_a_lost_attempt_is_refused_and_the_connection_goes_on(client, desk, works):
    old = desk.lose()

    async def body():
        for _ in range(2):
            with pytest.raises(
                RunLost, match=f"'billing', run '{old.key}'.*another attempt has it.*nothing of it was committed"
            ):
                async with client.transaction():
                    await client.execute(WORK)
                    await complete(client, old)
            with pytest.raises(RunLost, match="another attempt has it"):
                async with client.transaction():
                    await once(client, old)
        async with client.transaction():
            await client.execute(LATER)

    scene(client, body)
    assert works() == ["later"]
    assert desk.state == "running"


@pytest.mark.parametrize("ask", [complete, once])
def test_whoever_swallows_the_refusal_commits_nothing(client, ask, desk, works):
    old = desk.lose()

    async def body():
        async with client.transaction():
            await client.execute(WORK)
            with pytest.raises(RunLost):
                await ask(client, old)
        async with client.transaction():
            await client.execute(LATER)

    scene(client, body)
    assert works() == ["later"]


def test_after_a_refusal_nothing_runs_until_the_rollback(client, desk, works):
    old = desk.lose()

    async def body():
        with pytest.raises(Exception, match="transaction"):
            async with client.transaction():
                await client.execute("SELECT 1")
                with pytest.raises(RunLost):
                    await complete(client, old)
                await client.execute(WORK)

    scene(client, body)
    assert works() == []


@pytest.mark.parametrize("isolation", ISOLATION)
@pytest.mark.parametrize("kind", ON_POSTGRES, ids=lambda kind: kind.__name__)
def test_rolling_back_to_a_savepoint_revives_nothing(kind, isolation, desk, works):
    """The run is lost while the transaction is open: above READ COMMITTED its snapshot still shows the old token."""
    client, old = kind(desk.url, isolation), desk.claim

    async def body():
        with pytest.raises(Exception, match=r"savepoint|transaction"):
            async with client.transaction():
                await client.execute(WORK)
                desk.lose()
                await client.execute("SAVEPOINT before")
                with pytest.raises(RunLost, match="another attempt has it"):
                    await complete(client, old)
                await client.execute("ROLLBACK TO SAVEPOINT before")
        async with client.transaction():
            await client.execute(LATER)

    scene(client, body)
    assert works() == ["later"]
    assert desk.state == "running"


def test_the_drivers_own_savepoint_blocks_revive_nothing(nesting, desk, works):
    old, said = desk.lose(), []

    async def body():
        try:
            async with nesting.transaction():
                await nesting.execute(WORK)
                try:
                    async with nesting.savepoint():
                        await complete(nesting, old)
                except Exception as error:
                    said.append(error)
        except Exception as error:
            said.append(error)
        async with nesting.transaction():
            await nesting.execute(LATER)

    scene(nesting, body)
    assert works() == ["later"]
    assert isinstance(said[0], RunLost) or "savepoint" in str(said[0])


@pytest.mark.parametrize("isolation", ISOLATION)
@pytest.mark.parametrize("kind", ON_POSTGRES, ids=lambda kind: kind.__name__)
def test_every_isolation_level_commits(kind, isolation, desk, works):
    client = kind(desk.url, isolation)

    async def body():
        async with client.transaction():
            assert await once(client, desk.claim)
            await client.execute(WORK)
            await complete(client, desk.claim)

    scene(client, body)
    assert works() == ["work"]
    assert desk.state == "succeeded"


@pytest.mark.parametrize("isolation", ISOLATION)
def test_an_effect_that_the_successor_committed_is_refused_in_an_old_snapshot(isolation, desk, works):
    with connected(desk, isolation) as connection:
        connection.execute(WORK)
        old = desk.lose()
        with connected(desk) as successor:
            assert effects.once(successor, desk.claim, "invoice")
        with pytest.raises(RunLost):
            effects.once(connection, old, "invoice")
    assert works() == []


@pytest.mark.parametrize("isolation", ISOLATION)
def test_a_conflict_of_the_callers_own_is_no_lost_run(isolation, desk, works):
    """Somebody asks the run to end: above READ COMMITTED the row has changed, but it is still this attempt's."""
    with connected(desk, isolation) as connection:
        connection.execute(WORK)
        desk.ledger.cancel(desk.claim.run, "ops", "enough")
        try:
            effects.complete(connection, desk.claim)
        except psycopg.errors.SerializationFailure:
            assert isolation != "READ COMMITTED"
            connection.rollback()
            connection.execute(WORK)
            effects.complete(connection, desk.claim)
    assert works() == ["work"]
    assert desk.state == "succeeded"


def test_a_shorter_limit_of_the_callers_own_stays_and_ours_ends_with_the_transaction(desk):
    with psycopg.connect(desk.url, autocommit=True) as connection:
        with connection.transaction():
            effects.complete(connection, desk.claim)
            assert limit(connection) == "10s"
        assert limit(connection) == "0"
        connection.execute("SET idle_in_transaction_session_timeout = '2s'")
        with connection.transaction():
            effects.complete(connection, desk.give())
            assert limit(connection) == "2s"


def test_a_run_that_is_asked_to_end_may_still_complete(desk):
    desk.ledger.cancel(desk.claim.run, "ops", "enough")
    with connected(desk) as connection:
        connection.execute(WORK)
        effects.complete(connection, desk.claim)
    assert desk.state == "succeeded"


def test_a_run_of_a_removed_job_may_still_complete(desk):
    assert desk.ledger.change(JobChange(desk.application, "billing", Change.REMOVED))
    with connected(desk) as connection:
        assert effects.once(connection, desk.claim, "invoice")
        effects.complete(connection, desk.claim)
    assert desk.state == "succeeded"


def test_a_run_that_is_over_is_not_completed_again(desk, works):
    with connected(desk) as connection:
        effects.once(connection, desk.claim, "invoice")
        effects.complete(connection, desk.claim)
        connection.commit()
        for ask in (effects.complete, lambda *given: effects.once(*given, "invoice")):
            connection.execute(WORK)
            with pytest.raises(RunLost, match="it is succeeded"):
                ask(connection, desk.claim)
            connection.rollback()
    assert works() == []


def test_effects_go_with_their_run(desk):
    with connected(desk) as connection:
        assert effects.once(connection, desk.claim, "invoice")
        effects.complete(connection, desk.claim)
        connection.commit()
        assert made(connection, desk) == 1
        assert desk.ledger.prune(desk.application, before=desk.ledger.now() + 60, keep=0, limit=10).removed == 1
        assert made(connection, desk) == 0


def test_without_a_transaction_it_refuses(client, desk):
    async def body():
        await awaited(client.autocommit())
        with pytest.raises(ConfigurationError, match=r"run\.complete: .*transaction|run\.complete: .*autocommit"):
            await complete(client, desk.claim)
        with pytest.raises(ConfigurationError, match=r"run\.once: .*transaction|run\.once: .*autocommit"):
            await once(client, desk.claim)

    scene(client, body)
    assert desk.state == "running"
    with connected(desk) as connection:
        assert made(connection, desk) == 0


@pytest.mark.parametrize("kind", [fencing.PsycopgByHand, fencing.Psycopg2, fencing.Alchemy, fencing.AlchemySession])
def test_a_completion_after_the_commit_is_refused(kind, desk):
    client = kind(desk.url)

    async def body():
        async with client.transaction():
            await client.execute(WORK)
        with pytest.raises(ConfigurationError, match=r"run\.complete: .*committed already"):
            await complete(client, desk.claim)

    scene(client, body)


def test_a_key_must_have_a_name(desk):
    with connected(desk) as connection, pytest.raises(ConfigurationError, match=r"run\.once: '' cannot be a key"):
        effects.once(connection, desk.claim, "")


def test_a_database_without_tenure(postgres, desk):
    url = postgres.create_database()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE work (what text)")
        connection.commit()
        connection.execute(WORK)
        with pytest.raises(WrongDatabase, match=r"run\.complete was refused.*no tenure in schema 'tenure'"):
            effects.complete(connection, desk.claim)
        connection.commit()
        assert connection.execute("SELECT count(*) FROM work").fetchone() == (0,)
    postgres.drop_database(url)


def test_a_run_that_this_database_does_not_have(desk, works):
    with connected(desk) as connection:
        connection.execute(WORK)
        with pytest.raises(WrongDatabase, match="this database has no run 999999999"):
            effects.complete(connection, replace(desk.claim, run=999999999))
    assert works() == []


@pytest.fixture
def modest(desk):
    """The URL for a role that may use the schema and call the two functions, and nothing else of tenure."""
    role = f"modest_{desk.application[-12:]}"
    with psycopg.connect(desk.url) as owner:
        owner.execute("REVOKE ALL ON ALL FUNCTIONS IN SCHEMA tenure FROM PUBLIC")
        owner.execute(f"CREATE ROLE {role} LOGIN")
        owner.execute(f"GRANT USAGE ON SCHEMA tenure TO {role}")
        owner.execute(f"GRANT EXECUTE ON FUNCTION tenure.complete, tenure.once TO {role}")
        owner.execute(f"GRANT INSERT ON work TO {role}")
    yield desk.url.replace("postgres@", f"{role}@")
    with psycopg.connect(desk.url) as owner:
        owner.execute(f"DROP OWNED BY {role}")
        owner.execute(f"DROP ROLE {role}")


def test_a_role_needs_nothing_but_usage_and_execute(modest, desk, works):
    with psycopg.connect(modest) as connection:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT * FROM tenure.run")
        connection.rollback()
        old = desk.lose()
        with connection.transaction():
            connection.execute(WORK)
            with pytest.raises(RunLost):
                effects.complete(connection, old)
        with connection.transaction():
            assert effects.once(connection, desk.claim, "invoice")
            connection.execute(WORK)
            effects.complete(connection, desk.claim)
    assert works() == ["work"]
    assert desk.state == "succeeded"


def test_a_role_that_may_not_call_it_is_told_the_grant(modest, desk, works):
    with psycopg.connect(desk.url) as owner:
        owner.execute("REVOKE ALL ON FUNCTION tenure.once FROM " + modest.split("//")[1].split("@")[0])
    with psycopg.connect(modest) as connection:
        connection.execute(WORK)
        with pytest.raises(StoreError, match=r"GRANT EXECUTE ON FUNCTION tenure\.once"):
            effects.once(connection, desk.claim, "invoice")
    assert works() == []


@pytest.mark.parametrize("kind", [fencing.AsyncPsycopg, fencing.Asyncpg, fencing.AsyncAlchemySession])
def test_a_cancelled_completion_commits_nothing(kind, desk, works):
    client = kind(desk.url)

    async def body():
        with psycopg.connect(desk.url) as stuck:
            stuck.execute("SELECT 1 FROM tenure.run WHERE id = %s FOR UPDATE", [desk.claim.run])
            with pytest.raises(Exception, match="savepoint"):
                async with client.transaction():
                    await client.execute(WORK)
                    await client.execute("SAVEPOINT before")
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(0.05):
                            await complete(client, desk.claim)
                    await client.execute("ROLLBACK TO SAVEPOINT before")
        async with client.transaction():
            await client.execute(LATER)
            await complete(client, desk.claim)

    scene(client, body)
    assert works() == ["later"]


def test_through_a_pooler_in_transaction_mode(pgbouncer, desk, works):
    with psycopg.connect(pgbouncer.url(desk.url.rpartition("/")[2])) as connection:
        with connection.transaction():
            assert effects.once(connection, desk.claim, "invoice")
            connection.execute(WORK)
        old = desk.lose()
        with connection.transaction():
            connection.execute(WORK)
            with pytest.raises(RunLost):
                effects.complete(connection, old)
        with connection.transaction():
            assert not effects.once(connection, desk.claim, "invoice")
            effects.complete(connection, desk.claim)
    assert works() == ["work"]


@pytest.mark.parametrize(
    "kind", [fencing.PsycopgByHand, fencing.Psycopg2, fencing.AlchemySession, fencing.AsyncAlchemySession]
)
def test_once_begins_the_transaction_where_one_begins_by_itself(kind, desk):
    client = kind(desk.url)

    async def body():
        assert await once(client, desk.claim)
        await awaited(client.connection.rollback())
        assert await once(client, desk.claim)
        await awaited(client.connection.commit())
        assert not await once(client, desk.claim)
        await awaited(client.connection.rollback())

    scene(client, body)


def connected(desk, isolation=None):
    connection = psycopg.connect(desk.url)
    connection.isolation_level = fencing._level(isolation)
    return connection


def limit(connection):
    return connection.execute("SHOW idle_in_transaction_session_timeout").fetchone()[0]


def made(connection, desk):
    return connection.execute("SELECT count(*) FROM tenure.effect WHERE run = %s", [desk.claim.run]).fetchone()[0]
