"""What became of every due time, judged from outside: the lines and the rows that bodies wrote, held against the grid
of each job.

Nothing is taken from tenure. Due times are counted here, on the grid of `every`. A body appends a line to a file when
it begins and when it ends; a job *in the table* also writes a row into a table of the application's own, in the
transaction of its completion. Nothing is unique there, so what was done twice stands there twice. The rules:

- each due time has one row in the table: none is *lost*, two are *doubled*; - a body that began again is *repeated*,
and must be explained by a blow that hit the process of the one before, else it is doubled too; - no body begins early,
and none where nothing was due.

Only then is the ledger held against what was found (`disagreements`): it may not say anything else.
"""

import bisect
import itertools
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tenure.core.records import RunRow, RunState

EARLY = 0.05
"""What two clocks of one machine, read one after the other, may differ on a busy one."""
MOMENT = 0.1
"""What is due is begun within it, unless something is in the way."""
UNHEARD = 5.0
"""How long the ledger may not have heard of an ending: a database that restarts, on a busy machine."""


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
class Row:
    """One row of the application's own table."""

    job: str
    due: float
    key: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Grid:
    """What is asked of a job."""

    period: float
    spread: float = 0.0
    """It begins so much after its due time, always."""
    in_table: bool = False
    may_skip: bool = False
    """A due time is left out while an earlier one is under way."""


