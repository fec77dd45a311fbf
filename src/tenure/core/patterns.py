"""Patterns of job names: `report:*` is every name that begins so. `*` stands for any text, `?` for one character.

Nothing else has a meaning, so every name that has neither is a pattern of itself. Each store has a form of its own.
"""

from __future__ import annotations

import re

from tenure.errors import ConfigurationError
from tenure.util.names import MAX_NAME

_SPLIT = re.compile(r"([*?])")


def is_pattern(text: str) -> bool:
    """True if it may stand for several names."""
    return "*" in text or "?" in text


def checked(pattern: str) -> str:
    """A pattern to look for. No name is longer, and comparing takes as many steps as both lengths multiplied."""
    if len(pattern) > MAX_NAME:
        raise ConfigurationError(
            f"pattern: {pattern[:30]!r}… has {len(pattern)} characters. Write at most {MAX_NAME}: no name is longer."
        )
    return pattern


def matches(pattern: str, name: str) -> bool:
    """True if the pattern stands for this name.

    A `*` takes as little as it can. If the rest does not fit, only the last one takes a character more: what an earlier
    one would take, the last one can take as well. So there is no backtracking, which can take for ever.
    """
    at = here = 0
    star = took = -1
    while here < len(name):
        if at < len(pattern) and pattern[at] == "*":
            star, took = at, here
            at += 1
        elif at < len(pattern) and pattern[at] in {"?", name[here]}:
            at, here = at + 1, here + 1
        elif star >= 0:
            took += 1
            at, here = star + 1, took
        else:
            return False
    return not pattern[at:].strip("*")


def like(pattern: str) -> str:
    """For LIKE with the escape character backslash, as in PostgreSQL."""
    return "".join(_LIKE.get(part, re.sub(r"([\\%_])", r"\\\1", part)) for part in _SPLIT.split(pattern))


def glob(pattern: str) -> str:
    """For GLOB, as in SQLite."""
    return pattern.replace("[", "[[]")


_LIKE = {"*": "%", "?": "_"}
