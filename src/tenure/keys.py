"""Names that all nodes must agree on: the key of a due time, that of a set of functions, and the election of an application's planner."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from hashlib import sha256


def due_key(instant: float) -> str:
    """UTC in ISO 8601, as `2026-11-15T03:00:00Z`; microseconds only where there are any."""
    return datetime.fromtimestamp(instant, UTC).isoformat().removesuffix("+00:00") + "Z"


def set_key(names: Iterable[str]) -> str:
    """The key of a set of functions: equal sets have equal keys."""
    return sha256(json.dumps(sorted(names)).encode()).hexdigest()


def planner_of(application: str) -> str:
    """The election that the planner of an application holds."""
    return f"tenure planner of {application}"
