"""Commands that show jobs and runs. They read the ledger; they neither import the application nor run anything."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from typing import Any

from tenure.cli.elections import application_of, read_only_session, store_of
from tenure.cli.output import RED, YELLOW, as_json, paint, say, show, show_text, table
from tenure.cli.person import origin
from tenure.cli.times import here, short
from tenure.core.audit import OPEN, JobAudit
from tenure.core.patterns import matches
from tenure.core.trigger_text import common_zone, trigger_from
from tenure.errors import ConfigurationError, RunError
from tenure.jobs.queries import MAX_RUNS
from tenure.scheduler import Scheduler, service_of
from tenure.util.clock import boottime, walltime
from tenure.util.durations import readable
from tenure.util.instants import moment
from tenure.util.last_line import last_line
from tenure.util.plurals import counted, several
from tenure.views import JobView, NodeView, RunView

COMING = 5
"""How many runs that were requested for later `runs` lists above the others."""
FEW = 5
"""How many names a sentence lists."""
OFF = 1.0
"""`nodes` shows how far a node's clock is off from this many seconds on."""
PROGRESS = 2.0
"""Seconds between two progress lines of an audit."""
NOW = "-0s"
"""By the ledger's clock. Runs planned for later are proposals and not shown."""


def runs(arguments: argparse.Namespace) -> int:
    """List runs, newest first."""
    with application(arguments) as scheduler:
        found = scheduler.runs(
            arguments.job,
            since=arguments.since,
            until=arguments.until or NOW,
            state=arguments.state,
            limit=arguments.limit,
        )
        if arguments.until is None and "pending" in (arguments.state or ["pending"]):
            most = COMING if arguments.state is None else arguments.limit
            found = [*reversed(_coming(scheduler, arguments.job, most)), *found][: arguments.limit]
    if arguments.json:
        as_json([run.as_dict() for run in found])
    elif not found:
        show("no such runs")
    else:
        now = walltime()
        columns = ["job", "run", f"for, {here()}", "state", "late", "took", "node", "attempt", "why"]
        table(columns, [_run(run, now) for run in found], spare=2, below=True)
    return 0


def _coming(scheduler: Scheduler, job: str | None, limit: int) -> list[RunView]:
    """The runs that were requested for a time to come, the nearest first."""
    coming = service_of(scheduler).look(lambda ledger: service_of(scheduler).lookup.coming(ledger, MAX_RUNS))
    return [run for run in coming if job is None or matches(job, run.job)][:limit]


def why(arguments: argparse.Namespace) -> int:
    """Explain why a job or a run ran, or did not."""
    with application(arguments) as scheduler:
        run = None if arguments.time is not None else meant(scheduler, arguments.what, arguments.job)
        name = arguments.what if run is None else run.job
        if run is None:
            found = scheduler.explain(name, arguments.time)
        else:
            number, lookup = run.id, service_of(scheduler).lookup
            found = service_of(scheduler).look(lambda ledger: lookup.why_run(ledger, number))
    if arguments.json:
        as_json({"job": name, "cause": found.cause, "facts": dict(found.facts), "why": found.text})
    else:
        show_text(found.text)
    return 0


def nodes(arguments: argparse.Namespace) -> int:
    """Show the nodes. 1 if none is alive."""
    with application(arguments) as scheduler:
        found = scheduler.nodes()
    if arguments.json:
        as_json([node.as_dict() for node in found])
        return 0 if any(not node.silent for node in found) else 1
    if not found:
        show(f"no node of {scheduler.application!r} is alive")
        return 1
    columns = ["node", "up", "running", "queues", "release", "tenure", "tzdata", "clock", "host"]
    if len({(node.library, node.tzdata) for node in found}) == 1:  # the same everywhere: once, below
        columns = [column for column in columns if column not in {"tenure", "tzdata"}]
    table(columns, [[_node(node)[column] for column in columns] for node in found])
    if "tenure" not in columns:
        show(f"all with tenure {found[0].library} and tzdata {found[0].tzdata}")
    alive = [node for node in found if not node.silent]
    for node in alive if len(found) > 1 else []:
        if node.only_here:
            show(f"only {node.label} has {several(node.only_here, FEW)}")
    if len(alive) < len(found):
        show("silent: no sign of life for longer than its ttl; a node that is alive takes over what it had")
    if not alive:
        show(paint(f"no node of {scheduler.application!r} is alive", RED))
    return 0 if alive else 1


