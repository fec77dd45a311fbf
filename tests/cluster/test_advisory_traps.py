"""Why tenure does not lead by a bare session advisory lock: the ways in which one lies, on real servers.

Each trap is the code that people write, and asserts that it goes wrong: a leader without a lock, two leaders, or a lock
without a leader. A trap that stops being one (a driver or pooler changed) fails here and wants a note in the docs.
"""

import asyncio
import contextlib
import gc
import weakref

import asyncpg
import psycopg
import psycopg_pool
import pytest

from harness.components import need
from harness.pgbouncer import PgBouncer
from harness.scratch import eventually
from tenure import Election
from tenure.errors import ConfigurationError

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


MODES = ["lease", "advisory"]


class TestHarmlessInTenure:
    """For each trap above, the same scene with an `Election` instead of the bare lock: one leader, always."""

    @pytest.mark.parametrize("mode", MODES)
    def test_an_application_pool_that_resets_its_connections(self, database, mode):
        """tenure's connections are its own: what the application's pool does to its sessions takes nothing from it."""

        async def busy_pool():
            async with asyncpg.create_pool(database, min_size=1) as pool:
                for _ in range(5):
                    async with pool.acquire() as connection:
                        await connection.fetchval(LOCK)

        with rivals(database, mode) as (leader, rival):
            asyncio.run(busy_pool())
            assert (leader.is_leader, rival.is_leader) == (True, False)
            assert rival.wait_until_leading(0.5) is None

    @pytest.mark.parametrize("mode", MODES)
    def test_an_election_that_nobody_references(self, database, mode):
        """Its node holds its candidacy, and its connections, as long as it is started."""

        def start_and_forget():
            election = Election(database, "x", label="forgotten", mode=mode)
            return election.wait_until_leading(10), weakref.ref(election.candidacy)

        term, forgotten = start_and_forget()
        try:
            for _ in range(3):
                gc.collect()
            assert term.wait(seconds=1) is True, "still trusted after the collector ran"
            with Election(database, "x", label="rival", mode=mode) as rival:
                assert rival.wait_until_leading(0) is None
                assert rival.ask_to_resign() == term.number
                assert rival.wait_until_leading(10).number > term.number
        finally:
            forgotten().stop(30.0)

    @pytest.mark.parametrize("mode", MODES)
    def test_a_session_that_is_ended_behind_its_back(self, database, postgres, mode):
        """The backends vanish and return; belief is right all the time, and operation goes on without a restart."""
        with rivals(database, mode) as (leader, rival):
            before = leader.term.number
            seen = set()
            postgres.terminate_backends(like="tenure:%")
            eventually(lambda: watch(leader, rival, seen), within=20, what="somebody leads again")
            assert all(len(believers) <= 1 for believers in seen)
            assert max(e.term.number for e in (leader, rival) if e.is_leader) >= before

    def test_a_transaction_pooler_in_lease_mode(self, pgbouncer, database):
        """The lock would be everybody's; the row is not."""
        url = pgbouncer.url(database.rpartition("/")[2])
        with rivals(url, "lease") as (leader, rival):
            assert rival.wait_until_leading(0) is None
            leader.resign()
            assert rival.wait_until_leading(10)
            assert not leader.is_leader

    def test_a_pooler_that_recycles_its_connections(self, postgres, database):
        need("pgbouncer")
        with (
            PgBouncer(postgres, "transaction", pool_size=2, server_lifetime=1, server_idle_timeout=1) as bouncer,
            rivals(bouncer.url(database.rpartition("/")[2]), "lease") as (leader, rival),
        ):
            number = leader.term.number
            assert rival.wait_until_leading(3) is None, "nothing is lost with a server connection"
            assert leader.term.number == number

    def test_a_transaction_pooler_in_advisory_mode_is_refused(self, pgbouncer, database):
        with pytest.raises(ConfigurationError, match="pooler"):
            Election(pgbouncer.url(database.rpartition("/")[2]), "x", mode="advisory").start()


@contextlib.contextmanager
def rivals(url, mode):
    """Two candidates of which the first leads."""
    with Election(url, "x", label="a", mode=mode, ttl=6) as leader:
        assert leader.wait_until_leading(10)
        with Election(url, "x", label="b", mode=mode, ttl=6) as rival:
            yield leader, rival


def watch(leader, rival, seen):
    believers = frozenset(e.label for e in (leader, rival) if e.is_leader)
    seen.add(believers)
    return bool(believers)


def client(url):
    return psycopg.connect(
        url, autocommit=True, prepare_threshold=None
    )  # pgbouncer < 1.21 knows no prepared statements


def one(connection, sql):
    return connection.execute(sql).fetchone()[0]


def held(url):
    with client(url) as observer:
        return one(observer, HELD)
