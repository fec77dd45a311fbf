"""How many due times there are, counted and walked through: the same, also across clock changes."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.triggers import at, calendar, cron, every
from tenure.triggers.zones import timeline

DAY = 86_400
ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Gaza",
    "Africa/Casablanca",
    "Pacific/Apia",
)
EXPRESSIONS = (
    "* * * * *",
    "*/15 * * * *",
    "30 2 * * *",
    "0 0-6 * * *",
    "5,10 1-3 * * SUN",
    "15 30 2 29 2 *",
    "0 12 L * *",
    "*/20 1 2 * * *",
)


def walked(trigger, start, end):
    count, due = 0, trigger.following(start - 1e-6)
    while due is not None and due < end:
        count += 1
        due = trigger.following(due)
    return count


def near_a_change(zone):
    """Instants around clock changes of the last decades, and others."""
    changes = [start for start in timeline(zone).starts[1:] if 900_000_000 < start < 2_000_000_000]
    anywhere = st.integers(900_000_000, 2_000_000_000)
    if not changes:
        return anywhere
    return st.one_of(
        st.builds(lambda change, by: change + by, st.sampled_from(changes), st.integers(-DAY, DAY)), anywhere
    )


@settings(deadline=None, max_examples=400)
@given(st.data())
def test_a_cron_counts_what_a_walk_finds(data):
    zone = data.draw(st.sampled_from(ZONES))
    trigger = cron(data.draw(st.sampled_from(EXPRESSIONS)), zone)
    start = data.draw(near_a_change(zone)) + data.draw(st.sampled_from([0.0, 0.5]))
    end = start + data.draw(st.integers(0, 2 * DAY)) + data.draw(st.sampled_from([0.0, 0.25]))
    assert trigger.count(start, end) == walked(trigger, start, end)


@settings(deadline=None, max_examples=200)
@given(
    st.floats(1e9, 2e9).map(lambda t: round(t, 6)),
    st.floats(0, 1),
    st.sampled_from([("1s", 3e3), ("7m", 1e5), ("1h", 1e5)]),
)
def test_every_and_at_and_calendar_count_what_a_walk_finds(start, part, of):
    period, longest = of
    end = round(start + part * longest, 6)
    moment = datetime.fromtimestamp(start, UTC)
    for trigger in (
        every(period),
        every(seconds=12.25, anchor=moment),
        at(moment),
        calendar(days=1, start="2001-01-01", at="02:30", tz="Europe/Berlin"),
    ):
        assert trigger.count(start, end) == walked(trigger, start, end)
        assert trigger.count(end, start) == 0


@pytest.mark.parametrize("zone", ZONES)
def test_a_year_counts_what_a_walk_finds(zone):
    trigger, start = cron("*/30 0-4 * * *", zone), datetime(2011, 3, 1, tzinfo=UTC).timestamp()
    assert trigger.count(start, start + 366 * DAY) == walked(trigger, start, start + 366 * DAY)
