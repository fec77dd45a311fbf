"""Writes due times ahead for all jobs of an application. Carries G6: the death of a planner delays nothing.

The planner, an elected node, plans every job whose function some live node has, whether or not it has that function
itself. Any other node plans what is due within seconds and not planned yet. The facts that nodes write down decide
who can plan what:

  functions   A job whose function no live node has is not planned. Its due times are missed, and resolved when such
              a node comes.
  zone rules  A job written with newer zone rules is left to a node that has them. If no live node has them, the
              newest one plans it and says so. Once the job is overdue, any node plans it. A job that other zone rules
              have planned is replanned first.
  library     A row that only a newer library can read is never guessed at.

After a jump of the clock nodes may disagree about the time, and the planner's time counts. So a node that is not the
planner leaves alone what is overdue by more than `JUMP`, until it has believed its clock for `DOUBT[1]`, or if the
planner's library is older.
"""

from __future__ import annotations

import logging
import math
import socket
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tenure.core.cluster import NodeId
from tenure.core.database_clock import DOUBT, JUMP
from tenure.core.messages import JobChange, NewRun, Planned, RunQuery, Unplanned
from tenure.core.planning import LOOK_AHEAD, ahead, leapt, plan, reading_of, resumed_at
from tenure.core.records import (
    ANEW,
    MISSED_WINDOW,
    Change,
    Instant,
    JobId,
    JobRow,
    JobState,
    NodeFacts,
    Rules,
    RunState,
)
from tenure.core.trigger_text import trigger_of
from tenure.errors import ConfigurationError, StoreError, TenureError
from tenure.scheduling.agenda import Step
from tenure.scheduling.context import LoopContext
from tenure.stores.ledger import Ledger
from tenure.triggers import Trigger, tzdata_version
from tenure.util.clock import boottime, walltime
from tenure.util.version import __version__, order

logger = logging.getLogger("tenure")

REFILL = 5.2
"""The planner visits a job when less than this many seconds are planned ahead."""
UNATTENDED = 3.0
"""Any node plans a due time that is this near and not planned."""
OVERDUE = 2.0
"""Any node plans a due time that is this late and not planned, whatever zone rules it has."""
PLAN_EVERY = 1.0
PLAN_BATCH, PLAN_TIME = (10, 300), 0.004
"""How many jobs are planned at once: within these bounds, as many as take `PLAN_TIME`, because claims wait."""
PLAN_BURST = 0.05
"""After this many seconds write what is planned, however little, and let claims have their turn."""
REPLAN_BATCH = 100
REPLAN_EVERY, REPLAN_FOR = 30.0, 400.0
"""After a clock jump the planner looks for postponed jobs every 30 s for 400 s, until all nodes know the right time."""
ANEW_BATCH = 100
"""How many jobs are replanned at once after a change of the zone rules."""
CALM = 0.1
"""If nothing is due for this many seconds, more may be planned at once."""
MARGIN = 60.0
"""A `next_due` is at most this much further beyond the look-ahead than the next due time."""
NAMED = 5
"""How many jobs a note names."""
OFFSET_STEP = 1.0
"""By how many seconds the host's clock must have moved against the database's before a node writes that down again."""
REMEMBERED = 10_000
"""How many jobs that cannot be planned here are remembered."""


_Ahead = tuple[Instant | None, tuple[NewRun, ...]]
"""The first due time that is not written, and the runs before it."""