@dataclass(frozen=True, slots=True)
class Blow:
    """A process did nothing from `since` to `until`, and what it had in hand is in doubt."""

    pid: int
    since: float
    until: float = math.inf
    kind: str = ""

    def hit(self, start: Line, end: Line | None) -> bool:
        """Whether an attempt was in hand, or its ending not heard by the ledger yet."""
        return (
            self.pid == start.pid and start.at <= self.until + EARLY and (end is None or end.at + UNHEARD >= self.since)
        )


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of one due time. All instants but `due` are on the monotonic clock."""

    job: str
    due: float
    state: str
    """'ran', 'skipped', 'lost' or 'doubled'."""
    began: tuple[Line, ...] = ()
    """The beginnings of its bodies."""
    at: float | None = None
    """When the body that counts began, on the monotonic clock."""
    late: float | None = None
    """From when it might begin, after its spread, to when it did."""
    attempt: int = 0
    """The one that counts."""
    causes: tuple[str, ...] = ()
    """What hit the bodies that were repeated."""

    @property
    def hit(self) -> bool:
        """A process that was struck had claimed it."""
        return self.attempt > 1 or len(self.began) > 1


@dataclass
class Verdict:
    """What was found. `problems` are broken promises."""

    fates: list[Fate] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def due(self) -> int:
        return len(self.fates)

    @property
    def states(self) -> Counter[str]:
        return Counter(fate.state for fate in self.fates)

    @property
    def repeated(self) -> int:
        """Due times with more than one body: what they do outside the table is done at least once."""
        return sum(len(fate.began) > 1 for fate in self.fates)

    @property
    def lateness(self) -> list[float]:
        """Of due times that no struck process had claimed."""
        return [fate.late for fate in self.fates if fate.late is not None and not fate.hit]

    @property
    def late_again(self) -> list[float]:
        """Of the others: to the beginning of the body that counts."""
        return [fate.late for fate in self.fates if fate.late is not None and fate.hit]

    def verify(self) -> None:
        """Raise with what was broken."""
        if self.problems:
            shown = "\n".join(self.problems[:40])
            raise AssertionError(f"{len(self.problems)} problems, {self}\n{shown}")

    def __str__(self) -> str:
        states = ", ".join(f"{count} {state}" for state, count in self.states.most_common())
        return (
            f"{self.due} due times: {states}; {self.repeated} repeated; "
            f"late {shown(self.lateness)}; after a blow {shown(self.late_again)}"
        )


def read(path: Path) -> list[Line]:
    """All lines so far; one that is being written is left out."""
    if not path.exists():
        return []
    text = path.read_text()
    return [Line(**json.loads(line)) for line in text[: text.rfind("\n") + 1].splitlines()]


def judge(
    lines: Iterable[Line],
    table: Iterable[Row],
    *,
    grids: Mapping[str, Grid],
    since: float,
    until: float,
    blows: Sequence[Blow] = (),
    wall: float,
) -> Verdict:
    """Judge the due times of these jobs in [since, until).

    `wall` is what the wall clock is ahead of the monotonic one.
    """
    lines = list(lines)
    judge = _Judge(blows, wall, sorted(line.at for line in lines if line.what == "start"))
    busy: dict[str, float] = defaultdict(lambda: -math.inf)
    said: dict[tuple[str, int], list[Line]] = defaultdict(list)
    made: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for line in lines:
        said[line.job, _thousandths(line.due)].append(line)
        if line.due < since:
            busy[line.job] = max(busy[line.job], line.at + wall)
    for row in table:
        made[row.job, _thousandths(row.due)].append(row)
    for job, grid in grids.items():
        for due in due_times(grid.period, since, until):
            key = job, _thousandths(due)
            evidence = _Evidence(job, due, grid, said.pop(key, []), made.pop(key, []))
            judge.due_time(evidence, busy[job])
            busy[job] = max([busy[job], *(line.at + wall for line in evidence.lines)])
    for job, due in sorted(said.keys() | made.keys()):
        if job in grids and since <= due / 1000 < until:
            judge.verdict.problems.append(f"{job} at {due / 1000:.3f}: a body, and nothing was due")
    return judge.verdict


@dataclass(frozen=True, slots=True)
class _Evidence:
    """Of one due time."""

    job: str
    due: float
    grid: Grid
    lines: list[Line]
    rows: list[Row]

    @property
    def starts(self) -> list[Line]:
        return sorted((line for line in self.lines if line.what == "start"), key=lambda line: line.at)

    @property
    def ends(self) -> dict[tuple[int, int], Line]:
        return {(line.attempt, line.pid): line for line in self.lines if line.what in {"end", "refused"}}

    @property
    def counted(self) -> list[int]:
        """The attempts that took effect. Without a table it is the last of those that ended."""
        if self.grid.in_table:
            return [row.attempt for row in self.rows]
        return sorted(line.attempt for line in self.lines if line.what == "end")[-1:]


class _Judge:
    def __init__(self, blows: Sequence[Blow], wall: float, starts: Sequence[float]) -> None:
        self._blows, self._wall, self._starts = blows, wall, starts
        self.verdict = Verdict()

    def due_time(self, seen: _Evidence, busy_until: float) -> None:
        """`busy_until`: when the earlier bodies of the job were last heard of."""
        counted, starts = seen.counted, seen.starts
        fate = Fate(seen.job, seen.due, "ran", tuple(starts))
        if not counted:
            skipped = seen.grid.may_skip and not starts and (busy_until > seen.due or self._stood_still(seen))
            fate = replace(fate, state="skipped" if skipped else "lost")
            if not skipped:
                self._broken(seen, "lost: nothing in the table" if seen.grid.in_table else "lost: no body ended")
        else:
            fate = self._ran(fate, seen, counted)
        self.verdict.fates.append(fate)

    def _stood_still(self, seen: _Evidence) -> bool:
        """Nobody began anything until the job was due again: of two that are late together, either may run."""
        ready = seen.due + seen.grid.spread - self._wall
        return bisect.bisect(self._starts, ready + MOMENT) == bisect.bisect(self._starts, ready + seen.grid.period)

    def _ran(self, fate: Fate, seen: _Evidence, counted: list[int]) -> Fate:
        causes, unexplained = self._repeats(seen)
        doubled = len(counted) > 1 or unexplained
        if len(counted) > 1:
            self._broken(seen, f"doubled: {len(counted)} rows in the table")
        begun = [line for line in fate.began if line.attempt == counted[0]]
        if not begun:
            self._broken(seen, f"attempt {counted[0]} took effect, and no body of it began")
            return replace(fate, state="doubled" if doubled else "ran", attempt=counted[0], causes=causes)
        early = seen.due - EARLY - fate.began[0].at - self._wall
        if early > 0:
            self._broken(seen, f"early by {early:.3f} s and more")
        return replace(
            fate,
            state="doubled" if doubled else "ran",
            at=begun[0].at,
            late=begun[0].at + self._wall - seen.due - seen.grid.spread,
            attempt=counted[0],
            causes=causes,
        )

    def _repeats(self, seen: _Evidence) -> tuple[tuple[str, ...], bool]:
        """What hit each body that was followed by another, and whether one was hit by nothing."""
        causes, unexplained = [], False
        for earlier, later in itertools.pairwise(seen.starts):
            end = seen.ends.get((earlier.attempt, earlier.pid))
            cause = next((blow for blow in self._blows if blow.hit(earlier, end)), None)
            if cause is not None and earlier.attempt != later.attempt:
                causes.append(cause.kind)
                continue
            unexplained = True
            self._broken(
                seen, f"doubled: attempt {later.attempt} began, and no blow hit attempt {earlier.attempt} before"
            )
        return tuple(causes), unexplained

    def _broken(self, seen: _Evidence, what: str) -> None:
        story = "; ".join(f"{line.what} {line.attempt} by {line.label} at {line.at:.3f}" for line in seen.lines)
        rows = ", ".join(f"attempt {row.attempt}" for row in seen.rows)
        self.verdict.problems.append(f"{seen.job} at {seen.due:.3f}: {what}. Table: {rows or 'nothing'}. {story}")


def disagreements(verdict: Verdict, rows: Iterable[RunRow]) -> Iterator[str]:
    """Where the ledger says anything else than was seen."""
    by_due: dict[tuple[str, int], list[RunRow]] = defaultdict(list)
    for row in rows:
        if row.kind == "due":
            by_due[row.name, _thousandths(row.scheduled_for)].append(row)
    for fate in verdict.fates:
        found = by_due.get((fate.job, _thousandths(fate.due)), [])
        if len(found) != 1:
            yield f"{fate.job} at {fate.due:.3f}: {len(found)} runs in the ledger, and it {fate.state}"
            continue
        (row,) = found
        expected = {RunState.SUCCEEDED: "ran", RunState.SKIPPED: "skipped"}.get(row.state)
        if expected != fate.state or (fate.state == "ran" and row.attempt != fate.attempt):
            yield (
                f"{fate.job} at {fate.due:.3f}: {row.state}{f'({row.reason})' if row.reason else ''}, attempt {row.attempt} in the ledger; "
                f"outside it {fate.state}, attempt {fate.attempt}"
            )


def due_times(period: float, since: float, until: float) -> Iterable[float]:
    """The grid of `every` in [since, until)."""
    number = math.ceil(round(since / period, 9))
    while (due := number * period) < until:
        yield due
        number += 1


def _thousandths(due: float) -> int:
    return round(due * 1000)


def most_at_once(lines: Sequence[Line], blows: Sequence[Blow] = ()) -> dict[str, int]:
    """Per job: how many bodies ran at the same moment.

    Those that were struck do not count, and one without an end runs on.
    """
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
