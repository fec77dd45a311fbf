"""The scheduler in the other colour, on every store: the same words, and coroutine jobs on the loop that entered it."""

import asyncio
import contextlib
import sqlite3
import uuid
from collections.abc import AsyncIterator

import psycopg
import pytest

from tenure import AsyncScheduler, Scheduler, every
from tenure.errors import ConfigurationError, JobExists, UnknownJob
from tenure.events import RunEvent, RunFailed, RunSucceeded

WITHIN = 10.0


@pytest.fixture
def url(any_url: str) -> str:
    return any_url


def scheduler_for(url: str) -> AsyncScheduler:
    return AsyncScheduler(url, ttl=6, heartbeat_every=0.5, attempt_timeout=1, drain=2)


def test_coroutine_jobs_run_on_the_loop_that_entered(url) -> None:
    async def scene() -> None:
        scheduler, heard = scheduler_for(url), asyncio.Queue[tuple[RunEvent, object]]()
        loops: list[object] = []

        @scheduler.job
        async def greet(who: str = "world") -> None:
            loops.append(asyncio.get_running_loop())
            if who == "nobody":
                raise ValueError(who)

        @scheduler.on(RunSucceeded, RunFailed)
        async def told(event: RunEvent) -> None:
            heard.put_nowait((event, asyncio.get_running_loop()))

        async with scheduler, asyncio.timeout(WITHIN):
            run = await scheduler.run_now("greet")
            event, where = await heard.get()
            assert isinstance(event, RunSucceeded)
            assert event.run_id == run.id
            assert loops == [where] == [asyncio.get_running_loop()]
            await scheduler.run_now("greet", kwargs={"who": "nobody"})
            assert isinstance((await heard.get())[0], RunFailed)
            assert [run.state for run in await scheduler.runs("greet")] == ["failed", "succeeded"]
            assert (await scheduler.health()).ok
        assert not scheduler.started

    asyncio.run(scene())


def test_the_verbs_and_questions_are_the_same(url) -> None:
    async def scene() -> None:
        threaded = Scheduler(url)
        threaded.job(name="body")(lambda: None)
        scheduler = AsyncScheduler(threaded)
        with threaded._service.ledger() as ledger:
            ledger.sync("default", 0, threaded._service.definitions.changes(ledger.now()))
        added = await scheduler.add("body", every("1h"), name="x", retries=1)
        with pytest.raises(JobExists):
            await scheduler.add("body", every("1h"), name="x")
        assert await scheduler.find_job("x") == added
        assert (await scheduler.update("x", retries=2)).rules.retries == 2
        assert (await scheduler.pause("x", until="1h")).state == "paused"
        assert (await scheduler.resume("x")).state == "active"
        assert [job.name for job in await scheduler.jobs()] == ["body", "x"]
        assert len(await scheduler.next(3)) == 3
        run = await scheduler.run_now("x", key="k")
        assert await scheduler.find_run(run.id) == run
        assert await scheduler.log(run.id) == []
        assert (await scheduler.cancel(run.id)).state == "cancelled"
        assert (await scheduler.retry(run.id, by="ops")).state == "pending"
        assert await scheduler.retry_failed("x", "-1h") == []
        assert len(await scheduler.run_now_many("x", [None, None])) == 2
        assert [job.name for job in await scheduler.add_many("body", {"y": (every("1h"), None)})] == ["y"]
        assert (await scheduler.remove("y")).state == "removed"
        later = await scheduler.run_at("x", in_="5m", slot="s")
        assert (await scheduler.cancel(slot="s")).id == later.id
        assert (await scheduler.stats("x")).runs == 0
        due = await scheduler.backfill("x", "-3h", (await scheduler.next(1))[0][0])
        assert len(due) == 3
        assert len(await scheduler.backfill("x", "-3h", due[-1], dry_run=False)) == 2
        assert all(audit.clean for audit in await scheduler.audit())
        assert "x" in await scheduler.why("x")
        assert await scheduler.ask_planner_to_resign() is None
        assert (await scheduler.remove("x")).state == "removed"
        with pytest.raises(UnknownJob):
            await scheduler.find_job("x")
        assert await scheduler.jobs(removed=True) == await scheduler.jobs(), "no code defines it"
        assert (await scheduler.restore("x", by="ops")).state == "active"

    asyncio.run(scene())


