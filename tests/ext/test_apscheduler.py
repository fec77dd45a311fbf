"""APScheduler's methods and words on tenure's engine."""

import asyncio
import io
import os
import queue
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import apscheduler.events
import apscheduler.job
import apscheduler.triggers.cron
import apscheduler.triggers.interval
import pytest
from apscheduler.jobstores.base import BaseJobStore
from apscheduler.jobstores.base import JobLookupError as TheirJobLookupError
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore as TheirSQLAlchemyJobStore

from harness.scratch import eventually
from tenure.errors import ConfigurationError
from tenure.ext import apscheduler as ours
from tenure.ext.apscheduler import (
    EVENT_JOB_ADDED,
    EVENT_JOB_ERROR,
    EVENT_JOB_EXECUTED,
    EVENT_JOB_MAX_INSTANCES,
    EVENT_JOB_MODIFIED,
    EVENT_JOB_REMOVED,
    EVENT_JOB_SUBMITTED,
    AsyncIOScheduler,
    BackgroundScheduler,
    BlockingScheduler,
    ConflictingIdError,
    CronTrigger,
    JobLookupError,
    MemoryJobStore,
    ProcessPoolExecutor,
    SchedulerAlreadyRunningError,
    SchedulerNotRunningError,
    SQLAlchemyJobStore,
    ThreadPoolExecutor,
    trigger_translation,
)
from tenure.jobs import operations
from tenure.triggers import every, from_json

APPS = Path(__file__).parent / "apps"
FAR = datetime(2099, 1, 1, tzinfo=UTC)
called: queue.SimpleQueue[object] = queue.SimpleQueue()


def tell(*args: object, **kwargs: object) -> str:
    called.put((args, kwargs))
    return "told"


def fail() -> None:
    raise LookupError("nothing there")


@pytest.fixture(autouse=True)
def nothing_called(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_URL", sqlite_url)
    while not called.empty():
        called.get()


@pytest.fixture
def sched() -> Iterator[BackgroundScheduler]:
    scheduler = BackgroundScheduler(timezone="UTC")
    yield scheduler
    if scheduler.running:
        scheduler.shutdown(wait=False)


class MongoDBJobStore(BaseJobStore):
    """Theirs wants a driver; the name is what counts."""

    lookup_job = get_due_jobs = get_next_run_time = get_all_jobs = add_job = update_job = remove_job = (
        remove_all_jobs
    ) = None


class Heard:
    """What a listener heard, to be waited for."""

    def __init__(self, scheduler, mask: int) -> None:
        self.events: queue.SimpleQueue = queue.SimpleQueue()
        scheduler.add_listener(self.events.put, mask)

    def next(self):
        return self.events.get(timeout=20)


def test_a_job_runs_with_arguments_that_only_this_process_has(sched):
    secret = object()
    executed = Heard(sched, EVENT_JOB_SUBMITTED | EVENT_JOB_EXECUTED)
    sched.add_job(tell, "interval", seconds=1, args=[secret], kwargs={"who": sched}, id="beat")
    sched.start()
    assert called.get(timeout=20) == ((secret,), {"who": sched})
    submitted, done = executed.next(), executed.next()
    assert (submitted.code, submitted.job_id) == (EVENT_JOB_SUBMITTED, "beat")
    assert (done.code, done.job_id, done.retval, done.exception) == (EVENT_JOB_EXECUTED, "beat", "told", None)
    assert done.scheduled_run_time == submitted.scheduled_run_times[0]
    assert done.scheduled_run_time.microsecond == 0


def test_arguments_that_the_ledger_can_keep_come_back_to_any_worker(sched):
    sched.start()
    when = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)
    args, kwargs = [(7, when), {"a", "b"}], {"amount": Decimal("12.50"), "day": when.date(), "blob": b"\xff"}
    sched.add_job(tell, "interval", seconds=1, args=args, kwargs=kwargs, id="remind")
    assert called.get(timeout=20) == (tuple(args), kwargs)
    kept = sched.tenure.find_job("remind").kwargs
    assert (kept["args"], kept["kwargs"]) == (args, kwargs), "they are in the ledger"
    assert kept["args"][0][1].fold == 1


