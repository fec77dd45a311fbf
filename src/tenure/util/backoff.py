"""How long to wait before trying again: soon, then less soon, at a random moment, never longer than a limit."""

from __future__ import annotations

from tenure.util.randomness import between

SOON = 0.05
_ENOUGH = 16


class Backoff:
    """Counts failures in a row."""

    def __init__(self) -> None:
        self._failures = 0

    def pause(self, longest: float) -> float:
        """It failed: for how many seconds to wait."""
        limit: float = min(SOON * 2**self._failures, longest)
        self._failures = min(self._failures + 1, _ENOUGH)
        return limit * between(0.5, 1.0)

    def worked(self) -> None:
        """It worked: the next failure starts anew."""
        self._failures = 0
