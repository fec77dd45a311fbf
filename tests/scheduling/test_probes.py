"""`health().live` and `health().ready`: what probes rest on, while the database hangs, while a node drains, and without a node."""

import threading

import pytest

from harness.scratch import eventually
from tenure import Run, Scheduler
from tenure.cluster import node as node_module
from tenure.scheduling.health import PROBES

QUICK = {"ttl": 1.5, "heartbeat_every": 0.2, "attempt_timeout": 0.3}


def probes(scheduler):
    health = scheduler.health()
    return [PROBES[path](health)[0] for path in ("/livez", "/readyz")]


def test_while_the_database_hangs_the_process_lives_and_is_not_ready_once_its_trust_is_over(own_postgres):
    scheduler = Scheduler(own_postgres.create_database(), **QUICK)
    assert probes(scheduler) == [200, 503], "it has not started"
    with scheduler:
        assert probes(scheduler) == [200, 200]
        own_postgres.freeze()
        assert probes(scheduler)[0] == 200
        eventually(lambda: probes(scheduler)[1] == 503, within=10)
        assert scheduler.health().trusted_for <= 0
        for _ in range(200):  # as long as several heartbeats and their timeouts take
            assert probes(scheduler) == [200, 503]
            threading.Event().wait(0.01)
        own_postgres.thaw()
        eventually(lambda: probes(scheduler) == [200, 200], within=20)
        own_postgres.crash()
        eventually(lambda: probes(scheduler) == [200, 503], within=10)
        for _ in range(100):
            assert probes(scheduler)[0] == 200
            threading.Event().wait(0.01)


def test_a_heartbeat_that_does_not_move_any_more_is_no_life(sqlite_url, monkeypatch):
    monkeypatch.setattr(node_module, "AT_LEAST", 0.0)
    scheduler = Scheduler(sqlite_url, **QUICK)
    with scheduler:
        stuck, goes_on = threading.Event(), threading.Event()
        real = node_module.HeartbeatThread._turn

        def turn(self):
            stuck.set()
            goes_on.wait(20)
            real(self)

        monkeypatch.setattr(node_module.HeartbeatThread, "_turn", turn)
        assert stuck.wait(10)
        eventually(lambda: probes(scheduler)[0] == 503, within=10)
        goes_on.set()
        eventually(lambda: probes(scheduler) == [200, 200], within=10)


def test_a_node_that_drains_lives_and_is_not_ready(any_url):
    scheduler = Scheduler(any_url)
    begun, goes_on = threading.Event(), threading.Event()

    @scheduler.job
    def lasts(run: Run) -> None:
        begun.set()
        goes_on.wait(20)

    with scheduler:
        scheduler.run_now("lasts")
        assert begun.wait(20)
        assert probes(scheduler) == [200, 200]
        stopping = threading.Thread(target=scheduler.stop)
        stopping.start()
        eventually(lambda: scheduler.health().draining)
        assert probes(scheduler) == [200, 503]
        goes_on.set()
        stopping.join(20)
        assert probes(scheduler) == [200, 503], "it has stopped"


@pytest.mark.parametrize("why", ["capacity", "TENURE_OFF"])
def test_a_process_that_takes_no_part_is_ready_for_what_it_does(sqlite_url, monkeypatch, why):
    if why == "TENURE_OFF":
        monkeypatch.setenv("TENURE_OFF", "1")
    with Scheduler(sqlite_url, capacity=0 if why == "capacity" else 1) as scheduler:
        assert probes(scheduler) == [200, 200]
        assert scheduler.health().takes_part is False
        assert scheduler.health().ok is False


def test_asking_asks_no_database(tmp_path):
    assert probes(Scheduler(f"sqlite:///{tmp_path}/none/jobs.db")) == [200, 503]