@pytest.mark.parametrize(
    "kwargs", ['{"args": {"$tenure": ["century", 21]}}', '{"args": 5, "kwargs": 5}', "[]", "no JSON"]
)
def test_a_row_whose_arguments_cannot_be_read_hides_no_other_job(sched, kwargs):
    sched.start()
    sched.add_job(tell, "interval", days=1, id="fine")
    with sched.tenure._service.ledger() as ledger:
        (row,) = ledger.jobs(sched.tenure.application, "fine")
        ledger.change(operations.added(replace(row.spec, name="broken", kwargs=kwargs), ledger.now()))
    assert {(job.id, job.args) for job in sched.get_jobs()} == {("fine", ()), ("broken", ())}


def test_what_a_job_raises_is_heard(sched):
    failed = Heard(sched, EVENT_JOB_ERROR)
    sched.add_job(fail, id="bad")
    sched.start()
    event = failed.next()
    assert event.job_id == "bad"
    assert isinstance(event.exception, LookupError)
    assert "nothing there" in event.traceback


def test_due_times_that_max_instances_holds_back_are_told_while_the_job_runs(sched):
    begun, go_on = threading.Event(), threading.Event()
    told, submitted = Heard(sched, EVENT_JOB_MAX_INSTANCES), Heard(sched, EVENT_JOB_SUBMITTED)

    def hold() -> None:
        begun.set()
        go_on.wait(30)

    sched.add_job(hold, "interval", seconds=1, id="slow")
    sched.start()
    assert begun.wait(20)
    events = [told.next(), told.next()]
    go_on.set()
    (running,) = submitted.next().scheduled_run_times
    assert {event.job_id for event in events} == {"slow"}
    assert [event.scheduled_run_times for event in events] == [
        (running + timedelta(seconds=1),),
        (running + timedelta(seconds=2),),
    ]


def test_the_numbers_of_events_are_theirs():
    names = [name for name in vars(apscheduler.events) if name.startswith("EVENT_")]
    assert {name: getattr(ours, name) for name in names} == {name: getattr(apscheduler.events, name) for name in names}


def test_states(sched):
    assert (sched.running, sched.state) == (False, ours.STATE_STOPPED)
    with pytest.raises(SchedulerNotRunningError):
        sched.shutdown()
    with pytest.raises(SchedulerNotRunningError):
        sched.pause()
    sched.start(paused=True)
    assert (sched.running, sched.state) == (True, ours.STATE_PAUSED)
    with pytest.raises(SchedulerAlreadyRunningError):
        sched.start()
    with pytest.raises(SchedulerAlreadyRunningError):
        sched.configure(timezone="Asia/Seoul")
    sched.resume()
    assert sched.state == ours.STATE_RUNNING
    sched.shutdown()
    assert sched.state == ours.STATE_STOPPED


def test_a_paused_scheduler_runs_nothing_and_a_resumed_one_does(sched):
    sched.start(paused=True)
    sched.add_job(tell, args=["first"])
    sched.resume()
    assert called.get(timeout=20) == (("first",), {})
    sched.pause()
    sched.add_job(tell, args=["second"])
    assert [run.state for run in sched.tenure.runs()] == ["pending", "succeeded"]
    sched.resume()
    assert called.get(timeout=20) == (("second",), {})


def test_a_job_of_another_start_is_joined_not_refused(sched, sqlite_url):
    sched.add_job(tell, "cron", hour=3, id="a")
    sched.start()
    sched.shutdown()
    again = BackgroundScheduler(timezone="UTC")
    again.start()
    again.add_job(tell, "cron", hour=4, id="a")
    assert [(job.id, job.next_run_time.hour) for job in again.get_jobs()] == [("a", 4)]
    again.shutdown()


