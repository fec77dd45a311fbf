"""Errors with APScheduler's names.

If APScheduler is installed, they are also its own, so `except` lines keep working.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.errors import ConfigurationError, JobExists, TenureError, UnknownJob

if TYPE_CHECKING:
    from builtins import Exception as _NotRunning
    from builtins import Exception as _Running
    from builtins import KeyError as _Conflict
    from builtins import KeyError as _Lookup
else:
    try:
        from apscheduler.jobstores.base import ConflictingIdError as _Conflict
        from apscheduler.jobstores.base import JobLookupError as _Lookup
        from apscheduler.schedulers import SchedulerAlreadyRunningError as _Running
        from apscheduler.schedulers import SchedulerNotRunningError as _NotRunning
    except ImportError:
        _Lookup = _Conflict = KeyError
        _Running = _NotRunning = Exception


class JobLookupError(UnknownJob, _Lookup):
    """There is no job with this id."""

    def __init__(self, job_id: str) -> None:
        Exception.__init__(self, f"No job by the id of {job_id} was found")
        self.job_id = job_id

    def __str__(self) -> str:
        return str(self.args[0])


class ConflictingIdError(JobExists, _Conflict):
    """This process has already added a job with this id."""

    def __init__(self, job_id: str) -> None:
        Exception.__init__(
            self,
            f"Job identifier ({job_id}) conflicts with an existing job. "
            "Give one of the two another id=, or write replace_existing=True.",
        )
        self.job_id = job_id

    def __str__(self) -> str:
        return str(self.args[0])


class SchedulerAlreadyRunningError(TenureError, _Running):
    """The scheduler has been started."""

    def __str__(self) -> str:
        return "Scheduler is already running"


class SchedulerNotRunningError(TenureError, _NotRunning):
    """The scheduler has not been started."""

    def __str__(self) -> str:
        return "Scheduler is not running"


def unsupported(what: str, instead: str) -> ConfigurationError:
    """The error for something that tenure does not support, with what to use instead."""
    return ConfigurationError(f"{what} is not supported by tenure. {instead}")
