"""pgqueuer: workers that share cron schedules. `pgqueuer_schedules.py setup|worker`"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
import pgqueuer
from lines import EVERY, JOBS, URL, work
from pgqueuer import AsyncpgDriver, PgQueuer, Queries
from pgqueuer.models import Schedule


async def body(schedule: Schedule) -> None:
    """A body is told when the schedule is due next, not what it is due for."""
    await asyncio.to_thread(work, schedule.entrypoint)


@asynccontextmanager
async def workers() -> AsyncIterator[PgQueuer]:
    connection = await asyncpg.connect(URL)
    try:
        queue = PgQueuer(AsyncpgDriver(connection))
        for job in JOBS:
            queue.schedule(job, f"* * * * * */{EVERY}")(body)
        yield queue
    finally:
        connection.terminate()


async def install() -> None:
    connection = await asyncpg.connect(URL)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


if __name__ == "__main__":
    if sys.argv[1] == "setup":
        asyncio.run(install())
    else:
        asyncio.run(pgqueuer.run(workers, restart_on_failure=True, restart_delay=timedelta(seconds=1)))