def test_jobs_are_looked_at_changed_and_removed(sched):
    events = Heard(sched, EVENT_JOB_ADDED | EVENT_JOB_MODIFIED | EVENT_JOB_REMOVED)
    sched.start()
    job = sched.add_job(tell, "cron", hour=3, id="a", name="the first", args=[1])
    sched.add_job(tell, CronTrigger(hour=2, timezone="UTC"), id="b")
    assert {job.id for job in sched.get_jobs()} == {"a", "b"}
    assert sched.get_job("a").next_run_time.hour == 3
    assert sched.get_job("nobody") is None
    assert job.reschedule("cron", hour=5).next_run_time.hour == 5
    job.modify(max_instances=3, misfire_grace_time=30, args=[2])
    rules = sched.tenure.find_job("a").rules
    assert (rules.max_running, rules.grace, rules.missed) == (3, 30.0, "skip")
    assert sched.tenure.find_job("a").kwargs == {"args": [2], "kwargs": {}, "job": {"name": "the first"}}
    job.modify(misfire_grace_time=None, coalesce=False)
    rules = sched.tenure.find_job("a").rules
    assert (rules.grace, rules.missed) == (None, "all")
    assert job.pause().next_run_time is None
    assert sched.tenure.find_job("a").state == "paused"
    assert job.resume().next_run_time.hour == 5
    out = io.StringIO()
    sched.print_jobs(out=out)
    assert "the first (trigger: cron[hour='5'], next run at: " in out.getvalue()
    job.remove()
    assert sched.get_job("a") is None
    with pytest.raises(JobLookupError):
        sched.remove_job("a")
    with pytest.raises(TheirJobLookupError):  # where it is installed, `except` lines go on working
        sched.pause_job("a")
    sched.remove_all_jobs()
    assert sched.get_jobs() == []
    codes = []
    while not events.events.empty():
        codes.append(events.next().code)
    assert codes[:2] == [EVENT_JOB_ADDED, EVENT_JOB_ADDED]
    assert codes.count(EVENT_JOB_REMOVED) == 1
    with pytest.raises(ConfigurationError, match="colour"):
        sched.modify_job("a", colour="red")


def test_what_the_program_says_counts_again_at_its_start_and_what_people_changed_holds(caplog):
    def start() -> BackgroundScheduler:
        scheduler = BackgroundScheduler(timezone="UTC")
        for name in ("modified", "updated", "removed"):
            scheduler.add_job(tell, "cron", hour=3, id=name)
        scheduler.start()
        return scheduler

    first = start()
    first.reschedule_job("modified", trigger="cron", hour=5)
    first.tenure.update("updated", trigger=every("9h"), by="ada")
    first.remove_job("removed")
    first.shutdown()
    caplog.clear()
    second = start()
    try:
        assert second.get_job("modified").next_run_time.hour == 3
        assert second.tenure.find_job("modified").changed_at is None
        assert second.tenure.find_job("updated").changed_by == "ada"
        assert "'removed' is defined here, but was removed at" in caplog.text
    finally:
        second.shutdown()


def test_pending_jobs_can_be_changed_and_removed(sched):
    job = sched.add_job(tell, "cron", hour=3, id="a")
    sched.add_job(tell, "cron", hour=3, id="b")
    sched.reschedule_job("a", trigger="cron", hour=7)
    sched.pause_job("a")
    sched.remove_job("b")
    assert sched.get_jobs() == [job]
    sched.start()
    assert sched.get_job("a").next_run_time is None
    assert sched.resume_job("a").next_run_time.hour == 7


def test_what_add_job_returns_says_when_it_runs_next(sched):
    before = sched.add_job(tell, "cron", hour=3, id="before")
    assert str(before).endswith("pending)")
    sched.start(paused=True)
    after = sched.add_job(tell, "interval", hours=1, id="after")
    date = sched.add_job(tell, "date", run_date=FAR, id="date")
    paused = sched.add_job(tell, "interval", hours=1, id="paused", next_run_time=None)
    for job in (before, after, date):
        assert job.next_run_time == sched.get_job(job.id).next_run_time > datetime.now(UTC)
        assert f"next run at: {job.next_run_time:%Y-%m-%d %H:%M:%S}" in str(job)
    assert date.next_run_time == FAR
    assert (paused.next_run_time, str(paused)) == (None, "tell (trigger: interval[1:00:00], paused)")
    asked = datetime.now(UTC) + timedelta(hours=2)
    first = sched.add_job(tell, "cron", hour=3, id="first", next_run_time=asked)
    assert (first.next_run_time, str(first.trigger)) == (asked, "cron[hour='3']")
    assert sched.get_job("first").next_run_time == asked
    later = paused.modify(next_run_time=asked)
    assert (later.next_run_time, type(later.trigger)) == (asked, ours.IntervalTrigger)
    assert sched.add_job(tell).next_run_time <= datetime.now(UTC)


