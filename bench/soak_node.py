"""A scheduler as a process that runs for a long time: `soak_node.py URL KEEP_FOR KEEP`.

It says `ready` once it takes part. For each line on its input it reports the lateness of the bodies that began since
the last one.
"""

import json
import sys
import time
from datetime import datetime

from scheduler_load import APPLICATION, FUNCTION

from tenure import Run, Scheduler

begun: list[tuple[float, datetime]] = []


def body(run: Run) -> None:
    begun.append((time.time(), run.scheduled_for))


def say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def main() -> None:
    global begun
    url, keep_for, keep = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    scheduler = Scheduler(url, application=APPLICATION, keep_for=keep_for, keep=keep)
    scheduler.job(name=FUNCTION)(body)
    with scheduler:
        say(ready=True)
        for _ in sys.stdin:
            seen, begun = begun, []
            say(late=sorted(round(at - due.timestamp(), 6) for at, due in seen))
    say(stopped=True)


if __name__ == "__main__":
    main()
