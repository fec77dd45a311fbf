"""The result of an import: jobs, what was left out, and what differs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tenure.triggers import Trigger


@dataclass(frozen=True, slots=True)
class Found:
    """One imported job."""

    name: str
    trigger: Trigger
    body: tuple[str, ...]
    """Lines of Python."""
    source: str
    """How it was written in the other program."""
    policy: tuple[tuple[str, object], ...] = ()
    imports: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What differs in meaning, for this job."""


@dataclass(frozen=True, slots=True)
class Left:
    """Something that could not be imported."""

    source: str
    why: str


@dataclass(frozen=True, slots=True)
class Imported:
    """The whole import."""

    origin: str
    found: tuple[Found, ...]
    left: tuple[Left, ...] = ()
    differences: tuple[str, ...] = field(default=())
    """What differs in meaning, for all jobs."""


class Names:
    """Makes job names that are also names of Python functions, each unique."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def of(self, words: str) -> str:
        """A name made of these words."""
        plain = re.sub(r"\W+", "_", words, flags=re.ASCII).strip("_").lower()[:60].rstrip("_") or "job"
        plain = f"job_{plain}" if plain[0].isdigit() else plain
        name, number = plain, 1
        while name in self._given:
            number += 1
            name = f"{plain}_{number}"
        self._given.add(name)
        return name


def plain(value: object) -> bool:
    """True if its `repr` is Python code for the same value."""
    match value:
        case None | bool() | int() | float() | str() | bytes():
            return True
        case list() | tuple() | set():
            return all(map(plain, value))
        case dict():
            return all(plain(key) and plain(item) for key, item in value.items())
        case _:
            return False
