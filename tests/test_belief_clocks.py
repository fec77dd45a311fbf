"""Clocks that step while candidates lead: the wall clock means nothing, and a machine that slept does not believe (promise G2)."""

import time

import pytest

from harness.clocks import ShiftedClock
from harness.cluster import Cluster
from harness.components import need


@pytest.fixture(params=["sqlite", "postgres"])
def url(request):
    return request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "database")


def test_steps_of_a_nodes_clocks(url, tmp_path):
    need("gcc")
    cluster = Cluster(tmp_path, url, ttl=1)
    clock_of = {}
    for _ in range(3):
        clock = ShiftedClock()
        clock_of[cluster.add(env=clock.env)] = clock
    leader, term = cluster.leader()
    other = cluster.others(leader)[0]

    for node in (leader, other):
        for hours in (2, -2):
            clock_of[node].wall(hours * 3600)
            time.sleep(0.4)
            assert leader.leads == term, f"the wall clock of {node.label} stepped by {hours} h\n{cluster.stories()}"

    for seconds in (60, 120):
        clock_of[other].boot(seconds)  # it wakes, and has seen nothing meanwhile
        time.sleep(0.5)
        assert leader.leads == term, f"{other.label} slept, and took the others' silence for death\n{cluster.stories()}"

    for seconds in (180, 240):  # further than any of them has slept
        clock_of[leader].boot(seconds)
        leader.until(event="over", term=term)
        leader, term = cluster.leader(after=term)
    cluster.verify(terms=3)
