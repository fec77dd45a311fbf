"""Estimates the database's clock: its last answer, carried forward by the node's own steady clock.

A node never looks at its wall clock, so it fires at the right moment even if that clock is wrong by hours. If the
database's clock jumps by more than a minute against the steady clock, the node doubts it for a while and carries the
old time forward; an operator should look at that server. One exception: a node that found the database's clock far from
its own when it started accepts every jump at first, because it may have started in the middle of one.
"""

from __future__ import annotations

from dataclasses import dataclass

from tenure.core.records import Instant

JUMP = 60.0
"""How far an answer may be off before it is doubted."""
SUSPECT = 10.0
"""How long a node whose own clock contradicts the database's takes every jump for a return."""
DOUBT = (10.0, 300.0)
"""How long to doubt: as long as the old time was trusted, within these bounds."""


@dataclass(slots=True)
class DatabaseClock:
    """Observes every answer that carries the database's time. One thread observes; others may read `now`."""

    _offset: float | None = None
    _slack: float = 0.0
    believed_since: float = 0.0
    """On the steady clock: how long there has been no accepted jump."""
    _doubts_until: float | None = None
    suspect_until: float = 0.0
    """Set if this node started with a clock far from the database's: until then others know better what was missed."""

    @property
    def known(self) -> bool:
        """True once an answer has come."""
        return self._offset is not None

    @property
    def doubts(self) -> bool:
        """True while the database's clock has jumped and the old time is carried forward."""
        return self._doubts_until is not None

    def observe(self, now: Instant, sent_at: float, received_at: float, wall: Instant | None = None) -> float:
        """Observe an answer: it was `now` at some moment between sending and receiving. `wall` is the node's own wall
        clock.

        Returns by how much the clock has jumped if it just has and is doubted, else 0.
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
        """The database's time at a moment of the steady clock."""
        assert self._offset is not None  # noqa: S101 - no caller reads it before the first answer
        return boottime + self._offset

    def at(self, instant: Instant) -> float:
        """The moment on the steady clock at which the database's clock shows this instant."""
        assert self._offset is not None  # noqa: S101
        return instant - self._offset
