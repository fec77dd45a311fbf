"""What a type checker must flag: every line that ends in `# wrong`, and no other.

Checked by mypy and pyright, never run.
"""

from typing import Any

import psycopg

from tenure import AsyncScheduler, Run, Scheduler, every
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
