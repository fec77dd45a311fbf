"""Why tenure does not lead by a bare session advisory lock: the ways in which one lies, on real servers.

Each trap is the code that people write, and asserts that it goes wrong: a leader without a lock, two leaders, or a lock
without a leader. A trap that stops being one (a driver or pooler changed) fails here and wants a note in the docs.
"""

import asyncio
import gc

import asyncpg
import psycopg
import psycopg_pool
import pytest

from harness.components import need
from harness.pgbouncer import PgBouncer
from harness.scratch import eventually

LOCK = "SELECT pg_try_advisory_lock(4242)"
UNLOCK = "SELECT pg_advisory_unlock(4242)"
HELD = """
    SELECT count(*) FROM pg_locks
     WHERE locktype = 'advisory' AND objid = 4242 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


class TestAsyncpg:
    def test_releasing_to_the_pool_drops_the_lock_and_two_replicas_lead(self, database):
        async def campaign(pool):
            async with pool.acquire() as connection:
                return await connection.fetchval(LOCK)

        async def scene():
            async with (
                asyncpg.create_pool(database, min_size=1) as one,
                asyncpg.create_pool(database, min_size=1) as two,
            ):
                assert await campaign(one)
                assert held(database) == 0, "the pool's reset has unlocked it, the first still thinks it leads"
                assert await campaign(two), "so the second leads as well"

        asyncio.run(scene())

    @pytest.mark.filterwarnings("ignore:.*unclosed connection:ResourceWarning")
    def test_a_dedicated_connection_that_nobody_references_is_collected_with_its_lock(self, database):
        async def is_leader():
            connection = await asyncpg.connect(database)
            return await connection.fetchval(LOCK)  # the answer is kept, the connection is not

        async def scene():
            first = await is_leader()
            gc.collect()
            await asyncio.to_thread(eventually, lambda: held(database) == 0, what="lock gone with its connection")
            second = await is_leader()
            gc.collect()
            assert (first, second) == (True, True)

        asyncio.run(scene())


class TestPsycopgPool:
    def test_the_lock_stays_on_the_idle_connection_and_the_next_borrower_leads_too(self, database):
        with psycopg_pool.ConnectionPool(database, min_size=1, max_size=1, open=True) as pool:
            with pool.connection() as connection:
                assert one(connection, LOCK)
            assert held(database) == 1, "nobody leads, yet the lock is held by an idle connection"
            with client(database) as elsewhere:
                assert not one(elsewhere, LOCK), "no other process can lead"
            with pool.connection() as connection:
                assert one(connection, LOCK), "any other part of this process can: the lock is re-entrant"


class TestPgbouncerInTransactionMode:
    @pytest.fixture
    def pooled(self, postgres, database):
        """Starts a pooler with the given settings; gives the database's URL through it."""
        need("pgbouncer")
        started = []

        def start(**settings):
            bouncer = PgBouncer(postgres, "transaction", pool_size=2, **settings).start()
            started.append(bouncer)
            return bouncer.url(database.rpartition("/")[2])

        yield start
        for bouncer in started:
            bouncer.close()

    def test_the_lock_outlives_its_leader(self, pooled, database):
        leader = client(pooled())
        assert one(leader, LOCK)
        leader.close()
        with client(database) as candidate:
            assert held(database) == 1
            assert not one(candidate, LOCK), "the leader is gone and nobody can lead"

    def test_two_living_clients_both_lead(self, pooled):
        url = pooled()
        with client(url) as first, client(url) as second:
            assert one(first, LOCK)
            assert one(second, LOCK), "both were put on one server connection, where the lock is re-entrant"

    def test_the_lock_vanishes_under_a_living_leader(self, pooled, database):
        with client(pooled(server_lifetime=1, server_idle_timeout=1)) as leader, client(database) as rival:
            assert one(leader, LOCK)
            eventually(lambda: held(database) == 0, what="pooler recycles the server connection")
            assert one(leader, "SELECT 1") == 1, "the leader's connection works as if nothing had been"
            assert one(rival, LOCK), "and somebody else leads"

    def test_the_unlock_goes_to_another_server_connection(self, pooled, database):
        url = pooled()
        with client(url) as leader, client(url) as neighbour:
            assert one(leader, LOCK)
            with neighbour.transaction():
                one(neighbour, "SELECT 1")  # now busy on the server connection that has the lock
                assert one(leader, UNLOCK) is False
            assert held(database) == 1, "resigned, and still nobody else can lead"


class TestHarmlessInTenure:
    """For each trap above, the same scene with an `Election` instead of the bare lock: one leader, always."""


def client(url):
    return psycopg.connect(
        url, autocommit=True, prepare_threshold=None
    )  # pgbouncer < 1.21 knows no prepared statements


def one(connection, sql):
    return connection.execute(sql).fetchone()[0]


def held(url):
    with client(url) as observer:
        return one(observer, HELD)
