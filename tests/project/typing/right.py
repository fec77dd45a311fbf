"""What is written right. Checked by mypy and pyright, never run."""

from datetime import UTC, datetime
from typing import Any, assert_type

import psycopg

from tenure import AsyncScheduler, Call, Run, Scheduler, at, call, cron, every
from tenure.events import RunEvent, RunFailed, RunLost
from tenure.views import AsyncRequestedRun, JobView, RequestedBackfill, RequestedRun, RunView

scheduler = Scheduler("sqlite:///jobs.db", tz="Asia/Seoul")


@scheduler.cron("0 3 * * *", timeout="20m", retries=2, overlap="wait")
def daily(run: Run, day: str = "today", *, copies: int = 1) -> bytes:
    assert_type(run.scheduled_for, datetime)
    return b"x" * copies


@scheduler.every("30s", backoff=("1s", "1m"))
async def heartbeat() -> int:
    return 1


@scheduler.at(datetime(2026, 12, 31, tzinfo=UTC))
@scheduler.calendar(months=2, start="2026-01-31", at="09:00", name="often")
@scheduler.scheduled(cron("0 9 * * *") | every("1h"), name="either")
@scheduler.job(name="asked", queue="reports")
def several(x: int) -> str:
    return str(x)


@scheduler.job
def plain(x: int) -> str:
    return str(x)


@scheduler.on(RunFailed, RunLost)
def page(event: RunFailed | RunLost) -> None:
    assert_type(event.error, str)


@scheduler.on(RunFailed)
def count(event: RunEvent) -> int:
    return event.attempt


@AsyncScheduler(scheduler).on(RunFailed)
async def tell(event: RunFailed) -> None:
    assert_type(event.job, str)


def states() -> None:
    for run in scheduler.runs(state=["failed", "lost"], since="-1d"):
        print(run.state == "failed", run.kind == "due")
    print(scheduler.runs(state="failed"), scheduler.find_job("x").state == "paused")


async def calls(run: Run) -> None:
    assert_type(daily(run, "x", copies=2), bytes)
    assert_type(await heartbeat(), int)
    assert_type(several(1), str)
    assert_type(plain(1), str)


def verbs() -> None:
    assert_type(scheduler.add(plain, at(datetime.now(UTC)), name="x", kwargs={"x": 1}, missed="all"), JobView)
    assert_type(scheduler.update("x", trigger=every("1h"), overlap="skip"), JobView)
    assert_type(scheduler.run_now("x", by="ops"), RequestedRun)
    assert_type(scheduler.backfill("x", "-1d", datetime.now(UTC)), list[datetime])
    assert_type(scheduler.backfill("x", "-1d", datetime.now(UTC), dry_run=False), RequestedBackfill)
    with scheduler.once("x") as first:
        assert_type(first, bool)


def typed_operations() -> None:
    run = scheduler.run_now(daily, "yesterday", copies=2)
    assert_type(run, RequestedRun)
    assert_type(run.wait(timeout="1m"), RunView)
    scheduler.run_now(daily)
    scheduler.run_now(heartbeat)
    scheduler.run_now(plain, x=1)
    scheduler.run_now(plain, 1)
    assert_type(call(daily, copies=2), Call)
    scheduler.run_now(call(plain, x=1), key="march", by="ops")
    scheduler.run_now("plain", kwargs={"x": 1}, key="march")
    scheduler.run_at(call(plain, x=1), in_="5m")
    scheduler.run_at(heartbeat, in_="5m")
    scheduler.add(call(plain, x=1), every("1h"), name="x", retries=2)
    scheduler.add(daily, every("1h"), name="y")
    scheduler.add(plain, None, name="on request")
    scheduler.add_many({"x:1": (call(plain, x=1), every("1h")), "y:1": (daily, None)}, tags=["x"])
    scheduler.add_many(plain, {"x:2": (every("1h"), {"x": 2})})
    scheduler.run_now_many((call(plain, x=n) for n in range(3)), keys=["a", "b", "c"])
    scheduler.run_now_many("plain", [{"x": 1}, None])


async def typed_operations_of_async(other: AsyncScheduler) -> None:
    run = await other.run_now(plain, x=1)
    assert_type(run, AsyncRequestedRun)
    assert_type(await run.wait(), RunView)
    await other.run_now(call(daily, copies=2), key="march")
    await other.run_at(call(plain, x=1), in_="5m")
    await other.add(call(plain, x=1), every("1h"), name="x")
    await other.add_many({"x:1": (call(plain, x=1), every("1h"))})
    await other.run_now_many([call(plain, x=1)])


async def other_colour() -> None:
    async with AsyncScheduler(scheduler) as other:
        assert_type(await other.run_now("x"), AsyncRequestedRun)
        assert_type(await other.runs("x", state="failed", limit=3), list[RunView])
        assert_type(await other.add_many("x", {}, by="ops", retries=2), list[JobView])
        assert_type(await other.backfill("x", "-1d", datetime.now(UTC), dry_run=False), RequestedBackfill)
        async with other.once("x") as first:
            assert_type(first, bool)


def complete(run: Run, connection: psycopg.Connection[Any]) -> None:
    if run.once(connection, "invoices"):
        run.complete(connection)


async def complete_in_the_other_colour(run: Run, connection: psycopg.AsyncConnection[Any]) -> None:
    if await run.once(connection, "invoices"):
        await run.complete(connection)
