"""Figures, and how they are shown: on the terminal, as Markdown and as JSON.

Goals stand beside the figures; a miss is no failure.
"""

import json
import math
import os
import platform
import sqlite3
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psycopg

SCALES = {"ns": 1e9, "µs": 1e6, "ms": 1e3, "s": 1.0}
"""Times are kept in seconds; every other unit is kept as it is shown."""


@dataclass
class Series:
    """What was measured of one thing, or why it was not."""

    what: str
    values: list[float] = field(default_factory=list)
    unit: str = "ms"
    missing: int = 0
    """Trials that saw nothing happen in the time that they watched."""
    note: str = ""

    def at(self, share: float) -> float:
        """The value that this share of the values does not exceed."""
        ordered = sorted(self.values)
        return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]

    def statistic(self, name: str) -> float:
        return self.at({"p50": 0.5, "p99": 0.99, "max": 1.0}[name])

    def shown(self, value: float) -> str:
        scaled = value * SCALES.get(self.unit, 1.0)
        digits = 0 if scaled >= 100 or scaled == int(scaled) else 1 if scaled >= 10 else 2
        return f"{scaled:,.{digits}f}"

    def summary(self) -> str:
        """`p50 3.1 ms, p99 8.0, 2.1..9.3 (n=40)`"""
        unit = f" {self.unit}" if self.unit else ""
        parts = []
        if len(self.values) == 1:
            parts.append(f"{self.shown(self.values[0])}{unit}")
        elif self.values:
            spread = f"{self.shown(min(self.values))}..{self.shown(max(self.values))}"
            parts.append(
                f"p50 {self.shown(self.at(0.5))}{unit}, p99 {self.shown(self.at(0.99))}, {spread} (n={len(self.values):,})"
            )
        if self.missing:
            parts.append(f"nothing happened in {self.missing} of {self.missing + len(self.values)}")
        if self.note:
            parts.append(self.note)
        return "; ".join(parts)


@dataclass
class Goal:
    """A bound on one statistic of the series."""

    statistic: str
    limit: float
    why: str = ""

    def verdict(self, series: Series) -> str:
        met = not series.missing and bool(series.values) and series.statistic(self.statistic) <= self.limit
        label = "" if len(series.values) == 1 else f"{self.statistic} "
        unit = f" {series.unit}" if series.unit else ""
        return f"{label}≤ {series.shown(self.limit)}{unit}{f' ({self.why})' if self.why else ''}: {'met' if met else 'MISSED'}"


@dataclass
class Figure:
    """One line of the table."""

    topic: str
    ours: Series
    goals: list[Goal] = field(default_factory=list)
    beside: list[Series] = field(default_factory=list)

    def cells(self) -> tuple[str, str, str]:
        goals = "; ".join(goal.verdict(self.ours) for goal in self.goals) or "-"
        return f"{self.topic}: {self.ours.what}", self.ours.summary(), goals

    def compared(self) -> list[str]:
        return [f"{other.what}: {other.summary()}" for other in self.beside]


class Report:
    """All figures of one run, printed as they come."""

    name = "election-benchmark"

    def __init__(self, command: str) -> None:
        self.command = command
        self.facts = machine()
        self.loads = [os.getloadavg()[0]]
        self.began = time.time()
        self.figures: list[Figure] = []

    def say(self, text: str) -> None:
        print(text, flush=True)

    def topic(self, title: str) -> None:
        self.loads.append(os.getloadavg()[0])
        self.say(f"\n{title}   [load {self.loads[-1]:.2f}]")

    def add(self, figure: Figure) -> None:
        self.figures.append(figure)
        what, ours, goals = figure.cells()
        self.say(f"  {what}\n    ours    {ours}")
        if figure.goals:
            self.say(f"    goal    {goals}")
        for other in figure.compared():
            self.say(f"    beside  {other}")

    def missed(self) -> list[str]:
        return [f.cells()[0] for f in self.figures if any("MISSED" in goal.verdict(f.ours) for goal in f.goals)]

    def load(self) -> str:
        loads = [*self.loads, os.getloadavg()[0]]
        return (
            f"{loads[0]:.2f} before, {min(loads):.2f}..{max(loads):.2f} during (the benchmark's own processes included)"
        )

    def markdown(self) -> str:
        return self.page(
            "Elections, measured",
            "Processes are real, PostgreSQL is real and durable (`fsync = on`, `synchronous_commit = on`), and SQLite is on disk.",
            "The time of a takeover runs from just before the harness sends the signal to just after the successor's first true `is_leader`, by CLOCK_BOOTTIME.",
            "Compared cases are interleaved round by round.",
            lines=[(figure.cells(), figure.compared()) for figure in self.figures],
        )

    def page(self, title: str, *method: str, lines: Iterable[tuple[Sequence[str], Sequence[str]]]) -> str:
        """Title, method, machine, table (what, ours, goal), verdict, and below it what each line is compared with."""
        rows, compared = ["| what | ours | goal |", "| --- | --- | --- |"], []
        for cells, others in lines:
            rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
            if others:
                compared += [f"- {cells[0]}: {cells[1]}", *(f"  - {other}" for other in others)]
        missed = self.missed()
        return "\n".join(
            [
                f"# {title}",
                "",
                f"`{self.command}` wrote this page; run it to repeat the measurement.",
                *method,
                "Goals are for a quiet machine: look at the load before judging a miss.",
                "",
                *(f"- {name}: {value}" for name, value in self.facts.items()),
                f"- load: {self.load()}",
                f"- date: {time.strftime('%Y-%m-%d', time.gmtime(self.began))}, took {(time.time() - self.began) / 60:.1f} minutes",
                "",
                *rows,
                "",
                "Every goal was met." if not missed else "Missed: " + "; ".join(missed) + ".",
                "",
                "## Compared",
                "",
                *compared,
                "",
            ]
        )

    def as_json(self) -> dict[str, Any]:
        figures = [
            {**asdict(figure), "verdicts": [goal.verdict(figure.ours) for goal in figure.goals]}
            for figure in self.figures
        ]
        return {"command": self.command, "machine": self.facts, "load": self.load(), "figures": figures}

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.name}.md").write_text(self.markdown(), encoding="utf-8")
        text = json.dumps(self.as_json(), ensure_ascii=False, indent=1, default=str)
        (folder / f"{self.name}.json").write_text(text + "\n", encoding="utf-8")

    def finish(self) -> None:
        missed = self.missed()
        self.say(f"\nload {self.load()}")
        self.say("every goal was met" if not missed else "missed: " + "; ".join(missed))


def machine() -> dict[str, str]:
    """What a reader needs to judge the figures; no host names, no paths."""
    model = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "?"
    )
    memory = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return {
        "machine": f"{os.cpu_count()} cores ({model}), {memory / 2**20:.0f} GiB, Linux {'.'.join(platform.release().split('.')[:2])}",
        "software": f"Python {platform.python_version()}, psycopg {psycopg.__version__}, SQLite {sqlite3.sqlite_version}",
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