def test_each_request_to_run_a_job_now_is_a_run(sched):
    job = sched.add_job(tell, "interval", weeks=1000, id="rare")
    sched.start()
    for _ in range(3):
        job.modify(next_run_time=datetime.now(UTC))
        called.get(timeout=20)
    job.pause()
    resumed = sched.modify_job("rare", next_run_time=datetime.now(UTC))
    called.get(timeout=20)
    assert resumed.next_run_time is not None


def test_events_are_told_in_the_order_of_theirs(sched):
    told = Heard(sched, ours.EVENT_ALL)
    sched.add_job(tell, "date", id="soon")
    sched.modify_job("soon", name="sooner")
    sched.add_job(tell, "cron", hour=3, id="never")
    sched.remove_job("never")
    sched.start()
    heard = [told.next() for _ in range(9)]
    assert [event.code for event in heard] == [
        EVENT_JOB_MODIFIED,
        EVENT_JOB_REMOVED,
        ours.EVENT_EXECUTOR_ADDED,
        ours.EVENT_JOBSTORE_ADDED,
        EVENT_JOB_ADDED,
        ours.EVENT_SCHEDULER_STARTED,
        EVENT_JOB_SUBMITTED,
        EVENT_JOB_EXECUTED,
        EVENT_JOB_REMOVED,
    ]
    assert {event.job_id for event in heard[4:] if hasattr(event, "job_id")} == {"soon"}
    sched.shutdown()
    assert told.next().code == ours.EVENT_SCHEDULER_SHUTDOWN


def test_a_date_that_has_run_is_over_and_its_id_is_free(sched):
    removed = Heard(sched, EVENT_JOB_REMOVED)
    sched.start()
    for n in range(2):
        sched.add_job(tell, "date", run_date=datetime.now(UTC) + timedelta(seconds=0.5), id="tea", args=[n])
        assert called.get(timeout=20) == ((n,), {})
        assert removed.next().job_id == "tea"
        assert sched.get_jobs() == []
    sched.add_job(tell, "interval", hours=1, id="daily")
    with pytest.raises(ConflictingIdError):
        sched.add_job(tell, "interval", hours=1, id="daily")


def test_an_alias_is_given_once(sched):
    sched.add_jobstore("memory", "mine")
    sched.add_executor("threadpool", "mine")
    with pytest.raises(ValueError, match='already has a job store by the alias of "mine"'):
        sched.add_jobstore("memory", "mine")
    with pytest.raises(ValueError, match='already has an executor by the alias of "mine"'):
        sched.add_executor("threadpool", "mine")


def test_jobs_and_triggers_are_theirs_for_programs_that_ask(sched):
    job = sched.add_job(tell, "cron", hour=3, id="nightly", args=[1])
    sched.start(paused=True)
    assert isinstance(job, apscheduler.job.Job)
    assert isinstance(job.trigger, apscheduler.triggers.cron.CronTrigger)
    assert not isinstance(job.trigger, apscheduler.triggers.interval.IntervalTrigger)
    state = job.__getstate__()
    theirs = apscheduler.job.Job(None, "nightly", func=tell, args=[1], kwargs={}, trigger=job.trigger)
    assert state.keys() == {"version", "func", *apscheduler.job.Job.__slots__} - {
        "__weakref__", "_jobstore_alias", "_scheduler", "func_ref"
    }  # fmt: skip
    assert (state["func"], state["args"], state["trigger"]) == (theirs.func_ref, (1,), job.trigger)


