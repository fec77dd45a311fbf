"""When each step of the scheduler's loop is due, by the steady clock."""

from __future__ import annotations

from enum import Enum


class Step(Enum):
    """The steps of a turn, in their order."""

    LEARN = "learn"
    RECONCILE = "reconcile"
    FOLLOW = "follow up"
    BACKFILL = "advance backfills"
    CLAIM = "claim"
    PLAN = "plan"
    RESOLVE_MISSED = "resolve missed"
    PRUNE = "prune"
    COUNT = "count"
    REPLAN = "replan"
    CHECK = "check the deploy"
    LOOK = "look for alerts"
    TELL = "tell alerts"

    __hash__ = object.__hash__  # members are singletons, and this one is not written in Python


class Agenda:
    """One due time per step. Steps put themselves and each other on it."""

    __slots__ = ("_due", "_wakes")

    def __init__(self) -> None:
        self._due = dict.fromkeys(Step, 0.0)
        self._wakes = dict(self._due)

    def due(self, step: Step) -> float:
        """When this step is due; in the past if it is overdue."""
        return self._due[step]

    def at(self, step: Step, when: float, *, wake: bool = True) -> None:
        """The step is due at this moment. Without `wake` the loop does not wake for it, and the next turn does it."""
        self._due[step] = when
        self._wakes[step] = when if wake else float("inf")

    def by(self, step: Step, when: float) -> None:
        """The step is due at this moment at the latest."""
        if when < self._due[step]:
            self.at(step, when)

    def soon(self, *steps: Step) -> None:
        """These steps are due in the next turn, or later in this one."""
        for step in steps:
            self.at(step, 0.0)

    def next_at(self) -> float:
        """When the loop must turn again."""
        return min(self._wakes.values())
