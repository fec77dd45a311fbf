"""What only SQLite's ledger must do: stay out of the way of the one writer, and work inside a user's own
transaction."""

import sqlite3
import uuid
from contextlib import closing

import pytest

from stores.ledger.scene import Scene
from tenure.core.messages import FollowedUp, JobChange, Planned, RunQuery, RunRequest
from tenure.core.records import Change, RunState
from tenure.errors import StoreUnavailable
from tenure.stores import store_for
from tenure.stores.notices import JobsChanged
from tenure.stores.sqlite import changes as sqlite_changes
from tenure.stores.sqlite.rows import micros


@pytest.fixture
def scene(sqlite_url):
    store = store_for(sqlite_url)
    store.prepare()
    with closing(Scene(store)) as scene:
        yield scene


@pytest.fixture
def own(scene):
    """A connection of the application, with settings of its own."""
    with closing(sqlite3.connect(scene.store.path)) as connection:
        connection.row_factory = lambda cursor, row: {column[0]: row[i] for i, column in enumerate(cursor.description)}
        yield connection


@pytest.fixture
def somebody_writes(own):
    """From then on the application writes, and takes its time."""
    return lambda: own.execute("BEGIN IMMEDIATE")


class TestAnIdleNodeWaitsForNoWriter:
    """Each of these would wait for the write lock, and fail, if it asked for it."""

    def test_to_claim(self, scene, somebody_writes):
        worker = scene.worker()
        scene.add("later", -60)
        scene.add("full", 20)
        worker.take()
        scene.ask("full")
        scene.plan("full", 10)
        assert worker.claim().runs == ()
        assert RunState.WAITING in {run.state for run in scene.runs("full")}
        somebody_writes()
        claimed = worker.claim()
        assert (claimed.runs, claimed.alive, claimed.next_at) == ((), True, scene.start + 60)

    def test_to_look_for_the_dead_and_the_missed(self, scene, somebody_writes):
        worker = scene.worker()
        scene.add("job", 20)
        run = worker.take()
        somebody_writes()
        assert [held.id for held in worker.reconcile().held] == [run.id]
        assert worker.ledger.missed(scene.application, 10) == []

    def test_to_plan_what_is_planned(self, scene, somebody_writes):
        job = scene.add("job")
        scene.plan("job", 20)
        somebody_writes()
        assert scene.ledger.plan([Planned(job.id, job.generation, job.next_due, None, ())]) == 0
        assert scene.ledger.plan([]) == 0

    def test_to_sync_what_is_there(self, scene, somebody_writes):
        added = JobChange(scene.application, "job", Change.ADDED, spec=scene.spec(release=2), next_due=scene.start)
        scene.ledger.sync(scene.application, 2, [added])
        somebody_writes()
        (synced,) = scene.ledger.sync(scene.application, 2, [added])
        assert synced.row.generation == 1

    def test_to_prune_nothing_and_to_be_refused(self, scene, somebody_writes):
        assert scene.ledger.guard("mail", "1", None, "a")
        somebody_writes()
        assert not scene.ledger.guard("mail", "1", None, "b")
        assert scene.ledger.prune(scene.application, before=scene.start, keep=0, limit=10).removed == 0

    def test_but_what_is_due_needs_the_lock(self, sqlite_url, scene, somebody_writes):
        scene.add("job", 20)
        worker = scene.worker()
        worker.session.close()
        worker.session = store_for(sqlite_url).session("test", timeout=0.05)
        worker.ledger = worker.session.ledger
        somebody_writes()
        with pytest.raises(StoreUnavailable):
            worker.claim()


