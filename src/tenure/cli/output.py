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
import textwrap
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import IO, Any, NamedTuple

from tenure.util.printable import printable, spelt

LEAST = 16
"""The narrowest first column of a table whose longest names get lines of their own."""
BOLD, DIM, RED, GREEN, YELLOW = "1", "2", "31", "32", "33"


def colourful(stream: IO[str]) -> bool:
    """True if this stream wants colour: a terminal, without NO_COLOR."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def movable(stream: IO[str]) -> bool:
    """True if the cursor can be moved on this stream: a terminal that is not dumb, whether it wants colour or not."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


class paint(NamedTuple):  # noqa: N801 - it is used as a verb
    """A text in a colour, for `show`."""

    text: str
    colour: str


def show(*parts: str | paint) -> None:
    """Print one human-readable line; line breaks in it are spelt out, too."""
    print(_line(parts, sys.stdout))


def printed(text: str, *, wrong: bool = False) -> None:
    """Print one line, in red if it is about something that is wrong."""
    show(paint(text, RED) if wrong else text)


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


def wrapped(text: str, *, first: str = "", hang: int = 0) -> list[str]:
    """The lines of a text that fit the terminal: the first after `first`, the others after `hang` blanks. Elsewhere it
    stays one line."""
    if not sys.stdout.isatty():
        return [first + text]
    width = max(shutil.get_terminal_size().columns, 20)
    lines = textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=" " * hang, break_long_words=False, break_on_hyphens=False
    )
    return lines or [first]


def as_json(value: Any) -> None:
    """Print a value as JSON: times in ISO 8601, durations in seconds.

    ASCII only on a terminal, where other characters may be control sequences.
    """
    print(json.dumps(value, default=_plain, indent=2, ensure_ascii=sys.stdout.isatty()))


def table(header: Sequence[str], rows: Sequence[Sequence[str | paint]], *, spare: int = 0, below: bool = False) -> None:
    """Print columns under a header.

    On a terminal that is too narrow, print the last column below its row (`below`), and leave out the last columns that
    remain, at most `spare`. If that is not enough, give a name that is too long for the first column a line of its own;
    names are never cut, so they can be copied. If there is no room even for that, print one paragraph per row.
    """
    cells = [[printable(_text(cell)) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [header, *cells]) for i in range(len(header))]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    left, notes = len(header), below and room is not None and _width(widths) > room
    if notes:
        left -= 1
    least = left - spare
    while room is not None and _width(widths[:left]) > room and left > least:
        left -= 1
    if room is not None and _width(widths[:left]) > room:
        first = room - _width(widths[:left]) + widths[0]
        if first < max(LEAST, len(header[0])):
            for row, texts in zip(rows, cells, strict=True):
                words = zip(header, texts, map(_colour, row), strict=True)
                _paragraph([(name, text, colour) for name, text, colour in words if text], room)
            return
        widths[0] = first
    print(_painted("  ".join(_padded(header[:left], widths)).rstrip(), BOLD, sys.stdout))
    for row, texts in zip(rows, cells, strict=True):
        if len(texts[0]) > widths[0]:
            print(_hued(texts[0], _colour(row[0])))
            texts[0] = ""
        padded = _padded(texts[:left], widths)
        while padded and not padded[-1].strip():
            padded.pop()
        if padded:
            padded[-1] = padded[-1].rstrip()
            print("  ".join(_hued(text, _colour(cell)) for text, cell in zip(padded, row, strict=False)))
        if notes and texts[-1]:
            print(textwrap.fill(texts[-1], room or 80, initial_indent="    ", subsequent_indent="    "))


def _width(widths: Sequence[int]) -> int:
    """Of a line with columns of these widths."""
    return sum(widths) + 2 * (len(widths) - 1)


def _padded(texts: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [text.ljust(width) for text, width in zip(texts, widths, strict=False)]


def _text(cell: str | paint) -> str:
    return cell.text if isinstance(cell, paint) else cell


def _colour(cell: str | paint) -> str:
    return cell.colour if isinstance(cell, paint) else ""


def _hued(text: str, colour: str) -> str:
    """The text in its colour, but not the blanks after it."""
    plain = text.rstrip()
    return _painted(plain, colour, sys.stdout) + text[len(plain) :] if colour and plain else text


def _paragraph(cells: Iterable[tuple[str, str, str]], room: int) -> None:
    """Print one row of a table in as many lines as it needs. Names are never cut, so they can be copied."""
    lines: list[list[tuple[str, str]]] = []
    width = 0
    for name, text, colour in cells:
        cell = f"{name} {text}"
        if lines and width + len(cell) + 2 <= room:
            lines[-1] += [("; ", ""), (cell, colour)]
            width += len(cell) + 2
        else:
            indent = "    " if lines else ""
            lines.append([(indent, ""), (cell, colour)])
            width = len(indent) + len(cell)
    for number, line in enumerate(lines):
        shown = [_hued(text, colour or (BOLD if number == 0 else "")) for text, colour in line]
        print("".join(shown))


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
