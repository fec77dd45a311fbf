"""Warns after a deploy of stored jobs that no longer fit the code of the live nodes.

Nodes write down which functions they have, and a digest of what these take. When that has changed, and then not for
`QUIET` seconds (during a rolling deploy: `AT_MOST` after the first change), this step looks at what is stored:

  the planner    jobs that no live node can run, and jobs that were removed by hand although code defines them
  for arguments  only a node that has a function can tell whether arguments fit. For each function that is the planner
                 if it has it, else the live node of the newest release that has it, and of these the one with the
                 least id. All nodes know the facts, so they agree without asking each other.

It goes through the jobs in slices, and claims come first. It remembers some names and counts the rest.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

from tenure.core.attention import LIMIT, concerns
from tenure.core.causes import Cause
from tenure.core.coverage import Coverage
from tenure.core.messages import LaneJob
from tenure.core.records import NodeFacts
from tenure.events import JobOrphaned, JobServed, OrphanEvent
from tenure.jobs.stored_arguments import NAMED, ArgumentCheck
from tenure.scheduling.agenda import Step
from tenure.scheduling.context import LoopContext
from tenure.scheduling.reporting import Reporter
from tenure.scheduling.slices import SliceTimer
from tenure.stores.ledger import Ledger
from tenure.util.clock import boottime
from tenure.util.plurals import counted

logger = logging.getLogger("tenure")

QUIET, AT_MOST = 10.0, 40.0
"""Look when the facts have not changed for `QUIET` seconds; `AT_MOST` seconds after a change in any case."""
SLICE, SLICE_TIME = (100, 2000), 0.01
"""How many jobs are looked at at once: within these bounds, as many as take `SLICE_TIME`, because claims wait."""
FUNCTIONS = 20
"""How many functions with unfit arguments have a line of their own."""
TOLD = 100
"""How many events one look may bring of each kind."""
ASSUMED = 60.0
"""Seconds after which a node that does not plan assumes that the planner has told what both have seen."""


class DeployCheck:
    """One node's part of it."""

    def __init__(self, context: LoopContext, reporter: Reporter) -> None:
        self._context, self._reporter, self._agenda = context, reporter, context.agenda
        self._agenda.at(Step.CHECK, math.inf)
        self._nodes: Sequence[NodeFacts] = ()
        self._facts: object = None
        self._first_change, self._pending, self._planned = math.inf, False, False
        self._orphans: dict[str, LaneJob] | None = None
        """The orphaned jobs of which listeners have been told."""
        self._seen: tuple[dict[str, LaneJob], float] | None = None
        self._mine: frozenset[str] = frozenset()
        self._after: str | None = None
        """Where the next slice begins; None: no pass is under way."""
        self._size = SLICE[0]
        self._timer = SliceTimer(context.agenda, Step.CHECK, SLICE_TIME)
        self._arguments = ArgumentCheck(context.registry)

    def learned(self, nodes: Sequence[NodeFacts]) -> None:
        """These are the facts of the live nodes. Look at the jobs soon if they tell of a deploy."""
        self._nodes = nodes
        facts = frozenset((node.functions, node.queues, node.release, node.signatures) for node in nodes)
        began_to_plan = self._context.plans and not self._planned
        if facts == self._facts and not began_to_plan:
            return
        now = boottime()
        self._facts, self._planned = facts, self._planned or self._context.plans
        if not self._pending:
            self._pending, self._first_change = True, now
        self._agenda.at(Step.CHECK, min(now + QUIET, self._first_change + AT_MOST))

    def check(self, ledger: Ledger) -> None:
        """Look at the stored jobs, or at the next slice of them."""
        began_at = boottime()
        if self._timer.put_off(began_at):
            return
        if self._pending:
            self._pending = False
            self._look(ledger)
            self._mine = frozenset(name for name in self._context.registry.names if self._is_mine(name))
            self._after = "" if self._mine else None
            self._arguments = ArgumentCheck(self._context.registry)
        elif self._after is not None:
            self._slice(ledger)
        self._timer.worked(began_at)
        if self._after is None:
            self._agenda.at(Step.CHECK, math.inf)

    # Orphaned and removed jobs

    def _look(self, ledger: Ledger) -> None:
        application = self._context.application
        coverage = Coverage(application, self._nodes)
        found = ledger.unserved(application, coverage.served, LIMIT)
        now, orphans = boottime(), {job.name: job for job in found}
        if not self._context.plans:
            if self._orphans is None:
                self._orphans = orphans
            self._seen = orphans, now + ASSUMED
            return
        removed = [job for job in ledger.removed(application) if coverage.has(job.spec.function)]
        for concern in concerns(coverage, found, (), removed):
            if concern.cause is not Cause.NO_PLANNER:
                action = "removed_but_defined" if concern.cause is Cause.REMOVED else "orphaned"
                logger.warning("%s", concern.text, extra={"action": action, "jobs": concern.jobs[:NAMED]})
        if self._seen is not None and now > self._seen[1]:
            self._orphans = self._seen[0]
        self._tell(coverage, self._orphans or {}, orphans)
        self._orphans, self._seen = orphans, None

    def _tell(self, coverage: Coverage, before: dict[str, LaneJob], after: dict[str, LaneJob]) -> None:
        label = self._context.node.label
        events: list[OrphanEvent] = []
        for job in [job for name, job in after.items() if name not in before][:TOLD]:
            gap = coverage.gap(job.function, job.queue)
            if gap is not None:
                events.append(JobOrphaned(job.name, job.function, job.queue, label, gap.cause.value, gap.text))
        if len(after) < LIMIT:  # else those that are missing may only be beyond the limit
            served = [job for name, job in before.items() if name not in after]
            events += [JobServed(job.name, job.function, job.queue, label) for job in served[:TOLD]]
        for event in events:
            self._reporter.job(event)

    # Arguments

    def _is_mine(self, function: str) -> bool:
        having = [node for node in self._nodes if function in node.functions]
        if not having:
            return False
        return min(having, key=lambda node: (not node.plans, -node.release, node.node)).node == self._context.identity

    def _slice(self, ledger: Ledger) -> None:
        began_at = boottime()
        stored = ledger.stored_arguments(self._context.application, self._after or "", self._size)
        self._arguments.look(one for one in stored if one.function in self._mine)
        fits = int(self._size * SLICE_TIME / max(boottime() - began_at, 0.000_1))
        full, self._after = len(stored) == self._size, stored[-1].name if stored else None
        self._size = min(max(fits, SLICE[0]), SLICE[1])
        if not full:
            self._after = None
            self._warn()

    def _warn(self) -> None:
        found = list(self._arguments.found())
        for unfit in found[:FUNCTIONS]:
            extra = {"action": "unfit_arguments", "jobs": tuple(unfit.names)}
            logger.warning("%s", unfit.text, extra=extra)
        if rest := found[FUNCTIONS:]:
            logger.warning(
                "%s of %s more have arguments that do not fit",
                counted(sum(one.count for one in rest), "job"),
                counted(len(rest), "function"),
                extra={"action": "unfit_arguments"},
            )
        self._arguments = ArgumentCheck(self._context.registry)
