"""Commands that change jobs and runs. They write to the ledger, and the nodes that have the functions act on it."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from tenure.cli.elections import POLL
from tenure.cli.jobs import application, datetime_of, outlook, sentence, shown_time
from tenure.cli.output import as_json, say, show
from tenure.cli.person import person
from tenure.core.arguments import decode
from tenure.core.records import RunState
from tenure.errors import ConfigurationError, UnreadableArguments
from tenure.jobs import operations
from tenure.scheduler import Scheduler, service_of
from tenure.stores.ledger import Ledger
from tenure.util.clock import boottime, sleep
from tenure.util.durations import positive, seconds
from tenure.util.plurals import counted

ASKING = 1.0
"""Seconds after which `pause` and `remove` say that they wait for nodes."""
SHOWN = 40


def run_now(arguments: argparse.Namespace) -> int:
    """Request a run."""
    patience = None if arguments.wait is None else positive(arguments.wait, "wait")
    kwargs = _kwargs(arguments.kwargs)
    with application(arguments) as scheduler:
        run = scheduler.run_now(
            arguments.job, kwargs=kwargs, key=arguments.key, by=person(arguments), why=arguments.why
        )
        if patience is not None:
            end = boottime() + patience
            while not RunState(run.state).final and boottime() < end:
                sleep(POLL)
                run = scheduler.find_run(run.id)
    _tell(arguments, run.as_dict(), sentence(run))
    return 0 if patience is None or run.state == "succeeded" else 1


def pause(arguments: argparse.Namespace) -> int:
    """Pause a job. 1 if a node did not answer, because a run may still start there."""
    until = None if arguments.until is None else _until(arguments.until)
    with application(arguments) as scheduler, _patience():
        job = scheduler.pause(arguments.job, why=arguments.why, until=until, by=person(arguments))
    for_how_long = f"until {shown_time(job.paused_until)}" if job.paused_until else "until it is resumed"
    _tell(arguments, job.as_dict(), f"{job.name!r} is paused {for_how_long}")
    return 1 if job.unanswered else 0


def resume(arguments: argparse.Namespace) -> int:
    """Resume a job."""
    with application(arguments) as scheduler:
        job = scheduler.resume(arguments.job, why=arguments.why, by=person(arguments))
    _tell(arguments, job.as_dict(), f"{job.name!r} is active; {outlook(job)}")
    return 0


def remove(arguments: argparse.Namespace) -> int:
    """Remove a job. 1 if a node did not answer, because a run may still start there."""
    with application(arguments) as scheduler, _patience():
        job = scheduler.remove(arguments.job, why=arguments.why, by=person(arguments))
    back = (
        f" It is defined in code: `tenure restore {job.name}` or a change of its definition brings it back."
        if job.in_code
        else ""
    )
    _tell(arguments, job.as_dict(), f"{job.name!r} was removed; runs in progress go on to their end.{back}")
    return 1 if job.unanswered else 0


def restore(arguments: argparse.Namespace) -> int:
    """Undo the removal of a job."""
    with application(arguments) as scheduler:
        job = scheduler.restore(arguments.job, why=arguments.why, by=person(arguments))
    _tell(arguments, job.as_dict(), f"{job.name!r} is {job.state} again; {outlook(job)}")
    return 0


def reset(arguments: argparse.Namespace) -> int:
    """Undo updates of a job."""
    with application(arguments) as scheduler:
        job = scheduler.reset(arguments.job, why=arguments.why, by=person(arguments))
    _tell(arguments, job.as_dict(), f"{job.name!r} runs as the code defines it again; {outlook(job)}")
    return 0


def cancel(arguments: argparse.Namespace) -> int:
    """End a run."""
    with application(arguments) as scheduler:
        run = scheduler.cancel(arguments.run_id, why=arguments.why, by=person(arguments))
    asked = ". It was asked to end." if run.state == "running" else ""
    _tell(arguments, run.as_dict(), f"{sentence(run)}{asked}")
    return 0 if run.state in {"running", "cancelled"} else 1


def backfill(arguments: argparse.Namespace) -> int:
    """Run due times of the past; without --yes, only list them."""
    with application(arguments) as scheduler:
        span, even = (arguments.job, arguments.since, arguments.until), arguments.even_forgotten
        forgotten = _forgotten(scheduler, *span) if arguments.json else 0
        if not arguments.yes:
            return _would_fill(arguments, scheduler.backfill(*span, even_forgotten=even), forgotten)
        who = person(arguments)
        asked = scheduler.backfill(*span, dry_run=False, even_forgotten=even, by=who, why=arguments.why)
    if arguments.json:
        as_json({"dry_run": False, "runs": [run.as_dict() for run in asked], "forgotten": forgotten})
    else:
        show(f"{counted(len(asked), 'due time')} of {arguments.job!r} will run, as many at once as its options allow")
    return 0


def _forgotten(scheduler: Scheduler, name: str, since: str, until: str) -> int:
    """The number of due times of which the ledger cannot say whether they ran."""

    def count(ledger: Ledger) -> int:
        job, now = operations.known(ledger, scheduler.application, name), ledger.now()
        span = operations.point(since, now, "since"), operations.point(until, now, "until")
        return operations.backfillable(ledger, job, *span, now).forgotten

    return service_of(scheduler).look(count)


def _would_fill(arguments: argparse.Namespace, due: Sequence[datetime], forgotten: int) -> int:
    if arguments.json:
        as_json({"dry_run": True, "due": due, "forgotten": forgotten})
        return 0
    for at in due[:SHOWN]:
        show(shown_time(at))
    if len(due) > SHOWN:
        show(f"… and {len(due) - SHOWN} more")
    if due:
        what = counted(len(due), "due time")
        say(
            f"{what} of {arguments.job!r} would run. Nothing was changed; "
            f"add --yes to run {'it' if len(due) == 1 else 'them'}."
        )
    else:
        say(f"No due times of {arguments.job!r} would run.")
    return 0


def _tell(arguments: argparse.Namespace, data: dict[str, Any], text: str) -> None:
    if arguments.json:
        as_json(data)
    else:
        show(text)


@contextmanager
def _patience() -> Iterator[None]:
    """Says that it waits for nodes, if it takes long."""
    text = "waiting for nodes to confirm that they start no further run of it; this takes at most their ttl"
    told = threading.Timer(ASKING, say, [text])
    told.daemon = True
    told.start()
    try:
        yield
    finally:
        told.cancel()


def _kwargs(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        return decode(text)
    except UnreadableArguments as error:
        raise ConfigurationError(f"--kwargs: {error}. Write --kwargs '{{\"customer\": 7}}'.") from None


def _until(text: str) -> str | datetime:
    """Accepts '2h', or a time in ISO 8601."""
    try:
        seconds(text, "until")
    except ConfigurationError:
        if not text[:4].isdigit() or "-" not in text:
            raise
        return datetime_of(text, "until")
    return text
