"""The collector in processes: asked by many, in every worker, after a fork, and while the database is away."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client import CollectorRegistry

from harness.processes import SUPPORT, Worker
from harness.scratch import eventually
from metric_values import exported
from tenure import AsyncScheduler, Scheduler
from tenure.errors import ConfigurationError
from tenure.metrics import collecting, collector, measure
from tenure.metrics.reading import LedgerReader

SCRIPT = SUPPORT / "workers" / "with_metrics.py"


def registered(scheduler, **options):
    registry = CollectorRegistry()
    registry.register(collector(scheduler, **options))
    return registry


@pytest.fixture
def looks(monkeypatch):
    """How often the store was asked."""
    counted, real = [], LedgerReader.read

    def read(self, session):
        counted.append(threading.current_thread().name)
        return real(self, session)

    monkeypatch.setattr(LedgerReader, "read", read)
    return counted


def test_who_asks_at_the_same_time_shares_one_answer_and_who_asks_soon_after_gets_it_again(
    sqlite_url, looks, monkeypatch
):
    registry = registered(Scheduler(sqlite_url, capacity=0))
    with ThreadPoolExecutor(8) as pool:
        answers = [*pool.map(lambda _: exported(registry)["tenure_up"], range(20))]
    assert answers == [{(): 1}] * 20
    assert looks == ["tenure metrics"]
    monkeypatch.setattr(collecting, "FRESH", 0.0)
    exported(registry)
    assert len(looks) == 2


def test_an_async_scheduler_is_taken_too_and_anything_else_is_refused(sqlite_url):
    assert exported(registered(AsyncScheduler(sqlite_url, capacity=0)))["tenure_up"] == {(): 1}
    with pytest.raises(ConfigurationError, match="Give a Scheduler"):
        collector(sqlite_url)


def test_a_forked_child_asks_for_itself_even_if_a_thread_of_its_parent_was_asking(sqlite_url, looks, monkeypatch):
    scheduler = Scheduler(sqlite_url, capacity=0)
    registry = registered(scheduler)
    assert exported(registry)["tenure_up"] == {(): 1}
    monkeypatch.setattr(collecting, "FRESH", 0.0)
    inside, goes_on, real = threading.Event(), threading.Event(), LedgerReader.read

    def slow(self, session):
        inside.set()
        goes_on.wait(20)
        return real(self, session)

    monkeypatch.setattr(LedgerReader, "read", slow)
    asking = threading.Thread(target=lambda: exported(registry))
    asking.start()
    assert inside.wait(20)
    pid = os.fork()
    if pid == 0:
        monkeypatch.setattr(LedgerReader, "read", real)
        os._exit(0 if exported(registry)["tenure_up"] == {(): 1} else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    goes_on.set()
    asking.join(20)


def test_while_the_database_is_away_a_scrape_ends_in_time_and_says_so(own_postgres, monkeypatch, caplog):
    url = own_postgres.create_database()
    scheduler = Scheduler(url, application="shop")
    scheduler.job(name="nightly")(lambda: None)
    with scheduler:
        pass
    monkeypatch.setattr(collecting, "FRESH", 0.0)
    registry = registered(Scheduler(url, application="shop", capacity=0))
    assert exported(registry)["tenure_jobs"] == {(): 1}
    own_postgres.freeze()
    for _ in range(2):
        began = time.monotonic()
        assert exported(registry) == {"tenure_up": {(): 0}}
        assert time.monotonic() - began < collecting.PATIENCE + 2
    assert [record.action for record in caplog.records].count("store_failed") == 1
    own_postgres.thaw()
    eventually(lambda: exported(registry).get("tenure_jobs") == {(): 1}, within=20)
    assert caplog.records[-1].action == "store_works"
    own_postgres.crash()
    assert exported(registry) == {"tenure_up": {(): 0}}


def test_what_is_broken_is_said_and_is_no_silence(sqlite_url, monkeypatch, caplog):
    def broken(self, session):
        raise KeyError("a bug")

    monkeypatch.setattr(LedgerReader, "read", broken)
    assert exported(registered(Scheduler(sqlite_url, capacity=0))) == {"tenure_up": {(): 0}}
    assert [record.action for record in caplog.records] == ["metrics_failed"]


def asked(worker, what="export"):
    worker.say(what=what)
    return worker.wait_event(event="exported", within=20)["values"]


@pytest.mark.parametrize("files", [False, True], ids=["one process", "PROMETHEUS_MULTIPROC_DIR"])
def test_every_worker_says_the_same_of_the_store(url, tmp_path, files):
    env = {}
    if files:
        env["PROMETHEUS_MULTIPROC_DIR"] = str(tmp_path / "prometheus")
        (tmp_path / "prometheus").mkdir()
    with Worker(SCRIPT, url, "web-1", env=env) as one, Worker(SCRIPT, url, "web-2", env=env) as two:
        for worker in (one, two):
            worker.wait_event(event="started", within=30)
        asked(one, "run")

        def said(worker, name):
            return asked(worker).get(name)

        eventually(lambda: said(one, "tenure_job_last_success_timestamp_seconds"), within=30)
        eventually(lambda: said(two, "tenure_job_last_success_timestamp_seconds"), within=30)
        eventually(lambda: of_store(one) == of_store(two), within=20)
        assert sorted(of_store(one)["tenure_job_info"]) == [["nightly", "default", "", "UTC", 1]]
        # What each process counts by itself.
        assert eventually_counts(one, two, files=files) == 1
        for worker in (one, two):
            eventually(lambda worker=worker: "tenure_store_clock_offset_seconds" in asked(worker), within=20)
            values = asked(worker)
            assert dict(values["tenure_renewals_total"])["renewed"] > 0
            assert 0 < values["tenure_trust_seconds"][0][-1] < 3, "no process that has not beaten yet says 0"
            assert values["tenure_store_round_trip_seconds"][0][-1] > 0
            assert abs(values["tenure_store_clock_offset_seconds"][0][-1]) < 5


def of_store(worker):
    """What does not depend on the instant."""
    return {
        name: value
        for name, value in asked(worker).items()
        if name.startswith("tenure_job_") and name != "tenure_job_running_seconds"
    }


def eventually_counts(one, two, *, files):
    """How many runs both have counted: each its own, or both the same with the files of all."""

    def counts():
        found = [asked(worker)["tenure_run_duration_seconds_count"][0][-1] for worker in (one, two)]
        late = [asked(worker)["tenure_run_lateness_seconds_count"][0][-1] for worker in (one, two)]
        assert found == late
        return max(found) if files else sum(found)

    eventually(counts, within=20)
    return counts()


def test_endings_are_counted_by_outcome_and_attempts_that_are_retried_are_not():
    registry = CollectorRegistry()
    scheduler = Scheduler("memory://endings")
    measure(scheduler, registry)
    scheduler.job(name="works")(lambda: None)

    @scheduler.job(retries=1, backoff="1ms")
    def fails() -> None:
        raise ValueError

    def counted():
        return exported(registry).get("tenure_runs_total", {})

    with scheduler:
        for name in ("works", "works", "fails"):
            scheduler.run_now(name)
        eventually(lambda: sum(counted().values()) >= 3)
        eventually(lambda: exported(registry)["tenure_run_duration_seconds_count"] == {(): 4})
    assert counted() == {("succeeded",): 2, ("failed",): 1}


def test_two_schedulers_of_one_process_share_the_metrics_of_the_process():
    registry = CollectorRegistry()
    schedulers = [Scheduler(f"memory://shared{i}", ttl=3, heartbeat_every=0.2, attempt_timeout=0.2) for i in range(2)]
    for one in schedulers:
        measure(one, registry)
        one.job(name="job")(lambda: None)
    with schedulers[0], schedulers[1]:
        for one in schedulers:
            one.run_now("job")
        eventually(lambda: exported(registry)["tenure_run_duration_seconds_count"] == {(): 2})
        eventually(lambda: exported(registry).get("tenure_renewals_total", {}).get(("renewed",), 0) > 2)
    assert exported(registry)["tenure_run_duration_seconds_bucket"]["0.005",] == 2
