"""Looks for what is wrong or surprising in the definitions of an application: `tenure check`. Asks no database."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tenure.core.arguments import decode
from tenure.core.clock_changes import ClockChangeFinder
from tenure.core.herds import HerdFinder, shortest_gap
from tenure.errors import ConfigurationError
from tenure.jobs.decorators import Definition, Definitions
from tenure.jobs.functions import bind
from tenure.triggers import At
from tenure.util.durations import readable, written
from tenure.util.plurals import counted, several

NAMED = 5
"""How many jobs a sentence names."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong, or a warning."""

    kind: str
    """A stable word: 'definition', 'arguments', 'never_due', 'unknown_parent', 'unserved_queue', 'clock_change',
    'herd', …"""
    wrong: bool
    """False for a warning."""
    jobs: tuple[str, ...]
    text: str

    def as_dict(self) -> dict[str, Any]:
        """Only texts and lists."""
        level = "error" if self.wrong else "warning"
        return {"level": level, "kind": self.kind, "jobs": list(self.jobs), "text": self.text}


def problems(definitions: Definitions, queues: Sequence[str] | None, now: datetime) -> list[Problem]:
    """What is wrong first, then warnings. `queues` are those that the process serves; None: all."""
    jobs = definitions.jobs
    found: list[Problem] = []
    names = {job.name for job in jobs}
    for job in jobs:
        found += _of_one(job, queues, now)
        if job.rules.after is not None and job.rules.after not in names:
            found.append(_without_parent(job, names))
    found += _clock_changes(jobs, now)
    found += _herds(jobs, now)
    return sorted(found, key=lambda problem: not problem.wrong)


def _of_one(job: Definition, queues: Sequence[str] | None, now: datetime) -> Iterator[Problem]:
    name, rules = job.name, job.rules
    if job.trigger is not None or rules.after is not None:
        try:
            bind(job.function, decode(job.kwargs))
        except ConfigurationError as error:
            yield Problem("arguments", True, (name,), f"{name}: {error}")
    if job.trigger is not None:
        try:
            due = job.trigger.next_after(now)
        except ConfigurationError as error:
            yield Problem("never_due", True, (name,), f"{name}: {error}")
            return
        if due is None and isinstance(job.trigger, At):
            yield Problem("past", False, (name,), f"{name}: its due time has passed. {job.trigger.explain()}")
        elif due is None:
            yield Problem("never_due", True, (name,), f"{name} is never due: {job.trigger.explain()}")
        gap = shortest_gap(job.trigger, now)
        if gap is not None and (late := rules.spread + rules.jitter) >= gap:
            yield Problem(
                "spread",
                False,
                (name,),
                f"{name}: spread and jitter add up to {readable(late)}, but it is due every {readable(gap)}, so a run "
                "may begin after the next due time. Reduce them.",
            )
    if queues is not None and rules.queue not in queues:
        serves = ", ".join(map(repr, queues)) or "none"
        yield Problem(
            "unserved_queue",
            False,
            (name,),
            f"{name} is on the queue {rules.queue!r}, and this scheduler serves {serves}: other processes must run it.",
        )


def _without_parent(job: Definition, names: Iterable[str]) -> Problem:
    """It follows a job that the code does not define: a job added at run time, or a mistake."""
    parent = job.rules.after or ""
    near = difflib.get_close_matches(parent, [name for name in names if name != job.name], 1)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    text = (
        f"{job.name} follows {parent!r}, which this code does not define: it must have been added at run time.{meant}"
    )
    return Problem("unknown_parent", bool(near), (job.name,), text)


# Clock changes and herds


def _clock_changes(jobs: Iterable[Definition], now: datetime) -> Iterator[Problem]:
    """Jobs that do not simply run as always when the clocks change."""
    finder = ClockChangeFinder(now)
    for job in jobs:
        if job.trigger is not None:
            finder.add(job.name, job.trigger)
    for touched in finder.found:
        yield Problem("clock_change", False, touched.jobs, f"{several(touched.jobs, NAMED)}: {touched.text}")


def _herds(jobs: Iterable[Definition], now: datetime) -> Iterator[Problem]:
    """Many jobs that are due in the same minute, the largest herds first."""
    finder = HerdFinder(now)
    for job in jobs:
        if job.trigger is not None:
            finder.add(job.name, job.trigger, job.rules)
    for _ in finder.look():
        pass
    for herd in finder.found:
        yield Problem(
            "herd",
            False,
            herd.jobs,
            f"{counted(len(herd.jobs), 'job')} are due in the same minute, next at {herd.at:%a %H:%M %Z}: "
            f"{several(herd.jobs, NAMED)}. spread={written(herd.spread)!r} on each starts them one after the other.",
        )
