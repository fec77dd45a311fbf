"""A candidate that blocks in a lock of tooz: `tooz_lock.py URL NAME`, with the defaults of its driver."""

import os
import sys
import time
import warnings

warnings.simplefilter("ignore")

from tooz import coordination  # noqa: E402

from cluster import say  # noqa: E402 - the warnings come while importing

url, name = sys.argv[1:]
coordinator = coordination.get_coordinator(url, f"member-{os.getpid()}".encode())
coordinator.start(start_heart=True)
lock = coordinator.get_lock(name.encode())
say("joined")
while not lock.acquire(blocking=True):
    time.sleep(0.05)
say("leading")
time.sleep(3600)
