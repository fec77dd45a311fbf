"""Flask-APScheduler, given a scheduler of ours: its configuration and its REST API."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.ext.apscheduler import BackgroundScheduler

flask = pytest.importorskip("flask")
flask_apscheduler = pytest.importorskip("flask_apscheduler")  # in the environment of tools/ext_environments.py


def work(*args: object) -> None:
    if args:
        Path(str(args[0])).write_text("done")


@pytest.fixture
def api(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    monkeypatch.setenv("TENURE_URL", sqlite_url)
    app = flask.Flask(__name__)
    app.config["SCHEDULER_API_ENABLED"] = True
    app.config["SCHEDULER_TIMEZONE"] = "UTC"
    app.config["SCHEDULER_JOBS"] = [{"id": "nightly", "func": work, "trigger": "cron", "hour": 3, "minute": "*/5"}]
    scheduler = flask_apscheduler.APScheduler(scheduler=BackgroundScheduler(), app=app)
    scheduler.start()
    yield app.test_client()
    scheduler.shutdown()


def test_the_api_shows_and_changes_jobs(api, tmp_path):
    shown = api.get("/scheduler/jobs").json
    assert [(job["id"], job["trigger"], job["hour"], job["minute"]) for job in shown] == [
        ("nightly", "cron", "3", "*/5")
    ]
    assert shown[0]["next_run_time"]
    done = tmp_path / "done"
    given = {"id": "poll", "name": "The poll", "func": f"{__name__}:work", "args": [str(done)], "trigger": "interval"}
    added = api.post("/scheduler/jobs", json=given | {"hours": 1})
    assert (added.status_code, added.json["trigger"], added.json["hours"]) == (200, "interval", 1)
    assert added.json["next_run_time"]
    assert api.post("/scheduler/jobs", json=given | {"hours": 1}).status_code == 409
    assert api.post("/scheduler/jobs/poll/run").status_code == 200
    assert done.read_text() == "done"
    assert api.post("/scheduler/jobs/poll/pause").json["next_run_time"] is None
    assert api.post("/scheduler/jobs/poll/resume").json["next_run_time"]
    changed = api.patch("/scheduler/jobs/poll", json={"trigger": "cron", "hour": "4", "name": "Other"}).json
    assert (changed["trigger"], changed["hour"], changed["name"]) == ("cron", "4", "Other")
    assert api.delete("/scheduler/jobs/poll").status_code == 204
    assert api.get("/scheduler/jobs/poll").status_code == 404
