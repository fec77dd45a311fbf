"""What an outage would do is what it does: the answer is compared with the production loop in virtual time."""

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from tenure import Scheduler, at, closed, cron, every
from tenure.core.job_options import rules
from tenure.core.load import LoadJob
from tenure.core.what_if import TIMES, OutageForecast, outage, schedule
from tenure.testing import virtual
from tenure.util.instants import instant, moment

START = datetime(2026, 10, 24, 20, 59, 59, 500_000, tzinfo=UTC)
"""Clocks go back in Berlin that night."""
TRIGGERS = st.sampled_from(
    [
        every("1m"),
        every("10m"),
        cron("30 2 * * *", tz="Europe/Berlin"),
        cron("0 * * * *", tz="Europe/Berlin"),
        cron("0 9 * * MON-FRI", tz="UTC"),
        at(START + timedelta(minutes=20)),
        every("45m") - closed("night", weekly=["Sun 00:00-05:00"], tz="UTC"),
    ]
)


@settings(max_examples=60, deadline=None)
@given(
    trigger=TRIGGERS,
    options=st.fixed_dictionaries(
        {"missed": st.sampled_from(["latest", "skip", "all"])},
        optional={"grace": st.sampled_from(["10s", "15m", "6h"]), "spread": st.sampled_from(["1m", "2h"])},
    ),
    minutes=st.sampled_from([1, 5, 61, 7 * 60, 26 * 60, 3 * 24 * 60]),
)
def test_the_answer_is_what_production_does(trigger, options, minutes):
    end = START + timedelta(minutes=minutes)
    scheduler = Scheduler("memory://", application="shop")
    scheduler.scheduled(trigger, name="job", **options)(lambda: None)
    with virtual(scheduler, now=START - timedelta(minutes=1)) as world:
        world.advance(to=START)
        world.down(to=end)
        world.advance(by=0)
        became = [run for run in world.runs("job") if START <= run.scheduled_for < end]
    job = LoadJob("job", trigger, rules(options, where="job"))
    found = outage(job, "shop", instant(START), instant(end), 10**9)
    if found is None:
        assert became == []
        return
    assert not found.cut
    assert found.due == sum(run.count for run in became)
    made_up = [run for run in became if run.kind == "backfill"]
    assert found.made_up == tuple(instant(run.scheduled_for) for run in made_up)
    skipped = [run for run in became if run.state == "skipped" and run.reason == "missed"]
    held = [run for run in became if run.state == "skipped" and run.reason != "missed"]
    assert found.late == sum(run.kind == "due" and run.state == "succeeded" for run in became) + len(held)
    assert len(held) <= found.overlapping
    assert found.skipped == sum(run.count for run in skipped)
    assert found.unharmed == sum(run.state == "pending" for run in became)
    if skipped:
        assert found.first_skipped == instant(min(run.scheduled_for for run in skipped))


def test_an_outage_says_when_it_was_cut():
    job = LoadJob("often", every("1s") - closed("never", dates=["2020-01-01"]), rules({"missed": "all"}, where="job"))
    whole = outage(job, "shop", 0.0, 40_000.0, 10**9)
    assert (whole.due, len(whole.made_up), whole.cut) == (40_000, 100, False)
    part = outage(job, "shop", 0.0, 40_000.0, 5000)
    assert part.cut
    assert 4000 <= part.due < 10_000
    assert (part.late, part.made_up, part.skipped) == (0, (), 0), "nothing is guessed"


OFTEN = every("1s") - closed("never", dates=["2020-01-01"])


def test_a_job_is_charged_what_it_took():
    """Also the visits that go through its newest due times again."""
    job = LoadJob("often", OFTEN, rules({"missed": "all"}, where="job"))
    found = outage(job, "shop", 0.0, 15_000.0, 10**9)
    assert (found.due, found.cut) == (15_000, False)
    assert found.steps >= 15_000
    forecast = OutageForecast("shop", 0.0, 15_000.0, found.steps + 1)
    forecast.add(job)
    assert not forecast.spent
    forecast.add(LoadJob("on request", None, rules({}, where="job")))
    assert (forecast.spent, forecast.looked_at) == (False, 2)
    forecast.add(LoadJob("never due", at(START), rules({}, where="job")))
    assert forecast.spent


def test_an_outage_and_a_schedule_rest_between_their_parts_and_end_when_there_is_no_time_left():
    job, rests = LoadJob("often", OFTEN, rules({"missed": "all"}, where="job")), []

    def rest(most):
        rests.append(1)
        return len(rests) < most

    assert not outage(job, "shop", 0.0, 15_000.0, 10**9, rest=lambda: rest(10**9)).cut
    assert len(rests) >= 7, "2,000 due times at a time"
    rests.clear()
    part = outage(job, "shop", 0.0, 15_000.0, 10**9, rest=lambda: rest(2))
    assert (part.cut, len(rests)) == (True, 2)
    rests.clear()
    assert schedule(LoadJob("often", every("10s"), job.rules), "shop", instant(START), 10**6, lambda: rest(2)).cut
    assert len(rests) == 2
    rests.clear()
    forecast = OutageForecast("shop", instant(START), instant(START) + 60.0, 10**9, lambda: rest(3))
    while not forecast.spent:
        forecast.add(LoadJob(f"job {len(rests)}", at(START), rules({}, where="job")))
    assert (forecast.looked_at, len(rests)) == (2, 4), "after each job, and after each part of one"


def test_a_schedule_says_what_is_due_and_what_clock_changes_do():
    job = LoadJob("new", cron("30 2 * * *", tz="Europe/Berlin"), rules({}, where="job"))
    found = schedule(job, "shop", instant(START), 10**6)
    assert len(found.times) == TIMES
    assert (found.load.total, found.cut) == (1, False)
    assert [change.effect for change in found.clock_changes] == [
        "02:30 comes twice: it runs the first time only.",
        "02:30 does not exist: it runs at 03:00 instead.",
    ]
    assert moment(instant(found.times[0])) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    often = LoadJob("often", every("10s"), rules({"jitter": "5s"}, where="job"))
    assert schedule(often, "shop", instant(START), 100).cut
