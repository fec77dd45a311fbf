"""The load ahead is what a plain walk over the triggers finds, however it is cut into slices."""

from collections import Counter
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure import at, closed, cron, every
from tenure.core.load import KEPT, MINUTES, WALKED, Load, LoadCounter, LoadJob, waits
from tenure.core.planning import jitter_of, spread_of
from tenure.core.records import Rules

NOW = datetime(2026, 10, 24, 21, 17, 31, tzinfo=UTC).timestamp()
"""Clocks go back in Berlin four hours later."""
TRIGGERS = [
    cron("*/5 * * * *", tz="Europe/Berlin"),
    cron("30 2 * * *", tz="Europe/Berlin"),
    cron("0 * * * *", tz="UTC"),
    cron("7 3,4 * * SUN", tz="America/New_York"),
    cron("* * * * *", tz="UTC"),
    cron("*/20 * * * * *", tz="UTC"),
    every("10m"),
    every("97s"),
    every("30s"),
    every("7s"),
    at(datetime(2026, 10, 25, 3, 0, tzinfo=UTC)),
    at(datetime(2026, 10, 20, tzinfo=UTC)),
    cron("0 9 * * *", tz="Europe/Berlin") | every("3h"),
    every("5m") - closed("night", weekly=["Sat 23:00-24:00", "Sun 00:00-05:00"], tz="Europe/Berlin"),
]


def counted(*jobs: LoadJob, steps: int = 10**9) -> tuple[Load, list[int]]:
    """The load of these jobs, and how many steps each slice took."""
    counter, slices = LoadCounter("shop", NOW), [0]

    def work():
        for job in jobs:
            yield from counter.add(job)
        yield from counter.add_followers()
        yield from counter.look()

    for one in work():
        slices[-1] += one
        if slices[-1] >= steps:
            slices.append(0)
    return counter.load(), slices


