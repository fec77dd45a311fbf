"""`manage.py tenure start` runs the project's jobs; every other verb is that of `tenure`, on the project's database."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from django.core.management.base import BaseCommand

from tenure.ext.django.project import said, scheduler, url_of


class Command(BaseCommand):  # type: ignore[misc]
    """One word for all verbs."""

    help = "Run the project's jobs (start), look at them (status, jobs, runs, why …), do something to them (run-now, pause …)."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Whatever tenure's command line knows."""
        parser.add_argument(
            "words", nargs=argparse.REMAINDER, metavar="COMMAND …", help="start, or any other command of tenure"
        )

    def handle(self, *_args: object, words: list[str], **_options: object) -> None:
        """Start, or ask the command line."""
        match words:
            case ["start"]:
                scheduler.run()
            case ["start", "--lines"]:
                scheduler.run(lines=True)
            case _:
                sys.exit(_ask(words))


def _ask(words: list[str]) -> int:
    settings = said()
    where = {"TENURE_URL": str(settings.get("URL") or url_of(settings.get("DATABASE", "default")))}
    if "SCHEMA" in settings:
        where["TENURE_SCHEMA"] = settings["SCHEMA"]
    command = [sys.executable, "-m", "tenure", *words]
    return subprocess.run(command, env={**os.environ, **where}, check=False).returncode  # noqa: S603 - what was typed
