"""What the role may do with tenure's schema, and what the tables say."""

from __future__ import annotations

from tenure.core.cluster import Epoch, Identity
from tenure.doctor.findings import Holder, zone_rules
from tenure.doctor.postgres import locks
from tenure.doctor.postgres.inspector import Inspector, Row
from tenure.stores.postgres import roles
from tenure.stores.postgres import schema as postgres_schema
from tenure.util.durations import readable

_RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")


def contents(desk: Inspector) -> None:
    server = desk.server
    found = desk.ask("schema", schema=desk.schema)
    newest = postgres_schema.known(desk.schema).newest
    if not found:
        desk.report.add(
            "schema",
            "warning" if server.may_create else "problem",
            f"there is no schema {desk.schema} in database {server.database}, and role {server.role} "
            f"{'may' if server.may_create else 'may not'} create it",
            do="Start a node or run `tenure migrate`, which create it."
            if server.may_create
            else "Run `tenure migrate` as a role that may, or have what `tenure migrate --print` prints applied.",
        )
        return
    if found[0].others:
        desk.report.add(
            "schema",
            "problem",
            f"schema {desk.schema} belongs to role {found[0].owner}, what is in it to {', '.join(found[0].others)}: {found[0].owner} could replace "
            "tenure's functions by others",
            do=f"If {found[0].owner} is not to be trusted with that: ALTER SCHEMA {desk.schema} OWNER TO {desk.quoted(found[0].others[0])};",
        )
    tables = desk.ask("tables", schema=desk.schema)
    _unlogged(desk, tables)
    _grants(desk, found[0], tables)
    if not found[0].may_use:
        desk.unseen("the contents of tenure's tables", f"role {server.role} has no USAGE on schema {desk.schema}")
        return
    desk.attempt("the schema's version", lambda: _version(desk, {row.name for row in tables}, newest, found[0]))
    if not any(finding.code == "schema" and finding.severity == "ok" for finding in desk.report.findings):
        return
    if server.recovering:
        desk.unseen("the epoch", "a server in recovery cannot say which timeline it writes")
    else:
        desk.attempt("the epoch", lambda: _epoch(desk))
    desk.attempt("the nodes and their terms", lambda: _nodes(desk))
    desk.attempt("zone rules", lambda: _zone_rules(desk))
    desk.attempt("advisory locks", lambda: locks.zombies(desk))


def _version(desk: Inspector, tables: set[str], newest: int, schema: Row) -> None:
    if "schema_version" not in tables:
        desk.report.add(
            "schema",
            "problem",
            f"schema {desk.schema} has no tables of tenure's",
            do="Run `tenure migrate`, or name another schema.",
        )
        return
    version, oldest = desk.ask_text(desk.store.statements["schema_version"])[0]
    how = (
        "Run `tenure migrate`."
        if schema.may_create
        else f"Run `tenure migrate` as {schema.owner}: role {desk.server.role} may not."
    )
    if oldest > newest:
        desk.report.add(
            "schema",
            "problem",
            f"schema {desk.schema} has version {version} and needs a library that knows version {oldest}; this one knows {newest}",
            do="Upgrade tenure here.",
        )
    elif version < newest:
        desk.report.add(
            "schema", "problem", f"schema {desk.schema} has version {version}, this library needs {newest}", do=how
        )
    else:
        desk.report.add("schema", "ok", f"schema {desk.schema} has version {version}")


def _unlogged(desk: Inspector, tables: list[Row]) -> None:
    names = [f"{desk.schema}.{row.name}" for row in tables if row.unlogged]
    if names:
        desk.report.add(
            "unlogged",
            "problem",
            f"unlogged: {', '.join(names)}",
            do="As its owner: " + " ".join(f"ALTER TABLE {name} SET LOGGED;" for name in names),
        )
    else:
        desk.report.add("unlogged", "ok", "all tables survive a crash")


