"""What a verb prints: JSON for programs, a table for people, colour only on a terminal that wants it."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import IO, Any

from tenure.stores.unreadable import printable

BOLD, DIM, RED, GREEN, YELLOW = "1", "2", "31", "32", "33"


def colourful(stream: IO[str]) -> bool:
    """Whether this stream wants colour: a terminal, without NO_COLOR."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str, stream: IO[str] | None = None) -> str:
    """The text in a colour, where there are colours."""
    return f"\033[{colour}m{text}\033[0m" if colourful(stream or sys.stdout) else text


def say(text: str) -> None:
    """Tell people something beside the data."""
    print(paint("tenure:", DIM, sys.stderr), text, file=sys.stderr, flush=True)


def as_json(value: Any) -> None:
    """Print a value for programs: times in ISO 8601, durations in seconds."""
    print(json.dumps(value, default=_plain, indent=2, ensure_ascii=False))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns under a header; by rich where it is installed, which knows how to fold them into a narrow terminal."""
    rows = [[printable(text) for text in row] for row in rows]
    if colourful(sys.stdout) and _rich_table(header, rows):
        return
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for number, row in enumerate([header, *rows]):
        line = "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        print(paint(line, BOLD) if number == 0 else line)


def local(moment: datetime | None) -> str:
    """A time for people, in their own zone."""
    return "" if moment is None else moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        case _:
            raise TypeError(f"{value!r} has no place in JSON")


def _rich_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return False
    shown = Table(*header, box=None, header_style="bold", pad_edge=False)
    for row in rows:
        shown.add_row(*map(Text, row))
    Console().print(shown)
    return True