class TestInsideTheTransactionOfAUser:
    def test_a_job_and_a_run_come_with_the_users_work(self, scene, own):
        own.execute("CREATE TABLE customer (name TEXT)")
        own.execute("INSERT INTO customer VALUES ('ada')")
        now = micros(scene.ledger.now())
        change = JobChange(scene.application, "job", Change.ADDED, spec=scene.spec(), next_due=scene.start + 60)
        assert sqlite_changes.change(own, change, now).generation == 1
        run = sqlite_changes.request_run(own, RunRequest(scene.application, "job", str(uuid.uuid4()), None), now)
        assert scene.ledger.jobs(scene.application) == []
        own.commit()
        assert [job.next_due for job in scene.ledger.jobs(scene.application)] == [scene.start + 60]
        assert [one.id for one in scene.runs()] == [run.id]

    def test_and_go_with_it(self, scene, own):
        scene.add("job", 20)
        now = micros(scene.ledger.now())
        own.execute("BEGIN")
        (run,) = scene.runs()
        assert sqlite_changes.cancel(own, [run.id], "ada", "", now=now)[0][0].state is RunState.CANCELLED
        removed = sqlite_changes.change(own, JobChange(scene.application, "job", Change.REMOVED), now)
        assert removed.next_due is None
        own.rollback()
        assert scene.told() == ["pending"]
        assert scene.job().generation == 1


def test_who_sleeps_is_woken_when_something_can_begin(scene):
    worker, other = scene.worker("one"), scene.worker("other")
    other.session.listen(other.id)
    woken = JobsChanged(scene.application)
    scene.add("job", 20)
    assert other.session.notices() == [woken]
    run = worker.take()
    scene.plan("job", -60)
    worker.finish(run.id)
    assert other.session.notices() == [], "what nobody waits for wakes nobody"
    scene.ask()
    assert other.session.notices() == [woken]
    asked = worker.take()
    scene.ask()
    worker.claim()
    other.session.notices()
    worker.finish(asked.id)
    assert other.session.notices() == [woken], "the one that waited may begin"
    again = worker.take()
    worker.finish(again.id, RunState.PENDING, again_in=0.0)
    assert other.session.notices() == [woken]


def test_a_number_does_not_come_back(scene):
    scene.add("job", -60)
    (proposal,) = scene.runs()
    scene.pause()
    scene.resume()
    asked = scene.ask()
    assert asked.id > proposal.id


def test_nothing_to_settle_is_still_of_a_generation(scene):
    job = scene.add("job")
    nothing = {"make_up": (), "skip": (), "reason": "missed"}
    assert scene.ledger.settle(job.id, job.generation, **nothing)
    assert not scene.ledger.settle(job.id, job.generation + 1, **nothing)


def test_a_row_that_reaches_into_a_span_is_listed_with_it(scene):
    scene.add("job", 30, 20, 10)
    scene.plan("job", scene.new(1000, state=RunState.SKIPPED, reason="missed", count=98, until=scene.start - 25))

    def ago(*, oldest_first: bool, limit: int = 10) -> list[float]:
        query = RunQuery(scene.application, since=scene.start - 25, oldest_first=oldest_first, limit=limit)
        return [scene.start - run.scheduled_for for run in scene.ledger.runs(query)]

    assert ago(oldest_first=True) == [1000, 20, 10]
    assert ago(oldest_first=False) == [10, 20, 1000]
    assert ago(oldest_first=True, limit=1) == [1000]


@pytest.mark.parametrize(
    ("column", "value"),
    [("scheduled_for", "x"), ("scheduled_for", 1.5), ("until", "x"), ("finished_at", "x"), ("finished_at", 10**18)],
)
def test_a_run_that_cannot_be_read_holds_up_no_other_follower(scene, own, caplog, column, value):
    worker = scene.worker()
    for name in ("broken", "fine"):
        scene.add(name)
        scene.add(f"after {name}", trigger=None, function="g", after=name)
        scene.plan(name, 60)
        worker.finish(worker.claim(functions=("f",)).runs[0].id)
    own.execute(f"UPDATE tenure_run SET {column} = ? WHERE job = ?", (value, scene.job("broken").id))
    own.commit()
    assert scene.ledger.follow_up(scene.application, 1) == FollowedUp(1, begins=True)
    assert scene.told("after fine") == ["pending"]
    assert scene.ledger.follow_up(scene.application, 1) == FollowedUp(0)
    assert scene.ledger.owed(scene.application, 10) == []
    (said,) = [record.getMessage() for record in caplog.records if "nothing follows run" in record.getMessage()]
    assert repr(value) in said
