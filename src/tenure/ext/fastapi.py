"""tenure in FastAPI and Starlette.

app = FastAPI()
init_app(app, scheduler)

@app.post("/aggregate")
async def aggregate(jobs: Jobs) -> dict[str, int]:
    run = await jobs.run_now("daily_aggregate")
    return {"run": run.id}

Without this module, `FastAPI(lifespan=scheduler.lifespan)` starts and stops a scheduler, and so does
`async with scheduler.lifespan(app):` inside your own lifespan.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse

from tenure.async_scheduler import AsyncScheduler
from tenure.errors import Busy, ConfigurationError, JobExists, StoreUnavailable, TenureError, UnknownJob
from tenure.scheduler import Scheduler

ANSWERS: dict[type[TenureError], int] = {
    ConfigurationError: 422,
    UnknownJob: 404,
    JobExists: 409,
    Busy: 409,
    StoreUnavailable: 503,
}
"""The HTTP status for each error of the scheduler's operations."""


def init_app(app: Starlette, scheduler: Scheduler | AsyncScheduler) -> None:
    """Start and stop the scheduler with the application, inside its own lifespan.

    Routes get the scheduler as `Jobs`, and errors of its operations become HTTP answers (`ANSWERS`).
    """
    own = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[Any]:
        async with own(app) as state, scheduler.lifespan(app):
            yield state

    app.router.lifespan_context = lifespan
    app.state.tenure = scheduler if isinstance(scheduler, AsyncScheduler) else AsyncScheduler(scheduler)
    for refused in ANSWERS:
        app.add_exception_handler(refused, _answer)


def jobs(connection: HTTPConnection) -> AsyncScheduler:
    """The scheduler of the application that serves this request."""
    found: AsyncScheduler | None = getattr(connection.app.state, "tenure", None)
    if found is None:
        raise ConfigurationError(
            "this application has no scheduler. Write tenure.ext.fastapi.init_app(app, scheduler)."
        )
    return found


Jobs = Annotated[AsyncScheduler, Depends(jobs)]
"""A parameter of this type is given the scheduler."""


async def _answer(_request: Request, error: Exception) -> JSONResponse:
    status = next(status for refused, status in ANSWERS.items() if isinstance(error, refused))
    return JSONResponse({"detail": str(error)}, status_code=status)
