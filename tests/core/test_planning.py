"""Planning: every due time becomes a run or is counted in a row that stands for several; and the rule for those that
were missed."""

from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.core import planning
from tenure.core.messages import MissedJob, MissedRun, Unplanned
from tenure.core.planning import ahead, plan, reading_of, resumed_at, retry_in, settle
from tenure.core.records import MISSED_LIMIT, MISSED_WINDOW, ON_TIME, Rules, RunState
from tenure.errors import ConfigurationError
from tenure.triggers import at, cron, every
from tenure.triggers.zones import timeline
from tenure.util.instants import instant, moment

NOW = datetime(2026, 3, 5, 12, 0, 30, tzinfo=UTC).timestamp()
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
MINUTELY = cron("* * * * *")


def job(next_due, rules=None, **more):
    return Unplanned(1, "report", 4, next_due, "", rules or Rules(), **more)


def planned(next_due, trigger=MINUTELY, rules=None, *, horizon=10.0, **more):
    return plan(job(next_due, rules), trigger, application="app", now=NOW, horizon=NOW + horizon, **more)


def due_times(trigger, since, until):
    """All of them, as the trigger says it itself."""
    found, due = [], trigger.next_after(moment(since) - timedelta(microseconds=1))
    while due is not None and instant(due) <= until:
        found.append(instant(due))
        due = trigger.next_after(due)
    return found


# Instants


@settings(deadline=None)
@given(st.datetimes(datetime(1900, 1, 1), datetime(2240, 1, 1), timezones=st.just(UTC)))
def test_datetimes_survive_as_instants_to_the_microsecond(when):
    assert moment(instant(when)) == when
    assert instant(moment(instant(when))) == instant(when)


def test_an_instant_is_shown_in_a_zone():
    shown = moment(0.5, ZoneInfo("Asia/Seoul"))
    assert shown.isoformat() == "1970-01-01T09:00:00.500000+09:00"
    assert instant(shown) == 0.5
    assert instant(datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))) == 0.0


def test_naive_datetimes_and_absurd_instants_are_refused():
    with pytest.raises(ConfigurationError, match="no time zone"):
        instant(datetime(2026, 1, 1))
    with pytest.raises(ConfigurationError, match="calendar"):
        moment(1e300)


# What is ahead


def test_due_times_up_to_the_horizon_are_planned_and_the_next_is_remembered():
    start = NOW + 30
    result = planned(start, horizon=30 + 2 * MINUTE)
    assert [run.scheduled_for for run in result.runs] == [start, start + MINUTE, start + 2 * MINUTE]
    assert all(run.state is RunState.PENDING and run.due_at == run.scheduled_for for run in result.runs)
    assert all(run.expires_at == run.due_at + ON_TIME for run in result.runs)
    assert (result.next_due, result.then_due) == (start, start + 3 * MINUTE)
    assert (result.id, result.generation) == (1, 4)


def test_nothing_is_planned_that_is_due_after_the_horizon_or_never_or_paused():
    assert planned(NOW + 30, horizon=10) is None
    assert planned(None) is None
    paused = job(NOW, resumes=True)
    assert plan(paused, MINUTELY, application="app", now=NOW, horizon=NOW + 60) is None


def test_the_last_due_time_leaves_nothing_to_come():
    result = planned(NOW + 5, at(moment(NOW + 5)))
    assert len(result.runs) == 1
    assert result.then_due is None


def test_grace_is_how_long_a_run_may_wait():
    (run,) = planned(NOW + 5, at(moment(NOW + 5)), Rules(grace=7.0)).runs
    assert run.expires_at == NOW + 12


def test_spread_and_jitter_shift_the_start_and_never_the_due_time():
    rules = Rules(spread=20.0, jitter=10.0)
    runs = planned(NOW + 30, rules=rules, horizon=30 * MINUTE).runs
    assert [run.scheduled_for for run in runs] == due_times(MINUTELY, NOW + 30, NOW + 30 * MINUTE)
    shifts = [run.due_at - run.scheduled_for for run in runs]
    assert all(0 <= shift < 30 for shift in shifts)
    assert len(set(shifts)) == len(shifts)
    assert max(shifts) - min(shifts) < 10
    assert runs == planned(NOW + 30, rules=rules, horizon=30 * MINUTE).runs


