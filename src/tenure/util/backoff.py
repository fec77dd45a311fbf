"""How long to wait before reconnecting: soon, then later and later, at a random moment, never longer than a limit.

The pause before a job's retry is `retry_in` in `core/planning.py`.
"""

from __future__ import annotations

from tenure.util.randomness import between

SOON = 0.05
_ENOUGH = 16


class Backoff:
    """Counts failures in a row."""

    def __init__(self) -> None:
        self._failures = 0

    def pause(self, longest: float) -> float:
        """After a failure: how many seconds to wait."""
        limit: float = min(SOON * 2**self._failures, longest)
        self._failures = min(self._failures + 1, _ENOUGH)
        return limit * between(0.5, 1.0)

    def worked(self) -> None:
        """After a success: the next failure starts anew."""
        self._failures = 0
