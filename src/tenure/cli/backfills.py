"""`tenure backfill` and `tenure backfills`: due times of the past that are run on request."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from datetime import datetime

from tenure.cli.elections import POLL
from tenure.cli.jobs import NOW, application, shown_time
from tenure.cli.output import RED, YELLOW, as_json, paint, say, show, table
from tenure.cli.person import person
from tenure.cli.times import here, short
from tenure.core.backfills import DEFAULT_INCLUDE
from tenure.errors import ConfigurationError
from tenure.jobs import operations
from tenure.scheduler import Scheduler, service_of
from tenure.stores.ledger import Ledger
from tenure.util.clock import boottime, sleep, walltime
from tenure.util.durations import positive, readable
from tenure.util.plurals import counted
from tenure.views import BackfillView

SHOWN = 40
"""Due times of one list."""
_BAD = ("failed", "lost", "cancelled", "skipped", "left", "waiting", "running")
"""Due times of these kinds have not succeeded."""


def backfill(arguments: argparse.Namespace) -> int:
    """Run due times of the past, or show or steer a backfill."""
    _read_span(arguments)
    numbered = arguments.target.isdecimal() and arguments.since is None
    _refuse_mixture(arguments, numbered=numbered)
    if numbered:
        return _one(arguments, int(arguments.target))
    if arguments.until is None:
        raise ConfigurationError(
            f"backfill: write a job and a span (tenure backfill {arguments.target} SINCE UNTIL), or the number of a "
            "backfill. `tenure backfills` lists them."
        )
    patience = _patience(arguments)
    with application(arguments) as scheduler:
        span = arguments.target, arguments.since, arguments.until
        forgotten = _forgotten(scheduler, *span) if arguments.json else 0
        which = {"include": tuple(arguments.include or DEFAULT_INCLUDE), "at_once": arguments.at_once}
        which["even_forgotten"] = arguments.even_forgotten
        if not arguments.yes:
            return _would_fill(arguments, scheduler.backfill(*span, **which), forgotten)
        asked = scheduler.backfill(*span, **which, dry_run=False, by=person(arguments), why=arguments.why)
        if asked.number and not arguments.json:
            will = f"{counted(asked.total, 'due time')} of {asked.job!r} will run as backfill {asked.number}"
            show(f"{will}, {_limit(asked)}")
        ended: BackfillView = asked
        if asked.number and patience is not None:
            ended = _awaited(scheduler, asked, patience)
    if arguments.json:
        view = {word: value for word, value in ended.as_dict().items() if word != "runs"} if asked.number else None
        runs = [run.as_dict() for run in asked]
        as_json({"dry_run": False, "backfill": view, "runs": runs, "forgotten": forgotten})
    elif not asked.number:
        show(f"0 due times of {arguments.target!r} will run; no backfill was created")
    elif patience is not None:
        show(_sentence(ended))
    return _code(ended) if patience is not None else 0


def _read_span(arguments: argparse.Namespace) -> None:
    """Take --since and --until for the words that they are the same as."""
    for word in ("since", "until"):
        option = getattr(arguments, f"{word}_option")
        if option is not None and getattr(arguments, word) is not None:
            raise ConfigurationError(
                f"backfill: --{word} {option} and {getattr(arguments, word)} are given. Write one."
            )
        setattr(arguments, word, getattr(arguments, word) if option is None else option)
    if arguments.since_option is not None and arguments.until is None:
        arguments.until = NOW


def backfills(arguments: argparse.Namespace) -> int:
    """List backfills, newest first."""
    with application(arguments) as scheduler:
        found = scheduler.backfills(arguments.job, limit=arguments.limit)
    if arguments.json:
        as_json([one.as_dict() for one in found])
    elif not found:
        show("no backfills")
    else:
        now = walltime()
        header = ["number", "job", "state", "finished", "failed", "left", f"created, {here()}", "by", "why"]
        table(header, [_row(one, now) for one in found], spare=3)
    return 0


def _row(one: BackfillView, now: datetime) -> list[str | paint]:
    bad = one.failed + one.lost
    state = paint(one.state, YELLOW) if one.state == "paused" else one.state
    failed = paint(f"{bad:,}", RED) if bad else "0"
    over = f"{one.over:,} of {one.total:,}"
    return [str(one.number), one.job, state, over, failed, f"{one.left:,}", short(one.created_at, now), one.by, one.why]


def _one(arguments: argparse.Namespace, number: int) -> int:
    """Show the backfill of this number, after what is to be done to it."""
    patience = _patience(arguments)
    with application(arguments) as scheduler:
        steer: Callable[..., BackfillView] | None = {
            "pause": scheduler.pause_backfill,
            "resume": scheduler.resume_backfill,
            "cancel": scheduler.cancel_backfill,
        }.get(arguments.steer)
        if steer is None:
            found = scheduler.find_backfill(number)
        else:
            found = steer(number, by=person(arguments), why=arguments.why)
        if patience is not None:
            found = _awaited(scheduler, found, patience)
        held = found.finished_at is None and any(job.state == "paused" for job in scheduler.jobs(found.job))
    if arguments.json:
        as_json(found.as_dict())
    else:
        _show(found, held=held)
    return _code(found) if patience is not None else 0


def _show(view: BackfillView, *, held: bool) -> None:
    show(_sentence(view))
    span = f"from {shown_time(view.since)} (inclusive) to {shown_time(view.until)} (exclusive)"
    show(f"  {' and '.join(view.include)} due times {span}, {_limit(view)}")
    show(f"  created {shown_time(view.created_at)}{_said(view.by, view.why)}")
    if view.state_by or view.state_why:
        show(f"  {'resumed' if view.state == 'running' else view.state}{_said(view.state_by, view.state_why)}")
    if held:
        show(f"  {view.job!r} is paused: no run of it begins until `tenure resume {view.job}`")
    if view.failed or view.lost:
        since = f"--since {view.since.isoformat()} --until {view.until.isoformat()}"
        show(f"  what failed: tenure runs {view.job} {since} --state failed --state lost")


def _limit(view: BackfillView) -> str:
    return "with no limit of its own" if view.at_once is None else f"at most {view.at_once} at once"


def _said(by: str, why: str) -> str:
    return (f" by {by}" if by else "") + (f": {why}" if why else "")


def _sentence(view: BackfillView) -> str:
    return f"backfill {view.number} of {view.job!r} is {view.state}, {view.progress}"


def _awaited(scheduler: Scheduler, view: BackfillView, patience: float) -> BackfillView:
    """The same backfill when it is over, or the patience is. Says how far it is."""
    end, told = boottime() + patience, ""
    while view.finished_at is None and boottime() < end:
        if (now := _sentence(view)) != told:
            say(now)
            told = now
        sleep(POLL)
        view = scheduler.find_backfill(view.number)
    if view.finished_at is None:
        say(f"backfill {view.number} is not over after {readable(patience)}; it goes on")
    return view


def _code(view: BackfillView) -> int:
    return int(any(getattr(view, word) for word in _BAD))


def _patience(arguments: argparse.Namespace) -> float | None:
    return None if arguments.wait is None else positive(arguments.wait, "wait")


def _refuse_mixture(arguments: argparse.Namespace, *, numbered: bool) -> None:
    """What is for a new backfill makes no sense for one that exists, and the other way round."""
    if numbered:
        given = {
            "--yes": arguments.yes,
            "--include": arguments.include,
            "--at-once": arguments.at_once is not None,
            "--even-forgotten": arguments.even_forgotten,
        }
        if wrong := next((word for word, is_given in given.items() if is_given), ""):
            raise ConfigurationError(
                f"backfill: {wrong} is for a new backfill, and {arguments.target} is the number of one. Leave it out."
            )
    elif arguments.steer:
        raise ConfigurationError(
            f"backfill: --{arguments.steer} needs the number of a backfill: "
            f"tenure backfill 17 --{arguments.steer}. `tenure backfills` lists them."
        )
    elif arguments.wait is not None and not arguments.yes:
        raise ConfigurationError("backfill: --wait waits for runs, so write --yes as well. Without it nothing runs.")


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
            f"{what} of {arguments.target!r} would run. Nothing was changed; "
            f"add --yes to run {'it' if len(due) == 1 else 'them'}."
        )
    else:
        say(f"No due times of {arguments.target!r} would run.")
    return 0
