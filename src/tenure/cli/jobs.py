"""What the verbs about jobs and runs do. They know names alone: no function of the application is registered here, and nothing is run."""

from __future__ import annotations

import argparse
import getpass
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from typing import Any

from tenure.cli.elections import POLL, application_of, looking, store_of
from tenure.cli.output import GREEN, RED, YELLOW, as_json, paint, say, show, show_raw, show_text, table
from tenure.core.arguments import decode
from tenure.core.audit import JobAudit
from tenure.core.explain import last_line
from tenure.core.keys import planner_of
from tenure.core.records import JobState, RunState
from tenure.errors import ConfigurationError, UnreadableArguments
from tenure.jobs import operations
from tenure.jobs.queries import Lookup
from tenure.scheduler import Scheduler
from tenure.stores.ledger import Ledger
from tenure.triggers import Trigger, cron, every
from tenure.util.clock import boottime, sleep, walltime
from tenure.util.durations import positive, readable, seconds
from tenure.util.instants import moment
from tenure.util.plurals import counted
from tenure.views import JobView, RunView, StatsView

NEXT = 5
RECENT = 86400.0
COUNTED = 10_000
"""Runs that failed are counted up to so many."""
HELD = 10_000
"""How many running runs are looked at for stops that wait for them."""
ASKING = 1.0
"""After how long a pause says that it waits for nodes."""
PROGRESS = 2.0
"""How often an audit says how far it is."""
NOW = "-0s"
"""By the ledger's clock. What is planned for later is a proposal, and not shown."""
SHOWN = 40


def status(arguments: argparse.Namespace) -> int:
    """How an application is doing. 1 if no node plans for it."""
    with _application(arguments) as scheduler:
        lookup = Lookup(scheduler.application, "UTC")
        with scheduler.ledger() as ledger:
            rows, now = lookup.rows(ledger, removed=True), ledger.now()
            tally = ledger.tally(scheduler.application, now - RECENT, COUNTED)
            nodes = ledger.nodes(scheduler.application)
        jobs = [row for row in rows if row.state is not JobState.REMOVED]
        removed = [lookup.shown_job(row, now) for row in rows if row.state is JobState.REMOVED]
        due = lookup.next_of(jobs, now, NEXT)
        held = scheduler.runs(state="running", until=NOW, limit=HELD)
        with looking(arguments) as session:
            planner = session.leader(planner_of(scheduler.application))
    counts = {
        state: sum(part.runs for part in tally if part.state == state) for state in ("running", "waiting", "pending")
    }
    bad = sum(part.runs for part in tally if part.state.final)
    paused = [job.spec.name for job in jobs if job.state is JobState.PAUSED]
    there = {name for node in nodes for name in node.functions}
    orphans = [
        job.spec.name for job in jobs if nodes and job.state is JobState.ACTIVE and job.spec.function not in there
    ]
    running = {part.label: part.runs for part in tally if part.state is RunState.RUNNING}
    awaited = [f"{run.job} {run.key} on {run.node}" for run in held if run.stopping]
    if arguments.json:
        as_json(
            {
                "application": scheduler.application,
                "store": scheduler.store.shown,
                "planner": planner,
                "jobs": len(jobs),
                "paused": paused,
                "no_node_has_their_function": orphans,
                "removed_but_in_code": [job.name for job in removed],
                "open": counts,
                "running_by_node": running,
                "stops_wait_for": awaited,
                "failed_last_day": bad,
                "next": [{"at": at, "job": name} for at, name in due],
            }
        )
        return 0 if planner and planner.healthy else 1
    show(f"{scheduler.application!r} on {scheduler.store.shown}")
    if planner is None:
        show("planner  ", paint("none: no node of this application runs", RED))
    else:
        silent = "" if planner.healthy else paint(" (gives no sign of life)", YELLOW)
        since = readable(max((walltime() - planner.since).total_seconds(), 0.0))
        show(f"planner  {planner.label}, for {since}", silent)
    show(f"jobs     {len(jobs)}{f', paused: {_few(paused)}' if paused else ''}")
    if orphans:
        show("         ", paint(f"no live node has the function of {_few(orphans)}: `tenure why JOB`", YELLOW))
    for job in removed[:NEXT]:
        show("         ", paint(_removed_but_in_code(job), YELLOW))
    if len(removed) > NEXT:
        show(f"         … and {len(removed) - NEXT} more that were removed and are defined in code: `tenure jobs`")
    by_node = _few([f"{label}: {count}" for label, count in sorted(running.items())])
    show(f"runs     {', '.join(f'{n} {state}' for state, n in counts.items())}{f' ({by_node})' if running else ''}")
    show(f"         {bad} failed or lost in the last 24 h")
    if awaited:
        show(f"stops    wait for {_few(awaited)} (or that process is gone: the next node that notices takes over)")
    for number, (at, name) in enumerate(due):
        show(f"{'next' if number == 0 else '':9}{_time(at)}  {name}")
    return 0 if planner and planner.healthy else 1


