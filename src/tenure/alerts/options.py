"""What an application told its scheduler about alerts: `alert_to`, checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tenure.alerts.check_ins import CheckIn, PlannerPing
from tenure.alerts.news import AlertNews
from tenure.alerts.sinks import Sink, sink_of
from tenure.core.alerts import AlertLimits
from tenure.errors import ConfigurationError

AlertReceiver = Sink | CheckIn | PlannerPing | Callable[[AlertNews], object]
"""What `alert_to` takes."""


@dataclass(frozen=True, slots=True)
class AlertOptions:
    """Who is told of what. Without sinks no node looks for alerts."""

    sinks: tuple[Sink, ...] = ()
    check_ins: tuple[CheckIn, ...] = ()
    pings: tuple[PlannerPing, ...] = ()
    limits: AlertLimits = field(default_factory=AlertLimits)

    @classmethod
    def of(cls, told: tuple[AlertReceiver, ...], limits: AlertLimits) -> AlertOptions:
        """Check what was given, and sort it."""
        if not told:
            raise ConfigurationError("alert_to(): nothing is told. Write alert_to(Log()), or alert_to(Webhook(url)).")
        check_ins = tuple(one for one in told if isinstance(one, CheckIn))
        pings = tuple(one for one in told if isinstance(one, PlannerPing))
        sinks = tuple(sink_of(one) for one in told if not isinstance(one, (CheckIn, PlannerPing)))
        twice = [name for name, count in Counter(sink.name for sink in sinks).items() if count > 1]
        if twice:
            raise ConfigurationError(
                f"alert_to(): two sinks are called {twice[0]!r}. Give one of them a name of its own: name='…'."
            )
        return cls(sinks, check_ins, pings, limits)
