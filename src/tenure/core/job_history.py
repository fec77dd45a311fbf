"""Which trigger of a job applied when, from its history of changes (G4). `audit` and `why` share this module.

A stretch is the time from one change of a job to the next. A due time at the very instant of a change belongs to the
stretch before it, as in the ledger, which takes back only what is scheduled after a change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tenure.core.records import Change, ChangeRecord, Instant, JobRow, JobState
from tenure.core.trigger_text import read_trigger
from tenure.triggers import Trigger
from tenure.triggers.base import Steps

_TICK = 1e-6

Spend = Callable[[int], None]
"""Is told of so many steps. It may rest, so that other threads have their turn, or raise to end it all."""


@dataclass(frozen=True, slots=True)
class TriggerPeriod:
    """From one change to the next: (start, end]."""

    start: Instant
    end: Instant
    state: JobState
    trigger: Trigger | None
    began: ChangeRecord | None = None
    """The change that it began with; for a paused stretch, the pause, even if the job was updated since."""
    ended: ChangeRecord | None = None
    """The change that ended it."""
    after: str | None = None
    """The job that it follows."""
    unreadable: str = ""
    """Why its trigger is None although the job had one: what was due cannot be known."""

    def covers(self, at: Instant) -> bool:
        """True if a due time at this instant belongs to it."""
        return self.start < at <= self.end

    def due_times(self, since: Instant, until: Instant, spend: Spend | None = None) -> Iterator[Instant]:
        """The due times in this stretch, from `since` on and before `until`."""
        if self.trigger is None or self.state is JobState.REMOVED:
            return
        following = self.trigger.following if spend is None else _spending(self.trigger, spend)
        due = following(self.start if self.start >= since else since - _TICK)
        while due is not None and due <= self.end and due < until:
            yield due
            due = following(due)

    def count(self, since: Instant, until: Instant) -> int:
        """How many these are; 0 where only a walk can tell."""
        start, end = max(self.start, since), min(self.end, until)
        if self.trigger is None or self.state is JobState.REMOVED or end <= start:
            return 0
        return self.trigger.count(start, end) or 0


def _spending(trigger: Trigger, spend: Spend) -> Callable[[Instant], Instant | None]:
    def following(at: Instant) -> Instant | None:
        steps = Steps()
        due = trigger.following(at, steps)
        spend(1 + steps.taken)
        return due

    return following


def stretches(job: JobRow, changes: Sequence[ChangeRecord]) -> list[TriggerPeriod]:
    """The life of a job, oldest stretch first. Without a history it is one stretch, from `since` on."""
    mine = [change for change in changes if change.job == job.id]
    if not mine:
        trigger, unreadable = _readable(job.spec.trigger)
        parent = job.spec.rules.after
        return [TriggerPeriod(job.since, math.inf, job.state, trigger, after=parent, unreadable=unreadable)]
    found = []
    state, began = JobState.REMOVED, mine[0]
    for i, change in enumerate(mine):
        after = mine[i + 1] if i + 1 < len(mine) else None
        previous, state = state, _state_after(change, state)
        if not previous is state is JobState.PAUSED:
            began = change
        end = math.inf if after is None else after.at
        trigger, unreadable = _readable(change.trigger)
        found.append(TriggerPeriod(change.at, end, state, trigger, began, after, change.after, unreadable))
    return found


def _readable(text: str | None) -> tuple[Trigger | None, str]:
    trigger, problem = read_trigger(text)
    return trigger, problem and f"cannot be read: {problem}"


def _state_after(change: ChangeRecord, before: JobState) -> JobState:
    match change.what:
        case Change.PAUSED:
            return JobState.PAUSED
        case Change.REMOVED:
            return JobState.REMOVED
        case Change.UPDATED:
            return JobState.PAUSED if before is JobState.PAUSED else JobState.ACTIVE
        case _:
            return JobState.ACTIVE
