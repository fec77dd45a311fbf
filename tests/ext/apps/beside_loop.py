"""The APScheduler program that people write for FastAPI, with nothing but the import line changed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from notebook import note

from tenure.ext.apscheduler import AsyncIOScheduler

sched = AsyncIOScheduler()


async def sweep() -> None:
    note("sweep")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    sched.start()
    sched.add_job(sweep, "cron", second="*")
    yield
    sched.shutdown(wait=False)


app = FastAPI(lifespan=lifespan)
