"""What effects hold up and what they do not, and attempts at the same time."""

import random
import threading
from contextlib import suppress
from functools import partial

import psycopg
import pytest

import work
from attempts import Desk
from callers import ISOLATION
from harness.scratch import eventually
from tenure.errors import AttemptLost
from tenure.transactions import effects
from work import LATER, WORK, limit


@pytest.fixture
def desk(database):
    work.lay(database)
    with Desk(database) as desk:
        yield desk


def test_runs_that_complete_at_the_same_time_do_not_conflict(desk):
    with psycopg.connect(desk.url) as owner:
        owner.execute("ANALYZE")  # so that the planner knows how small the tables are
    with work.connected(desk.url, "SERIALIZABLE") as one, work.connected(desk.url, "SERIALIZABLE") as two:
        for connection, claim in ((one, desk.claim), (two, desk.give())):
            assert effects.once(connection, claim, "invoice")
            effects.complete(connection, claim)
        one.commit()
        two.commit()
    assert desk.state == "succeeded"


@pytest.mark.parametrize("committed", [True, False])
def test_the_next_attempt_waits_for_the_transaction_of_the_last(committed, desk):
    answers = []
    with work.connected(desk.url) as slow:
        assert effects.once(slow, desk.claim, "invoice")
        slow.execute(WORK)
        desk.bury()
        eventually(desk.call_the_roll, what="the run taken back beside the open transaction")
        claim = desk.take()

        def attempt():
            with work.connected(desk.url) as connection:
                answers.append(effects.once(connection, claim, "invoice"))
                if answers[0]:
                    connection.execute(LATER)
                effects.complete(connection, claim)

        thread = threading.Thread(target=attempt)
        thread.start()
        eventually(lambda: waits_for_a_lock(desk), what="the second attempt waiting")
        if not committed:
            slow.rollback()
    thread.join(10)
    assert answers == [not committed]
    assert desk.works() == (["work"] if committed else ["later"])
    assert desk.run(claim).state == "succeeded"


def test_nobody_waits_for_an_open_completion(desk):
    with work.connected(desk.url) as connection:
        connection.execute(WORK)
        effects.complete(connection, desk.claim)
        desk.bury()
        assert desk.call_the_roll() == ()
        assert desk.try_take() is None
    assert desk.call_the_roll() == ()
    assert desk.works() == ["work"]
    assert desk.state == "succeeded"


@pytest.mark.parametrize("ask", [effects.complete, lambda *given: effects.once(*given, "invoice")])
def test_a_frozen_transaction_is_ended_by_the_server(ask, database):
    with Desk(database, ttl=0.3) as desk, work.connected(desk.url) as frozen:
        frozen.execute("SELECT 1")
        ask(frozen, desk.claim)
        assert limit(frozen) == "300ms"
        desk.bury()
        eventually(desk.call_the_roll, what="the run taken back", within=5)
        desk.take()
        eventually(lambda: ended(desk, frozen), what="the end of the session", within=5)
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            frozen.commit()


@pytest.mark.parametrize("isolation", ISOLATION)
def test_a_lost_attempt_and_its_successor_have_one_effect_together(isolation, desk, run_together):
    """Both at the same time, each doing its work if `once` says so; the lost one swallows every refusal and commits."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice, runs = random.Random(seed), []

    def invoice(connection, claim):
        if effects.once(connection, claim, "invoice"):
            connection.execute("INSERT INTO work (what) VALUES (%s)", [str(claim.run)])

    def finish_late(connection, claim, way):
        with suppress(AttemptLost, psycopg.Error):
            if "late" in way:
                invoice(connection, claim)
            if "complete" in way:
                effects.complete(connection, claim)
        with suppress(psycopg.Error):
            connection.commit()

    def succeed(claim):
        with work.connected(desk.url, isolation) as connection:
            while True:
                try:
                    invoice(connection, claim)
                    effects.complete(connection, claim)
                    connection.commit()
                    return
                except psycopg.errors.SerializationFailure:
                    connection.rollback()

    for _ in range(20):
        old = desk.claim
        runs.append(str(old.run))
        way = dice.choice(["early", "late", "early complete", "late complete"])
        with work.connected(desk.url, isolation) as connection:
            connection.execute("SELECT 1 FROM work LIMIT 1")  # from here on a snapshot
            if "early" in way:
                invoice(connection, old)
            desk.lose()
            steps = [partial(finish_late, connection, old, way), partial(succeed, desk.claim)]
            run_together(2, lambda number, steps=steps: steps[number]())
        assert desk.state == "succeeded"
        desk.claim = desk.give()
    assert sorted(desk.works()) == sorted(runs)


def waits_for_a_lock(desk):
    with psycopg.connect(desk.url) as admin:
        return admin.execute(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%once%'"
        ).fetchone()


def ended(desk, connection):
    with psycopg.connect(desk.url) as admin:
        pid = connection.info.backend_pid
        return admin.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone() is None
