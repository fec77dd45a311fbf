"""Who is told when something is wrong: sinks for alerts, and check-ins of runs with outside monitors.

scheduler.alert_to(Log(), Webhook("https://chat.example/hook", secret="whsec_…"))

They only need the standard library. docs/how-to/alerts.md shows what alerts there are.
"""

from tenure.alerts.check_ins import CheckIn, PlannerPing
from tenure.alerts.http import NotAccepted
from tenure.alerts.news import AlertNews
from tenure.alerts.sinks import Command, Log, Sink, Webhook

__all__ = ["AlertNews", "CheckIn", "Command", "Log", "NotAccepted", "PlannerPing", "Sink", "Webhook"]
