"""`tenure metrics`: an exporter for Prometheus, without any code of yours."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading

from tenure import metrics
from tenure.cli.elections import store_of
from tenure.cli.jobs import application
from tenure.cli.listen_address import address_of, as_host, bound, is_loopback
from tenure.cli.output import say
from tenure.errors import StoreUnavailable
from tenure.scheduler import Scheduler

PORT = 9187
UNAVAILABLE = 3
"""The exit code if the database does not answer."""


def metrics_(arguments: argparse.Namespace) -> int:
    """Print the metrics once, serve them, or print what comes with them."""
    if arguments.rules or arguments.dashboard:
        sys.stdout.write(metrics.rules() if arguments.rules else metrics.dashboard())
        return 0
    metrics.need_client()
    from prometheus_client import CollectorRegistry, generate_latest

    scheduler = _scheduler(arguments)
    registry = CollectorRegistry()
    registry.register(metrics.collector(scheduler, jobs=arguments.jobs))
    if arguments.listen is not None:
        return _serve(arguments.listen, registry, scheduler)
    sys.stdout.write(generate_latest(registry).decode())
    return 0 if registry.get_sample_value("tenure_up") else UNAVAILABLE


def _scheduler(arguments: argparse.Namespace) -> Scheduler:
    """Of the application that is named, even if the database does not answer yet: `tenure_up 0` says so then."""
    named = arguments.app or os.environ.get("TENURE_APP")
    try:
        with application(arguments) as scheduler:
            return scheduler
    except StoreUnavailable:
        if not named:
            raise
        store = store_of(arguments, migrate=False)
        return Scheduler(store, application=named, capacity=0, schema=arguments.schema, migrate=False)


def _serve(listen: str, registry: object, scheduler: Scheduler) -> int:
    """Until SIGTERM or Ctrl-C."""
    from tenure.metrics.serving import LOOPBACK, exporter, server

    address, port = address_of(listen, PORT)
    hosts = LOOPBACK | {as_host(address)} if is_loopback(address) else None
    listener = bound(address, port)
    with server(listener, exporter(registry, scheduler.health, hosts)) as serving:  # type: ignore[arg-type]
        shown = f"http://{as_host(address)}:{listener.getsockname()[1]}/metrics"
        who = "every user of this machine" if hosts else "everyone who can reach this address"
        say(f"metrics of {scheduler.application!r} are at {shown} ({who} may read them); Ctrl-C ends it")
        over = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: over.set())
        thread = threading.Thread(target=serving.serve_forever, name="tenure exporter", daemon=True)
        thread.start()
        over.wait()
        serving.shutdown()
    return 0
