"""The load ahead: how many runs may begin in each minute of the next 24 h, by queue, and a forecast of how many go on.

Pure, and made in small steps: `LoadCounter` yields how much it has done, so that its caller can rest in between.

A run counts in the minute in which it may begin: its due time, and the shift of `spread` and `jitter`. The forecast
assumes that each run takes as long as the runs of its job took on average, and that a run begins when it may.
`overlap` and `max_running` hold runs back in the forecast, too. A job of which no run was measured takes no time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor

from tenure.core.clock_changes import ClockChangeFinder, TouchedJobs
from tenure.core.herds import HerdFinder, SpreadHerd
from tenure.core.planning import jitter_of, spread_of
from tenure.core.records import Instant, Rules
from tenure.errors import ConfigurationError
from tenure.triggers import Trigger
from tenure.triggers.base import Steps
from tenure.util.instants import moment

MINUTE = 60.0
MINUTES = 1440
"""Of the period."""
WALKED = 3000
"""A job that is due more often than this in the period is counted minute by minute, if its trigger can count. Its
jitter is left out then: it moves no minute's count by much."""
REMEMBERED = 300
"""Triggers whose due times are remembered …"""
KEPT = 1600
"""… if they are no more than this."""
BACK = 3600.0
"""Seconds before now from which due times are remembered, for jobs that begin later than they are due."""
CHEAP = 10
"""How many remembered due times count as one step."""
JITTERED = 2
"""How many steps a due time counts with jitter."""
AT_ONCE = 100
"""The most due times of one step."""
HELD_BACK = 10
"""How many of the jobs whose runs are held back are named."""
_TICK = 0.000_001


