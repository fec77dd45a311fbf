"""Numbers with their nouns, for messages."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """'1 run', '2 runs'."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
