"""Everything that tenure raises. Each message says what happened, with names and numbers, then what to do.

TenureError
├── ConfigurationError        what was written is wrong, and what to write instead (also a ValueError)
├── StoreError
│   ├── StoreUnavailable      no answer from the database: refused, timed out, read-only, restarting
│   ├── DataRefused           the database does not accept a value in the statement
│   ├── SchemaOutdated        tenure's tables are missing or older than this library
│   ├── SchemaTooNew          tenure's tables were migrated by a library that this one is too old for
│   └── WrongDatabase         a connection to another database than the one that granted the term
├── LeadershipError
│   ├── TermLost              this node no longer leads; raised on the node itself
│   └── StaleTerm             the database refused work fenced with a term that is over
├── JobError
│   ├── UnknownJob            no job of that name, or no function of that name on this node
│   └── JobExists             a job of that name exists already
└── RunError
    ├── AttemptCancelled      this attempt was requested to end, or its time is up; raised in the body
    ├── AttemptLost           this attempt no longer counts
    ├── NotYet                raised by a body: what it needs is not there yet, try again later
    ├── RunUnsuccessful       a run that was waited for ended without success
    ├── UnreadableArguments   this library cannot read the arguments of the run; its body was not called
    ├── WaitTimeout           a run that was waited for has not ended yet (also a TimeoutError)
    └── Busy                  the requested work is being done already
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any


class TenureError(Exception):
    """The root of all errors that tenure raises."""


class ConfigurationError(TenureError, ValueError):
    """A request cannot work. The message names the value and what to write instead."""


class StoreError(TenureError):
    """A problem with the database."""


class StoreUnavailable(StoreError):
    """The database did not answer, or cannot write now. Running loops retry by themselves."""


class DataRefused(StoreError):
    """The database does not accept a value in the statement. Sending it again unchanged would not help."""


class SchemaOutdated(StoreError):
    """tenure's tables are missing or too old for this library."""


class SchemaTooNew(StoreError):
    """tenure's tables were migrated by a newer library, and this one is too old to run on them."""


class WrongDatabase(StoreError):
    """The connection leads to another database than the one in question."""


class LeadershipError(TenureError):
    """A problem with leading."""


class TermLost(LeadershipError):
    """This node stopped leading. Another may lead already: stop side effects."""


class StaleTerm(LeadershipError):
    """The database refused work of a term that is over. The transaction was not committed."""


class JobError(TenureError):
    """A problem with a job."""


class UnknownJob(JobError):
    """The job does not exist, or no node here has its function."""

    job: str = ""
    """The name, if there is no trace of the job in the ledger."""


class JobExists(JobError):
    """A job of that name exists already."""


class BackfillError(JobError):
    """A problem with a backfill."""


class UnknownBackfill(BackfillError):
    """The backfill does not exist."""


class RunError(TenureError):
    """A problem with a run."""


class AttemptCancelled(RunError):
    """This attempt was requested to end: by `cancel`, by its timeout, or because the next run replaces it."""


class AttemptLost(RunError):
    """This attempt no longer counts: the run is over, or another attempt has it. Refused work was not committed."""


class NotYet(RunError):
    """Raise this in a body: what it needs is not there yet, and the run is to be tried again later.

    Counts against neither `retries` nor `max_lost`. After `wait_up_to` (24 h) the run fails, with this reason.
    """

    def __init__(self, again_in: float | timedelta | str, reason: str = "") -> None:
        super().__init__(again_in, reason)
        self.again_in = again_in
        """When to look again: seconds, a `timedelta`, or text such as '5m'. Counted from the end of this attempt."""
        self.reason = reason
        """What is not there."""

    def __str__(self) -> str:
        return str(self.reason) or "what the body needs is not there yet"


class RunUnsuccessful(RunError):
    """The run that `wait()` waited for failed, was lost, cancelled or skipped."""

    def __init__(self, message: str, run: Any) -> None:
        super().__init__(message, run)
        self.run = run
        """The run as it ended: a `RunView`, with its attempts."""

    def __str__(self) -> str:
        return str(self.args[0])


class WaitTimeout(RunError, TimeoutError):
    """The run has not ended within the timeout of `wait()`. It goes on."""


class UnreadableArguments(RunError):
    """The arguments of a run cannot be read here, so its body was not called."""


class Busy(RunError):
    """Another caller is doing the requested work already."""
