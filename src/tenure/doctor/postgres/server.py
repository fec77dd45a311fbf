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


def settings(desk: Inspector) -> None:
    server = desk.server
    major = server.number // 10000
    if major < OLDEST:
        desk.report.add(
            "server-version", "problem", f"PostgreSQL {server.version} is too old", do=f"Upgrade to {OLDEST} or newer."
        )
    elif major > NEWEST:
        desk.report.add(
            "server-version", "note", f"PostgreSQL {server.version} is newer than any that tenure was tested with"
        )
    else:
        desk.report.add("server-version", "ok", f"PostgreSQL {server.version}")
    if server.encoding == "UTF8":
        desk.report.add("encoding", "ok", "the database is encoded in UTF8")
    else:
        desk.report.add(
            "encoding",
            "problem",
            f"database {server.database} is encoded in {server.encoding}",
            do="Make another one: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0;",
        )
    _writing(desk)
    off = [name for name in ("fsync", "full_page_writes") if getattr(server, name) == "off"]
    if off:
        desk.report.add(
            "durability",
            "problem",
            f"{' and '.join(off)} {'is' if len(off) == 1 else 'are'} off",
            do="As a superuser: "
            + " ".join(f"ALTER SYSTEM SET {name} = on;" for name in off)
            + " SELECT pg_reload_conf();",
        )
    else:
        desk.report.add("durability", "ok", "fsync and full_page_writes are on")
    if server.synchronous_commit == "off":
        source = _SOURCES.get(server.synchronous_commit_from, server.synchronous_commit_from)
        desk.report.add(
            "synchronous-commit",
            "warning",
            f"synchronous_commit is off for role {server.role} in database {server.database}, set by {source}",
            do="Turn it on there, or SET LOCAL synchronous_commit = on in every fenced transaction.",
        )
    else:
        desk.report.add("synchronous-commit", "ok", f"synchronous_commit is {server.synchronous_commit}")
    if server.max_prepared:
        desk.report.add(
            "two-phase",
            "note",
            f"max_prepared_transactions is {server.max_prepared}: this server allows two-phase commit",
            do="Never PREPARE a transaction that was fenced.",
        )
    else:
        desk.report.add("two-phase", "ok", "two-phase commit is not possible")


def _writing(desk: Inspector) -> None:
    server = desk.server
    if server.recovering:
        desk.report.add(
            "read-only",
            "problem",
            "the server is in recovery: a standby, or one that is just starting",
            do="Use a URL that leads to the primary; with several hosts in it, add target_session_attrs=read-write.",
        )
    elif server.read_only:
        source = _SOURCES.get(server.read_only_from, server.read_only_from)
        desk.report.add(
            "read-only",
            "problem",
            f"transactions of role {server.role} in database {server.database} are read-only, set by {source}",
            do="Set default_transaction_read_only = off there, or use another role.",
        )
    else:
        desk.report.add("read-only", "ok", "the server takes writes")


def slots(desk: Inspector) -> None:
    server = desk.server
    room = server.max_connections - (0 if server.superuser else server.reserved)
    told = f"{server.used} of {room} connections are in use"
    free = room - server.used
    if server.role_limit >= 0 and not server.superuser:
        told += f", {server.role_used} of the {server.role_limit} of role {server.role}"
        free = min(free, server.role_limit - server.role_used)
    if free < SLOTS:
        desk.report.add(
            "slots",
            "warning",
            f"{told}: {max(free, 0)} left, and a node uses up to three",
            do="Raise max_connections (or the role's CONNECTION LIMIT), or make the application's pools smaller.",
        )
    else:
        desk.report.add("slots", "ok", told)


def clock(desk: Inspector) -> None:
    began = boottime()
    ((theirs,),) = desk.plain(desk.main, "SELECT extract(epoch FROM clock_timestamp())::float8")
    trip = boottime() - began
    offset = theirs - (walltime().timestamp() - trip / 2)
    if abs(offset) > max(1.0, trip):
        desk.report.add(
            "clock",
            "note",
            f"the server's clock is {readable(abs(offset))} {'ahead of' if offset > 0 else 'behind'} this host's",
            do="Nothing has to be done for tenure; look at the time service of both hosts.",
        )
    else:
        desk.report.add("clock", "ok", "the clocks of server and host agree within a second")
