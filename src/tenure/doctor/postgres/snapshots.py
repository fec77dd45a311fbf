"""Checks for old snapshots. While one is held, vacuum removes nothing that has died since, and tenure's tables grow."""

from __future__ import annotations

from tenure.doctor.postgres.inspector import Inspector, Row
from tenure.doctor.postgres.locks import literal
from tenure.util.durations import readable

OLD = 600.0
"""Seconds. A report or a small dump is over by then."""
MANY = 1_000_000
"""Age in transactions, for replication slots, whose age in seconds is not known."""


def held(inspector: Inspector) -> None:
    """Name every session, prepared transaction and replication slot that keeps an old snapshot."""
    rows = [row for row in inspector.ask("snapshots") if _old(row)]
    dead = inspector.ask("dead", schema=inspector.schema)
    beside = "".join(
        f"; {row.dead:,} dead rows in {inspector.schema}.{row.name} wait for vacuum"
        for row in dead
        if row.dead > row.live
    )
    for row in rows:
        inspector.report.warning(
            "snapshots",
            f"{_who(row)} holds a snapshot that is {row.transactions:,} transactions old{beside}",
            do=_do(row),
        )
    if not rows:
        inspector.report.ok("snapshots", "no old snapshot keeps vacuum from tenure's tables")


def _old(row: Row) -> bool:
    return bool(row.transactions >= MANY if row.age is None else row.age >= OLD)


def _who(row: Row) -> str:
    since = "" if row.age is None else f", for {readable(row.age)}"
    match row.kind:
        case "slot":
            return f"replication slot {row.name!r} ({'in use' if row.active else 'not in use'})"
        case "prepared":
            return f"prepared transaction {row.name!r} (role {row.role}{since})"
        case "standby":
            return f"the standby behind session {row.pid} ({row.application!r}, hot_standby_feedback)"
        case _:
            application = f", application {row.application!r}" if row.application else ""
            state = f", {row.state}" if row.state else ""
            return f"session {row.pid} (role {row.role or 'hidden'}{application}{state}{since})"


def _do(row: Row) -> str:
    match row.kind:
        case "slot":
            return f"If nothing reads from it any more: SELECT pg_drop_replication_slot({literal(row.name)});"
        case "prepared":
            name = literal(row.name)
            return (
                f"Ask its transaction manager for the outcome, then COMMIT PREPARED {name} or ROLLBACK PREPARED {name}."
            )
        case "standby":
            return "End the long queries on that standby, or turn hot_standby_feedback off there."
        case _:
            return (
                f"A dump or a report ends by itself. If it was forgotten: SELECT pg_terminate_backend({row.pid}); and "
                "set idle_in_transaction_session_timeout for its role."
            )
