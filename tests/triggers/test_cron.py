"""Every rule of the cron trigger, each with the case that shows it."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tenure.errors import ConfigurationError
from tenure.triggers import cron, from_json

NEW_YORK = ZoneInfo("America/New_York")


def due(expr: str, after: str, n: int = 3, tz: str | None = None) -> list[str]:
    """The next due times, as the clocks show them: '01-31 09:00' or, where the offset matters, '11-01 01:30-05:00'."""
    trigger, found = cron(expr, tz), []
    t: datetime | None = datetime.fromisoformat(after)
    for _ in range(n):
        assert t is not None
        t = trigger.next_after(t)
        found.append("never" if t is None else f"{t:%Y-%m-%d %H:%M}" + (f"{t:%z}" if tz else ""))
        if t is None:
            break
    return found


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ("30 2 * * *", ["2026-01-01 02:30", "2026-01-02 02:30", "2026-01-03 02:30"]),
        ("*/20 5 * * *", ["2026-01-01 05:00", "2026-01-01 05:20", "2026-01-01 05:40"]),
        ("5-15/5 0 * * *", ["2026-01-01 00:05", "2026-01-01 00:10", "2026-01-01 00:15"]),
        ("0 0 1,15 * *", ["2026-01-15 00:00", "2026-02-01 00:00", "2026-02-15 00:00"]),
        ("0 0 1 jan,JUL *", ["2026-07-01 00:00", "2027-01-01 00:00", "2027-07-01 00:00"]),
        ("0 0 * * mon-Wed", ["2026-01-05 00:00", "2026-01-06 00:00", "2026-01-07 00:00"]),
        ("0 0 * * 0", ["2026-01-04 00:00", "2026-01-11 00:00", "2026-01-18 00:00"]),
        ("0 0 * * 7", ["2026-01-04 00:00", "2026-01-11 00:00", "2026-01-18 00:00"]),
        ("0 0 * * 5-7", ["2026-01-02 00:00", "2026-01-03 00:00", "2026-01-04 00:00"]),
        ("0 0 13 * 5", ["2026-01-02 00:00", "2026-01-09 00:00", "2026-01-13 00:00"]),  # either
        ("0 0 */13 * 5", ["2026-02-27 00:00", "2026-03-27 00:00", "2026-05-01 00:00"]),  # both: 1, 14, 27 and a Friday
        ("0 0 13 * */5", ["2026-02-13 00:00", "2026-03-13 00:00", "2026-09-13 00:00"]),  # both: Sunday or Friday
        ("0 0 30 2 1", ["2026-02-02 00:00", "2026-02-09 00:00", "2026-02-16 00:00"]),
        ("0 0 L * *", ["2026-01-31 00:00", "2026-02-28 00:00", "2026-03-31 00:00"]),
        ("0 0 LW * *", ["2026-01-30 00:00", "2026-02-27 00:00", "2026-03-31 00:00"]),
        ("0 0 1,l * *", ["2026-01-31 00:00", "2026-02-01 00:00", "2026-02-28 00:00"]),
        ("0 0 * * 5L", ["2026-01-30 00:00", "2026-02-27 00:00", "2026-03-27 00:00"]),
        ("0 0 * * MON#2", ["2026-01-12 00:00", "2026-02-09 00:00", "2026-03-09 00:00"]),
        ("0 0 * * 7#1", ["2026-01-04 00:00", "2026-02-01 00:00", "2026-03-01 00:00"]),
        ("0 0 * 2 mon#5", ["2044-02-29 00:00", "2072-02-29 00:00", "2112-02-29 00:00"]),
        ("0 0 29 2 *", ["2028-02-29 00:00", "2032-02-29 00:00", "2036-02-29 00:00"]),
        ("*/90 3 * * *", ["2026-01-01 03:00", "2026-01-02 03:00", "2026-01-03 03:00"]),
        ("05 007 * * *", ["2026-01-01 07:05", "2026-01-02 07:05", "2026-01-03 07:05"]),
        ("@yearly", ["2027-01-01 00:00", "2028-01-01 00:00", "2029-01-01 00:00"]),
        ("@Annually", ["2027-01-01 00:00", "2028-01-01 00:00", "2029-01-01 00:00"]),
        ("@monthly", ["2026-02-01 00:00", "2026-03-01 00:00", "2026-04-01 00:00"]),
        ("@weekly", ["2026-01-04 00:00", "2026-01-11 00:00", "2026-01-18 00:00"]),
        ("@daily", ["2026-01-02 00:00", "2026-01-03 00:00", "2026-01-04 00:00"]),
        ("@midnight", ["2026-01-02 00:00", "2026-01-03 00:00", "2026-01-04 00:00"]),
        ("@hourly", ["2026-01-01 01:00", "2026-01-01 02:00", "2026-01-01 03:00"]),
    ],
)
def test_the_language(expr, expected):
    assert due(expr, "2026-01-01T00:00:00Z") == expected


def test_seconds_come_first():
    trigger = cron("10,40 59 23 * * *")
    first = trigger.next_after(datetime(2026, 1, 1, 23, 59, 10, tzinfo=UTC))
    assert first == datetime(2026, 1, 1, 23, 59, 40, tzinfo=UTC)
    assert trigger.next_after(first) == datetime(2026, 1, 2, 23, 59, 10, tzinfo=UTC)
    assert cron("* * * * * *").next_after(datetime(2026, 1, 1, 0, 0, 59, 999_999, tzinfo=UTC)).second == 0


def test_a_due_time_is_strictly_after_and_in_whole_seconds():
    trigger = cron("0 0 * * *")
    midnight = datetime(2026, 1, 1, tzinfo=UTC)
    assert trigger.next_after(midnight - timedelta(microseconds=1)) == midnight
    assert trigger.next_after(midnight) == midnight + timedelta(days=1)
    assert trigger.next_after(midnight + timedelta(microseconds=1)) == midnight + timedelta(days=1)


GAP, FOLD = "2026-03-08T00:00-05:00", "2026-11-01T00:00-04:00"


@pytest.mark.parametrize(
    ("expr", "after", "expected"),
    [
        ("30 2 * * *", GAP, ["2026-03-08 03:00-0400", "2026-03-09 02:30-0400"]),
        ("0,30 2 * * *", GAP, ["2026-03-08 03:00-0400", "2026-03-09 02:00-0400"]),  # two in the gap, one run
        ("0 2,3 * * *", GAP, ["2026-03-08 03:00-0400", "2026-03-09 02:00-0400"]),  # one in the gap, one at its end
        ("0 30 2 * * *", GAP, ["2026-03-08 03:00-0400", "2026-03-09 02:30-0400"]),  # seconds do not change the manner
        ("*/30 2 * * *", GAP, ["2026-03-09 02:00-0400", "2026-03-09 02:30-0400"]),
        ("30 * * * *", "2026-03-08T01:00-05:00", ["2026-03-08 01:30-0500", "2026-03-08 03:30-0400"]),
        ("30 1 * * *", FOLD, ["2026-11-01 01:30-0400", "2026-11-02 01:30-0500"]),
        ("0,30 1 * * *", FOLD, ["2026-11-01 01:00-0400", "2026-11-01 01:30-0400", "2026-11-02 01:00-0500"]),
        (
            "30 */1 * * *",
            "2026-11-01T01:00-04:00",
            ["2026-11-01 01:30-0400", "2026-11-01 01:30-0500", "2026-11-01 02:30-0500"],
        ),
        (
            "*/30 1 * * *",
            "2026-11-01T01:00-04:00",
            ["2026-11-01 01:30-0400", "2026-11-01 01:00-0500", "2026-11-01 01:30-0500"],
        ),
        ("30 1 * * *", "2026-11-01T01:10-05:00", ["2026-11-02 01:30-0500"]),  # started in the second reading
        ("0 0-23/2 * * *", GAP, ["2026-03-08 03:00-0400", "2026-03-08 04:00-0400"]),
        ("0 */2 * * *", GAP, ["2026-03-08 04:00-0400", "2026-03-08 06:00-0400"]),
    ],
)
def test_clock_changes(expr, after, expected):
    assert due(expr, after, len(expected), "America/New_York") == expected


@pytest.mark.parametrize(
    ("key", "expr", "after", "expected"),
    [
        ("Pacific/Apia", "0 12 * * *", "2011-12-29T00:00-10:00", ["2011-12-29 12:00-1000", "2011-12-31 12:00+1400"]),
        ("Pacific/Apia", "0 12 30 12 *", "2011-12-01T00:00-10:00", ["2012-12-30 12:00+1400"]),
        ("Antarctica/Casey", "30 2 * * *", "2009-10-17T12:00+08:00", ["2009-10-19 02:30+1100"]),  # 02:00 to 05:00
        (
            "Antarctica/Casey",
            "30 0 * * *",
            "2010-03-05T00:00+11:00",
            ["2010-03-05 00:30+1100", "2010-03-05 00:30+0800"],
        ),
        (
            "Antarctica/Casey",
            "30 23 * * *",
            "2010-03-04T12:00+11:00",
            ["2010-03-04 23:30+1100", "2010-03-04 23:30+0800"],
        ),
        ("Antarctica/Troll", "30 1,2 * * *", "2026-03-29T00:00Z", ["2026-03-29 03:00+0200", "2026-03-30 01:30+0200"]),
        ("Australia/Lord_Howe", "0 */12 * * *", "2026-10-04T00:00+10:30", ["2026-10-04 12:00+1100"]),
        ("Australia/Lord_Howe", "15 2 * * *", "2026-10-04T00:00+10:30", ["2026-10-04 02:30+1100"]),
        ("America/Caracas", "0 * * * *", "2016-05-01T02:10-04:30", ["2016-05-01 03:00-0400"]),
        (
            "America/St_Johns",
            "0 */2 * * *",
            "2006-10-28T22:00-02:30",
            ["2006-10-29 00:00-0230", "2006-10-29 00:00-0330"],
        ),
        ("America/Santiago", "0 0 * * *", "2026-09-05T12:00-04:00", ["2026-09-06 01:00-0300", "2026-09-07 00:00-0300"]),
    ],
)
def test_odd_zones(key, expr, after, expected):
    assert due(expr, after, len(expected), key) == expected


def test_it_may_start_at_a_reading_that_does_not_exist():
    imaginary = datetime(2026, 3, 8, 2, 30, tzinfo=NEW_YORK)  # python reads it with the offset before: 03:30 EDT
    assert cron("0 * * * *", NEW_YORK).next_after(imaginary).isoformat() == "2026-03-08T04:00:00-04:00"


def test_a_job_that_always_falls_into_the_gap_is_never_due():
    trigger = cron("* 2 * 3 SUN#2", "America/New_York")
    assert trigger.next_after(datetime(2026, 1, 1, tzinfo=UTC)) is None


def test_the_ends_of_the_calendar():
    for key in ("UTC", "Asia/Seoul", "America/New_York"):
        trigger = cron("0 0 * * *", key)
        assert trigger.next_after(datetime.min.replace(tzinfo=ZoneInfo(key))).year == 1
        assert trigger.next_after(datetime.max.replace(tzinfo=ZoneInfo(key))) is None
        assert trigger.next_after(datetime(9999, 12, 20, tzinfo=UTC)) is not None


@pytest.mark.parametrize(
    ("expr", "part", "instead"),
    [
        ("", "empty", "'30 2 * * *'"),
        ("* * * *", "4 fields", "Write five"),
        ("* * * * * * *", "7 fields", "year"),
        ("0 3 * * * /bin/true", "'/BIN/TRUE'", "day of week"),
        ("60 * * * *", "60 is out of range in the minute field", "0 to 59"),
        ("* 24 * * *", "24 is out of range in the hour field", "0 to 23"),
        ("* * 0 * *", "0 is out of range in the day of month field", "1 to 31"),
        ("* * * 13 *", "13 is out of range in the month field", "1 to 12"),
        ("* * * * 8", "8 is out of range in the day of week field", "0 to 7"),
        ("* * * * 99999999999999999999", "out of range", "0 to 7"),
        ("50-10 * * * *", "'50-10'", "50-59,0-10"),
        ("0 22-2 * * *", "'22-2'", "22-23,0-2"),
        ("0 0 * * FRI-MON", "'FRI-MON'", "5-6,0-1"),
        ("0 0 * * SAT-SUN", "'SAT-SUN'", "6-7"),
        ("0 0 * NOV-FEB *", "'NOV-FEB'", "NOV-12,1-FEB"),
        ("5/15 * * * *", "'5/15'", "5-59/15 or */15"),
        ("*/0 * * * *", "'*/0'", "1 or more"),
        ("1-5/0 * * * *", "'1-5/0'", "1 or more"),
        ("*/x * * * *", "'*/X'", "*/5"),
        ("*/-5 * * * *", "'*/-5'", "*/5"),
        ("*/2/3 * * * *", "'*/2/3'", "*/5"),
        ("1,,2 * * * *", "'1,,2'", "one comma"),
        ("1, * * * *", "'1,'", "one comma"),
        ("5x * * * *", "'5X'", "0 to 59"),
        ("-5 * * * *", "'-5'", "0 to 59"),
        ("1-2-3 * * * *", "'1-2-3'", "0 to 59"),
        ("*5 * * * *", "'*5'", "0 to 59"),
        ("JAN * * * *", "'JAN'", "0 to 59"),
        ("0 0 * * Monday", "'MONDAY'", "MON or 1"),
        ("0 0 * January *", "'JANUARY'", "JAN or 1"),
        ("0 0 ? * *", "'?'", "*"),
        ("H * * * *", "'H'", "spread"),
        ("0 0 15W * *", "'15W'", "LW"),
        ("0 0 L-3 * *", "'L-3'", "L alone"),
        ("0 0 L/2 * *", "'L/2'", "L alone"),
        ("0 0 * * L", "'L'", "5L"),
        ("0 0 * * FRIL", "'FRIL'", "5L"),
        ("0 0 * * 5L/2", "'5L/2'", "5L"),
        ("0 0 * * MON#6", "'MON#6'", "MON#1 to MON#5"),
        ("0 0 * * MON#0", "'MON#0'", "MON#1 to MON#5"),
        ("0 0 * * 8#1", "8 is out of range", "0 to 7"),
        ("0 0 30 2 *", "'30 2 *'", "a day that the month has"),
        ("0 0 31 4,6 *", "'31 4,6 *'", "a day that the month has"),
        ("0 0 30 2 */2", "'30 2 */2'", "a day that the month has"),
        ("0 0 1-7 * */1,MON#5 extra x", "7 fields", "nothing after"),
        ("@reboot", "@reboot", "when your program starts"),
        ("@every 5m", "@every 5m", "every('10m')"),
        ("@fortnightly", "@fortnightly", "@weekly"),
        ("0\u00a03 * * *", "'\\xa0'", "Type it"),
        ("0 0 * * fr\u0131", "'\u0131'", "Type it"),
        ("\u0660 0 * * *", "'\u0660'", "Type it"),
        (None, "NoneType", "'30 2 * * *'"),
        (5, "int", "'30 2 * * *'"),
    ],
)
def test_what_is_doubtful_is_refused_with_its_part_and_what_to_write(expr, part, instead):
    with pytest.raises(ConfigurationError) as refusal:
        cron(expr)
    assert part in str(refusal.value)
    assert instead in str(refusal.value)


def test_equal_when_written_alike():
    assert cron(" 0  3 * * mon ") == cron("0 3 * * MON")
    assert len({cron("@Daily"), cron("@daily"), cron("@daily", "UTC")}) == 2


def test_it_is_frozen():
    with pytest.raises(AttributeError):
        cron("@daily").expr = "@hourly"


@pytest.mark.parametrize(
    ("expr", "words"),
    [
        ("30 2 * * *", "At 02:30 every day, Europe/Berlin. When clocks change it still runs once"),
        (
            "*/5 9-17 * * 1-5",
            "Every 5 minutes from 09:00 to 17:59 on Monday to Friday, Europe/Berlin. It follows the wall clock",
        ),
        ("@daily", "At 00:00 every day"),
        ("@hourly", "Every hour, "),
        ("0 */2 * * *", "Every 2 hours, "),
        ("0 */5 * * *", "At minute 0 of every 5th hour, "),
        ("*/7 * * * *", "Every 7 minutes from the start of each hour, "),
        ("15,45 * * * *", "At minutes 15 and 45 of every hour, "),
        ("0 5/10 * * * *", "At minutes 5, 15, 25, 35, 45 and 55 of every hour, "),
        ("1-1/2 * * * *", "At minute 1 of every hour, "),
        ("10-20 3 * * *", "Every minute from 03:10 to 03:20, "),
        ("*/15 3 * * *", "Every 15 minutes from 03:00 to 03:59, "),
        ("0-30/10 9 * * *", "At 09:00, 09:10, 09:20 and 09:30 every day, "),
        ("30 0,12 * 1,7 *", "At 00:30 and 12:30 every day in January and July, "),
        ("*/10 * * * * *", "Every 10 seconds, "),
        ("5 0 3 * * *", "At 03:00:05 every day, "),
        ("0 3 1,L * *", "At 03:00 on the 1st and the last day of the month, "),
        ("0 3 LW * *", "At 03:00 on the last weekday of the month, "),
        ("0 9 * * MON#2", "At 09:00 on the 2nd Monday of the month, "),
        ("0 0 12 ? * FRIL", "At 12:00 on the last Friday of the month, "),
        ("0 22 * * 6,7", "At 22:00 on Saturday and Sunday, "),
        ("0 0 * * 1-7", "At 00:00 every day, "),
        ("0 0 */13 * 5", "At 00:00 on every 13th day from the 1st, if it is Friday, "),
        ("0 0 13 * 5", "At 00:00 on the 13th and also on Friday, "),
    ],
)
def test_explained_in_words(expr, words):
    assert words in cron(expr, "Europe/Berlin").explain()
    assert words in str(cron(expr, "Europe/Berlin"))


def test_nothing_is_said_about_clock_changes_where_there_are_none():
    assert cron("30 2 * * *").explain() == "At 02:30 every day, UTC."


@pytest.mark.parametrize(
    ("expr", "effects"),
    [
        ("30 2 * * *", ["02:30 does not exist: it runs at 03:00 instead.", "No due time is repeated."]),
        (
            "0,30 1,2 * * *",
            [
                "02:00 and 02:30 do not exist: it runs once at 03:00 instead.",
                "01:00 and 01:30 come twice: it runs the first time only.",
            ],
        ),
        (
            "*/30 1-2 * * *",
            ["02:00 and 02:30 do not exist and do not run.", "01:00 and 01:30 come twice and run both times."],
        ),
        (
            "* * * * *",
            [
                "02:00, 02:01, 02:02 and more do not exist and do not run.",
                "01:00, 01:01, 01:02 and more come twice and run both times.",
            ],
        ),
        ("0 12 * * *", ["No due time is skipped.", "No due time is repeated."]),
    ],
)
def test_a_preview_says_what_the_next_clock_changes_will_do(expr, effects):
    preview = cron(expr, NEW_YORK).preview(2, datetime(2026, 3, 1, tzinfo=UTC))
    assert len(preview.times) == 2
    assert [change.effect for change in preview.changes] == effects
    assert [change.by for change in preview.changes] == [timedelta(hours=1), timedelta(hours=-1)]
    assert "2026-03-08 02:00 America/New_York: clocks go forward 1 h to 03:00." in str(preview)
    assert "2026-11-01 02:00 America/New_York: clocks go back 1 h to 01:00." in str(preview)


def test_a_preview_of_a_change_of_the_calendar():
    preview = cron("0 12 * * *", "Pacific/Apia").preview(2, datetime(2011, 12, 29, tzinfo=UTC))
    assert preview.changes[0].effect == "2011-12-30 12:00 does not exist and does not run."


def test_a_preview_far_away_and_of_nothing():
    assert cron("@daily", NEW_YORK).preview(1, datetime(9999, 12, 20, tzinfo=UTC)).times
    assert "never" in str(cron("@daily", NEW_YORK).preview(1, datetime.max.replace(tzinfo=UTC)))
    assert cron("@daily").preview(0, datetime(2026, 1, 1, tzinfo=UTC)).times == ()
    for n in (-1, 1.5, True, 10**9):
        with pytest.raises(ConfigurationError, match="whole number"):
            cron("@daily").preview(n, datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("quartz", "debian"),
    [
        ("0 0/5 * * * ?", "0 */5 * * * *"),
        ("0 7/10 8-9 * * ?", "0 7-59/10 8-9 * * *"),
        ("5/15 * * * * *", "5-59/15 * * * * *"),
        ("0 15 10 ? * MON-FRI", "0 15 10 * * MON-FRI"),
        ("0 0 12 1/5 * ?", "0 0 12 1-31/5 * *"),
        ("0 0 8 1 FEB/3 ?", "0 0 8 1 2-12/3 *"),
        ("0 15 10 ? * FRIL", "0 15 10 * * 5L"),
        ("0 15 10 ? * MON#2", "0 15 10 * * MON#2"),
        ("0 15 10 ? * TUE/2", "0 15 10 * * 2-6/2"),
        ("0 0 0 ? * ?", "0 0 0 * * *"),
    ],
)
def test_six_fields_take_what_quartz_writes(quartz, debian):
    berlin = "Europe/Berlin"
    theirs, ours = cron(quartz, berlin), cron(debian, berlin)
    at = datetime(2026, 3, 28, 20, tzinfo=UTC)  # over the gap
    for start in (at, datetime(2026, 10, 24, 20, tzinfo=UTC)):  # and over the fold
        at = start
        for _ in range(40):
            assert theirs.next_after(at) == ours.next_after(at)
            at = ours.next_after(at)
    assert theirs.explain() == ours.explain()
    assert from_json(theirs.to_json()) == theirs


@pytest.mark.parametrize(
    ("expr", "part", "instead"),
    [
        ("0 15 10 ? * 2-6", "'2-6'", "MON-FRI"),
        ("0 15 10 ? * 6L", "'6L'", "FRIL"),
        ("? * * * * *", "'?'", "*"),
        ("0 70/5 * * * ?", "'70/5'", "0 to 59"),
        ("0 5/0 * * * ?", "'5/0'", "1 or more"),
        ("0 5/x * * * ?", "'5/X'", "*/5"),
    ],
)
def test_what_may_mean_two_things_in_quartz_is_refused(expr, part, instead):
    with pytest.raises(ConfigurationError) as refused:
        cron(expr)
    assert part in str(refused.value)
    assert instead in str(refused.value)
