"""A program as a container runs it, without a terminal: `in_container.py URL how`. `tenure start in_container` runs it too."""

import logging
import os
import signal
import sys
import threading
import time

from tenure import Run, Scheduler
from tenure.events import RunEvent, RunFailed

how = sys.argv[2] if __name__ == "__main__" else os.environ.get("HOW", "")
scheduler = Scheduler(
    sys.argv[1] if __name__ == "__main__" else None, ttl=6, heartbeat_every=0.3, drain=5, label="web-1"
)

if how == "configured":
    logging.basicConfig(level=logging.INFO, format="mine: %(levelname)s %(message)s")
elif how == "warnings":
    logging.basicConfig(format="mine: %(levelname)s %(message)s")
elif how == "silenced":
    logging.getLogger("tenure").addHandler(logging.NullHandler())


@scheduler.cron("0 3 * * *")
def daily() -> None: ...


@scheduler.job
def fine(run: Run) -> None:
    if how == "later":
        logging.basicConfig(level=logging.INFO, format="mine: %(levelname)s %(message)s")


@scheduler.job
def boom() -> None:
    raise ValueError("bad \x1b[2J thing")


@scheduler.on(RunFailed)
def stop_after_the_last(_: RunEvent) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def ask() -> None:
    scheduler.run_now("fine")
    while scheduler.runs("fine")[0].state != "succeeded":
        time.sleep(0.01)
    scheduler.run_now("boom")


if __name__ == "__main__":

    def later() -> None:
        while not scheduler.started:
            time.sleep(0.01)
        ask()

    threading.Thread(target=later, daemon=True).start()
    scheduler.run(**({"lines": True} if how == "lines" else {"lines": False} if how == "mute" else {}))
