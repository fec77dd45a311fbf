"""Rows that nobody should have written must not stop the others: a scheduler runs beside all of them at once."""

import logging
import threading
from collections import Counter

import psycopg
import pytest

from harness.scratch import eventually
from security.rows import ODD_NAMES, UNREADABLE, PostgresHand, SqliteHand
from tenure import Election, Scheduler
from tenure.stores import store_for

TIMES = {"ttl": 6, "heartbeat_every": 0.5, "attempt_timeout": 1}


@pytest.fixture(params=["sqlite", "postgres"])
def hand(request):
    """Somebody who writes into the tables of a ledger."""
    if request.param == "sqlite":
        made = SqliteHand(request.getfixturevalue("sqlite_url"))
    else:
        made = PostgresHand(request.getfixturevalue("database"))
    store_for(made.url).prepare()
    return made


class Healthy:
    """A scheduler with a job that ticks, and how often it did."""

    def __init__(self, url):
        self.ticks = 0
        self.scheduler = Scheduler(url, **TIMES)
        self.news = threading.Condition()

        @self.scheduler.every("250ms", overlap="allow")
        def healthy():
            with self.news:
                self.ticks += 1
                self.news.notify_all()

        @self.scheduler.job
        def tick():
            pass

    def goes_on(self, times=8, within=20.0):
        with self.news:
            target = self.ticks + times
            assert self.news.wait_for(lambda: self.ticks >= target, within), f"{self.ticks} of {target} ticks"
        asked = self.scheduler.run_now("tick")
        eventually(
            lambda: self.scheduler.find_run(asked.id).state == "succeeded",
            within=within,
            what="a run that was asked for",
        )


@pytest.fixture
def healthy(hand):
    made = Healthy(hand.url)
    yield made
    made.scheduler.stop(5)


def of(caplog, action):
    return [record for record in caplog.records if getattr(record, "action", "") == action]


def unharmed(caplog):
    for action in ("scheduler_step_failed", "store_failed"):
        assert not of(caplog, action), [record.getMessage()[:500] for record in of(caplog, action)][:3]


@pytest.mark.timeout(120)
def test_jobs_that_cannot_be_read_are_named_once_and_the_others_go_on(hand, healthy, caplog):
    caplog.set_level(logging.INFO, "tenure")
    healthy.scheduler.start()
    healthy.goes_on(2)
    hand.all_jobs()
    healthy.goes_on()
    failed = lambda: {run.job for run in healthy.scheduler.runs(state="failed", limit=1000)}  # noqa: E731
    eventually(lambda: UNREADABLE.keys() <= failed(), what="an end of what cannot be read")
    for run in healthy.scheduler.runs(state="failed", limit=1000):
        assert run.reason.startswith("cannot be read: ") or run.job == "kwargs of strangers", run
    odd = {run.job for run in healthy.scheduler.runs(state="succeeded", limit=1000)}
    assert set(ODD_NAMES) <= odd, "a name is only a name"
    healthy.goes_on()
    names = {job.name for job in healthy.scheduler.jobs()}
    assert names <= {audited.name for audited in healthy.scheduler.audit()}, "each is audited, whatever the others are"
    assert all(healthy.scheduler.why(name) for name in names)
    told = Counter(record.args[0] for record in of(caplog, "job_unreadable"))
    assert told.keys() >= UNREADABLE.keys()
    assert set(told.values()) == {1}, told
    unharmed(caplog)


@pytest.mark.timeout(120)
def test_a_scheduler_starts_on_a_ledger_full_of_them(hand, healthy, caplog):
    healthy.scheduler.start()
    healthy.scheduler.stop(5)
    hand.all_jobs()
    hand.runs()
    again = Healthy(hand.url)
    again.scheduler.start()
    try:
        again.goes_on()
        assert {job.name for job in again.scheduler.jobs()} >= UNREADABLE.keys(), "people must see what to remove"
        for name in UNREADABLE:
            again.scheduler.remove(name)
        assert not UNREADABLE.keys() & {job.name for job in again.scheduler.jobs()}
        again.goes_on()
    finally:
        again.scheduler.stop(5)
    unharmed(caplog)


@pytest.mark.timeout(120)
def test_many_jobs_that_cannot_be_read_do_not_take_the_places_of_the_others(hand, healthy, caplog):
    healthy.scheduler.start()
    hand.many(350)
    healthy.goes_on(4)
    healthy.goes_on()
    unharmed(caplog)


