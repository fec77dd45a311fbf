"""tenure in FastAPI and Starlette."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import FastAPI

from ext import scenes
from tenure import Scheduler
from tenure.errors import ConfigurationError
from tenure.ext.fastapi import Jobs, init_app


@pytest.mark.timeout(120)
def test_two_uvicorn_workers_run_each_due_time_once(tmp_path, database) -> None:
    assert scenes.uvicorn_workers(tmp_path, database) >= 4


@pytest.fixture
def scheduler(sqlite_url) -> Scheduler:
    made = Scheduler(sqlite_url, ttl=6, heartbeat_every=0.5, attempt_timeout=1)
    made.job(name="asked")(lambda: None)
    return made


def routes(app: FastAPI) -> None:
    @app.post("/jobs/{name}/runs")
    async def ask(name: str, jobs: Jobs) -> dict[str, object]:
        return {"job": (await jobs.run_now(name)).job}


@asynccontextmanager
async def serving(app: FastAPI) -> AsyncIterator[tuple[httpx.AsyncClient, object]]:
    """As a server would: the lifespan, and requests inside it."""
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app) as state, httpx.AsyncClient(transport=transport) as client:
        client.base_url = httpx.URL("http://app")
        yield client, state


def test_routes_are_given_the_scheduler_and_refusals_become_answers(scheduler) -> None:
    app = FastAPI()
    routes(app)
    init_app(app, scheduler)

    async def scene() -> httpx.Response:
        async with serving(app) as (client, _):
            assert scheduler.started
            assert (await client.post("/jobs/asked/runs")).json() == {"job": "asked"}
            return await client.post("/jobs/aksed/runs")

    refused = asyncio.run(scene())
    assert refused.status_code == 404
    assert "Did you mean 'asked'?" in refused.json()["detail"]
    assert not scheduler.started


def test_what_is_wrong_with_a_request_is_said_in_a_422(scheduler) -> None:
    app = FastAPI()
    init_app(app, scheduler)

    @app.get("/jobs/{name}/runs")
    async def runs(name: str, since: str, jobs: Jobs) -> int:
        return len(await jobs.runs(name, since=since))

    async def scene() -> httpx.Response:
        async with serving(app) as (client, _):
            assert (await client.get("/jobs/asked/runs?since=-1d")).json() == 0
            return await client.get("/jobs/asked/runs?since=yesterday")

    refused = asyncio.run(scene())
    assert refused.status_code == 422
    assert "'yesterday'" in refused.json()["detail"]


def test_it_takes_part_inside_the_lifespan_that_the_application_has(scheduler) -> None:
    seen = []

    @asynccontextmanager
    async def own(_app: FastAPI) -> AsyncIterator[dict[str, str]]:
        seen.append(("before", scheduler.started))
        yield {"pool": "mine"}
        seen.append(("after", scheduler.started))

    app = FastAPI(lifespan=own)
    init_app(app, scheduler)

    async def scene() -> None:
        async with serving(app) as (_, state):
            seen.append((state, scheduler.started))

    asyncio.run(scene())
    assert seen == [("before", False), ({"pool": "mine"}, True), ("after", False)]


def test_a_route_of_an_application_without_a_scheduler_says_so() -> None:
    app = FastAPI()
    routes(app)

    async def scene() -> None:
        async with serving(app) as (client, _):
            await client.post("/jobs/asked/runs")

    with pytest.raises(ConfigurationError, match="no scheduler"):
        asyncio.run(scene())
