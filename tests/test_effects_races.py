"""What effects hold up and what they do not, attempts at the same time, and processes that are killed."""

import json
import random
import threading
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path

import psycopg
import pytest

import fencing
from attempts import Desk
from fencing import ISOLATION
from harness.processes import Worker
from harness.scratch import eventually
from tenure import effects
from tenure.errors import RunLost

WORK = "INSERT INTO work (what) VALUES ('work')"
LATER = "INSERT INTO work (what) VALUES ('later')"


@pytest.fixture
def desk(database):
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE work (what text)")
    with Desk(database) as desk:
        yield desk


@pytest.fixture
def works(desk):
    """What was committed."""

    def read():
        with psycopg.connect(desk.url) as connection:
            return [what for (what,) in connection.execute("SELECT what FROM work")]

    return read


def test_runs_that_complete_at_the_same_time_do_not_conflict(desk):
    with psycopg.connect(desk.url) as owner:
        owner.execute("ANALYZE")  # so that the planner knows how small the tables are
    with connected(desk, "SERIALIZABLE") as one, connected(desk, "SERIALIZABLE") as two:
        for connection, claim in ((one, desk.claim), (two, desk.give())):
            assert effects.once(connection, claim, "invoice")
            effects.complete(connection, claim)
        one.commit()
        two.commit()
    assert desk.state == "succeeded"


@pytest.mark.parametrize("committed", [True, False])
def test_the_next_attempt_waits_for_the_transaction_of_the_last(committed, desk, works):
    answers = []
    with connected(desk) as slow:
        assert effects.once(slow, desk.claim, "invoice")
        slow.execute(WORK)
        desk.bury()
        eventually(desk.call_the_roll, what="the run taken back beside the open transaction")
        claim = desk.take()

        def attempt():
            with connected(desk) as connection:
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
    assert works() == (["work"] if committed else ["later"])
    assert desk.run(claim).state == "succeeded"


def test_nobody_waits_for_an_open_completion(desk, works):
    with connected(desk) as connection:
        connection.execute(WORK)
        effects.complete(connection, desk.claim)
        desk.bury()
        assert desk.call_the_roll() == ()
        assert desk.try_take() is None
    assert desk.call_the_roll() == ()
    assert works() == ["work"]
    assert desk.state == "succeeded"


@pytest.mark.parametrize("ask", [effects.complete, lambda *given: effects.once(*given, "invoice")])
def test_a_frozen_transaction_is_ended_by_the_server(ask, database):
    with Desk(database, ttl=0.3) as desk, connected(desk) as frozen:
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
def test_a_lost_attempt_and_its_successor_have_one_effect_together(isolation, desk, works, run_together):
    """Both at the same time, each doing its work if `once` says so; the lost one swallows every refusal and commits."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice, runs = random.Random(seed), []

    def work(connection, claim):
        if effects.once(connection, claim, "invoice"):
            connection.execute("INSERT INTO work (what) VALUES (%s)", [str(claim.run)])

    def finish_late(connection, claim, way):
        with suppress(RunLost, psycopg.Error):
            if "late" in way:
                work(connection, claim)
            if "complete" in way:
                effects.complete(connection, claim)
        with suppress(psycopg.Error):
            connection.commit()

    def succeed(claim):
        with connected(desk, isolation) as connection:
            while True:
                try:
                    work(connection, claim)
                    effects.complete(connection, claim)
                    connection.commit()
                    return
                except psycopg.errors.SerializationFailure:
                    connection.rollback()

    for _ in range(20):
        old = desk.claim
        runs.append(str(old.run))
        way = dice.choice(["early", "late", "early complete", "late complete"])
        with connected(desk, isolation) as connection:
            connection.execute("SELECT 1 FROM work LIMIT 1")  # from here on a snapshot
            if "early" in way:
                work(connection, old)
            desk.lose()
            steps = [partial(finish_late, connection, old, way), partial(succeed, desk.claim)]
            run_together(2, lambda number, steps=steps: steps[number]())
        assert desk.state == "succeeded"
        desk.claim = desk.give()
    assert sorted(works()) == sorted(runs)


@pytest.mark.parametrize("at", ["worked", "completed", "committed"])
def test_a_process_that_is_killed_leaves_one_effect(at, desk, works):
    runs = []
    for _ in range(7):
        runs.append(str(desk.claim.run))
        killed(desk, at)
        if at == "committed":
            desk.bury()
            assert desk.call_the_roll() == ()
            assert desk.try_take() is None
        else:
            desk.lose()
            with connected(desk) as again:
                assert effects.once(again, desk.claim, "invoice")
                again.execute("INSERT INTO work (what) VALUES (%s)", [str(desk.claim.run)])
                effects.complete(again, desk.claim)
        assert desk.state == "succeeded"
        assert works() == runs
        desk.claim = desk.give()


def killed(desk, at):
    """The attempt in a process of its own, killed when it has come so far."""
    with Worker(Path(__file__).parent / "workers" / "attempt.py", desk.url, json.dumps(asdict(desk.claim))) as worker:
        for step in ("begins", "worked", "completed", "committed"):
            worker.wait_event(at=step)
            if step == at:
                return
            worker.say()


def connected(desk, isolation=None):
    connection = psycopg.connect(desk.url)
    connection.isolation_level = fencing._level(isolation)
    return connection


def limit(connection):
    return connection.execute("SHOW idle_in_transaction_session_timeout").fetchone()[0]


def waits_for_a_lock(desk):
    with psycopg.connect(desk.url) as admin:
        return admin.execute(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%once%'"
        ).fetchone()


def ended(desk, connection):
    with psycopg.connect(desk.url) as admin:
        pid = connection.info.backend_pid
        return admin.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone() is None
