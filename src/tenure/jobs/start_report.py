"""Logs what a start changes in the ledger, and what becomes of the definitions that a process brings.

No job that the code defines is added, changes or stays different without a line in the log; nor does one go from the
code. Each kind of news has at most `LINES` lines of its own, and then a count.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable

from tenure.jobs.definition_news import News, NewsKind
from tenure.util.plurals import counted

logger = logging.getLogger("tenure")

LINES = 20
"""How many lines each kind of news has."""

_MANY = {
    NewsKind.NEW: "are new",
    NewsKind.CHANGED: "have changed definitions in the code",
    NewsKind.PUT_BACK: "are put back to what older code said",
    NewsKind.OVERRIDE_ENDED: "run as defined here again, because their definitions have changed",
    NewsKind.BACK: "were removed and are back, because their definitions in the code have changed",
    NewsKind.REMOVED: "are defined here, but were removed: they do not run",
    NewsKind.OVERRIDDEN: "run as changed by hand, not as defined here",
    NewsKind.NEWER_RELEASE: "run as a newer release defines them",
    NewsKind.GONE: "are gone from the code",
    NewsKind.DONE: "were added, but nothing of them is due any more",
    NewsKind.POOL: "name pools without a size",
}


class StartReport:
    """The lines of one start."""

    def __init__(self) -> None:
        self._told: Counter[NewsKind] = Counter()

    def tell(self, news: Iterable[News]) -> None:
        """Log them."""
        for one in news:
            self._told[one.kind] += 1
            if self._told[one.kind] <= LINES:
                logger.log(one.kind.level, "%s", one.text, extra={"action": one.kind.value})

    def close(self) -> None:
        """Say how many lines were left out."""
        for kind, count in self._told.items():
            if count > LINES:
                more = counted(count - LINES, "more job")
                what = _MANY[kind]
                logger.log(kind.level, "%s %s: `tenure jobs` shows them", more, what, extra={"action": kind.value})
