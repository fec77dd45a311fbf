"""Warns after a deploy of stored jobs that no longer fit the code of the live nodes.

Nodes write down which functions they have, and a digest of what these take. When that has changed, and then not for
`QUIET` seconds (during a rolling deploy: `AT_MOST` after the first change), this step looks at what is stored:

  the planner    jobs that no live node can run, and jobs that were removed by hand although code defines them
  for arguments  only a node that has a function can tell whether arguments fit. For each function that is the planner
                 if it has it, else the live node of the newest release that has it, and of these the one with the
                 least id. All nodes know the facts, so they agree without asking each other.

It goes through the jobs, and then through the runs that were requested with arguments of their own, in slices, and
claims come first. It remembers some names and counts the rest. What does not fit is written into the facts of the node,
where `status`, `audit` and `why` read it. While something does not fit, the node looks again from time to time, so that
what was put right disappears; and it looks when a function is its to check that was another node's.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

from tenure.core.attention import LIMIT, concerns
from tenure.core.causes import Cause
from tenure.core.cluster import NodeId
from tenure.core.coverage import Coverage
from tenure.core.messages import LaneJob
from tenure.core.records import NodeFacts, RunId
from tenure.core.unfit import NAMED
from tenure.events import JobOrphaned, JobServed, OrphanEvent
from tenure.jobs.stored_arguments import ArgumentCheck
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
"""How many functions with unfit arguments have a line of their own, and are kept."""
AGAIN, REST = 30.0, 20.0
"""Seconds between two looks while something does not fit, and so many times as long as the last look took."""
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
        self._ids: frozenset[tuple[NodeId, bool]] = frozenset()
        self._after: str | RunId | None = None
        """The job or the run after which the next slice begins; None: no pass is under way."""
        self._size, self._took = SLICE[0], 0.0
        self._timer = SliceTimer(context.agenda, Step.CHECK, SLICE_TIME)
        self._arguments = ArgumentCheck(context.registry)
        self._told: frozenset[tuple[str, bool]] = frozenset()
        """Of which functions the log has told since the last deploy."""

    def learned(self, nodes: Sequence[NodeFacts]) -> None:
        """These are the facts of the live nodes. Look at the jobs soon if they tell of a deploy."""
        self._nodes = nodes
        facts = frozenset((node.functions, node.queues, node.release, node.signatures) for node in nodes)
        began_to_plan = self._context.plans and not self._planned
        now, ids = boottime(), frozenset((node.node, node.plans) for node in nodes)
        if facts == self._facts and not began_to_plan:
            if ids != self._ids and self._after is None:
                self._ids = ids
                if self._having() != self._mine:
                    self._agenda.by(Step.CHECK, now + QUIET)
            return
        self._ids = ids
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
            self._pending, self._told = False, frozenset()
            self._look(ledger)
            self._begin()
        elif self._after is not None:
            self._slice(ledger)
        else:
            self._begin()
        self._took += self._timer.worked(began_at)
        if self._after is None:
            again = boottime() + max(AGAIN, REST * self._took) if self._context.unfit else math.inf
            self._agenda.at(Step.CHECK, again)

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
            if concern.cause not in {Cause.NO_PLANNER, Cause.ARGUMENTS}:
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

    def _begin(self) -> None:
        """Begin a pass."""
        self._mine, self._after, self._took = self._having(), "", 0.0
        self._arguments = ArgumentCheck(self._context.registry)
        if not self._mine:
            self._end()

    def _having(self) -> frozenset[str]:
        """The functions that are this node's to check."""
        return frozenset(name for name in self._context.registry.names if self._is_mine(name))

    def _is_mine(self, function: str) -> bool:
        having = [node for node in self._nodes if function in node.functions]
        if not having:
            return False
        return min(having, key=lambda node: (not node.plans, -node.release, node.node)).node == self._context.identity

    def _slice(self, ledger: Ledger) -> None:
        began_at, application = boottime(), self._context.application
        if isinstance(self._after, str):
            stored = ledger.stored_arguments(application, self._after, self._size)
        else:
            stored = ledger.requested_arguments(application, self._after or RunId(0), self._size)
        self._arguments.look(one for one in stored if one.function in self._mine)
        fits = int(self._size * SLICE_TIME / max(boottime() - began_at, 0.000_1))
        full, was = len(stored) == self._size, self._after
        self._size = min(max(fits, SLICE[0]), SLICE[1])
        if full:
            self._after = stored[-1].name if stored[-1].run is None else stored[-1].run
        elif isinstance(was, str):
            self._after = RunId(0)
        else:
            self._end()

    def _end(self) -> None:
        """The pass has seen all: log what is new, and write it into the facts of this node."""
        self._after = None
        found = sorted(self._arguments.found(), key=lambda one: (not one.surely, one.function))
        new = [one for one in found if (one.function, one.surely) not in self._told]
        self._told |= {(one.function, one.surely) for one in new}
        for unfit in new[:FUNCTIONS]:
            logger.warning("%s", unfit.text, extra={"action": "unfit_arguments", "jobs": unfit.named})
        if rest := new[FUNCTIONS:]:
            logger.warning(
                "%s of %s more have arguments that do not fit",
                counted(sum(one.jobs + one.runs for one in rest), "job"),
                counted(len(rest), "function"),
                extra={"action": "unfit_arguments"},
            )
        self._arguments = ArgumentCheck(self._context.registry)
        if (kept := tuple(found[:FUNCTIONS])) != self._context.unfit:
            self._context.unfit = kept
            self._agenda.soon(Step.LEARN)
