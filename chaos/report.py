"""What the plays of `make chaos` showed, as one page: a table by kind of fault, a picture, then play by play."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from chaos.picture import Film
from harness import chronicle, tallies
from harness.chronicle import Verdict
from harness.scenes import Scene
from harness.tallies import CALM, Tally

BOUND = 0.1
"""No due time that a struck process had not claimed should be later than this."""
HEAD = (
    "fault",
    "how often",
    "due times",
    "lost",
    "doubled",
    "repeated bodies",
    "late, ms",
    f"over {BOUND * 1000:.0f} ms",
    "late if claimed by the process hit, ms",
    "next planner, ms",
    "next body, ms",
)
INTRODUCTION = """\
Real worker processes on real databases are killed, frozen, replaced, cut off and given wrong clocks.
A checker that trusts nothing of tenure's own counts the due times on the grid of each job, and looks for each of them in two places.
One is a file that bodies append to when they begin and end.
The other is a table of the application, without a unique key, where bodies write one row in the transaction of `run.complete(conn)`.

- *Lost*: no row in the table.
- *Doubled*: more than one row, or a body that began again although no fault had hit the process of the one before.
- *Repeated bodies*: a fault hit the first body, and another one was given the due time.
  What a body does outside the table happens at least once; the row in the table was still written once.
- Only then are the ledger and `scheduler.audit` compared with what was found: they must agree about every due time, or the round counts as broken."""
LEGEND = f"""\
Three figures are p50 / p99 / max.
Each due time is counted under the last fault before its body began; a repeated one under the fault that hit it.

