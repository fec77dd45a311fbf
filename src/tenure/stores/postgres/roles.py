"""The rights that a PostgreSQL role needs if it does not own tenure's schema, as SQL for the owner to run.

node      runs nodes and the command line
effects   calls `term.fence`, `run.complete` and `run.once` inside its own transactions, and cannot read the tables

A role gets no right that is not used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tenure.errors import ConfigurationError
from tenure.stores.postgres import schema as postgres_schema

MAX_ROLE = 63
"""The longest name in PostgreSQL, in bytes."""

TABLES: Mapping[str, tuple[str, ...]] = {
    "schema_version": ("SELECT",),
    "epoch": ("SELECT", "UPDATE"),
    "node": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "election": ("SELECT", "INSERT", "UPDATE"),  # never deleted: it has the number of the term
    "term": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "application": ("SELECT", "INSERT"),
    "function_set": ("SELECT", "INSERT", "UPDATE", "DELETE"),  # UPDATE for FOR UPDATE
    "node_facts": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "lane": ("SELECT", "INSERT"),
    "job": ("SELECT", "INSERT", "UPDATE"),  # deleted by `forget_jobs` alone, which runs as its owner
    "pool": ("SELECT", "INSERT", "UPDATE"),
    "job_change": ("SELECT", "INSERT"),
    "action": ("SELECT", "INSERT", "DELETE"),
    "run": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "kept_key": ("SELECT", "INSERT", "UPDATE", "DELETE"),  # UPDATE for FOR UPDATE
    "attempt": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "run_log": ("SELECT", "INSERT", "DELETE"),
    "run_progress": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "job_hour": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "job_day": ("SELECT", "INSERT", "DELETE"),
    "hours_counted": ("SELECT", "INSERT", "UPDATE"),
    "hour_touched": ("SELECT", "INSERT", "DELETE"),
    "backfill": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "backfill_due": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "guard": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "alert": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "alert_message": ("SELECT", "INSERT", "UPDATE"),  # deleted with the alert
    "effect": (),  # only through `once`
}
"""The rights of a node on each table."""

EFFECTS = ("fence", "complete", "once")
"""Functions that an application calls in its own transactions."""
INSIDE = ("refuse_attempt", "limit_idling")
"""Functions that only other functions call, which run as the owner."""


def grants(schema: str, role: str, *, effects_only: bool = False) -> str:
    """The statements that give a role its rights. They can be executed again after every migration."""
    to = quoted(role)
    functions = {
        name: signature for name, signature in _functions(schema).items() if name in EFFECTS or not effects_only
    }
    lines = [f"GRANT USAGE ON SCHEMA {schema} TO {to};"]
    if not effects_only:
        lines += [
            f"GRANT {', '.join(rights)} ON {schema}.{table} TO {to};" for table, rights in TABLES.items() if rights
        ]
    lines += [
        f"GRANT EXECUTE ON FUNCTION {schema}.{name}({signature}) TO {to};"
        for name, signature in sorted(functions.items())
        if name not in INSIDE
    ]
    return "\n".join(["BEGIN;", "SET LOCAL search_path = pg_catalog, pg_temp;", *lines, "COMMIT;", ""])


def quoted(role: str) -> str:
    """The name of a role, quoted for SQL."""
    if not role or "\0" in role or len(role.encode(errors="replace")) > MAX_ROLE:
        raise ConfigurationError(f"grants: {role!r:.80} cannot be the name of a role. Write 1 to {MAX_ROLE} bytes.")
    return '"' + role.replace('"', '""') + '"'


def _functions(schema: str) -> dict[str, str]:
    """Our functions, with the types of their arguments."""
    found = re.findall(
        rf"^CREATE OR REPLACE FUNCTION {schema}\.(\w+)\((.*?)\)\s*(?:RETURNS|LANGUAGE)",
        postgres_schema.known(schema).functions,
        re.MULTILINE | re.DOTALL,
    )
    return {name: ", ".join(_types(arguments)) for name, arguments in found}


def _types(arguments: str) -> list[str]:
    """The types of `node uuid, nonce bigint DEFAULT 0, OUT detail text`: uuid, bigint."""
    plain = re.sub(r"--.*| DEFAULT ('[^']*'|\w+)", "", arguments)
    given = [" ".join(one.split()) for one in plain.split(",") if one.strip()]
    return [one.partition(" ")[2] for one in given if not one.startswith("OUT ")]
