"""Looks for what a person must be told: every node judges by what it reads from the ledger, again and again.

The rules are in `core/alert_rules.py`; `core/alerts.py` says what a look changes, and the ledger applies that only to
the versions of the alerts that were read before the look. So any number of nodes may look at the same time, a node that
was frozen in the middle changes nothing, and where nothing is wrong nothing is written.

A look reads in slices. Claims come first, and between two slices the loop does what else is due.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from tenure.core import alert_rules
from tenure.core.alerts import EVERYTHING, AlertKind, AlertRow, AlertStep, JobMarks, Symptom, gathered, steps
from tenure.core.attention import LIMIT
from tenure.core.coverage import Coverage
from tenure.core.messages import JobStats, RunQuery
from tenure.core.overdue import SLACK
from tenure.core.records import Change, Instant, JobId, JobRow, JobState, RunState
from tenure.core.trigger_text import read_trigger
from tenure.errors import StoreError
from tenure.scheduling.agenda import Step
from tenure.scheduling.context import LoopContext
from tenure.scheduling.slices import SliceSize, SliceTimer
from tenure.stores.ledger import FIRST, SUCCESS_WITHIN, Ledger
from tenure.util.clock import boottime
from tenure.util.randomness import between

LOOK_EVERY = 15.0
"""Seconds, roughly, between two checks by the planner, and between two by any of the other nodes; but at least …"""
LOOK_RESTS = 30.0
"""… this many times as long as the last check has worked."""
AWAY_AFTER = 4.0
"""Times that pause after which, without a check, all nodes were away: what was seen before does not count."""
SHARED = 20
"""The other nodes take turns: the pause of each grows with their number, up to this many."""
LOOK_JOBS, LOOK_TIME = (1, 500), 0.008
"""The least and the most jobs of a slice, and the seconds that it should take: claims wait meanwhile."""
STALLED = 10.0
"""Seconds without a slice after which a check is abandoned: what it has read may no longer be true."""
PART = 12.0
"""Seconds after which a check of many jobs notes what it has found so far: the ledger refuses old findings."""
FAILURES, RUNS, LATE = 10_000, 1000, 100
"""How many failed runs of the application, runs that are running, and due times that are overdue (the earliest) are
read."""
FIGURES, KEPT, CACHED = 100, 300.0, 20_000
"""Statistics: how many runs of a job they cover, for how many seconds they are reused, and for how many jobs."""
AT_ONCE = 10
"""The most running runs for which one slice asks for statistics."""

OF_MARKS = (AlertKind.OVERDUE, AlertKind.NEVER_RAN, AlertKind.MISSED, AlertKind.PAUSED)
"""Kinds for which each job is looked at."""
OF_ALL = tuple(kind for kind in AlertKind if kind not in {*OF_MARKS, AlertKind.TOO_LONG, AlertKind.NO_ANSWER})
"""Kinds that a few questions about the application decide."""
OF_BELIEVERS = tuple(kind for kind in OF_ALL if kind is not AlertKind.CLOCK_DOUBTED)
"""The same for a node that believes the clock while others may doubt it: each doubts for a time of its own."""


class AlertLook:
    """The looks of one node. Without sinks it never looks."""

    def __init__(self, context: LoopContext) -> None:
        self._context, self._limits = context, context.options.alerts.limits
        self._sinks = () if context.sender is None else context.sender.names
        self._slices: Iterator[None] | None = None
        self._ledger: Ledger | None = None
        self._timer = SliceTimer(context.agenda, Step.LOOK, LOOK_TIME)
        self._jobs = SliceSize(20, LOOK_JOBS, LOOK_TIME / 2)
        self._worked = self._last_at = 0.0
        self._nodes = 1
        self._doubted: float | None = None
        """The last look found the clock doubted: since when this node had believed it before."""
        self._rests = 0.0
        """How many seconds the last look of this node has earned."""
        self._figures: dict[str, tuple[float, JobStats]] = {}
        self._paused_at: dict[tuple[JobId, int], Instant] = {}
        self.looks = 0
        """How many looks were complete."""
        if self._sinks:
            self._timer.rest(boottime() + LOOK_EVERY * between(0.8, 1.2))
        else:
            context.agenda.at(Step.LOOK, math.inf)

    def look(self, ledger: Ledger) -> None:
        """Look at a slice, unless a claim is due first."""
        context, clock, began_at = self._context, self._context.clock, boottime()
        if not self._sinks:
            context.agenda.at(Step.LOOK, math.inf)
            return
        if not clock.known or began_at < clock.believed_since + LOOK_EVERY / 2:
            self._timer.rest(began_at + LOOK_EVERY / 2)
            return
        if self._timer.put_off(began_at):
            return
        if self._slices is None or began_at > self._last_at + STALLED:
            self._slices, self._worked = self._look(), 0.0
        self._ledger = ledger
        try:
            over = next(self._slices, self) is self
        except (StoreError, OSError):  # perhaps it is too much for one statement: less next time, and not at once
            self._slices = None
            self._jobs.halve()
            self._timer.rest(boottime() + LOOK_EVERY)
            raise
        except BaseException:
            self._slices = None
            raise
        self._worked += self._timer.worked(began_at)
        self._last_at = boottime()
        if over:
            self._slices = None
            self.looks += 1
            others = 1 if context.plans else min(max(self._nodes - 1, 1), SHARED)
            self._rests = LOOK_RESTS * self._worked
            self._timer.rest(self._last_at + max(LOOK_EVERY * others, self._rests) * between(0.8, 1.2))

    # One look

    def _look(self) -> Iterator[None]:
        """The slices of a look."""
        ledger, application, limits = self._read, self._context.application, self._limits
        now, rows = ledger.now(), ledger.open_alerts(application)
        clock = self._context.clock
        if clock.doubts:  # what is late cannot be known
            self._doubted = clock.believed_since
            since = min((row.since for row in rows if row.kind == AlertKind.CLOCK_DOUBTED), default=now)
            self._note(rows, now, alert_rules.clock_doubted(since), (AlertKind.CLOCK_DOUBTED,))
            return
        returned, self._doubted = self._doubted == clock.believed_since, None
        judged = OF_ALL if returned or alert_rules.clock_believed(rows, now) else OF_BELIEVERS
        coverage = Coverage(application, ledger.nodes(application), ledger.running(application))
        self._nodes = len(coverage.nodes)
        found = alert_rules.no_planner(coverage, now)
        labels = {node.label: node.since for node in coverage.nodes}
        found += alert_rules.silent(ledger.dead_nodes(application, now - alert_rules.AWAY), labels, now)
        yield
        unserved = self._read.unserved(application, coverage.served, LIMIT)
        late = alert_rules.orphaned(coverage, unserved, now)
        late += alert_rules.not_started(coverage, self._read.overdue(application, now - SLACK, LATE))
        yield
        outcomes = self._read.outcomes(application, since=now, failing=FAILURES)
        # Failures of other jobs may have pushed out those of a job that still fails.
        told = [row.target for row in rows if row.kind == AlertKind.FAILING and row.target != EVERYTHING]
        for number, name in enumerate(sorted({*told} - {one.name for one in outcomes}), 1):
            outcomes += self._read.outcomes(application, since=now, name=name)
            if number % AT_ONCE == 0:
                yield
        found += alert_rules.failing(outcomes, limits)
        yield
        self._note(rows, now, [*found, *late], judged)
        yield
        yield from self._look_at_runs()
        yield from self._look_at_jobs({one.target for one in late})

    def _look_at_runs(self) -> Iterator[None]:
        """Look at what is running. Statistics may take long, so what else was found is noted before."""
        now, rows = self._read.now(), self._read.open_alerts(self._context.application)
        running = self._read.runs(RunQuery(self._context.application, states=(RunState.RUNNING,), limit=RUNS))
        found = list[Symptom]()
        for first in range(0, len(running), AT_ONCE):
            found += alert_rules.too_long(running[first : first + AT_ONCE], self._stats, now)
            yield
        self._note(rows, now, found, (AlertKind.TOO_LONG,))
        yield

    def _look_at_jobs(self, explained: Collection[str]) -> Iterator[None]:
        """Look at each job. After `PART` seconds note what was found so far, and go on as if anew."""
        application, beyond, seen = self._context.application, FIRST, set[str]()
        together = set[str]()
        while True:
            part_began, names, found = boottime(), set[str](), list[Symptom]()
            now, rows = self._read.now(), self._read.open_alerts(application)
            more = True
            while more:
                began_at = boottime()
                page = self._read.job_marks(application, beyond, self._jobs.now, SUCCESS_WITHIN)
                more = len(page) == self._jobs.now
                took = boottime() - began_at
                for marks in page:
                    found += self._judged(marks, now, explained)
                    names.add(marks.row.spec.name)
                    beyond = marks.row.id
                    if boottime() >= began_at + 2 * LOOK_TIME:  # it asked for statistics
                        yield
                        began_at = boottime()
                self._jobs.adapt(took)
                yield
                if boottime() >= part_began + PART:
                    break
            # A job that is gone is on no page; and one alert for many is over only when no part has found it.
            here = {*names, EVERYTHING}
            mine = [row for row in rows if row.target in here or (not more and row.target not in seen)]
            seen |= names
            known = {(row.kind, row.target): row for row in mine}
            many = {one.kind.value for one in gathered(found, known) if one.target == EVERYTHING}
            together |= many
            left = many if more else {row.kind for row in mine if row.kind in many or row.kind not in together}
            mine = [row for row in mine if row.target != EVERYTHING or row.kind in left]
            made = self._steps(mine, now, found, OF_MARKS)
            self._write(made, now)
            if not more:
                return
            yield

    def _judged(self, marks: JobMarks, now: Instant, explained: Collection[str]) -> Iterator[Symptom]:
        row = marks.row
        if row.state is JobState.PAUSED:
            yield from alert_rules.paused([(row, self._pause_of(row))], now, self._limits)
            return
        trigger, _ = read_trigger(row.spec.trigger)
        yield from alert_rules.of_marks(marks, trigger, self._stats, now, row.spec.name in explained)

    # What it reads

    @property
    def _read(self) -> Ledger:
        """The connection of this turn."""
        assert self._ledger is not None  # noqa: S101 - `look` has put it there
        return self._ledger

    def _stats(self, name: str) -> JobStats:
        known = self._figures.get(name)
        if known is None or boottime() > known[0] + KEPT:
            if len(self._figures) > CACHED:
                self._figures.clear()
            known = boottime(), self._read.stats(self._context.application, name, FIGURES)
            self._figures[name] = known
        return known[1]

    def _pause_of(self, row: JobRow) -> Instant:
        """When it was paused. A pause raises the generation."""
        key = row.id, row.generation
        if key not in self._paused_at:
            changes = self._read.changes(self._context.application, row.spec.name)
            pauses = [change.at for change in changes if change.what is Change.PAUSED]
            if len(self._paused_at) > CACHED:
                self._paused_at.clear()
            self._paused_at[key] = max(pauses, default=row.since)
        return self._paused_at[key]

    # What it writes

    def _note(
        self, rows: Sequence[AlertRow], now: Instant, found: Sequence[Symptom], kinds: Collection[AlertKind]
    ) -> None:
        self._write(self._steps(rows, now, found, kinds), now)

    def _steps(
        self, rows: Sequence[AlertRow], now: Instant, found: Sequence[Symptom], kinds: Collection[AlertKind]
    ) -> list[AlertStep]:
        away = AWAY_AFTER * max(self._rests, LOOK_EVERY)
        return steps(self._context.application, rows, found, judged=kinds, now=now, limits=self._limits, away=away)

    def _write(self, made: Sequence[AlertStep], now: Instant) -> None:
        if not made:
            return
        applied = self._read.note_alerts(self._context.application, now, made, self._sinks)
        if any(done and step.event for done, step in zip(applied, made, strict=True)):
            self._context.agenda.soon(Step.TELL)
