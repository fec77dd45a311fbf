"""`--watch`: the same answer again and again, redrawn in place, until Ctrl-C.

On a terminal each frame replaces the one before, line by line, so nothing flickers and the scroll-back stays. Without a
terminal, frames follow each other. A database that does not answer is shown, and asked again.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import shutil
import sys
from collections.abc import Callable
from typing import TextIO

from tenure.cli.output import movable, printed
from tenure.errors import ConfigurationError, StoreError
from tenure.util.clock import boottime, sleep, walltime
from tenure.util.durations import positive
from tenure.util.printable import printable

EVERY = "1s"
LEAST = 0.1
HOME, CLEAR_LINE, CLEAR_BELOW = "\033[H", "\033[K", "\033[J"

Command = Callable[[argparse.Namespace], int]


class Frame(io.StringIO):
    """What a command prints, kept back. It is as much of a terminal as the stream that it stands for."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    def isatty(self) -> bool:
        return self._stream.isatty()


def watchable(show: Command) -> Command:
    """The command, which with --watch shows its answer again and again."""

    def run(arguments: argparse.Namespace) -> int:
        if arguments.watch is None:
            return show(arguments)
        if getattr(arguments, "json", False):
            raise ConfigurationError("--watch redraws for people, --json is for programs. Write one of the two.")
        return _watch(arguments, show, max(positive(arguments.watch, "watch"), LEAST))

    return run


def _watch(arguments: argparse.Namespace, show: Command, every: float) -> int:
    arguments.kept = {}  # the connection stays open between two frames
    screen, moves = sys.stdout, movable(sys.stdout)
    if moves:
        screen.write("\033[2J")
    try:
        while True:
            began_at = boottime()
            text = _frame(arguments, show, screen)
            head = f"{walltime().astimezone():%H:%M:%S}  tenure {arguments.subcommand}, every {every:g} s (Ctrl-C ends)"
            _draw(f"{head}\n\n{text}", screen, moves=moves)
            sleep(max(every - (boottime() - began_at), 0.05))
    except KeyboardInterrupt:
        if moves:
            screen.write("\n")
        return 0
    finally:
        screen.flush()


def _frame(arguments: argparse.Namespace, show: Command, screen: TextIO) -> str:
    out = Frame(screen)
    with contextlib.redirect_stdout(out):
        try:
            show(arguments)
        except StoreError as error:
            printed(printable(error), wrong=True)
    return out.getvalue()


def _draw(text: str, screen: TextIO, *, moves: bool) -> None:
    lines = text.rstrip("\n").split("\n")
    if not moves:
        screen.write("\n".join([*lines, "", ""]))
        screen.flush()
        return
    height = shutil.get_terminal_size().lines
    if len(lines) > height - 1:
        hidden = len(lines) - height + 2
        lines = [*lines[: height - 2], f"… {hidden} more lines"]
    screen.write(HOME + "".join(f"{line}{CLEAR_LINE}\n" for line in lines) + CLEAR_BELOW)
    screen.flush()
