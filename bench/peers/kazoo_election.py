"""kazoo's election recipe on ZooKeeper: `kazoo_election.py PORT SESSION_TIMEOUT`."""

import os
import sys
import time

from kazoo.client import KazooClient

from cluster import say


def lead() -> None:
    say("leading")
    time.sleep(3600)


client = KazooClient(f"127.0.0.1:{sys.argv[1]}", timeout=float(sys.argv[2]))
client.start()
say("joined")
client.Election("/bench", f"member-{os.getpid()}").run(lead)
