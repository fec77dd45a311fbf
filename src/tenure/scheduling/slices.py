"""Steps that work in slices: claims come first, and after a slice a step rests as long as the slice took."""

from __future__ import annotations

from tenure.scheduling.agenda import Agenda, Step
from tenure.util.clock import boottime

WAITS = 0.03
"""Seconds for which a slice may be put off because a claim is due before it would end."""


class SliceTimer:
    """Decides when the next slice of a step begins. `takes` is how many seconds a slice takes."""

    def __init__(self, agenda: Agenda, step: Step, takes: float) -> None:
        self._agenda, self._step, self._takes = agenda, step, takes
        self.not_after = 0.0
        """From this moment on, a slice is not put off again."""

    def put_off(self, now: float) -> bool:
        """Put this slice off if a claim is due before it would end. False if the slice must begin now."""
        claims_at = self._agenda.due(Step.CLAIM)
        if claims_at >= now + self._takes or now >= self.not_after:
            return False
        self._agenda.at(self._step, max(claims_at, now))
        return True

    def worked(self, began_at: float) -> float:
        """A slice is done: plan the next one. Returns how many seconds it took."""
        now = boottime()
        took = now - began_at
        self.not_after = now + took + WAITS
        self._agenda.at(self._step, now + took)
        return took

    def rest(self, until: float) -> None:
        """The first turn after this moment will do: the loop does not wake for it."""
        self._agenda.at(self._step, until, wake=False)


class SliceSize:
    """How many jobs a slice takes: as many as take `time` seconds, between `least` and `most`."""

    def __init__(self, now: int, bounds: tuple[int, int], time: float) -> None:
        self.now, self._time = now, time
        self._least, self._most = bounds

    def adapt(self, took: float) -> None:
        """So many took this many seconds. The next slice takes at most twice as many."""
        fits = min(int(self.now * self._time / max(took, 0.000_1)), self.now * 2)
        self.now = min(max(fits, self._least), self._most)

    def halve(self) -> None:
        """So many were too much."""
        self.now = max(self.now // 2, self._least)
