"""Celery: beats that send, workers that run. `celery_beat.py setup|beat|redbeat|worker`"""

import sys
from pathlib import Path

from celery import Celery, Task
from celery.signals import before_task_publish
from lines import EVERY, JOBS, LOCK, URL, boottime, work

app = Celery("peers", broker=URL)
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={"visibility_timeout": LOCK},
    beat_max_loop_interval=1,
    redbeat_redis_url=URL,
    redbeat_redis_options={"retry_period": 60},
    redbeat_lock_timeout=LOCK,
    beat_schedule={job: {"task": "body", "schedule": EVERY, "relative": True, "args": [job]} for job in JOBS},
)


@before_task_publish.connect
def stamp(headers: dict[str, object], **_: object) -> None:
    """A message does not say what it is due for; so let it say when it was sent."""
    headers["sent_at"] = boottime()


@app.task(name="body", bind=True)
def body(self: Task, job: str) -> None:
    work(job, asked=self.request.sent_at)


def main() -> None:
    role, place = sys.argv[1], Path(sys.argv[2])
    if role == "worker":
        app.start(["worker", "--pool", "threads", "--concurrency", "20", "--hostname", place.name, "-l", "WARNING"])
    elif role == "beat":
        app.start(["beat", "--schedule", f"{place}.schedule", "--pidfile", "", "-l", "INFO"])
    elif role == "redbeat":
        app.start(["beat", "--scheduler", "redbeat.RedBeatScheduler", "--pidfile", "", "-l", "INFO"])


if __name__ == "__main__":
    main()
