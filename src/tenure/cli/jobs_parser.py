"""The commands about jobs and runs, with their arguments."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

from tenure.cli import jobs
from tenure.cli import run as running
from tenure.core.records import RunState

Verb = Callable[..., argparse.ArgumentParser]

AGO = re.compile(r"^-\d")
"""`-1d` is a value, not an option."""
STATES = [state.value for state in RunState]


def add(verb: Verb) -> None:
    """Add all of them but `once`."""
    _running(verb)
    _looking(verb)
    _doing(verb)


def once(verb: Verb) -> None:
    """Add `once`, which the help lists after `lead`."""
    word = verb(
        "once",
        running.once,
        "run a command unless another host has",
        "Run the command unless it has run under this name before (on any host), or within the given time. If it "
        "fails, or cannot be started, the name is given back, and the next caller runs it. The exit code is that of "
        "the command, or 0 if another process has run it.",
        "tenure once nightly --within 12h -- ./report     # in cron on every host: one of them runs it",
        "tenure once backfill-2026 -- ./backfill          # once, ever",
    )
    word.usage = "tenure once NAME [--within DURATION] [options] -- command [argument …]"
    word.add_argument("name", metavar="NAME", help="the name of what is done once")
    word.add_argument("--within", metavar="DURATION", help="may run again after this time (default: never again)")
    word.add_argument("--app", metavar="NAME", help="the application (default: default)")
    word.add_argument("-q", "--quiet", action="store_true", help="print errors only")
    word.add_argument("--no-migrate", action="store_true", help="do not create or upgrade tenure's tables")


def _running(verb: Verb) -> None:
    word = verb(
        "start",
        running.start,
        "run a scheduler",
        "Import a scheduler and run it until SIGTERM, SIGINT or SIGHUP. Running jobs may finish (`drain`); a second "
        "signal gives them one more second; a third stops at once. The current folder is on Python's path. The store "
        "is the scheduler's own, or TENURE_URL if it names none.",
        "tenure start app.jobs:scheduler",
        store=False,
    )
    word.add_argument(
        "place", metavar="MODULE:SCHEDULER", help="where the scheduler is; MODULE alone if it has only one"
    )
    word.add_argument("--lines", action="store_true", help="print one line per run even without a terminal")


def _looking(verb: Verb) -> None:
    _of_application(
        verb(
            "status",
            jobs.status,
            "how an application is doing",
            "Show who plans, what runs, what failed in the last 24 hours and what is due next. Exit code 1 if no live "
            "node plans.",
            "tenure status",
            "tenure status --json | jq .open",
            json=True,
        )
    )
    _of_application(
        verb(
            "jobs",
            jobs.jobs,
            "list jobs, with figures",
            "List the jobs: state, trigger, next due time, and for the last 1,000 runs how long they took and how "
            "late they began.",
            "tenure jobs",
            json=True,
        )
    )
    runs = _of_application(
        verb(
            "runs",
            jobs.runs,
            "list runs, newest first",
            "List runs: due time, outcome, lateness, duration, node and reason.",
            "tenure runs daily_aggregate --since -1d --state failed",
            json=True,
        )
    )
    runs.add_argument("job", metavar="JOB", nargs="?", help="the job (default: all)")
    _span(runs, since=None)
    runs.add_argument("--state", action="append", choices=STATES, help="only runs in this state; may be repeated")
    runs.add_argument("--limit", type=count, default=20, metavar="N", help="how many (default: 20)")
    log = _of_application(
        verb(
            "log",
            jobs.log,
            "show what a run logged",
            "Print what a run logged, and why it failed.",
            "tenure log 4711",
            json=True,
        )
    )
    log.add_argument("run_id", metavar="RUN", type=int, help="the number of the run, as in `tenure runs`")
    why = _of_application(
        verb(
            "why",
            jobs.why,
            "why a job ran or did not",
            "Explain in a sentence or two what became of a due time, or what a job is waiting for.",
            "tenure why daily_aggregate",
            "tenure why daily_aggregate 2026-11-15T03:00+09:00",
            json=True,
        )
    )
    _job(why)
    why.add_argument(
        "time", metavar="TIME", nargs="?", help="at or near this time (default: now); -2h is two hours ago"
    )
    audit = _of_application(
        verb(
            "audit",
            jobs.audit,
            "what became of every due time",
            "Compute every due time of a span again and compare it with the ledger. Exit code 1 if a due time has "
            "neither a run nor a reason, or if a run belongs to no due time.",
            "tenure audit --since -7d",
            "tenure audit daily_aggregate --since 2026-11-01T00:00Z --until 2026-12-01T00:00Z",
            json=True,
        )
    )
    audit.add_argument("job", metavar="JOB", nargs="?", help="the job (default: all, including removed ones)")
    _span(audit, since="-1d")
    preview = verb(
        "next",
        jobs.next_,
        "show when an expression is due",
        "Print the next due times of a cron expression or a period, and what happens at the next clock changes. No "
        "database needed.",
        "tenure next '0 3 * * *' --tz Asia/Seoul",
        "tenure next 90m --after 2026-11-15T00:00Z -n 3",
        store=False,
        json=True,
    )
    preview.add_argument("expr", metavar="EXPR", help="cron ('0 3 * * *', '@daily') or a period ('30s', '1h30m')")
    preview.add_argument("--tz", help="the zone (default: UTC)")
    preview.add_argument("--after", metavar="TIME", help="due times after this (default: now)")
    preview.add_argument("-n", "--count", type=count, default=10, metavar="N", help="how many (default: 10)")


def _doing(verb: Verb) -> None:
    asked = _by(
        verb(
            "run-now",
            jobs.run_now,
            "run a job now",
            "Request a run, whatever the trigger says. A node with a free slot runs it. With --wait, exit code 1 "
            "unless it succeeds.",
            "tenure run-now daily_aggregate",
            "tenure run-now report --kwargs '{\"customer\": 7}' --wait 5m",
            json=True,
        )
    )
    _job(asked)
    asked.add_argument("--kwargs", metavar="JSON", help="arguments instead of the job's own")
    asked.add_argument("--key", help="a second request with the same key is the same run")
    asked.add_argument(
        "--wait", metavar="DURATION", nargs="?", const="1h", help="wait until it has ended (at most 1h by default)"
    )
    pause = _by(
        verb(
            "pause",
            jobs.pause,
            "stop starting a job",
            "Plan and start no more runs of a job. Running ones finish; due times during the pause are not made up "
            "for.",
            "tenure pause heartbeat --why maintenance --until 2h",
            json=True,
        )
    )
    _job(pause)
    pause.add_argument(
        "--until", metavar="DURATION", help="for this long, or until this time (default: until it is resumed)"
    )
    resume = _by(
        verb(
            "resume",
            jobs.resume,
            "end a pause",
            "Plan and run a job again, from now on.",
            "tenure resume heartbeat",
            json=True,
        )
    )
    _job(resume)
    remove = _by(
        verb(
            "remove",
            jobs.remove,
            "remove a job",
            "Remove a job: runs that have not begun are cancelled, running ones finish. Its history stays for "
            "`keep_for`, and until then `tenure restore` brings it back. Returns when no more runs can begin; exit "
            "code 1 if a node did not answer within its ttl. A job that code defines stays removed for as long, "
            "unless its definition changes.",
            "tenure remove report:7",
            json=True,
        )
    )
    _job(remove)
    restore = _by(
        verb(
            "restore",
            jobs.restore,
            "undo a removal",
            "Undo a removal: the job is due again from now on, as it was when it was removed.",
            "tenure restore report:7",
            json=True,
        )
    )
    _job(restore)
    reset = _by(
        verb(
            "reset",
            jobs.reset,
            "undo updates of a job",
            "Undo updates made by scheduler.update(): from now on the job is as the code defines it. No process with "
            "that code has to be running.",
            "tenure reset poll_orders",
            json=True,
        )
    )
    _job(reset)
    cancel = _by(
        verb(
            "cancel",
            jobs.cancel,
            "end a run",
            "End a run: at once if it has not begun; otherwise its body is asked to end. Exit code 1 if it was "
            "already over.",
            "tenure cancel 4711 --why 'wrong month'",
            json=True,
        )
    )
    cancel.add_argument("run_id", metavar="RUN", type=int, help="the number of the run, as in `tenure runs`")
    for word in (pause, resume, remove, restore, reset, cancel):
        word.add_argument("--why", default="", help="the reason, shown to people")
    backfill = _by(
        verb(
            "backfill",
            jobs.backfill,
            "run due times of the past",
            "List the due times from SINCE up to, but not including, UNTIL that have not run: never planned, skipped, "
            "cancelled or lost. With --yes, run them, each under its own key. Due times whose runs retention has "
            "removed are left out unless --even-forgotten is given: the ledger cannot tell whether they ran, so they "
            "may run a second time.",
            "tenure backfill daily_aggregate 2026-11-01T00:00Z 2026-11-08T00:00Z",
            "tenure backfill daily_aggregate -7d -0s --yes",
            json=True,
        )
    )
    _job(backfill)
    backfill.add_argument("since", metavar="SINCE", help="from this time on: 2026-11-01T00:00Z, or -7d for a week ago")
    backfill.add_argument("until", metavar="UNTIL", help="up to, but not including, this time")
    backfill.add_argument("--yes", action="store_true", help="run them (default: only list them)")
    backfill.add_argument(
        "--even-forgotten",
        action="store_true",
        help="include due times whose runs retention has removed; they may run a second time",
    )


def _of_application(word: argparse.ArgumentParser) -> argparse.ArgumentParser:
    word.add_argument("--app", metavar="NAME", help="the application (default: the only one there is)")
    return word


def _by(word: argparse.ArgumentParser) -> argparse.ArgumentParser:
    word.add_argument("--by", metavar="WHO", help="who does this, shown to people (default: your login)")
    return _of_application(word)


def _job(word: argparse.ArgumentParser) -> None:
    word.add_argument("job", metavar="JOB", help="the job")


def _span(word: argparse.ArgumentParser, *, since: str | None) -> None:
    shown = "" if since is None else f" (default: {since})"
    word.add_argument(
        "--since",
        metavar="TIME",
        default=since,
        help=f"from this time on: 2026-11-01T00:00Z, or -7d for a week ago{shown}",
    )
    word.add_argument("--until", metavar="TIME", help="up to, but not including, this time (default: now)")


def count(text: str) -> int:
    """A positive number."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} must be 1 or more")
    return number
