"""Checks tenure's schema: its version and owner, the role's rights, the epoch, nodes and zone rules."""

from __future__ import annotations

from tenure.core.cluster import Epoch, Identity
from tenure.doctor.findings import Holder, zone_rules
from tenure.doctor.postgres import locks
from tenure.doctor.postgres.inspector import Inspector, Row
from tenure.stores.postgres import roles
from tenure.stores.postgres import schema as postgres_schema
from tenure.util.durations import readable

_RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")


def contents(inspector: Inspector) -> None:
    server = inspector.server
    found = inspector.ask("schema", schema=inspector.schema)
    newest = postgres_schema.known(inspector.schema).newest
    if not found:
        inspector.report.add(
            "schema",
            "warning" if server.may_create else "problem",
            f"there is no schema {inspector.schema} in database {server.database}, and role {server.role} "
            f"{'may' if server.may_create else 'may not'} create it",
            do="Start a node or run `tenure migrate`: both create it."
            if server.may_create
            else "Run `tenure migrate` as a role that may, or have the output of `tenure migrate --print` applied.",
        )
        return
    if found[0].others:
        inspector.report.problem(
            "schema",
            f"schema {inspector.schema} belongs to role {found[0].owner}, but its contents to "
            f"{', '.join(found[0].others)}: {found[0].owner} could replace tenure's functions",
            do=f"If you do not trust {found[0].owner} with that: ALTER SCHEMA {inspector.schema} "
            f"OWNER TO {inspector.quoted(found[0].others[0])};",
        )
    tables = inspector.ask("tables", schema=inspector.schema)
    _unlogged(inspector, tables)
    _grants(inspector, found[0], tables)
    if not found[0].may_use:
        inspector.unseen(
            "the contents of tenure's tables", f"role {server.role} has no USAGE on schema {inspector.schema}"
        )
        return
    inspector.attempt(
        "the schema's version", lambda: _version(inspector, {row.name for row in tables}, newest, found[0])
    )
    if not any(finding.code == "schema" and finding.severity == "ok" for finding in inspector.report.findings):
        return
    if server.recovering:
        inspector.unseen("the epoch", "a server in recovery cannot say which timeline it writes")
    else:
        inspector.attempt("the epoch", lambda: _epoch(inspector))
    inspector.attempt("the nodes and their terms", lambda: _nodes(inspector))
    inspector.attempt("zone rules", lambda: _zone_rules(inspector))
    inspector.attempt("advisory locks", lambda: locks.zombies(inspector))


def _version(inspector: Inspector, tables: set[str], newest: int, schema: Row) -> None:
    if "schema_version" not in tables:
        inspector.report.problem(
            "schema",
            f"schema {inspector.schema} has no tables of tenure's",
            do="Run `tenure migrate`, or name another schema.",
        )
        return
    version, oldest = inspector.ask_text(inspector.store.statements["schema_version"])[0]
    how = (
        "Run `tenure migrate`."
        if schema.may_create
        else f"Run `tenure migrate` as {schema.owner}: role {inspector.server.role} may not."
    )
    if oldest > newest:
        inspector.report.problem(
            "schema",
            f"schema {inspector.schema} has version {version} and needs a library that knows version {oldest}; "
            f"this one knows {newest}",
            do="Upgrade tenure here.",
        )
    elif version < newest:
        inspector.report.problem(
            "schema", f"schema {inspector.schema} has version {version}, this library needs {newest}", do=how
        )
    else:
        inspector.report.ok("schema", f"schema {inspector.schema} has version {version}")


def _unlogged(inspector: Inspector, tables: list[Row]) -> None:
    names = [f"{inspector.schema}.{row.name}" for row in tables if row.unlogged]
    if names:
        inspector.report.problem(
            "unlogged",
            f"unlogged: {', '.join(names)}",
            do="As its owner: " + " ".join(f"ALTER TABLE {name} SET LOGGED;" for name in names),
        )
    else:
        inspector.report.ok("unlogged", "all tables survive a crash")