@dataclass(frozen=True, slots=True)
class LoadJob:
    """A job, as far as its load matters."""

    name: str
    trigger: Trigger | None
    rules: Rules
    took: float | None = None
    """Seconds that a run took on average; None: no run was measured."""
    begins: Instant = 0.0
    """Nothing is due before: its pause ends then."""


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """The load of a queue, or of all together."""

    queue: str
    starts: tuple[int, ...]
    """How many runs may begin in each minute."""
    busy: tuple[float, ...]
    """How many runs go on, on average in each minute, if all of them begin when they may."""

    @property
    def total(self) -> int:
        """How many runs begin in the whole period."""
        return sum(self.starts)

    @property
    def busiest(self) -> int:
        """The minute with the most beginnings: its place, the first of several."""
        return max(range(len(self.starts)), key=lambda minute: (self.starts[minute], -minute))


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A job that is due while its last run still goes on, by the forecast."""

    job: str
    due: int
    held: int
    """How many of these begin later, or not at all."""
    took: float
    overlap: str


@dataclass(frozen=True, slots=True)
class HerdForecast:
    """A herd, and what the suggested spread makes of it."""

    herd: SpreadHerd
    work: float
    """Seconds that its runs take, one after the other."""


@dataclass(frozen=True, slots=True)
class Load:
    """The load of the next 24 h."""

    start: Instant
    """The beginning of the first minute."""
    queues: tuple[QueueLoad, ...]
    """The one with the most runs first."""
    pools: tuple[QueueLoad, ...]
    jobs: int
    """How many were counted."""
    unmeasured: int
    """Jobs with due times of which no run was measured."""
    requested: int
    """Runs that were requested for a time in the period."""
    unreadable: tuple[str, ...]
    """Jobs whose due times cannot be computed."""
    held_back: tuple[HeldBack, ...]
    herds: tuple[HerdForecast, ...]
    clock_changes: tuple[TouchedJobs, ...]

    @property
    def whole(self) -> QueueLoad:
        """All queues together."""
        return together("", self.queues)


def together(name: str, parts: Sequence[QueueLoad]) -> QueueLoad:
    """Several queues as one."""
    if not parts:
        return QueueLoad(name, (0,) * MINUTES, (0.0,) * MINUTES)
    return QueueLoad(
        name,
        tuple(map(sum, zip(*(one.starts for one in parts), strict=True))),
        tuple(map(sum, zip(*(one.busy for one in parts), strict=True))),
    )


def waits(busy: Sequence[float], places: int) -> tuple[float, ...]:
    """How many seconds a run that may begin in each minute waits, if at most `places` run at a time.

    What does not fit into a minute is carried over to the next ones, like water that a pipe cannot take.
    """
    if places <= 0:
        return (0.0,) * len(busy)
    left, found = 0.0, []
    for need in busy:
        left = max(left + need - places, 0.0)
        found.append(left / places * MINUTE)
    return tuple(found)


class LoadCounter:
    """Takes jobs one by one, and adds up their load."""

    def __init__(self, application: str, now: Instant) -> None:
        self._application = application
        self.start = ceil(now / MINUTE) * MINUTE
        """The next whole minute: so a daily job is due once in the period, whenever it is counted."""
        self._now = self.start - _TICK
        self._end = self.start + MINUTES * MINUTE
        self._queues: dict[str, _Minutes] = {}
        self._pools: dict[str, _Minutes] = {}
        self._known: dict[Trigger, tuple[Instant, ...]] = {}
        self._herds, self._changes = HerdFinder(moment(now)), ClockChangeFinder(moment(now))
        self._clocked: dict[str, LoadJob] = {}
        self._unreadable: list[str] = []
        self._held: list[HeldBack] = []
        self._spread: list[HerdForecast] = []
        self._unmeasured = self._requested = 0

    @property
    def jobs(self) -> Mapping[str, LoadJob]:
        """The jobs so far."""
        return self._clocked

    def add(self, job: LoadJob) -> Iterator[int]:
        """Count a job. Yields how many steps each part took."""
        self._clocked[job.name] = job
        if job.trigger is None:
            return
        try:
            yield from self._count(job, job, 0.0)
        except ConfigurationError:
            self._unreadable.append(job.name)
            return
        yield self._herds.add(job.name, job.trigger, job.rules)
        yield self._changes.add(job.name, job.trigger)

    def add_unreadable(self, name: str) -> None:
        """A job whose trigger cannot be read is not counted, and named."""
        self._unreadable.append(name)

    def add_followers(self) -> Iterator[int]:
        """Count the jobs that follow others, when all are there: each run of a parent has one of its follower."""
        for job in list(self._clocked.values()):
            delay, clock, passed = 0.0, job, {job.name}
            while clock.trigger is None and clock.rules.after in self._clocked and clock.rules.after not in passed:
                clock = self._clocked[clock.rules.after]
                passed.add(clock.name)
                delay += clock.took or 0.0
            yield 1
            if clock is not job and clock.trigger is not None and clock.name not in self._unreadable:
                yield from self._count(job, clock, delay)

    def add_requested(self, name: str, at: Instant) -> None:
        """Count a run that was requested for a time to come."""
        job = self._clocked.get(name)
        if job is not None and self._now < at < self._end:
            self._requested += 1
            for minutes in self._minutes(job.rules):
                minutes.begin(at - self.start, job.took or 0.0)

    def add_running(self, name: str, began_at: Instant) -> None:
        """A run that goes on now keeps its place until it has taken as long as others."""
        job = self._clocked.get(name)
        if job is not None and job.took is not None and began_at + job.took > self.start:
            for minutes in self._minutes(job.rules):
                minutes.occupy(0.0, began_at + job.took - self.start)

    def look(self) -> Iterator[int]:
        """Find the herds, when all jobs are there. Yields how many steps each part took."""
        yield from self._herds.look()
        for herd in self._herds.found:
            spread, work = SpreadHerd(herd, self._application), 0.0
            yield from spread.count()
            for name in herd.jobs:
                work += self._clocked[name].took or 0.0
            yield len(herd.jobs)
            self._spread.append(HerdForecast(spread, work))

    def load(self) -> Load:
        """What was counted."""
        queues = sorted(self._queues.items(), key=lambda item: (-sum(item[1].starts), item[0]))
        return Load(
            start=self.start,
            queues=tuple(minutes.load(queue) for queue, minutes in queues),
            pools=tuple(minutes.load(pool) for pool, minutes in sorted(self._pools.items())),
            jobs=len(self._clocked),
            unmeasured=self._unmeasured,
            requested=self._requested,
            unreadable=tuple(self._unreadable),
            held_back=tuple(sorted(self._held, key=lambda one: (-one.held, one.job))[:HELD_BACK]),
            herds=tuple(self._spread),
            clock_changes=tuple(self._changes.found),
        )

    def _count(self, job: LoadJob, clock: LoadJob, delay: float) -> Iterator[int]:
        """Count the runs of a job. `clock` is the one whose due times they have, itself or the job that it follows, and
        `delay` how much later they begin."""
        trigger, shift = clock.trigger, spread_of(self._application, clock.name, clock.rules.spread) + delay
        if trigger is None:
            return
        runs = _JobRuns(self._minutes(job.rules), job.took or 0.0, job.rules)
        often = None if trigger in self._known else trigger.count(self._now, self._end)
        if often is not None and often > WALKED:
            yield from self._count_minutes(runs, trigger, shift, max(self._now, clock.begins))
        else:
            jitter, since = clock.rules.jitter, max(self._now, clock.begins)
            for times, cost in self._due_times(trigger, shift + jitter):
                for due in times:
                    start = due + shift
                    if jitter:
                        start += jitter_of(self._application, clock.name, due, jitter)
                    if since < (start := round(start, 6)) < self._end:
                        runs.begin(start - self.start)
                yield cost * JITTERED if jitter else cost
        self._unmeasured += job.took is None and runs.due > 0
        if runs.held:
            self._held.append(HeldBack(job.name, runs.due, runs.held, job.took or 0.0, job.rules.overlap))

    def _count_minutes(self, runs: _JobRuns, trigger: Trigger, shift: float, since: Instant) -> Iterator[int]:
        first = max(floor((since - self.start) / MINUTE), 0)
        for minute in range(first, MINUTES):
            begin = self.start + minute * MINUTE
            counted = trigger.count(max(begin, since + _TICK) - shift, begin + MINUTE - shift)
            runs.begin_many(minute, counted or 0)
            yield 1

    def _due_times(self, trigger: Trigger, shift: float) -> Iterator[tuple[Sequence[Instant], int]]:
        """The due times of which runs begin in the period, in parts, and how many steps each part took."""
        known = self._known.get(trigger) if shift <= BACK else None
        if known is not None:
            for first in range(bisect_right(known, self._now - shift), len(known), AT_ONCE):
                yield known[first : first + AT_ONCE], AT_ONCE // CHEAP
            return
        walked: list[Instant] = []
        part: list[Instant] = []
        taken = Steps()
        due = trigger.following(self._now - max(shift, BACK), taken)
        work = 1 + taken.taken
        while due is not None and due < self._end:
            part.append(due)
            taken = Steps()
            due = trigger.following(due, taken)
            work += 1 + taken.taken
            if work >= AT_ONCE:
                yield part, work
                walked += part if len(walked) <= KEPT else ()
                part, work = [], 0
        yield part, work
        walked += part
        if shift <= BACK and len(walked) <= KEPT and len(self._known) < REMEMBERED:
            self._known[trigger] = tuple(walked)

    def _minutes(self, rules: Rules) -> list[_Minutes]:
        found = [self._queues.setdefault(rules.queue, _Minutes())]
        if rules.pool is not None:
            found.append(self._pools.setdefault(rules.pool, _Minutes()))
        return found


class _Minutes:
    """The minutes of a queue or of a pool. Times are seconds since the beginning of the period."""

    __slots__ = ("_goes_on", "_part", "starts")

    def __init__(self) -> None:
        self.starts = [0] * MINUTES
        self._part = [0.0] * (MINUTES + 1)
        """Seconds for which runs go on in a minute that they do not fill."""
        self._goes_on = [0] * (MINUTES + 1)
        """By how many the runs that fill a minute are more than in the one before."""

    def begin(self, start: float, took: float) -> None:
        """A run begins."""
        self.starts[int(start // MINUTE)] += 1
        self.occupy(start, start + took)

    def occupy(self, start: float, end: float, count: float = 1.0) -> None:
        """Add `count` runs that run from `start` to `end`. A negative count removes runs that were added before."""
        end = min(end, MINUTES * MINUTE)
        if start >= end:
            return
        first, last = int(start // MINUTE), int(end // MINUTE)
        if first == last:
            self._part[first] += count * (end - start)
            return
        self._part[first] += count * ((first + 1) * MINUTE - start)
        self._part[last] += count * (end - last * MINUTE)
        self._goes_on[first + 1] += int(count)
        self._goes_on[last] -= int(count)

    def load(self, name: str) -> QueueLoad:
        """The minutes as they are now."""
        busy, level = [], 0
        for part, more in zip(self._part[:MINUTES], self._goes_on[:MINUTES], strict=True):
            level += more
            busy.append(round(level + part / MINUTE, 6))
        return QueueLoad(name, tuple(self.starts), tuple(busy))


class _JobRuns:
    """The runs of one job, on its queue and in its pool: its `overlap` decides which of them go on at a time."""

    def __init__(self, minutes: Iterable[_Minutes], took: float, rules: Rules) -> None:
        self._minutes, self._took, self._rules = tuple(minutes), took, rules
        self._ends: deque[float] = deque()
        self.due = self.held = 0

    def begin(self, start: float) -> None:
        """A run may begin."""
        self.due += 1
        minute = int(start // MINUTE)
        for minutes in self._minutes:
            minutes.starts[minute] += 1
        if not self._took:
            return
        most, ends = self._rules.max_running, self._ends
        while ends and ends[0] <= start:
            ends.popleft()
        begins = start
        if most is not None and len(ends) >= most:
            self.held += 1
            if self._rules.overlap == "skip":
                return
            first = ends.popleft()
            if self._rules.overlap == "replace":
                self._occupy(start, first, -1.0)
            else:
                begins = first
        ends.append(begins + self._took)
        self._occupy(begins, begins + self._took, 1.0)

    def begin_many(self, minute: int, count: int) -> None:
        """`count` runs may begin in this minute. At most `max_running` of them run at a time."""
        self.due += count
        need, most = count * self._took / MINUTE, self._rules.max_running
        if most is not None and need > most:
            self.held += count - int(count * most / need)
            need = float(most)
        for minutes in self._minutes:
            minutes.starts[minute] += count
            minutes.occupy(minute * MINUTE, (minute + 1) * MINUTE - _TICK, need)

    def _occupy(self, start: float, end: float, count: float) -> None:
        for minutes in self._minutes:
            minutes.occupy(start, end, count)
