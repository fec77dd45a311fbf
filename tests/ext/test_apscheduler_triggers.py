"""Our triggers beside APScheduler's own: the same due times, wherever no clock is changed in between."""

from datetime import UTC, datetime, timedelta, timezone
from itertools import islice
from unittest import mock
from zoneinfo import ZoneInfo

import pytest
from apscheduler.triggers.calendarinterval import CalendarIntervalTrigger as TheirCalendarInterval
from apscheduler.triggers.combining import AndTrigger as TheirAnd
from apscheduler.triggers.combining import OrTrigger as TheirOr
from apscheduler.triggers.cron import CronTrigger as TheirCron
from apscheduler.triggers.date import DateTrigger as TheirDate
from apscheduler.triggers.interval import IntervalTrigger as TheirInterval
from dateutil.tz import gettz, tzoffset, tzutc
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.errors import ConfigurationError
from tenure.ext.apscheduler import (
    AndTrigger,
    CalendarIntervalTrigger,
    CronTrigger,
    DateTrigger,
    IntervalTrigger,
    OrTrigger,
    zones,
)
from tenure.ext.apscheduler.fields import RANGES
from tenure.ext.apscheduler.trigger_translation import LISTED, Starting, due_times, stored_trigger
from tenure.ext.apscheduler.triggers import understood
from tenure.triggers import base, from_json, zone
from tenure.triggers.zones import timeline

SEOUL, BERLIN = "Asia/Seoul", "Europe/Berlin"
NOON = datetime(2026, 6, 1, 12, 0, 30, tzinfo=ZoneInfo(BERLIN))


