"""What must hold whoever calls what at the same time, with real locks and a connection for every thread."""

import threading

import psycopg
import pytest

from stores.ledger.scene import Scene
from tenure.core.keys import due_key
from tenure.core.messages import Planned, RunQuery, RunRequest
from tenure.core.records import OPEN, RunId, RunRow, RunState
from tenure.stores import store_for
from tenure.transactions import effects

ROUNDS = 30
CLAIMERS = 6


@pytest.fixture
def claimers(real_scene):
    return [real_scene.worker(f"worker {number}") for number in range(CLAIMERS)]


def _drain(scene: Scene, worker) -> None:
    """Bring every open run to its end."""
    while scene.runs(states=list(OPEN)):
        for run in worker.claim(limit=100).runs:
            worker.finish(run.id)


@pytest.mark.parametrize("places", [1, 2])
def test_places_are_never_given_twice(real_scene, claimers, run_together, places):
    real_scene.add("job", overlap="allow", max_running=places)
    broken = []
    for number in range(ROUNDS):
        real_scene.plan("job", *(1000 * (number + 1) + n for n in range(CLAIMERS)))
        taken: list[list] = [[] for _ in claimers]

        def claim(one, taken=taken):
            taken[one] = [(claimers[one], run.id) for run in claimers[one].claim(limit=2).runs]

        run_together(CLAIMERS, claim)
        begun = [pair for pairs in taken for pair in pairs]
        if len(begun) > places or len(real_scene.runs(states=[RunState.RUNNING])) > places:
            broken.append((number, len(begun)))
        for worker, run in begun:
            worker.finish(run)
        _drain(real_scene, claimers[0])
    assert broken == [], f"of {ROUNDS} rounds"
    assert {run.state for run in real_scene.runs()} == {RunState.SUCCEEDED}


def test_places_hold_while_runs_end_fail_and_wait(real_scene, claimers, run_together):
    """No rounds: everybody claims, fails once, and finishes, as fast as they can."""
    places, total = 2, 60
    real_scene.add("job", *range(100, 100 + total), overlap="allow", max_running=places)
    mutex, active, most, done = threading.Lock(), set(), [], threading.Event()

    def work(one):
        worker = claimers[one]
        while not done.is_set():
            for run in worker.claim(limit=1).runs:
                with mutex:
                    active.add(run.id)
                    most.append(len(active))
                fails = run.attempt == 1 and run.id % 3 == 0
                if fails:  # it keeps its place
                    worker.finish(run.id, RunState.PENDING, again_in=0)
                    continue
                with mutex:
                    active.discard(run.id)
                worker.finish(run.id)
            if len(worker.ledger.runs(_succeeded(real_scene))) == total:
                done.set()

    run_together(CLAIMERS, work)
    assert max(most) <= places
    assert {run.attempt for run in real_scene.runs()} == {1, 2}


def _succeeded(scene):
    return RunQuery(scene.application, states=(RunState.SUCCEEDED,), limit=1000)


def test_two_planners_write_each_due_time_once(real_scene, run_together):
    planners = [real_scene.session, real_scene.store.session("test", 5.0)]
    jobs = [real_scene.add(f"job {number}", next_due=real_scene.start) for number in range(4)]
    for number in range(ROUNDS):
        due = real_scene.start + number
        runs = tuple(real_scene.new(-number - n / 5) for n in range(5))
        batch = [Planned(job.id, 1, due, due + 1, runs) for job in jobs]
        inserted = [0, 0]

        def plan(one, batch=batch, inserted=inserted):
            inserted[one] = planners[one].ledger.plan(batch)

        run_together(2, plan)
        assert sum(inserted) == 20
    for job in jobs:
        runs = real_scene.runs(job.spec.name)
        assert len(runs) == len({run.key for run in runs}) == 5 * ROUNDS
        assert real_scene.job(job.spec.name).next_due == real_scene.start + ROUNDS
    planners[1].close()


@pytest.mark.parametrize("places", [None, 3])
def test_nothing_is_claimed_after_pause_returned(real_scene, claimers, run_together, places):
    real_scene.add("job", overlap="allow", max_running=places)
    for _ in range(10):
        for _ in range(12):
            real_scene.ask()
        before = []

        def act(one, before=before):
            if one == 0:
                assert real_scene.pause() is not None
                before.append({run.id for run in real_scene.runs(states=[RunState.RUNNING])})
            else:
                for _ in range(4):
                    claimers[one].claim(limit=1)

        run_together(CLAIMERS, act)
        after = {run.id for run in real_scene.runs(states=[RunState.RUNNING])}
        assert after == before[0]
        assert real_scene.resume() is not None
        for worker in claimers:
            for held in worker.reconcile().held:
                worker.finish(held.id)
        _drain(real_scene, claimers[0])


def test_a_declaration_against_an_open_claim_leaves_no_orphan(real_scene, run_together):
    survivor = real_scene.worker("the survivor")
    real_scene.add("job", *range(1, 11), overlap="allow", max_running=None)
    for _ in range(10):
        doomed = real_scene.worker("the doomed one")

        def act(one, doomed=doomed):
            if one == 0:
                doomed.claim(limit=3)
            else:
                while not survivor.session.declare(doomed.id, None, "its host lock is free"):
                    pass

        run_together(2, act)
        survivor.reconcile()
        assert real_scene.runs(states=[RunState.RUNNING]) == []
        assert not doomed.claim().alive


