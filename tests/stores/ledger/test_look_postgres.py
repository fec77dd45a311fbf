"""Where claims begin to look on PostgreSQL: nothing is overlooked, whatever commits late; and a look writes nothing.

`claim_runs` in functions/claims.sql explains what a session remembers. NOTIFY plays no part here: no session listens.
"""

import functools
import itertools
import json
import random
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest

from stores.ledger.scene import Scene
from tenure.core.messages import RunRequest
from tenure.core.records import RunState
from tenure.stores import store_for

CLAIM = "SELECT ids FROM tenure.claim_runs(%s, %s, %s, 10, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
WAITS = """
SELECT 1 FROM pg_stat_activity
 WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%claim_runs%'
"""
ASK = "SELECT FROM tenure.request_runs(%s)"


@pytest.fixture
def scene(ledger_database) -> Iterator[Scene]:
    opened = Scene(store_for(ledger_database))
    opened.add("later", -7200, function="f")  # the first that lies ahead
    opened.add("job", function="f", overlap="allow", max_running=None)
    yield opened
    opened.close()


@pytest.fixture
def beside(ledger_database) -> Iterator[psycopg.Connection]:
    """A connection whose transactions are ours to end."""
    with psycopg.connect(ledger_database) as connection:
        yield connection


def _asked(scene: Scene, key: str) -> str:
    return json.dumps([{"application": scene.application, "name": "job", "key": key, "backfill": False, "by": ""}])


def _look(worker) -> None:
    for _ in range(3):
        assert worker.claim().runs == ()


@pytest.mark.parametrize("already", [True, False], ids=["begun before", "begun after"])
def test_a_run_whose_transaction_commits_after_many_looks_is_found(scene, worker, beside, already):
    if already:
        _look(worker)
    beside.execute(ASK, [_asked(scene, "late")])
    _look(worker)
    for number in range(5):  # later transactions have come and gone
        scene.ask(key=f"quick {number}")
        worker.finish(worker.take().id)
    _look(worker)
    beside.commit()
    assert worker.take().key == "late"


def test_a_run_asked_for_inside_a_savepoint_is_found(scene, worker, beside):
    _look(worker)
    with beside.transaction():
        beside.execute("SELECT pg_current_xact_id()")
        with beside.transaction():
            beside.execute(ASK, [_asked(scene, "inner")])
        _look(worker)
    assert worker.take().key == "inner"


def test_what_a_claim_that_is_rolled_back_had_locked_is_found(scene, worker, beside):
    _look(worker)
    other = scene.worker()
    asked = scene.ask()
    assert beside.execute(CLAIM, [other.id, scene.application, str(uuid.uuid4())]).fetchone() == ([asked.id],)
    _look(worker)
    beside.rollback()
    assert worker.take().id == asked.id


def test_more_newcomers_than_are_counted_are_all_found(scene, worker):
    _look(worker)
    count = 2500
    for first in range(0, count, 500):
        scene.ledger.request_runs(
            [RunRequest(scene.application, "job", f"{first + number}", None) for number in range(500)]
        )
    found = 0
    while runs := worker.claim(limit=500).runs:
        found += len(runs)
    assert found == count


def test_nothing_is_overlooked_while_transactions_commit_in_any_order(scene, ledger_database, run_together):
    """Two write in transactions that last, one gives back and retries, two claim; at the end their sessions find the
    rest."""
    workers = [scene.worker() for _ in range(3)]
    writers, each = 2, 40
    asked: list[str] = []
    over = threading.Event()
    done = threading.Barrier(writers, action=over.set)

    def write(one: int) -> None:
        chance = random.Random(one)
        with psycopg.connect(ledger_database) as first, psycopg.connect(ledger_database) as second:
            for number in range(each):
                keys = [f"{one} {number} first", f"{one} {number} second"]
                for connection, key in zip((first, second), keys, strict=True):
                    connection.execute(ASK, [_asked(scene, key)])
                over.wait(chance.choice([0.0, 0.001, 0.01]))
                ends = [(first, keys[0]), (second, keys[1])]
                chance.shuffle(ends)
                for connection, key in ends:
                    if chance.random() < 0.2:
                        connection.rollback()
                    else:
                        connection.commit()
                        asked.append(key)
        done.wait(30)

    def work(one: int) -> None:
        chance, worker = random.Random(one), workers[one]
        while not over.is_set():
            for run in worker.claim(limit=3).runs:
                if run.attempt < 4 and chance.random() < 0.5:
                    again = chance.choice([None, 0.0])
                    end = functools.partial(worker.finish, run.id, RunState.PENDING, again_in=again)
                else:
                    end = functools.partial(worker.finish, run.id)
                while end().busy:  # a claim that came too late for the run has its row for a moment
                    pass

    def act(one: int) -> None:
        try:
            write(one) if one < writers else work(one - writers)
        except BaseException:
            over.set()
            raise

    run_together(writers + len(workers), act)
    turns = itertools.cycle(workers)
    while scene.runs(states=[RunState.PENDING]):
        worker = next(turns)
        (run,) = worker.claim(limit=1).runs  # whatever this one remembers
        worker.finish(run.id)
    assert len(asked) > writers * each
    assert sorted(run.key for run in scene.runs() if run.state is RunState.SUCCEEDED) == sorted(asked)
    assert {run.state for run in scene.runs()} == {RunState.SUCCEEDED}


