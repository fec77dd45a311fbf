"""Failover to a replica that lost the last grants: numbers grow, nobody leads beside another, and whoever lost is told."""

import pytest

from harness import scratch
from harness.cluster import Cluster
from harness.components import need
from harness.postgres import Postgres
from harness.proxy import Proxy


@pytest.mark.parametrize("promoted", ["at once", "after everybody has met it in recovery"])
def test_a_promoted_replica_that_lost_the_last_grants(tmp_path, promoted):
    need("postgres")
    with Postgres() as primary, Proxy(primary.port) as network:
        name = primary.create_database().rpartition("/")[2]
        cluster = Cluster(tmp_path, network.url(name), ttl=1.5).start()
        cluster.query("UPDATE tenure.epoch SET max_ttl = 2")  # what is waited out: 60 s unless a test says otherwise
        _, term = cluster.leader()
        standby = primary.replica()
        try:
            scratch.eventually(lambda: standby.execute("SELECT max_ttl FROM tenure.epoch", dbname=name) == [(2.0,)])
            standby.execute("ALTER SYSTEM SET primary_conninfo = ''")
            standby.execute("SELECT pg_reload_conf()")
            scratch.eventually(lambda: standby.execute("SELECT count(*) FROM pg_stat_wal_receiver") == [(0,)])

            for _ in range(2):  # grants that the replica will never know
                leader, term = cluster.leader()
                leader.until(event="acts", term=term)
                leader.say(do="resign")
                leader, term = cluster.leader(after=term)
            leader.until(event="acts", term=term)
            primary.crash()
            network.target = ("127.0.0.1", standby.port)
            if promoted == "at once":
                standby.promote()
            else:
                leader.until(event="over", term=term)
                assert not any(worker.leads for worker in cluster.workers)
                standby.promote()
            told = leader.until(event="lost", term=term)
            assert told["reason"] in {
                "the database no longer gives it to this node",
                "no beat was acknowledged in time",
                "its session could not be checked in time",
            }
            leader, newer = cluster.leader(after=term)
            assert newer >= 1 << 20, "a leap that no lost grant can have reached"
            leader.kill()
            cluster.leader(after=newer)
            cluster.verify(terms=5)
        finally:
            standby.close()
