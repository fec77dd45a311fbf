"""Output of all commands: JSON for programs, tables for readers, colour only on a terminal that wants it.

Rows may contain any text. On a terminal, control characters in it are spelt out, so that a row can neither move the
cursor nor forge a line. The only control characters that reach a terminal are the colours, which are added here.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import IO, Any, NamedTuple

from tenure.util.printable import printable, spelt

BOLD, DIM, RED, GREEN, YELLOW = "1", "2", "31", "32", "33"


def colourful(stream: IO[str]) -> bool:
    """True if this stream wants colour: a terminal, without NO_COLOR."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class paint(NamedTuple):  # noqa: N801 - it is used as a verb
    """A text in a colour, for `show`."""

    text: str
    colour: str


def show(*parts: str | paint) -> None:
    """Print one human-readable line; line breaks in it are spelt out, too."""
    print(_line(parts, sys.stdout))


def show_text(text: object, colour: str = "") -> None:
    """Print a human-readable text of several lines."""
    for line in spelt(text).split("\n"):
        print(_painted(line, colour, sys.stdout) if colour else line)


def show_raw(text: str) -> None:
    """Print a text for programs unchanged; on a terminal, with control characters spelt out."""
    print(spelt(text) if sys.stdout.isatty() else text)


def say(text: str) -> None:
    """Print one line on standard error, apart from the data."""
    say_text(printable(text))


def say_text(text: str) -> None:
    """The same, in several lines."""
    print(_painted("tenure:", DIM, sys.stderr), spelt(text), file=sys.stderr, flush=True)


def as_json(value: Any) -> None:
    """Print a value as JSON: times in ISO 8601, durations in seconds.

    ASCII only on a terminal, where other characters may be control sequences.
    """
    print(json.dumps(value, default=_plain, indent=2, ensure_ascii=sys.stdout.isatty()))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns under a header, or one paragraph per row if the terminal is too narrow."""
    rows = [[printable(text) for text in row] for row in rows]
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    if room is not None and sum(widths) + 2 * (len(widths) - 1) > room:
        for row in rows:
            _paragraph([(name, text) for name, text in zip(header, row, strict=True) if text], room)
        return
    for number, row in enumerate([header, *rows]):
        line = "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        print(_painted(line, BOLD, sys.stdout) if number == 0 else line)


def _paragraph(cells: Iterable[tuple[str, str]], room: int) -> None:
    """Print one row of a table in as many lines as it needs. Names are never cut, so they can be copied."""
    lines: list[str] = []
    for cell in (f"{name} {text}" for name, text in cells):
        if lines and len(lines[-1]) + len(cell) + 2 <= room:
            lines[-1] += f"; {cell}"
        else:
            lines.append(f"    {cell}" if lines else cell)
    first, *others = lines
    print(_painted(first, BOLD, sys.stdout))
    for line in others:
        print(line)


def local(moment: datetime | None) -> str:
    """A human-readable time, in the reader's own zone."""
    return "" if moment is None else moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")


class SpeltOut(logging.Formatter):
    """Formats log lines, which may quote rows and exceptions, with control characters spelt out."""

    def format(self, record: logging.LogRecord) -> str:
        return spelt(super().format(record))


def _line(parts: Iterable[str | paint], stream: IO[str]) -> str:
    return "".join(
        _painted(printable(part.text), part.colour, stream) if isinstance(part, paint) else printable(part)
        for part in parts
    )


def _painted(text: str, colour: str, stream: IO[str]) -> str:
    return f"\033[{colour}m{text}\033[0m" if colourful(stream) else text


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        case _:
            raise TypeError(f"{value!r} cannot be written as JSON")
