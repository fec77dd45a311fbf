"""`a | b`, `a - closed(…)`, the text form and the zones."""

import copy
import json
import pickle
import zoneinfo
from datetime import UTC, date, datetime, timedelta, timezone
from importlib import resources
from zoneinfo import ZoneInfo

import pytest

from tenure.errors import ConfigurationError
from tenure.triggers import Union, at, calendar, closed, cron, every, from_json, tzdata_version, zone
from tenure.triggers.base import FAR, STEPS, Steps

START = datetime(2026, 1, 1, tzinfo=UTC)
NOON = cron("0 12 * * *")
WEEKEND = closed("weekend", weekly=["Sat-Sun"])


def due(trigger, after: datetime = START, n: int = 3) -> list[str]:
    return [f"{time:%m-%d %H:%M}" for time in trigger.preview(n, after).times]


def test_a_union_is_due_when_one_of_its_parts_is():
    assert due(NOON | cron("0 6 * * *")) == ["01-01 06:00", "01-01 12:00", "01-02 06:00"]
    assert due(NOON | cron("0 */6 * * *")) == ["01-01 06:00", "01-01 12:00", "01-01 18:00"]
    assert due(NOON | at(START + timedelta(hours=1))) == ["01-01 01:00", "01-01 12:00", "01-02 12:00"]


def test_the_order_of_a_union_does_not_matter():
    a, b, c = NOON, every("1h"), at(START)
    assert a | b == b | a
    assert (a | b) | c == a | (b | c)
    assert a | a == a
    assert hash(a | b) == hash(b | a)


def test_a_union_over_zones_is_in_order_of_instants():
    trigger = cron("0 9 * * *", "Asia/Seoul") | cron("0 9 * * *", "Europe/Berlin")
    times = trigger.preview(4, START).times
    assert [time.tzinfo.key for time in times] == ["Asia/Seoul", "Europe/Berlin"] * 2 or times[
        0
    ].tzinfo.key == "Europe/Berlin"
    assert [time - START for time in times] == sorted(time - START for time in times)


def test_closed_dates_and_windows():
    assert due(NOON - closed("holidays", dates=["2026-01-02", date(2026, 1, 3)])) == [
        "01-01 12:00",
        "01-04 12:00",
        "01-05 12:00",
    ]
    assert due(NOON - WEEKEND) == ["01-01 12:00", "01-02 12:00", "01-05 12:00"]
    assert due(NOON - closed("before", weekly=["11:00-12:00"]), n=1) == ["01-01 12:00"]  # the end is open again
    assert due(every("1h") - closed("most", weekly=["Mon-Sat", "Sun 00:00-22:00"]), n=3) == [
        "01-04 22:00",
        "01-04 23:00",
        "01-11 22:00",
    ]


def test_a_window_is_read_in_its_zone():
    trigger = cron("0 0 * * *", "UTC") - closed(
        "seoul", dates=["2026-01-02"], tz="Asia/Seoul"
    )  # 00:00 UTC is 09:00 there
    assert due(trigger, START - timedelta(days=1), 2) == ["01-01 00:00", "01-03 00:00"]
    shifted = cron("0 23 * * *", "UTC") - closed("seoul", dates=["2026-01-02"], tz="Asia/Seoul")
    assert due(shifted, START - timedelta(days=1), 3) == ["12-31 23:00", "01-02 23:00", "01-03 23:00"]


def test_a_calendar_without_a_zone_is_read_in_that_of_each_part():
    night = cron("0 3 * * *", "Asia/Seoul") | cron("0 18 * * *", "Europe/Berlin")
    trigger = night - closed("holiday", dates=["2026-12-25"])
    nested = (night - WEEKEND | at(START)) - closed("holiday", dates=["2026-12-25"])
    eve = datetime(2026, 12, 24, 12, tzinfo=UTC)
    assert due(trigger, eve) == ["12-24 18:00", "12-26 03:00", "12-26 18:00"]
    assert due(nested, eve) == ["12-24 18:00", "12-28 03:00", "12-28 18:00"]


