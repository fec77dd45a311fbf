"""A program with a scheduler in the foreground: `scheduling.py URL how [seconds of work]`."""

import os
import sys
import time

from tenure import Run, Scheduler

url, how = sys.argv[1], sys.argv[2]
scheduler = Scheduler(url, ttl=6, heartbeat_every=0.5, attempt_timeout=1, drain=20)


@scheduler.every("1s", overlap="skip")
def work(run: Run) -> None:
    print("works", flush=True)
    for _ in range(int(how.removeprefix("works-")) * 100 if how.startswith("works-") else 0):
        time.sleep(0.01)
        if run.cancelled:
            print("was told", run.reason, flush=True)
            return
    print("done", flush=True)


def fork() -> None:
    scheduler.start()
    print("parent started", scheduler.started, flush=True)
    child = os.fork()
    if child == 0:
        print("child started", scheduler.started, flush=True)
        scheduler.start()
        print("child has started", scheduler.started, flush=True)
        scheduler.stop()
        print("child left", flush=True)
        os._exit(0)
    print("child ended with", os.waitpid(child, 0)[1], flush=True)
    print("parent still started", scheduler.started, scheduler.health().ok, flush=True)
    scheduler.stop()


if how == "fork":
    fork()
else:
    scheduler.run(lines=True)
    print("returned", flush=True)
