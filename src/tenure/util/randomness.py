"""A random generator of our own: it leaves the application's seeded `random` alone, and a forked child does not repeat
its parent's numbers."""

from __future__ import annotations

from random import SystemRandom

_system = SystemRandom()


def fraction() -> float:
    """A number in [0, 1)."""
    return _system.random()


def between(low: float, high: float) -> float:
    """A number from low to high."""
    return _system.uniform(low, high)
