"""Makes text safe for a terminal or a log: nothing in it moves a cursor or forges a line."""

from __future__ import annotations


def printable(text: object) -> str:
    """The text on one line, with characters escaped that would move a cursor or forge a line."""
    plain = str(text)
    if plain.isprintable():
        return plain
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in plain)


def spelt(text: object) -> str:
    """A text of several lines, with characters escaped that would move a cursor. Line breaks and tabs stay."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in str(text).split("\n"))
