"""A scheduler with a body in a process of its own: `process_bodies.py URL LABEL HOW`.

Each says on stdout, as JSON, what it sees.
"""

import json
import os
import signal
import sys
import time

from tenure import Run, Scheduler

url, label, how = sys.argv[1:]
scheduler = Scheduler(url, label=label, ttl=3, heartbeat_every=0.3, attempt_timeout=0.9, drain=20)


def say(event: str, **more: object) -> None:
    os.write(1, json.dumps({"event": event, "pid": os.getpid(), **more}).encode() + b"\n")


@scheduler.job(process=True, max_lost=10)
def long(run: Run, seconds: float) -> None:
    say("begins", attempt=run.attempt)
    lost, end = False, time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.02)
        if run.lost != lost:
            lost = run.lost
            say("lost" if lost else "found")
    say("ends", attempt=run.attempt)


if __name__ == "__main__":
    if how == "ignores SIGCHLD":
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    scheduler.start()
    say("started")
    scheduler.run(lines=False)
    say("left")
