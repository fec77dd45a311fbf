"""Examines PostgreSQL: poolers and latency, the server's settings, the role's rights, tenure's tables, and locks."""

from __future__ import annotations

from typing import cast

import psycopg

from tenure.core.cluster import Cadence
from tenure.doctor.findings import Report
from tenure.doctor.postgres import locks, network, server, snapshots, tables
from tenure.doctor.postgres.inspector import Inspector
from tenure.stores import Store
from tenure.stores.postgres.store import PostgresStore, explained
from tenure.util.urls import PostgresURL


def examine(report: Report, store: Store, url: PostgresURL, cadence: Cadence) -> None:
    """Run every check, as far as the role may see."""
    inspector = Inspector(report, cast("PostgresStore", store), url, cadence)
    try:
        _examine(inspector)
    except psycopg.OperationalError as error:
        after = "stopped answering" if report.reachable else "could not be reached"
        report.reachable = False
        report.problem("connection", f"{url.shown} {after}: {url.hide(explained(error))}", do=_remedy(str(error)))
    except psycopg.ProgrammingError as error:
        if error.sqlstate is not None:
            raise
        # An option that libpq does not know.
        report.reachable = True
        report.problem("configuration", f"store URL {url.shown}: {url.hide(explained(error))}", do="Correct the URL.")
    finally:
        inspector.close()


def _examine(inspector: Inspector) -> None:
    inspector.open()
    found, report = inspector.server, inspector.report
    report.reachable = True
    report.server = (
        f"PostgreSQL {found.version}, database {found.database}, schema {inspector.schema}, role {found.role}"
    )
    report.ok("connection", f"connected as {found.role} to database {found.database}")
    inspector.attempt("the clock", lambda: server.clock(inspector))
    server.settings(inspector)
    inspector.attempt("the pooler", lambda: network.pooler(inspector))
    inspector.attempt("latency", lambda: network.latency(inspector))
    server.slots(inspector)
    inspector.attempt("locks on tenure's tables", lambda: locks.tables(inspector))
    inspector.attempt("old snapshots", lambda: snapshots.held(inspector))
    inspector.attempt("tenure's schema", lambda: tables.contents(inspector))
    if not found.sees_all:
        report.note(
            "visibility",
            f"role {found.role} may not see the sessions of other roles: their state, statements and addresses are "
            "missing here",
            do=f"For a full picture: GRANT pg_monitor TO {inspector.quoted(found.role)};",
        )


def _remedy(text: str) -> str:
    for words, do in _REMEDIES.items():
        if words in text:
            return do
    return "Check host, port and network, and that the server is running."


_REMEDIES = {
    "password": "Check user and password (URL, PGPASSWORD, ~/.pgpass) and pg_hba.conf.",
    "no pg_hba.conf entry": "Allow this host, user and database in pg_hba.conf.",
    "does not exist": "Check the names of database and role, or create them.",
    "too many": "The connection slots are used up: raise max_connections or the role's CONNECTION LIMIT, or make pools "
    "smaller.",
    "remaining connection slots": "The connection slots are used up: raise max_connections, or make pools smaller.",
    "starting up": "The server is starting: try again in a moment.",
    "statement pooling mode": "Put the pooler into transaction or session mode, or give tenure a URL that leads to the "
    "server itself.",
    "no answer": "Something accepts connections and does not answer: a frozen server, a firewall, or a pooler without "
    "server connections.",
}
