"""Figures of a job by hour and by day: how its runs ended, how late they began, and how long they took.

They are counted from the runs themselves, again and again, for as long as anything in the hour may change. So counting
twice changes nothing, and a count may fall: a skipped run that is retried is not skipped any more. Retention adds what
it removes to the figures in the same transaction, so they outlive the runs.

An hour is one of UTC, and a run belongs to the hour of its `scheduled_for`. A row that stands for several missed due
times counts as many, in the hour of the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from math import floor, log2
from typing import NamedTuple

from tenure.core.planning import MISSED
from tenure.core.records import Instant, JobId, RunState

HOUR, DAY = 3600.0, 86400.0
HOURS_KEPT = 14 * DAY
"""After this long the hours of a day become one row."""
DAYS_KEPT = 400 * DAY
"""After this long a day is forgotten."""

_LONGEST = 30
"""Characters of a bucket that can be read."""
_FIRST, _PARTS, _LAST = 1000, 4, 159
"""The first bucket holds up to a millisecond and a bit; four buckets double the length; the last is thirty years."""


class CountedRun(NamedTuple):
    """The part of a run that figures need."""

    scheduled_for: Instant
    state: RunState
    reason: str
    stands_for: int
    due_at: Instant
    started_at: Instant | None
    finished_at: Instant | None


@dataclass(frozen=True, slots=True)
class Measure:
    """How long something was, over many runs. Kept in whole microseconds, so that sums do not depend on their order."""

    total: int = 0
    most: int = 0
    buckets: dict[int, int] = field(default_factory=dict)
    """How many runs were how long: see `bucket_of`."""

    def __add__(self, other: Measure) -> Measure:
        buckets = dict(self.buckets)
        for bucket, runs in other.buckets.items():
            buckets[bucket] = buckets.get(bucket, 0) + runs
        return Measure(self.total + other.total, max(self.most, other.most), buckets)

    @property
    def runs(self) -> int:
        """Over how many runs."""
        return sum(self.buckets.values())

    @property
    def mean(self) -> float | None:
        """In seconds; None without runs."""
        runs = self.runs
        return self.total / runs / 1e6 if runs else None

    @property
    def longest(self) -> float | None:
        """In seconds; None without runs."""
        return self.most / 1e6 if self.buckets else None

    def percentile(self, part: float) -> float | None:
        """In seconds, within 10 %; None without runs."""
        runs = self.runs
        if not runs:
            return None
        left = part * runs
        for bucket in sorted(self.buckets):
            left -= self.buckets[bucket]
            if left <= 0:
                break
        return min(middle_of(bucket), self.most / 1e6)


@dataclass(frozen=True, slots=True)
class Figures:
    """What became of the runs of an hour, a day, or longer."""

    succeeded: int = 0
    failed: int = 0
    lost: int = 0
    cancelled: int = 0
    skipped: int = 0
    """Skipped for a reason other than being missed."""
    missed: int = 0
    open: int = 0
    """Due, and not finished."""
    late: Measure = field(default_factory=Measure)
    """The delays from when runs were allowed to begin until they began."""
    took: Measure = field(default_factory=Measure)
    """How long their last attempts took."""

    def __add__(self, other: Figures) -> Figures:
        counts = {name: getattr(self, name) + getattr(other, name) for name in COUNTS}
        return Figures(**counts, late=self.late + other.late, took=self.took + other.took)

    @property
    def ran(self) -> int:
        """How many ended by running."""
        return self.succeeded + self.failed + self.lost

    @property
    def due(self) -> int:
        """How many there were."""
        return self.ran + self.cancelled + self.skipped + self.missed + self.open

    @property
    def success(self) -> float | None:
        """Which part of those that ran succeeded; None if none ran."""
        return self.succeeded / self.ran if self.ran else None

    @property
    def worst(self) -> str:
        """The worst that happened: 'lost', 'failed', 'missed', 'cancelled', 'skipped', 'succeeded', 'open' or ''."""
        return next((name for name in WORST_FIRST if getattr(self, name)), "")


COUNTS = ("succeeded", "failed", "lost", "cancelled", "skipped", "missed", "open")
WORST_FIRST = ("lost", "failed", "missed", "cancelled", "skipped", "succeeded", "open")
NO_FIGURES = Figures()


class FiguresRow(NamedTuple):
    """The figures of a job in an hour or on a day."""

    job: JobId
    start: Instant
    figures: Figures


def total(figures: Iterable[Figures]) -> Figures:
    """All of them together."""
    return reduce(Figures.__add__, figures, NO_FIGURES)


def only_counts(known: Figures) -> Figures:
    """Without how late runs began and how long they took."""
    return replace(known, late=Measure(), took=Measure())


def by_day(rows: Iterable[FiguresRow]) -> list[FiguresRow]:
    """Hours and days as days, the oldest first."""
    days: dict[tuple[Instant, JobId], Figures] = {}
    for row in rows:
        key = row.start // DAY * DAY, row.job
        days[key] = days.get(key, NO_FIGURES) + row.figures
    return [FiguresRow(job, start, days[start, job]) for start, job in sorted(days)]


def whole_days(since: Instant, before: Instant) -> tuple[Instant, Instant]:
    """The period of the hours of the days that begin in a period."""
    first, last = -(-since // DAY) * DAY, -(-before // DAY) * DAY
    return first, last


def count(runs: Iterable[CountedRun]) -> dict[Instant, Figures]:
    """The figures of one job by the beginnings of the hours."""
    hours: dict[Instant, _Tally] = {}
    for run in runs:
        start = run.scheduled_for // HOUR * HOUR
        if (tally := hours.get(start)) is None:
            tally = hours[start] = _Tally()
        tally.add(run)
    return {start: tally.figures() for start, tally in hours.items()}


class _Tally:
    """Counts the runs of an hour."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(COUNTS, 0)
        self.late: list[int] = []
        self.took: list[int] = []

    def add(self, run: CountedRun) -> None:
        state = run.state
        missed = state is RunState.SKIPPED and run.reason == MISSED
        self.counts["missed" if missed else state.value if state.final else "open"] += run.stands_for
        if run.started_at is None or state in {RunState.PENDING, RunState.WAITING}:
            return  # between two attempts, `due_at` is that of the next
        self.late.append(_micros(run.started_at - run.due_at))
        if state.final and run.finished_at is not None:
            self.took.append(_micros(run.finished_at - run.started_at))

    def figures(self) -> Figures:
        return Figures(**self.counts, late=_measure(self.late), took=_measure(self.took))


