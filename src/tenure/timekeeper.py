"""What the ledger's clock says, as far as a node knows: the last answer, carried on by the node's own steady clock.

A node whose wall clock is wrong by hours fires at the right moment, because it never looks at it. A ledger whose clock jumps by more
than a minute against the steady clock is not believed for a while: the old time is carried on, and somebody should look at that server.
"""

from __future__ import annotations

from dataclasses import dataclass

from tenure.ledger import Instant

JUMP = 60.0
"""What an answer may be off before it is doubted."""
DOUBT = (10.0, 300.0)
"""How long to doubt: as long as the old time was believed, within these bounds."""


@dataclass(slots=True)
class Timekeeper:
    """Fed with every answer that carries the ledger's time. Used by one thread; others may read `now`."""

    _offset: float | None = None
    _slack: float = 0.0
    _believed_since: float = 0.0
    _doubts_until: float | None = None

    @property
    def known(self) -> bool:
        """Some answer has come."""
        return self._offset is not None

    @property
    def doubts(self) -> bool:
        """The ledger's clock has jumped, and the old time is carried on."""
        return self._doubts_until is not None

    def observe(self, now: Instant, sent_at: float, received_at: float) -> bool:
        """An answer said that it was `now` at some moment between sending and receiving. True if this began a doubt."""
        offset, slack = now - (sent_at + received_at) / 2, (received_at - sent_at) / 2
        if self._offset is None:
            self._offset, self._slack, self._believed_since = offset, slack, received_at
            return False
        if abs(offset - self._offset) - slack <= JUMP:
            self._doubts_until = None
            # An answer that took long says little: it counts only as far as it contradicts.
            if slack <= self._slack * 2 or abs(offset - self._offset) > slack + self._slack:
                self._offset, self._slack = offset, max(slack, 0.000_1)
            else:
                self._slack *= 1.1  # the older the better answer, the less it is worth
            return False
        if self._doubts_until is None:
            age = received_at - self._believed_since
            self._doubts_until = received_at + min(max(age, DOUBT[0]), DOUBT[1])
            return True
        if received_at >= self._doubts_until:
            self._offset, self._slack, self._believed_since = offset, slack, received_at
            self._doubts_until = None
        return False

    def now(self, boottime: float) -> Instant:
        """The ledger's time at a moment of the steady clock."""
        assert self._offset is not None  # noqa: S101 - nobody asks before the first answer
        return boottime + self._offset

    def at(self, instant: Instant) -> float:
        """The moment on the steady clock at which the ledger's shows this."""
        assert self._offset is not None  # noqa: S101
        return instant - self._offset
