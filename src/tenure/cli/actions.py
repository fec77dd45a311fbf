"""`tenure actions`: what people did to jobs, runs and elections."""

from __future__ import annotations

import argparse
from datetime import datetime

from tenure.cli.jobs import application
from tenure.cli.output import as_json, show, table
from tenure.cli.times import here, short
from tenure.util.clock import walltime
from tenure.views import ActionView


def actions(arguments: argparse.Namespace) -> int:
    """List what people did, newest first."""
    with application(arguments) as scheduler:
        found = scheduler.actions(
            arguments.job, since=arguments.since, until=arguments.until, by=arguments.who, limit=arguments.limit
        )
    if arguments.json:
        as_json([action.as_dict() for action in found])
    elif not found:
        show("no such actions")
    else:
        now = walltime()
        header = [f"at, {here()}", "who", "what", "why", "from"]
        table(header, [_action(action, now) for action in found], spare=1)
    return 0


def _action(action: ActionView, now: datetime) -> list[str]:
    return [short(action.at, now), action.by, summary(action), action.why, action.origin]


def summary(action: ActionView) -> str:
    """What was done: 'cancel run 12 of daily', 'pause daily until …'."""
    run = "" if action.run is None else f"run {action.run} of "
    return f"{action.what} {run}{action.target}" + (f", {action.detail}" if action.detail else "")
