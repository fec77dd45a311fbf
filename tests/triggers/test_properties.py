"""What holds for all triggers, at all times."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta

import pytest
from cronsim import CronSim
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tenure.errors import ConfigurationError
from tenure.triggers import At, Closed, Excluding, Trigger, Union, at, calendar, closed, cron, every, from_json

PROPERTY = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
ZONES = st.sampled_from(
    [None, "UTC", "Asia/Seoul", "America/New_York", "Europe/Dublin", "Australia/Lord_Howe", "Antarctica/Troll", "Antarctica/Casey",
     "Pacific/Apia", "America/St_Johns", "Africa/Casablanca", "Asia/Gaza", "America/Santiago", "Africa/Monrovia"]
)  # fmt: skip
NEAR = st.datetimes(datetime(2004, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC))
LATER = datetime(2040, 1, 2, tzinfo=UTC)
TIMES = NEAR | st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))


def values(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    ranges = st.tuples(number, number).map(lambda ends: f"{min(ends)}-{max(ends)}")
    step = st.integers(1, high + 3)
    item = st.one_of(
        number.map(str), ranges, st.builds("{}/{}".format, ranges, step), st.builds("*/{}".format, step), st.just("*")
    )
    return st.just("*") | st.lists(item, min_size=1, max_size=3).map(",".join)


DAYS = values(1, 31) | st.sampled_from(["L", "LW", "1,L", "15,LW", "29-31"])
WEEKDAYS = values(0, 7) | st.sampled_from(["MON-FRI", "5L", "0L", "7L", "MON#2", "SUN#1,FRI#5", "1,5L"])
FIVE = st.tuples(values(0, 59), values(0, 23), DAYS, values(1, 12), WEEKDAYS).map(" ".join)
CRONS = FIVE | st.builds("{} {}".format, values(0, 59), FIVE)


@st.composite
def crons(draw: st.DrawFn) -> Trigger:
    expr, tz = draw(CRONS), draw(ZONES)
    refusal = refused(lambda: cron(expr, tz))
    assert refusal is None or "no such date" in refusal
    assume(refusal is None)
    return cron(expr, tz)


def refused(build: Callable[[], object]) -> str | None:
    try:
        build()
    except ConfigurationError as refusal:
        return str(refusal)
    return None


SIMPLE = st.one_of(
    crons(),
    st.builds(every, st.timedeltas(timedelta(seconds=1), timedelta(days=900)), anchor=st.none() | NEAR, tz=ZONES),
    st.builds(at, TIMES, ZONES),
    st.builds(
        lambda unit, n, start, at, tz: calendar(**{unit: n}, start=start, at=at, tz=tz),
        st.sampled_from(["days", "weeks", "months", "years"]),
        st.integers(1, 40),
        st.dates(date(2000, 1, 1), date(2040, 1, 1)),
        st.times().map(lambda value: value.replace(microsecond=0, fold=0)),
        ZONES,
    ),
)
WEEKLY = st.lists(
    st.sampled_from(["Sat-Sun", "Mon", "Tue,Thu", "Fri 18:00-24:00", "01:00-03:00", "02:30-02:31"]), max_size=3
)
CLOSED = st.builds(
    lambda dates, weekly, tz: closed("some", dates=[*dates, "2026-12-25"], weekly=weekly, tz=tz),
    st.lists(st.dates(date(2004, 1, 1), date(2040, 1, 1)), max_size=5),
    WEEKLY,
    ZONES,
)


def opens(trigger: Trigger) -> bool:
    """Whether some of its times are open, looked for part by part and without the budget of a trigger. If not, it is
    refused."""
    recurring = [(part, closed) for part, closed in parts(trigger) if not isinstance(part, At)]
    return not recurring or any(first_open(part, closed) is not None for part, closed in recurring)


def parts(trigger: Trigger) -> Iterator[tuple[Trigger, tuple[Closed, ...]]]:
    """Its simple parts, each with all that closes it."""
    match trigger:
        case Union():
            yield from (found for part in trigger.parts for found in parts(part))
        case Excluding():
            yield from ((part, (*closed, *trigger.closed)) for part, closed in parts(trigger.trigger))
        case _:
            yield trigger, ()


def first_open(trigger: Trigger, closed: Iterable[Closed], after: datetime = LATER) -> datetime | None:
    """The first due time of a simple trigger at which nothing is closed; None if there is none among so many."""
    for _ in range(3000):
        due = trigger.next_after(after)
        if due is None:
            return None
        reopens = [until for one in closed if (until := one.until(due)) is not None]
        if not reopens:
            return due
        after = max(reopens) - timedelta(microseconds=1)
    return None


TRIGGERS = st.recursive(
    SIMPLE,
    lambda inner: (
        st.builds(lambda a, b: a | b, inner, inner) | st.builds(lambda a, c: a - c, inner, CLOSED).filter(opens)
    ),
    max_leaves=4,
)


def instants(trigger: Trigger, t: datetime, n: int) -> list[datetime]:
    return [due.astimezone(UTC) for due in trigger.preview(n, t).times]


@PROPERTY
@given(TRIGGERS, TIMES)
def test_due_times_are_strictly_after_and_strictly_increasing(trigger, t):
    previous, due = t, trigger.next_after(t)
    for _ in range(6):
        if due is None:
            break
        assert due.astimezone(UTC) > previous.astimezone(UTC)
        assert due.tzinfo is not None
        assert due.astimezone(UTC).astimezone(due.tzinfo).replace(tzinfo=None) == due.replace(tzinfo=None), (
            "a reading that exists"
        )
        previous, due = due, trigger.next_after(due)


@PROPERTY
@given(TRIGGERS)
def test_nothing_is_due_after_the_end_of_time(trigger):
    assert trigger.next_after(datetime.max.replace(tzinfo=UTC)) is None


@PROPERTY
@given(TRIGGERS, NEAR, st.floats(0, 1))
def test_nothing_lies_between_and_the_start_does_not_matter(trigger, t, part):
    due = trigger.next_after(t)
    assume(due is not None)
    between = t + (due.astimezone(UTC) - t) * part
    assume(t <= between < due.astimezone(UTC))
    assert trigger.next_after(between).astimezone(UTC) == due.astimezone(UTC)
    assert trigger.next_after(t.astimezone(due.tzinfo)) == due


@PROPERTY
@given(TRIGGERS, NEAR | TIMES.map(lambda t: t.replace(microsecond=0)))
def test_seconds_say_the_same_as_datetimes(trigger, t):
    due = trigger.next_after(t)
    assert trigger.following(t.timestamp()) == (None if due is None else due.timestamp())


@pytest.mark.parametrize("beyond", [-7e10, 3e11])
def test_seconds_beyond_the_calendar_are_no_due_times(beyond):
    found = cron("0 3 * * *", "Europe/Berlin").following(beyond)
    assert found is None if beyond > 0 else found > beyond


@PROPERTY
@given(TRIGGERS, NEAR)
def test_the_text_form_is_the_trigger(trigger, t):
    again = from_json(trigger.to_json())
    assert again == trigger
    assert hash(again) == hash(trigger)
    assert again.to_json() == trigger.to_json()
    assert again.next_after(t) == trigger.next_after(t)
    assert str(trigger)


@PROPERTY
@given(SIMPLE, SIMPLE, NEAR)
def test_a_union_has_the_due_times_of_both(a, b, t):
    both = instants(a | b, t, 12)
    wanted = sorted({*instants(a, t, 12), *instants(b, t, 12)})[: len(both)]
    assert both == wanted
    assert a | b == b | a


@PROPERTY
@given(SIMPLE, CLOSED, NEAR)
def test_an_exclusion_takes_away_what_is_closed_and_nothing_else(trigger, one, t):
    if not opens(trigger - one):
        never = []
        refusal = refused(lambda: never.append((trigger - one).next_after(LATER)))
        assert never == [None] if refusal is None else "Perhaps all its times are closed" in refusal
        return
    left = instants(trigger - one, t, 5)
    expected, due = [], trigger.next_after(t)
    for _ in range(300):
        if due is None or len(expected) == len(left):
            break
        if one.until(due) is None:
            expected.append(due.astimezone(UTC))
        due = trigger.next_after(due)
    assert left[: len(expected)] == expected


@PROPERTY
@given(SIMPLE, SIMPLE, CLOSED, NEAR)
def test_exclusion_spreads_over_a_union(a, b, one, t):
    assume(opens(a - one) and opens(b - one))
    assert instants((a | b) - one, t, 6) == instants((a - one) | (b - one), t, 6)


@PROPERTY
@given(FIVE)
def test_every_expression_can_be_said_in_words(expr):
    assume(refused(lambda: cron(expr)) is None)
    words = cron(expr).explain()
    assert words.startswith(("At ", "Every ")), words
    assert not re.search(r"  |,,|, ,| ,|None", words), words


@PROPERTY
@given(FIVE, NEAR)
def test_without_clock_changes_it_agrees_with_cronsim(expr, t):
    assume(refused(lambda: cron(expr)) is None)
    assume(not re.search(r"\b(\d+)-\1/", expr))  # cronsim 2.8 reads 1-1/2 as 1-12/2, Debian as 1
    trigger = cron(expr)
    simulator, due = CronSim(expr, t), t
    for _ in range(5):
        due = trigger.next_after(due)
        assert due == next(simulator)


@PROPERTY
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=5,
    ),
    st.sampled_from(["cron", "every", "at", "calendar", "union", "excluding"]),
    st.sampled_from(
        ["expr", "tz", "microseconds", "anchor", "when", "parts", "of", "closed", "at", "start", "days", "v", "trigger"]
    ),
)
def test_a_damaged_text_is_refused_and_nothing_else_happens(value, kind, field):
    whole = {
        "cron": cron("@daily"), "every": every("1h"), "at": at(datetime(2026, 1, 1, tzinfo=UTC)),
        "calendar": calendar(days=1, start="2026-01-01", at=time(9)), "union": cron("@daily") | every("1h"),
        "excluding": cron("@daily") - closed("x", weekly=["Sat"]),
    }[kind]  # fmt: skip
    fields = json.loads(whole.to_json())
    fields[field] = value
    assert refused(lambda: from_json(json.dumps(fields))) != ""


@PROPERTY
@given(st.text(alphabet="0123456789*/-,LW#@? \tMONFRIJAN", max_size=20))
def test_any_text_is_either_an_expression_or_refused(text):
    refusal = refused(lambda: cron(text))
    assert refusal is None or "Write" in refusal or "Call" in refusal


@PROPERTY
@given(st.integers(0, 23), st.integers(0, 59), ZONES, NEAR)
def test_a_daily_calendar_is_a_daily_cron(hour, minute, tz, t):
    daily = calendar(days=1, start="2000-01-01", at=time(hour, minute), tz=tz)
    assert instants(daily, t, 400) == instants(cron(f"{minute} {hour} * * *", tz), t, 400)