def jobs(arguments: argparse.Namespace) -> int:
    """All jobs, with figures of their recent runs."""
    with _application(arguments) as scheduler:
        found = scheduler.look(Lookup(scheduler.application, "UTC").figures)
    if arguments.json:
        as_json([{**job.as_dict(), "stats": stats.as_dict()} for job, stats in found])
    elif not found:
        show("no jobs yet: jobs defined in code appear once a node has started")
    else:
        columns = ["job", "state", "trigger", "next due", "runs", "failed", "took p50", "p99", "late p50", "p99"]
        table([*columns, "last"], [_job(job, stats) for job, stats in found])
        for job, _ in found:
            if job.changed_at is not None:
                show(_changed(job))
    return 0


def runs(arguments: argparse.Namespace) -> int:
    """Runs, the newest first."""
    with _application(arguments) as scheduler:
        found = scheduler.runs(
            arguments.job,
            since=arguments.since,
            until=arguments.until or NOW,
            state=arguments.state,
            limit=arguments.limit,
        )
    if arguments.json:
        as_json([run.as_dict() for run in found])
    elif not found:
        show("no such runs")
    else:
        columns = ["run", "job", "for", "state", "attempt", "late", "took", "node", "why"]
        table(columns, [_run(run) for run in found])
    return 0


def log(arguments: argparse.Namespace) -> int:
    """What a run logged, and why it failed."""
    with _application(arguments) as scheduler:
        run, lines = scheduler.find_run(arguments.run_id), scheduler.log(arguments.run_id)
    if arguments.json:
        as_json({**run.as_dict(), "log": lines})
        return 0
    say(_sentence(run))
    for line in lines:
        show_raw(line)
    if run.reason:
        show_raw(run.reason)
    return 0


def why(arguments: argparse.Namespace) -> int:
    """Why a job ran, or did not."""
    with _application(arguments) as scheduler:
        text = scheduler.why(arguments.job, arguments.time)
    if arguments.json:
        as_json({"job": arguments.job, "why": text})
    else:
        show_text(text)
    return 0


def next_(arguments: argparse.Namespace) -> int:
    """The next due times of an expression, without any database."""
    after = walltime() if arguments.after is None else _datetime(arguments.after, "after")
    preview = trigger_of(arguments.expr, arguments.tz).preview(arguments.count, after)
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


def run_now(arguments: argparse.Namespace) -> int:
    """Request a run."""
    patience = None if arguments.wait is None else positive(arguments.wait, "wait")
    kwargs = _kwargs(arguments.kwargs)
    with _application(arguments) as scheduler:
        run = scheduler.run_now(arguments.job, kwargs=kwargs, key=arguments.key, by=_by(arguments))
        if patience is not None:
            end = boottime() + patience
            while not RunState(run.state).final and boottime() < end:
                sleep(POLL)
                run = scheduler.find_run(run.id)
    _tell(arguments, run.as_dict(), _sentence(run))
    return 0 if patience is None or run.state == "succeeded" else 1


def pause(arguments: argparse.Namespace) -> int:
    """Start no more runs of a job. 1 if a node did not answer: it may still start one."""
    until = None if arguments.until is None else _until(arguments.until)
    with _application(arguments) as scheduler, _patience():
        job = scheduler.pause(arguments.job, why=arguments.why, until=until, by=_by(arguments))
    for_how_long = f"until {_time(job.paused_until)}" if job.paused_until else "until it is resumed"
    _tell(arguments, job.as_dict(), f"{job.name!r} is paused {for_how_long}")
    return 1 if job.unanswered else 0


def resume(arguments: argparse.Namespace) -> int:
    """End a pause."""
    with _application(arguments) as scheduler:
        job = scheduler.resume(arguments.job, why=arguments.why, by=_by(arguments))
    _tell(arguments, job.as_dict(), f"{job.name!r} is active; {_outlook(job)}")
    return 0


def remove(arguments: argparse.Namespace) -> int:
    """Remove a job. 1 if a node did not answer: it may still start a run."""
    with _application(arguments) as scheduler, _patience():
        job = scheduler.remove(arguments.job, why=arguments.why, by=_by(arguments))
    back = (
        f" It is defined in code: `tenure restore {job.name}`, or a change of its definition, brings it back."
        if job.in_code
        else ""
    )
    _tell(arguments, job.as_dict(), f"{job.name!r} is removed; running attempts finish.{back}")
    return 1 if job.unanswered else 0