@pytest.mark.timeout(120)
def test_runs_that_make_no_sense(hand, healthy, caplog):
    healthy.scheduler.start()
    healthy.goes_on(2)
    hand.runs()
    healthy.goes_on()
    healthy.goes_on()
    assert healthy.scheduler.runs(limit=1000)
    unharmed(caplog)


@pytest.mark.timeout(120)
def test_nodes_and_elections_that_make_no_sense(hand, healthy, caplog, tmp_path):
    caplog.set_level(logging.INFO, "tenure")
    outside = tmp_path / "outside.lock"
    outside.write_text("mine")
    healthy.scheduler.start()
    with Election(hand.url, "before", **TIMES) as before:
        assert before.wait_until_leading(10)
        hand.nodes()
        hand.election("exhausted")
        with (
            Election(hand.url, "exhausted", **TIMES) as exhausted,
            Election(hand.url, "exhausted of words", **TIMES),
            Election(hand.url, "after", **TIMES) as after,
        ):
            assert after.wait_until_leading(15)
            assert before.is_leader
            assert not exhausted.wait_until_leading(1)
            healthy.goes_on()
            assert after.is_leader
            assert before.is_leader
    assert outside.read_text() == "mine"
    unharmed(caplog)


def test_a_job_of_a_function_that_nobody_registered_runs_nowhere(hand, healthy, caplog, tmp_path):
    healthy.scheduler.start()
    for function in (
        "os.system", "subprocess.run", "builtins:eval", "../evil", "tests.bodies:fails", f"{__name__}:Healthy",
        f"{__name__}:of", f"{__name__}:threading.Thread", "__main__:system", f"{__name__}:<lambda>",
    ):  # fmt: skip
        hand.job(f"job of {function}", function=function, kwargs='{"command": "touch evil"}')
    healthy.goes_on()
    strange = [run for run in healthy.scheduler.runs(limit=1000) if run.job.startswith("job of ")]
    assert {run.state for run in strange} <= {"pending", "skipped"}, "none of them began"
    assert not list(tmp_path.glob("**/evil"))
    unharmed(caplog)


def test_anybody_may_wake_nodes_and_nothing_comes_of_it(database, caplog):
    healthy = Healthy(database)
    healthy.scheduler.start()
    try:
        with psycopg.connect(database, autocommit=True) as connection:
            for said in (
                "",
                "!",
                "!default",
                "!default; DROP",
                "?",
                "?nobody",
                "tenure planner of default",
                "x" * 7000,
                "\n\x1b",
            ):
                connection.execute("SELECT pg_notify('tenure', %s)", [said])
        healthy.goes_on()
        unharmed(caplog)
    finally:
        healthy.scheduler.stop(5)


@pytest.mark.parametrize(
    "nonsense",
    [
        "UPDATE tenure.job SET next_due = 'infinity'",
        "UPDATE tenure.job SET next_due = '-infinity'",
        "UPDATE tenure.job SET next_due = '4713-01-01 00:00Z BC'",
        "UPDATE tenure.job SET paused_until = 'infinity'",
        "UPDATE tenure.job SET since = 'infinity'",
        "UPDATE tenure.job SET rules = '[]'",
        "UPDATE tenure.job SET on_time = 'NaN'",
        "UPDATE tenure.job SET on_time = 'Infinity'",
        "UPDATE tenure.job SET on_time = -1",
        "UPDATE tenure.job SET generation = 9223372036854775807",
        "UPDATE tenure.job SET overlap = 'perhaps'",
        "UPDATE tenure.job SET state = 'perhaps'",
        "INSERT INTO tenure.node (id, ttl, label) VALUES (gen_random_uuid(), 'NaN', '')",
        "INSERT INTO tenure.node (id, ttl, label) VALUES (gen_random_uuid(), 'Infinity', '')",
        "INSERT INTO tenure.node (id, ttl, label) VALUES (gen_random_uuid(), 0, '')",
        "INSERT INTO tenure.election (name, term) VALUES ('x', 9223372036854775807)",
        "INSERT INTO tenure.election (name, term) VALUES ('x', -1)",
        "UPDATE tenure.epoch SET number = 9223372036854775807",
    ],
)
def test_postgresql_refuses_nonsense_where_that_is_cheap(database, nonsense):
    scheduler = Scheduler(database, capacity=0)

    @scheduler.every("1h")
    def job():
        pass

    scheduler.start()
    with psycopg.connect(database) as connection, pytest.raises(psycopg.errors.CheckViolation):
        connection.execute(nonsense)
