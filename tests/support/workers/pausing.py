"""A node whose queue is full of quick bodies, each of which says when it began: `pausing.py URL LABEL`."""

import json
import os
import sys
import time

from tenure import Run, Scheduler

url, label = sys.argv[1:]
scheduler = Scheduler(url, label=label, capacity=4, ttl=4, heartbeat_every=0.5, attempt_timeout=1, drain=1)


@scheduler.job(overlap="allow")
def quick(run: Run) -> None:
    os.write(1, json.dumps({"event": "begins", "at": time.monotonic(), "key": run.key}).encode() + b"\n")
    time.sleep(0.005)


with scheduler:
    os.write(1, b'{"event": "started"}\n')
    sys.stdin.read()
