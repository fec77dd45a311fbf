"""Gives jobs that follow others the runs that they are owed. Carries G4.

Any node may do this, for all jobs of the application. Usually it is the one that ended the run of the parent; the
others hear of what is owed when they reconcile.
"""

from __future__ import annotations

import math

from tenure.scheduling.agenda import Step
from tenure.scheduling.context import LoopContext
from tenure.stores.ledger import Ledger

FOLLOW_BATCH = 500
"""How many runs of each parent are followed up at once."""


class FollowUp:
    """Due when a run is over that owes followers."""

    def __init__(self, context: LoopContext) -> None:
        self._context = context

    def follow_up(self, ledger: Ledger) -> None:
        """Pay what is owed, and claim at once what can begin. What is locked is tried again after the next
        reconciliation."""
        agenda = self._context.agenda
        agenda.at(Step.FOLLOW, math.inf)
        done = ledger.follow_up(self._context.application, FOLLOW_BATCH)
        if done.more:
            agenda.soon(Step.FOLLOW)
        if done.begins:
            agenda.soon(Step.CLAIM)
