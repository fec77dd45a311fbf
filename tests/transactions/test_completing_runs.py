"""`run.complete(conn)` inside a scheduler that runs: the transaction of the body decides, whatever the body does
afterwards."""

import asyncio
import sqlite3
import time
from contextlib import asynccontextmanager, closing

import aiosqlite
import asyncpg
import psycopg
import pytest
import sqlalchemy
import sqlalchemy.ext.asyncio as sa

from bodies import forgets_await
from tenure import Run, Scheduler
from tenure.testing import virtual


@pytest.fixture(params=["sqlite", "postgres", "pooled"])
def url(request):
    if request.param == "sqlite":
        return request.getfixturevalue("sqlite_url")
    database = request.getfixturevalue("database")
    if request.param == "postgres":
        return database
    return request.getfixturevalue("pgbouncer").url(database.rsplit("/", 1)[1])


def connect(url):
    if url.startswith("sqlite"):
        return closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=10, isolation_level="IMMEDIATE"))
    return closing(psycopg.connect(url))


@pytest.fixture
def scheduler(url):
    with connect(url) as conn:
        conn.execute("CREATE TABLE invoice (key text)")
        conn.commit()
    return Scheduler(url, ttl=3, heartbeat_every=0.2, attempt_timeout=0.5)


def invoices(url):
    with connect(url) as conn:
        return conn.execute("SELECT count(*) FROM invoice").fetchone()[0]


def ended(scheduler, run):
    deadline = time.monotonic() + 20
    while (found := scheduler.find_run(run.id)).state in {"pending", "running"}:
        assert time.monotonic() < deadline, found
        time.sleep(0.01)
    return found


def test_the_effect_and_the_mark_commit_together(scheduler, url):
    @scheduler.job
    def invoice(run: Run) -> None:
        run.log("before")
        with connect(url) as conn:
            if run.once(conn, "invoices"):
                conn.execute("INSERT INTO invoice VALUES ('one')")
            run.complete(conn)
            conn.commit()
        run.log("after")

    with scheduler:
        run = scheduler.run_now("invoice")
        assert ended(scheduler, run).state == "succeeded"
        deadline = time.monotonic() + 10
        while scheduler.log(run.id) != ["before", "after"]:
            assert time.monotonic() < deadline, scheduler.log(run.id)
            time.sleep(0.01)
    assert invoices(url) == 1


def test_an_exception_after_the_commit_changes_nothing(scheduler, url):
    @scheduler.job(retries=3)
    def invoice(run: Run) -> None:
        with connect(url) as conn:
            conn.execute("INSERT INTO invoice VALUES ('one')")
            run.complete(conn)
            conn.commit()
        raise ValueError("too late")

    with scheduler:
        assert ended(scheduler, scheduler.run_now("invoice")).attempt == 1
    assert invoices(url) == 1


def test_what_was_rolled_back_has_failed_although_the_body_returned(scheduler, url):
    @scheduler.job(retries=1, backoff=(0.05, 0.05))
    def invoice(run: Run) -> None:
        with connect(url) as conn:
            conn.execute("INSERT INTO invoice VALUES ('one')")
            run.complete(conn)
            conn.commit() if run.attempt == 2 else conn.rollback()

    with scheduler:
        run = ended(scheduler, scheduler.run_now("invoice"))
    assert (run.state, run.attempt, run.failures) == ("succeeded", 2, 1)
    assert invoices(url) == 1


def test_a_body_that_goes_on_after_it_completed_is_not_taken_for_lost(scheduler, url):
    lost = []

    @scheduler.job
    def invoice(run: Run) -> None:
        with connect(url) as conn:
            conn.execute("INSERT INTO invoice VALUES ('one')")
            run.complete(conn)
            conn.commit()
        time.sleep(1.0)  # several reconciliations
        lost.append(run.lost)

    with scheduler:
        run = scheduler.run_now("invoice")
        assert ended(scheduler, run).state == "succeeded"
    assert lost == [False]


# On async connections, where `complete` and `once` are awaited

forgotten = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


