"""What tenure tells the application: frozen values, delivered on a thread of their own. An exception there harms nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Elected:
    """This node leads an election from now on, as long as the term is trusted."""

    election: str
    term: int
    label: str


@dataclass(frozen=True, slots=True)
class Lost:
    """This node stopped leading: resigned, ran out of trust, or was told so by the database."""

    election: str
    term: int
    label: str
    reason: str


ElectionEvent = Elected | Lost