def test_another_server_is_looked_at_from_the_beginning(scene, worker, beside):
    """As after a failover behind a pooler: the connection stays, and what was seen is not true there."""
    _look(worker)
    scene.ask(key="old")
    with beside.transaction():  # as if it had been there all along
        beside.execute("UPDATE tenure.run SET entered = '3' WHERE key = 'old' AND application = "
                       "(SELECT id FROM tenure.application WHERE name = %s)", [scene.application])  # fmt: skip
    remembered = worker.ledger._look.remembered
    assert worker.claim().runs == (), "nobody told it"
    remembered["server"] -= 1
    assert worker.take().key == "old"
    low, _, _ = remembered["seen"].split(":")
    worker.finish(next(iter(worker.tokens)), RunState.PENDING)
    with beside.transaction():
        beside.execute("UPDATE tenure.run SET entered = '3' WHERE key = 'old' AND application = "
                       "(SELECT id FROM tenure.application WHERE name = %s)", [scene.application])  # fmt: skip
    remembered["seen"] = f"{low}:{int(low) + 1_000_000}:"
    assert worker.take().key == "old", "a server whose count went back"


def test_what_waits_in_a_lane_that_a_look_has_never_seen_is_found(scene, worker):
    """Others have claimed or held back all that was PENDING in it before this session could see any of it."""
    _look(worker)
    scene.add("new", 20, 10, function="g", overlap="wait")
    other = scene.worker()
    running = other.take()
    _look(worker)
    other.finish(running.id)
    assert worker.take().name == "new"


def test_what_expires_is_missed_in_time_though_not_every_look_asks_for_it(scene, worker):
    now = scene.ledger.now()

    def missed(after: float) -> bool:
        return worker.claim(0, as_of=now + after).missed

    scene.plan("later", replace(scene.new(60), expires_at=now + 100))
    assert [missed(after) for after in (0, 0.5, 99.5, 99.9)] == [False] * 4
    scene.plan("later", replace(scene.new(50), expires_at=now + 100.5))
    assert [missed(after) for after in (99.9, 100.1, 100.2)] == [False, True, True]
    for run in scene.runs("later", [RunState.PENDING]):
        if run.scheduled_for < now:
            scene.ledger.cancel(run.id, "", "")
    assert [missed(after) for after in (100.6, 100.7)] == [False, False]
    scene.plan("later", replace(scene.new(40), expires_at=now + 50))  # before what was looked at already
    assert missed(100.7)


@pytest.mark.parametrize("looks", [0, 1, 3])
def test_a_lane_whose_first_run_comes_after_looks_is_found(scene, worker, looks):
    assert worker.claim().runs == ()
    scene.add("new", function="g")  # a lane without a run
    for _ in range(looks):
        assert worker.claim().runs == ()
    requested = scene.ask("new")
    assert [run.id for run in worker.claim().runs] == [requested.id]


def test_only_a_run_in_a_new_lane_makes_a_look_begin_anew(scene, worker, beside):
    ours = "application = (SELECT id FROM tenure.application WHERE name = %s)"
    _look(worker)
    scene.ask(key="old")
    with beside.transaction():  # as if it had been there all along
        beside.execute(f"UPDATE tenure.run SET entered = '3' WHERE key = 'old' AND {ours}", [scene.application])
    assert worker.claim().runs == (), "only a look from the beginning finds it"
    scene.add("new", 60, function="new")
    assert {run.key for run in worker.claim().runs} > {"old"}, "a new lane is one"