def _node(node: NodeView) -> dict[str, str | paint]:
    up = max((walltime() - node.since).total_seconds(), 0.0)
    return {
        "node": f"{node.label}{' (plans)' if node.plans and not node.silent else ''}",
        "up": paint("silent", RED) if node.silent else readable(up),
        "running": f"{node.running} of {node.capacity}",
        "queues": "all" if node.queues is None else ", ".join(node.queues),
        "release": str(node.release) if node.release else "",
        "tenure": node.library,
        "tzdata": node.tzdata,
        "clock": "" if node.clock_offset is None or abs(node.clock_offset) < OFF else f"{node.clock_offset:+.1f} s",
        "host": "" if node.label.startswith(f"{node.host}:") else node.host,
    }


def next_(arguments: argparse.Namespace) -> int:
    """Show the next due times of an expression. Needs no database."""
    after = walltime() if arguments.after is None else datetime_of(arguments.after, "after")
    preview = trigger_from(arguments.expr, arguments.tz).preview(arguments.count, after)
    if arguments.json:
        as_json(
            {
                "trigger": preview.explanation,
                "times": preview.times,
                "changes": [{"at": change.at, "by": change.by, "effect": change.effect} for change in preview.changes],
            }
        )
    else:
        show_text(preview)
    return 0 if preview.times else 1


def audit(arguments: argparse.Namespace) -> int:
    """Compare every due time with the ledger. 1 if one is not accounted for, or should have run
    and did not, or if stored arguments do not fit their function, so that runs will fail."""
    with application(arguments) as scheduler:
        lookup, tell = service_of(scheduler).lookup, _progress()
        with service_of(scheduler).ledger() as ledger:
            found = lookup.audit(ledger, arguments.job, arguments.since, arguments.until, tell)
            unfit = lookup.unfit(ledger, arguments.job)
    clean, overdue = all(audit.clean for audit in found), sum(audit.overdue for audit in found)
    code = 0 if clean and not overdue and not any(one.surely for one in unfit) else 1
    if arguments.json:
        as_json(
            {
                "clean": clean,
                "overdue": overdue,
                "jobs": [_audit(audit) for audit in found],
                "unfit": [one.as_dict() for one in unfit],
            }
        )
        return code
    bad = [audited for audited in found if not audited.clean or audited.overdue]
    others = [audited for audited in found if audited.clean and not audited.overdue]
    noted = [audited for audited in others if any(finding.kind != OPEN for finding in audited.findings)]
    calm = [audited for audited in others if all(finding.kind == OPEN for finding in audited.findings)]
    whole = arguments.all or arguments.job is not None
    for audited in [*bad, *noted, *(calm if whole else ())]:
        for line in audited.lines():
            show_text(line, RED if not audited.clean or audited.overdue else "")
    if calm and not whole:
        show(f"{counted(len(calm), 'healthy job')} not listed: --all lists them")
    for one in unfit:
        show_text(one.text, RED if one.surely else YELLOW)
    due = sum(audit.due for audit in found)
    if overdue:
        are = "due time is" if overdue == 1 else "due times are"
        show(paint(f"{overdue:,} {are} overdue: they should have run, and have not begun", RED))
    show(
        f"{counted(due, 'due time')} of {counted(len(found), 'job')}, all accounted for"
        if clean
        else paint("NOT everything is accounted for", RED)
    )
    return code


@contextmanager
def application(arguments: argparse.Namespace) -> Iterator[Scheduler]:
    """A scheduler that defines and runs nothing, of the application given by --app or of the only one in the ledger."""
    kept: dict[str, Scheduler] | None = getattr(arguments, "kept", None)
    if kept:
        yield kept["scheduler"]
        return
    with read_only_session(arguments) as session:
        name = application_of(arguments, session)
        tz = common_zone(job.spec.trigger for job in session.ledger.jobs(name)) or "UTC"
    scheduler = Scheduler(
        store_of(arguments, migrate=False), application=name, tz=tz, capacity=0, schema=arguments.schema, migrate=False
    )
    service_of(scheduler).origin = origin()
    if kept is not None:
        kept["scheduler"] = scheduler
    yield scheduler


def meant(scheduler: Scheduler, text: str, job: str | None) -> RunView | None:
    """The run that is meant by a number or a key. None: a job is meant."""
    run = named_run(text, job)
    try:
        if isinstance(run, int) or job is not None or not _is_job(scheduler, text):
            return scheduler.find_run(run, job)
    except RunError:
        if job is not None or (isinstance(run, int) and not _is_job(scheduler, text)):
            raise
    return None


