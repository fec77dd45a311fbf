"""`run.scheduled_for` is in the job's zone, whatever its trigger is made of: in production, for people, and in a test's
own world."""

import threading
import uuid
from collections import defaultdict

from tenure import Run, Scheduler
from tenure.core.trigger_text import zone_of
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
