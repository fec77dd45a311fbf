"""How much to send or request at once: half as much after each failure, twice as much while answers come as quickly as
small ones.

A statement that is too large for the link to arrive in time would fail for ever if it were sent again unchanged.
"""

from __future__ import annotations

import math

QUICK = 0.25
"""A batch that takes longer than this …"""
SLOWER = 1.5
"""… and this many times as long as the quickest one since the last failure is as large as it should get."""


class BatchSize:
    """A size between `least` and `most`, in any unit."""

    def __init__(self, most: int, least: int = 1) -> None:
        self.least, self.most = least, most
        self.now = most
        self._quickest = math.inf

    def failed(self, size: int) -> None:
        """A batch of this size failed. A failure of the least size says little about larger ones."""
        sent = min(size, self.now) if size > self.least else self.now
        self.now = max(sent // 2, self.least)
        self._quickest = math.inf

    def worked(self, took: float) -> None:
        """A batch succeeded, in this many seconds."""
        self._quickest = min(self._quickest, took)
        if self.now < self.most and took < max(QUICK, self._quickest * SLOWER):
            self.now = min(self.now * 2, self.most)