def test_a_next_due_that_the_zone_rules_moved_stands_for_the_first_after_it():
    result = planned(NOW + 17, horizon=2 * MINUTE)
    assert [run.scheduled_for for run in result.runs] == [NOW + 30, NOW + 90]
    assert result.next_due == NOW + 17


def test_what_counts_from_now_on_has_no_past():
    next_due, runs = ahead(MINUTELY, Rules(), application="app", name="report", now=NOW, horizon=NOW + 40)
    assert [run.scheduled_for for run in runs] == [NOW + 30]
    assert next_due == NOW + 90
    assert ahead(at(moment(NOW)), Rules(), application="app", name="report", now=NOW, horizon=NOW + 40) == (None, ())
    assert MINUTELY.following(NOW + 30) == NOW + 90
    assert at(moment(NOW)).following(NOW) is None


# Other zone rules


def as_if(trigger, zone):
    """The trigger by rules that another release has: those of another zone."""
    other = cron(trigger.expr, trigger.tz)
    object.__setattr__(other, "line", timeline(zone))
    return other


BERLIN = cron("0 9 * * *", "Europe/Berlin")
EARLIER = as_if(BERLIN, "Europe/Helsinki")  # 09:00 comes an hour sooner
MORNING = datetime(2026, 3, 5, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("old", "new", "at_hour", "next_hour", "what"),
    [
        (BERLIN, EARLIER, 6.5, 7, "it comes an hour sooner"),
        (BERLIN, EARLIER, 7.5, 7, "it would have come already and has not: it is late, and not lost"),
        (BERLIN, EARLIER, 8.5, 24 + 7, "it has run at 8:00 by the old rules"),
        (EARLIER, BERLIN, 6.5, 8, "it comes an hour later"),
        (EARLIER, BERLIN, 7.5, 24 + 8, "it has run at 7:00 by the old rules, and does not run again at 8:00"),
        (EARLIER, BERLIN, 8.5, 24 + 8, "it has run"),
    ],
)
def test_a_local_time_runs_once_whatever_zone_rules_say_when_it_is(old, new, at_hour, next_hour, what):
    now = MORNING + at_hour * HOUR
    next_due = old.following(now)
    reading = reading_of(old, next_due)
    assert resumed_at(new, next_due, reading, now) == MORNING + next_hour * HOUR, what


def test_what_follows_the_wall_clock_goes_on_by_instants():
    quarterly, sooner = (
        cron("*/15 * * * *", "Europe/Berlin"),
        as_if(cron("*/15 * * * *", "Europe/Berlin"), "Europe/Helsinki"),
    )
    next_due = quarterly.following(NOW)
    reading = reading_of(quarterly, next_due)
    assert reading.endswith("@")
    assert resumed_at(sooner, next_due, reading, NOW) == next_due
    assert resumed_at(sooner, next_due - HOUR, reading, NOW) == next_due - HOUR, (
        "what was not planned yet is not left out"
    )


def test_a_reading_that_no_clock_shows_stands_for_the_end_of_the_gap():
    trigger = cron("30 2 * * *", "Europe/Berlin")
    change = datetime(2026, 3, 29, 1, tzinfo=UTC).timestamp()
    due = trigger.following(change - HOUR)
    assert due == change, "02:30 does not exist: it runs at 03:00"
    assert resumed_at(trigger, due, reading_of(trigger, due), due - HOUR) == due
    assert resumed_at(as_if(trigger, "Africa/Lagos"), due, reading_of(trigger, due), due - HOUR) == change + HOUR / 2


def test_zone_rules_do_not_matter_to_most_triggers():
    for trigger in (every("1s"), at(moment(NOW)), cron("0 9 * * *", "UTC"), MINUTELY):
        assert reading_of(trigger, NOW) is None
    assert reading_of(BERLIN | every("1h"), BERLIN.following(NOW)) is not None


# A long absence