@pytest.fixture(params=["aiosqlite", "asyncpg", "AsyncSession"])
def work(request):
    """The URL of the scheduler, and a transaction of the kind of this driver."""
    database = request.getfixturevalue("database" if request.param == "asyncpg" else "sqlite_url")
    with connect(database) as conn:
        conn.execute("CREATE TABLE invoice (key text)")
        conn.commit()

    @asynccontextmanager
    async def transaction():
        if request.param == "asyncpg":
            connection = await asyncpg.connect(database)
            try:
                async with connection.transaction():
                    yield connection, connection.execute
            finally:
                await connection.close()
        elif request.param == "aiosqlite":
            async with aiosqlite.connect(database.removeprefix("sqlite:///"), timeout=10) as connection:
                yield connection, connection.execute
                await connection.commit()
        else:
            engine = sa.create_async_engine(database.replace("sqlite:", "sqlite+aiosqlite:"))
            try:
                async with sa.AsyncSession(engine) as session, session.begin():
                    yield session, lambda sql: session.execute(sqlalchemy.text(sql))
            finally:
                await engine.dispose()

    return database, transaction


@forgotten
@pytest.mark.parametrize("call", ["run.complete", "run.once"])
def test_a_forgotten_await_fails_the_attempt(work, call):
    url, transaction = work
    scheduler = Scheduler(url, ttl=3, heartbeat_every=0.2, attempt_timeout=0.5)

    @scheduler.job(retries=1, backoff=(0.05, 0.05))
    async def invoice(run: Run) -> None:
        async with transaction() as (conn, execute):
            await execute("INSERT INTO invoice VALUES ('one')")
            if run.attempt == 1:
                run.complete(conn) if call == "run.complete" else run.once(conn, "invoices")
            elif call == "run.once":
                assert await run.once(conn, "invoices")
            await asyncio.sleep(0)
            if run.attempt == 2:
                await run.complete(conn)

    with scheduler:
        run = ended(scheduler, scheduler.run_now("invoice"))
    assert (run.state, run.attempt, run.failures) == ("succeeded", 2, 1)
    assert run.attempts[0].error.endswith(
        f"{call}(…) was not awaited, so it did nothing. Write `await {call}(…)`: with this connection it is a coroutine."
    )


@forgotten
def test_a_run_is_not_completed_with_an_effect_whose_await_was_forgotten(work):
    url, transaction = work
    scheduler = Scheduler(url, ttl=3, heartbeat_every=0.2, attempt_timeout=0.5)

    @scheduler.job
    async def invoice(run: Run) -> None:
        async with transaction() as (conn, execute):
            if run.once(conn, "invoices"):  # a coroutine is true, each time
                await execute("INSERT INTO invoice VALUES ('one')")
            await run.complete(conn)

    with scheduler:
        run = ended(scheduler, scheduler.run_now("invoice"))
    assert run.state == "failed"
    assert "run.once(…) was not awaited" in run.reason
    assert invoices(url) == 0, "the transaction was rolled back"


def test_a_call_that_began_and_was_cancelled_counts_as_awaited(work):
    url, transaction = work
    scheduler = Scheduler(url, ttl=3, heartbeat_every=0.2, attempt_timeout=0.5)

    @scheduler.job
    async def invoice(run: Run) -> None:
        async with transaction() as (conn, _):
            task = asyncio.create_task(run.complete(conn))
            await asyncio.sleep(0)  # it begins
            task.cancel()
            await asyncio.wait([task])

    with scheduler:
        run = ended(scheduler, scheduler.run_now("invoice"))
    assert "not awaited" not in run.reason


@forgotten
def test_a_forgotten_await_fails_a_body_in_a_process(sqlite_url):
    path = sqlite_url.removeprefix("sqlite:///")
    with connect(sqlite_url) as conn:
        conn.execute("CREATE TABLE invoice (key text)")
        conn.commit()
    scheduler = Scheduler(sqlite_url, ttl=3, heartbeat_every=0.2, attempt_timeout=0.5)
    scheduler.job(process=True)(forgets_await)
    with scheduler:
        run = ended(scheduler, scheduler.run_now("forgets_await", kwargs={"path": path}))
    assert run.state == "failed"
    assert "run.complete(…) was not awaited" in run.reason


@forgotten
def test_a_forgotten_await_fails_a_body_in_virtual_time():
    class Conn:
        async def execute(self, sql): ...

    scheduler = Scheduler("memory://not-awaited")

    @scheduler.job
    async def invoice(run: Run) -> None:
        run.complete(Conn())

    with virtual(scheduler) as world:
        assert "run.complete(…) was not awaited" in world.run_now("invoice").reason