def values(name: str):
    """What people write into a field."""
    low, high = (2025, 2028) if name == "year" else RANGES[name]
    number = st.integers(low, high)
    span = st.tuples(number, number).map(sorted).map(lambda ends: f"{ends[0]}-{ends[1]}")
    several = st.lists(number, min_size=1, max_size=3).map(lambda some: ",".join(map(str, some)))
    ways = [st.just("*"), number, span, several]
    if name != "year":
        ways.append(st.integers(1, (high - low) // 2).map(lambda step: f"*/{step}"))
    ways += {
        "day": [st.sampled_from(["last", "2nd mon", "last fri", "1st sun,15", "5th wed", "last,3"])],
        "day_of_week": [st.sampled_from(["mon", "mon-fri", "SAT,SUN", "sun"])],
        "month": [st.sampled_from(["jan", "feb-apr", "dec"])],
    }.get(name, [])
    return st.one_of(ways)


def some_fields(*names: str):
    return st.fixed_dictionaries({}, optional={name: values(name) for name in names}).filter(bool)


INSTANTS = st.integers(0, 365 * 86400 - 1).map(
    lambda second: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
)


def changed(tz: str, since: datetime, until: datetime) -> bool:
    """Whether the clocks of the zone are changed in a span."""
    line = timeline(tz)
    return line.at(int(since.timestamp())) != line.at(int(until.timestamp()))


def both(words: dict, tz: str):
    """Their trigger and ours; None where both refuse, or where no such date ever comes."""
    try:
        theirs = TheirCron(**words, timezone=tz)
    except ValueError:
        with pytest.raises(ConfigurationError):
            CronTrigger(**words, timezone=tz)
        return None
    if not any(theirs.get_next_fire_time(None, datetime(year, 1, 1, tzinfo=UTC)) for year in (2024, 2026)):
        return None
    return theirs, CronTrigger(**words, timezone=tz)


@given(
    words=some_fields("month", "day", "day_of_week", "hour", "minute", "second"),
    tz=st.sampled_from([SEOUL, BERLIN]),
    now=INSTANTS,
)
@settings(max_examples=60, deadline=None)
def test_cron_is_due_when_theirs_is(words, tz, now):
    if (pair := both(words, tz)) is None:
        return
    theirs, ours = pair
    now = now.astimezone(ZoneInfo(tz))
    due, told = theirs.get_next_fire_time(None, now), ours.get_next_fire_time(None, now)
    for _ in range(20):
        if told is None or changed(tz, now, max(due or told, told)):
            return
        assert told.timestamp() == due.timestamp()
        assert ours.pure(now).next_after(told - timedelta(microseconds=1)) == told
        due, told = theirs.get_next_fire_time(due, due + timedelta(microseconds=1)), ours.get_next_fire_time(told, told)


@given(
    words=st.fixed_dictionaries(
        {},
        optional={name: values(name) for name in ("year", "day_of_week", "hour", "minute")}
        | {"week": st.integers(1, 52)},
    ).filter(lambda words: {"year", "week"} & words.keys()),
    now=INSTANTS,
)
@settings(max_examples=60, deadline=None)
def test_years_and_weeks_are_due_when_theirs_are(words, now):
    if (pair := both(words, SEOUL)) is None:
        return
    theirs, ours = pair
    due, told = theirs.get_next_fire_time(None, now), ours.get_next_fire_time(None, now)
    for _ in range(5):
        assert told == due
        if told is None:
            return
        due, told = theirs.get_next_fire_time(due, due + timedelta(microseconds=1)), ours.get_next_fire_time(told, told)


@pytest.mark.parametrize(
    ("tz", "now"),
    [
        ("America/Santiago", datetime(2026, 1, 2, tzinfo=UTC)),
        ("Africa/Cairo", datetime(2026, 7, 2, tzinfo=UTC)),
        ("Asia/Beirut", datetime(2026, 7, 2, tzinfo=UTC)),
        ("America/Asuncion", datetime(2023, 1, 2, tzinfo=UTC)),
    ],
)
def test_a_week_is_found_where_clocks_go_back_at_midnight(tz, now):
    due = CronTrigger(week="50", minute="5", timezone=tz).get_next_fire_time(None, now)
    assert (due.isocalendar().week, due.isocalendar().weekday, due.hour, due.minute) == (50, 1, 0, 5)
    assert due == TheirCron(week="50", minute="5", timezone=tz).get_next_fire_time(None, now)


def test_a_year_of_common_schedules():
    """Through all of a year in two zones; at the clock changes ours goes by Debian's rule and theirs by none."""
    start, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
    for tz in (SEOUL, BERLIN):
        for words in (
            {"hour": 3},
            {"hour": "*/6", "minute": 30},
            {"day_of_week": "mon-fri", "hour": "2-3"},
            {"day": "last", "hour": 23, "minute": 59},
            {"day": "1-7", "day_of_week": 0, "hour": 12},
            {"month": "*/3", "day": "2nd tue", "hour": 6},
        ):
            theirs, ours = both(words, tz)
            since = start.astimezone(ZoneInfo(tz))
            while (told := ours.get_next_fire_time(None, since)) < end:
                due = theirs.get_next_fire_time(None, since)
                same = told.timestamp() == due.timestamp()
                assert same or changed(tz, since, max(told, due)), f"{words} {tz}: {told}, theirs {due}"
                since = told.astimezone(UTC) + timedelta(seconds=1)


@pytest.mark.parametrize(
    ("words", "after", "theirs_says", "ours_says"),
    [
        ({"hour": 2, "minute": 30}, "2026-03-28T12:00+01:00", "2026-03-29T03:30+02:00", "2026-03-29T03:00+02:00"),
        ({"hour": "*/2"}, "2026-03-29T00:00+01:00", "2026-03-29T03:00+02:00", "2026-03-29T04:00+02:00"),
        ({"hour": 2, "minute": 30}, "2026-10-25T02:30+02:00", "2026-10-25T02:30+01:00", "2026-10-26T02:30+01:00"),
        ({"hour": "*/2"}, "2026-10-25T02:00+02:00", "2026-10-25T02:00+01:00", "2026-10-25T02:00+01:00"),
        ({"day": 1}, "2026-03-01T00:00+01:00", "2026-05-01T00:00+02:00", "2026-04-01T00:00+02:00"),
        (
            {"day_of_week": "mon", "minute": "5,23"},
            "2026-03-23T23:23+01:00",
            "2026-03-30T01:05+02:00",
            "2026-03-30T00:05+02:00",
        ),
    ],
)
def test_what_differs_at_clock_changes_is_what_the_page_says(words, after, theirs_says, ours_says):
    theirs, ours = both(words, BERLIN)
    before = datetime.fromisoformat(after).astimezone(ZoneInfo(BERLIN))
    now = before.astimezone(UTC) + timedelta(seconds=1)
    assert theirs.get_next_fire_time(before, now).timestamp() == datetime.fromisoformat(theirs_says).timestamp()
    assert ours.get_next_fire_time(before, now).timestamp() == datetime.fromisoformat(ours_says).timestamp()


def test_bounds_are_both_included():
    words = {"hour": "*", "start_date": "2026-06-01 15:00:00", "end_date": "2026-06-01 17:00:00"}
    theirs, ours = both(words, BERLIN)
    assert [due.hour for due in due_times(ours, NOON)] == [15, 16, 17]
    assert [due.hour for due in due_times(theirs, NOON)] == [15, 16, 17]


def test_their_triggers_are_taken_as_they_are():
    pairs = [
        (TheirCron(hour="*/2", day_of_week="mon-fri", timezone=SEOUL, jitter=7), "cron"),
        (TheirInterval(minutes=7, start_date=datetime(2026, 1, 1), timezone=SEOUL), "interval"),
        (TheirDate("2027-01-01 00:00:00", timezone=SEOUL), "date"),
        (TheirCalendarInterval(months=2, hour=9, start_date="2026-01-31", timezone=SEOUL), "calendar"),
        (TheirCalendarInterval(years=1, months=2, hour=9, start_date="2026-01-31", timezone=SEOUL), "calendar"),
        (TheirCalendarInterval(weeks=1, days=2, hour=9, start_date="2026-01-31", timezone=SEOUL), "calendar"),
        (TheirOr([TheirCron(hour=3, timezone=SEOUL), TheirCron(hour=4, timezone=SEOUL)]), "or"),
        (TheirAnd([TheirCron(day="*/2", timezone=SEOUL), TheirCron(day_of_week="mon", timezone=SEOUL)]), "and"),
    ]
    for theirs, kind in pairs:
        ours = understood(theirs)
        assert ours.jitter == getattr(theirs, "jitter", None)
        if ours.jitter:
            theirs.jitter = None
        if kind == "and":  # theirs does not return when it is told of a previous time
            continue
        assert (
            list(islice(due_times(ours, NOON), 5))
            == [due for due in islice(due_times(theirs, NOON), 30) if due >= NOON][:5]
        ), kind
        assert str(ours).startswith(kind)


def test_an_interval_without_a_start_is_the_same_in_every_process():
    first, second = IntervalTrigger(seconds=30, timezone="UTC"), understood(TheirInterval(seconds=30))
    assert first.get_next_fire_time(None, NOON) == NOON
    assert second.get_next_fire_time(None, NOON + timedelta(seconds=1)) == NOON + timedelta(seconds=30)


def test_an_interval_is_counted_from_its_start():
    trigger = IntervalTrigger(minutes=10, start_date=datetime(2026, 1, 1, 0, 3), timezone="UTC")
    now = datetime(2026, 6, 1, 12, tzinfo=UTC)
    assert trigger.get_next_fire_time(None, now) == datetime(2026, 6, 1, 12, 3, tzinfo=UTC)
    assert trigger.pure(now).next_after(now) == datetime(2026, 6, 1, 12, 3, tzinfo=UTC)


@pytest.mark.parametrize(
    "trigger",
    [
        CronTrigger(week=20, timezone=SEOUL),
        CronTrigger(hour=3, end_date="2026-06-09", timezone=SEOUL),
        IntervalTrigger(hours=1, start_date="2026-06-02 00:30:00", timezone=SEOUL),
        AndTrigger([CronTrigger(day="1st mon", timezone=SEOUL), CronTrigger(day="1-7", timezone=SEOUL)]),
        AndTrigger([IntervalTrigger(hours=2, timezone="UTC"), CronTrigger(day_of_week="sat,sun", timezone="UTC")]),
        OrTrigger([CronTrigger(year=2027, timezone=SEOUL), CronTrigger(hour=3, timezone=SEOUL)]),
        Starting(datetime(2026, 6, 1, 13, 7, tzinfo=UTC), IntervalTrigger(hours=1, timezone=SEOUL)),
        Starting(datetime(2026, 6, 1, 13, 7, tzinfo=UTC), CronTrigger(hour=3, timezone=SEOUL)),
    ],
)
def test_what_tenure_has_no_words_for_travels_as_a_list(trigger):
    found = stored_trigger(trigger, NOON)
    read, after, listed = from_json(found.trigger.to_json()), NOON - timedelta(microseconds=1), []
    while (due := read.next_after(after)) is not None:
        listed.append(after := due)
    assert listed == list(islice(due_times(trigger, NOON), LISTED))
    assert (found.write_on_at is None) == (len(listed) < LISTED)


CRONS = some_fields("month", "day", "day_of_week", "hour", "minute")


@given(words=st.tuples(CRONS, CRONS), now=INSTANTS)
@settings(max_examples=30, deadline=None)
def test_cron_triggers_that_must_all_be_due_are_one_rule_where_fields_can_say_it(words, now):
    """Beside the search through the due times of each part, where no clock is ever changed."""
    pairs = [both(one, SEOUL) for one in words]
    if None in pairs:
        return
    try:
        together = AndTrigger([ours for _, ours in pairs])
    except ConfigurationError:  # the 30th of February
        return
    if (rule := together.pure(now)) is None:
        return
    together._cron = None
    with mock.patch.object(base, "STEPS", 200):
        try:
            searched = list(islice(due_times(together, now), 3))
        except ConfigurationError:  # too far apart to be found by a search
            return
    found, after = [], now - timedelta(microseconds=1)
    while len(found) < len(searched) and (due := rule.next_after(after)) is not None:
        found.append(after := due)
    assert found == searched


@pytest.mark.parametrize("year", [None, 2026])
def test_parts_that_never_meet_are_refused_within_one_budget_of_steps(year):
    """`day_of_week` alone is 00:00 on these days, and never 03:00."""
    parts = [CronTrigger(hour=3, year=year, timezone=SEOUL), CronTrigger(day_of_week="sat,sun", timezone=SEOUL)]
    for trigger in (AndTrigger(parts), AndTrigger([AndTrigger(parts), IntervalTrigger(hours=1, timezone=SEOUL)])):
        with mock.patch.object(base.Steps, "take", autospec=True, side_effect=base.Steps.take) as take:
            if year:  # after this year there is nothing to search
                assert trigger.get_next_fire_time(None, NOON) is None
            else:
                with pytest.raises(ConfigurationError, match=r"in 10,000 steps .* Write hour='\*'"):
                    trigger.get_next_fire_time(None, NOON)
        assert take.call_count <= base.STEPS


def test_a_start_that_has_passed_is_said_in_one_rule():
    trigger = IntervalTrigger(hours=1, start_date="2026-06-02 00:30:00", timezone=SEOUL)
    assert stored_trigger(trigger, NOON).write_on_at is not None
    later = stored_trigger(trigger, NOON + timedelta(days=2))
    assert later.write_on_at is None
    assert later.trigger.next_after(NOON + timedelta(days=2)) == NOON.replace(minute=30, second=0) + timedelta(days=2)


def test_a_date():
    assert DateTrigger("2026-12-31 09:00:00", timezone=SEOUL).run_date == datetime(2026, 12, 31, tzinfo=UTC)
    assert DateTrigger(datetime(2026, 12, 31, 9), timezone=SEOUL).run_date == datetime(2026, 12, 31, tzinfo=UTC)
    assert DateTrigger("2026-12-31 09:00:00+01:00", timezone=SEOUL).run_date == datetime(2026, 12, 31, 8, tzinfo=UTC)


def test_the_fields_of_a_cron_trigger_are_listed_as_theirs_are():
    words = {"day_of_week": "mon-fri", "hour": "3", "minute": "*/5"}
    theirs, ours = both(words, SEOUL)
    shown = [[(field.name, str(field), field.is_default) for field in trigger.fields] for trigger in (theirs, ours)]
    assert shown[0] == shown[1]


def test_the_start_of_an_interval_is_a_due_time_of_its_grid():
    trigger = IntervalTrigger(minutes=7, timezone=SEOUL)
    copy = IntervalTrigger(minutes=7, start_date=trigger.start_date, timezone=SEOUL)
    since = trigger.start_date
    assert since > datetime.now(UTC)
    assert list(islice(due_times(copy, since), 3)) == list(islice(due_times(trigger, since), 3))
    assert trigger.pure(since - timedelta(hours=1)) is not None, "it is no start to come"


def test_due_times_carry_the_zone_object_that_was_given():
    """In the hour that comes twice, datetimes of two zone objects are never equal."""
    berlin = ZoneInfo("Europe/Berlin")
    second = datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=berlin)
    trigger = CronTrigger(minute=30, timezone=berlin)
    assert trigger.get_next_fire_time(None, datetime(2026, 10, 25, 1, 5, tzinfo=UTC)) == second
    assert IntervalTrigger(minutes=30, timezone=berlin).get_next_fire_time(None, second) == second
    assert DateTrigger(second).run_date == second
    assert trigger.timezone is berlin


@pytest.mark.parametrize(
    ("tz", "name"),
    [
        (timezone(timedelta(hours=9)), "Etc/GMT-9"),
        (timezone(timedelta(hours=5, minutes=30)), "Asia/Kolkata"),
        (timezone(-timedelta(hours=9, minutes=30)), "Pacific/Marquesas"),
        (tzoffset("IST", 19800), "Asia/Kolkata"),
        (gettz("Europe/Berlin"), "Europe/Berlin"),
        (tzutc(), "UTC"),
        (UTC, "UTC"),
    ],
    ids=str,
)
def test_zones_of_other_libraries(tz, name):
    trigger = CronTrigger(hour=3, timezone=tz)
    assert trigger.tz == name
    due = trigger.get_next_fire_time(None, NOON)
    assert (due.hour, due.utcoffset()) == (3, due.replace(tzinfo=tz).utcoffset())


@pytest.mark.parametrize(("offset", "name"), zones._OFFSETS.items())
def test_a_zone_that_stands_for_an_offset_has_no_other(offset, name):
    shown = {datetime(2030, month, 1, tzinfo=zone(name)).isoformat()[-6:] for month in range(1, 13)}
    assert shown == {offset}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            lambda: CalendarIntervalTrigger(days=1, start_date="2026-01-02", end_date="2026-01-01"),
            "end_date cannot be earlier",
        ),
        (lambda: CronTrigger(hour=3, timezone=timezone(-timedelta(hours=3, minutes=30))), "-03:30"),
        (lambda: CronTrigger(day_of_week="fri-mon"), "runs backwards"),
        (lambda: CronTrigger(hour=24), "0 to 23"),
        (lambda: CronTrigger(minute="*/0"), "a step of 0"),
        (lambda: CronTrigger(day="2nd moon"), "'moon'"),
        (lambda: CronTrigger(month=2, day=30), "no such date ever comes"),
        (lambda: CronTrigger.from_crontab("* * *"), "3 fields"),
        (lambda: CronTrigger(hour=3, timezone="Mars/Phobos"), "Mars/Phobos"),
        (lambda: DateTrigger("tomorrow"), "'tomorrow'"),
        (lambda: CalendarIntervalTrigger(months=1), "start_date"),
        (lambda: CalendarIntervalTrigger(months=1, days=2, start_date="2026-01-01"), "years= and months=, or"),
        (lambda: understood(5), "is an int"),
    ],
)
def test_what_is_wrong_is_named(wrong, said):
    with pytest.raises(ConfigurationError, match=said.replace("*", r"\*")):
        wrong()
