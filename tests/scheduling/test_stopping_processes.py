"""Stops of real processes: bodies in threads, coroutines and processes of their own, interrupted by a deployment
(promises G3 and G6)."""

import signal
import threading

import pytest

from harness.postgres import Postgres
from harness.processes import SUPPORT, Worker
from harness.scratch import eventually
from tenure import Scheduler

SCRIPT = SUPPORT / "workers" / "stopping.py"
KINDS = ("in_thread", "in_loop", "in_process")


def called(*workers: Worker) -> list[str]:
    """Which bodies were called, as which attempts: 'in_thread 1'."""
    return [line.removeprefix("called ") for one in workers for line in one.lines if line.startswith("called ")]


@pytest.mark.parametrize("on_lost", ["fail", "retry"])
def test_a_stop_that_interrupts_a_body_spends_its_attempt(url, on_lost):
    with Worker(SCRIPT, url, on_lost, "30") as old:
        old.wait_line("ready", within=20)
        client = Scheduler(url, application=on_lost, capacity=0)
        runs = {kind: client.run_now(kind) for kind in KINDS}
        eventually(lambda: len(called(old)) == 3, within=20)
        with Worker(SCRIPT, url, on_lost, "0") as new:
            new.wait_line("ready", within=20)
            old.process.send_signal(signal.SIGTERM)
            assert old.wait(within=20) == 0
            final = "lost" if on_lost == "fail" else "succeeded"
            for run in runs.values():
                eventually(lambda one=run: client.find_run(one.id).state == final, within=20)
            found = [client.find_run(run.id) for run in runs.values()]
            again = sorted(called(new))
    assert sorted(called(old)) == sorted(f"{kind} 1" for kind in KINDS)
    if on_lost == "fail":
        assert {(run.reason, run.attempt, run.interruptions, run.losses) for run in found} == {
            ("its node was stopped", 1, 1, 0)
        }
        assert again == [], "never called again"
    else:
        assert {(run.attempt, run.interruptions, run.losses) for run in found} == {(2, 1, 0)}
        assert again == sorted(f"{kind} 2" for kind in KINDS)


def test_deployments_do_not_count_as_losses(url):
    """Each process ends while the thread is at work; `max_lost` is 1."""
    client = Scheduler(url, application="deaf", capacity=0)
    worker = Worker(SCRIPT, url, "deaf", "600").start()
    worker.wait_line("ready", within=20)
    run = client.run_now("deaf")
    for number in (1, 2, 3):
        eventually(lambda one=worker, n=number: called(one) == [f"deaf {n}"], within=20)
        following = Worker(SCRIPT, url, "deaf", "600" if number < 3 else "0").start()
        following.wait_line("ready", within=20)
        worker.process.send_signal(signal.SIGTERM)
        assert worker.wait(within=20) == 0, "its exit was not held up"
        worker = following
    eventually(lambda: client.find_run(run.id).state == "succeeded", within=20)
    found = client.find_run(run.id)
    assert (found.attempt, found.interruptions, found.losses) == (4, 3, 0)
    worker.process.send_signal(signal.SIGTERM)
    worker.wait(within=20)


def test_an_outage_that_the_lease_survives_ends_no_body_and_repeats_none(own_postgres: Postgres):
    """Bodies that last longer than an outage which is shorter than the lease, on two nodes."""
    url = own_postgres.url(own_postgres.create_database().rsplit("/", 1)[1])
    with Worker(SCRIPT, url, "outage", "6") as one, Worker(SCRIPT, url, "outage", "6") as two:
        one.wait_line("ready", within=20)
        two.wait_line("ready", within=20)
        client = Scheduler(url, application="outage", capacity=0)
        runs = [client.run_now(kind) for kind in KINDS]
        eventually(lambda: len(called(one, two)) == 3, within=20)
        own_postgres.crash()
        threading.Event().wait(3)  # the outage itself
        own_postgres.start()
        for run in runs:
            eventually(lambda one=run: client.find_run(one.id).state == "succeeded", within=30)
        found = [client.find_run(run.id) for run in runs]
        assert sorted(called(one, two)) == sorted(f"{kind} 1" for kind in KINDS)
    assert {(run.attempt, run.failures, run.losses, run.interruptions) for run in found} == {(1, 0, 0, 0)}
