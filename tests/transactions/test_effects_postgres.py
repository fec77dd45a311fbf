"""Effects of a run on PostgreSQL: levels of isolation, old snapshots, limits, poolers."""

import psycopg
import pytest

import callers
import work
from attempts import Desk
from callers import ISOLATION, ON_POSTGRES, awaited, scene
from tenure.errors import AttemptLost
from tenure.transactions import effects
from work import WORK, limit


@pytest.fixture
def desk(prepared_database):
    work.lay(prepared_database)
    with Desk(prepared_database) as desk:
        yield desk


@pytest.mark.parametrize("isolation", ISOLATION)
@pytest.mark.parametrize("kind", ON_POSTGRES, ids=lambda kind: kind.__name__)
def test_every_isolation_level_commits(kind, isolation, desk):
    client = kind(desk.url, isolation)

    async def body():
        async with client.transaction():
            assert await awaited(effects.once(client.connection, desk.claim, "invoice"))
            await client.execute(WORK)
            await awaited(effects.complete(client.connection, desk.claim))

    scene(client, body)
    assert desk.works() == ["work"]
    assert desk.state == "succeeded"


@pytest.mark.parametrize("isolation", ISOLATION)
def test_an_effect_that_the_successor_committed_is_refused_in_an_old_snapshot(isolation, desk):
    with work.connected(desk.url, isolation) as connection:
        connection.execute(WORK)
        old = desk.lose()
        with work.connected(desk.url) as successor:
            assert effects.once(successor, desk.claim, "invoice")
        with pytest.raises(AttemptLost):
            effects.once(connection, old, "invoice")
    assert desk.works() == []


@pytest.mark.parametrize("isolation", ISOLATION)
def test_a_conflict_of_the_callers_own_is_no_lost_run(isolation, desk):
    """Somebody asks the run to end: above READ COMMITTED the row has changed, but it is still this attempt's."""
    with work.connected(desk.url, isolation) as connection:
        connection.execute(WORK)
        desk.ledger.cancel(desk.claim.run, "ops", "enough")
        try:
            effects.complete(connection, desk.claim)
        except psycopg.errors.SerializationFailure:
            assert isolation != "READ COMMITTED"
            connection.rollback()
            connection.execute(WORK)
            effects.complete(connection, desk.claim)
    assert desk.works() == ["work"]
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


def test_through_a_pooler_in_transaction_mode(pgbouncer, desk):
    with psycopg.connect(pgbouncer.url(desk.url.rpartition("/")[2])) as connection:
        with connection.transaction():
            assert effects.once(connection, desk.claim, "invoice")
            connection.execute(WORK)
        old = desk.lose()
        with connection.transaction():
            connection.execute(WORK)
            with pytest.raises(AttemptLost):
                effects.complete(connection, old)
        with connection.transaction():
            assert not effects.once(connection, desk.claim, "invoice")
            effects.complete(connection, desk.claim)
    assert desk.works() == ["work"]


@pytest.mark.parametrize(
    "kind", [callers.PsycopgByHand, callers.Psycopg2, callers.AlchemySession, callers.AsyncAlchemySession]
)
def test_once_begins_the_transaction_where_one_begins_by_itself(kind, desk):
    client = kind(desk.url)

    async def body():
        assert await awaited(effects.once(client.connection, desk.claim, "invoice"))
        await awaited(client.connection.rollback())
        assert await awaited(effects.once(client.connection, desk.claim, "invoice"))
        await awaited(client.connection.commit())
        assert not await awaited(effects.once(client.connection, desk.claim, "invoice"))
        await awaited(client.connection.rollback())

    scene(client, body)
