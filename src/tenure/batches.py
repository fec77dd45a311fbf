"""How much to send, or to ask for, at once: half as much after each failure, twice as much while answers come quickly.

A statement that does not arrive in time because it is too large for the link would fail for ever if it were sent again unchanged.
"""

from __future__ import annotations

QUICK = 0.25
"""A batch that takes longer than this is as large as it should get on this link."""


class BatchSize:
    """Between `least` and `most`, in whatever is counted."""

    def __init__(self, most: int, least: int = 1) -> None:
        self.least, self.most = least, most
        self.now = most

    def failed(self, size: int) -> None:
        """A batch of this size did not get through."""
        self.now = max(min(size, self.now) // 2, self.least)

    def worked(self, took: float) -> None:
        """A batch got through, in so many seconds."""
        if self.now < self.most and took < QUICK:
            self.now = min(self.now * 2, self.most)