def walked(next_due, trigger, rules):
    """As one who counts nothing and walks to the end."""
    said = {"following": trigger.following, "reading": trigger.reading, "count": lambda *_: None}
    plain = type("Walked", (), {"zoned": trigger.zoned, **{name: staticmethod(does) for name, does in said.items()}})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "SLICE", 10**9)
        return planned(next_due, plain, rules, steps=10**9)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(
        [
            every(seconds=7),
            every(seconds=0.25),
            every(minutes=11, anchor=datetime(2026, 1, 1, 0, 0, 0, 250_000, tzinfo=UTC)),
            cron("* * * * *", "Europe/Berlin"),
            cron("*/5 8-17 * * MON-FRI", "America/New_York"),
            cron("30 2 * * *", "Europe/Berlin"),
            cron("0,30 */10 2,3 1,15 * *", "Asia/Seoul"),
        ]
    ),
    st.floats(min_value=0.0, max_value=40 * HOUR),
    st.sampled_from([Rules(), Rules(grace=3.0), Rules(grace=5 * HOUR), Rules(spread=300.0, jitter=200.0)]),
)
def test_what_is_counted_is_what_a_walk_finds(trigger, absent, rules):
    start = trigger.following(NOW - absent)
    assert planned(start, trigger, rules, steps=10**9) == walked(start, trigger, rules)


@pytest.mark.parametrize(
    ("trigger", "days"),
    [(every(seconds=1), 365), (every(seconds=0.01), 30), (cron("* * * * *", "Europe/Berlin"), 3650)],
)
def test_a_year_of_absence_is_counted_at_one_visit(trigger, days):
    start = trigger.following(NOW - days * DAY)
    result = planned(start, trigger)
    skipped = result.runs[0]
    assert skipped.count == trigger.count(start, skipped.until) + 1
    assert trigger.following(skipped.until) == result.runs[1].scheduled_for
    assert result.then_due > NOW
    assert len([run for run in result.runs if run.expires_at and run.expires_at <= NOW]) == MISSED_LIMIT


def test_a_trigger_that_cannot_be_counted_is_walked_in_slices():
    trigger = cron("* * * * *") | every(seconds=45)
    due, counted = trigger.following(NOW - 3 * DAY), 0
    while due < NOW:
        result = planned(due, trigger)
        counted += sum(run.count for run in result.runs if run.scheduled_for < NOW - 1)
        assert sum(run.count for run in result.runs) <= planning.SLICE + MISSED_LIMIT + 10
        due = result.then_due
    assert counted == len(due_times(trigger, trigger.following(NOW - 3 * DAY), NOW - 1))


def test_no_row_stands_for_more_than_it_can_hold():
    trigger = every(seconds=0.0001)
    start = trigger.following(NOW - 30 * DAY)
    result = planned(start, trigger)
    assert result.runs[0].count <= 2**31 - 1
    assert start < result.then_due < NOW


# What was missed


def test_a_late_due_time_is_in_time_for_a_minute():
    result = planned(NOW - 30)
    assert [run.expires_at > NOW for run in result.runs] == [True]
    result = planned(NOW - 90)
    assert [run.expires_at > NOW for run in result.runs] == [False, True]


def test_missed_due_times_are_left_to_the_rule_for_all():
    result = planned(NOW - 30 - HOUR)
    assert len(result.runs) == 61
    assert all(run.state is RunState.PENDING for run in result.runs)


def test_what_is_older_than_the_newest_hundred_is_one_row_with_a_count():
    start = NOW - 30 - 3 * HOUR
    skipped, *rest = planned(start).runs
    assert (skipped.state, skipped.reason, skipped.expires_at) == (RunState.SKIPPED, "missed", None)
    assert len(rest) == MISSED_LIMIT + 1
    assert skipped.count == 180 - MISSED_LIMIT
    assert (skipped.scheduled_for, skipped.until) == (start, rest[0].scheduled_for - MINUTE)


def test_what_is_older_than_a_day_is_too():
    hourly = every("1h", anchor=moment(NOW))
    skipped, *rest = planned(NOW - 3 * DAY, hourly).runs
    assert skipped.count == 2 * 24
    assert skipped.until == NOW - DAY - HOUR
    assert rest[0].scheduled_for == NOW - DAY


def test_with_a_long_grace_nothing_is_missed():
    runs = planned(NOW - 30 - 5 * HOUR, rules=Rules(grace=6 * HOUR)).runs
    assert len(runs) == 301
    assert all(run.expires_at > NOW for run in runs)


def test_a_walk_that_is_too_long_goes_on_where_it_stopped_and_loses_nothing():
    secondly = every("1s") | every("2s")  # which cannot be counted
    start = NOW - 2 * HOUR
    at_once = planned(start, every("1s"), horizon=0).runs
    next_due, runs, walks = start, [], 0
    while next_due <= NOW:
        result = planned(next_due, secondly, horizon=0, steps=1000)
        assert result.then_due > next_due
        runs += result.runs
        next_due, walks = result.then_due, walks + 1
    assert walks > 7
    skipped = [run for run in runs if run.state is RunState.SKIPPED]
    assert sum(run.count for run in skipped) == at_once[0].count
    assert all(this.until + 1 == after.scheduled_for for this, after in pairwise(skipped))
    assert tuple(run for run in runs if run.state is RunState.PENDING) == at_once[1:]


