"""APScheduler 3's schedulers on tenure's engine: change the import line, and the program may run in any number of
workers.

from tenure.ext.apscheduler import BackgroundScheduler

sched = BackgroundScheduler(timezone="Asia/Seoul")

@sched.scheduled_job("cron", hour=3, id="daily-aggregate")
def daily_aggregate(): ...

sched.start()

Jobs are in the database of a `SQLAlchemyJobStore`, else in that of TENURE_URL, else in the file tenure.db. Each due
time runs once, on whichever worker is alive. docs/coming-from/apscheduler.md lists what differs from APScheduler.
Programs that keep APScheduler can use `make_cluster_safe`.
"""

from __future__ import annotations

from tenure.ext.apscheduler.cluster import make_cluster_safe
from tenure.ext.apscheduler.errors import (
    ConflictingIdError,
    JobLookupError,
    SchedulerAlreadyRunningError,
    SchedulerNotRunningError,
    unsupported,
)
from tenure.ext.apscheduler.events import (
    EVENT_ALL,
    EVENT_ALL_JOBS_REMOVED,
    EVENT_EXECUTOR_ADDED,
    EVENT_EXECUTOR_REMOVED,
    EVENT_JOB_ADDED,
    EVENT_JOB_ERROR,
    EVENT_JOB_EXECUTED,
    EVENT_JOB_MAX_INSTANCES,
    EVENT_JOB_MISSED,
    EVENT_JOB_MODIFIED,
    EVENT_JOB_REMOVED,
    EVENT_JOB_SUBMITTED,
    EVENT_JOBSTORE_ADDED,
    EVENT_JOBSTORE_REMOVED,
    EVENT_SCHEDULER_PAUSED,
    EVENT_SCHEDULER_RESUMED,
    EVENT_SCHEDULER_SHUTDOWN,
    EVENT_SCHEDULER_START,
    EVENT_SCHEDULER_STARTED,
    JobEvent,
    JobExecutionEvent,
    JobSubmissionEvent,
    SchedulerEvent,
)
from tenure.ext.apscheduler.job import Job
from tenure.ext.apscheduler.lifecycle import STATE_PAUSED, STATE_RUNNING, STATE_STOPPED
from tenure.ext.apscheduler.options import (
    AsyncIOExecutor,
    MemoryJobStore,
    ProcessPoolExecutor,
    SQLAlchemyJobStore,
    ThreadPoolExecutor,
)
from tenure.ext.apscheduler.schedulers import AsyncIOScheduler, BackgroundScheduler, BlockingScheduler
from tenure.ext.apscheduler.triggers import (
    AndTrigger,
    CalendarIntervalTrigger,
    CronTrigger,
    DateTrigger,
    IntervalTrigger,
    OrTrigger,
)

__all__ = [
    "EVENT_ALL",
    "EVENT_ALL_JOBS_REMOVED",
    "EVENT_EXECUTOR_ADDED",
    "EVENT_EXECUTOR_REMOVED",
    "EVENT_JOBSTORE_ADDED",
    "EVENT_JOBSTORE_REMOVED",
    "EVENT_JOB_ADDED",
    "EVENT_JOB_ERROR",
    "EVENT_JOB_EXECUTED",
    "EVENT_JOB_MAX_INSTANCES",
    "EVENT_JOB_MISSED",
    "EVENT_JOB_MODIFIED",
    "EVENT_JOB_REMOVED",
    "EVENT_JOB_SUBMITTED",
    "EVENT_SCHEDULER_PAUSED",
    "EVENT_SCHEDULER_RESUMED",
    "EVENT_SCHEDULER_SHUTDOWN",
    "EVENT_SCHEDULER_START",
    "EVENT_SCHEDULER_STARTED",
    "STATE_PAUSED",
    "STATE_RUNNING",
    "STATE_STOPPED",
    "AndTrigger",
    "AsyncIOExecutor",
    "AsyncIOScheduler",
    "BackgroundScheduler",
    "BlockingScheduler",
    "CalendarIntervalTrigger",
    "ConflictingIdError",
    "CronTrigger",
    "DateTrigger",
    "IntervalTrigger",
    "Job",
    "JobEvent",
    "JobExecutionEvent",
    "JobLookupError",
    "JobSubmissionEvent",
    "MemoryJobStore",
    "OrTrigger",
    "ProcessPoolExecutor",
    "SQLAlchemyJobStore",
    "SchedulerAlreadyRunningError",
    "SchedulerEvent",
    "SchedulerNotRunningError",
    "ThreadPoolExecutor",
    "make_cluster_safe",
]

_ELSEWHERE = {
    "Scheduler": "Use BackgroundScheduler: it runs beside any loop or framework. For coroutines of an asyncio loop use "
    "AsyncIOScheduler.",
    "JobStore": "Jobs are kept in SQLite or PostgreSQL: use SQLAlchemyJobStore(url=…). To keep that store, keep "
    "APScheduler and use make_cluster_safe.",
    "Executor": "Use ThreadPoolExecutor, ProcessPoolExecutor or AsyncIOExecutor.",
}


def __getattr__(name: str) -> object:
    """For names of APScheduler that this package lacks: say what to use instead."""
    instead = next((text for end, text in _ELSEWHERE.items() if name.endswith(end)), None)
    if instead is None or name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise unsupported(name, instead)