class Planner:
    """What a node knows of who can plan what, and what it plans itself."""

    def __init__(self, context: LoopContext) -> None:
        self._context, self._agenda, self._clock = context, context.agenda, context.clock
        self._application = context.application
        self._agenda.at(Step.REPLAN, math.inf)
        self._written: NodeFacts | None = None
        self.live: Sequence[NodeFacts] = ()
        """The facts of the live nodes, as of the last look; this node among them."""
        self._absent: tuple[str, ...] = ()
        self._zones = ""
        self._stands_in = False
        self._batch = PLAN_BATCH[0]
        self._planned_before = False
        self._replans_until = 0.0
        self._replanned: tuple[Instant, JobId] = (0.0, JobId(0))
        self.learns_on = False
        """Time was up before all jobs that other zone rules have planned were replanned."""
        self._gone_over: set[JobId] = set()
        self._refused: dict[tuple[JobId, int], str] = {}
        self._behind = 0
        self._tzdata = ""
        self._warned: set[str] = set()
        self._older = ""
        self._overdue: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Human-readable notes on jobs that are planned by old zone rules, or not at all."""
        return (self._older, *self._overdue) if self._older else self._overdue

    # Who can plan what

    def learn(self, ledger: Ledger, node: NodeId, functions: frozenset[str]) -> None:
        """Write this node's facts if they changed, and read those of the others. `functions`: those that jobs name."""
        mine = self._facts(node)
        if mine != self._written:
            ledger.write_facts(mine)
            self._written = mine
        others = self.live = ledger.nodes(self._application)
        present = mine.functions.union(*(facts.functions for facts in others))
        self._absent = tuple(sorted(functions - present))
        # Only nodes count that can read what this node can read.
        able = [facts.tzdata for facts in others if order(facts.library) >= order(mine.library)]
        self._zones = "" if mine.tzdata >= max(able, default="") else mine.tzdata
        self._stands_in = any(facts.plans and order(facts.library) < order(mine.library) for facts in others)
        self._tzdata, self.learns_on = mine.tzdata, False
        if not self._zones and (
            self._context.plans or not any(facts.plans and facts.tzdata == mine.tzdata for facts in others)
        ):
            self._go_over(ledger)
        self._older = _older(ledger.planned_by_older(self._application, NAMED + 1))

    def _facts(self, node: NodeId) -> NodeFacts:
        options, functions = self._context.options, frozenset(self._context.registry.names)
        return NodeFacts(
            node,
            self._application,
            functions,
            options.queues,
            options.capacity,
            options.release,
            __version__,
            tzdata_version(),
            socket.gethostname(),
            self._context.registry.signatures,
            self._clock_offset(),
            self._context.unfit,
        )

    def _clock_offset(self) -> float | None:
        """How far this machine's clock is ahead of the database's. It is written again only if it has moved much."""
        before = None if self._written is None else self._written.clock_offset
        if not self._clock.known or self._clock.doubts:
            return before
        offset = walltime().timestamp() - self._clock.now(boottime())
        return before if before is not None and abs(offset - before) < OFFSET_STEP else round(offset, 1)

    def forget(self, ledger: Ledger) -> None:
        """This node takes no further part."""
        if self._written is not None:
            ledger.remove_facts(self._written.node, self._application)
            self._written = None

    # Planning

    def plan(self, ledger: Ledger) -> None:
        """Plan what is not planned yet, and claim when the first of the runs that were written is due."""
        soonest = self._plan_some(ledger, calm=self._agenda.due(Step.CLAIM) > boottime() + CALM)
        if soonest is not None:
            self._agenda.by(Step.CLAIM, self._clock.at(soonest))

    def _plan_some(self, ledger: Ledger, *, calm: bool) -> Instant | None:
        """Returns when the first of the runs that were written is due."""
        began_at = boottime()
        now = self._clock.now(began_at)
        leads = self._context.plans
        if leads and not self._planned_before:
            self.replan_soon()
        self._planned_before = leads
        limit = PLAN_BATCH[1] if calm else self._batch
        found = ledger.unplanned(
            self._application,
            before=now + (REFILL if leads else UNATTENDED),
            limit=limit + len(self._refused) + self._behind,  # these must not take the places of the others
            strangers=self._absent,
            tzdata=self._zones,
            overdue=now - OVERDUE,
        )
        ends_at = boottime() + PLAN_BURST
        behind = {job.id for job in found if job.next_due is not None and job.next_due < now - MISSED_WINDOW}
        self._behind = len(behind)
        jobs = sorted(self._plannable(found), key=lambda job: job.id in behind)[:limit]
        self._overdue = (*ledger.unreadable, *self._refusals(found, now - OVERDUE))
        batch: list[Planned] = []
        soonest, seen, changed, refused = math.inf, 0, 0, len(self._refused)
        for job in jobs:
            late = boottime() >= ends_at
            if late and (batch or changed or len(self._refused) != refused):
                break
            seen += 1
            if self._for_others(job, now, leads=leads):
                continue
            try:
                trigger = trigger_of(job.trigger) if job.trigger else None
                if job.resumes:
                    changed += self._resume(ledger, job, trigger, now)
                    soonest = now
                elif trigger is None:
                    pass
                elif self._of_other_rules(job.next_reading):
                    if not late:  # else jobs that can be planned come first: nothing has changed so far
                        changed += self._plan_anew(ledger, job.name, now)
                        soonest = now
                elif planned := plan(job, trigger, application=self._application, now=now, horizon=now + LOOK_AHEAD):
                    batch.append(planned)
            except (StoreError, OSError):
                raise
            except Exception as error:  # whatever a row says, the other jobs go on
                self._refuse(job, error)
        written = ledger.plan(batch) if batch else 0
        if written:
            soonest = min(soonest, min((run.due_at for planned in batch for run in planned.runs), default=math.inf))
        more = (len(jobs) == limit or seen < len(jobs)) and (written or changed or len(self._refused) != refused)
        every = PLAN_EVERY if leads else self._context.every
        self._agenda.at(Step.PLAN, boottime() if more else began_at + every)
        if more:
            self._pace(seen, boottime() - began_at)
        return None if soonest == math.inf else soonest

    def _for_others(self, job: Unplanned, now: Instant, *, leads: bool) -> bool:
        """Whether to leave this to a node that knows the time better: nodes may disagree after a jump of the clock."""
        if job.resumes:
            return self._clock.doubts  # the ledger says so by its own clock
        if leads or self._stands_in or job.next_due is None or job.next_due >= now - JUMP:
            return False
        return boottime() < self._clock.believed_since + DOUBT[1]

    def _pace(self, planned: int, took: float) -> None:
        """Plan as many at once as do not hold up claims."""
        fits = int(planned * PLAN_TIME / max(took, 0.000_1))
        self._batch = min(max(fits, PLAN_BATCH[0]), PLAN_BATCH[1])

    def _plannable(self, jobs: Sequence[Unplanned]) -> list[Unplanned]:
        return [job for job in jobs if (job.id, job.generation) not in self._refused]

    def _refuse(self, job: Unplanned, error: Exception) -> None:
        """Leave this job alone until it is changed, and log that: its row is readable, but yields no due time."""
        why = str(error) if isinstance(error, TenureError) else f"{type(error).__name__}: {error}"
        if len(self._refused) >= REMEMBERED:
            self._refused.clear()
        self._refused[job.id, job.generation] = why
        logger.error("job %r cannot be planned here: %s", job.name, why, extra={"action": "job_unreadable"})

    def _refusals(self, jobs: Sequence[Unplanned], overdue: Instant) -> Iterator[str]:
        for job in jobs:
            why = self._refused.get((job.id, job.generation))
            if why is not None and job.next_due is not None and job.next_due < overdue:
                yield f"job {job.name!r} is overdue and cannot be planned here: {why}"

    def _resume(self, ledger: Ledger, job: Unplanned, trigger: Trigger | None, now: Instant) -> bool:
        """End a pause. A job without a trigger has only requested runs. False if another node changed it first."""
        next_due, runs = (None, ()) if trigger is None else self._ahead(trigger, job.rules, job.name, now)
        row = ledger.change(
            JobChange(
                self._application,
                job.name,
                Change.RESUMED,
                next_due=next_due,
                runs=runs,
                why="the pause is over",
                generation=job.generation,
                next_reading=reading_of(trigger, next_due),
            )
        )
        return row is not None and row.generation != job.generation

    # What other zone rules have planned

    def _of_other_rules(self, reading: str | None) -> bool:
        return reading is not None and reading.partition("@")[0] != self._tzdata

    def _go_over(self, ledger: Ledger) -> None:
        """Replan what other zone rules have planned."""
        now = self._clock.now(boottime()) if self._clock.known and not self._clock.doubts else None
        if now is None:
            return
        jobs = ledger.planned_by_others(self._application, self._tzdata, ANEW_BATCH)
        ends_at = boottime() + PLAN_BURST  # counted from the answer, so that a slow database does not stop it
        for job in jobs:
            if job.id in self._gone_over:
                continue  # it waits for the runs that are written ahead
            if boottime() >= ends_at:
                self.learns_on = True
                return
            try:
                anew = self._plan_anew(ledger, job.spec.name, now)
            except (ConfigurationError, ValueError, OverflowError):
                anew = False  # `plan` logs that when it comes to it
            if not anew:
                self._gone_over.add(job.id)
        self._gone_over.clear()

    def _plan_anew(self, ledger: Ledger, name: str, now: Instant) -> bool:
        """Replan by our zone rules, from the first due time that is not in the ledger. False if the job stays as it is.

        Runs that are written ahead and stand for readings of the wall clock come first.
        """
        job = next(iter(ledger.jobs(self._application, name)), None)
        if job is None or job.state is not JobState.ACTIVE or job.next_due is None or job.next_reading is None:
            return False
        trigger, spec = self._readable(job), job.spec
        if trigger is None or not self._of_other_rules(job.next_reading):
            return False
        before, _, reading = job.next_reading.partition("@")
        ahead_of_now = RunQuery(self._application, name, states=(RunState.PENDING,), since=now, limit=1)
        if reading and ledger.runs(ahead_of_now):
            return False
        next_due = resumed_at(trigger, job.next_due, job.next_reading, now)
        runs: tuple[NewRun, ...] = ()
        if next_due is not None:
            rest = Unplanned(job.id, name, job.generation, next_due, spec.trigger or "", spec.rules)
            planned = plan(rest, trigger, application=self._application, now=now, horizon=now + LOOK_AHEAD)
            if planned is not None:
                next_due, runs = planned.then_due, planned.runs
        if before > self._tzdata and before not in self._warned:
            self._warned.add(before)
            logger.warning(
                "job %r and others were planned with tzdata %s, which no live node has, and are replanned with %s. "
                "Upgrade the tzdata package.",
                name,
                before,
                self._tzdata,
                extra={"action": "older_zone_rules"},
            )
        job = replace(job, spec=replace(spec, tzdata=max(spec.tzdata, self._tzdata)))
        row = self._write(ledger, job, trigger, (next_due, runs), f"{ANEW} {self._tzdata}")
        return row is not None and not self._of_other_rules(row.next_reading)

    # What a wrong clock has postponed

    def replan_soon(self) -> None:
        """Look soon for postponed jobs, and again for a while."""
        self._agenda.soon(Step.REPLAN)
        self._replanned = (0.0, JobId(0))
        self._replans_until = boottime() + REPLAN_FOR

    def replan(self, ledger: Ledger) -> None:
        """Replan jobs that a clock that was ahead has postponed. Looks through all jobs, some at a time."""
        now = self._clock.now(boottime())
        horizon = now + LOOK_AHEAD + MARGIN
        if self._clock.doubts or not self._context.plans:
            self._agenda.at(Step.REPLAN, math.inf)
            return
        jobs = ledger.planned_beyond(self._application, max(self._replanned, (horizon, JobId(0))), REPLAN_BATCH)
        ends_at = boottime() + PLAN_BURST
        for job in jobs:
            if boottime() >= ends_at:
                break
            due = job.next_due or 0.0
            self._replanned = (due, job.id)
            trigger = None if self._zones and job.spec.tzdata > self._zones else self._readable(job)
            try:
                if trigger is not None and leapt(trigger, due, horizon=horizon):
                    self._put_right(ledger, job, trigger, now)
            except ConfigurationError:
                continue  # `plan` logs that when it comes to it
        if len(jobs) == REPLAN_BATCH or boottime() >= ends_at:
            self._agenda.at(Step.REPLAN, boottime() + CALM)
            return
        self._replanned = (0.0, JobId(0))
        again_at = boottime() + REPLAN_EVERY if boottime() < self._replans_until else math.inf
        self._agenda.at(Step.REPLAN, again_at)

    def _readable(self, job: JobRow) -> Trigger | None:
        try:
            return None if job.spec.trigger is None else trigger_of(job.spec.trigger)
        except TenureError:
            return None  # `plan` has logged that

    def _put_right(self, ledger: Ledger, job: JobRow, trigger: Trigger, now: Instant) -> None:
        due = self._ahead(trigger, job.spec.rules, job.spec.name, now)
        why = "it was planned by a clock that was ahead"
        logger.warning("job %r is planned anew: %s", job.spec.name, why, extra={"action": "planned_anew"})
        self._write(ledger, job, trigger, due, why)

    def _ahead(self, trigger: Trigger, rules: Rules, name: str, now: Instant) -> _Ahead:
        return ahead(trigger, rules, application=self._application, name=name, now=now, horizon=now + LOOK_AHEAD)

    def _write(self, ledger: Ledger, job: JobRow, trigger: Trigger, due: _Ahead, why: str) -> JobRow | None:
        """Write other due times for a job, unless it was changed meanwhile."""
        next_due, runs = due
        change = JobChange(
            self._application,
            job.spec.name,
            Change.UPDATED,
            spec=job.spec,
            next_due=next_due,
            runs=runs,
            why=why,
            generation=job.generation,
            override=job.override,
            next_reading=reading_of(trigger, next_due),
        )
        return ledger.change(change)


def _older(jobs: Sequence[JobRow]) -> str:
    """A note on jobs that are planned by older zone rules than they were written with."""
    if not jobs:
        return ""
    names = ", ".join(repr(job.spec.name) for job in jobs[:NAMED]) + (" and others" if len(jobs) > NAMED else "")
    by, written = (jobs[0].next_reading or "").partition("@")[0], max(job.spec.tzdata for job in jobs)
    return (
        f"planned with tzdata {by}, although written with {written}, which no live node has: {names}. "
        "Upgrade the tzdata package."
    )
