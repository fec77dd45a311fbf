"""Keeps logs readable: one line when something breaks, a summary now and then, one line when it works again."""

from __future__ import annotations

import logging
import threading

from tenure.errors import TenureError
from tenure.util.clock import boottime
from tenure.util.durations import readable
from tenure.util.plurals import counted

FIRST_SUMMARY = 5.0
LONGEST_SILENCE = 120.0
HEALED = 60.0
"""After this many seconds without a failure, the next one is logged as new."""


class FailureLog:
    """Counts the failures of a store in all threads of a node. Ten minutes of refusals make about ten lines."""

    def __init__(self, logger: logging.Logger, what: str) -> None:
        self._logger = logger
        self._what = what
        self._mutex = threading.Lock()
        self._failing: set[str] = set()
        self._since = 0.0
        self._last = -HEALED
        self._failures = 0
        self._next = 0.0
        self._wait = FIRST_SUMMARY
        self._spoken = False
        self._error = ""

    @property
    def problem(self) -> str:
        """What does not work at the moment, and since when; '' if nothing fails."""
        with self._mutex:
            if not self._failing:
                return ""
            return f"{self._error} ({counted(self._failures, 'failure')} in {readable(boottime() - self._since)})"

    def failed(self, who: str, error: BaseException) -> None:
        """Something failed and will be retried."""
        with self._mutex:
            now = boottime()
            if not self._failing:
                self._since, self._failures = now, 0
            if now - self._last >= HEALED:
                self._wait, self._next = FIRST_SUMMARY, now
            self._failing.add(who)
            self._failures += 1
            self._last = now
            named = str(error).startswith(f"{self._what}: ")  # as errors of a store do
            self._error = str(error) if named else f"{self._what}: {error}"
            if now < self._next:
                return
            self._next, self._wait = now + self._wait, min(self._wait * 2, LONGEST_SILENCE)
            self._spoken = True
            unforeseen = None if isinstance(error, (TenureError, OSError)) else error
            so_far = f" ({self._failures} failures in {readable(now - self._since)})" if self._failures > 1 else ""
            self._logger.warning(
                "%s%s; trying again", self._error, so_far, extra={"action": "store_failed"}, exc_info=unforeseen
            )

    def worked(self, who: str) -> None:
        """It works, again or still."""
        if who not in self._failing:
            return
        with self._mutex:
            self._failing.discard(who)
            if self._failing or not self._spoken:
                return
            self._spoken = False
            lasted = readable(boottime() - self._since)
            self._logger.warning(  # as the failure was, so that a log of warnings does not end with the failure
                "%s: works again after %s and %s",
                self._what,
                lasted,
                counted(self._failures, "failure"),
                extra={"action": "store_works"},
            )