def test_a_window_around_a_clock_change():
    # 01:00 to 01:30 is closed at both readings, and 01:30 to 02:00 is open between them.
    trigger = every("15m", tz="America/New_York") - closed("quarter", weekly=["01:00-01:30"])
    times = trigger.preview(5, datetime(2026, 11, 1, 4, 30, tzinfo=UTC)).times
    assert [f"{time:%H:%M%z}" for time in times] == [
        "00:45-0400",
        "01:30-0400",
        "01:45-0400",
        "01:30-0500",
        "01:45-0500",
    ]


@pytest.mark.parametrize(
    "trigger",
    [
        cron("0 12 * * SAT") - WEEKEND,
        NOON - closed("lunch", weekly=["12:00-13:00"]),
        ((NOON - closed("lunch", weekly=["12:00-13:00"])) | cron("0 1 * * *")) - closed("b", weekly=["01:00-01:01"]),
        every("2m") - closed("even", weekly=[f"{h:02}:{m:02}-{h:02}:{m + 1:02}" for h in range(24) for m in range(0, 59, 2)]),
        Union.of(*(calendar(years=1, start="9000-01-01", at="00:00", tz=key) for key in ("Europe/Berlin", "Asia/Seoul"))),
    ],
)  # fmt: skip
def test_what_takes_too_many_steps_is_refused_after_the_same_number_everywhere(trigger):
    """The budget counts steps of all parts together, whatever is cached: so all nodes agree."""
    taken = []
    for _ in range(2):
        steps = Steps()
        with pytest.raises(ConfigurationError, match="in 10,000 steps"):
            trigger.following(START.timestamp(), steps)
        taken.append(steps.taken)
    assert taken[0] == taken[1] <= STEPS + max(FAR, 1000)


def test_nested_exclusions_that_are_open_at_times_are_well_within_the_budget():
    most = (NOON | cron("0 1 * * *")) - closed("weekend", weekly=["Sat-Sun"], dates=["2026-01-02"])
    trigger = (most | cron("0 5 * * *")) - closed("inventory", dates=["2026-01-01"])
    steps = Steps()
    assert trigger.following(START.timestamp(), steps) is not None
    assert steps.taken < 100
    assert from_json(trigger.to_json()) == trigger


@pytest.mark.parametrize("year", [2101, 3700, 9990])
@pytest.mark.parametrize(
    "build",
    [
        lambda then: at(then) - closed("one", dates=["2026-12-25"], tz="America/New_York"),
        lambda then: (every("40d", anchor=then) | at(then)) - closed("one", weekly=["Mon-Sat"], tz="Europe/Berlin"),
        lambda _: calendar(years=40, start="2000-02-29", at="01:00", tz="America/New_York") | cron("0 2 29 2 MON", "Europe/Berlin"),
    ],
)  # fmt: skip
def test_a_far_future_takes_few_steps(build, year):
    then = datetime(year, 1, 1, tzinfo=UTC)
    for since in (then - timedelta(days=1), START):
        steps = Steps()
        assert build(then).following(since.timestamp(), steps) is not None
        assert steps.taken < 200


def test_closed_days_in_a_row_are_one_step():
    years = [date(2026, 1, 1) + timedelta(days=day) for day in range(3000)]
    trigger, steps = NOON - closed("sabbatical", dates=years), Steps()
    assert trigger.following(START.timestamp(), steps) == datetime(2034, 3, 20, 12, tzinfo=UTC).timestamp()
    assert steps.taken < 10


def deep(levels):
    trigger = NOON
    for level in range(levels):
        if level % 2:
            trigger |= cron(f"{level} 1 * * *")
        else:
            trigger -= closed(f"{level}", weekly=["Sat"])
    return trigger


