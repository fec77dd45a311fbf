"""What a role that may create objects in `public` can put there: functions, operators, types and views with the names
of PostgreSQL's own.

Each writes to the server's log that it ran, and as whom, and then does what the original does. In a database whose
search_path has `public` first, every name without a schema finds them.
"""

import importlib.resources
import re

import psycopg

from harness.postgres import Postgres
from tenure.stores import statements
from tenure.stores.postgres import rows as postgres_rows

TYPES = [
    "text",
    "name",
    "bool",
    "int4",
    "int8",
    "float8",
    "numeric",
    "timestamptz",
    "interval",
    "uuid",
    "json",
    "jsonb",
    "oid",
    "xid8",
    "pg_snapshot",
    "bit",
    "inet",
    "anyarray",
    "anyelement",
    "anynonarray",
    "anyenum",
    "anycompatible",
    "anycompatiblearray",
    "record",
    "_text",
    "_int4",
    "_int8",
    "_float8",
]
EXACT = {  # its result, and arguments that it matches better than those that take anything
    "concat_ws": (
        "text",
        "text, uuid, bigint, double precision, bigint, double precision",
        "text, bigint, text, text, boolean, text",
    ),
    "json_build_array": ("json", "text, bigint, uuid, bigint, bigint, double precision"),
    "cardinality": ("integer", "bigint[]", "integer[]"),  # found even where `pg_catalog` comes first
    "hashtextextended": ("bigint", "text, integer"),
}
VIEWS = ("pg_locks", "pg_class", "pg_proc", "pg_namespace", "pg_tables", "pg_database", "pg_roles", "pg_settings")

_PASS_ON = {"void": "PERFORM", "SETOF": "RETURN QUERY SELECT"}
_SAY = "RAISE LOG 'shadow {mark}: % ran as %', {name}, current_user;"


def plant(server: Postgres, url: str, role: str, mark: str) -> None:
    """Put a shadow of everything that our statements use into `public`, as this role, and let `public` come first for
    everybody."""
    database = url.rpartition("/")[2]
    server.execute(f"GRANT CREATE, USAGE ON SCHEMA public TO {role}", dbname=database)
    with psycopg.connect(url.replace("postgres@", f"{role}@"), autocommit=True) as connection:
        connection.execute("\n".join(_statements(connection, mark)))
    server.execute(f"ALTER DATABASE {database} SET search_path = public, pg_catalog")


def ran(server: Postgres, mark: str) -> set[str]:
    """Which of them ran."""
    return set(re.findall(rf"shadow {mark}: (.+ ran as .+)", server.log.read_text(errors="replace")))


def _statements(connection: psycopg.Connection, mark: str) -> list[str]:
    say = _SAY.replace("{mark}", mark)
    names, operators = _used()
    functions = list(connection.execute(_FUNCTIONS, [sorted(names - set(EXACT)), TYPES]))
    functions += [
        (name, arguments, result, arguments.count(",") + 1)
        for name, (result, *signatures) in EXACT.items()
        for arguments in signatures
    ]
    made = [
        f"CREATE FUNCTION public.{name}({arguments}) RETURNS {result} LANGUAGE plpgsql AS $_$BEGIN {say.format(name=repr(name))}"
        f" {_PASS_ON.get(result.split()[0], 'RETURN')} pg_catalog.{name}({_numbered(count)}); END$_$;"
        for name, arguments, result, count in functions
    ]
    for number, (name, left, right, result) in enumerate(connection.execute(_OPERATORS, [sorted(operators), TYPES])):
        made.append(
            f"CREATE FUNCTION public.op{number}({left}, {right}) RETURNS {result} LANGUAGE plpgsql AS $_$BEGIN {say.format(name=repr(name))}"
            f" RETURN $1 OPERATOR(pg_catalog.{name}) $2; END$_$;"
            f"CREATE OPERATOR public.{name} (LEFTARG = {left}, RIGHTARG = {right}, FUNCTION = public.op{number});"
        )
    made.append(
        f"CREATE FUNCTION public.look(what pg_catalog.text) RETURNS boolean LANGUAGE plpgsql AS $_$BEGIN {say.format(name='what')} RETURN true; END$_$;"
    )
    made += [
        f"CREATE VIEW public.{view} AS SELECT * FROM pg_catalog.{view} WHERE public.look('{view}');" for view in VIEWS
    ]
    made += [
        f"CREATE DOMAIN public.{kind} AS pg_catalog.{kind} CHECK (public.look('type {kind}'));"
        for kind in ("uuid", "float8", "timestamptz", "jsonb", "text")
    ]
    return made


def _used() -> tuple[set[str], set[str]]:
    """Functions and operators that stand in our statements."""
    texts = [postgres_rows.JOB, postgres_rows.RUN, postgres_rows.SPAN, postgres_rows.REACHING]
    for folder in ("", "/migrations", "/functions"):
        texts += [file.read_text(encoding="utf-8") for file in statements.scripts(statements.POSTGRES + folder)]
    texts += [file.read_text(encoding="utf-8") for file in statements.scripts("doctor") if file.name == "postgres.sql"]
    text = re.sub(r"--.*", "", "\n".join(texts))
    package = importlib.resources.files("tenure.stores.postgres")
    python = "".join(file.read_text(encoding="utf-8") for file in package.iterdir() if file.name.endswith(".py"))
    return set(re.findall(r"\b([a-z_]+)\(", text + python)), set(re.findall(r"(?<=\s)[-+*/<>=~!@|]{1,3}(?=\s)", text))


def _numbered(count: int) -> str:
    return ", ".join(f"${number}" for number in range(1, count + 1))


_FUNCTIONS = """
    SELECT p.proname, pg_get_function_identity_arguments(p.oid), pg_get_function_result(p.oid), p.pronargs
      FROM pg_proc p
     WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' AND p.provariadic = 0 AND p.proname = ANY (%s)
       AND p.proargmodes IS NULL
       AND (SELECT bool_and(t.typname = ANY (%s)) IS NOT FALSE
              FROM unnest(p.proargtypes) a (kind) JOIN pg_type t ON t.oid = a.kind)
"""
_OPERATORS = """
    SELECT o.oprname, l.typname, r.typname, o.oprresult::regtype::text
      FROM pg_operator o JOIN pg_type l ON l.oid = o.oprleft JOIN pg_type r ON r.oid = o.oprright
     WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprname = ANY (%s)
       AND ARRAY[l.typname, r.typname]::text[] <@ %s::text[]
"""
