"""A Flask application with a job each second, which writes a line from its application context."""

import json
import os

from flask import Flask, current_app

from tenure import Run, Scheduler
from tenure.ext.flask import init_app

scheduler = Scheduler(ttl=6, heartbeat_every=0.5, attempt_timeout=1)


@scheduler.every("1s", overlap="allow")
def tick(run: Run) -> None:
    line = {"job": run.job, "due": run.scheduled_for.timestamp(), "pid": os.getpid(), "app": current_app.name}
    with open(os.environ["LINES"], "a", encoding="utf-8") as file:  # noqa: PTH123
        file.write(json.dumps(line) + "\n")


def create_app() -> Flask:
    app = Flask("flask_app")
    init_app(app, scheduler)

    @app.get("/")
    def hello() -> dict[str, object]:
        return {"pid": os.getpid(), "started": scheduler.started}

    @app.cli.command("look")
    def look() -> None:
        print(json.dumps({"started": scheduler.started}))

    return app


if __name__ == "__main__":
    create_app().run(port=int(os.environ["PORT"]), debug=bool(os.environ.get("DEBUG")))
