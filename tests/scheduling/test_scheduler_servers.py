"""Servers that hurt: frozen backends, no connection slots, rows and tables that others hold, and a pooler that allows
no transactions."""

import random

import pytest

from harness import plays_servers
from harness.components import need
from harness.pgbouncer import PgBouncer
from harness.postgres import Postgres
from harness.scenes import stage
from harness.scratch import eventually
from tenure import Election, Scheduler
from tenure.errors import ConfigurationError

TTL = 2.0


@pytest.fixture
def make(tmp_path):
    with stage(tmp_path) as make:
        yield make


def scene_on(server, make):
    scene = make(server.create_database(), jobs=plays_servers.SOME, ttl=TTL).start(2)
    scene.planner()
    return scene


@pytest.mark.timeout(90)
def test_frozen_backends_lose_and_double_nothing(own_postgres, make):
    scene = scene_on(own_postgres, make)
    since = scene.now()
    plays_servers.freeze_backends(scene, own_postgres, random.Random(0))
    assert scene.verify(since, scene.now()).due > 0
    assert scene.blows == {"backend freeze": 1}


@pytest.mark.timeout(90)
def test_no_connection_slots_for_longer_than_the_ttl_lose_and_double_nothing(make):
    need("postgres")
    with Postgres(settings={"max_connections": "30"}) as server:
        scene = scene_on(server, make)
        since = scene.now()
        thrown_out = plays_servers.take_all_slots(scene, server)
        assert thrown_out >= len(scene.alive), "every worker had a session"
        assert scene.verify(since, scene.now()).due > 0
        scene.close()


@pytest.mark.timeout(90)
@pytest.mark.parametrize("table", ["node", "job"])
def test_rows_and_tables_held_for_longer_than_the_ttl_lose_and_double_nothing(own_postgres, make, table):
    scene = scene_on(own_postgres, make)
    since = scene.now()
    held = [plays_servers.hold_rows(scene, table), plays_servers.hold_table(scene, table)]
    verdict = scene.verify(since, scene.now())
    for first, last in held if table == "job" else []:
        meanwhile = [began for fate in verdict.fates if first < fate.due < last for began in fate.began]
        assert meanwhile
        assert min(began.at for began in meanwhile) + scene.wall > last, "nobody can claim what comes due meanwhile"


def test_a_pooler_in_statement_mode_is_refused_at_once_with_what_to_do(own_postgres):
    need("pgbouncer")
    url = own_postgres.create_database()
    Scheduler(url, capacity=0).jobs()  # makes the tables, so that nothing but the mode is in the way
    with PgBouncer(own_postgres, "statement") as bouncer:
        through = bouncer.url(url.rpartition("/")[2])
        for start in (Scheduler(through).start, Election(through, "exporter").start):
            with pytest.raises(ConfigurationError, match=r"statement mode.*Put it into transaction or session mode"):
                start()


@pytest.mark.timeout(90)
def test_in_an_outage_the_node_says_what_fails_while_it_is_still_well(own_postgres, caplog):
    scheduler = Scheduler(own_postgres.create_database(), ttl=60, heartbeat_every=0.3, attempt_timeout=1)
    with scheduler:
        assert (scheduler.health().ok, scheduler.health().problem) == (True, "")
        own_postgres.crash()
        eventually(lambda: scheduler.health().problem, what="the problem")
        health = scheduler.health()
        assert health.ok, "its lease holds"
        assert health.problem.count("postgresql://") == 1
        assert "failure" in health.problem
        own_postgres.start()
        eventually(lambda: not scheduler.health().problem, within=30, what="the end of the problem")
        assert scheduler.health().ok
        back = [record for record in caplog.records if getattr(record, "action", "") == "store_works"]
        assert [record.levelname for record in back][:1] == ["WARNING"]
    failed = [record.getMessage() for record in caplog.records if getattr(record, "action", "") == "store_failed"]
    assert failed
    assert all(message.count("postgresql://") == 1 for message in failed), failed
