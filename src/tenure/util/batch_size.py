"""How much to send, or to ask for, at once: half as much after each failure, twice as much while answers come as quickly as small ones.

A statement that does not arrive in time because it is too large for the link would fail for ever if it were sent again unchanged.
"""

from __future__ import annotations

import math

QUICK = 0.25
"""A batch that takes longer than this …"""
SLOWER = 1.5
"""… and so many times as long as the quickest one since the last failure is as large as it should get on this link."""


class BatchSize:
    """Between `least` and `most`, in whatever is counted."""

    def __init__(self, most: int, least: int = 1) -> None:
        self.least, self.most = least, most
        self.now = most
        self._quickest = math.inf

    def failed(self, size: int) -> None:
        """A batch of this size did not get through. Of the least size it was not too large, so that says little about larger ones."""
        sent = min(size, self.now) if size > self.least else self.now
        self.now = max(sent // 2, self.least)
        self._quickest = math.inf

    def worked(self, took: float) -> None:
        """A batch got through, in so many seconds."""
        self._quickest = min(self._quickest, took)
        if self.now < self.most and took < max(QUICK, self._quickest * SLOWER):
            self.now = min(self.now * 2, self.most)
