"""Nouns with their numbers or articles, for messages."""

from __future__ import annotations


def a_type(value: object) -> str:
    """The type of a value: 'a str', 'an int'."""
    return a_noun(type(value).__name__)


def a_noun(noun: str) -> str:
    """'a str', 'an int'."""
    return f"{'an' if noun[0].lower() in 'aeiou' else 'a'} {noun}"


def counted(number: int, noun: str) -> str:
    """'1 run', '2 runs'."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
