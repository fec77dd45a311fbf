"""What an attempt logs, and how far it says it is: bounded while its body writes it, and sent while its body runs.

If a log is too long, its first and last lines are kept. Every line has a number, so a reader sees from the gap how
many were dropped. Lines and progress reach the ledger within about `EVERY` seconds, so they survive the death of the
process. The completer sends them, after endings; `Ledger.keep_log` and `Ledger.keep_progress` store them.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

from tenure.core.messages import LogLine, LogTrim, Progress, Result
from tenure.core.records import Instant, RunId
from tenure.errors import ConfigurationError
from tenure.util.clock import boottime

MAX_LINES, MAX_LOG = 1000, 256 * 1024
"""The most lines, and the most bytes, that are kept of one attempt."""
MAX_LINE = 2000
"""Characters of a line."""
MAX_TEXT = 200
"""Characters of the text of a progress."""
WAITING = 16 * 1024 * 1024
"""Bytes of logs of ended attempts that a node keeps until the database takes them."""
MOST = 1e15
"""The highest number of a progress. A float can still tell it from the next."""
EVERY = 1.0
"""Seconds from a line to its sending, at most, while the database answers."""


def size_of(text: str) -> int:
    """How many bytes the text is to a database."""
    return len(text) if text.isascii() else len(text.encode(errors="backslashreplace"))


def cut(text: object) -> str:
    """The line that is kept of what a body logs."""
    return str(text)[:MAX_LINE]


class NumberedLine(NamedTuple):
    """A line as its body logged it."""

    place: int
    """Its number within the attempt, from 0 on."""
    at: float
    """On `boottime`."""
    text: str


class ProgressNote(NamedTuple):
    """How far a body says it is."""

    done: float
    total: float | None
    text: str


def step_of(done: object, total: object, text: object) -> ProgressNote:
    """How far a body says it is. Raises ConfigurationError for what is not a number."""
    for word, value in (("done", done), ("total", total)):
        number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MOST
        if not number and not (word == "total" and value is None):
            raise ConfigurationError(
                f"run.progress: {word}={value!r:.80} is not a number. Write run.progress(180, 900)."
            )
    return ProgressNote(
        float(cast("float", done)), None if total is None else float(cast("float", total)), str(text)[:MAX_TEXT]
    )


class AttemptLog:
    """What a body logs, from whichever of its threads: half of the room is for the first lines, half for the last ones.

    `note` is called when there is something new to send; not again before it has been collected.
    """

    def __init__(self, run: RunId, attempt: int, note: Callable[[AttemptLog], None] = lambda _: None) -> None:
        self._run, self._attempt, self._note = run, attempt, note
        self._mutex = threading.Lock()
        self._first: list[NumberedLine] = []
        self._last: deque[NumberedLine] = deque()
        self._first_bytes = self._last_bytes = self._lines = 0
        self._noted = False
        self._sent = self._offered = -1
        """The last lines that the ledger has, and that it may have."""
        self._trimmed = 0
        """Of the last lines that were offered and have been dropped since, the ledger has none before this one."""
        self._step: tuple[ProgressNote, float] | None = None
        self._step_sent: tuple[ProgressNote, float] | None = None
        self._result: str | None = None

    def add(self, text: str, at: float | None = None) -> None:
        """Keep a line, if need be instead of an older one."""
        size = size_of(text)
        with self._mutex:
            line = NumberedLine(self._lines, boottime() if at is None else at, text)
            self._lines += 1
            if not self._last and _fits(len(self._first) + 1, self._first_bytes + size):
                self._first.append(line)
                self._first_bytes += size
            else:
                self._last.append(line)
                self._last_bytes += size
                while not _fits(len(self._last), self._last_bytes):
                    self._last_bytes -= size_of(self._last.popleft().text)
            new, self._noted = not self._noted, True
        if new:
            self._note(self)

    def step(self, step: ProgressNote) -> None:
        """Keep how far the body is, instead of what it said before."""
        with self._mutex:
            self._step = (step, boottime())
            new, self._noted = not self._noted, True
        if new:
            self._note(self)

    def result(self, text: str) -> None:
        """Keep what the body returned whose own transaction has completed the run. Sent once the attempt has ended."""
        self._result = text

    @property
    def progress(self) -> ProgressNote | None:
        """How far the body said it is."""
        return None if self._step is None else self._step[0]

    @property
    def lines(self) -> tuple[str, ...]:
        """All that is kept, with a sentence for lines that were dropped."""
        return tuple(line.text for line in with_gaps(self.kept(lambda at: at)))

    def kept(self, now: Callable[[float], Instant]) -> list[LogLine]:
        """All that is kept, as the ledger stores it."""
        with self._mutex:
            return [self._line(line, now) for line in (*self._first, *self._last)]

    def _line(self, line: NumberedLine, now: Callable[[float], Instant]) -> LogLine:
        return LogLine(self._run, self._attempt, line.place, now(line.at), line.text)

    # Sending. Only one thread does it.

    def collect(self) -> int:
        """Begin to send. Returns the number of the last line so far; `note` is called for later ones."""
        with self._mutex:
            self._noted = False
            return self._lines - 1

    def unsent(self, last: float = math.inf) -> int:
        """How many bytes of lines up to this one the ledger does not have; 1 more if it does not know the progress."""
        with self._mutex:
            more = (self._step != self._step_sent) + (0 if self._result is None else size_of(self._result))
            return sum(size_of(line.text) + 1 for line in self._unsent(last)) + more

    def _unsent(self, last: float) -> Iterator[NumberedLine]:
        for lines in (self._first, self._last):
            if lines and lines[-1].place > self._sent:
                yield from (line for line in lines if self._sent < line.place <= last)

    def fill(self, piece: Piece, last: float, now: Callable[[float], Instant]) -> bool:
        """Put what the ledger does not have into a piece, up to this line. False if not all of it fits."""
        with self._mutex:
            if self._result is not None:
                piece.results.append(Result(self._run, self._attempt, self._result))
                piece.returned.append(self)
            if self._step is not None and self._step != self._step_sent:
                (done, total, text), at = self._step
                piece.progress.append(Progress(self._run, self._attempt, done, total, text, now(at)))
                piece.steps.append((self, self._step))
            begins = self._last[0].place if self._last else 0
            if begins > self._trimmed and self._offered >= max(self._trimmed, len(self._first)):
                piece.trims.append(LogTrim(self._run, self._attempt, max(self._trimmed, len(self._first)), begins))
                piece.trimmed.append((self, begins))
            for line in self._unsent(last):
                if not piece.takes(self._line(line, now), self):
                    return False
                self._offered = max(self._offered, line.place)
        return True

    def give_up(self) -> None:
        """Send no more: the attempt has ended, and the database stays away."""
        with self._mutex:
            self._sent, self._step_sent, self._result = self._lines, self._step, None

    def sent(self, last: int) -> None:
        """The ledger has the lines up to this one."""
        with self._mutex:
            self._sent = max(self._sent, last)

    def trimmed(self, before: int) -> None:
        """The ledger has dropped the lines that were to be dropped before this one."""
        with self._mutex:
            self._trimmed = max(self._trimmed, before)

    def returned(self) -> None:
        """The ledger has the result."""
        self._result = None

    def stepped(self, step: tuple[ProgressNote, float]) -> None:
        """The ledger knows how far the body is."""
        with self._mutex:
            self._step_sent = step


def _fits(lines: int, size: int) -> bool:
    return lines <= MAX_LINES // 2 and size <= MAX_LOG // 2


def with_gaps(lines: Iterable[LogLine]) -> list[LogLine]:
    """These lines, in the order of their attempts, with a line for those that are missing between them."""
    shown: list[LogLine] = []
    for line in lines:
        before = shown[-1] if shown and shown[-1].attempt == line.attempt else None
        missing = line.place - (0 if before is None else before.place + 1)
        if missing > 0:
            lost = f"({missing:,} lines were dropped here)" if missing > 1 else "(1 line was dropped here)"
            shown.append(replace(line, place=line.place - 1, text=lost))
        shown.append(line)
    return shown


@dataclass(slots=True)
class Piece:
    """What is sent at once, of no more bytes than `most` unless it is a single line."""

    most: int
    lines: list[LogLine] = field(default_factory=list)
    trims: list[LogTrim] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    logs: dict[AttemptLog, int] = field(default_factory=dict)
    """The last line of each log."""
    trimmed: list[tuple[AttemptLog, int]] = field(default_factory=list)
    steps: list[tuple[AttemptLog, tuple[ProgressNote, float]]] = field(default_factory=list)
    returned: list[AttemptLog] = field(default_factory=list)
    size: int = 0

    def takes(self, line: LogLine, log: AttemptLog) -> bool:
        """Add a line if there is room."""
        size = size_of(line.text)
        if self.lines and (self.size + size > self.most or len(self.lines) == MAX_LINES):
            return False
        self.lines.append(line)
        self.size += size
        self.logs[log] = line.place
        return True

    def done(self) -> None:
        """The ledger has it, or will never have it."""
        for log, last in self.logs.items():
            log.sent(last)
        for log, before in self.trimmed:
            log.trimmed(before)
        for log, step in self.steps:
            log.stepped(step)
        for log in self.returned:
            log.returned()


class LogQueue:
    """Logs with something to send. Bodies note theirs from any thread; one thread sends."""

    def __init__(self, wake: threading.Event) -> None:
        self._wake = wake
        self._noted: deque[AttemptLog] = deque()
        self.due: float | None = None
        """When to collect from running bodies, on `boottime`."""
        self._sending: dict[AttemptLog, float] = {}
        """Up to which line."""
        self._ended: dict[AttemptLog, int] = {}
        """Of these, attempts that have ended, with their bytes …"""
        self._bytes = 0
        """… and all together."""

    def note(self, log: AttemptLog) -> None:
        """A running body has something to send, soon."""
        self._noted.append(log)
        if self.due is None:
            self.due = boottime() + EVERY
            self._wake.set()

    def __bool__(self) -> bool:
        return bool(self._sending)

    def collect(self) -> None:
        """Send what running bodies have noted so far."""
        self.due = None  # before looking: what is noted from here on is due again
        while self._noted:
            log = self._noted.popleft()
            last = log.collect()
            self._sending[log] = max(last, self._sending.get(log, -1))

    def end(self, log: AttemptLog) -> bool:
        """An attempt has ended: send the rest. False: there is no room for it."""
        size = log.unsent()
        if not size:
            return True
        if self._bytes + size > WAITING:
            return False
        self._sending[log] = math.inf
        self._ended[log] = size
        self._bytes += size
        return True

    def piece(self, most: int, now: Callable[[float], Instant]) -> Piece:
        """The next ones. They stay until `sent`."""
        piece = Piece(most)
        for log, last in self._sending.items():
            if not log.fill(piece, last, now):
                break
        return piece

    def sent(self, piece: Piece) -> None:
        """The ledger has these, or will never have them."""
        piece.done()
        for log, last in list(self._sending.items()):
            if log.unsent(last):
                break
            del self._sending[log]
            self._bytes -= self._ended.pop(log, 0)

    def drop(self) -> int:
        """Give up what waits; of how many ended attempts it was. Running ones keep theirs for the next time."""
        ended = len(self._ended)
        for log in self._ended:
            log.give_up()
        self._sending.clear()
        self._ended.clear()
        self._bytes = 0
        return ended