def _micros(seconds: float) -> int:
    return max(round(seconds * 1e6), 0)


def _measure(micros: list[int]) -> Measure:
    buckets: dict[int, int] = {}
    for one in micros:
        bucket = bucket_of(one)
        buckets[bucket] = buckets.get(bucket, 0) + 1
    return Measure(sum(micros), max(micros, default=0), buckets)


def bucket_of(micros: int) -> int:
    """The bucket of a length: its limits are 19 % apart."""
    return min(floor(_PARTS * log2(max(micros, _FIRST) / _FIRST)), _LAST)


def middle_of(bucket: int) -> float:
    """The middle of a bucket, in seconds."""
    return float(_FIRST * 2.0 ** ((bucket + 0.5) / _PARTS) / 1e6)


def written_buckets(buckets: dict[int, int]) -> str:
    """Buckets as tables keep them: '7:1,12:59'. Such texts may be joined by commas."""
    return ",".join(f"{bucket}:{buckets[bucket]}" for bucket in sorted(buckets))


def read_buckets(text: object) -> dict[int, int]:
    """The buckets in such a text. What cannot be read is left out: a table accepts any text."""
    buckets: dict[int, int] = {}
    for bucket, runs in _parts(text if isinstance(text, str) else ""):
        buckets[bucket] = buckets.get(bucket, 0) + runs
    return buckets


def _parts(text: str) -> Iterator[tuple[int, int]]:
    for part in text.split(","):
        bucket, _, runs = part.partition(":")
        if bucket.isdecimal() and runs.isdecimal() and len(part) < _LONGEST and int(bucket) <= _LAST:
            yield int(bucket), int(runs)
