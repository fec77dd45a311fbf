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

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tenure.core.arguments import TAG, decode
from tenure.core.attention import LIMIT, concerns
from tenure.core.causes import Cause
from tenure.core.coverage import Coverage
from tenure.core.messages import LaneJob
from tenure.core.records import NodeFacts
from tenure.errors import ConfigurationError
from tenure.events import JobOrphaned, JobServed, OrphanEvent
from tenure.jobs.functions import bind_names, bind_values
from tenure.scheduling.agenda import Step
from tenure.scheduling.context import LoopContext
from tenure.scheduling.reporting import Reporter
from tenure.stores.ledger import Ledger
from tenure.util.clock import boottime
from tenure.util.plurals import counted

logger = logging.getLogger("tenure")

QUIET, AT_MOST = 10.0, 40.0
"""Look when the facts have not changed for `QUIET` seconds; `AT_MOST` seconds after a change in any case."""
SLICE, SLICE_TIME = (100, 2000), 0.01
"""How many jobs are looked at at once: within these bounds, as many as take `SLICE_TIME`, because claims wait."""
WAITS = 0.03
"""Seconds for which a slice may be put off because a claim is due before it would end."""
NAMED = 5
"""How many jobs a line names."""
FUNCTIONS = 20
"""How many functions with unfit arguments have a line of their own."""
TOLD = 100
"""How many events one look may bring of each kind."""
ASSUMED = 60.0
"""After so many seconds a node that does not plan assumes that the planner has told what both have seen."""


@dataclass(slots=True)
class _Unfit:
    """The jobs of one function whose arguments do not fit."""

    problem: str
    surely: bool
    """True if the function cannot be called with them; False if they have other types than it declares."""
    names: list[str] = field(default_factory=list)
    count: int = 0


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
        self._size, self._not_after = SLICE[0], 0.0
        self._verdicts: dict[tuple[str, frozenset[str]], str] = {}
        self._unfit: dict[tuple[str, bool], _Unfit] = {}

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
        claims_at = self._agenda.due(Step.CLAIM)
        if claims_at < began_at + SLICE_TIME and began_at < self._not_after:
            self._agenda.at(Step.CHECK, max(claims_at, began_at))
            return
        if self._pending:
            self._pending = False
            self._look(ledger)
            self._mine = frozenset(name for name in self._context.registry.names if self._is_mine(name))
            self._after = "" if self._mine else None
            self._verdicts, self._unfit = {}, {}
        elif self._after is not None:
            self._slice(ledger)
        now = boottime()
        took = now - began_at
        self._not_after = now + took + WAITS
        self._agenda.at(Step.CHECK, now + took if self._after is not None else math.inf)

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
        for one in stored:
            if one.function in self._mine and (found := self._problem(one.function, one.kwargs)) is not None:
                unfit = self._unfit.setdefault((one.function, found.surely), found)
                unfit.count += 1
                if len(unfit.names) < NAMED:
                    unfit.names.append(one.name)
        fits = int(self._size * SLICE_TIME / max(boottime() - began_at, 0.000_1))
        full, self._after = len(stored) == self._size, stored[-1].name if stored else None
        self._size = min(max(fits, SLICE[0]), SLICE[1])
        if not full:
            self._after = None
            self._warn()

    def _problem(self, name: str, kwargs: str) -> _Unfit | None:
        """Why these arguments do not fit, by the same rule as where they are written; None if they do."""
        try:
            given = json.loads(kwargs) if TAG not in kwargs else decode(kwargs)
            names = frozenset(given)
        except (ValueError, TypeError, RecursionError) as error:
            return _Unfit(f"The arguments cannot be read: {error}", surely=True)
        if not isinstance(given, dict):
            return _Unfit(f"The arguments cannot be read: {kwargs:.80} is no JSON object.", surely=True)
        function = self._context.registry.get(name)
        if function is None:
            return None
        if (name, names) not in self._verdicts:
            said = ""
            try:
                bind_names(function, dict.fromkeys(names))
            except ConfigurationError as error:
                said = str(error)
            if len(self._verdicts) >= LIMIT:
                self._verdicts.clear()
            self._verdicts[name, names] = said
        if said := self._verdicts[name, names]:
            return _Unfit(said, surely=True)
        try:
            bind_values(function, given)
        except ConfigurationError as error:
            return _Unfit(str(error), surely=False)
        return None

    def _warn(self) -> None:
        for number, ((function, surely), unfit) in enumerate(self._unfit.items()):
            if number == FUNCTIONS:
                logger.warning(
                    "%s of %s more have arguments that do not fit",
                    counted(sum(one.count for one in [*self._unfit.values()][FUNCTIONS:]), "job"),
                    counted(len(self._unfit) - FUNCTIONS, "function"),
                    extra={"action": "unfit_arguments"},
                )
                return
            more = unfit.count - len(unfit.names)
            names = ", ".join(unfit.names) + (f" and {more} more" if more else "")
            logger.warning(
                "%s %s arguments that %r does not take, so %s: %s. %s",
                counted(unfit.count, "stored job"),
                "has" if unfit.count == 1 else "have",
                function,
                "the runs will fail" if surely else "the runs may fail",
                names,
                unfit.problem,
                extra={"action": "unfit_arguments", "jobs": tuple(unfit.names)},
            )
        self._unfit = {}
