"""A Celery application whose broker is a folder, so that every message that was ever sent is a file in it."""

import os

from celery import Celery, Task

FOLDER = os.environ["MESSAGES"]

app = Celery("plays", broker="filesystem://")
app.conf.update(
    broker_transport_options={
        "data_folder_in": FOLDER,
        "data_folder_out": FOLDER,
        "control_folder": f"{FOLDER}-control",
    },
    tenure_options={"ttl": 6, "heartbeat_every": 0.5, "attempt_timeout": 1},
    beat_schedule={"tick": {"task": "plays.tick", "schedule": 1.0, "args": ["tock"]}},
)


@app.task(name="plays.tick", bind=True)
def tick(self: Task, word: str) -> str:
    return f"{word} {self.request.headers}"
