"""A child that does a leader's work and has inherited its lock: it writes down every act, with the clock of all
histories."""

import ctypes
import json
import os
import select
import signal
import sys
import time

from harness.belief import Recorder

PR_SET_PDEATHSIG = 1


def main() -> None:
    facts = json.loads(sys.argv[1])
    if facts["pdeathsig"]:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    recorder = Recorder(facts["log"], facts["node"])
    print("works", flush=True)
    os.close(1)
    ends = time.monotonic() + facts["for"]
    while time.monotonic() < ends:
        if facts["watch_parent"] and select.select([0], [], [], 0)[0]:
            break  # the parent is gone
        # An act, not a belief: which node leads is not this process's to say.
        recorder.record("acts", facts["name"], facts["term"])
        time.sleep(0.002)
    if facts["watch_parent"]:
        time.sleep(facts["for"])  # idle, but alive, and with the lock


if __name__ == "__main__":
    main()
