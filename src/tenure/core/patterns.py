"""Patterns of job names: `report:*` is every name that begins so. `*` stands for any text, `?` for one character.

Nothing else has a meaning, so every name that has neither is a pattern of itself. Each store has a form of its own.
"""

from __future__ import annotations

import re

_SPLIT = re.compile(r"([*?])")


def is_pattern(text: str) -> bool:
    """True if it may stand for several names."""
    return "*" in text or "?" in text


def matches(pattern: str, name: str) -> bool:
    """True if the pattern stands for this name."""
    parts = (_REGEX.get(part, re.escape(part)) for part in _SPLIT.split(pattern))
    return re.fullmatch("".join(parts), name, re.DOTALL) is not None


def like(pattern: str) -> str:
    """For LIKE with the escape character backslash, as in PostgreSQL."""
    return "".join(_LIKE.get(part, re.sub(r"([\\%_])", r"\\\1", part)) for part in _SPLIT.split(pattern))


def glob(pattern: str) -> str:
    """For GLOB, as in SQLite."""
    return pattern.replace("[", "[[]")


_REGEX = {"*": ".*", "?": "."}
_LIKE = {"*": "%", "?": "_"}