def test_job_stores_are_told_apart(sched):
    sched.add_jobstore("memory", "mine")
    heard = Heard(sched, EVENT_JOB_ADDED | EVENT_JOB_MODIFIED | EVENT_JOB_REMOVED | EVENT_JOB_EXECUTED)
    sched.add_job(tell, "interval", hours=1, id="early", jobstore="mine")
    assert [job.id for job in sched.get_jobs("mine")] == ["early"]
    assert sched.get_jobs("default") == []
    sched.start()
    sched.add_job(tell, "interval", hours=1, id="kept")
    sched.add_job(tell, "interval", hours=1, id="late", jobstore="mine")
    reader = BackgroundScheduler()  # another process sees the same
    reader.state = ours.STATE_PAUSED
    for scheduler in (sched, reader):
        assert {job.id for job in scheduler.get_jobs("mine")} == {"early", "late"}
        assert [job.id for job in scheduler.get_jobs("default")] == ["kept"]
        assert scheduler.get_jobs("other") == []
        assert scheduler.get_job("late", "mine") is not None
        assert scheduler.get_job("late", "default") is None
    with pytest.raises(JobLookupError):
        sched.remove_job("late", "default")
    with pytest.raises(JobLookupError):
        sched.modify_job("late", "default", name="other")
    sched.modify_job("late", "mine", next_run_time=datetime.now(UTC))
    assert [(heard.next().jobstore) for _ in range(5)] == ["mine", "default", "mine", "mine", "mine"]
    out = io.StringIO()
    sched.print_jobs(out=out)
    titles = [line for line in out.getvalue().splitlines() if not line.startswith(" ")]
    assert titles == ["Jobstore default:", "Jobstore mine:"]
    sched.remove_all_jobs("mine")
    assert [job.id for job in sched.get_jobs()] == ["kept"]


def test_removing_all_jobs_takes_away_what_is_due_but_has_not_begun(sched):
    sched.start(paused=True)
    for kept in (False, True):
        sched.add_job(tell, id=f"at once {kept}", args=[kept])
        sched.add_job(lambda kept=kept: tell(kept), id=f"a lambda {kept}")
        sched.add_job(
            tell, "date", run_date=datetime.now(UTC) + timedelta(seconds=0.1), id=f"a date {kept}", args=[kept]
        )
        eventually(lambda: sched.get_jobs() == [], what="the date has come")
        if not kept:
            sched.remove_all_jobs()
    sched.resume()
    assert [called.get(timeout=20) for _ in range(3)] == [((True,), {})] * 3
    sched.shutdown()
    assert called.empty()


@pytest.mark.parametrize(
    ("trigger", "words", "shown"),
    [
        ("cron", {"hour": 3}, "cron[hour='3']"),
        ("cron", {"day_of_week": "mon-fri", "hour": "9-17", "minute": "*/5"}, None),
        ("cron", {"day": "last", "hour": 3}, "cron[day='last', hour='3']"),
        ("cron", {"month": "1,7", "day": 1}, "cron[month='1,7']"),
        ("cron", {"second": "*/10"}, None),
        ("interval", {"minutes": 5}, None),
        ("interval", {"minutes": 7, "start_date": "2026-01-01 00:03:00"}, None),
        ("date", {"run_date": FAR}, None),
        ("calendarinterval", {"months": 2, "hour": 9, "start_date": "2026-01-31"}, None),
        ("or", {"triggers": [CronTrigger(hour=3, timezone="UTC"), CronTrigger(hour=5, timezone="UTC")]}, None),
    ],
    ids=str,
)
def test_a_job_that_another_process_has_added_shows_its_name_and_trigger(sched, trigger, words, shown):
    sched.start(paused=True)
    mine = sched.add_job(tell, trigger, id="tea", name="Tea for Bob", **words)
    reader = BackgroundScheduler(timezone="UTC")
    reader.state = ours.STATE_PAUSED
    theirs = reader.get_job("tea")
    assert theirs.name == "Tea for Bob"
    assert type(theirs.trigger) is type(mine.trigger)
    assert str(theirs.trigger) == (shown or str(mine.trigger))
    assert theirs.next_run_time == mine.next_run_time
    mine.modify(name="Tea for Ann")
    assert reader.get_job("tea").name == "Tea for Ann"


