"""Schedulers of both colours for `tenure start`: `commanded:threaded` and `commanded:looped`.

Their bodies say what they see.
"""

import asyncio
import os

from tenure import AsyncScheduler, Run, Scheduler

OPTIONS = {"ttl": 6, "heartbeat_every": 0.5, "attempt_timeout": 1, "drain": 20}
threaded = Scheduler(os.environ["TENURE_URL"], application="threaded", **OPTIONS)
looped = AsyncScheduler(os.environ["TENURE_URL"], application="looped", **OPTIONS)
stubborn = AsyncScheduler(os.environ["TENURE_URL"], application="stubborn", **OPTIONS)
SECONDS = float(os.environ["SECONDS"])


@threaded.every("1s", overlap="skip")
def in_thread(run: Run) -> None:
    print("begins", flush=True)
    print("has ended" if run.wait(SECONDS) else "was told", flush=True)
    run.check()


@looped.every("1s", overlap="skip")
async def on_loop(run: Run) -> None:
    print("begins", flush=True)
    try:
        await asyncio.sleep(SECONDS)
    except asyncio.CancelledError:
        print("was told", flush=True)
        raise
    print("has ended", flush=True)


@stubborn.every("1s", overlap="skip")
async def goes_on(run: Run) -> None:
    print("begins", flush=True)
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            print("was told", flush=True)
