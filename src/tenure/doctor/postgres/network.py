"""Checks what is between this host and the server: poolers, and latency."""

from __future__ import annotations

import math
import secrets

import psycopg

from tenure.core.cluster import MAX_TTL
from tenure.doctor.findings import Severity
from tenure.doctor.postgres.inspector import ANSWER_TIMEOUT, Inspector
from tenure.stores.postgres.deadline import DeadlineConnection
from tenure.util.clock import boottime
from tenure.util.durations import readable

POOL_TIMEOUT = 1.0
SAMPLES = 30
SAMPLE_TIME = 2.0


def pooler(inspector: Inspector) -> None:
    """Detect whether two clients share a server process, or one client moves between them, without taking a lock."""
    announced, real = inspector.main.info.backend_pid, inspector.server.pid
    try:
        other = inspector.connect()
    except psycopg.OperationalError as error:
        inspector.report.note(
            "pooler", f"a second connection failed, so no more is known: {inspector.store.explained(error)}"
        )
        return
    other.timeout = POOL_TIMEOUT
    moved = ""
    try:
        first = inspector.pid(other)
    except psycopg.OperationalError:
        inspector.report.warning(
            "pooler",
            f"a pooler announces process {announced} for server process {real}, and gave a second client no server "
            f"connection within {readable(POOL_TIMEOUT)}",
            do="Make its pool larger: a node uses up to three connections.",
        )
        return
    for _ in range(3):
        inspector.main.execute("BEGIN READ ONLY")
        try:
            pinned = inspector.pid(inspector.main)
            if pinned == first:
                moved = f"two clients were served by the same server process {first}"
            if (later := inspector.pid(other)) != first:
                moved = f"one client was served by server process {first}, then by {later}"
        except psycopg.OperationalError:
            if inspector.main.closed:
                raise
            moved = "a client has to wait while another has a transaction open"
        finally:
            if not inspector.main.closed:
                inspector.main.execute("ROLLBACK")
        if moved:
            break
    if moved or announced != real:
        inspector.trips = 4  # BEGIN, the settings, the statement, COMMIT
    if moved:
        inspector.report.warning(
            "pooler",
            f"there is a pooler in transaction mode in between: {moved}",
            do="Give tenure a URL that leads straight to the server (often port 5432), or accept slower takeovers.",
        )
        inspector.report.warning(
            "session-lock",
            f"sessions lose their locks: {moved}, so a lock taken by one statement is gone in the next",
            do="Use the default mode='lease', which needs no session; take no bare advisory locks through this URL.",
        )
        return
    if announced != real:
        inspector.report.note(
            "pooler",
            f"there is a pooler in session mode in between: it announces process {announced} for server process {real}",
            do="Nothing has to be done. A URL that leads straight to the server makes takeovers between hosts faster.",
        )
    else:
        inspector.report.ok("pooler", f"none: connected to server process {real} itself")
    _session_lock(inspector, other)


def _session_lock(inspector: Inspector, other: DeadlineConnection) -> None:
    """Take a lock that no one else can want, look for it from both connections, and give it back."""
    key = secrets.randbits(62)
    lock, pid = inspector.plain(inspector.main, "SELECT pg_try_advisory_lock(%s), pg_backend_pid()", key)[0]
    inspector.plain(inspector.main, "SELECT 1")
    mine = inspector.plain(inspector.main, _LOOK, key)[0]
    other.timeout = ANSWER_TIMEOUT
    theirs = inspector.plain(other, _LOOK, key)[0]
    (unlocked,) = inspector.plain(inspector.main, "SELECT pg_advisory_unlock(%s)", key)[0]
    if lock and unlocked and mine[0] == pid and mine[1] == [pid] and theirs[1] == [pid]:
        inspector.report.ok("session-lock", "a session keeps its advisory lock from one statement to the next")
        return
    inspector.report.problem(
        "session-lock",
        f"a session lock taken by server process {pid} was later seen from process {mine[0]} as held by "
        f"{mine[1] or 'no process'}, from another session as held by {theirs[1] or 'no process'}, "
        f"and {'could' if unlocked else 'could not'} be released",
        do="Find what is between this host and the server (a pooler, a proxy), and give tenure a direct URL.",
    )


_LOOK = """
    SELECT pg_backend_pid(),
           ARRAY(SELECT l.pid FROM pg_locks l
                  WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
                    AND (l.classid::bigint << 32) | l.objid::bigint = %s
                    AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
"""


def latency(inspector: Inspector) -> None:
    samples: list[float] = []
    end = boottime() + SAMPLE_TIME
    while len(samples) < SAMPLES and (boottime() < end or len(samples) < 2):  # noqa: PLR2004 - the first may be slow
        began = boottime()
        inspector.main.execute("SELECT 1")
        samples.append(boottime() - began)
    samples.sort()
    worst = samples[max(math.ceil(0.99 * len(samples)) - 1, 0)]
    statement = worst * inspector.trips
    cadence = inspector.cadence
    measured = (
        f"99 % of {len(samples)} round trips took {_ms(worst)} or less, half of them {_ms(samples[len(samples) // 2])}"
    )
    if inspector.trips > 1:
        measured += f"; behind a pooler a statement takes {inspector.trips} of them, {_ms(statement)}"
    attempt, check = cadence.attempt_timeout, cadence.validate_timeout
    direct = inspector.trips == 1
    severity: Severity = "ok"
    if statement >= attempt or (direct and worst >= check):
        severity = "problem"
    elif statement * 4 >= attempt or (direct and worst * 2 >= check):
        severity = "warning"
    arithmetic = f"With ttl {cadence.ttl:g} s a heartbeat has attempt_timeout = {_ms(attempt)}"
    if direct:
        arithmetic += f", a check of the session lock validate_timeout = {_ms(check)}"
    do = ""
    if severity != "ok":
        wanted = math.ceil(
            statement * 4 * 5 + 0.5
        )  # attempt_timeout is a fifth of the ttl; a beat should need a quarter of it
        do = (
            f"Use ttl={wanted} or more"
            if wanted <= MAX_TTL
            else "Move nodes and database closer together: no ttl that tenure accepts helps"
        )
        if direct and worst * 2 >= check:
            every = cadence.validate_every
            patience = math.ceil(worst * 30) / 10
            do += f", and validate_timeout={patience:g}, session_grace={every + 2 * patience + 0.5:g}"
        do += ", or find out why the network to the server is slow."
    inspector.report.add("latency", severity, f"{measured}. {arithmetic}.", do=do)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 0.01 else readable(seconds)  # noqa: PLR2004 - show a fraction
