"""What a sink is told: an alert has opened or closed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tenure.core.alerts import CLOSED, AlertMessage
from tenure.util.instants import moment

TEST = "test"
"""The event of a message that only tries a sink."""


@dataclass(frozen=True, slots=True)
class AlertNews:
    """One event of an alert."""

    id: str
    """A UUID, the same whichever node sends it, however often: by it a receiver knows what it has already."""
    event: str
    """'opened', 'closed' or 'test'."""
    application: str
    kind: str
    """A stable word, such as 'failing'."""
    target: str
    """The name of the job or the label of the node; '*' for many of them, '' for the application."""
    text: str
    """What is wrong, or was, in a sentence or two."""
    label: str
    """The label of the node that tells it."""
    alert: str
    """The id of the alert: the same when it opens and when it closes."""
    since: datetime
    """Since when it is wrong."""
    opened_at: datetime | None = None
    closed_at: datetime | None = None

    @classmethod
    def of(cls, message: AlertMessage, label: str) -> AlertNews:
        """What a message of the ledger says."""
        row = message.alert
        over = message.event == CLOSED
        return cls(
            id=message.key,
            event=message.event,
            application=row.application,
            kind=row.kind,
            target=row.target,
            text=row.text,
            label=label,
            alert=row.id,
            since=moment(row.since),
            opened_at=None if row.opened_at is None else moment(row.opened_at),
            closed_at=None if row.closed_at is None or not over else moment(row.closed_at),
        )

    @property
    def title(self) -> str:
        """One line: '[shop] alert closed: failing nightly'."""
        about = f"{self.kind} {self.target}".rstrip()
        return f"[{self.application}] alert {self.event}: {about}"

    @property
    def message(self) -> str:
        """What a person reads: '[shop] alert opened: failing nightly: 'nightly' has failed at least 3 times …'."""
        was = "It was: " if self.event == CLOSED else ""
        return f"{self.title}. {was}{self.text}"

    def as_dict(self) -> dict[str, Any]:
        """Only texts, for JSON."""
        return {
            "id": self.id,
            "event": self.event,
            "application": self.application,
            "kind": self.kind,
            "target": self.target,
            "text": self.text,
            "label": self.label,
            "alert": self.alert,
            "since": self.since.isoformat(),
            "opened_at": None if self.opened_at is None else self.opened_at.isoformat(),
            "closed_at": None if self.closed_at is None else self.closed_at.isoformat(),
        }
