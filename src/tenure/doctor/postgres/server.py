"""What the server promises: versions, writes, durability, room for connections."""

from __future__ import annotations

from tenure.doctor.postgres.inspector import Inspector
from tenure.util.clock import boottime, walltime
from tenure.util.durations import readable

OLDEST, NEWEST = 14, 18
SLOTS = 6
"""Two nodes of three connections each can still start."""

_SOURCES = {
    "user": "ALTER ROLE … SET",
    "database": "ALTER DATABASE … SET",
    "database user": "ALTER ROLE … IN DATABASE … SET",
    "client": "the connection's own options (the URL, or PGOPTIONS)",
    "configuration file": "the server's configuration file",
    "command line": "the server's command line",
    "default": "its default",
}


def settings(inspector: Inspector) -> None:
    server = inspector.server
    major = server.number // 10000
    if major < OLDEST:
        inspector.report.problem(
            "server-version", f"PostgreSQL {server.version} is too old", do=f"Upgrade to {OLDEST} or newer."
        )
    elif major > NEWEST:
        inspector.report.note(
            "server-version", f"PostgreSQL {server.version} is newer than those that tenure was tested with"
        )
    else:
        inspector.report.ok("server-version", f"PostgreSQL {server.version}")
    if server.encoding == "UTF8":
        inspector.report.ok("encoding", "the database is encoded in UTF8")
    else:
        inspector.report.problem(
            "encoding",
            f"database {server.database} is encoded in {server.encoding}",
            do="Create another one: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0;",
        )
    _writing(inspector)
    off = [name for name in ("fsync", "full_page_writes") if getattr(server, name) == "off"]
    if off:
        inspector.report.problem(
            "durability",
            f"{' and '.join(off)} {'is' if len(off) == 1 else 'are'} off",
            do="As a superuser: "
            + " ".join(f"ALTER SYSTEM SET {name} = on;" for name in off)
            + " SELECT pg_reload_conf();",
        )
    else:
        inspector.report.ok("durability", "fsync and full_page_writes are on")
    if server.synchronous_commit == "off":
        source = _SOURCES.get(server.synchronous_commit_from, server.synchronous_commit_from)
        inspector.report.warning(
            "synchronous-commit",
            f"synchronous_commit is off for role {server.role} in database {server.database}, set by {source}",
            do="Turn it on there, or SET LOCAL synchronous_commit = on in every fenced transaction.",
        )
    else:
        inspector.report.ok("synchronous-commit", f"synchronous_commit is {server.synchronous_commit}")
    if server.max_prepared:
        inspector.report.note(
            "two-phase",
            f"max_prepared_transactions is {server.max_prepared}: this server allows two-phase commit",
            do="Never PREPARE a transaction that was fenced.",
        )
    else:
        inspector.report.ok("two-phase", "two-phase commit is turned off")


def _writing(inspector: Inspector) -> None:
    server = inspector.server
    if server.recovering:
        inspector.report.problem(
            "read-only",
            "the server is in recovery: it is a standby, or just starting",
            do="Use a URL that leads to the primary; with several hosts in it, add target_session_attrs=read-write.",
        )
    elif server.read_only:
        source = _SOURCES.get(server.read_only_from, server.read_only_from)
        inspector.report.problem(
            "read-only",
            f"transactions of role {server.role} in database {server.database} are read-only, set by {source}",
            do="Set default_transaction_read_only = off there, or use another role.",
        )
    else:
        inspector.report.ok("read-only", "the server accepts writes")


def slots(inspector: Inspector) -> None:
    server = inspector.server
    room = server.max_connections - (0 if server.superuser else server.reserved)
    told = f"{server.used} of {room} connections are in use"
    free = room - server.used
    if server.role_limit >= 0 and not server.superuser:
        told += f", {server.role_used} of the {server.role_limit} of role {server.role}"
        free = min(free, server.role_limit - server.role_used)
    if free < SLOTS:
        inspector.report.warning(
            "slots",
            f"{told}: {max(free, 0)} left, and a node uses up to three",
            do="Raise max_connections (or the role's CONNECTION LIMIT), or make the application's pools smaller.",
        )
    else:
        inspector.report.ok("slots", told)


def clock(inspector: Inspector) -> None:
    began = boottime()
    ((theirs,),) = inspector.plain(inspector.main, "SELECT extract(epoch FROM clock_timestamp())::float8")
    trip = boottime() - began
    offset = theirs - (walltime().timestamp() - trip / 2)
    if abs(offset) > max(1.0, trip):
        inspector.report.note(
            "clock",
            f"the server's clock is {readable(abs(offset))} {'ahead of' if offset > 0 else 'behind'} this host's",
            do="Nothing has to be done for tenure; check the time service of both hosts.",
        )
    else:
        inspector.report.ok("clock", "the clocks of the server and this host agree within a second")
