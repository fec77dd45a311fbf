"""A FastAPI application with a job each second, which writes a line, and a route that asks for a run."""

import json
import os

from fastapi import FastAPI

from tenure import Run, Scheduler
from tenure.ext.fastapi import Jobs, init_app

scheduler = Scheduler(ttl=6, heartbeat_every=0.5, attempt_timeout=1)
app = FastAPI()
init_app(app, scheduler)


@scheduler.every("1s", overlap="allow")
async def tick(run: Run) -> None:
    note(run)


@scheduler.job
def asked(run: Run) -> None:
    note(run)


def note(run: Run) -> None:
    line = {"job": run.job, "due": run.scheduled_for.timestamp(), "pid": os.getpid()}
    with open(os.environ["LINES"], "a", encoding="utf-8") as file:  # noqa: PTH123
        file.write(json.dumps(line) + "\n")


@app.post("/jobs/{name}/runs")
async def ask(name: str, jobs: Jobs) -> dict[str, object]:
    run = await jobs.run_now(name)
    return {"run": run.id}