def test_what_their_words_cannot_say_is_shown_as_a_sentence(sched):
    sched.start(paused=True)
    sched.add_job(tell, "cron", day="2nd mon", hour=3, id="rare")
    reader = BackgroundScheduler(timezone="UTC")
    reader.state = ours.STATE_PAUSED
    job = reader.get_job("rare")
    assert (type(job.trigger), job.name) == (trigger_translation.LedgerTrigger, "tell")
    assert job.next_run_time == sched.get_job("rare").next_run_time
    sched.add_job(tell, "cron", week=20, end_date=FAR, id="list", timezone="UTC")
    assert str(reader.get_job("list").trigger).startswith("list[due times until 20")


def test_a_job_that_is_over_when_it_is_added_is_listed_and_never_runs(sched):
    sched.add_job(tell, "interval", hours=1, end_date=datetime(2020, 1, 1), id="over")
    sched.start()
    job = sched.get_job("over")
    assert (job.next_run_time, str(job)) == (None, "tell (trigger: interval[1:00:00], paused)")


def test_next_run_time(sched):
    sched.start()
    sched.add_job(tell, "cron", hour=3, id="paused", next_run_time=None)
    assert sched.get_job("paused").next_run_time is None
    sched.add_job(tell, "interval", days=40, id="now", args=["now"], next_run_time=datetime.now())
    assert called.get(timeout=20) == (("now",), {})
    first = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    job = sched.add_job(tell, "interval", days=40, id="later", next_run_time=first)
    assert sched.get_job("later").next_run_time == first
    rows, _ = sched._opened().rows("later")
    assert from_json(rows[0].spec.trigger).next_after(first) == first + timedelta(days=40)
    job.modify(next_run_time=datetime.now(UTC))
    assert called.get(timeout=20) == ((), {})


def test_it_can_be_started_again(sched):
    sched.add_job(tell, args=["once"])
    sched.add_job(tell, "interval", days=40, id="seldom")
    sched.start()
    assert called.get(timeout=20) == (("once",), {})
    sched.shutdown()
    sched.start()
    assert [job.id for job in sched.get_jobs()] == ["seldom"]
    sched.add_job(tell, args=["twice"])
    assert called.get(timeout=20) == (("twice",), {})
    assert len(sched.tenure.runs()) == 2


def test_once_and_now(sched):
    added = sched.add_job(tell, args=["before the start"])
    sched.start()
    done = Heard(sched, EVENT_JOB_EXECUTED)
    assert called.get(timeout=20) == (("before the start",), {})
    assert done.next().job_id == added.id
    sched.add_job(tell, "date", args=["after it", {"deep": [1, 2]}])
    assert called.get(timeout=20) == (("after it", {"deep": [1, 2]}), {})
    unsaid = object()
    sched.add_job(tell, args=[unsaid])
    assert called.get(timeout=20) == ((unsaid,), {})
    assert sched.get_jobs() == []


def test_a_date(sched):
    sched.add_job(tell, "date", run_date=FAR, id="far")
    sched.add_job(tell, "date", run_date="2020-01-01 00:00:00", id="past", args=["too late"])
    sched.add_job(tell, "date", run_date="2020-01-02 00:00:00", id="made up", args=["late"], misfire_grace_time=None)
    sched.start()
    assert called.get(timeout=20) == (("late",), {})
    assert [job.id for job in sched.get_jobs()] == ["far"]
    assert sched.get_job("far").next_run_time == FAR
    assert [run.job for run in sched.tenure.runs() if run.state != "skipped"] == ["made up"]


def test_a_list_of_due_times_is_written_on(sched, monkeypatch):
    monkeypatch.setattr(trigger_translation, "LISTED", 4)
    sched.add_job(tell, "interval", seconds=1, id="bounded", end_date=FAR)
    sched.start()
    for _ in range(6):
        called.get(timeout=20)
    due = sorted(run.scheduled_for for run in sched.tenure.runs(state="succeeded"))
    assert due == [due[0] + timedelta(seconds=n) for n in range(len(due))]


