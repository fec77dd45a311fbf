"""`tenure doctor`: what is wrong with a store, why that matters, and what to do. It changes nothing and always returns.

Every check yields a `Finding`, even if all is well, so that a clean report says what was checked. PostgreSQL is queried
in read-only transactions, SQLite through a connection that writes nothing; each query has a deadline, and so has the
whole examination. What the role may not see is reported, not guessed.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TextIO

from tenure.core.cluster import Cadence
from tenure.doctor import show
from tenure.doctor.findings import CODES, Finding, Holder, Lock, Report, Severity
from tenure.errors import ConfigurationError
from tenure.stores import Store, store_for
from tenure.util import urls
from tenure.util.durations import Duration, readable

__all__ = ["CODES", "Finding", "Holder", "Lock", "Report", "Severity", "diagnose", "examine", "run"]

DEADLINE = 40.0
"""Seconds that the whole examination may take."""


def examine(url: object = None, *, schema: str = "tenure", ttl: Duration = 10.0) -> list[Finding]:
    """All findings, worst first."""
    return diagnose(url, schema=schema, ttl=ttl).findings


def run(
    url: object = None,
    *,
    schema: str = "tenure",
    ttl: Duration = 10.0,
    as_json: bool = False,
    out: TextIO | None = None,
) -> int:
    """Examine and print. 0: nothing to do, 1: a warning or a problem was found, 3: the store could not be reached."""
    report = diagnose(url, schema=schema, ttl=ttl)
    if as_json:
        show.as_json(report, out)
    else:
        show.as_text(report, out)
    return report.exit_code


def diagnose(url: object = None, *, schema: str = "tenure", ttl: Duration = 10.0) -> Report:
    """The whole report: findings, leaders, locks."""
    report = Report()
    try:
        cadence = Cadence.of(ttl)
        store = store_for(url, schema=schema, migrate=False)
        where = url if url is not None else os.environ.get("TENURE_URL")
    except ConfigurationError as error:
        report.reachable = True  # nothing was tried: the configuration is wrong
        report.problem("configuration", str(error), do="Correct what the message names.")
        return report
    report.store = store.shown
    # On a thread that can be left behind: a hanging name server or file system blocks inside the kernel.
    examination = threading.Thread(
        target=_examine, args=(report, store, where, cadence), name="tenure doctor", daemon=True
    )
    examination.start()
    examination.join(DEADLINE)
    done = report.copy()
    if examination.is_alive():
        seen = len(done.findings)
        done.problem(
            "deadline",
            f"The examination did not end within {readable(DEADLINE)}; it had made {seen} findings by then.",
            do="Check the network, the name server and the file system between this host and the store, then try "
            "again.",
        )
    done.findings.sort(key=lambda finding: show.ORDER.index(finding.severity))
    return done


def _examine(report: Report, store: Store, url: object, cadence: Cadence) -> None:
    try:
        match urls.parse(url):
            case urls.PostgresURL() as parsed:
                from tenure.doctor import postgres

                postgres.examine(report, store, parsed, cadence)
            case urls.SqliteURL():
                from tenure.doctor import sqlite

                sqlite.examine(report, store, cadence)
            case urls.MemoryURL():
                report.reachable = True
                report.ok("connection", "memory:// lives inside one process: there is nothing to examine.")
    except Exception as error:  # whatever it is, the reader must learn of it
        with suppress(Exception):
            report.problem(
                "deadline",
                f"The examination ended early: {type(error).__name__}: {error}",
                do="Try again; if it happens again, report it with this message.",
            )
