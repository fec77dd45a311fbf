"""Which blow the due times are counted under, and how long it took until somebody planned, and until work went on."""

import bisect
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from harness.chronicle import Fate, Verdict

CALM = "before any fault"


@dataclass(frozen=True, slots=True)
class Fault:
    """One blow. All instants here are on the machine's monotonic clock."""

    kind: str
    target: str
    at: float
    lasts: float = 0.0
    on_worker: bool = False
    on_planner: bool = False
    alone: bool = False
    """Nobody else took part who could have followed."""


@dataclass(frozen=True, slots=True)
class Term:
    """Somebody planned, as far as it said."""

    label: str
    since: float
    until: float


@dataclass
class Tally:
    """What is counted under one kind of blow."""

    faults: int = 0
    due: int = 0
    lost: int = 0
    doubled: int = 0
    repeated: int = 0
    lateness: list[float] = field(default_factory=list)
    """Of due times that no struck process had claimed."""
    late_again: list[float] = field(default_factory=list)
    """Of those that one had."""
    failovers: list[float] = field(default_factory=list)
    """From a blow on whoever planned to the next term."""
    resumed: list[float] = field(default_factory=list)
    """From the first due time after a blow to the first body after it."""

    def __iadd__(self, other: "Tally") -> Self:
        self.faults += other.faults
        self.due += other.due
        self.lost += other.lost
        self.doubled += other.doubled
        self.repeated += other.repeated
        self.lateness += other.lateness
        self.late_again += other.late_again
        self.failovers += other.failovers
        self.resumed += other.resumed
        return self

    def over(self, bound: float) -> int:
        """How many due times that no struck process had claimed were later than this."""
        return sum(late > bound for late in self.lateness)


def tallies(verdict: Verdict, faults: Sequence[Fault], terms: Sequence[Term], wall: float) -> dict[str, Tally]:
    """By kind of blow. `wall` is what the wall clock is ahead of the monotonic one."""
    found: dict[str, Tally] = {CALM: Tally(), **{fault.kind: Tally() for fault in faults}}
    moments = [fault.at for fault in faults]
    for fault in faults:
        found[fault.kind].faults += 1
    for fate in verdict.fates:
        _count(found[_cause(fate, faults, moments, wall)], fate)
    for fault, took in failovers(faults, terms):
        found[fault.kind].failovers.append(took)
    for fault, took in resumptions(faults, verdict.fates):
        found[fault.kind].resumed.append(took)
    return found


def _count(tally: Tally, fate: Fate) -> None:
    tally.due += 1
    tally.lost += fate.state == "lost"
    tally.doubled += fate.state == "doubled"
    tally.repeated += len(fate.began) > 1
    if fate.late is not None:
        (tally.late_again if fate.hit else tally.lateness).append(fate.late)


def _cause(fate: Fate, faults: Sequence[Fault], moments: Sequence[float], wall: float) -> str:
    """The blow that made it begin again, else the last one before it began; before it was due, if it never did."""
    if fate.causes and fate.causes[0]:
        return fate.causes[0]
    number = bisect.bisect(moments, fate.due - wall if fate.at is None else fate.at)
    return faults[number - 1].kind if number else CALM


def failovers(faults: Sequence[Fault], terms: Sequence[Term]) -> Iterator[tuple[Fault, float]]:
    """From each blow on whoever planned, where others took part, to the next term, if it came before another blow could
    be its reason."""
    begins = sorted(term.since for term in terms)
    for number, fault in enumerate(faults):
        if fault.on_planner and not fault.alone:
            others = (other.at for other in faults[number + 1 :] if other.on_planner or not other.on_worker)
            after = bisect.bisect_right(begins, fault.at)
            if after < len(begins) and begins[after] < next(others, math.inf):
                yield fault, begins[after] - fault.at


def resumptions(faults: Sequence[Fault], fates: Sequence[Fate]) -> Iterator[tuple[Fault, float]]:
    """From the first due time after each blow, its spread included, to the first body of any due time after it.

    Not where all workers were hit before it came: that blow is then counted.
    """
    ran = sorted((fate.at - fate.late, fate.at) for fate in fates if fate.at is not None and fate.late is not None)
    dues = [due for due, _ in ran]
    soonest = [at for _, at in ran]
    for number in reversed(range(len(soonest) - 1)):
        soonest[number] = min(soonest[number], soonest[number + 1])
    for number, fault in enumerate(faults):
        after = bisect.bisect_right(dues, fault.at)
        others = (other.at for other in faults[number + 1 :] if not other.on_worker)
        if after < len(ran) and soonest[after] < next(others, math.inf):
            yield fault, soonest[after] - dues[after]


def merge(into: dict[str, Tally], other: Mapping[str, Tally]) -> None:
    for kind, tally in other.items():
        into.setdefault(kind, Tally())
        into[kind] += tally
