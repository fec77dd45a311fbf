"""What one process counts by itself, as ordinary metrics of prometheus_client."""

from __future__ import annotations

import threading
from typing import Literal
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from tenure.core.cluster import BeatVerdict
from tenure.events import RunCancelled, RunEvent, RunFailed, RunLost, RunSkipped, RunSucceeded
from tenure.metrics.catalogue import OF_PROCESS
from tenure.scheduler import Scheduler, service_of

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
OUTCOMES = {
    RunSucceeded: "succeeded",
    RunFailed: "failed",
    RunLost: "lost",
    RunCancelled: "cancelled",
    RunSkipped: "missed",
}
"""The events after which a run does not go on."""
_TEXTS = {one.name: one.text for one in OF_PROCESS}


class ProcessMetrics:
    """The metrics of one registry. All schedulers of the process share them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def histogram(name: str) -> Histogram:
            return Histogram(name, _TEXTS[name], registry=registry, buckets=BUCKETS)

        def counter(name: str, label: str) -> Counter:
            return Counter(name, _TEXTS[name], (label,), registry=registry)

        self._registry = registry
        self._gauges: dict[str, Gauge] = {}
        self._mutex = threading.Lock()
        self.duration = histogram("tenure_run_duration_seconds")
        self.lateness = histogram("tenure_run_lateness_seconds")
        self.runs = counter("tenure_runs_total", "outcome")
        self.renewals = counter("tenure_renewals_total", "result")

    def show(self, name: str, value: float, mode: Literal["livemin", "livemax"]) -> None:
        """Set a gauge. It is made when there is a value: until then, and in processes that run nothing, such as the
        master of gunicorn, it would say 0."""
        with self._mutex:
            gauge = self._gauges.get(name)
            if gauge is None:
                gauge = Gauge(name, _TEXTS[name], registry=self._registry, multiprocess_mode=mode)
                self._gauges[name] = gauge
        gauge.set(value)

    def ended(self, event: RunEvent) -> None:
        """An attempt has ended here, or a run without one."""
        if (outcome := OUTCOMES.get(type(event))) is not None:
            self.runs.labels(outcome).inc()
        if event.duration is not None:
            self.duration.observe(event.duration)
            if event.lateness is not None:
                self.lateness.observe(event.lateness)


_KNOWN: WeakKeyDictionary[CollectorRegistry, ProcessMetrics] = WeakKeyDictionary()


def measure(scheduler: Scheduler, registry: CollectorRegistry | None) -> None:
    """Measure what this scheduler does here."""
    registry = REGISTRY if registry is None else registry
    metrics = _KNOWN.get(registry)
    if metrics is None:
        metrics = _KNOWN[registry] = ProcessMetrics(registry)
    service = service_of(scheduler)

    def beat(result: str, took: float) -> None:
        metrics.renewals.labels(result).inc()
        if result == BeatVerdict.RENEWED.value:
            metrics.show("tenure_store_round_trip_seconds", took, "livemax")
        health = service.health()
        if health.started:
            metrics.show("tenure_trust_seconds", health.trusted_for, "livemin")
        if health.clock_offset is not None:
            metrics.show("tenure_store_clock_offset_seconds", health.clock_offset, "livemax")

    service.listeners.on(RunEvent)(metrics.ended)
    service.listeners.of_beats.append(beat)
