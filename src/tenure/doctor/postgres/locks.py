"""Checks locks: on tenure's tables, of prepared transactions, of sessions. Names the holder and what it is doing."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import psycopg
from psycopg import sql

from tenure.doctor.findings import Lock, Severity
from tenure.doctor.postgres.inspector import Inspector, Row
from tenure.stores.postgres.advisory import lock_key
from tenure.stores.postgres.store import explained
from tenure.util.clock import sleep
from tenure.util.durations import readable

IDLE = 0.5
"""A fence is the last statement before the commit: a session that keeps its lock idle for longer was forgotten."""
SECOND_LOOK = 0.7
"""A session takes its lock a moment before its row says so: a lock counts as left over only if it is seen twice."""

_STRONG = {"ShareLock", "ShareRowExclusiveLock", "ExclusiveLock", "AccessExclusiveLock"}
"""Table locks that stop all heartbeats."""


def tables(inspector: Inspector) -> None:
    rows = inspector.ask("locks", schema=inspector.schema)
    rows = [row for row in rows if row.application != "tenure:doctor"]
    for row in rows:
        inspector.report.locks.append(
            Lock(
                target=f"{inspector.schema}.{row.relation}" if row.relation else "another transaction",
                mode=row.mode,
                granted=row.granted,
                pid=row.pid,
                user=row.role or row.owner,
                application=f"prepared transaction {row.gid!r}" if row.gid is not None else row.application,
                client=row.client,
                state=row.state,
                since=row.since or row.prepared,
                waits_for=tuple(row.waits_for),
            )
        )
    waited_for = {pid: row for row in rows for pid in row.waits_for}
    _prepared(inspector, [row for row in rows if row.gid is not None], waited_for.get(0))
    _blockers(inspector, rows, waited_for)


def _prepared(inspector: Inspector, ours: list[Row], waiter: Row | None) -> None:
    found = inspector.ask("prepared")
    held: dict[str, set[str]] = {}
    for row in ours:
        held.setdefault(row.gid, set()).add(f"{row.mode} on {inspector.schema}.{row.relation}")
    for row in found:
        age = f"prepared by {row.owner} at {_at(row.prepared)}"
        do = (
            f"Ask its transaction manager for the outcome, then COMMIT PREPARED {literal(row.gid)} "
            f"or ROLLBACK PREPARED {literal(row.gid)}."
        )
        if row.gid in held:
            blocked = f"; session {waiter.pid} waits for it" if waiter else ""
            inspector.report.problem(
                "prepared-transactions",
                f"prepared transaction {row.gid!r} ({age}) holds {' and '.join(sorted(held[row.gid]))}{blocked}",
                do=do,
            )
        else:
            inspector.report.note(
                "prepared-transactions",
                f"prepared transaction {row.gid!r} ({age}) holds no lock on tenure's tables",
                do=do,
            )
    if not found:
        inspector.report.ok("prepared-transactions", "no prepared transaction is open in this database")


def _blockers(inspector: Inspector, rows: list[Row], waited_for: dict[int, Row]) -> None:
    clean = True
    for pid in dict.fromkeys(row.pid for row in rows if row.pid is not None and row.granted):
        held = [row for row in rows if row.pid == pid and row.granted and row.relation]
        severity = _judged(inspector, held, pid in waited_for)
        if severity is None or not held:
            continue
        clean = False
        who = held[0]
        locks = sorted({f"{row.mode} on {inspector.schema}.{row.relation}" for row in held})
        waiting = (
            f"; session {waited_for[pid].pid} ({waited_for[pid].application}) waits for it" if pid in waited_for else ""
        )
        inspector.report.add(
            "blockers",
            severity,
            f"session {pid} ({_who(who)}) {_doing(who)} and holds {', '.join(locks)}{waiting}",
            do=f"End that transaction in its application, or: SELECT pg_terminate_backend({pid});",
        )
    if clean:
        inspector.report.ok("blockers", "no idle or long transaction holds tenure's tables")


def _judged(inspector: Inspector, held: list[Row], waited_for: bool) -> Severity | None:
    if waited_for:
        return "problem"
    for row in held:
        if row.age is None:
            return "note"  # our role may not see its session: all we know is that it holds something
        idle = (row.state or "").startswith("idle in transaction") and row.still >= IDLE
        if not idle and row.age < inspector.cadence.ttl:
            return None
    modes = {row.mode for row in held}
    if modes == {"AccessShareLock"}:
        return "note"  # it only reads: nothing but a migration would have to wait
    return "problem" if modes & _STRONG else "warning"


def zombies(inspector: Inspector) -> None:
    """Report sessions that hold locks of ours and belong to no live node, if they are seen twice."""
    known = _keys_of_other_schemas(inspector)
    names = {lock_key(inspector.schema, row.name): row.name for row in inspector.ask("advisory_elections")}

    def look() -> list[Row]:
        rows = inspector.ask("advisory", elections=list(names))
        return [row for row in rows if row.application != "tenure:doctor"]

    def suspects(rows: list[Row]) -> dict[tuple[int, int], Row]:
        # In mode='advisory' one session holds the locks of its node and of its election: the first names the node.
        fine = {row.pid for row in rows if row.node_state == "alive" or row.key in known}
        return {(row.pid, row.key): row for row in rows if row.granted and row.pid not in fine}

    seen = look()
    found = suspects(seen)
    if found:
        sleep(SECOND_LOOK)
        seen = look()
        found = {which: row for which, row in suspects(seen).items() if which in found}
    for row in seen:
        who = (row.pid, row.role, row.application, row.client, row.state, row.since)
        inspector.report.locks.append(Lock(_target(row, names), "ExclusiveLock", row.granted, *who))
    for row in found.values():
        whose = f"node {row.label!r} is {row.node_state}" if row.label is not None else "no live node is behind it"
        inspector.report.warning(
            "zombie-sessions",
            f"session {row.pid} ({_who(row)}, connected at {_at(row.since)}) holds the {_target(row, names)}, "
            f"and {whose}",
            do=f"If its process is gone or hangs: SELECT pg_terminate_backend({row.pid});",
        )
    if not found:
        inspector.report.ok("zombie-sessions", "every session lock belongs to a live node")


def _target(row: Row, elections: dict[int, str]) -> str:
    if row.label is not None:
        return f"session lock of node {row.label!r}"
    if row.key in elections:
        return f"lock of election {elections[row.key]!r}"
    return f"advisory lock {row.key}"


def _keys_of_other_schemas(inspector: Inspector) -> set[int]:
    """Another application may keep its own tables in the same database."""
    keys: set[int] = set()
    for row in inspector.ask("other_schemas", schema=inspector.schema):
        name = sql.Identifier(row.name)
        text = sql.SQL(
            "SELECT {}.session_key(id, session_nonce) FROM {}.node WHERE state = 'alive' AND session_nonce IS NOT NULL"
        )
        try:
            keys |= {key for (key,) in inspector.ask_text(text.format(name, name).as_string(inspector.main))}
        except psycopg.Error as error:
            inspector.recover(error)
            inspector.unseen(f"the nodes of schema {row.name}", explained(error))
    return keys


def _who(row: Row) -> str:
    parts = [
        f"role {row.role}" if row.role else "role hidden",
        f"application {row.application!r}" if row.application else "",
        row.client and f"from {row.client}",
    ]
    return ", ".join(part for part in parts if part)


def _doing(row: Row) -> str:
    if row.age is None:
        return "does something that this role may not see"
    statement = (
        f"its last statement, {_shortened(row.query)!r}, began at {_at(row.statement_since)}" if row.query else ""
    )
    if row.state and row.state.startswith("idle in transaction"):
        what = f"has been idle in its transaction for {readable(row.still)}"
    else:
        what = f"has had a transaction open for {readable(row.age)}"
    return f"{what} (begun at {_at(row.since)}; {statement})"


def _shortened(query: str) -> str:
    """The beginning of a statement, without its values."""
    bare = re.sub(r"'(?:[^']|'')*'?", "'…'", " ".join(query.split()))
    return bare if len(bare) <= 60 else bare[:59] + "…"  # noqa: PLR2004 - a readable piece


def _at(moment: datetime | None) -> str:
    return "an unknown time" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def literal(text: str) -> str:
    """A string as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"
