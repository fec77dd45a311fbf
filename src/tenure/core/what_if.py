"""What would happen to the due times of a schedule, and to those that fall into an outage. Nothing is written.

An outage asks the rules that production uses: `plan` says which due times become rows of their own, and `settle` which
of the missed ones are made up for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from tenure.core.load import LoadCounter, LoadJob, QueueLoad
from tenure.core.messages import MissedJob, MissedRun, NewRun, Unplanned
from tenure.core.planning import SLICE, plan, settle
from tenure.core.records import Instant, JobId, RunId, RunState
from tenure.errors import ConfigurationError
from tenure.triggers import Trigger
from tenure.triggers.base import ClockChange
from tenure.util.instants import moment

TIMES = 20
"""How many due times of a schedule are told."""
ONE_JOB = 8
"""What a job counts as in an outage, besides its due times."""
MOST_EACH = 20_000
"""Steps that one job of an outage may take."""
_TICK = 0.000_001
_THERE = JobId(0)


@dataclass(frozen=True, slots=True)
class WhatIfSchedule:
    """A schedule that no job has yet."""

    explanation: str
    times: tuple[datetime, ...]
    clock_changes: tuple[ClockChange, ...]
    load: QueueLoad
    """When its runs would begin in the next 24 h."""
    cut: bool
    """There were too many due times to count them all."""


@dataclass(frozen=True, slots=True)
class OutageOfJob:
    """What becomes of the due times of a job that fall into an outage of all nodes."""

    job: str
    due: int
    late: int
    """They may begin when the nodes are back: within `grace`, so none of them is missed."""
    overlapping: int
    """How many of these come while others of them still run: `overlap` decides what becomes of them."""
    overlap: str
    made_up: tuple[Instant, ...]
    """Due times that are missed and made up for when the nodes are back."""
    skipped: int
    """Due times that are missed and never run."""
    first_skipped: Instant | None
    last_skipped: Instant | None
    unharmed: int
    """They begin only after the outage: their `spread` or `jitter` is not over before."""
    took: float | None
    """Seconds that a run takes on average."""
    cut: bool
    """There were too many due times to go through all of them: `due` is how far it came, and nothing else is known."""
    steps: int
    """How many steps this took."""

    @property
    def lost(self) -> bool:
        """Something was due, and nothing runs instead."""
        return bool(self.skipped) and not self.at_once

    @property
    def text(self) -> str:
        """'12 due: 3 begin late, within grace, 1 made up for, 8 missed and never run'."""
        if self.cut:
            return f"more than {self.due:,} due, which are too many to go through"
        counts = {
            "begin late, within grace": self.late,
            "made up for": len(self.made_up),
            "missed and never run": self.skipped,
            "begin only after it": self.unharmed,
        }
        return f"{self.due:,} due: {', '.join(f'{count:,} {word}' for word, count in counts.items() if count)}"

    @property
    def at_once(self) -> int:
        """How many runs are ready when the nodes are back, and are not skipped at once."""
        skipped = self.overlapping if self.overlap == "skip" else 0
        return self.late - skipped + len(self.made_up)


Rest = Callable[[], bool]
"""Called between the parts of the work; False if it has taken too long and should end."""


def _never() -> bool:
    return True


def schedule(job: LoadJob, application: str, now: Instant, steps: int, rest: Rest = _never) -> WhatIfSchedule:
    """What a job with a trigger would be due for."""
    trigger = _trigger(job)
    preview = trigger.preview(TIMES, moment(now))
    counter = LoadCounter(application, now)
    taken, cut = 0, False
    for one in counter.add(job):
        taken += one
        if taken >= steps or not rest():
            cut = True
            break
    load = counter.load()
    return WhatIfSchedule(preview.explanation, preview.times, preview.changes, load.whole, cut)


def outage(
    job: LoadJob, application: str, start: Instant, end: Instant, steps: int, *, rest: Rest = _never
) -> OutageOfJob | None:
    """What becomes of the due times of a job from the beginning of an outage of all nodes to its end. None if it has
    none."""
    trigger, taken = _trigger(job), 0
    next_due = trigger.following(max(start, job.begins) - _TICK)
    runs: list[NewRun] = []
    last = end - _TICK
    while next_due is not None and next_due <= last and taken < steps:
        unplanned = Unplanned(_THERE, job.name, 0, next_due, "", job.rules)
        planned = plan(
            unplanned, trigger, application=application, now=end, horizon=last, steps=min(steps - taken, SLICE)
        )
        if planned is None:
            break
        # A visit that does not reach the end plans its newest due times again: see `plan`.
        taken += ONE_JOB + sum(min(run.count, SLICE) for run in planned.runs)
        runs += planned.runs
        next_due = planned.then_due
        if not rest():
            break
    if not runs:
        return None
    return _told(job, runs, end, cut=next_due is not None and next_due <= last, steps=taken)


def _told(job: LoadJob, runs: list[NewRun], end: Instant, *, cut: bool, steps: int) -> OutageOfJob:
    due = sum(run.count for run in runs)
    if cut:
        runs = []
    older = [run for run in runs if run.state is RunState.SKIPPED]
    own = [run for run in runs if run.state is RunState.PENDING]
    missed = [run for run in own if run.expires_at is not None and run.expires_at <= end]
    late = [run for run in own if run not in missed and run.due_at <= end]
    made_up: tuple[Instant, ...] = ()
    skipped = list(_skipped(older))
    if missed:
        numbered = tuple(MissedRun(RunId(place), run.scheduled_for) for place, run in enumerate(missed))
        in_time = any(run.scheduled_for > missed[-1].scheduled_for for run in late)
        verdict = settle(MissedJob(_THERE, job.name, 0, job.rules, numbered, in_time), now=end)
        made_up = tuple(missed[place].scheduled_for for place in verdict.make_up)
        skipped += [(missed[place].scheduled_for,) * 2 for place in verdict.skip]
    return OutageOfJob(
        job=job.name,
        due=due,
        late=len(late),
        overlapping=0 if job.rules.max_running is None else max(len(late) - job.rules.max_running, 0),
        overlap=job.rules.overlap,
        made_up=made_up,
        skipped=sum(run.count for run in older) + len(missed) - len(made_up),
        first_skipped=min((first for first, _ in skipped), default=None),
        last_skipped=max((last for _, last in skipped), default=None),
        unharmed=len(own) - len(missed) - len(late),
        took=job.took,
        cut=cut,
        steps=steps,
    )


def _skipped(older: list[NewRun]) -> Iterator[tuple[Instant, Instant]]:
    for run in older:
        yield run.scheduled_for, run.scheduled_for if run.until is None else run.until


def _trigger(job: LoadJob) -> Trigger:
    if job.trigger is None:
        raise ConfigurationError(f"{job.name} has no trigger: it runs only on request.")
    return job.trigger


class OutageForecast:
    """An outage of all nodes, job by job, until the steps or the time are `spent`."""

    def __init__(self, application: str, start: Instant, end: Instant, steps: int, rest: Rest = _never) -> None:
        self._application = application
        self.start, self.end = start, end
        self._left, self._rest, self._over = steps, rest, False
        self.jobs: list[OutageOfJob] = []
        """The jobs that have due times in it."""
        self.looked_at = 0
        self.unknown: list[str] = []
        """Jobs whose due times cannot be computed."""

    @property
    def spent(self) -> bool:
        """The steps are used up, or the time is."""
        return self._left <= 0 or self._over

    def add(self, job: LoadJob) -> None:
        """Look at a job."""
        self.looked_at += 1
        if job.trigger is None:
            return
        try:
            found = outage(job, self._application, self.start, self.end, min(self._left, MOST_EACH), rest=self._rest)
        except ConfigurationError:
            self.unknown.append(job.name)
            self._left -= MOST_EACH
        else:
            self._left -= ONE_JOB if found is None else found.steps
            if found is not None:
                self.jobs.append(found)
        self._over = not self._rest()
