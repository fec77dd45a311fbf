"""What the ledger's clock says, as far as a node knows: the last answer, carried on by the node's own steady clock.

A node whose wall clock is wrong by hours fires at the right moment, because it never looks at it. A ledger whose clock jumps by more
than a minute against the steady clock is not believed for a while: the old time is carried on, and somebody should look at that server.
Only a node that found the ledger's clock far from its own when it began does not argue: it may have begun in the middle of a jump.
"""

from __future__ import annotations

from dataclasses import dataclass

from tenure.core.records import Instant

JUMP = 60.0
"""What an answer may be off before it is doubted."""
SUSPECT = 10.0
"""For how long a node whose own clock contradicts the ledger's takes every jump for a return."""
DOUBT = (10.0, 300.0)
"""How long to doubt: as long as the old time was believed, within these bounds."""


@dataclass(slots=True)
class DatabaseClock:
    """Fed with every answer that carries the ledger's time. Used by one thread; others may read `now`."""

    _offset: float | None = None
    _slack: float = 0.0
    believed_since: float = 0.0
    """By the steady clock: for how long there was no jump that was believed."""
    _doubts_until: float | None = None
    suspect_until: float = 0.0
    """Set if this node began with a clock far from the ledger's: until then other nodes know better what was missed."""

    @property
    def known(self) -> bool:
        """Some answer has come."""
        return self._offset is not None

    @property
    def doubts(self) -> bool:
        """The ledger's clock has jumped, and the old time is carried on."""
        return self._doubts_until is not None

    def observe(self, now: Instant, sent_at: float, received_at: float, wall: Instant | None = None) -> float:
        """An answer said that it was `now` at some moment between sending and receiving; `wall` is the node's own idea of it.

        By how much the clock has jumped, if it just has and is doubted, else 0.
        """
        offset, slack = now - (sent_at + received_at) / 2, (received_at - sent_at) / 2
        if self._offset is None:
            self._believe(offset, slack, received_at)
            if wall is not None and abs(now - wall) > JUMP:
                self.suspect_until = received_at + SUSPECT
            return 0.0
        jump = offset - self._offset
        if abs(offset - self._offset) - slack <= JUMP:
            self._doubts_until = None
            # An answer that took long says little: it counts only as far as it contradicts.
            if slack <= self._slack * 2 or abs(offset - self._offset) > slack + self._slack:
                self._offset, self._slack = offset, max(slack, 0.000_1)
            else:
                self._slack *= 1.1  # the older the better answer, the less it is worth
            return 0.0
        if received_at < self.suspect_until:
            self._believe(offset, slack, received_at)
            return 0.0
        if self._doubts_until is None:
            age = received_at - self.believed_since
            self._doubts_until = received_at + min(max(age, DOUBT[0]), DOUBT[1])
            return jump
        if received_at >= self._doubts_until:
            self._believe(offset, slack, received_at)
        return 0.0

    def _believe(self, offset: float, slack: float, since: float) -> None:
        self._offset, self._slack, self.believed_since, self._doubts_until = offset, slack, since, None

    def now(self, boottime: float) -> Instant:
        """The ledger's time at a moment of the steady clock."""
        assert self._offset is not None  # noqa: S101 - nobody asks before the first answer
        return boottime + self._offset

    def at(self, instant: Instant) -> float:
        """The moment on the steady clock at which the ledger's shows this."""
        assert self._offset is not None  # noqa: S101
        return instant - self._offset
