"""A Celery application with an entry per second.

Its broker, and what else there is to set, comes from the environment.
"""

import json
import os

from celery import Celery, Task

app = Celery("plays", broker=os.environ["BROKER"])
app.conf.update(
    beat_schedule={"tick": {"task": "plays.tick", "schedule": 1.0, "args": ["tock"]}},
    result_expires=None,
    **json.loads(os.environ["SETTINGS"]),
)


@app.task(name="plays.tick", bind=True)
def tick(self: Task, word: str) -> str:
    return f"{word} {self.request.headers}"
