"""What `tenure check` finds in definitions, without a database."""

from datetime import UTC, datetime

import pytest

from tenure import Scheduler, at, cron, every
from tenure.jobs.definition_check import Problem, problems
from tenure.scheduler import service_of

SUMMER = datetime(2026, 7, 1, tzinfo=UTC)


def body() -> None: ...


def found(scheduler: Scheduler, now: datetime = SUMMER) -> list[Problem]:
    service = service_of(scheduler)
    return problems(service.definitions, service.options.queues, now)


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler("memory://", tz="Europe/Berlin")


def test_what_the_next_clock_changes_do_is_said_in_words(scheduler):
    for name in ("nightly", "also"):
        scheduler.cron("30 2 * * *", name=name)(body)
    backwards, forwards = found(scheduler)
    assert (backwards.kind, backwards.wrong, backwards.jobs) == ("clock_change", False, ("nightly", "also"))
    assert backwards.text == (
        "nightly, also: Sun 25 Oct 2026 03:00 → 02:00 (Europe/Berlin): 02:30 comes twice: it runs the first time only"
    )
    assert forwards.text == (
        "nightly, also: Sun 28 Mar 2027 02:00 → 03:00 (Europe/Berlin): 02:30 does not exist: it runs at 03:00 instead"
    )


@pytest.mark.parametrize(
    ("trigger", "surprises"),
    [
        (cron("0 * * * *"), 0),
        (cron("*/15 * * * *"), 0),
        (every("1h"), 0),
        (cron("0 12 * * *"), 0),
        (cron("30 2 * * *", tz="Asia/Seoul"), 0),
        (cron("30 2 * * SUN"), 2),
        (cron("0 */2 * * *"), 2),
        (cron("30 2 * * *") | cron("0 * * * *"), 0),
    ],
)
def test_jobs_that_run_on_as_always_are_not_named(scheduler, trigger, surprises):
    scheduler.scheduled(trigger, name="job")(body)
    assert len(found(scheduler)) == surprises


def test_a_herd_gets_a_spread_that_fits_it(scheduler):
    for number in range(9):
        scheduler.cron("0 3 * * *", name=f"few:{number}", tz="UTC")(body)
    assert found(scheduler) == []
    for number in range(9, 60):
        scheduler.cron("0 3 * * *", name=f"few:{number}", tz="UTC")(body)
    (herd,) = found(scheduler)
    assert (herd.kind, len(herd.jobs), herd.wrong) == ("herd", 60, False)
    assert herd.text == (
        "60 jobs are due in the same minute, next at Wed 03:00 UTC: few:0, few:1, few:2, few:3, few:4 and 55 more. "
        "spread='10m' on each starts them one after the other."
    )


def test_a_herd_that_is_spread_already_or_due_all_the_time_is_none(scheduler):
    for number in range(20):
        scheduler.cron("0 3 * * *", name=f"spread:{number}", spread="5m")(body)
        scheduler.cron("* * * * *", name=f"always:{number}")(body)
    assert found(scheduler) == []


def test_one_herd_is_told_once_and_its_spread_is_shorter_than_its_period(scheduler):
    for number in range(500):
        scheduler.cron("0 * * * *", name=f"hourly:{number}")(body)
    (herd,) = found(scheduler)
    assert "spread='30m'" in herd.text
    for number in range(30):
        scheduler.cron("0 6 * * *", name=f"daily:{number}")(body)
    (herd,) = found(scheduler)
    assert herd.text.startswith("530 jobs are due in the same minute, next at Wed 06:00 CEST")


def test_a_spread_that_is_too_long_is_as_long_as_it_may_be(scheduler):
    for number in range(40):
        scheduler.cron("*/15 * * * *", name=f"often:{number}")(body)
    (herd,) = found(scheduler)
    assert "spread='5m'" in herd.text, "and not 10 minutes, which is more than half of their period"


def test_herds_of_nearly_the_same_jobs_are_told_once(scheduler):
    for number in range(20):
        scheduler.cron("0 * * * *", name=f"hourly:{number}")(body)
    for hour in range(24):
        scheduler.cron(f"0 {hour} * * *", name=f"daily:{hour}", tz="UTC")(body)
    assert len(found(scheduler)) == 1


def test_due_times_that_never_come_are_wrong_and_one_that_has_passed_is_a_warning(scheduler):
    scheduler.scheduled(at(datetime(2026, 1, 1, tzinfo=UTC)), name="new_year")(body)
    scheduler.calendar(days=1, start="2026-01-01", at="09:00", name="spread", spread="25h")(body)
    scheduler.scheduled(cron("0 9 * * SAT") - closed_always(), name="never")(body)
    never, *warnings = found(scheduler)
    assert (never.kind, never.wrong, never.jobs) == ("never_due", True, ("never",))
    assert [(one.kind, one.wrong) for one in warnings] == [("past", False), ("spread", False)]
    assert "spread and jitter add up to 25 h, but it is due every 24 h" in warnings[1].text


def closed_always():
    from tenure import closed

    return closed("weekends", weekly=["Sat-Sun"])


def test_a_queue_that_this_process_does_not_serve_is_named():
    scheduler = Scheduler("memory://", queues=["fast"])
    scheduler.every("1h", queue="slow", name="load")(body)
    (warning,) = found(scheduler)
    assert warning.text == "load is on the queue 'slow', and this scheduler serves 'fast': other processes must run it."
