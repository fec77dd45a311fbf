"""tenure runs the scheduled jobs of an application in all of its workers, each due time once, and elects leaders.

All it needs is a database. Whatever else users import is in `tenure.errors`, `tenure.events`, `tenure.triggers`,
`tenure.views` and `tenure.testing`.
"""

from tenure.async_election import AsyncElection, AsyncTerm
from tenure.async_scheduler import AsyncScheduler
from tenure.election import Election
from tenure.errors import NotYet, TenureError
from tenure.jobs.calls import Call, call
from tenure.run import Run, current_run
from tenure.scheduler import Scheduler
from tenure.term import Term
from tenure.triggers import Trigger, at, calendar, closed, cron, every
from tenure.util.version import __version__ as __version__

__all__ = [
    "AsyncElection",
    "AsyncScheduler",
    "AsyncTerm",
    "Call",
    "Election",
    "NotYet",
    "Run",
    "Scheduler",
    "TenureError",
    "Term",
    "Trigger",
    "at",
    "calendar",
    "call",
    "closed",
    "cron",
    "current_run",
    "every",
]
