"""The demo's output: lines that scroll and, on a terminal, a table below them that is redrawn."""

from __future__ import annotations

import os
import sys
from typing import IO

from tenure.util.printable import printable

COLOURS = {"leads": "32;1", "killed": "31", "frozen": "36", "starting": "2"}


class Screen:
    """Writes to a stream; without a terminal, only plain lines."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self.live = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._drawn: list[str] = []

    @staticmethod
    def paint(state: str, text: str) -> str:
        """A text in the colour of a state."""
        colour = COLOURS.get(state)
        if colour is None or os.environ.get("NO_COLOR") or not sys.stdout.isatty():
            return text
        return f"\033[{colour}m{text}\033[0m"

    def say(self, text: str) -> None:
        """Print a line that stays."""
        table = self._drawn
        self.clear()
        print(printable(text), file=self._stream, flush=True)
        self.draw(table)

    def draw(self, lines: list[str]) -> None:
        """Draw a table below the lines."""
        if self.live and lines:
            self.clear()
            print("\n" + "\n".join(lines), file=self._stream, flush=True)
            self._drawn = lines

    def clear(self) -> None:
        """Remove the table."""
        if self._drawn:
            print(f"\033[{len(self._drawn) + 1}A\033[J", end="", file=self._stream, flush=True)
            self._drawn = []
