"""A program whose bodies take long: `stopping.py URL how seconds`; `how` is the application, and what its policies
are."""

import asyncio
import os
import sys
import time

from tenure import Run, Scheduler

url, how, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
outage = how == "outage"
scheduler = Scheduler(
    url, application=how, ttl=20 if outage else 8, heartbeat_every=0.5, attempt_timeout=1, drain=20 if outage else 0.3
)
policy = {"on_lost": "fail", "retries": 3} if how == "fail" else {"max_lost": 1}


def say(run: Run) -> None:
    os.write(1, f"called {run.job} {run.attempt}\n".encode())


@scheduler.job(process=True, **policy)
def in_process(run: Run) -> None:
    say(run)
    time.sleep(seconds)


@scheduler.job(**policy)
async def in_loop(run: Run) -> None:
    say(run)
    await asyncio.sleep(seconds)


@scheduler.job(**policy)
def in_thread(run: Run) -> None:
    say(run)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        time.sleep(0.05)
        run.check()


@scheduler.job(**policy)
def deaf(run: Run) -> None:
    say(run)
    time.sleep(seconds)


if __name__ == "__main__":
    scheduler.start()
    os.write(1, b"ready\n")
    scheduler.run(lines=False)
