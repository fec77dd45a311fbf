"""A worker that keeps APScheduler and makes it safe.

Arguments: the URL to claim in, the job store ('memory', 'redis:' and its port, or a URL), the record.
"""

import os
import signal
import sys

from apscheduler.events import EVENT_JOB_EXECUTED, JobExecutionEvent
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.blocking import BlockingScheduler

from tenure.ext.apscheduler import make_cluster_safe

url, where, record = sys.argv[1:]


def note(event: JobExecutionEvent) -> None:
    file = os.open(record, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{os.getpid()} {event.job_id} {event.scheduled_run_time.timestamp():.6f}\n".encode())
    os.close(file)


def beat() -> None: ...


def poll() -> None: ...


if __name__ == "__main__":
    match where.partition(":")[0]:
        case "memory":
            store = MemoryJobStore()
        case "redis":
            from apscheduler.jobstores.redis import RedisJobStore

            store = RedisJobStore(port=int(where.partition(":")[2]))
        case _:
            store = SQLAlchemyJobStore(where)
    sched = BlockingScheduler(jobstores={"default": store}, timezone="UTC", job_defaults={"misfire_grace_time": 30})
    shared = {} if where == "memory" else {"replace_existing": True}
    sched.add_job(beat, "cron", second="*", id="beat", **shared)
    sched.add_job(poll, "interval", seconds=1, id="poll", **shared)
    sched.add_listener(note, EVENT_JOB_EXECUTED)
    make_cluster_safe(sched, url)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        sched.start()
    except SystemExit:
        sched.shutdown(wait=False)
