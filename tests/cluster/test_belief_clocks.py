"""Clocks that step while candidates lead: the wall clock means nothing, and a machine that slept does not believe
(promise G2)."""

import time

from harness.clocks import ShiftedClock
from harness.cluster import Cluster
from harness.components import need


def test_steps_of_a_nodes_clocks(url, tmp_path):
    need("gcc")
    cluster = Cluster(tmp_path, url, ttl=2)
    clock_of = {}
    for beat in (0.3, 0.1, 0.1):  # the others look more often than the leader beats
        clock = ShiftedClock()
        cadence = {"ttl": 2, "heartbeat_every": beat, "attempt_timeout": 0.6}
        clock_of[cluster.add(env=clock.env, election=cadence)] = clock
    leader, term = cluster.leader()
    other = cluster.others(leader)[0]

    for node in (leader, other):
        for hours in (2, -2):
            clock_of[node].wall(hours * 3600)
            time.sleep(0.4)
            assert leader.leads == term, f"the wall clock of {node.label} stepped by {hours} h\n{cluster.stories()}"

    for seconds in range(10, 60, 10):
        clock_of[other].boot(seconds)  # it wakes, and has seen nothing meanwhile
        time.sleep(0.25)
        assert leader.leads == term, f"{other.label} slept, and took the others' silence for death\n{cluster.stories()}"

    for seconds in (60, 120):  # further than any of them has slept
        clock_of[leader].boot(seconds)
        leader.until(event="over", term=term)
        leader, term = cluster.leader(after=term)
    cluster.verify(terms=3)
