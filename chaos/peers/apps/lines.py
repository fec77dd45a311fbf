"""What every peer's program shares: the jobs, and a body that writes a line when it begins and one when it ends.

A line is one write to a file that all processes share: nothing is torn, and nothing is lost by kill -9. Standard
library only.
"""

import json
import os
import time
from collections.abc import Callable

URL = os.environ["PEER_URL"]
EVERY = int(os.environ["PEER_EVERY"])
JOBS = [f"job-{number}" for number in range(int(os.environ["PEER_JOBS"]))]
LOCK = 5
"""Seconds after which a silent process counts as gone, wherever a peer lets us say so."""
WORK = 0.05

_file = os.open(os.environ["PEER_LINES"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def work(job: str, *, due: float | None = None, asked: float | None = None, check: Callable[[], object] = bool) -> None:
    """Work for a moment. `due` is what the peer says; else `asked`, or the beginning, tells which due time this is
    for."""
    asked = asked or boottime()
    write("began", job, due, asked)
    time.sleep(WORK)
    check()
    write("ended", job, due, asked)


def write(what: str, job: str, due: float | None, asked: float) -> None:
    line = {"what": what, "job": job, "due": due, "asked": asked, "at": boottime(), "pid": os.getpid()}
    os.write(_file, json.dumps(line).encode() + b"\n")


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