def walked(job: LoadJob) -> Counter:
    """When its runs may begin, by a plain walk."""
    shift = spread_of("shop", job.name, job.rules.spread)
    found: Counter[int] = Counter()
    due = job.trigger.following(NOW - job.rules.spread - job.rules.jitter)
    first = NOW // 60 + 1
    while due is not None and due < NOW + 86460:
        begins = round(due + shift + jitter_of("shop", job.name, due, job.rules.jitter), 6)
        if first * 60 <= begins < (first + MINUTES) * 60 and begins > job.begins:
            found[int(begins // 60 - first)] += 1
        due = job.trigger.following(due)
    return found


rules = st.builds(
    Rules,
    spread=st.sampled_from([0.0, 0.0, 30.0, 600.0, 7200.0]),
    jitter=st.sampled_from([0.0, 0.0, 5.0, 90.0]),
    queue=st.sampled_from(["default", "etl"]),
    max_running=st.sampled_from([1, 2, None]),
    overlap=st.sampled_from(["skip", "wait", "replace"]),
)
jobs = st.builds(
    LoadJob,
    name=st.text(min_size=1, max_size=8),
    trigger=st.sampled_from(TRIGGERS),
    rules=rules,
    took=st.sampled_from([None, 0.5, 90.0, 5000.0]),
    begins=st.sampled_from([0.0, NOW + 3600.5]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(jobs, max_size=6, unique_by=lambda job: job.name), st.integers(1, 500))
def test_the_counts_are_those_of_a_plain_walk_whatever_the_slices(given_jobs, steps):
    given_jobs = [
        job
        for job in given_jobs
        if not (job.rules.jitter and (job.trigger.count(NOW, NOW + 86400) or 0) > WALKED)  # left out there, as it says
    ]
    found, _ = counted(*given_jobs, steps=steps)
    expected: dict[str, Counter] = {}
    for job in given_jobs:
        expected.setdefault(job.rules.queue, Counter()).update(walked(job))
    got = {one.queue: Counter({m: n for m, n in enumerate(one.starts) if n}) for one in found.queues}
    assert got == expected
    assert found == counted(*given_jobs)[0], "the slices change nothing"


def test_a_job_that_is_due_all_the_time_is_counted_minute_by_minute():
    often = LoadJob("often", every("1s"), Rules(), took=2.0)
    found, slices = counted(often, steps=100)
    assert found.whole.total == 86400
    assert max(slices) < 100 + 60
    assert sum(slices) < 2 * MINUTES, "and not second by second"
    assert set(found.whole.busy) == {1.0}, "one at a time"
    assert found.held_back[0].held == pytest.approx(86400 / 2, rel=0.02)


def test_ten_thousand_jobs_are_counted_in_bounded_slices():
    seldom = [cron(f"{number % 60} {number % 24} * * *", tz="Europe/Berlin") for number in range(500)]
    many = [
        LoadJob(
            f"job:{number}",
            TRIGGERS[number % len(TRIGGERS)] if number % 50 == 0 else seldom[number % 500],
            Rules(spread=number % 3 * 300.0, jitter=number % 2 * 10.0),
            took=1.0,
        )
        for number in range(10_000)
    ]
    _, slices = counted(*many, steps=200)
    assert len(slices) > 100
    assert max(slices) <= 200 + 2 * 100, "a slice ends with the part that reaches its bound, and a part is small"


def test_a_herd_is_found_with_what_its_spread_makes_of_it():
    herd = [LoadJob(f"few:{number}", cron("0 3 * * *", tz="UTC"), Rules(), took=3.0) for number in range(60)]
    found, _ = counted(*herd)
    (one,) = found.herds
    assert (len(one.herd.herd.jobs), one.herd.herd.spread, one.work) == (60, 600.0, 180.0)
    spread, _ = counted(*(LoadJob(job.name, job.trigger, Rules(spread=600.0)) for job in herd))
    assert one.herd.minutes == spread.whole.starts[5 * 60 + 42 :][:10], "drawn as it would be"
    assert sum(one.herd.minutes) == 60
    assert max(one.herd.minutes) < 15 < max(found.whole.starts) == 60


def test_the_forecast_says_how_many_runs_go_on_and_how_long_others_wait():
    (job,) = [LoadJob("load", cron("0 22 * * *", tz="UTC"), Rules(), took=150.0)]
    found, _ = counted(job)
    minute = 42  # 22:00, from 21:18
    assert found.whole.busy[minute - 1 : minute + 4] == (0.0, 1.0, 1.0, 0.5, 0.0)
    assert waits((0.0, 5.0, 1.0, 0.0, 0.0), 2) == (0.0, 90.0, 60.0, 0.0, 0.0)
    assert waits((5.0, 5.0), 0) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("options", "busy", "held"),
    [
        ({}, 7.5, 5),  # every other one is skipped while the one before goes on
        ({"overlap": "wait"}, 15.0, 9),
        ({"overlap": "allow", "max_running": None}, 15.0, 0),
        ({"overlap": "replace"}, 10.5, 9),  # nine of them are cancelled after a minute
        ({"overlap": "skip", "max_running": 2}, 15.0, 0),
    ],
)
def test_overlap_holds_runs_back_in_the_forecast(options, busy, held):
    job = LoadJob("slow", cron("0-9 22 * * *", tz="UTC"), Rules(**options), took=90.0)
    found, _ = counted(job)
    assert found.whole.total == 10, "they are due, whatever becomes of them"
    assert round(sum(found.whole.busy), 3) == busy
    assert [one.held for one in found.held_back] == ([held] if held else [])


def test_a_follower_begins_when_its_parent_has_ended():
    parent = LoadJob("load", cron("0 22 * * *", tz="UTC"), Rules(), took=120.0)
    child = LoadJob("report", None, Rules(after="load", queue="slow"), took=60.0)
    grandchild = LoadJob("mail", None, Rules(after="report", queue="slow"))
    orphan = LoadJob("alone", None, Rules(after="gone"))
    found, _ = counted(grandchild, child, parent, orphan)
    slow = next(one for one in found.queues if one.queue == "slow")
    assert [minute for minute, starts in enumerate(slow.starts) if starts] == [44, 45]
    assert found.unmeasured == 1


def test_requested_and_running_runs_count():
    counter = LoadCounter("shop", NOW)
    for _ in counter.add(LoadJob("load", None, Rules(pool="warehouse"), took=100.0)):
        pass
    counter.add_requested("load", NOW + 600)
    counter.add_requested("load", NOW - 600)
    counter.add_requested("unknown", NOW + 600)
    counter.add_running("load", NOW - 40)
    found = counter.load()
    assert (found.whole.total, found.requested) == (1, 1)
    assert found.whole.busy[:2] == (round(31 / 60, 6), 0.0), "60 s of it are left, of which the period has 31"
    assert found.pools[0].busy == found.whole.busy


def test_what_cannot_be_computed_is_named_and_the_rest_is_counted():
    never = cron("0 9 * * SAT", tz="UTC") - closed("weekends", weekly=["Sat-Sun"])
    found, _ = counted(LoadJob("never", never, Rules()), LoadJob("fine", every("1h"), Rules()))
    assert found.whole.total >= 23
    assert found.unreadable == ("never",)


def test_clock_changes_name_the_jobs_that_they_touch():
    found, _ = counted(*(LoadJob(name, cron("30 2 * * *", tz="Europe/Berlin"), Rules()) for name in ("a", "b")))
    assert [touched.jobs for touched in found.clock_changes] == [("a", "b"), ("a", "b")]
    assert found.clock_changes[0].text.endswith("02:30 comes twice: it runs the first time only")


def test_remembered_due_times_are_those_of_each_job():
    assert KEPT >= MINUTES
    one, other = (LoadJob(name, cron("* * * * *", tz="UTC"), Rules()) for name in ("one", "other"))
    assert counted(one, other)[0].whole.starts == tuple(2 * n for n in counted(one)[0].whole.starts)
