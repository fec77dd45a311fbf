"""The grammar of the commands about jobs and runs."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import get_args

from tenure.cli import (
    actions,
    alerts,
    backfills,
    job_list,
    job_operations,
    jobs,
    load,
    metrics,
    one_run,
    show,
    status,
    web,
)
from tenure.cli import run as running
from tenure.cli.watch import EVERY, watchable
from tenure.core.backfills import Include
from tenure.core.records import IfWaiting, RunState
from tenure.errors import ConfigurationError
from tenure.util.durations import positive

Command = Callable[..., argparse.ArgumentParser]

AGO = re.compile(r"^-\d")
"""`-1d` is a value, not an option."""
STATES = [state.value for state in RunState]


def add(command: Command) -> None:
    """Add all of them, in the order in which `tenure --help` lists them."""
    _start(command)
    _web(command)
    _metrics(command)
    _queries(command)
    _run_now(command)
    _job_operations(command)
    _backfill(command)
    _pools(command)


def once(command: Command) -> None:
    """Add `once`, which is listed beside `lead`."""
    added = command(
        "once",
        running.once,
        "run a command unless another process has",
        "Run the command unless a command has already run under this name on any host, or has run within that time. If "
        "the command fails or cannot be started, it does not count: the next caller may run it. Ends with the exit "
        "code of the command; or with 0, without running anything, if another process has run it.",
        "tenure once nightly --within 12h -- ./report     # in cron on every host: one runs it",
        "tenure once load-2026 -- ./load                  # once for ever",
    )
    added.usage = "tenure once NAME [--within DURATION] [options] -- command [argument …]"
    added.add_argument("name", metavar="NAME", help="what is done once")
    added.add_argument("--within", metavar="DURATION", help="run again after this time (default: never again)")
    added.add_argument("--app", metavar="NAME", help="the application that the name belongs to (default: default)")
    added.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    added.add_argument("--no-migrate", action="store_true", help="do not create or upgrade tenure's tables")


def _start(command: Command) -> None:
    start = command(
        "start",
        running.start,
        "run a scheduler",
        "Import a scheduler and run it until SIGTERM, SIGINT or SIGHUP. Then it starts no more runs and waits for "
        "those that are running (`drain`); a second signal gives them one second; a third ends the process at once."
        "\n\n"
        "The current folder is on Python's path. The store is the scheduler's own, or TENURE_URL if it names none.",
        "tenure start app.jobs:scheduler",
        store=False,
    )
    start.add_argument(
        "place", metavar="MODULE:SCHEDULER", help="where the scheduler is; MODULE is enough if it has only one"
    )
    start.add_argument("--lines", action="store_true", help="print a line per run even without a terminal")


def _metrics(command: Command) -> None:
    added = _of_application(
        command(
            "metrics",
            metrics.metrics_,
            "export metrics for Prometheus",
            "Print the metrics of an application once, or serve them at /metrics, with /livez and /readyz beside them. "
            "They are read from the database when Prometheus asks. If it does not answer within 4 s, `tenure_up` is 0; "
            "printed once, that is exit code 3. Name the application, and the exporter starts even without the "
            "database. Needs tenure[metrics].\n\n"
            "--rules and --dashboard print what comes with tenure: alert rules, and a dashboard for Grafana.",
            f"tenure metrics --listen 127.0.0.1:{metrics.PORT}",
            "tenure metrics --rules > /etc/prometheus/tenure.rules.yml",
            "tenure metrics > /var/lib/node_exporter/tenure.prom.new",
        )
    )
    what = added.add_mutually_exclusive_group()
    what.add_argument(
        "--listen",
        nargs="?",
        const=f"127.0.0.1:{metrics.PORT}",
        metavar="[ADDRESS:]PORT",
        help=f"serve until Ctrl-C or SIGTERM (without a value: 127.0.0.1:{metrics.PORT}; port 0: any free one)",
    )
    what.add_argument("--rules", action="store_true", help="print alert rules for Prometheus")
    what.add_argument("--dashboard", action="store_true", help="print a dashboard for Grafana")
    added.add_argument(
        "--jobs", metavar="PATTERN", help="only jobs of this name or pattern have series of their own (default: all)"
    )


def _web(command: Command) -> None:
    added = _of_application(
        command(
            "web",
            web.web,
            "show the page: what runs, what needs you, and why",
            "Serve a page that shows the application as status, jobs, runs, why and audit do, and lets people run, "
            "pause, resume, cancel, retry and remove. It runs no jobs and needs none of your code.\n\n"
            "It listens on this machine alone. Another address needs a token of at least 16 characters, in a file or "
            "in TENURE_WEB_TOKEN; put a proxy with https in front of it. Needs tenure[web].",
            "tenure web",
            "tenure web --listen 0.0.0.0:8321 --token-file /run/secrets/tenure-web --read-only",
        )
    )
    added.add_argument(
        "--listen",
        default=f"127.0.0.1:{web.PORT}",
        metavar="[ADDRESS:]PORT",
        help=f"where to listen; port 0 is any free one (default: 127.0.0.1:{web.PORT})",
    )
    added.add_argument("--token-file", metavar="FILE", help=f"the file with the token (default: {web.TOKEN})")
    added.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="answer to this name in the address; may be given several times",
    )
    added.add_argument(
        "--proxy",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="believe the proxy with this address, or in this network, that a browser came to it by https; one on this "
        "machine is believed; may be given several times",
    )
    added.add_argument("--by", metavar="WHO", help="who acts on the page, for the record (default: your login)")
    added.add_argument("--read-only", action="store_true", help="show everything, change nothing")


def _queries(command: Command) -> None:
    overall = _of_application(
        command(
            "status",
            watchable(status.status),
            "show the state of an application",
            "Show which node plans, what needs attention, what runs, what failed in the last 24 h and what is due "
            "next. Exit code 1 if no live node plans, if a due time is past its grace and nothing explains why it has "
            "not begun, or if a job that live code defines was removed by hand.",
            "tenure status",
            "tenure status --json | jq .open",
            "tenure status --watch",
            json=True,
        )
    )
    _watch(overall)
    listed = _of_application(
        command(
            "jobs",
            watchable(job_list.jobs),
            "list jobs",
            "List jobs: what is wrong with them, how their newest run ended, when they are due, and their triggers. "
            "--failing, --late, --paused and --orphaned show only such jobs; several of them add up.",
            "tenure jobs",
            "tenure jobs 'report:*' --failing",
            "tenure jobs --tag customer-7 --watch",
            json=True,
        )
    )
    listed.add_argument("job", metavar="JOB", nargs="?", help="the job, or a pattern such as 'report:*' (default: all)")
    listed.add_argument("--tag", metavar="TAG", help="with this tag")
    listed.add_argument("--queue", metavar="QUEUE", help="on this queue")
    listed.add_argument("--failing", action="store_true", help="whose newest run failed or was lost")
    listed.add_argument(
        "--late", action="store_true", help="that should have run, and nothing explains why they did not"
    )
    listed.add_argument("--paused", action="store_true", help="that are paused")
    listed.add_argument("--orphaned", action="store_true", help="that no live node can run")
    listed.add_argument("--sort", choices=job_list.SORTS, default="name", help="by name (default), next due time …")
    listed.add_argument("--stats", action="store_true", help="show how long the last 1,000 runs took, and how late")
    listed.add_argument("--names", action="store_true", help="print only the names, one per line")
    _watch(listed)
    shown = _of_application(
        command(
            "show",
            show.show,
            "show a job or a run",
            "Show all that there is to say of a job: its definition, the options that differ from the defaults, when "
            "it is due, its last runs, and who changed it. Or the whole story of a run: when it was due, every attempt "
            "with its node, times, outcome and traceback, its arguments, progress and result, the end of its log.\n\n"
            "A number is the number of a run. Anything else is the name of a job or the key of a run; with --job it is "
            "the key of a run.",
            "tenure show daily_aggregate",
            "tenure show 4711",
            "tenure show 2026-11-16T07:56:12Z --job report",
            json=True,
        )
    )
    _one_run(shown, "JOB|RUN", "the name of a job, or the number or the key of a run")
    alive = _of_application(
        command(
            "nodes",
            watchable(jobs.nodes),
            "list the nodes that are alive",
            "List the nodes of an application: since when, how many runs of how many slots, which queues, release "
            "and versions, how far the clock is off, and which functions only one of them has. Exit code 1 if no node "
            "is alive.",
            "tenure nodes",
            "tenure nodes --json | jq '.[].only_here'",
            json=True,
        )
    )
    _watch(alive)
    runs = _of_application(
        command(
            "runs",
            watchable(jobs.runs),
            "list runs, newest first",
            "List runs: their due time, how they ended, how late they started, how long they took, where, and why.",
            "tenure runs daily_aggregate --since -1d --state failed",
            json=True,
        )
    )
    runs.add_argument("job", metavar="JOB", nargs="?", help="the job, or a pattern such as 'report:*' (default: all)")
    _span(runs, since=None)
    runs.add_argument("--state", action="append", choices=STATES, help="in this state; may be given several times")
    runs.add_argument("--limit", type=count, default=20, metavar="N", help="how many (default: 20)")
    _watch(runs)
    log = _of_application(
        command(
            "log",
            one_run.log,
            "show what a run logged",
            "Show what the attempts of a run have logged so far, with the time and the number of the attempt, and why "
            "it failed. With -f, go on until the run has ended; then the exit code is 1 unless it succeeded.",
            "tenure log 4711",
            "tenure log 2026-11-16T07:56:12Z --job report",
            "tenure log -f 4711",
            json=True,
        )
    )
    _one_run(log, "RUN", "the number or the key of a run")
    log.add_argument("-f", "--follow", action="store_true", help="print lines as they come, until the run has ended")
    why = _of_application(
        command(
            "why",
            jobs.why,
            "explain why a job or a run ran or did not",
            "Explain in a sentence or two what became of a due time, or what a job is waiting for. Or what became of a "
            "run, or what it is waiting for.",
            "tenure why daily_aggregate",
            "tenure why daily_aggregate 2026-11-15T03:00+09:00",
            "tenure why 4711",
            json=True,
        )
    )
    _one_run(why, "JOB|RUN", "the name of a job, or the number or the key of a run")
    why.add_argument(
        "time", metavar="TIME", nargs="?", help="at or near this time (default: now); -2h is two hours ago"
    )
    audit = _of_application(
        command(
            "audit",
            jobs.audit,
            "account for every due time",
            "Compute every due time of a time span again and compare it with the ledger. Exit code 1 if a due time has "
            "neither a run nor a reason for having none, if a run belongs to no due time, or if a due time is past its "
            "grace and nothing explains why it has not begun.",
            "tenure audit --since -7d",
            "tenure audit daily_aggregate --since 2026-11-01T00:00Z --until 2026-12-01T00:00Z",
            json=True,
        )
    )
    audit.add_argument("--all", action="store_true", help="list the jobs without a finding, too")
    audit.add_argument("job", metavar="JOB", nargs="?", help="the job (default: all, including removed ones)")
    _span(audit, since="-1d")
    log_of_actions = _of_application(
        command(
            "actions",
            actions.actions,
            "list what people did",
            "List what people did to jobs, runs and elections, newest first: who did what, when, why, and from where. "
            "Every command counts, and so does every call in Python that says `by=` or `why=`; other calls do not.",
            "tenure actions --since -1d",
            "tenure actions --job report:7 --by ada",
            json=True,
        )
    )
    log_of_actions.add_argument("--job", metavar="JOB", help="on this job or election (default: all)")
    log_of_actions.add_argument("--by", metavar="WHO", dest="who", help="by this person (default: everyone)")
    _span(log_of_actions, since=None)
    log_of_actions.add_argument("--limit", type=count, default=20, metavar="N", help="how many (default: 20)")
    told = _of_application(
        command(
            "alerts",
            alerts.alerts,
            "list alerts, and try their sinks",
            "List open alerts, then past ones, and the sinks that have not accepted them. `test` imports an "
            "application and sends a test message to each of its sinks (`scheduler.alert_to`); exit code 1 if one does "
            "not accept it. Check-ins are not tested: their monitors would take the test for a run.",
            "tenure alerts",
            "tenure alerts test app.jobs:scheduler",
            json=True,
        )
    )
    told.add_argument("action", nargs="?", choices=["list", "test"], default="list", help="list (default) or test")
    told.add_argument("place", metavar="MODULE:SCHEDULER", nargs="?", help="with test: where the scheduler is")
    told.add_argument("--limit", type=count, default=20, metavar="N", help="how many (default: 20)")
    _of_application(
        command(
            "load",
            load.load,
            "show what is due in the next 24 h, and whether it fits",
            "Count how many runs may begin in each hour of the next 24, and forecast from measured durations how many "
            "go on at a time and how long they wait for a slot. Then herds with a spread that keeps them apart, jobs "
            "that are due while they still run, and jobs that the next two clock changes touch. Exit code 1 if the "
            "live nodes cannot take it. Writes nothing.",
            "tenure load",
            "tenure load --json | jq '.hours[] | select(.longest_wait > 60)'",
            json=True,
        )
    )
    preview = command(
        "next",
        jobs.next_,
        "show when an expression is due",
        "Print the next due times of a cron expression or a period, and what the next clock changes do to them. Needs "
        "no database.",
        "tenure next '0 3 * * *' --tz Asia/Seoul",
        "tenure next 90m --after 2026-11-15T00:00Z -n 3",
        store=False,
        json=True,
    )
    preview.add_argument("expr", metavar="EXPR", help="cron ('0 3 * * *', '@daily') or a period ('30s', '1h30m')")
    preview.add_argument("--tz", help="the time zone (default: UTC)")
    preview.add_argument("--after", metavar="TIME", help="start after this time (default: now)")
    preview.add_argument("-n", "--count", type=count, default=10, metavar="N", help="how many (default: 10)")


def _run_now(command: Command) -> None:
    run_now = _by(
        command(
            "run-now",
            job_operations.run_now,
            "run a job now",
            "Request a run, whatever the trigger says. A node with a free slot runs it. With --wait, exit code 1 "
            "unless "
            "it succeeded.",
            "tenure run-now daily_aggregate",
            "tenure run-now report --kwargs '{\"customer\": 7}' --wait 5m",
            json=True,
        )
    )
    _several(run_now)
    run_now.add_argument("--kwargs", metavar="JSON", help="arguments instead of the job's own")
    run_now.add_argument("--key", help="two requests with the same key are one run")
    run_now.add_argument(
        "--wait", metavar="DURATION", nargs="?", const="1h", help="wait until it has ended (default: 1h)"
    )

    run_at = _by(
        command(
            "run-at",
            job_operations.run_at,
            "run a job at a time to come",
            "Request one run for later. It is never missed: if no node is free then, it waits its turn. Of the runs of "
            "a job with the same --slot, at most one waits to begin; --if-waiting says what becomes of it: keep it, "
            "replace its time and arguments, or replace its arguments and take the later one of both times.",
            "tenure run-at report 2026-12-31T12:00Z",
            "tenure run-at reindex --in 5m --slot reindex:42 --if-waiting later",
            json=True,
        )
    )
    _job(run_at)
    run_at.add_argument("time", metavar="TIME", nargs="?", help="when: 2026-12-31T12:00Z")
    run_at.add_argument("--in", dest="in_", metavar="DURATION", help="after this time, instead of TIME")
    run_at.add_argument("--kwargs", metavar="JSON", help="arguments instead of the job's own")
    run_at.add_argument("--key", help="two requests with the same key are one run")
    run_at.add_argument("--slot", help="at most one run of the job waits under this name")
    run_at.add_argument(
        "--if-waiting", choices=get_args(IfWaiting), default="keep", help="what becomes of the one that waits"
    )


def _job_operations(command: Command) -> None:
    pause = _by(
        command(
            "pause",
            job_operations.pause,
            "pause a job",
            "Pause a job: plan and start no more runs. Running ones go on to their end; due times during the pause are "
            "not made up.",
            "tenure pause heartbeat --why maintenance --until 2h",
            "tenure pause --tag customer-7 --why 'has not paid'",
            json=True,
        )
    )
    _several(pause)
    pause.add_argument(
        "--until", metavar="DURATION", help="for this long, or until this time (default: until it is resumed)"
    )
    resume = _by(
        command(
            "resume",
            job_operations.resume,
            "resume a job",
            "Resume a job from now on.",
            "tenure resume heartbeat",
            "tenure resume 'report:*' --yes",
            json=True,
        )
    )
    _several(resume)
    remove = _by(
        command(
            "remove",
            job_operations.remove,
            "remove a job",
            "Remove a job. Runs that have not started are cancelled, running ones go on to their end. Its history "
            "stays "
            "for `keep_for`, and until then `tenure restore` brings it back. A job that code defines stays removed "
            "until "
            "it is restored or its definition changes. Returns when no further run starts; exit code 1 if a node did "
            "not answer within its ttl.",
            "tenure remove report:7",
            json=True,
        )
    )
    _several(remove)
    restore = _by(
        command(
            "restore",
            job_operations.restore,
            "undo the removal of a job",
            "Undo the removal of a job: it is due again from now on, as it was when it was removed.",
            "tenure restore report:7",
            json=True,
        )
    )
    _job(restore)
    reset = _by(
        command(
            "reset",
            job_operations.reset,
            "undo updates of a job",
            "Undo the updates that were made with scheduler.update(): from now on the job runs as the code defines it. "
            "No process with the code needs to be running.",
            "tenure reset poll_orders",
            json=True,
        )
    )
    _job(reset)
    cancel = _by(
        command(
            "cancel",
            job_operations.cancel,
            "end a run",
            "End a run: at once if it has not started; otherwise its body is asked to end. Exit code 1 if it was "
            "already over. With a job, a pattern, --tag or --queue: end the open runs of these jobs.",
            "tenure cancel 4711 --why 'wrong month'",
            "tenure cancel 'report:*'",
            "tenure cancel --slot reindex:42",
            "tenure cancel report --key invoice-7",
            json=True,
        )
    )
    cancel.add_argument("target", metavar="RUN|JOB", nargs="?", help="the number of a run, or a job or a pattern")
    _matching(cancel)
    cancel.add_argument("--key", help="the run of this job with this key")
    cancel.add_argument("--slot", help="the run that waits in this slot (of this job, if you give one)")
    retry = _by(
        command(
            "retry",
            job_operations.retry,
            "run a run again that did not succeed",
            "Run a run again that failed, was lost, cancelled or skipped: the same key, due time and arguments. It "
            "waits its turn and is never missed; `retries` counts anew. With --failed, all runs of a job, or of "
            "several, that failed or were lost in the span. Exit code 1 if the run has succeeded or is not over.",
            "tenure retry 4711 --why 'the disk is free again'",
            "tenure retry --failed load --since -1d --yes",
            json=True,
        )
    )
    retry.add_argument("--failed", action="store_true", help="all runs that failed or were lost in the span")
    retry.add_argument(
        "target", metavar="RUN|JOB", nargs="?", help="the number of a run; with --failed a job or a pattern"
    )
    _span(retry, since="-1d")
    _matching(retry)


def _pools(command: Command) -> None:
    pool = _by(
        command(
            "pool",
            job_operations.pool,
            "set the size of a pool",
            "Set how many runs of the jobs of a pool (`pool=` of a job) may run at once, on all nodes together. It "
            "holds from the next claim on. A smaller size ends no run; 0 begins none.",
            "tenure pool warehouse 2",
            json=True,
        )
    )
    pool.add_argument("name", metavar="POOL", help="the name of the pool")
    pool.add_argument("size", metavar="SIZE", type=int, help="how many runs")
    _of_application(
        command(
            "pools",
            job_operations.pools,
            "list the pools",
            "List the pools that jobs name or whose size was set: how many runs may run at once, how many run, and how "
            "many wait for a place.",
            "tenure pools",
            json=True,
        )
    )


def _backfill(command: Command) -> None:
    backfill = _by(
        command(
            "backfill",
            backfills.backfill,
            "run due times of the past",
            "List the due times in [SINCE, UNTIL) that have not run: never planned, skipped, cancelled or lost. With "
            "--yes they run, each under its own key, as one backfill: it has a number, and its due times are fixed. "
            "--include says which: missing, lost, failed (and lost). With --at-once N, at most N of its runs are "
            "open, the oldest first; without, all. Due times whose runs retention has removed are left out unless "
            "--even-forgotten is given: the ledger cannot say whether they ran, so they may run a second time.\n\n"
            "With the number of a backfill, show how far it is, or pause, resume or cancel it. A paused one requests "
            "no further runs. A cancelled one also cancels its runs that have not begun; running ones go on to their "
            "end. With --wait, exit code 1 unless all succeeded.",
            "tenure backfill daily_aggregate 2026-11-01T00:00Z 2026-11-08T00:00Z",
            "tenure backfill daily_aggregate -7d -0s --include missing --include failed --at-once 2 --yes",
            "tenure backfill 17 --wait",
            "tenure backfill 17 --pause --why 'the disk is full'",
            json=True,
        )
    )
    backfill.add_argument("target", metavar="JOB|NUMBER", help="the job, or the number of a backfill")
    backfill.add_argument(
        "since", metavar="SINCE", nargs="?", help="from this time on: 2026-11-01T00:00Z, or -7d for a week ago"
    )
    backfill.add_argument("until", metavar="UNTIL", nargs="?", help="before this time")
    backfill.add_argument("--since", dest="since_option", metavar="TIME", help="the same as SINCE")
    backfill.add_argument("--until", dest="until_option", metavar="TIME", help="the same as UNTIL (default: now)")
    backfill.add_argument("--yes", action="store_true", help="run them (default: only list them)")
    backfill.add_argument(
        "--include",
        action="append",
        choices=get_args(Include),
        help="which due times; may be given several times (default: missing and lost)",
    )
    backfill.add_argument("--at-once", type=count, metavar="N", help="how many may be open at once (default: all)")
    backfill.add_argument(
        "--even-forgotten",
        action="store_true",
        help="include due times whose runs retention has removed; they may run a second time",
    )
    steer = backfill.add_mutually_exclusive_group()
    for verb, what in (
        ("pause", "request no further runs of it"),
        ("resume", "go on with it"),
        ("cancel", "end it, and its runs that have not begun"),
    ):
        steer.add_argument(f"--{verb}", dest="steer", action="store_const", const=verb, help=what)
    backfill.add_argument(
        "--wait", metavar="DURATION", nargs="?", const="1d", help="wait until it is over, and say how far it is (1d)"
    )
    listed = _of_application(
        command(
            "backfills",
            watchable(backfills.backfills),
            "list backfills, newest first",
            "List backfills: of which job, in which state, how many of their due times are over, failed, and left.",
            "tenure backfills",
            "tenure backfills daily_aggregate --watch",
            json=True,
        )
    )
    listed.add_argument("job", metavar="JOB", nargs="?", help="the job (default: all)")
    listed.add_argument("--limit", type=count, default=20, metavar="N", help="how many (default: 20)")
    _watch(listed)


def _of_application(added: argparse.ArgumentParser) -> argparse.ArgumentParser:
    added.add_argument("--app", metavar="NAME", help="the application (default: TENURE_APP, else the only one)")
    return added


def _by(added: argparse.ArgumentParser) -> argparse.ArgumentParser:
    who_and_why(added)
    return _of_application(added)


def who_and_why(added: argparse.ArgumentParser) -> None:
    """For every command that changes something."""
    added.add_argument("--by", metavar="WHO", help="who does this, for the record (default: your login)")
    added.add_argument("--why", default="", metavar="TEXT", help="the reason, for the record")


def _job(added: argparse.ArgumentParser) -> None:
    added.add_argument("job", metavar="JOB", help="the job")


def _several(added: argparse.ArgumentParser) -> None:
    added.add_argument("job", metavar="JOB", nargs="?", help="the job, or a pattern such as 'report:*'")
    _matching(added)


def _matching(added: argparse.ArgumentParser) -> None:
    added.add_argument("--tag", metavar="TAG", help="all jobs with this tag")
    added.add_argument("--queue", metavar="QUEUE", help="all jobs on this queue")
    added.add_argument("--yes", action="store_true", help="do not ask before several are changed")


def _one_run(added: argparse.ArgumentParser, target: str, help_: str) -> None:
    added.add_argument("what", metavar=target, help=help_)
    added.add_argument("--job", metavar="JOB", help="the job whose run has this key, if several jobs have one")


def _run(added: argparse.ArgumentParser) -> None:
    added.add_argument("run_id", metavar="RUN", type=int, help="the number of the run, as in `tenure runs`")


def _watch(added: argparse.ArgumentParser) -> None:
    added.add_argument(
        "--watch",
        metavar="INTERVAL",
        nargs="?",
        const=EVERY,
        type=interval,
        help=f"show it again and again, every {EVERY} or as often as given, until Ctrl-C",
    )


def interval(text: str) -> str:
    """How often to look. `--watch` may swallow a word that is meant for the command."""
    try:
        positive(text, "watch")
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(f"{error} Put --watch last, or write --watch=2s.") from None
    return text


def _span(added: argparse.ArgumentParser, *, since: str | None) -> None:
    shown = "" if since is None else f" (default: {since})"
    added.add_argument(
        "--since",
        metavar="TIME",
        default=since,
        help=f"from this time on: 2026-11-01T00:00Z, or -7d for a week ago{shown}",
    )
    added.add_argument("--until", metavar="TIME", help="before this time (default: now)")


def count(text: str) -> int:
    """A positive number."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} must be 1 or more")
    return number
