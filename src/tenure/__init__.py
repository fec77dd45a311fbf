"""tenure: scheduled jobs and leadership for all the workers of an application, with nothing to operate but its database."""

from tenure.async_election import AsyncElection, AsyncTerm
from tenure.async_scheduler import AsyncScheduler
from tenure.core.cluster import Leader, TermRecord
from tenure.election import Election
from tenure.errors import (
    Busy,
    ConfigurationError,
    DataRefused,
    JobError,
    JobExists,
    LeadershipError,
    RunCancelled,
    RunError,
    RunLost,
    SchemaOutdated,
    SchemaTooNew,
    StaleTerm,
    StoreError,
    StoreUnavailable,
    TenureError,
    TermLost,
    UnknownJob,
    WrongDatabase,
)
from tenure.events import Elected, Lost, RunEvent, RunFailed, RunRetried, RunSkipped, RunSucceeded
from tenure.run import Run, current_run
from tenure.scheduler import Scheduler
from tenure.term import Term
from tenure.triggers import Trigger, at, calendar, closed, cron, every
from tenure.util.version import __version__ as __version__
from tenure.views import JobView, RunView

__all__ = [
    "AsyncElection",
    "AsyncScheduler",
    "AsyncTerm",
    "Busy",
    "ConfigurationError",
    "DataRefused",
    "Elected",
    "Election",
    "JobError",
    "JobExists",
    "JobView",
    "Leader",
    "LeadershipError",
    "Lost",
    "Run",
    "RunCancelled",
    "RunError",
    "RunEvent",
    "RunFailed",
    "RunLost",
    "RunRetried",
    "RunSkipped",
    "RunSucceeded",
    "RunView",
    "Scheduler",
    "SchemaOutdated",
    "SchemaTooNew",
    "StaleTerm",
    "StoreError",
    "StoreUnavailable",
    "TenureError",
    "Term",
    "TermLost",
    "TermRecord",
    "Trigger",
    "UnknownJob",
    "WrongDatabase",
    "at",
    "calendar",
    "closed",
    "cron",
    "current_run",
    "every",
]
