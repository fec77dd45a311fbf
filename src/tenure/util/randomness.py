"""Chance of our own: what the application draws from a seeded `random` stays what it is, and no forked child draws what its parent draws."""

from __future__ import annotations

from random import SystemRandom

_system = SystemRandom()


def fraction() -> float:
    """A number in [0, 1)."""
    return _system.random()


def between(low: float, high: float) -> float:
    """A number from low to high."""
    return _system.uniform(low, high)
