"""The log of an attempt: bounded while its body writes it, and sent in pieces after the ending.

If a log is too long, its first and last lines are kept; one line in between says how much was dropped. The completer
sends the lines, and `Ledger.keep_log` stores them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from tenure.core.messages import LogLine
from tenure.core.records import Instant, RunId

MAX_LINES, MAX_LOG = 1000, 256 * 1024
"""The most lines, and the most bytes, that are kept of one attempt."""
MAX_LINE = 2000
"""Characters of a line."""
WAITING = 16 * 1024 * 1024
"""Bytes of logs that a node keeps until the database takes them."""


def size_of(text: str) -> int:
    """The size of a text in a database, in bytes."""
    return len(text) if text.isascii() else len(text.encode(errors="backslashreplace"))


def cut(text: object) -> str:
    """The line that is kept of a logged text."""
    return str(text)[:MAX_LINE]


class AttemptLog:
    """The log of one attempt, from any of its threads. Half of the room is for the first lines, half for the last."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._first: list[str] = []
        self._last: deque[str] = deque()
        self._first_bytes = self._last_bytes = 0
        self._dropped = self._dropped_bytes = 0

    def add(self, line: str) -> None:
        """Keep a line, if necessary instead of an older one."""
        size = size_of(line)
        with self._mutex:
            if not self._last and _fits(len(self._first) + 1, self._first_bytes + size):
                self._first.append(line)
                self._first_bytes += size
                return
            self._last.append(line)
            self._last_bytes += size
            while not _fits(len(self._last), self._last_bytes):
                gone = size_of(self._last.popleft())
                self._last_bytes -= gone
                self._dropped += 1
                self._dropped_bytes += gone

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines that were kept."""
        with self._mutex:
            between = (
                [f"({self._dropped:,} lines were dropped here, {self._dropped_bytes:,} bytes)"] if self._dropped else []
            )
            return (*self._first, *between, *self._last)


def _fits(lines: int, size: int) -> bool:
    return lines <= MAX_LINES // 2 and size <= MAX_LOG // 2


class LogQueue:
    """Lines on their way to the ledger, oldest first. Used by one thread."""

    def __init__(self) -> None:
        self._lines: deque[LogLine] = deque()
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._lines)

    def add(self, run: RunId, began: Instant, lines: Sequence[str]) -> bool:
        """Queue these lines; False if there is no room for them."""
        size = sum(map(size_of, lines))
        if self._bytes + size > WAITING:
            return False
        self._lines.extend(LogLine(run, began, place, line) for place, line in enumerate(lines))
        self._bytes += size
        return True

    def piece(self, most: int) -> list[LogLine]:
        """The next lines: at most this many bytes, or a single line. They stay in the queue until `sent`."""
        piece: list[LogLine] = []
        size = 0
        for line in self._lines:
            size += size_of(line.text)
            if piece and (size > most or len(piece) == MAX_LINES):
                break
            piece.append(line)
        return piece

    def sent(self, piece: Sequence[LogLine]) -> None:
        """The ledger has these lines."""
        for line in piece:
            self._lines.popleft()
            self._bytes -= size_of(line.text)

    def drop(self) -> int:
        """Drop all lines; returns of how many runs they were."""
        runs = len({line.run for line in self._lines})
        self._lines.clear()
        self._bytes = 0
        return runs
