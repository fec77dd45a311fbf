"""What a fence holds up and what it does not, and that order holds when everything happens at once."""

import random
import threading
import time
from contextlib import suppress

import psycopg
import pytest

from callers import ISOLATION, level
from fencing import Court
from harness.scratch import eventually
from tenure.core.cluster import AcquireOutcome, BeatVerdict
from tenure.errors import StaleTerm
from tenure.transactions import fence


@pytest.fixture
def court(database):
    with Court(database) as court, psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE effect (term bigint)")
        connection.commit()
        yield court


@pytest.mark.parametrize("isolation", ISOLATION)
def test_an_open_fence_lets_beats_and_releases_pass_and_holds_up_a_grant(court, isolation):
    with psycopg.connect(court.url) as connection:
        connection.isolation_level = level(isolation)
        connection.execute("INSERT INTO effect (term) VALUES (1)")
        fence.fence(connection, court.term)
        assert (
            court.beat().verdict is BeatVerdict.RENEWED
        )  # none of these three waits: the fence is open until they have returned
        assert court.session.release(court.term.node, court.name, court.term.number, "done")
        assert court.try_grant() is AcquireOutcome.BUSY
        connection.commit()
        assert court.try_grant() is AcquireOutcome.GRANTED


@pytest.mark.parametrize("isolation", ISOLATION[1:])
def test_a_fence_from_an_old_snapshot_holds_up_a_grant_too(court, isolation):
    """The term is released after the snapshot was taken: the fence still sees it held, and must lock the newest row."""
    with psycopg.connect(court.url) as connection:
        connection.isolation_level = level(isolation)
        connection.execute("INSERT INTO effect (term) VALUES (1)")
        assert court.session.release(court.term.node, court.name, court.term.number, "done")
        fence.fence(connection, court.term)
        assert court.try_grant() is AcquireOutcome.BUSY
        connection.commit()
        assert court.try_grant() is AcquireOutcome.GRANTED


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
        assert court.try_grant() is AcquireOutcome.BUSY
        eventually(lambda: court.try_grant() is AcquireOutcome.GRANTED, what="the grant", within=20)
        assert time.monotonic() - began > 0.2
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            frozen.commit()


def test_the_time_limit_ends_with_the_transaction(database):
    with Court(database, ttl=0.3) as court, psycopg.connect(database) as connection:
        with connection.transaction():
            fence.fence(connection, court.term)
            assert limit(connection) == "300ms"
        assert limit(connection) == "0"


@pytest.mark.parametrize("isolation", ISOLATION)
def test_once_a_term_is_granted_no_row_of_an_older_one_is_committed(court, isolation):
    """Takeovers and fenced work as fast as they go, with refusals swallowed in every way that commits.

    The proof needs no clock and no order of commits: right after each grant the rows of older terms are counted, and
    there are as many of them at the end.
    """
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    terms, counted, done, failures = [court.term], [], threading.Event(), []

    def work(dice):
        try:
            with psycopg.connect(court.url) as connection:
                connection.isolation_level = level(isolation)
                while not done.is_set():
                    attempt(connection, dice)
        except Exception as error:
            failures.append(error)

    def attempt(connection, dice):
        term = dice.choice(terms[-2:])  # the newest, or one whose holder has not noticed yet
        way = dice.choice(["plain", "swallow", "savepoint", "fence first"])
        try:
            connection.execute("SELECT FROM effect LIMIT 1")
            if way == "fence first":
                fence.fence(connection, term)
            time.sleep(dice.random() * 0.004)
            connection.execute("INSERT INTO effect (term) VALUES (%s)", [term.number])
            connection.execute("SAVEPOINT before")
            if way != "fence first":
                fence.fence(connection, term)
            time.sleep(dice.random() * 0.004)
        except (StaleTerm, psycopg.errors.SerializationFailure):
            if way == "savepoint":
                with suppress(psycopg.Error):
                    connection.execute("ROLLBACK TO SAVEPOINT before")
            if way == "plain":
                connection.rollback()
                return
        with suppress(psycopg.errors.SerializationFailure):
            connection.commit()

    workers = [threading.Thread(target=work, args=[random.Random(seed + i)]) for i in range(2)]
    for worker in workers:
        worker.start()
    dice = random.Random(seed)
    deadline = time.monotonic() + 30
    with psycopg.connect(court.url, autocommit=True) as reader:

        def older_than(term):
            return reader.execute("SELECT count(*) FROM effect WHERE term < %s", [term.number]).fetchone()[0]

        while len(terms) < 60 and time.monotonic() < deadline and not failures:
            old = court.term
            if dice.random() < 0.5:
                court.session.release(old.node, old.election, old.number, "said the test")
            else:
                court.session.declare(old.node, None, "said the test")
            eventually(lambda: court.try_grant() is AcquireOutcome.GRANTED, what="a grant", within=10)
            counted.append((court.term, older_than(court.term)))
            terms.append(court.term)
            time.sleep(dice.random() * 0.02)
        done.set()
        for worker in workers:
            worker.join(20)
        assert not failures
        late = {term.number: older_than(term) - before for term, before in counted if older_than(term) != before}
        assert not late, f"rows of older terms that were committed after the grant of these: {late}"
        kinds = reader.execute("SELECT count(DISTINCT term) FROM effect").fetchone()[0]
        assert kinds > 5, "hardly anything was committed: nothing was tested"


def limit(connection):
    return connection.execute("SHOW idle_in_transaction_session_timeout").fetchone()[0]