triggers = st.sampled_from(
    [
        MINUTELY,
        every("7s"),
        every("11m"),
        cron("*/5 2 * * *", tz="Europe/Berlin"),
        at(moment(NOW - 100)),
        cron("0 * * * 4"),
    ]
)
durations = st.sampled_from([0.0, 1.0, 45.0, 500.0])


shifts = st.builds(Rules, spread=durations, jitter=durations, grace=st.sampled_from([None, 0.5, 90.0, 5000.0]))


@settings(deadline=None)
@given(triggers, st.integers(0, 200_000), st.integers(0, 300), shifts)
def test_every_due_time_is_accounted_for(trigger, back, horizon, rules):
    """Each is one run, or counted in a row whose span contains it; and no row claims more than there were."""
    start = trigger.following(NOW - back)
    if start is None or start > NOW + horizon:
        return
    result = planned(start, trigger, rules, horizon=horizon, steps=10**9)
    expected = due_times(trigger, start, NOW + horizon)
    assert result.then_due == trigger.following(expected[-1])
    alone = [run for run in result.runs if run.state is RunState.PENDING]
    heaps = [run for run in result.runs if run.state is RunState.SKIPPED]
    assert len(heaps) <= 1
    rest = sorted(set(expected) - {run.scheduled_for for run in alone})
    assert len(rest) + len(alone) == len(expected)
    assert [(heap.scheduled_for, heap.until, heap.count) for heap in heaps] == (
        [(rest[0], rest[-1], len(rest))] if rest else []
    )
    missed = [run for run in alone if run.expires_at <= NOW]
    assert len(missed) <= MISSED_LIMIT
    assert all(run.scheduled_for >= NOW - MISSED_WINDOW for run in missed)
    if len(missed) < MISSED_LIMIT:
        assert all(due < NOW - MISSED_WINDOW for due in rest)


# The rule


def missed(policy, *ages, in_time=False):
    runs = tuple(MissedRun(i, NOW - age) for i, age in enumerate(ages))
    return settle(MissedJob(1, "report", 4, Rules(missed=policy), runs, in_time), now=NOW)


def test_skip_makes_up_for_nothing():
    verdict = missed("skip", 300, 200, 100)
    assert (verdict.make_up, verdict.skip, verdict.reason) == ((), (0, 1, 2), "missed")


def test_latest_makes_up_for_the_newest():
    assert missed("latest", 300, 200, 100).make_up == (2,)
    assert missed("latest", 300, 200, 100).skip == (0, 1)


def test_latest_makes_up_for_nothing_when_a_later_one_is_in_time():
    assert missed("latest", 300, 200, in_time=True).make_up == ()
    assert missed("all", 300, 200, in_time=True).make_up == (0, 1)


def test_all_makes_up_for_the_newest_hundred():
    verdict = missed("all", *range(1000, 880, -1))
    assert verdict.make_up == tuple(range(20, 120))
    assert verdict.skip == tuple(range(20))


@pytest.mark.parametrize("policy", ["latest", "all"])
def test_nothing_older_than_a_day_is_made_up_for(policy):
    assert missed(policy, 3 * DAY, 2 * DAY).make_up == ()
    assert missed(policy, 3 * DAY, 2 * DAY, DAY).make_up == (2,)


# Retries


def test_pauses_double_up_to_the_longest():
    rules = Rules(retries=100, backoff=(2.0, 30.0))
    assert [retry_in(rules, n, 0.5) for n in (1, 2, 3, 4, 5, 6, 100)] == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def test_no_retry_is_left_after_as_many_failures():
    assert retry_in(Rules(), 1, 0.5) is None
    assert retry_in(Rules(retries=2), 2, 0.5) is not None
    assert retry_in(Rules(retries=2), 3, 0.5) is None


@settings(deadline=None)
@given(st.floats(0, 1, exclude_max=True))
def test_a_pause_varies_by_a_tenth(chance):
    assert 9.0 <= retry_in(Rules(retries=1, backoff=(10.0, 10.0)), 1, chance) <= 11.0