def _grants(inspector: Inspector, schema: Row, tables: list[Row]) -> None:
    role = inspector.quoted(inspector.server.role)
    grants = [] if schema.may_use else [f"GRANT USAGE ON SCHEMA {inspector.schema} TO {role};"]
    missing = [] if schema.may_use else [f"USAGE on schema {inspector.schema}"]
    for row in tables:
        lacking = [right for right in _RIGHTS if right in set(roles.TABLES.get(row.name, ())) - set(row.may)]
        if lacking:
            missing.append(f"{', '.join(lacking)} on {row.name}")
            grants.append(f"GRANT {', '.join(lacking)} ON {inspector.schema}.{row.name} TO {role};")
    functions = inspector.ask("functions", schema=inspector.schema)
    for row in functions:
        if not row.may and row.signature.partition("(")[0] not in roles.INSIDE:
            missing.append(f"EXECUTE on {row.signature}")
            grants.append(f"GRANT EXECUTE ON FUNCTION {inspector.schema}.{row.signature} TO {role};")
    if not missing:
        inspector.report.ok("privileges", f"role {inspector.server.role} has all that a node needs")
        return
    fences = schema.may_use and any(row.may and row.signature.startswith("fence(") for row in functions)
    inspector.report.problem(
        "privileges",
        f"role {inspector.server.role} lacks {'; '.join(missing)}"
        + (". It may fence, but not run a node" if fences else ""),
        do=f"As the owner, {schema.owner}: \n{chr(10).join(grants)}",
    )


def _epoch(inspector: Inspector) -> None:
    number, max_ttl, *ids = inspector.ask_text(inspector.store.statements["epoch"])[0]
    epoch = Epoch(number, max_ttl, recorded=Identity(*ids[:4]), actual=Identity(*ids[4:]))
    _timeline(inspector, epoch.actual.timeline)
    if epoch.settled:
        inspector.report.ok("epoch", f"epoch {number} was written for this server")
        return
    names = {"system": "system identifier", "timeline": "timeline", "database": "database", "relation": "table"}
    changed = [
        f"{words} {getattr(epoch.recorded, name)} instead of {getattr(epoch.actual, name)}"
        for name, words in names.items()
        if getattr(epoch.recorded, name) != getattr(epoch.actual, name)
    ]
    inspector.report.problem(
        "epoch",
        f"epoch {number} is not settled: it was written for {', '.join(changed)}",
        do=f"A running node raises it by itself after {readable(max_ttl)}; check again then. If no node is running, "
        "start one.",
    )


def _timeline(inspector: Inspector, timeline: int) -> None:
    if timeline:
        inspector.report.ok("timeline", f"the server writes timeline {timeline}")
        return
    inspector.report.note(
        "timeline",
        "the server does not say which timeline it writes: pg_walfile_name(pg_current_wal_lsn()) is refused or missing",
        do="On Amazon Aurora: nothing. Elsewhere let the owner of tenure's schema execute both functions, and run "
        "`tenure epoch raise` after promoting a replica until then.",
    )


def _zone_rules(inspector: Inspector) -> None:
    code, severity, what, do = zone_rules([(row.name, row.written, row.planned) for row in inspector.ask("zone_rules")])
    inspector.report.add(code, severity, what, do=do)


def _nodes(inspector: Inspector) -> None:
    nodes = {row.id: row for row in inspector.ask("nodes")}
    silent = [row for row in nodes.values() if row.silent > row.ttl]
    for row in silent:
        leads = f", and still leads {', '.join(map(repr, row.leads))}" if row.leads else ""
        session = f"; its session {row.session} from {row.client or 'this host'} is still there" if row.session else ""
        inspector.report.warning(
            "silent-nodes",
            f"node {row.label!r} ({row.id}) counts as alive but has been silent for {readable(row.silent)}; "
            f"its ttl is {row.ttl:g} s{leads}{session}",
            do="Check whether its process hangs. Any other node declares it dead after its ttl; start one if none is "
            "running.",
        )
    if not silent:
        inspector.report.ok("silent-nodes", f"alive: {len(nodes)}, silent: none")
    for row in inspector.ask("held"):
        node = nodes.get(row.node)
        state = row.state if node is None else f"silent for {readable(node.silent)}" if node in silent else "alive"
        inspector.report.holders.append(
            Holder(
                row.name,
                row.term,
                row.mode,
                row.node,
                row.label,
                row.since,
                healthy=state == "alive",
                state=state,
                process=int(node.process) if node and node.process else None,
                session=node.session if node else None,
                client=node.client if node else None,
            )
        )
