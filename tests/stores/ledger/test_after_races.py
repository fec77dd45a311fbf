"""Followers and everybody else at the same time, with real locks: no ending waits for a follower, and none is forgotten."""

import json
import threading
from contextlib import closing

import psycopg
import pytest

from stores.ledger.scene import Scene
from tenure.core.messages import FollowedUp, JobChange, NewRun, Planned
from tenure.core.records import Change, RunState
from tenure.stores import store_for
from tenure.stores.postgres.rows import written_change, written_request
from tenure.transactions import effects
from tenure.util.clock import boottime

PATIENCE = 2.0
"""Seconds that an ending never takes, unless it waits for somebody."""


@pytest.fixture
def server_scene(ledger_database):
    opened = Scene(store_for(ledger_database))
    yield opened
    opened.close()


def _follow(scene):
    return scene.ledger.follow_up(scene.application, 1000)


def test_an_open_pause_of_the_follower_delays_no_ending_and_loses_nothing(server_scene, ledger_database):
    """A hundred endings while a user's own transaction has paused the follower and stays open."""
    scene = server_scene
    worker = scene.worker()
    scene.add("load", overlap="allow", max_running=None)
    scene.add("report", trigger=None, function="g", after="load", overlap="allow", max_running=None)
    scene.add("mail", trigger=None, function="h", after="load", overlap="allow", max_running=None)
    scene.plan("load", *range(100, 200))
    runs = worker.claim(limit=100).runs
    assert len(runs) == 100
    with psycopg.connect(ledger_database) as users:
        paused = JobChange(scene.application, "report", Change.PAUSED)
        users.execute("SELECT tenure.change_job(%s)", [json.dumps(written_change(paused))])
        took = []
        for number, run in enumerate(runs):
            began = boottime()
            if number % 10:
                assert worker.finish(run.id).accepted
            else:
                with psycopg.connect(ledger_database) as application:
                    application.execute("SELECT")
                    claim = effects.RunClaim(run.id, worker.tokens[run.id], run.key, "tenure", "load")
                    effects.complete(application, claim)
            _follow(scene)
            took.append(boottime() - began)
        assert max(took) < PATIENCE, sorted(took)[-3:]
        assert {run.state for run in scene.runs("load")} == {RunState.SUCCEEDED}
        assert len(scene.runs("mail")) == 100, "others are not held up"
        assert (scene.runs("report"), len(scene.ledger.owed(scene.application, 1000))) == ([], 100)
        users.commit()
    assert _follow(scene).paid == 100
    assert set(scene.told("report")) == {"skipped(paused)"}
    assert [run.key for run in scene.runs("report")] == [run.key for run in scene.runs("load")]
    assert scene.ledger.owed(scene.application, 1000) == []


def test_completing_a_run_locks_its_run_and_nothing_else(server_scene, ledger_database):
    scene = server_scene
    worker = scene.worker()
    scene.add("load")
    scene.add("report", trigger=None, after="load")
    scene.plan("load", 60)
    run = worker.take()
    with psycopg.connect(ledger_database) as application:
        application.execute("SELECT")
        effects.complete(application, effects.RunClaim(run.id, worker.tokens[run.id], run.key, "tenure", "load"))
        with psycopg.connect(ledger_database) as other:
            other.execute("SELECT FROM tenure.job j WHERE j.id = ANY (%s) FOR UPDATE NOWAIT", [[run.job]])
            other.execute("SELECT FROM tenure.job j WHERE j.name = 'report' FOR UPDATE NOWAIT")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                other.execute("SELECT FROM tenure.run r WHERE r.id = %s FOR UPDATE NOWAIT", [run.id])
            other.rollback()
        assert _follow(scene) == FollowedUp(0), "not before it is committed"
        application.commit()
    assert _follow(scene) == FollowedUp(1, begins=True)


def test_a_run_of_the_parent_that_another_transaction_has_locked_stays_owed(server_scene, ledger_database):
    scene = server_scene
    worker = scene.worker()
    scene.add("load", overlap="allow", max_running=None)
    scene.add("report", trigger=None, function="g", after="load")
    scene.plan("load", 60, 50)
    first, second = worker.claim().runs
    for run in (first, second):
        worker.finish(run.id)
    with psycopg.connect(ledger_database) as other:
        other.execute("SELECT FROM tenure.run r WHERE r.id = %s FOR UPDATE", [first.id])
        assert _follow(scene) == FollowedUp(1, begins=True)
        assert [run.key for run in scene.runs("report")] == [second.key]
    assert _follow(scene) == FollowedUp(1, begins=True)


BLIND = """
ALTER FUNCTION tenure.past_of(int, bigint, timestamptz) RENAME TO past_as_it_is;
CREATE FUNCTION tenure.past_of(app int, of_job bigint, before timestamptz) RETURNS timestamptz LANGUAGE plpgsql AS $$
BEGIN
    IF coalesce(current_setting('blind.job' || of_job, true), '') = '' THEN
        PERFORM set_config('blind.job' || of_job, 'was', true);
        RETURN before;
    END IF;
    RETURN tenure.past_as_it_is(app, of_job, before);
END $$
"""
"""The first look of a transaction sees nothing that is owed or open, as if that had come after it."""


