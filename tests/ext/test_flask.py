"""tenure in Flask: one run per due time, in the processes that serve and in no others."""

import pytest
from flask import Flask, current_app

from ext import scenes
from harness.scratch import eventually
from tenure import Run, Scheduler
from tenure.ext import serving
from tenure.ext.flask import init_app
from tenure.stores import store_for
from tenure.testing import virtual


@pytest.mark.timeout(120)
def test_gunicorn_with_preload_runs_each_due_time_once_in_its_workers(tmp_path, database) -> None:
    assert scenes.gunicorn(tmp_path, database, "--preload") >= 4


def test_bodies_run_in_the_application_context() -> None:
    scheduler, seen = Scheduler("memory://"), []

    @scheduler.every("1h")
    def function(run: Run) -> None:
        seen.append((run.job, current_app.name))

    init_app(Flask("some"), scheduler, start=False)

    @scheduler.every("1h")
    async def coroutine(run: Run) -> None:
        seen.append((run.job, current_app.name))

    with virtual(scheduler) as world:
        world.advance(by="1h")
    assert sorted(seen) == [("coroutine", "some"), ("function", "some")]


def test_an_unknown_server_begins_with_the_first_request_but_not_in_tests() -> None:
    scheduler = Scheduler("memory://unknown-server")
    app = Flask("some")
    app.testing = True
    init_app(app, scheduler)
    app.test_client().get("/")
    assert not scheduler.started
    app.testing = False
    app.test_client().get("/")
    assert scheduler.started
    scheduler.stop()


def test_a_database_that_is_away_does_not_keep_the_program_from_serving(monkeypatch) -> None:
    monkeypatch.setattr(serving, "AGAIN", 0.05)
    scheduler = Scheduler("postgresql://nobody@127.0.0.1:1/nowhere")
    serving.take_part(scheduler)
    assert not scheduler.started
    scheduler._service.use(store_for("memory://away"))
    eventually(lambda: scheduler.started, within=10)
    scheduler.stop()
