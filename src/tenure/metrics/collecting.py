"""The collector: asks the store when Prometheus asks, at most every few seconds, and never for long."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from tenure.errors import TenureError
from tenure.jobs.kept_connection import Spare
from tenure.metrics.catalogue import OF_STORE
from tenure.metrics.reading import LedgerReader, Sample
from tenure.scheduling.service import SchedulerService
from tenure.util.clock import boottime
from tenure.util.failure_log import FailureLog
from tenure.util.fork import ForkOrder, in_child

logger = logging.getLogger("tenure")

FRESH = 5.0
"""For how many seconds an answer of the store is given again."""
PATIENCE = 4.0
"""How many seconds a scrape waits for the store; then it answers `tenure_up 0`. Prometheus waits for 10."""
STATEMENT = 3.0
"""How many seconds one question may take."""
DOWN = (Sample("tenure_up", 0),)


@dataclass(slots=True)
class _Reading:
    """One look at the store, which all who ask meanwhile share."""

    done: threading.Event = field(default_factory=threading.Event)
    samples: Iterable[Sample] = DOWN


class StoreCollector(Collector):
    """What the ledger says of one application. The answer is the same in every process."""

    def __init__(self, service: SchedulerService, jobs: str | None) -> None:
        self._service = service
        self._reader = LedgerReader(service.application, service.definitions.tz, jobs)
        self._spare = Spare()
        weakref.finalize(self, self._spare.close)  # also when the process exits
        self._failures = FailureLog(logger, "metrics")
        self._mutex = threading.Lock()
        self._known: Iterable[Sample] = ()
        self._known_since = -FRESH
        self._reading: _Reading | None = None
        _ALL.add(self)

    def describe(self) -> Iterable[Family]:
        """All that it may export: a registry asks for that, and must not ask the store."""
        return self._families(())

    def collect(self) -> Iterable[Family]:
        """All metrics of the store, or `tenure_up 0` if it does not answer in time."""
        return [family for family in self._families(self._answer()) if family.samples]

    def _families(self, samples: Iterable[Sample]) -> Iterable[Family]:
        families = {one.name: GaugeMetricFamily(one.name, one.text, labels=one.labels) for one in OF_STORE}
        for sample in samples:
            families[sample.metric].add_metric(sample.labels, sample.value)
        return families.values()

    def _answer(self) -> Iterable[Sample]:
        with self._mutex:
            if boottime() - self._known_since < FRESH:
                return self._known
            reading = self._reading
            if reading is None:
                reading = self._reading = _Reading()
                try:
                    threading.Thread(target=self._read, args=(reading,), name="tenure metrics", daemon=True).start()
                except RuntimeError:  # the system refuses a thread
                    self._reading = None
                    return DOWN
        return reading.samples if reading.done.wait(PATIENCE) else DOWN

    def _read(self, reading: _Reading) -> None:
        asked, service = boottime(), self._service
        try:
            service.prepare()
            with self._spare.session(service.store, f"{service.label}:metrics", STATEMENT) as session:
                reading.samples = self._reader.read(session)
            self._failures.worked("metrics")
        except (TenureError, OSError) as error:
            self._failures.failed("metrics", error)
        except Exception:
            logger.exception("the metrics could not be read", extra={"action": "metrics_failed"})
        finally:
            with self._mutex:
                self._known, self._known_since, self._reading = reading.samples, asked, None
            reading.done.set()

    def forked(self) -> None:
        """In a forked child: a thread of the parent may have held the mutex, and its reading goes on there."""
        self._mutex = threading.Lock()
        self._reading = None


_ALL: weakref.WeakSet[StoreCollector] = weakref.WeakSet()


@in_child(ForkOrder.LOCKS)
def _after_fork_in_child() -> None:
    for collector in list(_ALL):
        collector.forked()