def test_defaults_and_policies_become_rules(sched):
    sched.configure(job_defaults={"coalesce": False, "max_instances": 4, "timeout": "5m"})
    sched.add_job(tell, "cron", hour=3, id="a", jitter=20)
    sched.add_job(
        tell, "cron", hour=3, id="b", coalesce=True, misfire_grace_time=9, policy={"retries": 2, "timeout": 3}
    )
    sched.start()
    first, second = (sched.tenure.find_job(name).rules for name in "ab")
    assert (first.missed, first.grace, first.max_running, first.timeout, first.jitter) == ("all", None, 4, 300.0, 20.0)
    assert (second.missed, second.grace, second.timeout, second.retries) == ("skip", 9.0, 3.0, 2)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "2", True, None])
def test_a_wrong_number_of_instances_is_refused_where_it_is_written(sched, wrong):
    job = sched.add_job(tell, "cron", hour=3, id="a", max_instances=2)
    for write in (
        lambda: sched.add_job(tell, "cron", hour=4, id="b", max_instances=wrong),
        lambda: job.modify(max_instances=wrong),
        lambda: sched.configure(job_defaults={"max_instances": wrong if wrong != "2" else "0"}),
    ):
        with pytest.raises(ConfigurationError, match=r"max_instances=.* is not a whole number of 1 or more\. Write"):
            write()
    sched.start(paused=True)
    assert {job.id: job.max_instances for job in sched.get_jobs()} == {"a": 2}


