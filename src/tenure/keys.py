"""The key of a due time: the same text in every store and on every node."""

from __future__ import annotations

from datetime import UTC, datetime


def due_key(instant: float) -> str:
    """UTC in ISO 8601, as `2026-11-15T03:00:00Z`; microseconds only where there are any."""
    return datetime.fromtimestamp(instant, UTC).isoformat().removesuffix("+00:00") + "Z"