def test_once_in_the_other_colour(url) -> None:
    async def scene() -> None:
        scheduler = scheduler_for(url)
        with pytest.raises(RuntimeError, match="broke"):
            async with scheduler.once("key") as first:
                assert first
                raise RuntimeError("broke")

        async def forever() -> None:
            async with scheduler.once("key") as first:
                assert first
                entered.set()
                await asyncio.Event().wait()

        entered = asyncio.Event()
        task = asyncio.create_task(forever())
        await entered.wait()
        async with scheduler.once("key") as first:
            assert not first
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        async with scheduler.once("key") as first:
            assert first, "a cancelled body gives it back"
        async with scheduler.once("key") as first:
            assert not first

    asyncio.run(scene())


@pytest.mark.parametrize("colour", [Scheduler, AsyncScheduler])
def test_lifespan_is_what_asgi_wants(colour) -> None:
    scheduler = colour(f"memory://{uuid.uuid4()}")
    ran: list[asyncio.AbstractEventLoop] = []

    async def scene() -> None:
        done = asyncio.Event()

        @scheduler.every("1s")
        async def tick() -> None:
            ran.append(asyncio.get_running_loop())
            done.set()

        @contextlib.asynccontextmanager
        async def lifespan(app: object) -> AsyncIterator[None]:
            async with scheduler.lifespan(app):
                yield

        async with lifespan(object()), asyncio.timeout(WITHIN):
            assert scheduler.started
            await done.wait()
            assert ran[0] is asyncio.get_running_loop()
        assert not scheduler.started

    asyncio.run(scene())


# In the transaction of the caller


def test_a_job_is_added_with_the_callers_transaction_or_not_at_all(database) -> None:
    scheduler = Scheduler(database)
    scheduler.job(name="body")(lambda: None)
    scheduler.jobs()  # the tables are there
    with psycopg.connect(database) as connection:
        assert scheduler.add("body", every("1h"), name="x", conn=connection).name == "x"
        connection.rollback()
        with pytest.raises(UnknownJob):
            scheduler.find_job("x")
        scheduler.add("body", every("1h"), name="x", conn=connection)
        connection.commit()
        scheduler.pause("x", conn=connection, by="ops")
        assert scheduler.find_job("x").state == "active", "not committed yet"
        connection.commit()
        assert scheduler.find_job("x").paused_by == "ops"
        run = scheduler.run_now("x", conn=connection)
        connection.commit()
        assert scheduler.find_run(run.id).state == "pending"


def test_on_sqlite_too(sqlite_url) -> None:
    scheduler = Scheduler(sqlite_url)
    scheduler.job(name="body")(lambda: None)
    scheduler.jobs()
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    with contextlib.closing(connection):
        connection.execute("BEGIN IMMEDIATE")
        scheduler.add("body", every("1h"), name="x", conn=connection)
        connection.execute("ROLLBACK")
        assert scheduler.jobs() == []
        connection.execute("BEGIN IMMEDIATE")
        scheduler.add("body", every("1h"), name="x", conn=connection)
        connection.execute("COMMIT")
        assert [job.name for job in scheduler.jobs()] == ["x"]
        scheduler.remove("x")
        connection.execute("BEGIN IMMEDIATE")
        scheduler.restore("x", conn=connection)
        connection.execute("COMMIT")
        assert [job.state for job in scheduler.jobs()] == ["active"]


def test_a_connection_for_coroutines_belongs_to_the_other_colour(database) -> None:
    threaded = Scheduler(database)
    threaded.job(name="body")(lambda: None)
    scheduler = AsyncScheduler(threaded)

    async def scene() -> None:
        await scheduler.jobs()
        async with await psycopg.AsyncConnection.connect(database) as connection:
            with pytest.raises(ConfigurationError, match="AsyncScheduler"):
                threaded.add("body", every("1h"), name="x", conn=connection)
            await connection.rollback()
            await scheduler.add("body", every("1h"), name="x", conn=connection)
            await connection.rollback()
            assert await scheduler.jobs() == []
            await scheduler.add("body", every("1h"), name="x", conn=connection)
            await connection.commit()
            run = await scheduler.run_now("x", conn=connection)
            await connection.commit()
            assert (await scheduler.find_run(run.id)).state == "pending"
        with psycopg.connect(database) as plain:
            await scheduler.remove("x", conn=plain)
            plain.commit()
            assert await scheduler.jobs() == []
            await scheduler.restore("x", conn=plain)
            assert await scheduler.jobs() == [], "not committed yet"
            plain.commit()
        assert [job.name for job in await scheduler.jobs()] == ["x"]

    asyncio.run(scene())
