"""The words of the command line about jobs and runs."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

from tenure.cli import jobs
from tenure.cli import run as running
from tenure.core.records import RunState

Verb = Callable[..., argparse.ArgumentParser]

AGO = re.compile(r"^-\d")
"""`-1d` is a value, and no option."""
STATES = [state.value for state in RunState]


def add(verb: Verb) -> None:
    """All of them."""
    _running(verb)
    _looking(verb)
    _doing(verb)


def once(verb: Verb) -> None:
    """Stands beside `lead`."""
    word = verb(
        "once",
        running.once,
        "run a command unless another has",
        "Run the command if nobody, on any host, has run it under this name, or not within that time. If it fails, or cannot be\n"
        "begun, the name is given back, for whoever comes next. Ends with the exit code of the command; with 0, and without\n"
        "running anything, if it was done by another.",
        "tenure once nightly --within 12h -- ./report     # in cron on every host: one runs it",
        "tenure once backfill-2026 -- ./backfill          # once for ever",
    )
    word.usage = "tenure once NAME [--within DURATION] [options] -- command [argument …]"
    word.add_argument("name", metavar="NAME", help="what is done once")
    word.add_argument("--within", metavar="DURATION", help="again after this time (default: never again)")
    word.add_argument("--app", metavar="NAME", help="the application whose name it is (default: default)")
    word.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")
    word.add_argument("--no-migrate", action="store_true", help="do not create or upgrade tenure's tables")


def _running(verb: Verb) -> None:
    word = verb(
        "start",
        running.start,
        "run a scheduler",
        "Import a scheduler and run it until SIGTERM, SIGINT or SIGHUP. What runs may end (`drain`); a second signal tells it to\n"
        "end within a second; a third waits for nothing.\n"
        "The folder you are in is on Python's path. The store is the scheduler's own, TENURE_URL where it names none.",
        "tenure start app.jobs:scheduler",
        store=False,
    )
    word.add_argument("place", metavar="MODULE:SCHEDULER", help="where the scheduler is; MODULE, if it has one only")
    word.add_argument("--lines", action="store_true", help="one line per run also where there is no terminal")


def _looking(verb: Verb) -> None:
    _of_application(
        verb(
            "status",
            jobs.status,
            "how an application is",
            "Say who plans, what runs, what failed since yesterday and what is due next. Exit code 1 if no live node plans.",
            "tenure status",
            "tenure status --json | jq .open",
            json=True,
        )
    )
    _of_application(
        verb(
            "jobs",
            jobs.jobs,
            "all jobs, with figures",
            "List the jobs: state, trigger, next due time, and of the last 1,000 runs how long they took and how late they began.",
            "tenure jobs",
            json=True,
        )
    )
    runs = _of_application(
        verb(
            "runs",
            jobs.runs,
            "runs, the newest first",
            "List runs: for which due time, how they ended, how late, how long, where and why.",
            "tenure runs daily_aggregate --since -1d --state failed",
            json=True,
        )
    )
    runs.add_argument("job", metavar="JOB", nargs="?", help="the job (default: all)")
    _span(runs, since=None)
    runs.add_argument("--state", action="append", choices=STATES, help="in this state; may be given several times")
    runs.add_argument("--limit", type=count, default=20, metavar="N", help="how many (default: 20)")
    log = _of_application(
        verb(
            "log",
            jobs.log,
            "what a run logged",
            "Print what a run logged, and what it failed of.",
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
            "Say in a sentence or two what became of a due time, or what a job is waiting for.",
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
            "Compute every due time of a span anew and hold it against the ledger. Exit code 1 if one has neither a run nor a\n"
            "reason why it has none, or a run belongs to no due time.",
            "tenure audit --since -7d",
            "tenure audit daily_aggregate --since 2026-11-01T00:00Z --until 2026-12-01T00:00Z",
            json=True,
        )
    )
    audit.add_argument("job", metavar="JOB", nargs="?", help="the job (default: all, removed ones too)")
    _span(audit, since="-1d")
    preview = verb(
        "next",
        jobs.next_,
        "when an expression is due",
        "Print the next due times of a cron expression or a period, and what the next clock changes do. Needs no database.",
        "tenure next '0 3 * * *' --tz Asia/Seoul",
        "tenure next 90m --after 2026-11-15T00:00Z -n 3",
        store=False,
        json=True,
    )
    preview.add_argument("expr", metavar="EXPR", help="cron ('0 3 * * *', '@daily') or a period ('30s', '1h30m')")
    preview.add_argument("--tz", help="the zone (default: UTC)")
    preview.add_argument("--after", metavar="TIME", help="from then on (default: now)")
    preview.add_argument("-n", "--count", type=count, default=10, metavar="N", help="how many (default: 10)")


def _doing(verb: Verb) -> None:
    asked = _by(
        verb(
            "run-now",
            jobs.run_now,
            "run a job now",
            "Ask for a run, whatever the trigger says. A node with a free slot runs it. With --wait, exit code 1 unless it succeeded.",
            "tenure run-now daily_aggregate",
            "tenure run-now report --kwargs '{\"customer\": 7}' --wait 5m",
            json=True,
        )
    )
    _job(asked)
    asked.add_argument("--kwargs", metavar="JSON", help="arguments instead of the job's own")
    asked.add_argument("--key", help="the same key twice is the same run")
    asked.add_argument(
        "--wait", metavar="DURATION", nargs="?", const="1h", help="wait until it has ended (default: 1h)"
    )
    pause = _by(
        verb(
            "pause",
            jobs.pause,
            "begin nothing of a job",
            "Plan and begin nothing of a job. What runs goes on to its end; what falls into the pause is not made up for.",
            "tenure pause heartbeat --why maintenance --until 2h",
            json=True,
        )
    )
    _job(pause)
    pause.add_argument(
        "--until", metavar="DURATION", help="for that long, or to that time (default: until it is resumed)"
    )
    resume = _by(
        verb("resume", jobs.resume, "go on with a job", "Go on from now.", "tenure resume heartbeat", json=True)
    )
    _job(resume)
    remove = _by(
        verb(
            "remove",
            jobs.remove,
            "take a job away",
            "Take a job away: what has not begun is cancelled, what runs goes on to its end. Its history\n"
            "stays for `keep_for`, and until then `tenure restore` brings it back. Returns when nothing more begins; exit code 1\n"
            "if a node did not answer within its ttl. A job that code defines stays removed until then, or until its definition changes.",
            "tenure remove report:7",
            json=True,
        )
    )
    _job(remove)
    restore = _by(
        verb(
            "restore",
            jobs.restore,
            "take a removal back",
            "Take a removal back: the job is due again from now on, as it was when it was removed.",
            "tenure restore report:7",
            json=True,
        )
    )
    _job(restore)
    reset = _by(
        verb(
            "reset",
            jobs.reset,
            "take updates of a job back",
            "Take updates of a job back that were made by scheduler.update(): it is what its definition in the code says, from\n"
            "now on. No process that has the code need run.",
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
            "End a run: at once if it has not begun; else its body is asked. Exit code 1 if it was over already.",
            "tenure cancel 4711 --why 'wrong month'",
            json=True,
        )
    )
    cancel.add_argument("run_id", metavar="RUN", type=int, help="the number of the run, as in `tenure runs`")
    for word in (pause, resume, remove, restore, reset, cancel):
        word.add_argument("--why", default="", help="the reason, for people")
    backfill = _by(
        verb(
            "backfill",
            jobs.backfill,
            "run due times of the past",
            "List the due times from SINCE up to and without UNTIL that have not been run: never planned, skipped, cancelled or\n"
            "lost. With --yes they are run, each under its own key. Due times whose runs retention has removed are left out, unless\n"
            "--even-forgotten is given: the ledger cannot say whether they ran, so they may run a second time.",
            "tenure backfill daily_aggregate 2026-11-01T00:00Z 2026-11-08T00:00Z",
            "tenure backfill daily_aggregate -7d -0s --yes",
            json=True,
        )
    )
    _job(backfill)
    backfill.add_argument("since", metavar="SINCE", help="from this time on: 2026-11-01T00:00Z, or -7d for a week ago")
    backfill.add_argument("until", metavar="UNTIL", help="up to this time, and without it")
    backfill.add_argument("--yes", action="store_true", help="run them (default: only list them)")
    backfill.add_argument(
        "--even-forgotten",
        action="store_true",
        help="also due times whose runs retention has removed; they may run a second time",
    )


def _of_application(word: argparse.ArgumentParser) -> argparse.ArgumentParser:
    word.add_argument("--app", metavar="NAME", help="the application (default: the only one there is)")
    return word


def _by(word: argparse.ArgumentParser) -> argparse.ArgumentParser:
    word.add_argument("--by", metavar="WHO", help="who does this, for people (default: your login)")
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
    word.add_argument("--until", metavar="TIME", help="up to this time, and without it (default: now)")


def count(text: str) -> int:
    """A number of lines."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} must be 1 or more")
    return number
