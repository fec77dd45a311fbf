"""What the lines of the bodies say about the due times of a grid. Pure; it trusts nobody's ledger."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

EARLY = 0.05
"""Clocks and timers may let a body begin a little before its due time."""


@dataclass(frozen=True, slots=True)
class Line:
    """A body began, or ended; times are those of the wall clock."""

    what: str
    job: str
    due: float
    at: float
    pid: int


@dataclass(frozen=True, slots=True)
class Grid:
    """The due times `start`, `start + every` … before `end`, each of every job."""

    jobs: Sequence[str]
    every: int
    start: float
    end: float

    def points(self) -> set[tuple[str, float]]:
        count = max(0, math.ceil((self.end - self.start) / self.every))
        return {(job, self.start + self.every * step) for job in self.jobs for step in range(count)}


@dataclass(slots=True)
class Tally:
    """What became of the due times: each is in one of `once`, `repeated`, `twice` and `lost`."""

    due: int = 0
    once: int = 0
    repeated: int = 0
    """Begun more than once, ended once: the other attempts were cut short."""
    twice: int = 0
    """Ended more than once."""
    lost: int = 0
    """Never ended."""
    cut: int = 0
    """Those of the lost that had begun."""
    strange: int = 0
    """Bodies that began for a due time that no job has."""
    lateness: list[float] = field(default_factory=list)
    """From the due time to the first beginning."""


def read(text: str, every: int, offset: float) -> list[Line]:
    """The lines of a file. `offset` is the wall clock less the boottime clock; a body that was not told its due time
    worked for the last one."""
    lines = []
    for line in map(json.loads, text.splitlines()):
        due = line["due"]
        if due is None:
            due = (line["asked"] + offset + EARLY) // every * every
        lines.append(Line(line["what"], line["job"], due, line["at"] + offset, line["pid"]))
    return lines


def judge(lines: Iterable[Line], grid: Grid) -> Tally:
    """Count what became of each due time of the grid."""
    began: dict[tuple[str, float], list[float]] = {point: [] for point in grid.points()}
    ended = dict.fromkeys(began, 0)
    tally = Tally(due=len(began))
    for line in lines:
        if (point := (line.job, line.due)) not in began:
            tally.strange += line.what == "began" and (line.job not in grid.jobs or line.due % grid.every != 0)
        elif line.what == "began":
            began[point].append(line.at)
        else:
            ended[point] += 1
    for point, beginnings in began.items():
        if beginnings:
            tally.lateness.append(min(beginnings) - point[1])
        match ended[point], len(beginnings):
            case 0, begun:
                tally.lost += 1
                tally.cut += begun > 0
            case 1, 1:
                tally.once += 1
            case 1, _:
                tally.repeated += 1
            case _:
                tally.twice += 1
    return tally


def silence(lines: Iterable[Line], jobs: Sequence[str], every: int, moment: float) -> float | None:
    """From the first due time after a moment until every job has begun for it or a later one; None if one never did."""
    due = (moment // every + 1) * every
    first = dict.fromkeys(jobs, math.inf)
    for line in lines:
        if line.what == "began" and line.due >= due and line.job in first:
            first[line.job] = min(first[line.job], line.at)
    last = max(first.values())
    return None if last == math.inf else max(0.0, last - due)
