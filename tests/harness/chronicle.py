"""What became of every due time, judged from outside: the lines that bodies wrote, held against the rows of the ledger.

Nothing is taken from a planner: due times are counted here, on the grid of `every`. A process that was killed or frozen is *struck*: an
attempt that it had in hand at that moment may be followed by another. Everything else happens once.
"""

import itertools
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tenure.ledger import RunRow, RunState


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a body."""

    what: str
    job: str
    key: str
    attempt: int
    due: float
    at: float
    """On the machine's monotonic clock, which no test shifts."""
    pid: int
    label: str


@dataclass(frozen=True, slots=True)
class Blow:
    """A process did nothing from `since` to `until`, and what it had in hand is in doubt."""

    pid: int
    since: float
    until: float = math.inf

    def hit(self, start: Line, end: Line | None) -> bool:
        """Whether an attempt was in hand, or its ending not heard by the ledger yet."""
        return (
            self.pid == start.pid and start.at <= self.until + EARLY and (end is None or end.at + UNHEARD >= self.since)
        )


@dataclass(frozen=True, slots=True)
class Fault:
    """One blow, for the report."""

    kind: str
    target: str
    at: float
    lasts: float = 0.0
    planned: bool = False
    """The target was whoever planned."""


@dataclass
class Verdict:
    """What was found. `problems` are broken promises."""

    due: int = 0
    states: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    """Due times with more than one attempt: the first was struck."""
    twice: int = 0
    """Due times whose body went to its end twice, because the first was struck before the ledger heard of it."""
    lateness: list[float] = field(default_factory=list)
    """Of due times that no struck process had claimed: from when it might begin, after its spread, to the first body's beginning."""
    late_again: list[float] = field(default_factory=list)
    """Of the others: to the beginning of the attempt that counted."""
    problems: list[str] = field(default_factory=list)

    def verify(self) -> None:
        """Raise with what was broken."""
        if self.problems:
            shown = "\n".join(self.problems[:40])
            raise AssertionError(f"{len(self.problems)} problems, {self}\n{shown}")

    def __str__(self) -> str:
        states = ", ".join(f"{count} {state}" for state, count in self.states.most_common())
        return (
            f"{self.due} due times: {states}; {self.repeated} repeated, {self.twice} bodies ended twice; "
            f"late {shown(self.lateness)}; after a blow {shown(self.late_again)}"
        )


def read(path: Path) -> list[Line]:
    """All lines so far; one that is being written is left out."""
    if not path.exists():
        return []
    text = path.read_text()
    return [_line(json.loads(line)) for line in text[: text.rfind("\n") + 1].splitlines()]


def _line(fields: Mapping[str, Any]) -> Line:
    return Line(**fields)


def judge(
    lines: Iterable[Line],
    rows: Iterable[RunRow],
    *,
    grid: Mapping[str, float],
    since: float,
    until: float,
    blows: Sequence[Blow] = (),
    may_skip: frozenset[str] = frozenset(),
    wall: float,
) -> Verdict:
    """Judge the due times of these jobs (name → period) in [since, until).

    `may_skip` are jobs whose due times may be skipped by overlap. `wall` is what the wall clock is ahead of the monotonic one.
    """
    verdict = Verdict()
    by_run: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in lines:
        by_run[line.job, line.key].append(line)
    by_due: dict[tuple[str, int], list[RunRow]] = defaultdict(list)
    for row in rows:
        if row.kind == "due":
            by_due[row.name, round(row.scheduled_for * 1000)].append(row)
    for job, period in grid.items():
        for due in due_times(period, since, until):
            verdict.due += 1
            found = by_due.get((job, round(due * 1000)), [])
            if len(found) != 1:
                verdict.problems.append(f"{job} at {due:.3f}: {len(found)} runs in the ledger")
                continue
            row = found[0]
            verdict.states[row.state.value] += 1
            _judge_run(verdict, row, by_run.get((job, row.key), []), blows, skips=job in may_skip, wall=wall)
    return verdict


def _judge_run(
    verdict: Verdict, row: RunRow, lines: Sequence[Line], blows: Sequence[Blow], *, skips: bool, wall: float
) -> None:
    def broken(what: str) -> None:
        story = "; ".join(f"{line.what} {line.attempt} by {line.label} at {line.at:.3f}" for line in lines)
        verdict.problems.append(f"{row.name} {row.key} ({row.state}, attempt {row.attempt}): {what}. {story}")

    starts = sorted((line for line in lines if line.what == "start"), key=lambda line: line.at)
    ends = {(line.attempt, line.pid): line for line in lines if line.what == "end"}
    if row.state is RunState.SKIPPED and skips and row.reason in {"overlap", "superseded"}:
        if starts:
            broken("skipped, and it began")
        return
    if row.state is not RunState.SUCCEEDED:
        broken("it did not succeed")
        return
    if not any(attempt == row.attempt for attempt, _ in ends):
        broken("the ledger has it as succeeded and no body of that attempt ended")
        return
    if len({line.attempt for line in starts}) != len(starts):
        broken("one attempt began twice")
    for earlier, later in itertools.pairwise(starts):
        end = ends.get((earlier.attempt, earlier.pid))
        if not any(blow.hit(earlier, end) for blow in blows):
            broken(f"attempt {later.attempt} began although attempt {earlier.attempt} was not struck")
    if starts[0].at + wall < row.scheduled_for - EARLY:
        broken(f"it began {row.scheduled_for - starts[0].at - wall:.3f} s early")
    verdict.repeated += len(starts) > 1
    verdict.twice += len(ends) > 1
    counted = next(line for line in starts if line.attempt == row.attempt)
    late = counted.at + wall - row.due_at
    (verdict.late_again if row.losses or len(starts) > 1 else verdict.lateness).append(late)


EARLY = 0.05
"""What two clocks of one machine, read one after the other, may differ on a busy one."""
UNHEARD = 5.0
"""How long the ledger may not have heard of an ending: a database that restarts, on a busy machine."""


def due_times(period: float, since: float, until: float) -> Iterable[float]:
    """The grid of `every` in [since, until)."""
    number = math.ceil(round(since / period, 9))
    while (due := number * period) < until:
        yield due
        number += 1


def most_at_once(lines: Sequence[Line], blows: Sequence[Blow] = ()) -> dict[str, int]:
    """Per job: how many bodies ran at the same moment. Those that were struck do not count, and one without an end runs on."""
    moments: dict[str, list[tuple[float, int]]] = defaultdict(list)
    ends = {(line.job, line.key, line.attempt, line.pid): line for line in lines if line.what == "end"}
    for line in lines:
        end = ends.get((line.job, line.key, line.attempt, line.pid))
        if line.what == "start" and not any(blow.hit(line, end) for blow in blows):
            moments[line.job].append((line.at, 1))
            if end is not None:
                moments[line.job].append((end.at, -1))
    most: dict[str, int] = {}
    for job, changes in moments.items():
        running = highest = 0
        for _, change in sorted(changes):
            running += change
            highest = max(highest, running)
        most[job] = highest
    return most


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which this share lies."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else math.nan


def shown(values: Sequence[float]) -> str:
    """A distribution of seconds, in milliseconds."""
    if not values:
        return "(none)"
    p50, p99, most = (quantile(values, share) * 1000 for share in (0.5, 0.99, 1.0))
    return f"p50 {p50:.0f} ms, p99 {p99:.0f} ms, max {most:.0f} ms of {len(values)}"
