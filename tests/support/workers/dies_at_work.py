"""A node that is killed while it runs a body: `dies_at_work.py URL on_lost`."""

import sys
import time

from tenure import Scheduler

url, on_lost = sys.argv[1:]
scheduler = Scheduler(url, ttl=3, heartbeat_every=0.2, attempt_timeout=0.5, label="the one that dies")


@scheduler.job(on_lost=on_lost)
def body() -> None:
    print("running", flush=True)
    time.sleep(60)


with scheduler:
    scheduler.run_now("body")
    time.sleep(60)