def named_run(text: str, job: str | None) -> int | str:
    """A number is the number of a run, unless the job is named: then it is a key."""
    return int(text) if job is None and text.isascii() and text.isdigit() else text


def _is_job(scheduler: Scheduler, name: str) -> bool:
    return bool(service_of(scheduler).look(lambda ledger: ledger.jobs(scheduler.application, name, removed=True)))


def _run(run: RunView, now: datetime) -> list[str | paint]:
    many = f" ({run.count} due times)" if run.count > 1 else ""
    return [
        run.job,
        str(run.id),
        f"{short(run.scheduled_for, now)}{many}",
        paint(run.state, RED if run.state in {"failed", "lost"} else ""),
        "" if run.lateness is None else readable(run.lateness),
        took(run),
        run.node,
        f"{run.attempt} ({run.interruptions} interrupted)" if run.interruptions else str(run.attempt),
        remark(run),
    ]


def took(run: RunView) -> str:
    """How long it ran, or has been running."""
    if run.running_for is not None:
        return f"{readable(run.running_for)} so far"
    return "" if run.duration is None else readable(run.duration)


def remark(run: RunView) -> str:
    if run.stopping:
        return "its node was asked to stop and waits for it, or is gone"
    if run.should_have_ended:
        return run.should_have_ended
    if run.running_for is not None and run.progress is not None:
        return str(run.progress)
    return f"waiting: {run.waiting}" if run.waiting else last_line(run.reason)


def sentence(run: RunView) -> str:
    took = "" if run.duration is None else f" after {readable(run.duration)}"
    took = took if run.running_for is None else f" for {readable(run.running_for)}"
    on = f" on {run.node}" if run.node else ""
    tries = f", attempt {run.attempt}" if run.attempt > 1 else ""
    tries += f", {run.interruptions} interrupted by the stop of a node" if run.interruptions else ""
    return f"run {run.id} of {run.job!r} for {shown_time(run.scheduled_for)}: {run.state}{took}{on}{tries}"


def removed_but_in_code(job: JobView) -> str:
    return (
        f"{job.name!r} is defined in code, but was {outlook(job)}, so it does not run. "
        f"`tenure restore {job.name}` brings it back"
    )


def changed_by_hand(job: JobView) -> str:
    by = f" by {job.changed_by}" if job.changed_by else ""
    because = f" ({job.changed_why})" if job.changed_why else ""
    code = ", ".join(f"{word}: {said}" for word, said in (job.code or {}).items()) or "it is defined there"
    return (
        f"{job.name!r} was changed{by}{because} at {shown_time(job.changed_at)}. The code says {code}. "
        f"`tenure reset {job.name}` restores that"
    )


def outlook(job: JobView) -> str:
    if job.state == "removed":
        by = f" by {job.removed_by}" if job.removed_by else ""
        return f"removed{by} at {shown_time(job.removed_at)}"
    if job.paused_until is not None:
        return f"paused until {shown_time(job.paused_until)}"
    if job.state == "paused":
        return "paused"
    if job.next_due is not None:
        return f"next due at {shown_time(job.next_due)}"
    if job.rules.after is not None:
        return f"it runs after {job.rules.after!r}"
    return "nothing more is due" if job.trigger else "it runs on request"


def _audit(found: JobAudit) -> dict[str, Any]:
    return {
        "job": found.name,
        "clean": found.clean,
        "overdue": found.overdue,
        "since": moment(found.since, found.tz),
        "until": moment(found.until, found.tz),
        "due": found.due,
        "counts": dict(found.counts),
        "asked_for": len(found.extra),
        "findings": [
            {**asdict(finding), "first": moment(finding.first, found.tz), "last": moment(finding.last, found.tz)}
            for finding in found.findings
        ],
    }


def _progress() -> Callable[[int, int], None]:
    """Says how many jobs have been audited, if it takes long."""
    said_at = boottime()

    def tell(done: int, of: int) -> None:
        nonlocal said_at
        if done < of and boottime() - said_at >= PROGRESS:
            said_at = boottime()
            say(f"{done:,} of {of:,} jobs audited")

    return tell


def datetime_of(text: str, what: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"{what}: {text!r} is not a time. Write it as 2026-11-14T12:00Z.") from None
    if found.tzinfo is None:
        raise ConfigurationError(f"{what}: {text!r} has no zone. Write it as {text}Z for UTC, or {text}+01:00.")
    return found


def shown_time(at: datetime | None) -> str:
    if at is None:
        return ""
    part = f".{at.microsecond // 1000:03}" if at.microsecond else ""
    return f"{str(at)[:19]}{part} {at.tzname() or ''}"
