"""What a type checker must flag: every line that ends in `# wrong`, and no other.

Checked by mypy and pyright, never run.
"""

from typing import Any

import psycopg

from tenure import AsyncScheduler, Run, Scheduler, call, every
from tenure.events import RunFailed, RunLost
from tenure.views import RunView

scheduler = Scheduler("sqlite:///jobs.db", capacity="many")  # wrong


@scheduler.cron("0 3 * * *", overlap="never")  # wrong
def daily(run: Run, *, copies: int = 1) -> bytes:
    return b"x" * copies


@scheduler.every("30s", misfire_grace_time=60)  # wrong
def often() -> None: ...


@scheduler.job(name=7)  # wrong
def asked() -> None: ...


def calls(run: Run) -> None:
    daily(run, copies="two")  # wrong
    daily()  # wrong
    length: int = daily(run)  # wrong
    print(length)


def verbs() -> None:
    scheduler.add(daily, "0 3 * * *", name="x")  # wrong
    scheduler.add(daily, every("1h"))  # wrong
    scheduler.update("x", missed="never")  # wrong
    scheduler.on(ValueError)  # wrong
    scheduler.on(RunFailed)(only_lost)  # wrong
    scheduler.on(RunFailed, RunLost)(only_lost)  # wrong
    scheduler.runs(state="faild")  # wrong
    scheduler.runs(state=["failed", "lots"])  # wrong
    print(scheduler.find_run(7).state == "fialed")  # wrong
    print(scheduler.find_job("x").state == "pause")  # wrong
    scheduler.run_at("x", in_="5m", slot="s", if_waiting="never")  # wrong


@scheduler.job
def report(run: Run, customer_id: int, *, day: str = "today") -> None: ...


def typed_operations() -> None:
    scheduler.run_now(report)  # wrong
    scheduler.run_now(report, customer_id="3")  # wrong
    scheduler.run_now(report, customer=3)  # wrong
    scheduler.run_now(report, 3, key="march")  # wrong
    scheduler.run_now("report", customer_id=3)  # wrong
    scheduler.run_now("report", keys="march")  # wrong
    call(report, "3")  # wrong
    call(report, customer_id=3, days="today")  # wrong
    call("report")  # wrong
    scheduler.run_now(call(report, customer_id=3), customer_id=3)  # wrong
    scheduler.run_at(report, in_="5m")  # wrong
    scheduler.run_at(call(report), in_="5m")  # wrong
    scheduler.add(report, every("1h"), name="x")  # wrong
    scheduler.add(call(report, day="today"), every("1h"), name="x")  # wrong
    scheduler.add_many({"x": (report, every("1h"))})  # wrong
    scheduler.run_now_many([call(report, customer_id=None)])  # wrong
    print(scheduler.run_now("report").wait().results)  # wrong


async def typed_operations_of_async(other: AsyncScheduler) -> None:
    await other.run_now(report)  # wrong
    await other.run_now(report, customer_id="3")  # wrong
    await other.run_now("report", customer_id=3)  # wrong
    await other.add(report, every("1h"), name="x")  # wrong
    await other.run_at(call(report, customer=3), in_="5m")  # wrong
    run: RunView = (await other.run_now("report")).wait()  # wrong
    print(run)


def only_lost(event: RunLost) -> None:
    print(event.job)


async def other_colour(connection: psycopg.AsyncConnection[Any], run: Run) -> None:
    other = AsyncScheduler(scheduler)
    views: list[RunView] = other.runs()  # wrong
    print(views)
    print(await other.runs(state="faild"))  # wrong
    print(await other.jobs(tags="x"))  # wrong
    await other.add_many(daily, {}, retreis=2)  # wrong
    done: None = run.complete(connection)  # wrong
    print(done)
