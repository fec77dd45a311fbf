"""APScheduler 4: schedulers on one data store, told of each other's work by an event broker.

`apscheduler4.py setup|worker`"""

import asyncio
import logging
import signal
import sys
from datetime import UTC, datetime

from apscheduler import AsyncScheduler, CoalescePolicy, ConflictPolicy, TaskDefaults, current_job
from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore
from apscheduler.eventbrokers.asyncpg import AsyncpgEventBroker
from apscheduler.triggers.cron import CronTrigger
from lines import EVERY, JOBS, LOCK, URL, work
from sqlalchemy.ext.asyncio import create_async_engine


def body(job: str) -> None:
    fired = current_job.get().scheduled_fire_time
    work(job, due=fired.timestamp() if fired else None)


async def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    engine = create_async_engine(URL.replace("postgresql:", "postgresql+asyncpg:"), pool_pre_ping=True)
    scheduler = AsyncScheduler(
        SQLAlchemyDataStore(engine),
        AsyncpgEventBroker.from_async_sqla_engine(engine),
        lease_duration=LOCK,
        task_defaults=TaskDefaults(job_executor="threadpool", max_running_jobs=20, misfire_grace_time=None),
    )
    async with scheduler:
        if sys.argv[1] == "setup":
            start = datetime.now(UTC).replace(microsecond=0)  # else a fraction of a second may be due, too
            for job in JOBS:
                await scheduler.configure_task(job, func=body)
                await scheduler.add_schedule(
                    job,
                    CronTrigger(second=f"*/{EVERY}", start_time=start, timezone="UTC"),
                    id=job,
                    args=[job],
                    coalesce=CoalescePolicy.all,
                    conflict_policy=ConflictPolicy.do_nothing,
                )
            return
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, lambda: asyncio.ensure_future(scheduler.stop()))
        await scheduler.run_until_stopped()


if __name__ == "__main__":
    asyncio.run(main())
