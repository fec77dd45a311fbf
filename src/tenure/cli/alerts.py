"""`tenure alerts`: what is wrong or was, who was told; and a test message to each sink of an application."""

from __future__ import annotations

import argparse
import uuid
from datetime import datetime

from tenure.alerts import AlertNews, NotAccepted
from tenure.alerts.news import TEST
from tenure.async_scheduler import threaded_of
from tenure.cli.jobs import application
from tenure.cli.output import GREEN, RED, as_json, paint, show, show_text, table
from tenure.cli.run import find
from tenure.cli.times import here, short
from tenure.errors import ConfigurationError
from tenure.jobs.importing import only_looking
from tenure.scheduler import service_of
from tenure.util.clock import walltime
from tenure.util.printable import printable
from tenure.views import AlertView


def alerts(arguments: argparse.Namespace) -> int:
    """List alerts, or try the sinks of an application. 1 if a sink has not accepted the test."""
    if arguments.action == "test":
        return _test(arguments)
    if arguments.place is not None:
        raise ConfigurationError(f"{arguments.place!r}: only `tenure alerts test` takes the place of a scheduler.")
    with application(arguments) as scheduler:
        found = scheduler.alerts(limit=arguments.limit)
    if arguments.json:
        as_json([alert.as_dict() for alert in found])
    elif not found:
        show("no alerts")
    else:
        now = walltime()
        header = [f"opened, {here()}", "closed", "kind", "target", "not delivered to", ""]
        table(header, [_row(alert, now) for alert in found], spare=1, below=True)
    return 0


def _row(alert: AlertView, now: datetime) -> list[str | paint]:
    closed = paint("open", RED) if alert.closed_at is None else short(alert.closed_at, now)
    untold = ", ".join(f"{one.sink}: {one.error or 'not yet'}" for one in alert.untold)
    return [short(alert.opened_at, now), closed, alert.kind, alert.target, untold, alert.text]


def _test(arguments: argparse.Namespace) -> int:
    """Send a message that tries each sink. The check-ins are left out: their monitors would believe them."""
    if arguments.place is None:
        raise ConfigurationError("whose sinks? Write `tenure alerts test MODULE:SCHEDULER`, as for `tenure start`.")
    with only_looking():
        found = find(arguments.place)
    service = service_of(threaded_of(found))
    sinks = service.options.alerts.sinks
    if not sinks:
        raise ConfigurationError(f"{arguments.place} has no sinks. Write scheduler.alert_to(Log(), Webhook(url)).")
    failed: dict[str, str] = {}
    for sink in sinks:
        news = AlertNews(
            id=str(uuid.uuid4()),
            event=TEST,
            application=service.application,
            kind=TEST,
            target="",
            text="This message only tries the sink. Nothing is wrong.",
            label=service.label,
            alert=str(uuid.uuid4()),
            since=walltime(),
        )
        try:
            sink.send(news)
        except NotAccepted as error:
            failed[sink.name] = printable(error)
        except Exception as error:
            failed[sink.name] = f"it raised {type(error).__name__}: {printable(error)}"
    if arguments.json:
        as_json(
            [
                {"sink": sink.name, "accepted": sink.name not in failed, "error": failed.get(sink.name, "")}
                for sink in sinks
            ]
        )
        return 1 if failed else 0
    for sink in sinks:
        if sink.name in failed:
            show_text(f"{sink.name}: not accepted: {failed[sink.name]}", RED)
        else:
            show_text(f"{sink.name}: accepted", GREEN)
    return 1 if failed else 0
