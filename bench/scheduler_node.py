"""A plain scheduler as a process: `scheduler_node.py URL COUNT`. Its bodies do nothing but note when they began.

It says `ready` when it takes part. With a COUNT it reports when so many runs have begun and none is open, else when its
input ends.
"""

import json
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from scheduler_load import APPLICATION, FUNCTION, ledger_of

from tenure import Run, Scheduler
from tenure.core.messages import RunQuery
from tenure.core.records import RunState

begun: list[tuple[float, str]] = []
clock, note = time.time, begun.append


def body(run: Run) -> None:
    note((clock(), run.key))


def say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def threads() -> dict[str, float]:
    """Seconds of processor so far, by the purpose of the thread."""
    purposes = {thread.native_id: thread.name.removeprefix("tenure ").split()[0] for thread in threading.enumerate()}
    used: Counter[str] = Counter()
    for task in Path("/proc/self/task").iterdir():
        used[purposes.get(int(task.name), "other")] += int((task / "schedstat").read_text().split()[0]) / 1e9
    return used


def finished(url: str, count: int) -> tuple[float, float]:
    """When the first claim was decided, and when the ledger had the last ending."""
    while len(begun) < count:
        time.sleep(0.01)
    still_open = RunQuery(APPLICATION, states=(RunState.PENDING, RunState.RUNNING), limit=1)
    with ledger_of(url) as ledger:
        while ledger.runs(still_open):
            time.sleep(0.002)
        ended = clock()
        (oldest,) = ledger.runs(RunQuery(APPLICATION, oldest_first=True, limit=1))
    return oldest.claimed_at or 0.0, ended


def main() -> None:
    url, count = sys.argv[1], int(sys.argv[2])
    scheduler = Scheduler(url, application=APPLICATION)
    scheduler.job(name=FUNCTION)(body)
    with scheduler:
        say(ready=True)
        if count:
            before = threads()
            began, ended = finished(url, count)
            busy = {name: used - before.get(name, 0.0) for name, used in threads().items()}
            say(began=began, ended=ended, runs=len(begun), busy=busy)
            sys.stdin.read()
        else:
            sys.stdin.read()
            say(starts=begun)


if __name__ == "__main__":
    main()
