"""The attempts of runs on SQLite. The last attempt of a run is in the run's row; here are those before it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable

from tenure.core.records import AttemptRow, RunId
from tenure.core.run_rules import with_last
from tenure.stores.sqlite.rows import attempt_row, execute


def keep(connection: sqlite3.Connection, runs: Iterable[RunId]) -> None:
    """Keep the last attempt of each of these runs, before the row of the run loses it."""
    ids = json.dumps(list(runs))
    execute(connection, "keep_looks", ids=ids)
    execute(connection, "keep_attempts", ids=ids)


def keep_of_job(connection: sqlite3.Connection, job: int) -> None:
    """The same for the runs of a job that are between two attempts."""
    keep(connection, [RunId(run) for (run,) in execute(connection, "between_attempts", id=job)])


def attempts(connection: sqlite3.Connection, run: RunId) -> list[AttemptRow]:
    """The attempts of a run, by number."""
    kept = execute(connection, "kept_attempts", id=run).fetchall()
    last = execute(connection, "last_attempt", id=run).fetchone()
    return with_last(list(map(attempt_row, kept)), attempt_row(last) if last else None)
