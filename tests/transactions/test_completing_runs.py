"""`run.complete(conn)` inside a scheduler that runs: the transaction of the body decides, whatever the body does
afterwards."""

import sqlite3
import time
from contextlib import closing

import psycopg
import pytest

from tenure import Run, Scheduler


@pytest.fixture(params=["sqlite", "postgres", "pooled"])
def url(request):
    if request.param == "sqlite":
        return request.getfixturevalue("sqlite_url")
    database = request.getfixturevalue("database")
    if request.param == "postgres":
        return database
    return request.getfixturevalue("pgbouncer").url(database.rsplit("/", 1)[1])


def connect(url):
    if url.startswith("sqlite"):
        return closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=10, isolation_level="IMMEDIATE"))
    return closing(psycopg.connect(url))


@pytest.fixture
def scheduler(url):
    with connect(url) as conn:
        conn.execute("CREATE TABLE invoice (key text)")
        conn.commit()
    return Scheduler(url, ttl=3, heartbeat_every=0.2, attempt_timeout=0.5)


def invoices(url):
    with connect(url) as conn:
        return conn.execute("SELECT count(*) FROM invoice").fetchone()[0]


def ended(scheduler, run):
    deadline = time.monotonic() + 20
    while (found := scheduler.find_run(run.id)).state in {"pending", "running"}:
        assert time.monotonic() < deadline, found
        time.sleep(0.01)
    return found


def test_the_effect_and_the_mark_commit_together(scheduler, url):
    @scheduler.job
    def invoice(run: Run) -> None:
        run.log("before")
        with connect(url) as conn:
            if run.once(conn, "invoices"):
                conn.execute("INSERT INTO invoice VALUES ('one')")
            run.complete(conn)
            conn.commit()
        run.log("after")

    with scheduler:
        run = scheduler.run_now("invoice")
        assert ended(scheduler, run).state == "succeeded"
        deadline = time.monotonic() + 10
        while scheduler.log(run.id) != ["before", "after"]:
            assert time.monotonic() < deadline, scheduler.log(run.id)
            time.sleep(0.01)
    assert invoices(url) == 1


def test_an_exception_after_the_commit_changes_nothing(scheduler, url):
    @scheduler.job(retries=3)
    def invoice(run: Run) -> None:
        with connect(url) as conn:
            conn.execute("INSERT INTO invoice VALUES ('one')")
            run.complete(conn)
            conn.commit()
        raise ValueError("too late")

    with scheduler:
        assert ended(scheduler, scheduler.run_now("invoice")).attempt == 1
    assert invoices(url) == 1


def test_what_was_rolled_back_has_failed_although_the_body_returned(scheduler, url):
    @scheduler.job(retries=1, backoff=(0.05, 0.05))
    def invoice(run: Run) -> None:
        with connect(url) as conn:
            conn.execute("INSERT INTO invoice VALUES ('one')")
            run.complete(conn)
            conn.commit() if run.attempt == 2 else conn.rollback()

    with scheduler:
        run = ended(scheduler, scheduler.run_now("invoice"))
    assert (run.state, run.attempt, run.failures) == ("succeeded", 2, 1)
    assert invoices(url) == 1


def test_a_body_that_goes_on_after_it_completed_is_not_taken_for_lost(scheduler, url):
    lost = []

    @scheduler.job
    def invoice(run: Run) -> None:
        with connect(url) as conn:
            conn.execute("INSERT INTO invoice VALUES ('one')")
            run.complete(conn)
            conn.commit()
        time.sleep(1.0)  # several reconciliations
        lost.append(run.lost)

    with scheduler:
        run = scheduler.run_now("invoice")
        assert ended(scheduler, run).state == "succeeded"
    assert lost == [False]