def test_retention_looks_again_at_what_may_still_follow(postgres):
    """A retry or a backfill of the parent has come between its two looks."""
    url = postgres.create_database()
    store = store_for(url)
    store.prepare()
    with closing(Scene(store)) as scene:
        worker = scene.worker()
        scene.add("load", overlap="allow", max_running=None)
        scene.add("report", trigger=None, function="g", after="load")
        scene.plan("load", 600)
        run = worker.take()
        worker.finish(run.id, RunState.FAILED)
        _follow(scene)
        scene.ledger.retry([run.id], "ops")
        postgres.execute(BLIND, dbname=url.rsplit("/", 1)[1])
        old = {"before": scene.ledger.now() + 60, "keep": 0, "limit": 100}
        assert scene.ledger.prune(scene.application, **old).removed == 0
        worker.finish(worker.take().id)
        assert _follow(scene) == FollowedUp(1, begins=True)
    postgres.drop_database(url)


@pytest.fixture
def two_parents(server_scene):
    """Runs of `load` and `other` are over, and owe `report` and `mail`."""
    scene = server_scene
    worker = scene.worker()
    for parent, follower in (("load", "report"), ("other", "mail")):
        scene.add(parent, function=parent, overlap="allow", max_running=None)
        scene.add(follower, trigger=None, function=follower, after=parent, overlap="allow", max_running=None)
    return scene, worker


def _end(scene, worker, *functions, state=RunState.SUCCEEDED):
    for run in worker.claim(limit=100, functions=functions).runs:
        worker.finish(run.id, state)


def test_an_open_request_of_the_same_key_delays_nothing_but_its_own_run(two_parents, ledger_database):
    """A user's own transaction has requested a run of the follower, and stays open."""
    scene, worker = two_parents
    for key in ("a", "b", "c", "d", "e"):
        scene.ask("load", key)
    scene.plan("other", 60)
    _end(scene, worker, "load", "other")
    with psycopg.connect(ledger_database) as users:
        asked = [written_request(scene.request("report", "c"))]
        users.execute("SELECT * FROM tenure.request_runs(%s)", [json.dumps(asked)])
        began = boottime()
        assert _follow(scene) == FollowedUp(5, begins=True)
        assert boottime() - began < PATIENCE
        assert sorted(run.key for run in scene.runs("report")) == ["a", "b", "d", "e"]
        assert scene.told("mail") == ["pending"]
        assert _follow(scene) == FollowedUp(0)
        users.rollback()
    assert _follow(scene) == FollowedUp(1, begins=True)
    assert sorted(run.key for run in scene.runs("report")) == ["a", "b", "c", "d", "e"]


def test_an_open_retry_of_the_followers_run_delays_nothing_but_its_own(two_parents, ledger_database):
    scene, worker = two_parents
    scene.plan("load", 60, 50)
    _end(scene, worker, "load", state=RunState.FAILED)
    _follow(scene)
    scene.ledger.retry([run.id for run in scene.runs("load")], "ops")
    scene.plan("other", 60)
    _end(scene, worker, "load", "other")
    retried, skipped = scene.runs("report")
    with psycopg.connect(ledger_database) as users:
        users.execute("SELECT * FROM tenure.retry_runs(%s, 'me', NULL, NULL)", [[retried.id]])
        began = boottime()
        assert _follow(scene) == FollowedUp(2, begins=True)
        assert boottime() - began < PATIENCE
        assert [run.id for run in scene.runs("report", [RunState.PENDING])] == [skipped.id]
        assert scene.told("mail") == ["pending"]
        users.commit()
    assert _follow(scene) == FollowedUp(1)
    assert {run.by for run in scene.runs("report", [RunState.PENDING])} == {"me", "ops"}


def test_runs_that_stay_owed_hold_up_no_other_parent(two_parents, ledger_database):
    scene, worker = two_parents
    scene.plan("load", *range(60, 64))
    scene.plan("other", 60)
    _end(scene, worker, "load", "other")
    with psycopg.connect(ledger_database) as users:
        paused = JobChange(scene.application, "report", Change.PAUSED)
        users.execute("SELECT tenure.change_job(%s)", [json.dumps(written_change(paused))])
        first = scene.ledger.follow_up(scene.application, 2)
        assert first == FollowedUp(0, up_to=scene.job("load").id)
        assert scene.ledger.follow_up(scene.application, 2, beyond=first.up_to) == FollowedUp(1, begins=True)


