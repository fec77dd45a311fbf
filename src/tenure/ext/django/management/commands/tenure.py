"""`manage.py tenure start` runs the project's jobs; all other commands are those of `tenure`, on its database."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from django.core.management.base import BaseCommand

from tenure.ext.django.project import scheduler, tenure_setting, url_of


class ManageCommand(BaseCommand):  # type: ignore[misc]
    """All commands of `tenure`, as one command of `manage.py`."""

    help = "Run the project's jobs (start), show them (status, jobs, runs, why …), or change them (run-now, pause …)."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Leave all arguments to tenure's command line."""
        parser.add_argument(
            "words", nargs=argparse.REMAINDER, metavar="COMMAND …", help="start, or any other command of tenure"
        )

    def handle(self, *_args: object, words: list[str], **_options: object) -> None:
        """Run the scheduler, or call the command line."""
        match words:
            case ["start"]:
                scheduler.run()
            case ["start", "--lines"]:
                scheduler.run(lines=True)
            case _:
                sys.exit(_call(words))


Command = ManageCommand
"""The name by which Django finds it."""


def _call(words: list[str]) -> int:
    settings = tenure_setting()
    where = {"TENURE_URL": str(settings.get("URL") or url_of(settings.get("DATABASE", "default")))}
    if "SCHEMA" in settings:
        where["TENURE_SCHEMA"] = settings["SCHEMA"]
    command = [sys.executable, "-m", "tenure", *words]
    return subprocess.run(command, env={**os.environ, **where}, check=False).returncode  # noqa: S603 - what was typed
