"""A worker of a program that exports metrics, once with files of several processes: `with_metrics.py URL`. Prints what it
exports whenever it is told to."""

import json
import os
import sys

from prometheus_client import REGISTRY, CollectorRegistry, multiprocess

from metric_values import exported
from tenure import Scheduler
from tenure.metrics import collector, measure

scheduler = Scheduler(
    sys.argv[1], application="shop", ttl=3, heartbeat_every=0.3, attempt_timeout=0.5, label=sys.argv[2]
)


@scheduler.job
def nightly() -> None: ...


measure(scheduler)
registry = REGISTRY
if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
registry.register(collector(scheduler))


with scheduler:
    print(json.dumps({"event": "started"}), flush=True)
    for line in sys.stdin:
        if "run" in line:
            scheduler.run_now("nightly")
        values = {name: [[*labels, value] for labels, value in of.items()] for name, of in exported(registry).items()}
        print(json.dumps({"event": "exported", "values": values}), flush=True)