- *Late*: from the due time to the beginning of the body, for due times that no process hit by a fault had claimed; *over {BOUND * 1000:.0f} ms* is how many of them.
- *Next planner*: from a fault that hit the planner to the next term, where it lost its term and another worker was there to follow.
- *Next body*: from the first due time after the fault to the first body of any due time after it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A round that broke a promise."""

    what: str
    again: str
    """The command that repeats it."""


@dataclass
class Result:
    """What one play showed on one store."""

    play: str
    title: str
    store: str
    took: float = 0.0
    rounds: int = 0
    blows: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    kinds: dict[str, Tally] = field(default_factory=dict)
    remarks: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    film: Film | None = None

    def take(self, scene: Scene, verdict: Verdict | None = None) -> None:
        """Add what was seen in a scene."""
        self.blows += scene.blows
        found = Verdict() if verdict is None else verdict
        self.states += found.states
        tallies.merge(self.kinds, tallies.tallies(found, scene.faults, scene.terms, scene.wall))
        if verdict is not None and (self.film is None or len(scene.faults) > len(self.film.faults)):
            self.film = Film(self.title, self.store, scene.faults, scene.terms, verdict.fates)

    @property
    def whole(self) -> Tally:
        """All kinds together."""
        return summed(self.kinds.values())

    @property
    def name(self) -> str:
        return f"{self.play} on {self.store}"


@dataclass(frozen=True, slots=True)
class Occasion:
    """When, for how long and how it was played."""

    command: str
    minutes: float
    seed: int
    load: float
    interrupted: bool = False


def summed(parts: Iterable[Tally]) -> Tally:
    whole = Tally()
    for part in parts:
        whole += part
    return whole


def kinds_of(results: Iterable[Result]) -> dict[str, Tally]:
    """The tallies of all plays together."""
    kinds: dict[str, Tally] = {}
    for result in results:
        tallies.merge(kinds, result.kinds)
    return kinds


def page(results: Sequence[Result], occasion: Occasion, picture: Path | None, folder: Path) -> str:
    """The Markdown page; `folder` is where it will stand."""
    return "\n".join(_page(results, occasion, picture, folder)) + "\n"


def _page(results: Sequence[Result], occasion: Occasion, picture: Path | None, folder: Path) -> Iterator[str]:
    kinds = kinds_of(results)
    whole = summed(kinds.values())
    yield "# Schedulers under faults"
    yield ""
    yield f"**{verdict(results)}** {whole.faults:,} faults, {whole.due:,} due times: {whole.lost:,} lost, {whole.doubled:,} doubled."
    yield ""
    yield "```sh"
    yield occasion.command
    yield "```"
    yield ""
    if occasion.interrupted:
        yield "Interrupted: what follows is what was seen until then, without the round that was being played."
        yield ""
    yield from table(kinds)
    yield ""
    yield LEGEND
    yield ""
    if picture is not None:
        yield f"![Who planned, how late bodies began, and what was done to them]({picture.name})"
        yield ""
        yield "Where two seem to plan, the older one does not know yet that it has lost its term; the ledger accepts each due time once, whichever node plans it."
        yield ""
    yield INTRODUCTION
    yield ""
    yield f"- {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {occasion.minutes:.0f} minutes, seed {occasion.seed}; {os.cpu_count()} cores, Python {platform.python_version()}"
    yield f"- Load: {occasion.load:.2f} before, {os.getloadavg()[0]:.2f} at the end; the lateness is that of a machine this busy"
    if (folder / "peers.md").exists():
        yield "- Other schedulers under the same kinds of faults: [peers.md](peers.md)"
    for result in results:
        yield ""
        yield f"## {result.title.partition(':')[0]} ({result.store})"
        yield ""
        yield from told(result)


def table(kinds: dict[str, Tally]) -> Iterator[str]:
    """One line for each kind of fault, the most frequent first."""
    yield f"| {' | '.join(HEAD)} |"
    yield f"|---|{'---:|' * (len(HEAD) - 1)}"
    for kind, tally in sorted(kinds.items(), key=lambda item: (item[0] != CALM, -item[1].faults)):
        if tally.due or tally.faults:
            yield _row(kind, tally)
    yield _row("**all**", summed(kinds.values()))


def _row(kind: str, tally: Tally) -> str:
    cells = [
        kind,
        f"{tally.faults:,}" if tally.faults else "",
        f"{tally.due:,}",
        f"{tally.lost:,}",
        f"{tally.doubled:,}",
        f"{tally.repeated:,}",
        three(tally.lateness),
        f"{tally.over(BOUND):,}",
        three(tally.late_again),
        three(tally.failovers),
        three(tally.resumed),
    ]
    return f"| {' | '.join(cells)} |"


def three(values: Sequence[float]) -> str:
    """p50 / p99 / max in milliseconds."""
    if not values:
        return ""
    return " / ".join(f"{chronicle.quantile(values, share) * 1000:,.0f}" for share in (0.5, 0.99, 1.0))


def told(result: Result) -> Iterator[str]:
    """What one play showed, line by line."""
    setting, whole = result.title.partition(": ")[2], result.whole
    yield f"- `--only {result.play}`: {f'{setting}; ' if setting else ''}{result.rounds} round{'s' * (result.rounds != 1)}, {result.took:.0f} s"
    if result.blows:
        yield f"- faults: {', '.join(f'{count:,} {kind}' for kind, count in result.blows.most_common())}"
    if whole.due:
        states = ", ".join(f"{count:,} {state}" for state, count in result.states.most_common())
        yield f"- {whole.due:,} due times: {states}; {whole.repeated:,} with repeated bodies"
        yield f"- late: {chronicle.shown(whole.lateness)}; {whole.over(BOUND):,} over {BOUND * 1000:.0f} ms"
    if whole.late_again:
        yield f"- late where a fault hit the attempt: {chronicle.shown(whole.late_again)}"
    if whole.failovers:
        yield f"- from a fault that hit the planner to the next planner: {chronicle.shown(whole.failovers)}"
    if result.remarks:
        yield f"- {'; '.join(f'{what}: {count:,}' for what, count in sorted(result.remarks.items()))}"
    for failure in result.failures:
        yield f"- **broken**, again with `{failure.again}`:"
        yield ""
        yield from (f"      {line}" for line in failure.what.splitlines())


def verdict(results: Sequence[Result]) -> str:
    """In one sentence."""
    broken = sum(bool(result.failures) for result in results)
    if broken:
        return f"{broken} of {len(results)} plays broke a promise."
    return "None was lost and none was doubled."
