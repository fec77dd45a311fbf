"""One process of the demo: it runs jobs, stands for an election, and records what it does and believes."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tenure.core.keys import planner_of
from tenure.election import Election
from tenure.run import Run
from tenure.scheduler import Scheduler
from tenure.util.clock import boottime, sleep, walltime

APPLICATION = "demo"
ELECTION = "demo"
PLANNER = planner_of(APPLICATION)
TTL = 3.0
SAMPLE_EVERY = 0.005


def act(label: str, path: str, schema: str) -> None:
    """Run until standard input ends, or until the process is killed."""
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    notes = Notes(Path(path))
    scheduler = scheduler_for(None, schema, label=label)
    define(scheduler, notes, os.environ["TENURE_URL"], schema)
    with Election(None, ELECTION, label=label, ttl=TTL, schema=schema) as election, scheduler:
        notes.write("joined", 0, boottime(), boottime())
        _stand(election, notes)


class Notes:
    """A file of JSON lines, each written at once."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, kind: str, term: int, before: float, after: float, **more: object) -> None:
        """Record what was true at some moment between two readings of the clock."""
        line = {"kind": kind, "term": term, "from": before, "to": after, **more}
        os.write(self._file, json.dumps(line).encode() + b"\n")


def scheduler_for(url: object, schema: str, *, label: str | None = None, capacity: int = 8) -> Scheduler:
    """The application of the demo."""
    return Scheduler(
        url,
        application=APPLICATION,
        label=label,
        capacity=capacity,
        ttl=TTL,
        heartbeat_every=TTL / 5,
        attempt_timeout=TTL / 5,
        schema=schema,
    )


def define(scheduler: Scheduler, notes: Notes, url: str, schema: str) -> None:
    """Define three jobs. All may overlap: while a frozen node holds a run, the others go on."""

    @contextmanager
    def noted(run: Run) -> Iterator[None]:
        before, late = boottime(), walltime().timestamp() - run.scheduled_for.timestamp()
        attempt = {"job": run.job, "key": run.key, "attempt": run.attempt}
        notes.write("began", 0, before, before, late=late, **attempt)
        yield
        notes.write("ended", 0, before, boottime(), **attempt)

    @scheduler.every("200ms", overlap="allow")
    def tick(run: Run) -> None:
        with noted(run):
            sleep(0.01)

    @scheduler.every("1s", overlap="allow")
    async def second(run: Run) -> None:
        with noted(run):
            await asyncio.sleep(0.4)

    @scheduler.every("1s", overlap="allow", retries=5, backoff=("200ms", "1s"))
    def invoice(run: Run) -> None:
        with noted(run):
            write_invoice(run, url, schema)


def write_invoice(run: Run, url: str, schema: str) -> None:
    """Write an effect into the same database and commit it with the completion of its run."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=TTL, isolation_level=None)) as file:
            file.execute("BEGIN IMMEDIATE")
            _write(run, file, "INSERT INTO demo_invoice (run) VALUES (?)")
            file.execute("COMMIT")
    else:
        import psycopg

        with psycopg.connect(url) as connection:
            _write(run, connection, f"INSERT INTO {schema}.demo_invoice (run) VALUES (%s)")  # noqa: S608 - our own name


def _write(run: Run, connection: Any, insert: str) -> None:
    if run.once(connection, "invoice"):
        connection.execute(insert, [run.key])
    run.complete(connection)


def _stand(election: Election, notes: Notes) -> None:
    for term in election.terms():
        kind = "leads"
        while True:
            before = boottime()
            trusted = term.trusted
            after = boottime()
            if not trusted:
                break
            notes.write(kind, term.number, before, after)
            kind = "sample"
            sleep(SAMPLE_EVERY)
        notes.write("lost", term.number, before, after, reason=term.reason)


def _end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(0)
