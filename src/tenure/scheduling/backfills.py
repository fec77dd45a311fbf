"""Takes the next steps of backfills: notes how their runs ended, and requests the next ones. Carries G4.

Any node may do this, for all backfills of the application. Usually it is the one that ended a run of a backfill; the
planner looks now and then, for what other nodes have left undone.
"""

from __future__ import annotations

from tenure.scheduling.agenda import Step
from tenure.scheduling.context import LoopContext
from tenure.stores.ledger import Ledger
from tenure.util.clock import boottime

ADVANCE_EVERY = 5.0
"""Seconds between two looks of the planner."""
ADVANCE_BATCH = 200
"""How many due times of each backfill one step settles, and how many it requests."""
ADVANCE_AGAIN = 0.05
"""Seconds until the next step if this one could not do everything, doubled each time while others hold the locks, up to
`ADVANCE_EVERY`: a user's transaction may stay open for long."""


class BackfillStep:
    """Due when a run has ended that a backfill may have requested."""

    def __init__(self, context: LoopContext) -> None:
        self._context = context
        self._ended = False
        """A run has ended here that a backfill may have requested."""
        self._in_vain = ADVANCE_AGAIN

    def hear(self) -> None:
        """Such a run has ended here."""
        self._ended = True
        self._context.agenda.soon(Step.BACKFILL)

    def advance(self, ledger: Ledger) -> None:
        """Settle what is over, and request the next runs."""
        agenda, clock, began_at = self._context.agenda, self._context.clock, boottime()
        agenda.at(Step.BACKFILL, began_at + ADVANCE_EVERY, wake=False)
        if not self._ended and not self._context.plans:
            return
        self._ended = False
        as_of = clock.now(began_at) if clock.known else None  # always: the database's clock may have jumped just now
        done = ledger.advance_backfills(self._context.application, ADVANCE_BATCH, as_of=as_of)
        vain = done.held and not done.more
        if done.more or done.held:
            self._ended = True
            agenda.at(Step.BACKFILL, boottime() + (self._in_vain if vain else ADVANCE_AGAIN))
        self._in_vain = min(self._in_vain * 2, ADVANCE_EVERY) if vain else ADVANCE_AGAIN
        if done.begins:
            agenda.soon(Step.CLAIM)
