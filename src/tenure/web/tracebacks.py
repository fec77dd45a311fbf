"""A traceback with the frames of libraries folded: what went wrong stands in the application's own lines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby

_FRAME = re.compile(r'^  File "(?P<path>[^"]*)", line \d+')
_LIBRARY = re.compile(r"site-packages|dist-packages|/lib(?:64)?/python\d|/tenure/|<frozen ")


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive lines, or frames of libraries."""

    text: str
    folded: bool
    frames: int = 0


def folded(text: str) -> list[Part]:
    """The parts of a traceback, in order; one part for any other text."""
    pieces: list[tuple[bool, list[str]]] = []
    inside = False
    for line in text.rstrip("\n").split("\n"):
        if found := _FRAME.match(line):
            inside = True
            pieces.append((bool(_LIBRARY.search(found["path"])), [line]))
        elif inside and line.startswith("    "):
            pieces[-1][1].append(line)
        else:
            inside = False
            pieces.append((False, [line]))
    parts = []
    for library, group in groupby(pieces, key=lambda piece: piece[0]):
        frames = list(group)
        joined = "\n".join("\n".join(lines) for _, lines in frames)
        parts.append(Part(joined, library, len(frames) if library else 0))
    return parts
