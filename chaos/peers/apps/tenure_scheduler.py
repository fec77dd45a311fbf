"""tenure: schedulers on one database. `tenure_scheduler.py setup|worker`"""

import logging
import sys
import threading
import time

from lines import EVERY, JOBS, LOCK, URL, work

from tenure import Run, Scheduler
from tenure.errors import StoreUnavailable

scheduler = Scheduler(URL, ttl=LOCK, heartbeat_every=0.5, attempt_timeout=1)


def body(run: Run) -> None:
    work(run.job, due=run.scheduled_for.timestamp(), check=run.check)


for job in JOBS:
    scheduler.every(EVERY, name=job, missed="all", overlap="allow")(body)


def tell() -> None:
    """Who plans is whom the blows look for."""
    planned = False
    while True:
        if (plans := scheduler.health().plans) is not planned:
            print("plans" if plans else "rests", flush=True)
            planned = plans
        time.sleep(0.01)


def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    if sys.argv[1] == "setup":
        return
    threading.Thread(target=tell, daemon=True).start()
    try:
        scheduler.run(lines=False)
    except StoreUnavailable as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
