"""Looking for violations: in drawn histories, in directed ones, and under mutants; and making what was found smaller."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from sim.explore import history, schedules, search
from sim.explore.history import AttemptOutcome, Plan
from sim.mutants import catalogue
from sim.mutants.catalogue import Mutant

SEEDS = 60
"""How many seeds a mutant may survive before it counts as not caught."""


@dataclass(slots=True)
class Tally:
    """What many histories had in common."""

    histories: int = 0
    faults: int = 0
    fewest_faults: int = 1 << 30
    kinds: Counter[str] = field(default_factory=Counter)
    accidents: Counter[str] = field(default_factory=Counter)
    terms: int = 0
    fewest_terms: int = 1 << 30
    attempts: int = 0
    events: int = 0
    simulated: float = 0.0
    processor: float = 0.0
    cores: int = 1
    failed: list[AttemptOutcome] = field(default_factory=list)

    def add(self, outcome: AttemptOutcome) -> None:
        self.histories += 1
        self.faults += outcome.faults
        self.fewest_faults = min(self.fewest_faults, outcome.faults)
        self.terms += outcome.terms
        self.fewest_terms = min(self.fewest_terms, outcome.terms)
        self.kinds += outcome.kinds
        self.accidents += outcome.accidents
        self.attempts += outcome.attempts
        self.events += outcome.events
        self.simulated += outcome.seconds
        if outcome.violations:
            self.failed.append(outcome)

    def join(self, other: Tally) -> None:
        """Count what another process has counted."""
        for name in ("histories", "faults", "terms", "attempts", "events", "simulated", "processor", "failed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.kinds += other.kinds
        self.accidents += other.accidents
        self.fewest_faults = min(self.fewest_faults, other.fewest_faults)
        self.fewest_terms = min(self.fewest_terms, other.fewest_terms)


def many(seeds: Iterable[int], until: Callable[[], bool] = lambda: False, *, stop: bool = False) -> Tally:
    """Play the histories of these seeds; with `stop`, up to the first that breaks a promise."""
    tally, began = Tally(), time.process_time()
    for seed in seeds:
        tally.add(history.play(history.draw(seed)))
        if until() or (stop and tally.failed):
            break
    tally.processor = time.process_time() - began
    return tally


def directed() -> dict[str, list[str]]:
    """The directed schedules under the protocol as it is: what each of them broke."""
    return {name: broken_in(plans) for name, plans in schedules.SCHEDULES.items()}


def broken_in(plans: Iterable[Plan]) -> list[str]:
    """The first promise that each of these histories breaks."""
    return [violation for plan in plans for violation in history.play(plan).violations[:1]]


@dataclass(frozen=True, slots=True)
class Catch:
    """What gave a mutant away."""

    mutant: Mutant
    by: str
    violation: str
    plan: Plan | None


def catch(mutant: Mutant, seeds: int = SEEDS) -> Catch:
    """Hunt a mutant: by its directed schedule, then by seeds."""
    with catalogue.applied(mutant):
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
    with catalogue.applied(mutant):
        hasty = replace(plan, least=(0, 0))
        if history.play(hasty).violations:
            plan = hasty
        for fault in plan.faults:
            smaller = replace(plan, faults=tuple(other for other in plan.faults if other is not fault))
            if history.play(smaller).violations:
                plan = smaller
    return plan


EXPLORED = (
    *(search.Bounds(2, accidents) for accidents in range(4)),
    *(search.Bounds(3, accidents) for accidents in range(3)),
    search.Bounds(2, 2, ttl=5.0),
)
SMALL = tuple(search.Bounds(nodes, accidents, ttl=5.0, states=60_000) for nodes, accidents in ((2, 1), (2, 2), (3, 3)))
"""Where mutants are looked for, one after the other."""
EXPLORABLE = (
    "trust anchored at the response",
    "watch anchored at the sending",
    "watch of half a ttl",
    "heartbeat without a check of the state",
    "released row deleted",
    "release without comparing the term",
    "grant over a live holder",
    "evidence without comparing the count",
    "open acquire released by a beat",
    "term taken away by an older snapshot",
    "answer of an abandoned acquire acted on",
)
"""The mutants whose rule is part of what is explored."""
SLOW = ("evidence without comparing the count", "answer of an abandoned acquire acted on")
"""Those that take minutes to find."""


def explored(mutant: Mutant) -> tuple[search.Bounds, search.Explored]:
    """Explore a mutant within small bounds, up to those that give it away."""
    kind = search.FromSending if mutant.name == "watch anchored at the sending" else search.Explorer
    bounds, found = SMALL[0], search.Explored()
    with catalogue.applied(mutant):
        for bounds in SMALL:
            found = search.explore(bounds, kind)
            if found.violation:
                break
    return bounds, found
