"""`tenure show`: all that there is to say of one job, or of one run."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from datetime import datetime, tzinfo
from typing import Any

from tenure.cli import one_run
from tenure.cli.jobs import NOW, application, changed_by_hand, meant, outlook, remark, removed_but_in_code, shown_time
from tenure.cli.output import RED, YELLOW, as_json, paint, table
from tenure.cli.output import show as say_line
from tenure.cli.times import about, short
from tenure.core.messages import JobOutcome
from tenure.core.records import ChangeRecord, Rules
from tenure.errors import ConfigurationError
from tenure.jobs.queries import Overview
from tenure.scheduler import Scheduler, service_of
from tenure.triggers import from_json
from tenure.util.durations import readable, written
from tenure.util.instants import moment
from tenure.util.last_line import last_line
from tenure.util.plurals import counted
from tenure.views import JobView, RunView

NEXT, RUNS, CHANGES = 3, 5, 5
LABEL = 10
_DEFAULT = asdict(Rules())


def show(arguments: argparse.Namespace) -> int:
    """Show a run, by its number or its key, or a job, by its name."""
    with application(arguments) as scheduler:
        run = meant(scheduler, arguments.what, arguments.job)
        if run is not None:
            return one_run.show_run(arguments, scheduler, run)
        return show_job(arguments, scheduler, arguments.what)


def show_job(arguments: argparse.Namespace, scheduler: Scheduler, name: str) -> int:
    """All that there is to say of a job."""
    lookup = service_of(scheduler).lookup
    with service_of(scheduler).ledger() as ledger:
        row = lookup.row(ledger, name)
        now = ledger.now()
        job = lookup.shown_job(ledger, row, now)
        due = [at for at, _ in lookup.next_of(ledger, [row], now, NEXT)]
        seen = lookup.seen(ledger, row)
        changes = lookup.changes(ledger, name, CHANGES)
        where = lookup.zone(ledger, row)
    runs = scheduler.runs(name, until=NOW, limit=RUNS)
    if arguments.json:
        as_json(
            {
                **job.as_dict(),
                "next": due,
                "changes": [_change_dict(change, where) for change in changes],
                "runs": [run.as_dict() for run in runs],
            }
        )
        return 0
    at = moment(now)
    say_line(*_verdict(job, seen, at))
    for label, text in _facts(job, due):
        say_line(f"{label:{LABEL}}{text}")
    if job.changed_at is not None:
        say_line(changed_by_hand(job))
    if runs:
        say_line("")
        header = ["run", f"for, {job.tz}", "state", "took", "node", "why"]
        table(header, [_run(run, at, where) for run in runs], spare=2, below=True)
    say_line("")
    table([f"changed, {job.tz}", "what", "by", "why"], [_change(change, at, where) for change in changes], spare=1)
    for hint in _hints(job, seen.outcome):
        say_line(hint)
    return 0


def _verdict(job: JobView, seen: Overview, now: datetime) -> list[str | paint]:
    """The first line: what the job is doing."""
    if job.state == "removed":
        return [paint(removed_but_in_code(job) if job.in_code else f"{job.name!r} was {outlook(job)}", YELLOW)]
    outcome = seen.outcome
    if seen.orphaned:
        return [paint(f"{job.name!r} is orphaned: {seen.orphaned}. It does not run until a node does.", RED)]
    if job.state == "paused":
        by = f" by {job.paused_by}" if job.paused_by else ""
        because = f" ({job.paused_why})" if job.paused_why else ""
        return [paint(f"{job.name!r} is {outlook(job)}{by}{because}", YELLOW)]
    if outcome is not None and outcome.failures:
        return [paint(f"{job.name!r} fails: {failures(outcome, now)}", RED)]
    last = (
        "" if outcome is None else f"; its last run succeeded {about((now - moment(outcome.at)).total_seconds())} ago"
    )
    return [f"{job.name!r} is {job.state}{last}"]


def failures(outcome: JobOutcome, now: datetime) -> str:
    """'3 runs in a row, since 12 min ago; the last one: ValueError: bad'."""
    many = f"{counted(outcome.failures, 'run')} in a row" if outcome.failures > 1 else "its last run"
    since = "" if outcome.since is None else f", since {about((now - moment(outcome.since)).total_seconds())} ago"
    error = last_line(outcome.reason)
    return f"{many}{since}" + (f": {error}" if error else "")


def _facts(job: JobView, due: list[datetime]) -> list[tuple[str, str]]:
    facts = [("function", job.function), ("trigger", job.trigger or "none: it runs on request")]
    facts += [("next" if n == 0 else "", shown_time(at)) for n, at in enumerate(due)]
    if job.kwargs:
        facts.append(("arguments", json.dumps(job.kwargs, ensure_ascii=False)))
    if options := _options(job.rules):
        facts.append(("options", options))
    if job.tags:
        facts.append(("tags", ", ".join(job.tags)))
    facts.append(("defined", _defined(job)))
    return facts


def _options(rules: Rules) -> str:
    """What differs from the defaults, as it may be written."""
    given = {word: value for word, value in asdict(rules).items() if _DEFAULT.get(word) != value and word != "tags"}
    return ", ".join(f"{word}={_option(word, value)}" for word, value in given.items())


def _option(word: str, value: object) -> str:
    if word in {"grace", "timeout", "jitter", "spread"} and isinstance(value, int | float):
        return written(float(value))
    if word == "backoff" and isinstance(value, tuple):
        return f"({', '.join(written(float(part)) for part in value)})"
    return str(value)


def _defined(job: JobView) -> str:
    where = "in code" if job.in_code else "at run time"
    release = f", release {job.release}" if job.release else ""
    return f"{where}{release}; its trigger applies since {shown_time(job.since)}"


def _run(run: RunView, now: datetime, where: tzinfo) -> list[str | paint]:
    bad = run.state in {"failed", "lost"}
    took = "" if run.duration is None else readable(run.duration)
    return [
        str(run.id),
        short(run.scheduled_for, now, where),
        paint(run.state, RED if bad else ""),
        took,
        run.node,
        remark(run),
    ]


def _change(change: ChangeRecord, now: datetime, where: tzinfo) -> list[str]:
    until = "" if change.until is None else f" until {short(moment(change.until), now, where)}"
    return [short(moment(change.at), now, where), f"{change.what}{until}", change.by or "code or a program", change.why]


def _change_dict(change: ChangeRecord, where: tzinfo) -> dict[str, Any]:
    try:
        trigger = None if change.trigger is None else from_json(change.trigger).explain()
    except ConfigurationError:
        trigger = change.trigger
    return {
        "at": moment(change.at, where),
        "what": change.what.value,
        "by": change.by,
        "why": change.why,
        "until": None if change.until is None else moment(change.until, where),
        "trigger": trigger,
    }


def _hints(job: JobView, outcome: JobOutcome | None) -> list[str]:
    """What to type next."""
    hints = []
    if outcome is not None and outcome.failures:
        hints.append(f"the last error: tenure log {outcome.run}")
    if job.state == "paused":
        hints.append(f"to go on: tenure resume {job.name}")
    return hints
