"""Nouns with their numbers or articles, for messages."""

from __future__ import annotations

from collections.abc import Iterable


def a_type(value: object) -> str:
    """The type of a value: 'a str', 'an int'."""
    return a_noun(type(value).__name__)


def a_noun(noun: str) -> str:
    """'a str', 'an int'."""
    return f"{'an' if noun[0].lower() in 'aeiou' else 'a'} {noun}"


def several(names: Iterable[str], most: int) -> str:
    """'a, b, c and 4 more', with `most` names."""
    listed = list(names)
    more = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {more:,} more" if more > 0 else "")


def counted(number: int, noun: str) -> str:
    """'1 run', '2,000 runs'."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
