"""Finds the jobs whose runs a clock change shifts, repeats or skips: for `tenure check`, the page and `tenure load`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tenure.core.herds import REMEMBERED, next_times
from tenure.errors import ConfigurationError
from tenure.triggers import ClockChange, Trigger

SOON = timedelta(days=400)
"""How far ahead clock changes are reported."""
AROUND = timedelta(hours=4)
"""Before and after a clock change …"""
OFTEN = 7
"""… a job that is due this often runs hourly or more, which no clock change alters much."""
STEPS = 4 * OFTEN
"""How many steps it takes to look at one trigger."""


@dataclass(frozen=True, slots=True)
class TouchedJobs:
    """A clock change, and the jobs on which it has the same effect."""

    change: ClockChange
    jobs: tuple[str, ...]

    @property
    def text(self) -> str:
        """What happens then, in a sentence."""
        return told(self.change)


def told(change: ClockChange) -> str:
    """'Sun 25 Oct 2026 03:00 → 02:00 (Europe/Berlin): 02:30 comes twice: it runs the first time only'."""
    return f"{at_of(change)}: {change.effect.rstrip('.')}"


def at_of(change: ClockChange) -> str:
    """'Sun 25 Oct 2026 03:00 → 02:00 (Europe/Berlin)'."""
    after = change.at.replace(tzinfo=None, fold=0)
    before = after - change.by
    zone = getattr(change.at.tzinfo, "key", change.at.tzinfo)
    return f"{before:%a} {before.day} {before:%b %Y %H:%M} → {after:%H:%M} ({zone})"


class ClockChangeFinder:
    """Takes jobs one by one, and then finds those that the next two clock changes of their zones affect."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._changes: dict[Trigger, tuple[tuple[str, ClockChange], ...]] = {}
        self._touched: dict[str, tuple[ClockChange, list[str]]] = {}
        """By what is told: zones that change at the same instant are told apart."""

    def add(self, name: str, trigger: Trigger) -> int:
        """Look at a job. Returns how many steps that took."""
        changes, steps = self._changes.get(trigger), 1
        if changes is None:
            try:
                changes = tuple((told(change), change) for change in _surprises(trigger, self._now))
            except ConfigurationError:  # told elsewhere
                changes = ()
            steps = STEPS
            if len(self._changes) < REMEMBERED:
                self._changes[trigger] = changes
        for text, change in changes:
            self._touched.setdefault(text, (change, []))[1].append(name)
        return steps

    @property
    def found(self) -> list[TouchedJobs]:
        """In order of time."""
        touched = sorted(self._touched.values(), key=lambda one: one[0].at.timestamp())
        return [TouchedJobs(change, tuple(names)) for change, names in touched]


def _surprises(trigger: Trigger, now: datetime) -> Iterator[ClockChange]:
    """The clock changes of the next year that alter when it runs: there and back again."""
    seen: set[datetime] = set()
    for change in trigger.changes(now):
        seen.add(change.at)
        if len(seen) > 2 or change.at - now > SOON:  # noqa: PLR2004 - there and back again
            return
        if change.effect.startswith(("No due time", "Closed then")):
            continue
        at = change.at.astimezone(UTC)
        if len(next_times(trigger, at - AROUND, OFTEN, at + AROUND)) < OFTEN:
            yield change
