"""A leader that has no descriptor left: `starved.py URL`.

It says `leads`, takes all of them away from itself, and says once a beat whether it leads.
"""

import os
import resource
import sys
import time

from tenure import Election

election = Election(sys.argv[1], "x", ttl=3, heartbeat_every=0.3, attempt_timeout=0.9)
with election:
    assert election.wait_until_leading(10)
    time.sleep(1)  # until it has all that it opens once
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, lowest))
    try:
        os.open(os.devnull, os.O_RDONLY)
    except OSError:
        print("starves", flush=True)
    while True:
        time.sleep(0.3)
        print("leads" if election.is_leader else "does not lead", flush=True)
