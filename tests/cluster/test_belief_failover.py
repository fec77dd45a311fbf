"""Failover to a replica that lost the last grants: numbers grow, nobody leads beside another, and whoever lost is
told."""

import time
from contextlib import ExitStack

import pytest

from harness import scratch
from harness.cluster import Cluster
from harness.components import need
from harness.postgres import Postgres
from harness.proxy import Proxy


@pytest.mark.parametrize("leader_is", ["moved with the others", "cut off, while the others meet a server in recovery"])
def test_a_promoted_replica_that_lost_the_last_grants(tmp_path, leader_is):
    need("postgres")
    with ExitStack() as stack:
        primary = stack.enter_context(Postgres())
        main, *networks = [stack.enter_context(Proxy(primary.port)) for _ in range(4)]
        name = primary.create_database().rpartition("/")[2]
        cluster = Cluster(tmp_path, main.url(name), ttl=1.5)
        of = {cluster.add(network.url(name)): network for network in networks}
        cluster.query("UPDATE tenure.epoch SET max_ttl = 2")  # what is waited out: 60 s unless a test says otherwise
        cluster.leader()
        standby = primary.replica()
        stack.callback(standby.close)
        scratch.eventually(lambda: standby.execute("SELECT max_ttl FROM tenure.epoch", dbname=name) == [(2.0,)])
        standby.execute("ALTER SYSTEM SET primary_conninfo = ''")
        standby.execute("SELECT pg_reload_conf()")
        scratch.eventually(lambda: standby.execute("SELECT count(*) FROM pg_stat_wal_receiver") == [(0,)])

        for _ in range(2):  # grants that the replica will never know
            leader, term = cluster.leader()
            leader.until(event="acts", term=term)
            leader.say(do="resign")
            leader.until(event="refused", term=term)  # or the replica, which believes in its grant, would let it go on
            leader, term = cluster.leader(after=term)
        leader.until(event="acts", term=term)
        for network in (main, *networks):
            network.target = ("127.0.0.1", standby.port)
        if leader_is == "moved with the others":
            primary.crash()
            standby.promote()
            assert leader.until(event="lost", term=term)["reason"] in {
                "the database no longer gives it to this node",
                "no beat was acknowledged in time",  # on a machine too busy to promote a server in a second
            }
        else:
            of[leader].black_hole()
            primary.crash()
            time.sleep(0.1)
            standby.promote()  # now nobody but the rule keeps the others from leading beside it
        _, newer = cluster.leader(after=term)
        assert newer >= 1 << 20, "a leap that no lost grant can have reached"
        of[leader].heal()
        leader.until(event="over", term=term)
        cluster.verify(terms=4)