def test_a_process_of_its_own(sched, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(APPS)
    sched.configure(executors={"default": ThreadPoolExecutor(3), "processes": ProcessPoolExecutor(2)})
    done = Heard(sched, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)
    file = tmp_path / "left"
    sched.add_job(
        "apart:leave_a_file", "interval", days=40, args=[str(file)], kwargs={"text": "by"}, executor="processes",
        id="apart", next_run_time=datetime.now(UTC),
    )  # fmt: skip
    sched.start()
    event = done.next()
    assert event.exception is None, event.traceback
    word, pid = file.read_text().split()
    assert (word, pid != str(os.getpid())) == ("by", True)
    assert sched.tenure._service.options.capacity == 5
    with pytest.raises(ConfigurationError, match="cannot be stored"):
        sched.add_job(tell, "cron", hour=3, kwargs={"what": object()}, executor="processes", id="not kept")


def test_coroutines_run_on_the_loop():
    async def main():
        loops: asyncio.Queue = asyncio.Queue()

        async def note(what):
            await loops.put((what, asyncio.get_running_loop()))

        scheduler = AsyncIOScheduler(timezone="UTC")
        scheduler.add_job(note, "interval", seconds=1, args=["pending"], id="pending")
        scheduler.start()
        scheduler.add_job(note, "interval", seconds=1, args=["added"], id="added")
        found = set()
        while len(found) < 2:
            found.add(await asyncio.wait_for(loops.get(), 20))
        assert found == {("pending", asyncio.get_running_loop()), ("added", asyncio.get_running_loop())}
        scheduler.shutdown(wait=False)
        assert not scheduler.running

    asyncio.run(main())
    for thread in threading.enumerate():
        if thread.name == "tenure shutdown":
            thread.join(20)


def test_a_node_on_whose_loop_nothing_runs_has_left_when_shutdown_returns():
    """uvicorn ends its workers by SIGTERM as soon as their lifespan is over."""

    async def main():
        scheduler = AsyncIOScheduler(timezone="UTC")
        scheduler.add_job(print, "cron", year=2099, id="later")
        scheduler.start()
        assert scheduler.tenure.started
        scheduler.shutdown(wait=False)
        return [thread.name for thread in threading.enumerate() if thread.name == "tenure shutdown"]

    assert asyncio.run(main()) == []


def test_blocking_blocks_until_it_is_shut_down():
    scheduler = BlockingScheduler(timezone="UTC")
    scheduler.add_job(
        lambda: threading.Thread(target=scheduler.shutdown).start(), id="end", trigger="interval", seconds=1
    )
    scheduler.start()
    assert not scheduler.running


def test_where_the_jobs_are(tmp_path, monkeypatch, caplog):
    url = f"sqlite:///{tmp_path / 'other.db'}"
    for store in (
        SQLAlchemyJobStore(url),
        SQLAlchemyJobStore(url=url, tablename="apscheduler_jobs"),
        TheirSQLAlchemyJobStore(url),
        {"type": "sqlalchemy", "url": url},
    ):
        scheduler = BackgroundScheduler(jobstores={"default": store, "other": MemoryJobStore()})
        assert scheduler.tenure.store.shown.endswith("other.db")
        assert scheduler.tenure.application == "default"
    named = BackgroundScheduler(jobstores={"default": SQLAlchemyJobStore(url, tablename="billing")})
    assert named.tenure.application == "billing"
    dotted = BackgroundScheduler(
        {"apscheduler.jobstores.default": {"type": "sqlalchemy", "url": url}, "apscheduler.timezone": "Asia/Seoul"}
    )
    assert (dotted.tenure.store.shown[-8:], dotted.timezone.key) == ("other.db", "Asia/Seoul")
    assert BackgroundScheduler().tenure.store.shown.endswith("tenure.db")
    assert not caplog.records
    monkeypatch.delenv("TENURE_URL")
    monkeypatch.chdir(tmp_path)
    assert BackgroundScheduler().tenure.store.shown.endswith("tenure.db")
    assert str(tmp_path / "tenure.db") in caplog.text


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: BackgroundScheduler(jobstores={"default": {"type": "mongodb"}}), "make_cluster_safe"),
        (lambda: BackgroundScheduler(jobstores={"default": MongoDBJobStore()}), "MongoDBJobStore.*SQLAlchemyJobStore"),
        (lambda: BackgroundScheduler(executors={"default": {"type": "twisted"}}), "ThreadPoolExecutor"),
        (lambda: ours.TwistedScheduler, "BackgroundScheduler"),
        (lambda: ours.RedisJobStore, "make_cluster_safe"),
        (lambda: ours.GeventExecutor, "ThreadPoolExecutor"),
        (lambda: BackgroundScheduler().export_jobs("jobs.json"), "tenure jobs"),
        (lambda: BackgroundScheduler().import_jobs("jobs.json"), "add_job"),
        (lambda: BackgroundScheduler(jobstores={"a": SQLAlchemyJobStore("mysql://h/d")}).tenure, "mysql"),
        (
            lambda: BackgroundScheduler(jobstores={n: SQLAlchemyJobStore(f"sqlite:///{n}.db") for n in "ab"}).tenure,
            "2 databases",
        ),
        (lambda: BackgroundScheduler().add_job(tell, "sometimes", id="a"), "'sometimes'"),
        (lambda: BackgroundScheduler().add_job(tell, "cron", id="a", hours=3), "hours"),
        (lambda: BackgroundScheduler().add_job("nowhere:tell", "cron", id="a"), "nowhere"),
    ],
)
def test_what_cannot_be_carried_over_says_what_to_use(wrong, said):
    with pytest.raises(ConfigurationError, match=f"(?s){said}"):
        wrong()


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("job_stores", "Did you mean jobstores=?"),
        ("misfire_grace_time", "Write job_defaults={'misfire_grace_time': …}."),
        ("time_zone", "Did you mean timezone=?"),
        ("colour", "The options are jobstores, executors"),
    ],
)
def test_an_option_that_is_none_is_taken_and_named_once(word, said, caplog):
    BackgroundScheduler(**{word: 5})
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert f"{word}=5 is not an option" in warning
    assert said in warning


def test_unknown_aliases(sched):
    with pytest.raises(KeyError, match="No such job store: other"):
        sched.add_job(tell, "cron", hour=3, jobstore="other")
    sched.add_job(tell, "cron", hour=3, executor="other")
    with pytest.raises(KeyError, match="No such executor: other"):
        sched.start()