@pytest.mark.parametrize(
    ("build", "limit", "instead"),
    [
        (lambda: deep(5), "4 unions and exclusions", "(a | b) - closed(…)"),
        (lambda: Union.of(*(at(START + timedelta(days=day)) for day in range(1000))), "more than 1,000", "several jobs"),
        ((NOON - closed("d", dates=[date(1900, 1, 1) + timedelta(day) for day in range(6000)])).to_json, "65,536", "fewer dates"),
    ],
)  # fmt: skip
def test_triggers_that_are_too_large_are_refused_where_they_are_written(build, limit, instead):
    with pytest.raises(ConfigurationError) as refusal:
        build()
    assert limit in str(refusal.value)
    assert instead in str(refusal.value)
    assert len(str(refusal.value)) < 600


def test_what_is_within_the_limits_is_read_back():
    for trigger in (deep(4), Union.of(*(at(START + timedelta(days=day)) for day in range(500)))):
        assert from_json(trigger.to_json()) == trigger


def test_exclusions_do_not_depend_on_their_order():
    one, other = closed("a", dates=["2026-01-02"]), WEEKEND
    assert NOON - one - other == NOON - other - one
    assert NOON - one - one == NOON - one


def test_many_steps_within_a_closed_window_are_jumped_over():
    trigger = every("1s") - closed("all but a minute", weekly=["Mon-Sat", "Sun 00:00-23:59"])
    assert due(trigger, START, 1) == ["01-04 23:59"]


def test_a_preview_knows_what_is_closed():
    preview = (cron("30 2 * * *", "America/New_York") - WEEKEND).preview(1, datetime(2026, 3, 1, tzinfo=UTC))
    assert [change.effect for change in preview.changes] == ["Closed then: nothing runs."] * 2
    assert "Not during weekend (Sat-Sun)." in str(preview)


def test_a_preview_of_a_union_tells_a_change_once():
    preview = (cron("0 12 * * *", "America/New_York") | cron("0 13 * * *", "America/New_York")).preview(1, START)
    assert len(preview.changes) == 2
    assert preview.changes[0].at < preview.changes[1].at


@pytest.mark.parametrize(
    ("build", "part"),
    [
        (lambda: closed("x"), "never closed"),
        (lambda: closed("", weekly=["Sat"]), "not a name"),
        (lambda: closed("x", weekly="Sat"), "weekly=['Sat']"),
        (lambda: closed("x", dates="2026-01-01"), "dates=['2026-01-01']"),
        (lambda: closed("x", dates=date(2026, 1, 1)), "not a list"),
        (lambda: closed("x", dates=["2026-02-30"]), "2026-02-30"),
        (lambda: closed("x", dates=[START]), "not a date"),
        (lambda: closed("x", weekly=["Sat-Mon"]), "Sat-Sun,Mon-Mon"),
        (lambda: closed("x", weekly=["Saturday"]), "'Saturday' is not a weekday"),
        (lambda: closed("x", weekly=["Mon 22:00-06:00"]), "22:00-24:00"),
        (lambda: closed("x", weekly=["Mon 12:00-12:00"]), "ends before it begins"),
        (lambda: closed("x", weekly=["Mon 12:00-25:00"]), "no clock shows"),
        (lambda: closed("x", weekly=["Mon 12:61-13:00"]), "no clock shows"),
        (lambda: closed("x", weekly=["Mon 12-13"]), "not a weekly window"),
        (lambda: closed("x", weekly=[""]), "not a weekly window"),
        (lambda: closed("x", weekly=[5]), "is an int"),
        (lambda: closed("x", weekly=["Mon-Sun"]), "closed all week"),
        (lambda: closed("x", weekly=["00:00-12:00", "12:00-24:00"]), "closed all week"),
        (lambda: closed("x", weekly=["Sat"], tz="Asia/Soul"), "Asia/Seoul"),
    ],
)
def test_refused(build, part):
    with pytest.raises(ConfigurationError) as refusal:
        build()
    assert part in str(refusal.value)


def test_only_triggers_and_calendars_combine():
    for wrong in (lambda: NOON | "@daily", lambda: NOON - "weekend", lambda: NOON - NOON, lambda: NOON | WEEKEND):
        with pytest.raises(TypeError):
            wrong()


