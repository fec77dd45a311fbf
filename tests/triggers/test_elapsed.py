"""`every`, `at` and `calendar`."""

from datetime import UTC, date, datetime, time, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from tenure.errors import ConfigurationError
from tenure.triggers import at, calendar, every

START = datetime(2026, 1, 1, tzinfo=UTC)


def due(trigger, after: datetime = START, n: int = 3) -> list[str]:
    return [time.isoformat() for time in trigger.preview(n, after).times]


@pytest.mark.parametrize(
    "trigger",
    [
        every("90s"),
        every(90),
        every(timedelta(seconds=90)),
        every(seconds=90),
        every(minutes=1, seconds=30),
        every(minutes=1.5),
        every("1m 30s"),
    ],
)
def test_every_is_a_grid_from_1970(trigger):
    assert trigger == every("90s")
    assert due(trigger) == [f"2026-01-01T00:0{time}+00:00" for time in ("1:30", "3:00", "4:30")]


def test_weeks_and_days_count_from_a_thursday():
    assert due(every(weeks=1), n=2) == ["2026-01-08T00:00:00+00:00", "2026-01-15T00:00:00+00:00"]
    assert every(weeks=1) == every(days=7) == every(hours=168)


def test_an_anchor_moves_the_grid_in_both_directions():
    anchor = datetime(2026, 1, 1, 0, 7, tzinfo=ZoneInfo("Asia/Seoul"))
    trigger = every(minutes=10, anchor=anchor)
    assert due(trigger, START, 2) == ["2026-01-01T09:07:00+09:00", "2026-01-01T09:17:00+09:00"]
    assert due(trigger, datetime(1970, 1, 1, tzinfo=UTC), 1) == ["1970-01-01T09:07:00+09:00"]


def test_elapsed_time_does_not_care_for_clock_changes():
    trigger = every(hours=1, tz="America/New_York")
    assert due(trigger, datetime(2026, 11, 1, 4, tzinfo=UTC)) == [
        "2026-11-01T01:00:00-04:00",
        "2026-11-01T01:00:00-05:00",
        "2026-11-01T02:00:00-05:00",
    ]


def test_parts_of_a_second():
    assert due(every("250ms"), START, 2) == ["2026-01-01T00:00:00.250000+00:00", "2026-01-01T00:00:00.500000+00:00"]


@pytest.mark.parametrize(
    ("build", "part"),
    [
        (lambda: every(0), "more than zero"),
        (lambda: every("0s"), "more than zero"),
        (lambda: every(seconds=0), "more than zero"),
        (lambda: every(-5), "more than zero"),
        (lambda: every(timedelta(0)), "more than zero"),
        (lambda: every(hours=1, minutes=-60), "more than zero"),
        (lambda: every(1e-9), "less than a microsecond"),
        (lambda: every(1e20), "longer than 300 years"),
        (lambda: every(float("inf")), "finite"),
        (every, "no period"),
        (lambda: every("30s", minutes=1), "one of the two"),
        (lambda: every("20"), "no unit"),
        (lambda: every(True), "not a duration"),
        (lambda: every(minutes="5"), "minutes='5' is not a number"),
        (lambda: every("1m", anchor=datetime(2026, 1, 1)), "no time zone"),
        (lambda: every("1m", anchor="2026-01-01"), "is a str"),
        (lambda: every("1m", tz="Asia/Soul"), "Asia/Seoul"),
        (lambda: at(datetime(2026, 1, 1)), "no time zone"),
        (lambda: at("2026-01-01"), "is a str"),
        (lambda: calendar(start="2026-01-31", at="09:00"), "no step"),
        (lambda: calendar(days=1, months=1, start="2026-01-31", at="09:00"), "days and months"),
        (lambda: calendar(months=0, start="2026-01-31", at="09:00"), "from 1 to"),
        (lambda: calendar(months=1.5, start="2026-01-31", at="09:00"), "months=1.5"),
        (lambda: calendar(months=True, start="2026-01-31", at="09:00"), "months=True"),
        (lambda: calendar(months=1, start="2026-02-30", at="09:00"), "day is out of range"),
        (lambda: calendar(months=1, start=START, at="09:00"), "not a date"),
        (lambda: calendar(months=1, start="2026-01-31", at="9:00"), "'9:00'"),
        (lambda: calendar(months=1, start="2026-01-31", at="25:00"), "hour must be"),
        (lambda: calendar(months=1, start="2026-01-31", at=time(9, tzinfo=UTC)), "tz="),
        (lambda: calendar(months=1, start="2026-01-31", at="09:00", tz=timezone(timedelta(hours=9))), "no name"),
    ],
)
def test_refused(build, part):
    with pytest.raises(ConfigurationError) as refusal:
        build()
    assert part in str(refusal.value)


