"""What was seen, as a Markdown page."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from judge import Grid, Line, Tally, judge, silence
from roster import Peer


@dataclass
class Result:
    """What one peer showed."""

    peer: Peer
    versions: str = ""
    calm: Tally = field(default_factory=Tally)
    struck: Tally = field(default_factory=Tally)
    blows: Counter[str] = field(default_factory=Counter)
    fell: Counter[str] = field(default_factory=Counter)
    silences: list[float | None] = field(default_factory=list)
    trouble: str = ""

    def take(self, lines: Sequence[Line], calm: Grid, struck: Grid, deaths: Sequence[float]) -> None:
        """Judge the lines, before the first fault and after."""
        self.calm, self.struck = judge(lines, calm), judge(lines, struck)
        self.silences = [silence(lines, calm.jobs, calm.every, moment) for moment in deaths]


HEAD = (
    "scheduler",
    "due",
    "once",
    "repeated",
    "ended twice",
    "lost",
    "late: p50, p99, max",
    "after a kill: p50, max",
    "fell over",
)
METHOD = (
    "`python3 dev.py chaos-peers` wrote this page; run it to repeat the comparison.",
    "",
    "Three real processes of each scheduler (and its beats, where it has them) run ten jobs, each due every 2 s, on a real server of its own.",
    "A body appends a line to a file when it begins and another when it ends, 50 ms later; all counts come from these lines.",
    "All schedulers get the same faults in the same order:",
    "",
    "- kill -9 of the process that leads or sends, and of one that has just begun a body",
    "- a freeze of each for 8 s",
    "- SIGTERM to all in turn",
    "- a restart of the server",
    "- the network of a worker cut for 8 s",
    "",
    "A process that ends by itself is started again at once.",
    "Locks last 5 s wherever that can be set.",
)
LEGEND = (
    "- *Once*: begun once, ended once.",
    "- *Repeated*: an attempt was cut short, another one ended.",
    "- *Ended twice*: two or more attempts ended.",
    "- *Lost*: none ended; in brackets, how many of these had begun.",
    "  A scheduler that was never meant to run a due time that has passed shows it as lost, too: compare with what it promises, below.",
    "- *Late*: from the due time to the first beginning.",
    "- *After a kill*: from the first due time after a kill -9 until every job has begun again.",
    "- *Fell over*: processes that ended by themselves.",
    "",
    "A body of APScheduler 3 and 4, procrastinate and tenure knows its due time.",
    "pgqueuer and Celery do not pass it: there a body counts for the last due time before it began (pgqueuer) or was sent (Celery).",
    "Celery counts an interval from the last sending, so after a late one it may continue at odd seconds; that second is in its lateness.",
)


def page(results: Sequence[Result], seed: int, minutes: float, before: float) -> Iterator[str]:
    """All of it."""
    yield "# Other schedulers under the same faults"
    yield ""
    yield from METHOD
    yield ""
    yield f"- {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {minutes:.0f} minutes, seed {seed}; {os.cpu_count()} cores, Python {platform.python_version()}"
    yield f"- Load: {before:.2f} before, {os.getloadavg()[0]:.2f} at the end; the lateness is that of a machine this busy"
    shown = [result for result in results if not result.trouble]
    yield ""
    yield "## Under faults"
    yield ""
    yield from table(HEAD, (struck_cells(result) for result in shown))
    yield ""
    yield from LEGEND
    yield ""
    yield "## Undisturbed, before the first fault"
    yield ""
    yield from table((*HEAD[:7],), (tally_cells(result, result.calm) for result in shown))
    yield ""
    yield "## What each promises, and how it was configured"
    for result in shown:
        yield ""
        yield f"### {result.peer.title}"
        yield ""
        yield f"- Promises: {result.peer.promises}"
        yield f"- Configuration: {result.peer.setting}"
        yield f"- Versions: {result.versions}"
        yield f"- Faults: {counted(result.blows)}"
    for result in results:
        if result.struck.strange:
            yield ""
            yield f"{result.peer.title}: {result.struck.strange:,} bodies began for due times that no job has."
        if result.trouble:
            yield ""
            yield f"Left out: {result.peer.title}, {result.trouble}"


def table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for cells in rows:
        yield f"| {' | '.join(cells)} |"


def tally_cells(result: Result, tally: Tally) -> tuple[str, ...]:
    lost = f"{tally.lost:,}" + (f" ({tally.cut:,})" if tally.lost else "")
    counts = (f"{count:,}" for count in (tally.due, tally.once, tally.repeated, tally.twice))
    return (result.peer.title, *counts, lost, late(tally.lateness))


def struck_cells(result: Result) -> tuple[str, ...]:
    again = [seconds for seconds in result.silences if seconds is not None]
    never = len(result.silences) - len(again)
    after = f"{seconds(again, 0.5)}, {seconds(again, 1)}" if again else "-"
    after += f"; never {never} times" if never else ""
    return (*tally_cells(result, result.struck), after, counted(result.fell) or "0")


def told(result: Result) -> Iterator[str]:
    """For the terminal."""
    if result.trouble:
        yield f"  {result.trouble}"
        return
    for name, tally in (("calm", result.calm), ("struck", result.struck)):
        cells = tally_cells(result, tally)
        yield f"  {name}: " + ", ".join(f"{head} {cell}" for head, cell in zip(HEAD[1:7], cells[1:], strict=True))
    yield f"  after a kill: {struck_cells(result)[7]}; faults: {counted(result.blows)}; fell over: {counted(result.fell) or 0}"
    if result.struck.strange:
        yield f"  {result.struck.strange} bodies began for due times that no job has"


def counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))


def late(values: Sequence[float]) -> str:
    return ", ".join(seconds(values, part) for part in (0.5, 0.99, 1)) if values else "-"


def seconds(values: Sequence[float], part: float) -> str:
    """The value below which this part of them is."""
    value = sorted(values)[min(len(values) - 1, int(part * len(values)))]
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
