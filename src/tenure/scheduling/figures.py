"""Figures: the planner counts runs by hour, again while anything may change, and merges old hours into days.

Retention needs none of this: what it removes is added to the figures in the same transaction. So this step may be late,
be killed or be done by two nodes at a time, and still no figure is lost or counted twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from tenure.core.figures import DAYS_KEPT, HOUR, HOURS_KEPT
from tenure.core.records import Instant, JobId
from tenure.errors import StoreError
from tenure.scheduling.agenda import Step
from tenure.scheduling.context import LoopContext
from tenure.scheduling.slices import SliceSize, SliceTimer
from tenure.stores.ledger import FIRST, Ledger
from tenure.util.clock import boottime

COUNT_EVERY = 30.0
"""Seconds between two passes over all jobs, at least …"""
RESTS = 30.0
"""… and at least this many times as long as the last pass has worked."""
COUNT_JOBS, COUNT_TIME = (1, 500), 0.008
"""The least and the most jobs of a slice, and the seconds that it should take: claims wait meanwhile."""
CLOSE = 100
"""How many days are merged from their hours at once."""


@dataclass(slots=True)
class _Pass:
    """How far a pass over all jobs is."""

    since: Instant | None = None
    began_at: Instant = 0.0
    up_to: JobId = FIRST
    runs: int = 0
    worked: float = 0.0
    closing: bool = False


class FiguresCounter:
    """Works in slices, and rests after each as long as it took. Claims come first."""

    def __init__(self, context: LoopContext) -> None:
        self._context = context
        self._timer = SliceTimer(context.agenda, Step.COUNT, COUNT_TIME)
        self._jobs = SliceSize(20, COUNT_JOBS, COUNT_TIME)
        self._pass = _Pass()
        self._timer.rest(boottime() + COUNT_EVERY)

    def count(self, ledger: Ledger) -> None:
        """Count a slice, unless a claim is due first."""
        context, clock, began_at = self._context, self._context.clock, boottime()
        if not context.plans or clock.doubts or began_at < clock.believed_since + COUNT_EVERY:
            self._pass = _Pass()
            self._timer.rest(began_at + COUNT_EVERY)
            return
        if self._timer.put_off(began_at):
            return
        counts = not self._pass.closing
        try:
            over = self._count(ledger, clock.now(began_at)) if counts else self._close(ledger)
        except (StoreError, OSError):  # perhaps it is too much for one statement: less next time, and not at once
            self._jobs.halve()
            self._timer.rest(boottime() + COUNT_EVERY)
            raise
        took = self._timer.worked(began_at)
        self._pass.worked += took
        if over:
            self._timer.rest(boottime() + max(COUNT_EVERY, RESTS * self._pass.worked))
            self._pass = _Pass()
        elif counts:
            self._jobs.adapt(took)

    def _count(self, ledger: Ledger, wall: Instant) -> bool:
        """Count the next jobs. After the last one comes what is old."""
        if self._pass.since is None:
            self._pass.began_at = wall
        counted = ledger.count_hours(
            self._context.application, since=self._pass.since, beyond=self._pass.up_to, jobs=self._jobs.now
        )
        self._pass.since, self._pass.up_to = counted.since, counted.up_to or FIRST
        self._pass.runs += counted.runs
        if counted.up_to is None:
            mark = self._pass.began_at // HOUR * HOUR - HOUR
            if self._pass.runs and mark > counted.since:  # an idle application has nothing to note
                ledger.note_counted(self._context.application, mark)
            self._pass.closing = True
        return False

    def _close(self, ledger: Ledger) -> bool:
        """Merge old hours into days. Returns True if none is left."""
        wall = self._context.clock.now(boottime())
        bounds = {"before": wall - HOURS_KEPT, "oldest": wall - DAYS_KEPT}
        return ledger.close_days(self._context.application, **bounds, limit=CLOSE) < CLOSE
