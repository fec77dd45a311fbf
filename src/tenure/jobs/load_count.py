"""Counts the load of an application from its ledger, in bounded slices: the page and `tenure load` use it.

A slice reads one page of jobs, or goes through a bounded number of due times. Between two of them the caller can let
other threads have their turn. Jobs come in the order of their next due times, page by page. A job that is planned
further meanwhile comes again and is left out then; none is passed by, because planning only moves forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from tenure.core.figures import DAY, HOURS_KEPT
from tenure.core.load import Load, LoadCounter, LoadJob
from tenure.core.messages import JobPageQuery, RunQuery
from tenure.core.records import Instant, JobId, JobRow, JobState, RunState
from tenure.core.trigger_text import read_trigger
from tenure.stores.ledger import Ledger

PAGE = 100
"""Jobs that one slice reads."""
SLICE = 200
"""Steps of a slice: a slice ends with the first part of the work that reaches them."""
RUNS = 1000
"""Running and requested runs that are looked at."""

Opened = Callable[[], AbstractContextManager[Ledger]]
"""Opens the ledger for one page."""


class LoadCount:
    """One count of all jobs of an application."""

    def __init__(self, application: str, opened: Opened) -> None:
        self._application, self._opened = application, opened
        self._work = self._all()
        self._seen: set[JobId] = set()
        self._unreadable: list[str] = []
        self._counter: LoadCounter | None = None
        self.now: Instant = 0.0
        """When it began, by the clock of the ledger."""
        self.total = 0
        """How many jobs there are."""
        self.paused = 0
        """How many of them are paused until they are resumed, and therefore left out."""
        self.done = 0
        """How many of them were looked at."""
        self.longest = 0
        """Steps of the longest slice so far."""
        self.load: Load | None = None
        """What was counted; None as long as there is more to do."""

    @property
    def jobs(self) -> dict[str, LoadJob]:
        """The jobs, by name, as they were when they were counted."""
        return {} if self._counter is None else dict(self._counter.jobs)

    def advance(self, steps: int = SLICE) -> bool:
        """Do a slice. False if nothing is left to do."""
        taken = 0
        for one in self._work:
            taken += one
            if taken >= steps:
                break
        self.longest = max(self.longest, taken)
        return self.load is None

    def _all(self) -> Iterator[int]:
        with self._opened() as ledger:
            self.now, self.total = ledger.now(), ledger.count_jobs(self._application)
        counter = self._counter = LoadCounter(self._application, self.now)
        yield SLICE
        for read in (self._active, self._paused, self._following):
            for jobs in read():
                yield SLICE  # what was read is a slice by itself
                for job in jobs:
                    self.done += 1
                    yield from counter.add(job)
        for name in self._unreadable:
            counter.add_unreadable(name)
        yield from counter.add_followers()
        yield from self._runs(counter)
        yield from counter.look()
        self.done = self.total
        self.load = counter.load()

    def _active(self) -> Iterator[list[LoadJob]]:
        beyond = (0.0, JobId(0))
        while True:
            with self._opened() as ledger:
                rows = ledger.planned_beyond(self._application, beyond, PAGE)
                jobs = self._jobs(ledger, rows)
            yield jobs
            if len(rows) < PAGE:
                return
            beyond = (rows[-1].next_due or 0.0, rows[-1].id)

    def _paused(self) -> Iterator[list[LoadJob]]:
        """Those whose pause ends by itself."""
        first = 0
        while True:
            page = JobPageQuery(self._application, state=JobState.PAUSED, limit=PAGE, skip=first)
            with self._opened() as ledger:
                rows, total = ledger.job_page(page)
                jobs = self._jobs(ledger, [row for row in rows if row.paused_until is not None])
            self.paused += sum(row.paused_until is None for row in rows)
            yield jobs
            first += PAGE
            if first >= total:
                return

    def _following(self) -> Iterator[list[LoadJob]]:
        with self._opened() as ledger:
            rows = [row for row in ledger.followers(self._application) if row.state is JobState.ACTIVE]
        for first in range(0, len(rows), PAGE):
            with self._opened() as ledger:
                jobs = self._jobs(ledger, rows[first : first + PAGE])
            yield jobs

    def _jobs(self, ledger: Ledger, rows: Sequence[JobRow]) -> list[LoadJob]:
        new = [row for row in rows if row.id not in self._seen]
        self._seen.update(row.id for row in new)
        for row in new:
            if row.spec.trigger is not None and read_trigger(row.spec.trigger)[0] is None:
                self._unreadable.append(row.spec.name)
        took = took_of(ledger, self._application, [row.spec.name for row in new], self.now)
        return [load_job(row, took.get(row.spec.name)) for row in new]

    def _runs(self, counter: LoadCounter) -> Iterator[int]:
        """What goes on now, and what was requested for a time to come."""
        with self._opened() as ledger:
            running = ledger.runs(RunQuery(self._application, states=(RunState.RUNNING,), limit=RUNS))
            coming = ledger.coming(self._application, RUNS)
        yield SLICE
        only_requested = sorted({run.name for run in (*running, *coming)} - counter.jobs.keys())
        for first in range(0, len(only_requested), PAGE):
            names = tuple(only_requested[first : first + PAGE])
            with self._opened() as ledger:
                rows, _ = ledger.job_page(JobPageQuery(self._application, names=names, limit=PAGE))
                jobs = self._jobs(ledger, rows)
            yield SLICE
            for job in jobs:
                yield from counter.add(replace(job, trigger=None))  # paused or over: nothing else of it runs
        for run in running:
            if run.started_at is not None:
                counter.add_running(run.name, run.started_at)
            yield 1
        for run in coming:
            counter.add_requested(run.name, run.due_at)
            yield 1


def load_job(row: JobRow, took: float | None) -> LoadJob:
    """A job of the ledger, as far as its load matters."""
    trigger, _ = read_trigger(row.spec.trigger)
    return LoadJob(row.spec.name, trigger, row.spec.rules, took, row.paused_until or 0.0)


def took_of(ledger: Ledger, application: str, names: Sequence[str], now: Instant) -> dict[str, float]:
    """How many seconds the runs of these jobs took on average: in the last day, or if there were none, in the hours
    that are kept."""
    found: dict[str, float] = {}
    for since in (now - DAY, now - HOURS_KEPT):
        left = [name for name in names if name not in found]
        if left:
            for name, figures in ledger.totals(application, since, left).items():
                if (mean := figures.took.mean) is not None:
                    found[name] = mean
    return found