@pytest.mark.parametrize("trigger", [every("30s"), at(START), calendar(days=1, start="2026-01-01", at="09:00")])
def test_naive_datetimes_are_refused(trigger):
    for wrong in (datetime(2026, 1, 1), date(2026, 1, 1), "2026-01-01", 0, None):
        with pytest.raises(ConfigurationError, match=r"no time zone|is a"):
            trigger.next_after(wrong)


def test_at_is_due_once():
    trigger = at(datetime(2026, 6, 1, 12, tzinfo=ZoneInfo("Asia/Seoul")))
    assert due(trigger) == ["2026-06-01T12:00:00+09:00"]
    assert trigger.next_after(datetime(2026, 6, 1, 3, tzinfo=UTC)) is None
    assert trigger.explain() == "Once, at 2026-06-01 12:00:00 +0900, Asia/Seoul."


def test_at_knows_the_second_reading():
    second = datetime(2026, 11, 1, 1, 30, fold=1, tzinfo=ZoneInfo("America/New_York"))
    assert due(at(second)) == ["2026-11-01T01:30:00-05:00"]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ({"days": 10}, ["01-31", "02-10", "02-20"]),
        ({"weeks": 2}, ["01-31", "02-14", "02-28"]),
        ({"months": 1}, ["01-31", "03-31", "05-31"]),
        ({"months": 2}, ["01-31", "03-31", "05-31"]),
        ({"months": 3}, ["01-31", "07-31", "10-31"]),
    ],
)
def test_dates_that_do_not_exist_are_left_out(step, expected):
    trigger = calendar(**step, start="2026-01-31", at="09:00", tz="Asia/Seoul")
    assert due(trigger) == [f"2026-{day}T09:00:00+09:00" for day in expected]


def test_29_february():
    trigger = calendar(years=1, start=date(2024, 2, 29), at=time(9))
    assert due(trigger, n=2) == ["2028-02-29T09:00:00+00:00", "2032-02-29T09:00:00+00:00"]


def test_a_calendar_begins_on_its_first_date():
    trigger = calendar(months=1, start="2030-01-15", at="09:00")
    assert due(trigger, datetime(1980, 1, 1, tzinfo=UTC), 1) == ["2030-01-15T09:00:00+00:00"]
    assert due(calendar(days=1, start="2600-01-15", at="09:00", tz="Europe/Berlin"), n=1) == [
        "2600-01-15T09:00:00+01:00"
    ]


def test_a_calendar_in_clock_changes():
    gap = calendar(days=1, start="2026-03-08", at="02:30", tz="America/New_York")
    assert due(gap, n=2) == ["2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00"]
    fold = calendar(days=1, start="2026-11-01", at="01:30", tz="America/New_York")
    assert due(fold, n=2) == ["2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"]
    apia = calendar(days=1, start="2011-12-29", at="12:00", tz="Pacific/Apia")
    assert due(apia, datetime(2011, 12, 1, tzinfo=UTC), 2) == ["2011-12-29T12:00:00-10:00", "2011-12-31T12:00:00+14:00"]


@pytest.mark.parametrize(
    ("trigger", "words"),
    [
        (every("1h30m"), "Every 1 h 30 min of elapsed time, counted from 1970-01-01 00:00:00 UTC."),
        (every(days=1), "Every 24 h of elapsed time"),
        (every("250ms"), "Every 0.25 s of elapsed time"),
        (
            calendar(months=2, start="2026-01-31", at="09:00"),
            "Every 2 months from 2026-01-31 on, at 09:00, UTC. A month without a 31st is left out.",
        ),
        (
            calendar(days=1, start="2026-01-31", at="09:00:30", tz="Asia/Seoul"),
            "Every day from 2026-01-31 on, at 09:00:30, Asia/Seoul.",
        ),
    ],
)
def test_explained_in_words(trigger, words):
    assert words in trigger.explain()


def test_the_ends_of_time():
    for trigger in (
        every("30s"),
        every(days=100_000),
        calendar(days=1, start="0001-01-01", at="09:00"),
        at(datetime.max.replace(tzinfo=UTC)),
    ):
        for key in ("UTC", "Asia/Seoul", "America/New_York"):
            trigger.next_after(datetime.min.replace(tzinfo=ZoneInfo(key)))
            trigger.next_after(datetime.max.replace(tzinfo=ZoneInfo(key)))