def test_a_change_that_begins_to_follow_and_a_bulk_pause_do_not_deadlock(server_scene, ledger_database, run_together):
    """The follower has the lower id, and a pause of both locks it first."""
    scene = server_scene
    scene.add("f", trigger=None, function="g")
    changes = [written_change(JobChange(scene.application, name, Change.PAUSED)) for name in ("f", "p")]
    spec = scene.spec("f", trigger=None, function="g", after="p")
    one = written_change(JobChange(scene.application, "f", Change.UPDATED, spec=spec))
    scene.add("p")
    half_way, failed = threading.Event(), []

    def work(which):
        try:
            with psycopg.connect(ledger_database) as users:
                if which == 0:  # what `change_jobs` does, held up in the middle
                    users.execute("SELECT tenure.change_job(%s)", [json.dumps(changes[0])])
                    half_way.set()
                    _wait_until_blocked(ledger_database)
                    users.execute("SELECT tenure.change_job(%s)", [json.dumps(changes[1])])
                else:
                    half_way.wait(PATIENCE)
                    users.execute("SELECT (tenure.change_job(%s)).id /* begins to follow */", [json.dumps(one)])
        except psycopg.Error as error:
            failed.append(error)

    run_together(2, work)
    assert failed == []
    assert scene.job("f").spec.rules.after == "p"


def _wait_until_blocked(url):
    """Until the other session waits for a lock."""
    asks = "SELECT FROM pg_stat_activity WHERE query LIKE '%/* begins to follow */' AND wait_event_type = 'Lock'"
    with psycopg.connect(url, autocommit=True) as watch:
        while watch.execute(asks).rowcount == 0:
            """It is about to."""


def test_many_nodes_pay_at_once_and_each_follower_has_one_run(real_scene, run_together):
    scene = real_scene
    workers = [scene.worker(f"worker {number}") for number in range(4)]
    scene.add("load", overlap="allow", max_running=None)
    scene.add("report", trigger=None, function="g", after="load")
    scene.plan("load", *(scene.new(100 + n, state=RunState.SKIPPED, reason="missed") for n in range(200)))
    answers: list[int] = []

    def pay(one):
        while (done := workers[one].ledger.follow_up(scene.application, 20)).paid:
            answers.append(done.paid)

    run_together(4, pay)
    pay(0)
    assert sum(answers) == 200
    assert len(scene.runs("report")) == 200


def test_what_is_planned_while_the_first_follower_is_added_is_followed(real_scene, run_together):
    """Every due time after the follower's addition owes, whoever plans and claims meanwhile."""
    scene = real_scene
    worker, planner = scene.worker("runs"), scene.worker("plans")
    broken = []
    for round_ in range(15):
        load, report = f"load {round_}", f"report {round_}"
        scene.add(load, overlap="allow", max_running=None)
        started, stop = threading.Event(), threading.Event()

        def work(one, load=load, report=report, started=started, stop=stop):
            if one == 0:
                started.wait(PATIENCE)
                scene.add(report, trigger=None, function="g", after=load)
                stop.set()
                return
            for _ in range(200):
                job = planner.ledger.jobs(scene.application, load)[0]
                _plan_one(planner, job)
                started.set()
                for run in worker.claim(limit=10, functions=("f",)).runs:
                    worker.finish(run.id)
                if stop.is_set():
                    break

        run_together(2, work)
        _plan_one(planner, planner.ledger.jobs(scene.application, load)[0])
        for run in worker.claim(limit=100, functions=("f",)).runs:
            worker.finish(run.id)
        while scene.ledger.follow_up(scene.application, 100).paid:
            """There may be more."""
        (added,) = scene.ledger.changes(scene.application, report)
        wanted = {run.key for run in scene.runs(load) if run.scheduled_for > added.at and run.state.final}
        there = {run.key for run in scene.runs(report)}
        if not wanted or wanted - there:
            broken.append((round_, len(wanted), len(there)))
    assert broken == []


def _plan_one(planner, job):
    """Plan a due time for this very moment."""
    now = round(planner.ledger.now(), 6)
    assert job.next_due is not None
    planner.ledger.plan([Planned(job.id, job.generation, job.next_due, job.next_due + 1, (NewRun(now, now, None),))])


def test_starts_that_bring_followers_in_any_order_do_not_deadlock(real_scene, run_together):
    """Two releases of the code start again and again, and each makes other jobs follow."""
    scene = real_scene
    sessions = [scene.worker(f"starts {number}") for number in range(2)]
    for name in "abcdef":
        scene.add(name)
    failed: list[BaseException] = []

    def start(one):
        for round_ in range(10):
            specs = [scene.spec(name, release=0, retries=round_ * 2 + one) for name in "abcdef"]
            specs += [
                scene.spec(f"{number} {round_}", trigger=None, after=name)
                for number, name in enumerate("fedcba" if one else "abcdef")
            ]
            changes = [
                JobChange(scene.application, spec.name, Change.ADDED, spec=spec, next_due=None) for spec in specs
            ]
            try:
                sessions[one].ledger.sync(scene.application, 0, changes)
            except Exception as error:
                failed.append(error)

    run_together(2, start)
    assert failed == []
    assert len(scene.ledger.followers(scene.application)) == 60
