"""`tenure import`: prints the schedules of another program as Python code."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tenure.cli.output import as_json, say, show_raw
from tenure.errors import ConfigurationError
from tenure.importers import Imported, written
from tenure.importers.code import code

Command = Callable[..., argparse.ArgumentParser]

KINDS = ("crontab", "systemd", "celery", "apscheduler")


def add(command: Command) -> None:
    """Add the command to the parser."""
    added = command(
        "import",
        run,
        "print another program's schedules as jobs",
        "Read a crontab, systemd timers, the beat_schedule of a Celery app or the job store of APScheduler 3, and "
        "print a Python module with the same jobs. Comments in it say where their meaning differs. Nothing is "
        "changed where they come from. Exit code 1 if something was left out.",
        "crontab -l | tenure import crontab - > jobs.py",
        "tenure import crontab /etc/crontab --tz Asia/Seoul",
        "tenure import crontab deploy/cron.d --user-column",
        "tenure import systemd /etc/systemd/system",
        "tenure import celery proj.celery:app",
        "tenure import apscheduler sqlite:///jobs.sqlite",
        json=True,
        store=False,
    )
    added.add_argument("kind", choices=KINDS, help="where they come from")
    added.add_argument(
        "place", metavar="PLACE", nargs="+", help="a file (-: standard input), units, MODULE:APP, or a URL"
    )
    added.add_argument("--tz", metavar="ZONE", help="the time zone of their host (default: that of this host)")
    added.add_argument(
        "--user-column",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="the sixth column of a crontab is a user, as in /etc/crontab (default: detect it, and say so)",
    )
    added.add_argument("--table", default="apscheduler_jobs", metavar="NAME", help="APScheduler's table")


def run(arguments: argparse.Namespace) -> int:
    """Read and print."""
    imported = _read(arguments)
    if arguments.json:
        as_json(
            {
                "origin": imported.origin,
                "jobs": [
                    {"name": found.name, "trigger": code(found.trigger), "policy": dict(found.policy),
                     "body": list(found.body), "source": found.source, "differs": list(found.notes)}
                    for found in imported.found
                ],
                "left_out": [{"source": left.source, "why": left.why} for left in imported.left],
                "differs": list(imported.differences),
            }
        )  # fmt: skip
    else:
        show_raw(written(imported).removesuffix("\n"))
    for left in imported.left:
        say(f"left out: {left.source}: {left.why}")
    return 1 if imported.left else 0


def _read(arguments: argparse.Namespace) -> Imported:
    if arguments.kind != "systemd" and len(arguments.place) > 1:
        raise ConfigurationError(
            f"import {arguments.kind}: {len(arguments.place)} places were given. Write one at a time."
        )
    place = arguments.place[0]
    match arguments.kind:
        case "crontab":
            from tenure.importers import crontab

            zone = arguments.tz or crontab.local_zone()
            path = None if place == "-" else _file(place)
            if path is not None and path.is_dir():
                return crontab.read_folder(path, tz=zone, system=arguments.user_column)
            text = sys.stdin.read() if path is None else path.read_text()
            system, note = crontab.user_column(text, path, arguments.user_column)
            if note:
                say(note)
            return crontab.read(text, (path and place) or "standard input", tz=zone, system=system, note=note)
        case "systemd":
            from tenure.importers import crontab, systemd

            return systemd.read([_file(name) for name in arguments.place], tz=arguments.tz or crontab.local_zone())
        case "celery":
            return _celery(place)
        case _:
            from tenure.importers import apscheduler

            return apscheduler.read(place, table=arguments.table)


def _file(name: str) -> Path:
    path = Path(name)
    if not path.exists():
        raise ConfigurationError(f"{name} does not exist.")
    return path


def _celery(place: str) -> Imported:
    try:
        from tenure.importers import celery
    except ImportError as error:
        raise ConfigurationError(f"import celery: {error}. Run this where your Celery app runs.") from None
    name, _, attribute = place.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        app: Any = importlib.import_module(name)
    except ImportError as error:
        raise ConfigurationError(f"import celery: {error}. Write MODULE:APP, such as proj.celery:app.") from error
    except Exception as error:
        raise ConfigurationError(
            f"import celery: {name} cannot be imported: {type(error).__name__}: {error}. "
            "Run this where your Celery app runs."
        ) from error
    for part in (attribute or "app").split("."):
        app = getattr(app, part, None)
    if not hasattr(app, "conf"):
        raise ConfigurationError(
            f"import celery: {place} is not a Celery app. Write MODULE:APP, such as proj.celery:app."
        )
    return celery.read(app, place)
