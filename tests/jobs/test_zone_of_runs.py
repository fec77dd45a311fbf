"""`run.scheduled_for` is in the job's zone, whatever its trigger is made of: in production, for people, and in a test's
own world."""

import json
import threading
import uuid
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from harness.scratch import eventually
from tenure import Run, Scheduler
from tenure.cli.jobs import outlook
from tenure.core.messages import JobChange
from tenure.core.records import Change
from tenure.core.trigger_text import zone_of
from tenure.scheduler import service_of
from tenure.scheduling.console import outlooks
from tenure.testing import virtual
from tenure.triggers import closed, cron, every

FAR = closed("one day", dates=["1999-01-01"])
SEOUL, BERLIN = "Asia/Seoul", "Europe/Berlin"
SECONDS = every("1s", tz=SEOUL)
TRIGGERS = {
    "plain": (SECONDS, {SEOUL}),
    "excluding": (SECONDS - FAR, {SEOUL}),
    "union": (SECONDS | cron("* * * * * *", SEOUL), {SEOUL}),
    "excluding from a union": ((SECONDS | cron("0 0 1 1 *", SEOUL)) - FAR, {SEOUL}),
    "of the scheduler": (every("1s") - FAR, {"America/New_York"}),
    "two zones": (cron("*/2 * * * * *", SEOUL) | cron("1-59/2 * * * * *", BERLIN), {SEOUL, BERLIN}),
    "two zones, excluded": ((cron("*/2 * * * * *", SEOUL) | cron("1-59/2 * * * * *", BERLIN)) - FAR, {SEOUL, BERLIN}),
}


def zones_by_second(seen):
    return {moment.second % 2: moment.tzinfo.key for moment in seen}


def made(seen, enough):
    scheduler = Scheduler(f"memory://{uuid.uuid4()}", tz="America/New_York", drain=1)
    for name, (trigger, _) in TRIGGERS.items():

        @scheduler.scheduled(trigger, name=name, overlap="allow")
        def job(run: Run) -> None:
            seen[run.job].append(run.scheduled_for)
            if all(len(seen[name]) >= 2 for name in TRIGGERS):
                enough.set()

    return scheduler


def test_production_people_and_tests_see_the_same_zone():
    production, in_test, enough = defaultdict(list), defaultdict(list), threading.Event()
    with made(production, enough) as scheduler:
        assert enough.wait(15)
        shown = {name: [run.scheduled_for for run in scheduler.runs(name)] for name in TRIGGERS}
    with virtual(made(in_test, enough), now="2026-11-14T12:00Z") as world:
        world.advance(to="2026-11-14T12:00:04Z")
        in_world = {name: [run.scheduled_for for run in world.runs(name)] for name in TRIGGERS}
    for name, (_, zones) in TRIGGERS.items():
        for seen in (production, shown, in_test, in_world):
            assert {moment.tzinfo.key for moment in seen[name]} == zones, name
            if len(zones) == 2:
                assert zones_by_second(seen[name]) == {0: SEOUL, 1: BERLIN}, "that of the part that is due"


def test_a_run_at_a_time_at_which_nothing_is_due_is_in_the_zone_of_the_first_part():
    trigger = cron("0 3 * * *", SEOUL) | cron("0 4 * * *", BERLIN)
    assert zone_of(trigger.to_json(), 12345.0).key in {SEOUL, BERLIN}
    assert zone_of(trigger.to_json(), 12345.0) == zone_of(trigger)
    assert zone_of(None).key == "UTC"
    assert zone_of("not a trigger", 0.0, default=BERLIN).key == BERLIN


# Jobs without a trigger: in the zone of the job that they follow, or of the application


def define(scheduler, zone):
    @scheduler.cron("0 3 * * *", tz=zone)
    def extract() -> None: ...

    @scheduler.after("extract")
    def transform() -> None: ...

    @scheduler.after("transform")
    def publish() -> None: ...

    @scheduler.job
    def report() -> None: ...


