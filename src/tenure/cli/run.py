"""`tenure start` and `tenure once`: the verbs that run something of the user's own."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import subprocess
import sys
import traceback
from pathlib import Path
from types import FrameType, ModuleType

from tenure.async_scheduler import AsyncScheduler
from tenure.cli.elections import shared
from tenure.cli.output import say
from tenure.errors import ConfigurationError
from tenure.scheduler import Scheduler
from tenure.util.durations import positive
from tenure.util.signals import handled

BY_SIGNAL = 128
LAST_WORDS = 1.0
"""How long coroutines may take to end after the scheduler has been stopped."""


def start(arguments: argparse.Namespace) -> int:
    """Run a scheduler in the foreground."""
    scheduler = find(arguments.place)
    if isinstance(scheduler, AsyncScheduler):
        _run_on_loop(scheduler, lines=True if arguments.lines else None)
    elif scheduler.ran:  # and was told to end: not once more
        say(
            f"{arguments.place} ran while its module was imported. Put scheduler.run() below if __name__ == '__main__'."
        )
    else:
        scheduler.run(lines=True if arguments.lines else None)
    return 0


def find(place: str) -> Scheduler | AsyncScheduler:
    """The scheduler at MODULE:NAME; MODULE alone will do where there is one."""
    name, _, attribute = place.partition(":")
    if not name or place.endswith(":"):
        raise ConfigurationError(
            f"{place!r} is no place of a scheduler. Write MODULE:SCHEDULER, such as app.jobs:scheduler."
        )
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    module = _module(name)
    mine = {key: value for key, value in vars(module).items() if isinstance(value, Scheduler | AsyncScheduler)}
    listed = ", ".join(f"{name}:{key}" for key in mine) or "none"
    if not attribute:
        if len({id(value) for value in mine.values()}) != 1:
            raise ConfigurationError(f"{name}: which scheduler? There are: {listed}. Write MODULE:SCHEDULER.")
        attribute = next(iter(mine))
    found: object = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, Scheduler | AsyncScheduler):
        what = "is not there" if found is None else f"is a {type(found).__name__}"
        raise ConfigurationError(f"{place}: {attribute!r} {what}. Schedulers in {name}: {listed}.")
    return found


def _run_on_loop(scheduler: AsyncScheduler, lines: bool | None) -> None:
    """As `asyncio.run`, but a coroutine that does not let itself be cancelled does not hold up the end, as no thread does."""
    runner = asyncio.Runner()
    try:
        runner.run(scheduler.run(lines=lines))
    finally:
        if runner.run(_cancel_the_rest()):
            runner.close()


async def _cancel_the_rest() -> bool:
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    return not rest or not (await asyncio.wait(rest, timeout=LAST_WORDS))[1]


def once(arguments: argparse.Namespace) -> int:
    """Run a command unless it was run by somebody within that time."""
    from tenure.cli.lead import find as executable

    shared(arguments)
    within = None if arguments.within is None else positive(arguments.within, "within")
    if problem := executable(arguments.command):
        code, text = problem
        say(text)
        return code
    scheduler = Scheduler(
        arguments.url,
        application=arguments.app or "default",
        capacity=0,
        schema=arguments.schema,
        migrate=not arguments.no_migrate,
    )
    try:
        with scheduler.once(arguments.name, within) as first:
            if not first:
                if not arguments.quiet:
                    say(f"{arguments.name!r} was done by another; nothing to do here")
                return 0
            _run(arguments.command)
    except _Failed as failed:
        if not arguments.quiet:
            say(f"the command ended with {failed.code}: {arguments.name!r} is given back, for whoever comes next")
        return failed.code
    return 0


class _Failed(Exception):
    """The command did not do it."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def _run(command: list[str]) -> None:
    """Run it; signals that would end us are passed on, and it is waited for."""
    process = subprocess.Popen(command)  # noqa: S603 - the user's own

    def pass_on(number: int, frame: FrameType | None) -> None:
        del frame
        process.send_signal(number)

    with handled(pass_on):
        code = process.wait()
    if code:
        raise _Failed(code if code > 0 else BY_SIGNAL - code)


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and (name == missing or name.startswith(f"{missing}.")):
            raise ConfigurationError(
                f"there is no module {missing!r} in {Path.cwd()} or on Python's path. Go to the folder of your code, or install it."
            ) from None
        traceback.print_exc()
        raise ConfigurationError(f"module {name!r} cannot be imported: {type(error).__name__}: {error}") from error
