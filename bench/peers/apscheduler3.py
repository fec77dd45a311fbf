"""APScheduler 3 with its SQLAlchemy store and its defaults: `apscheduler3.py URL spread|together|due COUNT`, as
scheduler_node.py.

`spread` and `together` are jobs of one and of two seconds; `due` are jobs that were due a moment ago, each once.
Lateness is taken when it tells that a body ran: a body is not told what it is due for.
"""

import json
import logging
import sys
import threading
import time
import warnings
from datetime import UTC, datetime, timedelta

from apscheduler.events import EVENT_JOB_EXECUTED, EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED, JobExecutionEvent
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def noop() -> None:
    pass


def say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def main() -> None:
    url, kind, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    scheduler = BackgroundScheduler(
        jobstores={"default": SQLAlchemyJobStore(url.replace("postgresql:", "postgresql+psycopg:"))}, timezone=UTC
    )
    scheduler.start(paused=True)
    begun: list[tuple[float, float]] = []
    skipped: list[str] = []
    everything = threading.Event()

    def heard(event: JobExecutionEvent) -> None:
        if event.code != EVENT_JOB_EXECUTED:
            skipped.append(event.job_id)
            return
        begun.append((time.time(), event.scheduled_run_time.timestamp()))
        if kind == "due" and len(begun) == count:
            everything.set()

    scheduler.add_listener(heard, EVENT_JOB_EXECUTED | EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES)
    period = {"spread": 1, "together": 2, "due": 3600}[kind]
    for index in range(count):
        phase = timedelta(microseconds=index * 1_000_000 // count if kind == "spread" else 0)
        late = {"next_run_time": datetime.now(UTC), "misfire_grace_time": None} if kind == "due" else {}
        scheduler.add_job(noop, "interval", seconds=period, id=f"job-{index}", start_date=EPOCH + phase, **late)
    began = time.time()
    scheduler.resume()
    say(ready=True)
    if kind == "due":
        everything.wait(60)
        say(began=began, ended=time.time(), runs=len(begun))
    else:
        sys.stdin.read()
        say(starts=begun, skipped=len(skipped))
    scheduler.shutdown(wait=False)


if __name__ == "__main__":
    main()
