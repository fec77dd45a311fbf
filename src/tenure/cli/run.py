"""`tenure start` and `tenure once`: the commands that run the user's own code."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import subprocess
import sys
import traceback
from contextlib import nullcontext
from pathlib import Path
from types import FrameType, ModuleType

from tenure.async_scheduler import AsyncScheduler
from tenure.cli.elections import check_shared
from tenure.cli.output import say
from tenure.errors import ConfigurationError
from tenure.scheduler import Scheduler, service_of
from tenure.util import log_fallback
from tenure.util.durations import positive
from tenure.util.plurals import a_type
from tenure.util.signals import handled

BY_SIGNAL = 128
CANCEL_TIMEOUT = 1.0
"""Seconds that cancelled coroutines have to end after the scheduler has stopped."""


def start(arguments: argparse.Namespace) -> int:
    """Run a scheduler in the foreground."""
    scheduler, lines = find(arguments.place), True if arguments.lines else None
    with log_fallback.verbose() if arguments.verbose else nullcontext():
        if isinstance(scheduler, AsyncScheduler):
            _run_on_loop(scheduler, lines)
        elif service_of(scheduler).ran:  # it was told to stop: do not start it again
            say(
                f"{arguments.place} ran while its module was imported. "
                "Put scheduler.run() below if __name__ == '__main__'."
            )
        else:
            scheduler.run(lines=lines)
    return 0


def find(place: str) -> Scheduler | AsyncScheduler:
    """The scheduler at MODULE:NAME; MODULE is enough if it has only one."""
    name, _, attribute = place.partition(":")
    if not name or place.endswith(":"):
        raise ConfigurationError(
            f"{place!r} does not name a scheduler. Write MODULE:SCHEDULER, such as app.jobs:scheduler."
        )
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    module = _module(name)
    mine = {key: value for key, value in vars(module).items() if isinstance(value, Scheduler | AsyncScheduler)}
    listed = ", ".join(f"{name}:{key}" for key in mine) or "none"
    if not attribute:
        if len({id(value) for value in mine.values()}) != 1:
            raise ConfigurationError(f"{name}: which scheduler? It has: {listed}. Write MODULE:SCHEDULER.")
        attribute = next(iter(mine))
    found: object = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, Scheduler | AsyncScheduler):
        what = "does not exist" if found is None else f"is {a_type(found)}"
        raise ConfigurationError(f"{place}: {attribute!r} {what}. Schedulers in {name}: {listed}.")
    return found


def _run_on_loop(scheduler: AsyncScheduler, lines: bool | None) -> None:
    """Like `asyncio.run`, but a coroutine that ignores its cancellation does not delay the exit; nor does a thread."""
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
    return not rest or not (await asyncio.wait(rest, timeout=CANCEL_TIMEOUT))[1]


def once(arguments: argparse.Namespace) -> int:
    """Run a command unless another process has run it within that time."""
    from tenure.cli.lead import find as executable

    check_shared(arguments)
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
                    say(f"another process has already run {arguments.name!r}; nothing to do")
                return 0
            _run(arguments.command)
    except _Failed as failed:
        if not arguments.quiet:
            say(
                f"the command ended with {failed.code}: {arguments.name!r} does not count as done, the next caller may "
                "run it"
            )
        return failed.code
    return 0


class _Failed(Exception):
    """The command ended with another code than 0."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def _run(command: list[str]) -> None:
    """Run the command to its end. Signals that would end this process are passed on to it."""
    process = subprocess.Popen(command)  # noqa: S603 - the user's own command

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
                f"there is no module {missing!r} in {Path.cwd()} or on Python's path. "
                "Change to the folder of your code, or install it."
            ) from None
        traceback.print_exc()
        raise ConfigurationError(f"module {name!r} cannot be imported: {type(error).__name__}: {error}") from error