def restore(arguments: argparse.Namespace) -> int:
    """Undo a removal."""
    with _application(arguments) as scheduler:
        job = scheduler.restore(arguments.job, why=arguments.why, by=_by(arguments))
    _tell(arguments, job.as_dict(), f"{job.name!r} is {job.state} again; {_outlook(job)}")
    return 0


def reset(arguments: argparse.Namespace) -> int:
    """Undo updates of a job."""
    with _application(arguments) as scheduler:
        job = scheduler.reset(arguments.job, why=arguments.why, by=_by(arguments))
    _tell(arguments, job.as_dict(), f"{job.name!r} is as the code defines it; {_outlook(job)}")
    return 0


def cancel(arguments: argparse.Namespace) -> int:
    """End a run."""
    with _application(arguments) as scheduler:
        run = scheduler.cancel(arguments.run_id, why=arguments.why, by=_by(arguments))
    asked = " It was asked to end." if run.state == "running" else ""
    _tell(arguments, run.as_dict(), f"{_sentence(run)}{asked}")
    return 0 if run.state in {"running", "cancelled"} else 1


def backfill(arguments: argparse.Namespace) -> int:
    """Run due times of the past; only list them without --yes."""
    with _application(arguments) as scheduler:
        span, even = (arguments.job, arguments.since, arguments.until), arguments.even_forgotten
        forgotten = _forgotten(scheduler, *span) if arguments.json else 0
        if not arguments.yes:
            return _would_fill(arguments, scheduler.backfill(*span, even_forgotten=even), forgotten)
        asked = scheduler.backfill(*span, dry_run=False, even_forgotten=even, by=_by(arguments))
    if arguments.json:
        as_json({"dry_run": False, "runs": [run.as_dict() for run in asked], "forgotten": forgotten})
    else:
        show(f"{counted(len(asked), 'due time')} of {arguments.job!r} will run, as many at once as its options allow")
    return 0


def audit(arguments: argparse.Namespace) -> int:
    """Compare every due time with the ledger. 1 if something is not accounted for."""
    with _application(arguments) as scheduler:
        lookup, tell = Lookup(scheduler.application, "UTC"), _progress()
        found = scheduler.look(
            lambda ledger: lookup.audit(ledger, arguments.job, arguments.since, arguments.until, tell)
        )
    clean = all(audit.clean for audit in found)
    if arguments.json:
        as_json({"clean": clean, "jobs": [_audit(audit) for audit in found]})
        return 0 if clean else 1
    for audited in found:
        for line in audited.lines():
            show_text(line, "" if audited.clean else RED)
    due = sum(audit.due for audit in found)
    show(
        paint(f"{counted(due, 'due time')} of {counted(len(found), 'job')}, all accounted for", GREEN)
        if clean
        else "NOT everything is accounted for"
    )
    return 0 if clean else 1


def trigger_of(expr: str, tz: str | None) -> Trigger:
    """`0 3 * * *` and `@daily` are cron, `30s` and `every 30s` are elapsed time."""
    text = expr.strip()
    spoken = text.removeprefix("every ").strip()
    if spoken != text or not (" " in text or text.startswith("@")):
        return every(spoken, tz=tz)
    return cron(text, tz)


@contextmanager
def _application(arguments: argparse.Namespace) -> Iterator[Scheduler]:
    """A scheduler that defines and runs nothing, for the given application or the only one in the ledger."""
    with looking(arguments) as session:
        name = application_of(arguments, session)
    yield Scheduler(
        store_of(arguments, migrate=False), application=name, capacity=0, schema=arguments.schema, migrate=False
    )


def _forgotten(scheduler: Scheduler, name: str, since: str, until: str) -> int:
    """For how many due times the ledger cannot tell whether they ran."""

    def count(ledger: Ledger) -> int:
        job, now = operations.known(ledger, scheduler.application, name), ledger.now()
        span = operations.point(since, now, "since"), operations.point(until, now, "until")
        return operations.backfillable(ledger, job, *span, now).forgotten

    return scheduler.look(count)


def _would_fill(arguments: argparse.Namespace, due: Sequence[datetime], forgotten: int) -> int:
    if arguments.json:
        as_json({"dry_run": True, "due": due, "forgotten": forgotten})
        return 0
    for at in due[:SHOWN]:
        show(_time(at))
    if len(due) > SHOWN:
        show(f"… and {len(due) - SHOWN} more")
    if due:
        what = counted(len(due), "due time")
        say(
            f"{what} of {arguments.job!r} would run. Nothing was changed; run with --yes to run {'it' if len(due) == 1 else 'them'}."
        )
    else:
        say(f"No due times of {arguments.job!r} would run.")
    return 0


def _tell(arguments: argparse.Namespace, data: dict[str, Any], text: str) -> None:
    if arguments.json:
        as_json(data)
    else:
        show(text)


