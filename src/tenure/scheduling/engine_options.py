"""What a scheduler is told when it is made."""

from __future__ import annotations

from dataclasses import dataclass, field

from tenure.alerts.options import AlertOptions
from tenure.core.cluster import Cadence


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The same for as long as a scheduler lives."""

    application: str
    tz: str
    cadence: Cadence
    capacity: int = 32
    queues: tuple[str, ...] | None = None
    release: int = 0
    label: str | None = None
    keep_for: float = 7 * 86400.0
    keep: int = 100
    keep_keys: float = 90 * 86400.0
    host_evidence: bool = True
    session_evidence: bool = True
    schema: str = "tenure"
    alerts: AlertOptions = field(default_factory=AlertOptions)
