"""By when a job must have succeeded: `expect_within`, and the rule without it."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core.expected import KNOWN, allowance, awaited_due, expected_by, least_allowance
from tenure.core.job_options import rules
from tenure.core.records import Rules
from tenure.triggers import at, cron, every

NIGHTLY = cron("0 3 * * *")
HOUR, DAY = 3600.0, 86400.0
THREE = datetime(2026, 3, 5, 3, tzinfo=UTC).timestamp()


def of(**options) -> Rules:
    return rules(options, where="nightly")


def by(trigger=NIGHTLY, *, since=THREE - HOUR, succeeded=None, runs=0, p99=None, **options):
    return expected_by(trigger, of(**options), since=since, settled=succeeded, runs=runs, p99=p99)


def test_what_is_written_counts_from_the_due_time_whatever_else_is_known():
    assert by(expect_within="15m") == THREE + 900
    assert by(expect_within="15m", jitter="1h", timeout="3h", retries=9, runs=100, p99=7000.0) == THREE + 900


def test_a_success_moves_it_to_the_next_due_time():
    assert by(expect_within="15m", succeeded=THREE) == THREE + DAY + 900
    assert by(expect_within="15m", succeeded=THREE - DAY) == THREE + 900


def test_a_request_that_succeeded_after_the_due_time_makes_up_for_it():
    assert by(expect_within="15m", succeeded=THREE + HOUR) == THREE + DAY + 900
    assert by(expect_within="15m", succeeded=THREE - 1) == THREE + 900


def test_nothing_is_expected_from_before_the_job_was_added_changed_or_resumed():
    assert by(expect_within="15m", since=THREE + 5 * DAY, succeeded=THREE) == THREE + 6 * DAY + 900


def test_nothing_is_expected_of_a_job_without_due_times():
    assert by(None, expect_within="15m") is None
    once = at(datetime(2026, 3, 5, 3, tzinfo=UTC))
    assert by(once, expect_within="15m") == THREE + 900
    assert by(once, expect_within="15m", succeeded=THREE) is None


def test_without_it_the_limit_is_the_grace_and_the_time_of_all_attempts_and_pauses():
    assert by(timeout="10m") == THREE + 60 + 600
    assert by(timeout="10m", grace="5m", spread="1m", jitter="30s") == THREE + 300 + 60 + 30 + 600
    assert by(timeout="10m", retries=2, backoff=("10s", "10m")) == pytest.approx(THREE + 60 + 3 * 600 + 10 + 20)


def test_without_a_timeout_the_durations_of_twenty_runs_say_how_long_it_may_take():
    assert by() is None
    assert by(runs=KNOWN - 1, p99=100.0) is None
    assert by(runs=KNOWN, p99=100.0) == THREE + 60 + 300
    assert by(runs=KNOWN, p99=100.0, timeout="1m") == THREE + 60 + 60


def test_without_it_nothing_is_expected_of_a_run_that_may_wait_for_any_time():
    how = {"since": THREE - HOUR, "settled": THREE}
    assert expected_by(NIGHTLY, of(timeout="10m"), held=True, **how) is None
    assert expected_by(NIGHTLY, of(timeout="10m", expect_within="15m"), held=True, **how) == THREE + DAY + 900
    assert expected_by(NIGHTLY, of(timeout="10m"), settled_at=THREE + DAY + 5, **how) == THREE + 2 * DAY + 660
    assert expected_by(NIGHTLY, of(expect_within="15m"), settled_at=THREE + DAY + 5, **how) == THREE + DAY + 900


@given(
    st.floats(0, 1e6), st.floats(0, 1e6), st.integers(0, 10**9), st.none() | st.floats(1, 1e6), st.floats(0.001, 1e6)
)
def test_the_least_allowance_is_never_above_the_allowance(grace, shift, retries, within, p99):
    options = Rules(grace=grace, spread=shift, jitter=shift, retries=retries, expect_within=within)
    allowed = allowance(options, KNOWN, p99)
    assert allowed is not None
    assert least_allowance(options) <= allowed


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_the_awaited_due_time_is_after_both_and_no_due_time_lies_between(since, succeeded):
    due = awaited_due(every("7m"), since=since, settled=succeeded)
    assert due is not None
    assert max(since, succeeded) < due <= max(since, succeeded) + 420
