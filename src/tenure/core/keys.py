"""Names that all nodes must agree on (G3): the keys of due times and of sets of functions, and the
planner's election."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from hashlib import sha256


def due_key(instant: float) -> str:
    """UTC in ISO 8601, as `2026-11-15T03:00:00Z`; microseconds only if there are any."""
    return datetime.fromtimestamp(instant, UTC).isoformat().removesuffix("+00:00") + "Z"


def set_key(names: Iterable[str]) -> str:
    """The key of a set of functions: equal sets have equal keys."""
    return sha256(json.dumps(sorted(names)).encode()).hexdigest()


_GENERATED = re.compile(r"manual-[0-9a-f]{16}")


def generated_key(drawn: str) -> str:
    """The key of a run that was requested without one, from 16 hexadecimal digits."""
    return f"manual-{drawn}"


def is_generated(key: str) -> bool:
    """True if no caller can request this key again, so that it need not be kept."""
    return _GENERATED.fullmatch(key) is not None


def digest_of(kwargs: str | None) -> str:
    """The digest of a run's arguments that is kept; '' for those of its job."""
    return "" if kwargs is None else hashlib.sha256(kwargs.encode()).hexdigest()


def planner_of(application: str) -> str:
    """The election that the planner of an application holds."""
    return f"{_PLANNERS}{application}"


def is_planners(election: str) -> bool:
    """True if it is an election that the planner of some application holds."""
    return election.startswith(_PLANNERS)


_PLANNERS = "tenure planner of "
