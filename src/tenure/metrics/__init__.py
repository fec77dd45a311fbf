"""Metrics for Prometheus (`pip install 'tenure[metrics]'`).

from prometheus_client import REGISTRY
from tenure.metrics import collector, measure

REGISTRY.register(collector(scheduler))   # what the ledger says: the same in every worker
measure(scheduler)                        # what this process does

`tenure metrics --listen 127.0.0.1:9187` exports the former without any code of yours. `tenure metrics --rules` prints
alert rules, and `tenure metrics --dashboard` a dashboard for Grafana.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from tenure.async_scheduler import AsyncScheduler, threaded_of
from tenure.errors import ConfigurationError
from tenure.scheduler import Scheduler, service_of

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.registry import Collector

__all__ = ["collector", "dashboard", "measure", "rules"]


def collector(scheduler: Scheduler | AsyncScheduler, *, jobs: str | None = None) -> Collector:
    """What the ledger says, read when Prometheus asks, at most every 5 s: `REGISTRY.register(collector(scheduler))`.

    It answers the same in every worker. If the store does not answer within 4 s, it answers `tenure_up 0`. `jobs` is a
    name or a pattern, such as "billing.*": only these jobs have series of their own. With more than 2,000 none has.
    """
    need_client()
    from tenure.metrics.collecting import StoreCollector

    return StoreCollector(service_of(_threaded(scheduler)), jobs)


def measure(scheduler: Scheduler | AsyncScheduler, registry: CollectorRegistry | None = None) -> None:
    """Measure what this process does, from its next start on: durations, lateness, heartbeats, trust, clock.

    These are ordinary metrics of prometheus_client, in its default registry unless another is given. They also work
    with PROMETHEUS_MULTIPROC_DIR.
    """
    need_client()
    from tenure.metrics.measuring import measure as begin

    begin(_threaded(scheduler), registry)


def rules() -> str:
    """The alert rules, as a rule file of Prometheus."""
    return (files(__name__) / "rules.yml").read_text(encoding="utf-8")


def dashboard() -> str:
    """The dashboard for Grafana, as JSON to import."""
    return (files(__name__) / "dashboard.json").read_text(encoding="utf-8")


def _threaded(scheduler: Scheduler | AsyncScheduler) -> Scheduler:
    if isinstance(scheduler, AsyncScheduler):
        return threaded_of(scheduler)
    if not isinstance(scheduler, Scheduler):
        raise ConfigurationError(f"metrics: {scheduler!r:.80} is a {type(scheduler).__name__}. Give a Scheduler.")
    return scheduler


def need_client() -> None:
    """Raise an error that says what to install, unless it is."""
    try:
        import prometheus_client  # noqa: F401 - what is missing is said where it is needed first
    except ImportError:
        raise ConfigurationError(
            "metrics need prometheus-client, which is not installed. pip install 'tenure[metrics]'"
        ) from None