def test_an_end_against_a_reconciliation_has_one_winner(real_scene, run_together):
    survivor = real_scene.worker("the survivor")
    real_scene.add("job")
    for number in range(10):
        real_scene.plan("job", 1000 - number)
        doomed = real_scene.worker("the doomed one")
        run = doomed.take()
        assert survivor.session.declare(doomed.id, None, "its host lock is free")
        told = {}

        def act(one, told=told, doomed=doomed, run=run):
            if one == 0:
                told["ended"] = doomed.finish(run.id).accepted
            else:
                told["lost"] = [lost.id for lost in survivor.reconcile().lost]

        run_together(2, act)
        assert told["lost"] == ([] if told["ended"] else [run.id])
        assert real_scene.run(run.id).state is (RunState.SUCCEEDED if told["ended"] else RunState.PENDING)
        _drain(real_scene, survivor)


def test_a_token_ends_its_run_once(real_scene, claimers, run_together):
    real_scene.add("job")
    for number in range(10):
        real_scene.plan("job", 100 + number)
        run = claimers[0].take()
        ending = claimers[0].ending(run.id)
        accepted = []
        run_together(
            CLAIMERS,
            lambda one, ending=ending, accepted=accepted: accepted.append(
                claimers[one].ledger.finish([ending])[0].accepted
            ),
        )
        assert sorted(accepted) == [False] * (CLAIMERS - 1) + [True]


def test_a_key_is_asked_for_once_by_many(real_scene, claimers, run_together):
    real_scene.add("job")
    for number in range(10):
        asked = RunRequest(real_scene.application, "job", f"key {number}", None)
        answers = []
        run_together(
            CLAIMERS,
            lambda one, asked=asked, answers=answers: answers.append(claimers[one].ledger.request_runs([asked])[0].id),
        )
        assert len(set(answers)) == 1
    assert len(real_scene.runs()) == 10


def test_a_guard_lets_one_of_many_pass(real_scene, claimers, run_together):
    for number in range(10):
        passed = []
        run_together(
            CLAIMERS,
            lambda one, key=str(number), passed=passed: passed.append(
                claimers[one].ledger.guard(real_scene.application, key, 60.0, f"by {one}")
            ),
        )
        assert sum(passed) == 1


def test_missed_runs_are_settled_once(real_scene, claimers, run_together):
    job = real_scene.add("job")
    for number in range(10):
        ago = 500 - number
        real_scene.plan("job", real_scene.new(ago, expired_ago=ago - 1))
        (run,) = [run for run in real_scene.runs() if run.key == due_key(real_scene.start - ago)]
        settled = []
        run_together(
            CLAIMERS,
            lambda one, run=run, settled=settled: settled.append(
                claimers[one].ledger.settle(job.id, 1, make_up=[], skip=[run.id], reason="missed")
            ),
        )
        assert sum(settled) == 1


def test_asking_for_a_run_that_is_there_waits_for_nobody(ledger_database):
    scene = Scene(store_for(ledger_database))
    worker = scene.worker()
    scene.add("job")
    scene.ask(key="the one")
    run = worker.take()
    with psycopg.connect(ledger_database) as body, body.transaction():
        effects.complete(body, effects.RunClaim(run.id, worker.tokens[run.id], run.key, "tenure", "job"))
        assert scene.ask(key="the one").state is RunState.RUNNING
    scene.close()


ASLEEP_OR_WAITING = """
SELECT 1 FROM pg_stat_activity
 WHERE datname = current_database() AND query LIKE '%cancel_runs%' AND (wait_event_type = 'Lock' OR wait_event = 'PgSleep')
"""


def _cancel_beside_a_lock(scene: Scene, url: str, run: RunId) -> RunRow:
    """Cancel while another transaction has the run; it lets go once the cancel has come upon it."""
    answers: list[RunRow] = []
    with psycopg.connect(url) as other, psycopg.connect(url, autocommit=True) as onlooker:
        other.execute("SELECT FROM tenure.run WHERE id = %s FOR NO KEY UPDATE", [run])
        cancels = threading.Thread(target=lambda: answers.append(scene.ledger.cancel(run, "ops", "wrong data")))
        cancels.start()
        while cancels.is_alive() and not onlooker.execute(ASLEEP_OR_WAITING).fetchone():
            pass
        other.rollback()
        cancels.join(10)
    (answer,) = answers
    return answer


@pytest.mark.parametrize("state", [RunState.PENDING, RunState.WAITING])
def test_a_cancel_is_not_lost_while_a_claim_looks_at_the_run(ledger_database, state):
    scene = Scene(store_for(ledger_database))
    worker = scene.worker()
    scene.add("job", overlap="wait", max_running=1)
    if state is RunState.WAITING:
        scene.ask()
        worker.take()
    run = scene.ask()
    assert worker.claim(0 if state is RunState.PENDING else 10).runs == ()
    assert scene.run(run.id).state is state
    assert _cancel_beside_a_lock(scene, ledger_database, run.id).state is RunState.CANCELLED
    scene.close()


def test_a_cancel_is_not_lost_while_a_reconciliation_marks_the_run(ledger_database):
    scene = Scene(store_for(ledger_database))
    worker = scene.worker()
    scene.add("job", 60)
    run = worker.take()
    for _ in range(5):  # it gives up after a while, perhaps before this thread has its turn
        assert _cancel_beside_a_lock(scene, ledger_database, run.id).state is RunState.RUNNING
        (held,) = worker.reconcile().held
        if held.asked_to_end:
            break
    assert "wrong data" in held.asked_to_end
    scene.close()
