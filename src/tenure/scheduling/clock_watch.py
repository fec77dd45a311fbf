"""Feeds the database's time to the node's estimate of it, and reacts when it jumps or differs from the host's."""

from __future__ import annotations

import logging

from tenure.core.records import Instant
from tenure.scheduling.agenda import Step
from tenure.scheduling.context import LoopContext
from tenure.scheduling.planner import Planner
from tenure.util.clock import boottime, walltime

logger = logging.getLogger("tenure")


class ClockWatch:
    """Every answer of the ledger that carries its time goes through `observe`."""

    def __init__(self, context: LoopContext, planner: Planner) -> None:
        self._agenda, self._clock, self._planner = context.agenda, context.clock, planner

    def observe(self, now: Instant, sent_at: float) -> bool:
        """Learn the ledger's time. True if it has just jumped and is not believed."""
        first, doubted, since = not self._clock.known, self._clock.doubts, self._clock.believed_since
        wall = walltime().timestamp() if first else None
        jump = self._clock.observe(now, sent_at, boottime(), wall)
        if jump:
            logger.error(
                "the database clock jumped by %+.0f s; tenure keeps to the old time for a while. Check that server.",
                jump,
                extra={"action": "clock_jumped"},
            )
        if wall is not None and boottime() < self._clock.suspect_until:
            logger.warning(
                "the database clock is %+.0f s off this host's clock. Due times follow the database.",
                now - wall,
                extra={"action": "clocks_differ"},
            )
            # The sync at the start has written what the first seconds need.
            self._agenda.at(Step.PLAN, self._clock.suspect_until)
        returned = doubted and not self._clock.doubts
        if returned or (not first and self._clock.believed_since != since):  # there is another time now
            self._planner.replan_soon()
        return bool(jump)
