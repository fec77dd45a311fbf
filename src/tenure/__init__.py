"""tenure: scheduled jobs and leadership for all the workers of an application, with nothing to operate but its database."""

from tenure.aio import AsyncElection, AsyncTerm
from tenure.election import Election
from tenure.errors import (
    ConfigurationError,
    LeadershipError,
    SchemaOutdated,
    SchemaTooNew,
    StaleTerm,
    StoreError,
    StoreUnavailable,
    TenureError,
    TermLost,
    WrongDatabase,
)
from tenure.events import Elected, Lost
from tenure.model import Leader, TermRecord
from tenure.term import Term

__version__ = "0.1.0"

__all__ = [
    "AsyncElection",
    "AsyncTerm",
    "ConfigurationError",
    "Elected",
    "Election",
    "Leader",
    "LeadershipError",
    "Lost",
    "SchemaOutdated",
    "SchemaTooNew",
    "StaleTerm",
    "StoreError",
    "StoreUnavailable",
    "TenureError",
    "Term",
    "TermLost",
    "TermRecord",
    "WrongDatabase",
]
