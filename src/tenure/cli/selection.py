"""Many jobs at once: `tenure pause 'report:*'`, `--tag`, `--queue`. Lists what would be done, and asks first.

A name alone is one job, and the command acts at once. Without a terminal nothing is done unless --yes says so: a
script that means many jobs says so, too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from tenure.cli.output import as_json, say, show
from tenure.core.patterns import is_pattern
from tenure.core.records import JobRow, JobState
from tenure.errors import ConfigurationError, UnknownJob
from tenure.scheduler import Scheduler, service_of
from tenure.util.clock import boottime
from tenure.util.plurals import counted

SHOWN = 20
"""How many of the things that would be changed are listed."""
PROGRESS = 2.0
"""Seconds between two progress lines."""
REFUSED = 2
"""The exit code of a command that needs --yes."""


def several(arguments: argparse.Namespace) -> bool:
    """True if the command is about all jobs that match, and not about the one job of this name."""
    if arguments.job is None and arguments.tag is None and arguments.queue is None:
        raise ConfigurationError(
            f"{arguments.subcommand}: which jobs? Write a name, a pattern such as 'report:*', --tag TAG or "
            "--queue QUEUE."
        )
    return arguments.tag is not None or arguments.queue is not None or is_pattern(arguments.job)


def select(arguments: argparse.Namespace, scheduler: Scheduler, *states: JobState) -> list[JobRow]:
    """The jobs that the command is about, in these states (default: in any)."""
    lookup = service_of(scheduler).lookup
    rows = service_of(scheduler).look(
        lambda ledger: lookup.rows(ledger, arguments.job, tag=arguments.tag, queue=arguments.queue)
    )
    if not rows:
        raise UnknownJob(f"application {scheduler.application!r} has no job {described(arguments)}.")
    return [row for row in rows if not states or row.state in states]


def described(arguments: argparse.Namespace) -> str:
    """What was asked for: "that matches 'report:*', with tag 'customer-7'"."""
    words = []
    if arguments.job is not None:
        words.append(f"that matches {arguments.job!r}" if is_pattern(arguments.job) else repr(arguments.job))
    if arguments.tag is not None:
        words.append(f"with tag {arguments.tag!r}")
    if arguments.queue is not None:
        words.append(f"on queue {arguments.queue!r}")
    return ", ".join(words)


def agreed(arguments: argparse.Namespace, verb: str, what: str, names: Sequence[str]) -> int | None:
    """List what would be done, and ask. None: do it; otherwise the exit code of the command.

    `verb` is such as 'pause', `what` is such as '3 jobs'.
    """
    if not names:
        if arguments.json:
            as_json([])
        else:
            say(f"there is nothing to {verb} {described(arguments)}".rstrip())
        return 0
    if arguments.yes:
        return None
    asks = terminal() and not arguments.json
    if arguments.json:
        as_json({"would": verb, "names": list(names)})
    else:
        for name in names[:SHOWN]:
            show(name)
        if len(names) > SHOWN:
            show(f"… and {len(names) - SHOWN:,} more")
    if not asks:
        say(f"{arguments.subcommand}: this would {verb} {what}. Nothing was changed; add --yes to {verb} them.")
        return REFUSED
    try:
        answer = input(f"{verb} {what}? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() in {"y", "yes"}:
        return None
    say("nothing was changed")
    return 1


def terminal() -> bool:
    """True if a person can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def progress(verb: str) -> Callable[[int, int], None]:
    """Says how far it is, if it takes long."""
    said_at = boottime()

    def tell(done: int, of: int) -> None:
        nonlocal said_at
        if done < of and boottime() - said_at >= PROGRESS:
            said_at = boottime()
            say(f"{done:,} of {of:,} {verb}")

    return tell


def jobs_of(rows: Sequence[JobRow]) -> str:
    """'3 jobs'."""
    return counted(len(rows), "job")
