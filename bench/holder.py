"""One process with many elections: `holder.py URL COUNT BEAT`. Says `leading` when it leads them all."""

import signal
import sys

from cluster import say
from tenure import Election

url, count, beat = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
elections = [Election(url, f"election-{number}", heartbeat_every=beat) for number in range(count)]
for election in elections:
    election.start()
say("joined")
for election in elections:
    assert election.wait_until_leading(30)
say("leading")
signal.pause()
