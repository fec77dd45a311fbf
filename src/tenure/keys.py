"""Names that all nodes must agree on: the key of a due time, and the election of an application's planner."""

from __future__ import annotations

from datetime import UTC, datetime


def due_key(instant: float) -> str:
    """UTC in ISO 8601, as `2026-11-15T03:00:00Z`; microseconds only where there are any."""
    return datetime.fromtimestamp(instant, UTC).isoformat().removesuffix("+00:00") + "Z"


def planner_of(application: str) -> str:
    """The election that the planner of an application holds."""
    return f"tenure planner of {application}"
