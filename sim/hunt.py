"""Looking for violations: in drawn histories, in directed ones, and under mutants; and making what was found smaller."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from sim import explore, history, mutants, schedules
from sim.history import Outcome, Plan
from sim.mutants import Mutant

SEEDS = 60
"""How many seeds a mutant may survive before it counts as not caught."""


@dataclass(slots=True)
class Tally:
    """What many histories had in common."""

    histories: int = 0
    faults: int = 0
    fewest_faults: int = 1 << 30
    terms: int = 0
    fewest_terms: int = 1 << 30
    attempts: int = 0
    events: int = 0
    simulated: float = 0.0
    processor: float = 0.0
    failed: list[Outcome] | None = None

    def add(self, outcome: Outcome) -> None:
        self.histories += 1
        self.faults += outcome.faults
        self.fewest_faults = min(self.fewest_faults, outcome.faults)
        self.terms += outcome.terms
        self.fewest_terms = min(self.fewest_terms, outcome.terms)
        self.attempts += outcome.attempts
        self.events += outcome.events
        self.simulated += outcome.seconds
        if outcome.violations:
            self.failed = [*(self.failed or ()), outcome]


def many(seeds: Iterable[int], until: Callable[[], bool] = lambda: False) -> Tally:
    """Play the histories of these seeds."""
    tally, began = Tally(), time.process_time()
    for seed in seeds:
        tally.add(history.play(history.draw(seed)))
        if until():
            break
    tally.processor = time.process_time() - began
    return tally


def directed() -> dict[str, list[str]]:
    """The directed schedules under the protocol as it is: what each of them broke."""
    return {
        name: [violation for plan in plans for violation in history.play(plan).violations[:1]]
        for name, plans in schedules.SCHEDULES.items()
    }


@dataclass(frozen=True, slots=True)
class Catch:
    """What gave a mutant away."""

    mutant: Mutant
    by: str
    violation: str
    plan: Plan | None


def catch(mutant: Mutant, seeds: int = SEEDS) -> Catch:
    """Hunt a mutant: by its directed schedule, then by seeds."""
    with mutants.applied(mutant):
        for number, plan in enumerate(schedules.SCHEDULES.get(mutant.schedule, ())):
            outcome = history.play(plan)
            if outcome.violations:
                return Catch(mutant, f"schedule “{mutant.schedule}” {number}", outcome.violations[0], plan)
        for seed in range(seeds):
            plan = mutant.where(history.draw(seed))
            outcome = history.play(plan)
            if outcome.violations:
                return Catch(mutant, f"seed {seed}", outcome.violations[0], plan)
    return Catch(mutant, "", "", None)


def shrink(plan: Plan, mutant: Mutant | None = None) -> Plan:
    """Leave out one fault after the other while it still fails."""
    with mutants.applied(mutant):
        for fault in plan.faults:
            smaller = replace(plan, faults=tuple(other for other in plan.faults if other is not fault))
            if history.play(smaller).violations:
                plan = smaller
    return plan


EXPLORED = (
    explore.Bounds(2, 6, (1, 1), (0, 1), 0),
    explore.Bounds(2, 7, (1, 1), (0, 1), 0),
    explore.Bounds(2, 6, (1, 1), (0, 1), 1),
    explore.Bounds(3, 6, (0, 1, 1), (0, 1, 1), 0, 250_000),
)
SMALL = explore.Bounds(2, 6, (1, 2), (0, 0), 0)
EXPLORABLE = (
    "trust anchored at the response",
    "watch anchored at the sending",
    "watch of half a ttl",
    "heartbeat without a check of the state",
    "evidence without comparing the count",
)
"""The mutants whose rule is part of what is explored."""


def explored(mutant: Mutant) -> explore.Explored:
    """Explore a mutant within small bounds."""
    kind = explore.FromSending if mutant.name == "watch anchored at the sending" else explore.Explorer
    with mutants.applied(mutant):
        return explore.explore(SMALL, kind)