TRIGGERS = {
    '{"expr":"0 3 * * MON","trigger":"cron","tz":"Asia/Seoul","v":1}': cron("0 3 * * mon", "Asia/Seoul"),
    '{"expr":"@daily","trigger":"cron","tz":null,"v":1}': cron("@daily"),
    '{"anchor":"1970-01-01T00:00:00+00:00","microseconds":30000000,"trigger":"every","tz":null,"v":1}': every("30s"),
    '{"trigger":"at","tz":"UTC","v":1,"when":"2026-01-01T00:00:00+00:00"}': at(START, tz=UTC),
    '{"at":"09:00:00","months":2,"start":"2026-01-31","trigger":"calendar","tz":null,"v":1}': calendar(
        months=2, start="2026-01-31", at="09:00"
    ),
    '{"parts":[{"expr":"0 12 * * *","trigger":"cron","tz":null},{"trigger":"at","tz":null,"when":"2026-01-01T00:00:00+00:00"}],'
    '"trigger":"union","v":1}': NOON | at(START),
    '{"closed":[{"dates":["2026-12-25"],"name":"h","tz":null,"weekly":["Sat-Sun"]}],"of":{"expr":"0 12 * * *","trigger":"cron","tz":null},'
    '"trigger":"excluding","v":1}': NOON - closed("h", dates=["2026-12-25"], weekly=["sat-sun"]),
}


@pytest.mark.parametrize(("text", "trigger"), TRIGGERS.items())
def test_the_text_form_is_stable(text, trigger):
    """These texts are in the rows of users: version 1 reads and writes them for ever."""
    assert trigger.to_json() == text
    assert from_json(text) == trigger
    assert pickle.loads(pickle.dumps(trigger)) == trigger  # noqa: S301 - our own
    assert copy.deepcopy(trigger) == trigger


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "not the text of a trigger"),
        ("null", "no version"),
        ("[]", "no version"),
        ("{}", "no version"),
        (None, "not the text of a trigger"),
        ('{"v":true,"trigger":"cron"}', "no version"),
        ('{"v":2,"trigger":"cron","expr":"@daily","tz":null}', "Upgrade tenure"),
        ('{"v":1,"trigger":"os.system"}', "not one of cron, every"),
        ('{"v":1,"trigger":["cron"]}', "not one of cron, every"),
        ('{"v":1,"trigger":"cron"}', "KeyError"),
        ('{"v":1,"trigger":"cron","expr":"@daily","tz":"../../etc/passwd"}', "not a zone"),
        ('{"v":1,"trigger":"cron","expr":"@daily","tz":null,"jitter":5}', "jitter"),
        ('{"v":1,"trigger":"cron","expr":"5/15 * * * *","tz":null}', "5/15"),
        ('{"v":1,"trigger":"every","microseconds":0,"anchor":"1970-01-01T00:00:00+00:00","tz":null}', "above zero"),
        ('{"v":1,"trigger":"every","microseconds":1e9,"anchor":"1970-01-01T00:00:00+00:00","tz":null}', "whole number"),
        ('{"v":1,"trigger":"every","microseconds":1,"anchor":"1970-01-01","tz":null}', "no time zone"),
        ('{"v":1,"trigger":"at","when":5,"tz":null}', "TypeError"),
        ('{"v":1,"trigger":"union","parts":[]}', "no parts"),
        ('{"v":1,"trigger":"union","parts":[5]}', "not a trigger"),
        ('{"v":1,"trigger":"excluding","of":{"trigger":"cron","expr":"@daily","tz":null},"closed":[]}', "closed"),
        ('{"v":1,"trigger":"excluding","of":{"trigger":"cron","expr":"@daily","tz":null},"closed":[5]}', "TypeError"),
        ('{"v":1,"parts":' + '[{"trigger":"union","parts":' * 2_000, "not the text of a trigger"),
    ],
)
def test_texts_that_are_no_trigger_are_refused(text, part):
    with pytest.raises(ConfigurationError) as refusal:
        from_json(text)
    assert part in str(refusal.value)


