"""The scheduler's figures: medians of rounds with their goals, the bare driver and APScheduler beside them."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from report import Figure, Goal, Report, Series


@dataclass
class Rounds(Series):
    """One value of each statistic per round; the median is what counts, the spread is shown."""

    by: dict[str, list[float]] = field(default_factory=dict)

    def statistic(self, name: str) -> float:
        return statistics.median(self.by[name])

    def has(self, name: str) -> bool:
        return bool(self.by.get(name))

    def summary(self) -> str:
        """`p50 0.46 [0.41..0.52], p99 2.4 [2.0..2.7] ms`"""
        parts = []
        for name, values in self.by.items():
            spread = f" [{self.shown(min(values))}..{self.shown(max(values))}]" if len(values) > 1 else ""
            parts.append(f"{name} {self.shown(statistics.median(values))}{spread}".lstrip())
        text = ", ".join(parts) + (f" {self.unit}" if self.unit and parts else "")
        return "; ".join(filter(None, [text, self.note]))


@dataclass
class AtMost(Goal):
    """A median that must not be more."""

    def met(self, rounds: Rounds) -> bool:
        return rounds.has(self.statistic) and rounds.statistic(self.statistic) <= self.limit

    def verdict(self, series: Series) -> str:
        assert isinstance(series, Rounds)
        label, unit = f"{self.statistic} " if self.statistic else "", f" {series.unit}" if series.unit else ""
        reason = f" ({self.why})" if self.why else ""
        return f"{label}{self.sign} {series.shown(self.limit)}{unit}{reason}: {'met' if self.met(series) else 'MISSED'}"

    @property
    def sign(self) -> str:
        return "≤"


@dataclass
class AtLeast(AtMost):
    """A median that must not be less."""

    def met(self, rounds: Rounds) -> bool:
        return rounds.has(self.statistic) and rounds.statistic(self.statistic) >= self.limit

    @property
    def sign(self) -> str:
        return "≥"


@dataclass
class Line(Figure):
    """One line of the table. `beside` has the limit and the others, as they are shown on the terminal."""

    limit: Rounds | None = None
    peer: Rounds | None = None

    def __post_init__(self) -> None:
        self.beside = [*self.beside, *filter(None, [self.limit, self.peer])]

    def compared(self) -> list[str]:
        named = (("the bare driver", self.limit), ("APScheduler 3", self.peer))
        return [f"{name}: {one.what}: {one.summary()}" for name, one in named if one]


def rates(what: str, values: list[float], unit: str, note: str = "") -> Rounds:
    return Rounds(what, unit=unit, note=note, by={"": values})


def latenesses(what: str, windows: list[list[float]], note: str = "") -> Rounds:
    """p50 and p99 of each window, in seconds."""
    told = [Series(what, window) for window in windows if window]
    by = {name: [one.statistic(name) for one in told] for name in ("p50", "p99")} if told else {}
    missing = len(windows) - len(told)
    lost = f"nothing ran in {missing} of {len(windows)} rounds" if missing else ""
    return Rounds(what, by=by, note="; ".join(filter(None, [note, lost])))


class SchedulerReport(Report):
    """All lines of one run."""

    name = "scheduler-benchmark"

    def markdown(self) -> str:
        lines = [figure for figure in self.figures if isinstance(figure, Line)]
        return self.page(
            "The scheduler, measured",
            "Processes are real, PostgreSQL is real and durable (`fsync = on`, `synchronous_commit = on`), and SQLite is on disk; all on one machine.",
            "Cells are the median [least..most] of rounds.",
            "Lateness is the start of the body minus its due time, both by the clock of the machine, which is the server's too.",
            "APScheduler's lateness is taken when it reports that the body ran, just after.",
            "The limit is psycopg sending the same statements with nothing around them.",
            lines=[(line.cells(), line.compared()) for line in lines],
        )

    def found(self, topic: str, what: str) -> Rounds | None:
        """What this run measured before."""
        return next(
            (f.ours for f in self.figures if isinstance(f.ours, Rounds) and (f.topic, f.ours.what) == (topic, what)),
            None,
        )
