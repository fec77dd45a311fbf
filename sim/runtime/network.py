"""The way between a process and the server: delays, losses, statements that arrive after their sender gave up,
cut-offs.

How bad it is differs from history to history, and one kind of statement may be hit more often than the others: what
needs two rare accidents at once is found by histories in which one of them is not rare.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from sim.database.server import Statement
from sim.runtime.kernel import K, Process

NEVER = float("inf")


@dataclass(slots=True)
class Placed:
    """A directed accident: the n-th statement of a kind that a process sends (from 1 on)."""

    process: str
    op: str
    nth: int
    request: float = 0.0
    """Seconds on the way there; NEVER: lost."""
    gap: float = 0.0
    """Seconds held up inside the server."""
    answer: float = 0.0
    """Seconds on the way back; NEVER: lost."""
    freeze: float = 0.0
    """The process stops so many seconds, from the moment it has sent this."""
    begun: bool = False


@dataclass(slots=True)
class Weather:
    """How likely what is."""

    latency: float = 0.002
    lost: float = 0.0
    slow: float = 0.0
    late: float = 0.0
    held_up: float = 0.0
    worst: str = ""
    """A kind of statement that is hit more often …"""
    worse: float = 1.0
    """… so many times."""
    narrow: int = 0
    """No more endings than this arrive in one statement, no more runs in one answer, also in the calm; 0: any
    number."""


class Network:
    """Draws what happens to each statement."""

    def __init__(self, weather: Weather, placed: list[Placed]) -> None:
        self.weather, self._placed = weather, placed
        self._sent: dict[tuple[str, str], int] = {}
        self.accidents: Counter[str] = Counter()
        """What was drawn for single statements."""
        self.calm = False
        self.cut: dict[str, float] = {}
        """Until when a process is cut off."""

    def leg(self, op: str) -> float:
        """Seconds for one way."""
        w, rng = self.weather, K.rng
        delay = rng.expovariate(1 / w.latency) if w.latency else 0.0
        if self.calm:
            return delay
        draw = rng.random() / (w.worse if op == w.worst else 1.0)
        if draw < w.lost:
            self.accidents["lost"] += 1
            return NEVER
        if draw < w.lost + w.slow:
            self.accidents["delayed"] += 1
            return rng.uniform(0.1, 1.5)
        if draw < w.lost + w.slow + w.late:
            self.accidents["delayed"] += 1
            return rng.uniform(1.0, 9.0)
        return delay

    def place(self, process: Process, op: str) -> Placed | None:
        """The accident that was placed here, if there is one."""
        if not self._placed or self.calm:
            return None
        name = process.name.partition(".")[0]
        nth = self._sent[name, op] = self._sent.get((name, op), 0) + 1
        return next((p for p in self._placed if (p.process, p.op, p.nth) == (name, op, nth)), None)

    def ways(self, process: Process, op: str, placed: Placed | None) -> tuple[float, float]:
        """There and back."""
        there, back = self.leg(op), self.leg(op)
        if placed is not None:
            there, back = there + placed.request, back + placed.answer
        until = self.cut.get(process.name, 0.0)
        if until > K.now:  # sent again and again until it gets through; or never
            there = NEVER if K.rng.random() < 0.5 else max(there, until - K.now + 0.05)
        return there, back

    def passes(self, things: int) -> bool:
        """Whether so many endings, or runs, arrive in time."""
        if not self.weather.narrow or things <= self.weather.narrow:
            return True
        self.accidents["too large"] += 1
        return False

    def back(self, process: Process, delay: float) -> float:
        """An answer on its way while its receiver is cut off."""
        until = self.cut.get(process.name, 0.0)
        return max(delay, until - K.now + 0.05) if until > K.now + delay else delay

    def gap(self, statement: Statement) -> float:
        """For how long a statement is held up inside the server."""
        w, placed = self.weather, statement.placed
        if placed is not None and placed.gap and not placed.begun:
            placed.begun = True
            return float(placed.gap)
        if self.calm or K.rng.random() >= w.held_up * (w.worse if statement.op == w.worst else 1.0):
            return 0.0
        self.accidents["held up"] += 1
        return K.rng.choice((0.01, 0.2, 0.9, 1.8))