def test_all_that_is_said_of_a_job_is_in_one_zone():
    scheduler = Scheduler(f"memory://{uuid.uuid4()}", tz=BERLIN)
    define(scheduler, SEOUL)
    zones = {"extract": SEOUL, "transform": SEOUL, "publish": SEOUL, "report": BERLIN}
    with virtual(scheduler, now="2026-11-14T12:00Z") as world:
        world.run_now("report")
        world.advance(to="2026-11-14T20:00Z")
        for name, key in zones.items():
            (run,) = world.runs(name)
            job = scheduler.find_job(name)
            offset = {SEOUL: "+09:00", BERLIN: "+01:00"}[key]
            assert {run.scheduled_for.tzinfo.key, job.since.tzinfo.key, job.tz} == {key}, name
            assert scheduler.find_run(run.id).scheduled_for.tzinfo.key == key, name
            said = scheduler.explain(name)
            assert f"{run.scheduled_for:%H:%M:%S}{offset}" in said.text, name
            assert said.facts["scheduled_for"].tzinfo.key == key, name
            at = scheduler.why(name, "2026-11-14T15:00Z")
            assert offset in at, name
            assert "+00:00" not in at, name
            (audited,) = scheduler.audit(name)
            assert (audited.tz.key, audited.clean) == (key, True)
        assert {audited.name: audited.tz.key for audited in scheduler.audit()} == zones
        assert {job.name: job.tz for job in scheduler.jobs()} == zones


@pytest.mark.parametrize("zone", [BERLIN, SEOUL])
def test_the_command_line_takes_the_one_zone_of_all_triggers_or_utc(url, tenure, zone):
    scheduler = Scheduler(url, application="shop", tz=BERLIN)
    define(scheduler, zone)

    @scheduler.every("1d")
    def daily() -> None: ...

    seen = {}

    @scheduler.around
    @contextmanager
    def sees(run: Run):
        seen[run.job] = run.scheduled_for.tzinfo.key
        yield

    with scheduler:
        scheduler.run_now("report").wait(20)
        scheduler.run_now("extract").wait(20)
        eventually(lambda: [run.state for run in scheduler.runs("publish")] == ["succeeded"], what="the last follower")
        assert seen == {"extract": zone, "transform": zone, "publish": zone, "report": BERLIN}, "the bodies"
        alone = BERLIN if zone == BERLIN else "UTC"
        for job, there in {
            "extract": zone,
            "transform": zone,
            "publish": zone,
            "daily": BERLIN,
            "report": alone,
        }.items():
            assert f"changed, {there}" in tenure("show", job)[1], job
            assert json.loads(tenure("show", job, "--json")[1])["tz"] == there
            offset = {BERLIN: "+01:00", SEOUL: "+09:00", "UTC": "+00:00"}[there]
            assert offset in tenure("audit", job)[1], job
            if job != "daily":
                found = json.loads(tenure("why", job, "--json")[1])
                assert found["facts"]["scheduled_for"].endswith(offset), job
                assert json.loads(tenure("runs", job, "--json")[1])[0]["scheduled_for"].endswith(offset), job


def test_jobs_that_follow_each_other_in_a_circle_are_in_the_zone_of_the_application(any_url):
    """As rows may say that other programs wrote."""
    scheduler = Scheduler(any_url, application="shop", tz=BERLIN)
    define(scheduler, SEOUL)
    with scheduler, service_of(scheduler).ledger() as ledger:
        run = scheduler.run_now("transform")
        run.wait(20)
        row = ledger.jobs("shop", "transform")[0]
        assert ledger.triggers([row.id]) == {row.id: ledger.jobs("shop", "extract")[0].spec.trigger}
        spec = replace(row.spec, rules=replace(row.spec.rules, after="publish"))
        ledger.change(JobChange("shop", "transform", Change.UPDATED, spec=spec, generation=row.generation))
        assert scheduler.find_job("transform").tz == scheduler.find_job("publish").tz == BERLIN
        assert ledger.triggers([row.id]) == {row.id: None}
        assert {run.scheduled_for.tzinfo.key for run in scheduler.runs("transform")} == {BERLIN}


def test_a_job_that_follows_another_is_not_said_to_be_due_no_more():
    scheduler = Scheduler(f"memory://{uuid.uuid4()}", tz=BERLIN)
    define(scheduler, BERLIN)
    with scheduler:
        jobs, now = scheduler.jobs(), datetime.now(UTC)
    said = [line.partition(", ")[0] for line in outlooks(jobs, now)]
    assert said[0].startswith("job 'extract': next ")
    assert said[1:] == [
        "job 'publish': runs after transform",
        "job 'report': runs on request",
        "job 'transform': runs after extract",
    ]
    assert [outlook(job) for job in jobs[1:]] == [
        "it runs after 'transform'",
        "it runs on request",
        "it runs after 'extract'",
    ]
