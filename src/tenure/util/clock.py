"""The only module that reads time (G2).

Trust is measured on `boottime`, a clock that never steps and goes on while the machine sleeps: CLOCK_BOOTTIME on Linux,
CLOCK_MONOTONIC on macOS. `time.monotonic` would not do on macOS: it stops while a laptop sleeps, which would still
trust its lease. `walltime` is for display and, on SQLite, for due times; nothing is ever taken away because of it.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))

if _BOOTTIME is not None:

    def boottime(_which: int = _BOOTTIME) -> float:
        """Seconds on a clock that only moves forward, at its own pace, also during suspend."""
        return time.clock_gettime(_which)

else:  # Windows, where no node starts; only virtual time and requests need a clock
    boottime = time.monotonic  # type: ignore[assignment, unused-ignore]


def walltime() -> datetime:
    """The wall-clock time, in UTC."""
    return datetime.now(UTC)


def sleep(seconds: float) -> None:
    """Sleep; return at once for zero and less."""
    if seconds > 0:
        time.sleep(seconds)
