"""The ways of writing that APScheduler's user guide shows, one by one: the same here, or refused with what to write
instead."""

import os
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

import pytest
from apscheduler.executors.pool import ProcessPoolExecutor as TheirProcessPool
from apscheduler.executors.pool import ThreadPoolExecutor as TheirThreadPool
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore as TheirStore
from apscheduler.schedulers.background import BackgroundScheduler as TheirScheduler
from apscheduler.triggers.combining import AndTrigger, OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger

from tenure.errors import ConfigurationError
from tenure.ext.apscheduler import BackgroundScheduler, SchedulerAlreadyRunningError

ZONE = "Asia/Seoul"
NOW = datetime(2026, 6, 1, 12, 0, 30, tzinfo=UTC)


@pytest.fixture
def sched(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[BackgroundScheduler]:
    monkeypatch.setenv("TENURE_URL", sqlite_url)
    scheduler = BackgroundScheduler(timezone=ZONE)
    yield scheduler
    if scheduler.running:
        scheduler.shutdown(wait=False)


def by_objects(url: str) -> dict:
    stores = {"default": TheirStore(url=url)}
    executors = {"default": TheirThreadPool(20), "processpool": TheirProcessPool(5)}
    return {"jobstores": stores, "executors": executors, "job_defaults": {"coalesce": False, "max_instances": 3}}


def by_dicts(url: str) -> dict:
    stores = {"default": {"type": "sqlalchemy", "url": url}}
    executors = {"default": {"type": "threadpool", "max_workers": 20}, "processpool": TheirProcessPool(max_workers=5)}
    return {"jobstores": stores, "executors": executors, "job_defaults": {"coalesce": False, "max_instances": 3}}


def by_texts(url: str) -> dict:
    return {
        "gconfig": {
            "apscheduler.jobstores.default": {"type": "sqlalchemy", "url": url},
            "apscheduler.executors.default": {
                "class": "apscheduler.executors.pool:ThreadPoolExecutor",
                "max_workers": "20",
            },
            "apscheduler.executors.processpool": {"type": "processpool", "max_workers": "5"},
            "apscheduler.job_defaults.coalesce": "false",
            "apscheduler.job_defaults.max_instances": "3",
            "apscheduler.timezone": "UTC",
        }
    }


@pytest.mark.parametrize("way", [by_objects, by_dicts, by_texts])
def test_the_three_ways_to_configure_say_the_same(way, sqlite_url, sched):
    sched.configure(**way(sqlite_url))
    sched.add_job(os.getpid, "cron", hour=3, id="a")
    sched.start()
    rules = sched.tenure.find_job("a").rules
    assert (rules.missed, rules.max_running) == ("all", 3)
    assert sched._options.capacity == 25


@pytest.mark.parametrize(
    ("trigger", "words"),
    [
        ("date", {"run_date": date(2029, 11, 6)}),
        ("date", {"run_date": datetime(2029, 11, 6, 16, 30, 5)}),
        ("date", {"run_date": "2029-11-06 16:30:05"}),
        ("interval", {"hours": 2, "start_date": "2030-10-10 09:30:00", "end_date": "2034-06-15 11:00:00"}),
        ("cron", {"month": "6-8,11-12", "day": "3rd fri", "hour": "0-3"}),
        ("cron", {"day_of_week": "mon-fri", "hour": 5, "minute": 30, "end_date": "2034-05-30"}),
        ("cron", {"day": "last sun"}),
        ("cron", {"hour": "*"}),
        ("calendarinterval", {"months": 1, "hour": 17, "start_date": "2026-07-31"}),
        (CronTrigger.from_crontab("0 0 1-15 may-aug *"), {}),
        (OrTrigger([CronTrigger(day_of_week="mon", hour=2), CronTrigger(day_of_week="tue", hour=15)]), {}),
    ],
    ids=str,
)
def test_triggers_are_due_when_theirs_are(trigger, words, sched):
    job = sched.add_job(os.getpid, trigger, id="a", **words)
    theirs = TheirScheduler(timezone=ZONE).add_job(os.getpid, trigger, id="a", **words)
    sched.start()
    ours_due, their_due, previous = [], [], None
    for _ in range(5):
        due = theirs.trigger.get_next_fire_time(previous, NOW if previous is None else previous + timedelta(seconds=1))
        if due is None:
            break
        told = job.trigger.get_next_fire_time(previous, NOW)
        ours_due.append(told)
        their_due.append(due)
        previous = due
    assert their_due
    assert ours_due == their_due
    assert sched.get_job("a").next_run_time is not None


def test_their_example_of_and_is_due_on_the_common_grid(sched):
    """Theirs counts the two hours from its start and so is never due at midnight; it does not return when it is
    asked."""
    both = AndTrigger([IntervalTrigger(hours=2), CronTrigger(day_of_week="sat,sun", timezone="UTC")])
    job = sched.add_job(os.getpid, both, id="a")
    assert job.trigger.get_next_fire_time(None, NOW) == datetime(2026, 6, 6, tzinfo=UTC)


def test_jobs_are_changed_as_they_are_there(sched):
    sched.add_job("os:getpid", "interval", minutes=2, id="my_job_id")
    sched.start()
    job = sched.get_job("my_job_id")
    job.modify(max_instances=6, name="Alternate name")
    assert sched.tenure.find_job("my_job_id").rules.max_running == 6
    sched.reschedule_job("my_job_id", trigger="cron", minute="*/5")
    assert sched.get_job("my_job_id").next_run_time.minute % 5 == 0
    job.remove()
    assert sched.get_jobs() == []


@pytest.mark.parametrize("words", [{"logger": "mine"}, {"daemon": False}, {"jobstore_retry_interval": 5}], ids=str)
def test_options_that_leave_nothing_to_decide_are_taken(words):
    assert not BackgroundScheduler(**words).running


def test_what_is_refused_says_what_to_write(sched):
    with pytest.raises(ConfigurationError, match="make_cluster_safe"):
        BackgroundScheduler({"apscheduler.jobstores.mongo": {"type": "mongodb"}})
    with pytest.raises(ConfigurationError, match="start_date"):
        sched.add_job(os.getpid, "calendarinterval", months=1)
    sched.start()
    with pytest.raises(SchedulerAlreadyRunningError):
        sched.add_jobstore("memory", "second")
    with pytest.raises(SchedulerAlreadyRunningError):
        sched.add_executor("processpool", "more")
