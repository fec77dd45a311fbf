"""Gives jobs that follow others the runs that they are owed. Carries G4.

Any node may do this, for all jobs of the application. Usually it is the one that ended the run of the parent; the
others hear of what is owed when they reconcile.
"""

from __future__ import annotations

import math

from tenure.errors import StoreError
from tenure.scheduling.agenda import Step
from tenure.scheduling.context import LoopContext
from tenure.stores.ledger import FIRST, Ledger
from tenure.util.batch_size import BatchSize
from tenure.util.clock import boottime

FOLLOW_BATCH = 500
"""How many runs of parents are followed up at once."""
REST = 5.0
"""After a failure, seconds until the next attempt: a failure ends the turn, and claims come later in it."""


class FollowUp:
    """Due when a run is over that owes followers."""

    def __init__(self, context: LoopContext) -> None:
        self._context = context
        self._size = BatchSize(FOLLOW_BATCH)
        self._beyond, self._more = FIRST, False
        """Where the next page begins, and whether something is left to do on those before it."""
        self._rests_until = 0.0

    def follow_up(self, ledger: Ledger) -> None:
        """Pay a page of what is owed, and claim at once what can begin. What is locked is tried again after the next
        reconciliation."""
        agenda, clock, sent_at, limit = self._context.agenda, self._context.clock, boottime(), self._size.now
        if sent_at < self._rests_until:
            agenda.at(Step.FOLLOW, self._rests_until)
            return
        agenda.at(Step.FOLLOW, math.inf)
        as_of = clock.now(sent_at) if clock.known else None  # always: the database's clock may have jumped just now
        try:
            done = ledger.follow_up(self._context.application, limit, beyond=self._beyond, as_of=as_of)
        except (StoreError, OSError):
            self._size.failed(limit)
            self._rests_until = boottime() + REST
            raise
        self._size.worked(boottime() - sent_at)
        self._more |= done.more
        if done.up_to is not None or self._more:
            agenda.soon(Step.FOLLOW)
        if done.up_to is None:
            self._more = False
        self._beyond = FIRST if done.up_to is None else done.up_to
        if done.begins:
            agenda.soon(Step.CLAIM)
