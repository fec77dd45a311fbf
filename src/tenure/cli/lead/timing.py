"""When the command of `tenure lead` must stop: how early SIGTERM goes out, and when SIGKILL follows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tenure.core.cluster import MAX_TTL, Cadence
from tenure.errors import ConfigurationError
from tenure.util.durations import Duration, positive

KILL_MARGIN = 0.5
"""SIGKILL goes out this many seconds before trust ends, or half the grace if that is less."""

DEFAULT_GRACE = 0.3
"""The share of the ttl between SIGTERM and SIGKILL. One hung heartbeat leaves 0.8 - 0.2 - 0.2 = 0.4 of the ttl, so it
stops nothing."""

SESSION_MARGIN = 3.0
"""Seconds for a hung check of the session and a new connection, before the command is told to stop."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How long stopping may take, and how much trust must be left for it."""

    ttl: float
    grace: float

    @classmethod
    def of(cls, ttl: Duration = 10.0, grace: Duration | None = None) -> Timing:
        """Fill in the grace; refuse one that would stop the command although nothing is wrong."""
        cadence = Cadence.of(ttl)
        wanted = DEFAULT_GRACE * cadence.ttl if grace is None else positive(grace, "grace")
        room = cadence.trust - cadence.heartbeat_every
        if wanted < room:
            return cls(cadence.ttl, wanted)
        enough = min(wanted / DEFAULT_GRACE, MAX_TTL)
        most = Cadence.of(MAX_TTL)
        advice = f"Write --grace {DEFAULT_GRACE * cadence.ttl:g}s or less"
        if wanted < most.trust - most.heartbeat_every:
            advice += f", or --ttl {enough:.0f}s"
        raise ConfigurationError(
            f"grace: {wanted:g} s does not fit into a ttl of {cadence.ttl:g} s. A heartbeat is trusted for 0.8 · ttl = "
            f"{cadence.trust:g} s, and the next one comes after {cadence.heartbeat_every:g} s. Just before it, even a "
            f"healthy leader has only {room:g} s of trust left: its command would be stopped for no reason. {advice}."
        )

    @property
    def margin(self) -> float:
        """SIGKILL goes out this many seconds before trust ends."""
        return min(KILL_MARGIN, self.grace / 2)

    @property
    def session_grace(self) -> float | None:
        """How long a check of the session is trusted; None if the ttl is shorter than that."""
        bound = self.grace + SESSION_MARGIN
        return bound if bound < 0.8 * self.ttl else None


class Act(Enum):
    """What the command's process group needs now."""

    RUN = "run"
    TERM = "SIGTERM"
    KILL = "SIGKILL"


def act(now: float, *, until: float, told_at: float | None, timing: Timing) -> Act:
    """The rule. `until` is the end of trust so far, `told_at` the time of SIGTERM."""
    if now >= until - timing.margin or (told_at is not None and now >= told_at + timing.grace):
        return Act.KILL
    return Act.TERM if told_at is not None or now >= until - timing.grace else Act.RUN
