"""A trigger that takes for ever stops its own job, and no other one: on every store."""

import json
import sqlite3
import uuid
from contextlib import closing
from types import SimpleNamespace

import pytest

from harness.scratch import eventually
from tenure import Scheduler
from tenure.core.cluster import Cadence
from tenure.core.database_clock import DatabaseClock
from tenure.core.messages import JobChange
from tenure.core.records import Change, JobSpec, Rules
from tenure.errors import ConfigurationError
from tenure.ext.apscheduler import BackgroundScheduler
from tenure.scheduling.context import LoopContext
from tenure.scheduling.engine_options import EngineOptions
from tenure.scheduling.planner import Planner
from tenure.triggers import closed, every
from tenure.util.clock import boottime


def cron(expr, tz=None):
    return {"trigger": "cron", "expr": expr, "tz": tz}


def closed_at(of, window):
    calendar = {"name": window, "dates": [], "weekly": [window], "tz": None}
    return {"trigger": "excluding", "of": of, "closed": [calendar]}


def union(*parts):
    return {"trigger": "union", "parts": parts}


NEVER = closed_at(cron("0 0 * * *"), "00:00-00:01")
NESTED = closed_at(union(NEVER, cron("0 1 * * *")), "01:00-01:01")
FAR = {"trigger": "calendar", "years": 1, "start": "9000-01-01", "at": "00:00:00", "tz": "Europe/Berlin"}
BOMBS = {
    "never open": NEVER,
    "nested": NESTED,
    "nested deeper": closed_at(union(NESTED, cron("0 2 * * *")), "02:00-02:01"),
    "far away": union(FAR, {**FAR, "tz": "America/New_York"}),
    "of many zones": union(*(cron(f"{minute} 0 29 2 *", "America/New_York") for minute in range(60)), NEVER),
}


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request):
    fixtures = {"sqlite": "sqlite_url", "postgres": "database"}
    return request.getfixturevalue(fixtures[request.param]) if request.param in fixtures else f"memory://{uuid.uuid4()}"


@pytest.fixture
def scheduler(url):
    made = Scheduler(url, ttl=6, heartbeat_every=0.5, attempt_timeout=1, drain=1)
    made.ticks = []

    @made.every("250ms", overlap="allow")
    def tick(run):
        made.ticks.append(run.key)

    @made.job
    def asked():
        pass

    with made:
        yield made


def plant(scheduler, name, trigger, reading=None):
    """As somebody who may write the tables."""
    text = json.dumps({"v": 1, **trigger}) if isinstance(trigger, dict) else trigger
    spec = JobSpec("default", name, "asked", text, Rules())
    with scheduler._service.ledger() as ledger:
        now = ledger.now()
        ledger.change(JobChange("default", name, Change.ADDED, spec=spec, next_due=now - 5, next_reading=reading))


def goes_on(scheduler, ticks=4):
    seen = len(scheduler.ticks)
    eventually(lambda: len(scheduler.ticks) >= seen + ticks, what=f"{ticks} more ticks")


def test_a_trigger_that_takes_for_ever_stops_its_own_job_and_no_other(scheduler, caplog):
    goes_on(scheduler, 1)
    for name, bomb in BOMBS.items():
        plant(scheduler, name, bomb)
    said = lambda: [r.args[0] for r in caplog.records if getattr(r, "action", "") == "job_unreadable"]  # noqa: E731
    eventually(lambda: set(said()) == set(BOMBS), what="a message about each of them")
    goes_on(scheduler)
    goes_on(scheduler)
    assert len(said()) == len(BOMBS), "once each"
    assert not [r for r in caplog.records if getattr(r, "action", "") in {"scheduler_step_failed", "store_failed"}]
    notes = " ".join(scheduler.health().notes)
    assert all(name in notes for name in BOMBS), "health says that they are overdue"


def test_people_can_look_at_and_remove_it(scheduler):
    for name, bomb in BOMBS.items():
        plant(scheduler, name, bomb)
    shown = {job.name: job for job in scheduler.jobs()}
    assert shown["tick"].next_due is not None
    assert all("cannot be" in shown[name].trigger and shown[name].next_due is None for name in BOMBS)
    assert {name for _, name in scheduler.next(5)} == {"tick"}
    for name in BOMBS:
        assert "trigger cannot be" in scheduler.why(name)
        assert not next(one for one in scheduler.audit(name)).clean
        assert scheduler.run_now(name).state
        scheduler.pause(name)
        scheduler.remove(name)
    assert not BOMBS.keys() & {job.name for job in scheduler.jobs()}


def test_a_reading_that_no_clock_shows_stops_its_own_job_and_no_other(scheduler, caplog):
    for number, reading in enumerate(
        ("2020a@\u00b2", "2020a@" + "9" * 5000, "2020a@99999999999999999999", "2020a@-", "@@")
    ):
        plant(scheduler, f"reading {number}", cron("* * * * *", "Europe/Berlin"), reading)
    goes_on(scheduler)
    goes_on(scheduler)
    assert not [r for r in caplog.records if getattr(r, "action", "") in {"scheduler_step_failed", "store_failed"}]


def test_jobs_that_are_far_behind_do_not_take_the_places_of_the_others(url):
    """More of them than are planned at one visit, each with years of due times that can only be walked through."""
    slow = (every("1s") | every("7s")).to_json()
    scheduler = Scheduler(url, capacity=0)
    scheduler.start()
    with scheduler._service.ledger() as ledger:
        now, at = ledger.now(), boottime()
        for name, text, due in [(f"behind {n}", slow, now - 3e8) for n in range(15)] + [("near", slow, now - 1)]:
            spec = JobSpec("default", name, "f", text, Rules())
            ledger.change(JobChange("default", name, Change.ADDED, spec=spec, next_due=due))
        clock = DatabaseClock()
        clock.observe(now, at, at)
        leader, options = SimpleNamespace(is_leader=True), EngineOptions("default", "UTC", Cadence())
        planning = Planner(LoopContext(None, leader, None, None, clock, options, None))
        for _ in range(3):
            planning.plan(ledger)
        [near] = ledger.jobs("default", "near")
        assert near.next_due > now
        assert min(job.next_due for job in ledger.jobs("default")) < now - 2e8, "the others are on their way"


def test_the_drop_in_lists_the_others(sqlite_url, monkeypatch):
    monkeypatch.setenv("TENURE_URL", sqlite_url)
    scheduler = BackgroundScheduler(timezone="UTC")
    scheduler.add_job(print, "interval", hours=1, id="good")
    scheduler.start()
    try:
        with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), timeout=10)) as db, db:
            [(application,)] = db.execute("SELECT application FROM tenure_job").fetchall()
        tables = Scheduler(sqlite_url, application=application, capacity=0)
        spec = JobSpec(application, "bomb", "f", json.dumps({"v": 1, **NESTED}), Rules())
        with tables._service.ledger() as ledger:
            ledger.change(JobChange(application, "bomb", Change.ADDED, spec=spec, next_due=ledger.now() - 5))
        assert [job.id for job in scheduler.get_jobs()] == ["good"]
    finally:
        scheduler.shutdown()


def test_such_a_trigger_is_refused_where_it_is_defined():
    scheduler = Scheduler(f"memory://{uuid.uuid4()}", capacity=0)
    scheduler.scheduled(every("12h") - closed("noon", weekly=["12:00-12:01", "00:00-00:01"]), name="never")(print)
    with pytest.raises(ConfigurationError, match=r"no due time after .* in 10,000 steps"):
        scheduler.start()