class TestWhatOthersHaveLocked:
    """A claim says that more is due, so that a node with free slots does not rest beside it."""

    @pytest.mark.parametrize("lanes", [1, 3])
    def test_runs_that_another_claim_has_are_more(self, scene, worker, beside, lanes):
        for number in range(lanes):
            scene.add(f"due {number}", 60, function=f"due {number}")
        other = scene.worker()
        ((ids,),) = beside.execute(CLAIM, [other.id, scene.application, str(uuid.uuid4())]).fetchall()
        assert len(ids) == lanes
        scene.add("ours", 30, function="ours")
        claimed = worker.claim()
        assert ([run.name for run in claimed.runs], claimed.more) == (["ours"], True)
        claimed = worker.claim()
        assert (claimed.runs, claimed.more) == ((), True)
        beside.commit()
        claimed = worker.claim()
        assert (claimed.runs, claimed.more) == ((), False)

    def test_runs_whose_job_is_locked_are_more(self, scene, worker, beside):
        job = scene.add("due", 60)
        beside.execute("SELECT FROM tenure.job WHERE id = %s FOR NO KEY UPDATE", [job.id])
        claimed = worker.claim()
        assert (claimed.runs, claimed.more) == ((), True)
        beside.rollback()
        claimed = worker.claim()
        assert ([run.name for run in claimed.runs], claimed.more) == (["due"], False)

    def test_what_is_missed_and_what_is_due_later_is_no_more(self, scene, worker):
        scene.add("missed")
        scene.plan("missed", scene.new(60, expired_ago=30))
        scene.add("due", 60)
        claimed = worker.claim()
        assert ([run.name for run in claimed.runs], claimed.more, claimed.missed) == (["due"], False, True)


class TestAnEmptyClaim:
    @pytest.mark.parametrize("why", ["nothing", "later", "no place"])
    def test_writes_nothing(self, scene, worker, beside, why):
        if why == "no place":
            scene.add("one", 30, 20, function="f", overlap="wait")
            worker.take()
            _look(worker)
        application = "nobody's" if why == "nothing" else scene.application
        for _ in range(2):
            beside.execute(CLAIM, [worker.id, application, str(uuid.uuid4())])
            assert beside.execute("SELECT pg_current_xact_id_if_assigned()").fetchone() == (None,)

    def test_is_not_held_up_by_a_declaration_of_death(self, worker, beside):
        beside.execute("SELECT tenure.declare_dead(%s, NULL, 'proved')", [worker.id])
        assert worker.claim().alive
        beside.rollback()


class TestTheDeathOfAClaimer:
    """Either it is declared before the claim, which then gets nothing; or the claim is committed before, and its runs
    are taken back."""

    def test_a_declaration_under_way_keeps_a_claim_from_everything(self, scene, worker, beside, ledger_database):
        asked = scene.ask()
        assert beside.execute("SELECT tenure.declare_dead(%s, NULL, 'proved')", [worker.id]).fetchone() == (True,)
        answers: list = []
        claimer = threading.Thread(target=lambda: answers.append(worker.claim()))
        claimer.start()
        with psycopg.connect(ledger_database, autocommit=True) as onlooker:
            while not onlooker.execute(WAITS).fetchone():  # it has looked, and waits for its own row
                assert claimer.is_alive()
        beside.commit()
        claimer.join(10)
        ((claimed),) = answers
        assert (claimed.runs, claimed.alive) == ((), False)
        assert scene.run(asked.id).state is RunState.PENDING

    def test_a_claim_under_way_keeps_a_declaration_out(self, scene, worker, beside):
        asked = scene.ask()
        assert beside.execute(CLAIM, [worker.id, scene.application, str(uuid.uuid4())]).fetchone() == ([asked.id],)
        assert not scene.session.declare(worker.id, None, "proved")
        beside.commit()
        assert scene.session.declare(worker.id, None, "proved")
        assert [lost.id for lost in scene.worker().reconcile().lost] == [asked.id]

    def test_they_race(self, scene, run_together):
        for _ in range(20):
            scene.ask()
            victim, judge = scene.worker(), scene.worker()
            answers: list = []

            def act(one, victim=victim, judge=judge, answers=answers):
                answers.append(victim.claim() if one else judge.session.declare(victim.id, None, "proved"))

            run_together(2, act)
            (claimed,) = [answer for answer in answers if not isinstance(answer, bool)]
            (declared,) = [answer for answer in answers if isinstance(answer, bool)]
            if declared:
                lost = {one.id for one in judge.reconcile().lost}
                assert lost == {run.id for run in claimed.runs}, "no run stays with the dead"
            for run in judge.claim().runs:
                judge.finish(run.id)
            for run in claimed.runs if not declared else ():
                victim.finish(run.id)
        assert {run.state for run in scene.runs()} == {RunState.SUCCEEDED}
