"""Describes how two definitions of a job differ: the code's and the one in force, or the code's old and new one."""

from __future__ import annotations

from dataclasses import asdict
from typing import NamedTuple

from tenure.core.arguments import differing
from tenure.core.records import JobSpec
from tenure.core.trigger_text import read_trigger


class Difference(NamedTuple):
    """One part of a definition that differs."""

    word: str
    """'trigger', 'kwargs', 'function', 'in_code', or an option."""
    one: str
    """'' for arguments, whose values are not told: `other` says which of them differ."""
    other: str

    @property
    def change(self) -> str:
        """From one to the other: 'retries: 0 → 3', or 'kwargs: password changed'."""
        return f"{self.word}: {self.one} → {self.other}" if self.one else f"{self.word}: {self.other}"


def differences(one: JobSpec, other: JobSpec) -> list[Difference]:
    """What differs, the trigger first; release numbers do not count."""
    found = []
    if one.trigger != other.trigger:
        found.append(Difference("trigger", *_both(explained(one.trigger), explained(other.trigger))))
    if one.function != other.function:
        found.append(Difference("function", f"{one.function:.200}", f"{other.function:.200}"))
    if one.kwargs != other.kwargs:
        found.append(Difference("kwargs", "", differing(one.kwargs, other.kwargs)))
    rules = asdict(other.rules)
    found += [
        Difference(word, repr(mine), repr(rules[word]))
        for word, mine in asdict(one.rules).items()
        if word in rules and mine != rules[word]
    ]
    return found


def in_force(spec: JobSpec, code: JobSpec) -> str:
    """How a job runs if the code defines it differently: 'trigger: Every 9 s (code: Every 5 s)'."""
    told = (f"{one.word}: {one.one} (code: {one.other})" if one.one else one.change for one in differences(spec, code))
    return ", ".join(told) or "added at run time"


def changed_words(before: JobSpec, after: JobSpec) -> str:
    """What a change by hand came to: 'retries: 0 → 3'; '' if nothing differs."""
    return ", ".join(one.change for one in differences(before, after))


def before_and_after(before: JobSpec, after: JobSpec) -> str:
    """What has changed: 'trigger: Every 5 s → Every 9 s'."""
    return changed_words(before, after) or "it was added at run time"


def explained(trigger: str | None) -> str:
    """A trigger in plain words, or why it cannot be read; '' for a job that runs only on request."""
    found, unreadable = read_trigger(trigger)
    return (unreadable and f"cannot be read: {unreadable}") if found is None else found.explain()


def _both(one: str, other: str) -> tuple[str, str]:
    """The first sentence of each, unless these are equal."""
    first, second = (text.partition(". ")[0].rstrip(".") or "on request" for text in (one, other))
    return (first, second) if first != second else (one, other)