def _job(job: JobView, stats: StatsView) -> list[str]:
    figures = (stats.duration_p50, stats.duration_p99, stats.lateness_p50, stats.lateness_p99)
    last = "" if stats.last_state is None else f"{stats.last_state} {_time(stats.last_at)}"
    return [
        job.name,
        job.state,
        (job.trigger.split(". ")[0].rstrip(".") or "on request") + (" (changed)" if job.changed_at is not None else ""),
        _time(job.next_due) if job.state == "active" else _outlook(job),
        str(stats.runs),
        str(stats.failed),
        *("" if figure is None else readable(figure) for figure in figures),
        last,
    ]


def _run(run: RunView) -> list[str]:
    many = f" ({run.count} due times)" if run.count > 1 else ""
    return [
        str(run.id),
        run.job,
        f"{_time(run.scheduled_for)}{many}",
        run.state,
        f"{run.attempt} ({run.interruptions} interrupted)" if run.interruptions else str(run.attempt),
        "" if run.lateness is None else readable(run.lateness),
        "" if run.duration is None else readable(run.duration),
        run.node,
        "its node was asked to stop and is waiting for it, or is gone" if run.stopping else last_line(run.reason),
    ]


def _sentence(run: RunView) -> str:
    took = "" if run.duration is None else f" after {readable(run.duration)}"
    on = f" on {run.node}" if run.node else ""
    tries = f", attempt {run.attempt}" if run.attempt > 1 else ""
    tries += f", {run.interruptions} interrupted by the stop of a node" if run.interruptions else ""
    return f"run {run.id} of {run.job!r} for {_time(run.scheduled_for)}: {run.state}{took}{on}{tries}"


def _removed_but_in_code(job: JobView) -> str:
    return f"{job.name!r} is defined in code, but {_outlook(job)}: it does not run. `tenure restore {job.name}` brings it back"


def _changed(job: JobView) -> str:
    by = f" by {job.changed_by}" if job.changed_by else ""
    because = f" ({job.changed_why})" if job.changed_why else ""
    code = ", ".join(f"{word}: {said}" for word, said in (job.code or {}).items()) or "it is defined there"
    return f"{job.name!r} was changed{by}{because} at {_time(job.changed_at)}. The code says {code}. `tenure reset {job.name}` puts that back"


def _outlook(job: JobView) -> str:
    if job.state == "removed":
        by = f" by {job.removed_by}" if job.removed_by else ""
        return f"removed{by} at {_time(job.removed_at)}"
    if job.paused_until is not None:
        return f"paused until {_time(job.paused_until)}"
    if job.state == "paused":
        return "paused"
    return "nothing is due any more" if job.next_due is None else f"next {_time(job.next_due)}"


def _audit(found: JobAudit) -> dict[str, Any]:
    return {
        "job": found.name,
        "clean": found.clean,
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


@contextmanager
def _patience() -> Iterator[None]:
    """Says that nodes are waited for, if it takes long."""
    text = "waiting for nodes to confirm that they begin nothing more; at the longest for their ttl"
    told = threading.Timer(ASKING, say, [text])
    told.daemon = True
    told.start()
    try:
        yield
    finally:
        told.cancel()


def _progress() -> Callable[[int, int], None]:
    """Says how many jobs were audited, if it takes long."""
    said_at = boottime()

    def tell(done: int, of: int) -> None:
        nonlocal said_at
        if done < of and boottime() - said_at >= PROGRESS:
            said_at = boottime()
            say(f"{done:,} of {of:,} jobs audited")

    return tell


def _kwargs(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        return decode(text)
    except UnreadableArguments as error:
        raise ConfigurationError(f"--kwargs: {error}. Write --kwargs '{{\"customer\": 7}}'.") from None


def _until(text: str) -> str | datetime:
    """'2h', or a time in ISO 8601."""
    try:
        seconds(text, "until")
    except ConfigurationError:
        if not text[:4].isdigit() or "-" not in text:
            raise
        return _datetime(text, "until")
    return text


def _datetime(text: str, what: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"{what}: {text!r} is no time. Write it as 2026-11-14T12:00Z.") from None
    if found.tzinfo is None:
        raise ConfigurationError(f"{what}: {text!r} has no zone. Write it as {text}Z for UTC, or {text}+01:00.")
    return found


def _time(at: datetime | None) -> str:
    if at is None:
        return ""
    part = f".{at.microsecond // 1000:03}" if at.microsecond else ""
    return f"{str(at)[:19]}{part} {at.tzname() or ''}"


def _by(arguments: argparse.Namespace) -> str:
    if arguments.by is not None:
        return str(arguments.by)
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user id without a name
        return ""


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:NEXT]) + (f" and {len(names) - NEXT} more" if len(names) > NEXT else "")
