"""Stores alerts and their messages.

tests/stores/ledger/test_alerts.py states it in behaviour.

  one alert      At most one alert of an application, kind and target is not closed.
  versions       A step applies to the version of the alert that its node has read, or not at all.
  at least once  A message is claimed for a while, by one node. It is final when its sink has accepted it; otherwise the
                 claim lapses, and a node claims the message again, under the same key.
  order          A message to a sink waits for earlier ones of the same alert to that sink.

Where nothing is wrong, nothing is written and no row is locked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from tenure.core.alerts import AlertMessage, AlertRow, AlertStep, DeadNode, JobMarks
from tenure.core.records import Instant, JobId

STALE = 30.0
"""A look that is older than this many seconds changes nothing: its node may have been frozen since."""
TOO_FAR = 3600.0
"""No claim lasts longer than this many seconds."""


class AlertLedger(ABC):
    """Alerts over one connection. The same rules hold as for `Ledger`."""

    @abstractmethod
    def job_marks(
        self, application: str, beyond: JobId, limit: int, depth: int, among: Sequence[JobId] | None = None
    ) -> list[JobMarks]:
        """PAUSED jobs, and ACTIVE and DONE ones with a trigger, with ids above `beyond`, by id, only those `among`
        these; and how the newest `depth` final runs of each ended. Locks nothing."""

    @abstractmethod
    def dead_nodes(self, application: str, since: Instant) -> list[DeadNode]:
        """Nodes that took part in this application and were declared dead since this instant."""

    @abstractmethod
    def open_alerts(self, application: str) -> list[AlertRow]:
        """The alerts that are seen or open, the oldest first; at most 10,000."""

    @abstractmethod
    def alert_history(self, application: str, limit: int) -> list[AlertRow]:
        """The alerts that were opened, the newest first."""

    @abstractmethod
    def note_alerts(
        self, application: str, seen_at: Instant, steps: Sequence[AlertStep], sinks: Sequence[str]
    ) -> list[bool]:
        """Apply steps, each to the version that it names; with an event, write a message for each of these sinks.

        A step without a version adds an alert, unless one of its kind and target is not closed or was closed since
        `seen_at`, the time of the look; a time to come does not count, because the clock was wrong then. Applies
        nothing if the look is more than `STALE` seconds ago. Says which steps were applied.
        """

    @abstractmethod
    def alert_messages(self, application: str, alerts: Sequence[str]) -> list[AlertMessage]:
        """All messages of these alerts, in order."""

    @abstractmethod
    def claim_messages(
        self, application: str, by: str, sinks: Sequence[str], lapse: float, limit: int
    ) -> list[AlertMessage]:
        """Claim messages to these sinks that are neither sent nor given up nor claimed, the oldest first, for `lapse`
        seconds. A claim that reaches further than `TOO_FAR` into the future does not count: the clock was wrong."""

    @abstractmethod
    def end_message(self, number: int, by: str, *, error: str = "", again_in: float | None = None) -> bool:
        """The sink has accepted this message. With an error it has not: the message can be claimed again after
        `again_in` seconds; without a number it is given up. False if another node has claimed it since, unless the
        sink has accepted it."""

    @abstractmethod
    def forget_alerts(self, application: str, before: Instant, limit: int) -> int:
        """Delete at most `limit` alerts that were closed before this instant, with their messages. Returns how many."""
