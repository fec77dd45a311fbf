"""Resolves missed due times (misfires): they are made up for or skipped, as the policy of their job says."""

from __future__ import annotations

import math

from tenure.core.database_clock import DOUBT, JUMP
from tenure.core.planning import settle
from tenure.scheduling.agenda import Step
from tenure.scheduling.context import LoopContext
from tenure.scheduling.reporting import Reporter
from tenure.stores.ledger import Ledger
from tenure.util.clock import boottime

MISSED_BATCH = 50
"""How many jobs are resolved in one turn."""


class MissedResolver:
    """Due when a claim has said that something was missed."""

    def __init__(self, context: LoopContext, reporter: Reporter) -> None:
        self._context, self._reporter = context, reporter
        context.agenda.at(Step.RESOLVE_MISSED, math.inf)

    def resolve(self, ledger: Ledger) -> None:
        """Decide for each job that missed due times, and claim at once what is made up for."""
        context, agenda, clock = self._context, self._context.agenda, self._context.clock
        agenda.at(Step.RESOLVE_MISSED, math.inf)
        now = clock.now(boottime())
        sure = context.plans or boottime() >= clock.believed_since + DOUBT[1]
        since = 0.0 if sure else clock.now(clock.believed_since) - JUMP
        for job in ledger.missed(context.application, MISSED_BATCH, context.registry.names):
            if job.runs[-1].scheduled_for + job.rules.on_time < since:
                continue  # missed before this node's estimate of the clock settled: leave it to the planner
            verdict = settle(job, now=now)
            if ledger.settle(job.id, job.generation, make_up=verdict.make_up, skip=verdict.skip, reason=verdict.reason):
                self._reporter.missed(job, verdict)
                if verdict.make_up:
                    agenda.soon(Step.CLAIM)
                if verdict.skip:
                    agenda.soon(Step.FOLLOW)