def _grants(desk: Inspector, schema: Row, tables: list[Row]) -> None:
    role = desk.quoted(desk.server.role)
    grants = [] if schema.may_use else [f"GRANT USAGE ON SCHEMA {desk.schema} TO {role};"]
    missing = [] if schema.may_use else [f"USAGE on schema {desk.schema}"]
    for row in tables:
        lacking = [right for right in _RIGHTS if right in set(roles.TABLES.get(row.name, ())) - set(row.may)]
        if lacking:
            missing.append(f"{', '.join(lacking)} on {row.name}")
            grants.append(f"GRANT {', '.join(lacking)} ON {desk.schema}.{row.name} TO {role};")
    functions = desk.ask("functions", schema=desk.schema)
    for row in functions:
        if not row.may and row.signature.partition("(")[0] not in roles.INSIDE:
            missing.append(f"EXECUTE on {row.signature}")
            grants.append(f"GRANT EXECUTE ON FUNCTION {desk.schema}.{row.signature} TO {role};")
    if not missing:
        desk.report.add("privileges", "ok", f"role {desk.server.role} has all that a node needs")
        return
    fences = schema.may_use and any(row.may and row.signature.startswith("fence(") for row in functions)
    desk.report.add(
        "privileges",
        "problem",
        f"role {desk.server.role} lacks {'; '.join(missing)}"
        + (". It may fence, but not run a node" if fences else ""),
        do=f"As the owner, {schema.owner}: \n{chr(10).join(grants)}",
    )


def _epoch(desk: Inspector) -> None:
    number, max_ttl, *ids = desk.ask_text(desk.store.statements["epoch"])[0]
    epoch = Epoch(number, max_ttl, recorded=Identity(*ids[:4]), actual=Identity(*ids[4:]))
    _timeline(desk, epoch.actual.timeline)
    if epoch.settled:
        desk.report.add("epoch", "ok", f"epoch {number} was written for this server")
        return
    names = {"system": "system identifier", "timeline": "timeline", "database": "database", "relation": "table"}
    changed = [
        f"{words} {getattr(epoch.recorded, name)} instead of {getattr(epoch.actual, name)}"
        for name, words in names.items()
        if getattr(epoch.recorded, name) != getattr(epoch.actual, name)
    ]
    desk.report.add(
        "epoch",
        "problem",
        f"epoch {number} is not settled: it was written for {', '.join(changed)}",
        do=f"A running node raises it by itself after {readable(max_ttl)}; look again then. If no node runs, start one.",
    )


def _timeline(desk: Inspector, timeline: int) -> None:
    if timeline:
        desk.report.add("timeline", "ok", f"the server writes timeline {timeline}")
        return
    desk.report.add(
        "timeline",
        "note",
        "the server does not say which timeline it writes: pg_walfile_name(pg_current_wal_lsn()) is refused or missing",
        do="On Amazon Aurora: nothing. Elsewhere let the owner of tenure's schema execute both functions, and run "
        "`tenure epoch raise` after promoting a replica until then.",
    )


def _zone_rules(desk: Inspector) -> None:
    code, severity, what, do = zone_rules([(row.name, row.written, row.planned) for row in desk.ask("zone_rules")])
    desk.report.add(code, severity, what, do=do)


def _nodes(desk: Inspector) -> None:
    nodes = {row.id: row for row in desk.ask("nodes")}
    silent = [row for row in nodes.values() if row.silent > row.ttl]
    for row in silent:
        leads = f", and still leads {', '.join(map(repr, row.leads))}" if row.leads else ""
        session = f"; its session {row.session} from {row.client or 'this host'} is still there" if row.session else ""
        desk.report.add(
            "silent-nodes",
            "warning",
            f"node {row.label!r} ({row.id}) counts as alive but was silent for {readable(row.silent)}, its ttl is {row.ttl:g} s{leads}{session}",
            do="See whether its process hangs. Any other node declares it dead after its ttl; start one if none runs.",
        )
    if not silent:
        desk.report.add("silent-nodes", "ok", f"alive: {len(nodes)}, silent: none")
    for row in desk.ask("held"):
        node = nodes.get(row.node)
        state = row.state if node is None else f"silent for {readable(node.silent)}" if node in silent else "alive"
        desk.report.holders.append(
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
