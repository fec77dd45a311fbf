"""Retention: the planner deletes old runs, and then jobs that were removed long ago. Nothing open is deleted (G4)."""

from __future__ import annotations

from tenure.core.records import Instant, JobId
from tenure.errors import StoreError
from tenure.scheduling.agenda import Step
from tenure.scheduling.context import LoopContext
from tenure.scheduling.slices import SliceTimer
from tenure.stores.ledger import Ledger
from tenure.util.batch_size import QUICK
from tenure.util.clock import boottime

PRUNE_EVERY, PRUNE_SOON = 60.0, 5.0
"""Seconds between two passes over all jobs: after a pass that found nothing, and after one that removed something."""
PRUNE_BATCH, PRUNE_JOBS, PRUNE_TIME = (50, 1000), 100, 0.008
"""A slice deletes runs of up to `PRUNE_JOBS` jobs: as many as take `PRUNE_TIME`, because claims wait meanwhile."""
ACTIONS, ACTION_BATCH = 100_000, 1000
"""How many lines of the log of actions are kept at the most, and how many are deleted at once."""
ALERT_BATCH = 500
"""How many closed alerts are deleted at once."""
BACKFILL_BATCH = 5
"""How many backfills that are over are deleted at once: each has up to 10,000 due times."""
FORGET_BATCH = 100
"""How many removed jobs are forgotten at once, with up to ten times as many of their changes."""


class Retention:
    """Works in slices while anything old is left, and rests after each as long as it took. Claims come first."""

    def __init__(self, context: LoopContext) -> None:
        self._context = context
        self._timer = SliceTimer(context.agenda, Step.PRUNE, PRUNE_TIME)
        self._pruned_up_to, self._batch = JobId(0), PRUNE_BATCH[0]
        self._found_old = False
        self._timer.rest(boottime() + PRUNE_EVERY)

    def prune(self, ledger: Ledger) -> None:
        """Remove a slice of what is old, unless a claim is due first."""
        context, clock, began_at = self._context, self._context.clock, boottime()
        if not context.plans or clock.doubts or began_at < clock.believed_since + PRUNE_EVERY:
            self._timer.rest(began_at + PRUNE_EVERY)
            return
        if self._timer.put_off(began_at):
            return
        try:
            self._prune_slice(ledger, began_at, clock.now(began_at))
        except (StoreError, OSError):  # perhaps it is too much for one statement: less next time, and not at once
            self._batch = max(self._batch // 2, 1)
            context.agenda.at(Step.PRUNE, boottime() + PRUNE_SOON)
            raise

    def _prune_slice(self, ledger: Ledger, began_at: float, wall: Instant) -> None:
        options, batch = self._context.options, self._batch
        pruned = ledger.prune(
            self._context.application,
            before=wall - options.keep_for,
            keep=options.keep,
            limit=batch,
            beyond=self._pruned_up_to,
            jobs=PRUNE_JOBS,
            keys_before=wall - options.keep_keys,
        )
        took = self._timer.worked(began_at)
        self._found_old |= pruned.more or pruned.removed > 0
        if pruned.more:
            fits = int(batch * PRUNE_TIME / max(took, 0.000_1))
            least = batch * 2 if took < QUICK else batch  # below the lower bound only after failures
            self._batch = min(max(fits, min(least, PRUNE_BATCH[0])), PRUNE_BATCH[1])
        if pruned.more and pruned.removed:
            return  # go on with the same jobs; if other transactions have all of them locked, come back later
        self._pruned_up_to = pruned.up_to or JobId(0)
        if not self._pruned_up_to:
            self._forget(ledger, wall - options.keep_for, boottime())

    def _forget(self, ledger: Ledger, before: Instant, began_at: float) -> None:
        """The end of a pass: forget jobs that were removed so long ago and that no live node defines, and actions
        and alerts as old as the keys that are forgotten."""
        application, options = self._context.application, self._context.options
        keys_before = before + options.keep_for - options.keep_keys
        actions = ledger.forget_actions(application, before=keys_before, keep=ACTIONS, limit=ACTION_BATCH)
        alerts = ledger.forget_alerts(application, before=keys_before, limit=ALERT_BATCH)
        backfills = ledger.forget_backfills(application, before=keys_before, limit=BACKFILL_BATCH)
        live = {function for node in ledger.nodes(application) for function in node.functions}
        forgotten = ledger.forget(application, before=before, defined=live, limit=FORGET_BATCH)
        now = boottime()
        if forgotten.more or actions >= ACTION_BATCH or alerts >= ALERT_BATCH or backfills >= BACKFILL_BATCH:
            self._context.agenda.at(Step.PRUNE, now + (now - began_at))
            return
        self._timer.rest(now + (PRUNE_SOON if self._found_old or forgotten.jobs > 0 else PRUNE_EVERY))
        self._found_old = False
