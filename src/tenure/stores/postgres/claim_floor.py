"""Where the next claim of a session begins to look. `claim_runs` in functions/claims.sql explains why that is safe."""

from __future__ import annotations

from collections.abc import Sequence

from tenure.core.messages import ClaimRequest
from tenure.stores.postgres.arrays import longs, texts
from tenure.util.clock import boottime

AFRESH_EVERY = 600.0
"""How often a claim looks from the beginning anyway. A server may forget what it had reported (after a crash with
asynchronous commits, behind a pooler that kept our connection). This bounds how long a run can be overlooked."""

Whose = tuple[str, tuple[str, ...] | None, tuple[str, ...] | None]


class Look:
    """What the last claim of a session saw, in the form that the next one passes in."""

    def __init__(self) -> None:
        self._whose: Whose | None = None
        self._afresh_at = 0.0
        self.remembered: dict[str, object] = {}

    def of(self, request: ClaimRequest) -> Look:
        """Forget it if the request differs, or if it is old."""
        whose = (request.application, request.functions, request.queues)
        if whose != self._whose or boottime() >= self._afresh_at:
            self._whose, self._afresh_at = whose, boottime() + AFRESH_EVERY
            self.remembered = {
                "functions": None if request.functions is None else texts(request.functions),
                "queues": None if request.queues is None else texts(request.queues),
                **dict.fromkeys(("lanes", "others", "server", "seen", "due_from", "expires_from")),
            }
        return self

    def remember(self, lanes: Sequence[int] | None, others: Sequence[int] | None, seen: Sequence[object]) -> None:
        """Store the answer of a claim. It contains lanes only if they changed."""
        self.remembered |= zip(("server", "seen", "due_from", "expires_from"), seen, strict=True)
        if lanes is not None and others is not None:
            self.remembered |= {"lanes": longs(lanes), "others": longs(others)}
