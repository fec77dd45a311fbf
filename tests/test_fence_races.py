"""What a fence holds up and what it does not, and that order holds when everything happens at once."""

import random
import threading
import time
from contextlib import suppress

import psycopg
import pytest

from fencing import ISOLATION, Court
from harness.scratch import eventually
from tenure import fence
from tenure.errors import StaleTerm
from tenure.model import Outcome, Verdict


@pytest.fixture
def court(database):
    with Court(database) as court, psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE effect (place bigserial, term bigint)")
        connection.commit()
        yield court


@pytest.mark.parametrize("isolation", ISOLATION)
def test_an_open_fence_lets_beats_and_releases_pass_and_holds_up_a_grant(court, isolation):
    with psycopg.connect(court.url) as connection:
        connection.isolation_level = getattr(psycopg.IsolationLevel, isolation.replace(" ", "_"))
        connection.execute("INSERT INTO effect (term) VALUES (1)")
        fence.fence(connection, court.term)
        began = time.monotonic()
        assert court.beat().verdict is Verdict.RENEWED
        assert court.session.release(court.term.node, court.name, court.term.number, "done")
        assert court.try_grant() is Outcome.BUSY
        assert time.monotonic() - began < 0.5, "somebody waited for the fence"
        connection.commit()
        assert court.try_grant() is Outcome.GRANTED


@pytest.mark.parametrize("isolation", ISOLATION[1:])
def test_a_fence_from_an_old_snapshot_holds_up_a_grant_too(court, isolation):
    """The term is released after the snapshot was taken: the fence still sees it held, and must lock the newest row."""
    with psycopg.connect(court.url) as connection:
        connection.isolation_level = getattr(psycopg.IsolationLevel, isolation.replace(" ", "_"))
        connection.execute("INSERT INTO effect (term) VALUES (1)")
        assert court.session.release(court.term.node, court.name, court.term.number, "done")
        fence.fence(connection, court.term)
        assert court.try_grant() is Outcome.BUSY
        connection.commit()
        assert court.try_grant() is Outcome.GRANTED


def test_every_server_sees_through_a_release_and_a_grant(each_postgres):
    """The row of the old snapshot was first updated without its key, then with it: the lock has to walk the chain."""
    url = each_postgres.create_database()
    with Court(url) as court, psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE effect (term bigint)")
        connection.commit()
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("INSERT INTO effect VALUES (1)")
        old = court.succeed()
        connection.execute("SAVEPOINT before")
        with pytest.raises(StaleTerm):
            fence.fence(connection, old)
        with pytest.raises(psycopg.errors.InvalidSavepointSpecification):
            connection.execute("ROLLBACK TO SAVEPOINT before")
        connection.commit()
        assert connection.execute("SELECT * FROM effect").fetchall() == []
    each_postgres.drop_database(url)


def test_a_frozen_fenced_transaction_is_ended_by_the_server(database):
    with Court(database, ttl=0.3) as court, psycopg.connect(database) as frozen:
        frozen.execute("CREATE TABLE effect (what text)")
        fence.fence(frozen, court.term)
        began = time.monotonic()
        assert court.session.declare(court.term.node, None, "said the test")
        assert court.try_grant() is Outcome.BUSY
        eventually(lambda: court.try_grant() is Outcome.GRANTED, what="the grant", within=5)
        assert 0.2 < time.monotonic() - began < 3.0
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            frozen.commit()


def test_the_time_limit_ends_with_the_transaction(database):
    with Court(database, ttl=0.3) as court, psycopg.connect(database) as connection:
        with connection.transaction():
            fence.fence(connection, court.term)
            assert limit(connection) == "300ms"
        assert limit(connection) == "0"


@pytest.mark.parametrize("isolation", ISOLATION)
def test_no_row_of_an_older_term_is_committed_after_one_of_a_newer(court, isolation):
    """Takeovers and fenced work as fast as they go, with refusals swallowed in every way that commits.

    The proof does not trust clocks: every transaction first takes one exclusive lock, numbers its row under it and keeps the lock
    until its commit is over, so that the order of places is the order of commits.
    """
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    terms, done, failures = [court.term], threading.Event(), []

    def work(dice):
        try:
            with psycopg.connect(court.url) as connection:
                connection.isolation_level = getattr(psycopg.IsolationLevel, isolation.replace(" ", "_"))
                while not done.is_set():
                    attempt(connection, dice)
        except Exception as error:
            failures.append(error)

    def attempt(connection, dice):
        term = dice.choice(terms[-3:])  # the newest, or one whose holder has not noticed yet
        way = dice.choice(["plain", "swallow", "savepoint", "fence first"])
        try:
            if way == "fence first":
                connection.execute("SELECT 1")
                fence.fence(connection, term)
            connection.execute("SELECT pg_advisory_xact_lock(1)")
            connection.execute("INSERT INTO effect (term) VALUES (%s)", [term.number])
            if dice.random() < 0.3:
                time.sleep(dice.random() * 0.005)
            connection.execute("SAVEPOINT before")
            if way != "fence first":
                fence.fence(connection, term)
        except (StaleTerm, psycopg.errors.SerializationFailure):
            if way == "savepoint":
                with suppress(psycopg.Error):
                    connection.execute("ROLLBACK TO SAVEPOINT before")
            if way == "plain":
                connection.rollback()
                return
        connection.commit()

    workers = [threading.Thread(target=work, args=[random.Random(seed + i)]) for i in range(2)]
    for worker in workers:
        worker.start()
    dice = random.Random(seed)
    deadline = time.monotonic() + 30
    while len(terms) < 40 and time.monotonic() < deadline and not failures:
        old = court.term
        if dice.random() < 0.5:
            court.session.release(old.node, old.election, old.number, "said the test")
        else:
            court.session.declare(old.node, None, "said the test")
        eventually(lambda: court.try_grant() is Outcome.GRANTED, what="a grant", within=10)
        terms.append(court.term)
        time.sleep(dice.random() * 0.02)
    done.set()
    for worker in workers:
        worker.join(20)
    assert not failures
    with psycopg.connect(court.url) as connection:
        order = [term for (term,) in connection.execute("SELECT term FROM effect ORDER BY place")]
    print(f"{len(order)} rows over {len(set(order))} of {len(terms)} terms")
    assert order == sorted(order)
    assert len(set(order)) > 5, "hardly anything was committed: nothing was tested"


def limit(connection):
    return connection.execute("SHOW idle_in_transaction_session_timeout").fetchone()[0]
