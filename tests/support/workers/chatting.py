"""A scheduler with one running body of each kind, which logs for ever: chatting.py URL WITNESSES PAUSE.

Says `started` when all of them have begun.
"""

import json
import sys
import time
from pathlib import Path

from bodies import chats, chats_on_a_loop
from tenure import Scheduler

url, witnesses, pause = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
KINDS = ("thread", "loop", "process")


def main() -> None:
    scheduler = Scheduler(url, ttl=30.0)
    policy = {"retries": 0, "on_lost": "fail"}
    scheduler.job(name="thread", **policy)(chats)
    scheduler.job(name="loop", **policy)(chats_on_a_loop)
    scheduler.job(name="process", process=True, **policy)(chats)
    with scheduler:
        runs = {
            kind: scheduler.run_now(kind, kwargs={"witness": str(witnesses / kind), "pause": pause}).id
            for kind in KINDS
        }
        while not all((witnesses / kind).exists() for kind in KINDS):
            time.sleep(0.01)
        print(json.dumps({"event": "started", "runs": runs}), flush=True)
        time.sleep(3600)


if __name__ == "__main__":
    main()