def test_deep_texts_are_refused():
    part = {"trigger": "cron", "expr": "@daily", "tz": None}
    for _ in range(400):
        part = {"trigger": "union", "parts": [part]}
    with pytest.raises(ConfigurationError, match="nested too deep"):
        from_json(json.dumps({"v": 1, **part}))


def test_long_texts_are_refused_before_anything_is_made_of_them():
    with pytest.raises(ConfigurationError, match="2,000,058 bytes; 65,536 are the most"):
        from_json(json.dumps({"v": 1, "trigger": "cron", "expr": f"{','.join(['1'] * 1_000_000)} * * * *", "tz": None}))
    many = [{"trigger": "every", "microseconds": 1, "anchor": "", "tz": None}] * 1000
    with pytest.raises(ConfigurationError, match="more than 1,000"):
        from_json(json.dumps({"v": 1, "trigger": "union", "parts": [{"trigger": "x", "parts": many}]}).replace(" ", ""))


def test_a_zone_is_filled_in_only_where_none_was_given():
    mixed = (cron("@daily") | cron("@daily", "Europe/Berlin") | every("1h") | at(START)) - WEEKEND
    seoul = mixed.in_zone("Asia/Seoul")
    assert '"tz":"Europe/Berlin"' in seoul.to_json()
    assert seoul.trigger.to_json().count('"tz":"Asia/Seoul"') == 3
    assert seoul.in_zone("UTC") == seoul
    assert calendar(days=1, start="2026-01-01", at="09:00").in_zone("Asia/Seoul").tz == "Asia/Seoul"


def test_due_times_are_in_the_zone_of_the_trigger():
    time = cron("@daily", ZoneInfo("Asia/Seoul")).next_after(START)
    assert time.tzinfo is zone("Asia/Seoul")
    assert time.tzinfo.key == "Asia/Seoul"
    assert pickle.loads(pickle.dumps(time)).tzinfo is zone("Asia/Seoul")  # noqa: S301 - our own
    assert cron("@daily").next_after(START).tzinfo is zone("UTC")
    assert cron("@daily", UTC) == cron("@daily", "UTC")


@pytest.mark.parametrize(
    ("tz", "part"),
    [
        ("Asia/Soul", "Did you mean 'Asia/Seoul'"),
        ("PST", "PST is an abbreviation, which says nothing of clock changes. Write 'America/Los_Angeles'."),
        ("cest", "Write 'Europe/Berlin'."),
        ("seoul", "Did you mean 'Asia/Seoul'"),
        ("new york", "Did you mean 'America/New_York'"),
        ("europe/berlin", "Did you mean 'Europe/Berlin'?"),
        ("", "'Europe/Berlin'"),
        ("/etc/localtime", "is not a zone"),
        ("Asia/../Asia/Seoul", "is not a zone"),
        (timezone(timedelta(hours=9)), "no name in the time zone database"),
        (9, "is an int"),
    ],
)
def test_unknown_zones_are_refused_with_close_ones(tz, part):
    with pytest.raises(ConfigurationError) as refusal:
        cron("@daily", tz)
    assert part in str(refusal.value)


def test_zones_come_from_the_package_and_not_from_the_machine(tmp_path):
    lie = tmp_path / "Pacific" / "Kiritimati"
    lie.parent.mkdir()
    lie.write_bytes(resources.files("tzdata.zoneinfo").joinpath("UTC").read_bytes())
    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath(to=[tmp_path])
    try:
        assert START.astimezone(ZoneInfo.no_cache("Pacific/Kiritimati")).utcoffset() == timedelta(0)
        of_the_machine = ZoneInfo.no_cache("Pacific/Kiritimati")
        assert cron("@daily", of_the_machine).next_after(START).utcoffset() == timedelta(hours=14)
    finally:
        zoneinfo.reset_tzpath(to=before)


def test_the_release_of_the_zone_rules():
    assert tzdata_version()[:4].isdigit()
    assert tzdata_version() >= "2025a"
