"""Why did it not run: the sentence names who, what and when, and does not say more than the ledger knows."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from ledgers import DAY, HOUR, NOON, Book, run
from tenure.core.explain import why
from tenure.core.records import Change, Rules, RunKind, RunState
from tenure.triggers import cron, every

HOURLY = cron("0 * * * *")
ONE, TWO, THREE = NOON + HOUR, NOON + 2 * HOUR, NOON + 3 * HOUR


def asked(book, at=None, *, now=NOON + 5 * HOUR + 600, live=True):
    return why(book.job, book.changes, book.runs, at=at, now=now, live=live)


@pytest.fixture
def book():
    book = Book(HOURLY)
    book.plan(THREE)
    return book


def ended(book, state, **more):
    """The run of two o'clock ended otherwise."""
    book.runs = [replace(each, state=state, **more) if each.scheduled_for == TWO else each for each in book.runs]
    return asked(book, TWO)


# For a time


def test_it_ran(book):
    told = ended(book, RunState.SUCCEEDED, started_at=TWO + 5, finished_at=TWO + 65)
    assert told == (
        "'report', due at 2026-03-05 14:00:00+00:00, ran on web-1 and succeeded at 2026-03-05 14:01:05+00:00, started 5.0 s late."
    )


def test_a_time_close_to_a_due_time_means_it(book):
    assert "due at 2026-03-05 14:00:00+00:00, ran" in asked(book, TWO + 31)
    assert "due at 2026-03-05 14:00:00+00:00, ran" in asked(book, TWO - 31)


def test_it_failed(book):
    told = ended(book, RunState.FAILED, attempt=3, reason="ValueError: no such customer")
    assert "failed on web-1, on attempt 3: ValueError: no such customer." in told


def test_a_traceback_is_left_to_the_log(book):
    told = ended(
        book, RunState.FAILED, reason="Traceback (most recent call last):\n  File …\nValueError: no such customer"
    )
    assert "failed on web-1: ValueError: no such customer." in told


def test_it_was_lost(book):
    assert "its node died 3 times" in ended(book, RunState.LOST, losses=3)
    assert "its node died once" in ended(book, RunState.LOST, losses=1)


def test_it_was_interrupted_by_the_stop_of_its_node(book):
    stopped = {"reason": "its node was stopped", "interruptions": 1}
    told = ended(book, RunState.LOST, **stopped)
    assert "was lost: its node was stopped while it ran on web-1, and there is no other attempt" in told
    assert "interrupted once by the stop of a node" in ended(book, RunState.SUCCEEDED, attempt=2, interruptions=1)
    assert "(interrupted by the stop of its node)" in ended(book, RunState.PENDING, attempt=1, **stopped)
    told = ended(book, RunState.RUNNING, stopping=True, reason="", interruptions=0)
    assert told.endswith("is waiting for it; if its process is gone, the next node to notice takes the run over.")


def test_it_was_cancelled(book):
    assert "was cancelled: by ops, not today." in ended(book, RunState.CANCELLED, reason="by ops, not today")


def test_another_run_had_the_place(book):
    book.runs[0] = replace(book.runs[0], started_at=ONE, finished_at=TWO + 600, node="web-2")
    told = ended(book, RunState.SKIPPED, reason="overlap")
    assert f"run {book.runs[0].key} was still running on web-2, since 2026-03-05 13:00:00+00:00" in told
    assert "until 2026-03-05 14:10:00+00:00" in told
    assert "(overlap='skip')" in told


def test_a_run_that_was_over_had_no_place(book):
    book.runs[0] = replace(book.runs[0], started_at=ONE, finished_at=TWO - 600)
    assert book.runs[0].key not in ended(book, RunState.SKIPPED, reason="overlap")


def test_a_newer_one_took_its_place(book):
    assert "newer due time" in ended(book, RunState.SKIPPED, reason="superseded")


def test_it_was_missed(book):
    told = ended(book, RunState.SKIPPED, reason="missed")
    assert "was missed: no node with its function began it within 1 min" in told
    assert "missed='latest'" in told


def test_it_was_missed_among_others():
    book = Book(every("1m"))
    book.plan(NOON + 5 * HOUR)
    told = asked(book, NOON + 600)
    assert "due at 2026-03-05 12:10:00+00:00, was skipped: with" in told
    assert f"with {book.runs[0].count - 1} others" in told


def test_it_waits_behind_another(book):
    book.runs[0] = replace(book.runs[0], state=RunState.RUNNING, started_at=ONE, finished_at=None)
    told = ended(book, RunState.WAITING)
    assert f"is waiting: run {book.runs[0].key} was still running" in told
    assert "and has not ended" in told


def test_it_is_running(book):
    assert "has been running on web-1 since 2026-03-05 14:00:01+00:00." in ended(
        book, RunState.RUNNING, started_at=TWO + 1
    )


def test_it_found_no_free_slot(book):
    told = ended(book, RunState.PENDING, attempt=0)
    assert (
        "has been pending since 2026-03-05 14:00:00+00:00: no node that has its function and serves the queue 'default' has had a free slot."
        in told
    )


def test_it_is_between_attempts(book):
    told = ended(book, RunState.PENDING, attempt=1, due_at=NOON + 6 * HOUR, reason="ValueError")
    assert "attempt 2 begins at 2026-03-05 18:00:00+00:00 (the last one ended with ValueError)." in told


def test_it_was_paused(book):
    book.change(Change.PAUSED, NOON + 3.5 * HOUR, why="maintenance")
    book.change(Change.RESUMED, NOON + 4.5 * HOUR)
    told = asked(book, NOON + 4 * HOUR)
    assert (
        "'report' was paused by ops (maintenance) from 2026-03-05 15:30:00+00:00 to 2026-03-05 16:30:00+00:00" in told
    )


def test_it_was_not_there_yet_and_it_was_gone(book):
    assert "did not exist" in asked(book, NOON - HOUR)
    assert "added by ops at 2026-03-05 12:00:00+00:00" in asked(book, NOON - HOUR)
    book.change(Change.REMOVED, NOON + 3.5 * HOUR, by="kim")
    assert asked(book, NOON + 4 * HOUR) == "'report' had been removed by kim at 2026-03-05 15:30:00+00:00."


def test_it_was_changed_before_it_was_planned(book):
    book.change(Change.UPDATED, NOON + 4.5 * HOUR)
    assert "was not planned yet when the job was updated by ops" in asked(book, NOON + 4 * HOUR)


def test_it_is_not_planned_yet(book):
    assert "is not planned yet: no live node has had its function registered since then." in asked(
        book, NOON + 4 * HOUR
    )


def test_its_runs_are_forgotten(book):
    book.runs.clear()
    book.job = replace(book.job, kept_since=TWO + 1)
    assert "forgotten by retention" in asked(book, TWO)


def test_the_ledger_does_not_know(book):
    book.runs.clear()
    assert "nothing in the ledger says what became of it. Run `tenure audit report`." in asked(book, TWO)


def test_it_is_still_to_come(book):
    told = asked(book, NOON + 6 * HOUR)
    assert told == "'report' is due at 2026-03-05 18:00:00+00:00, in 50 min."
    assert "no live node" in asked(book, NOON + 6 * HOUR, live=False)


def test_it_was_not_due_then(book):
    told = asked(book, TWO + 900)
    assert told.startswith("2026-03-05 14:15:00+00:00 is not a due time of 'report': ")
    assert "before 2026-03-05 14:00:00+00:00 and after 2026-03-05 15:00:00+00:00" in told


def test_it_was_requested_then(book):
    book.runs.append(run(TWO + 900, RunState.SUCCEEDED, kind=RunKind.MANUAL, by="kim"))
    assert "'report', requested by kim at 2026-03-05 14:15:00+00:00, ran" in asked(book, TWO + 900)


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (datetime(2026, 3, 29, 1, 30, tzinfo=UTC), "02:30 does not exist: it runs at 03:00 instead."),
        (datetime(2026, 10, 25, 1, 30, tzinfo=UTC), "02:30 comes twice: it runs the first time only."),
    ],
)
def test_the_clocks_were_changed(at, said):
    book = Book(cron("30 2 * * *", tz="Europe/Berlin"))
    assert said in asked(book, at.timestamp(), now=NOON + 365 * DAY)
    assert said not in asked(book, at.timestamp() - 7 * DAY, now=NOON + 365 * DAY)


# For now


def test_now_it_is_paused(book):
    book.change(Change.PAUSED, THREE + 60, why="maintenance")
    assert (
        asked(book)
        == "'report' was paused by ops (maintenance) at 2026-03-05 15:01:00+00:00 and stays paused until it is resumed."
    )
    book.change(Change.PAUSED, THREE + 60, until=NOON + 6.5 * HOUR)
    assert "until 2026-03-05 18:30:00+00:00. It is next due at 2026-03-05 19:00:00+00:00." in asked(book)
    book.change(Change.PAUSED, THREE + 60, until=NOON + 4 * HOUR)
    assert "ended at 2026-03-05 16:00:00+00:00" in asked(book)


def test_now_it_is_gone(book):
    book.change(Change.REMOVED, THREE + 60)
    assert (
        asked(book)
        == "'report' was removed by ops at 2026-03-05 15:01:00+00:00. It does not run until it is restored (`tenure restore report`) or its definition in the code changes."
    )


def test_now_no_node_has_its_function(book):
    told = asked(book, live=False)
    assert told.startswith("No live node has the function 'send_report' of 'report' registered")
    assert told.endswith("It is next due at 2026-03-05 18:00:00+00:00.")


def test_now_it_runs(book):
    book.runs[-1] = replace(book.runs[-1], state=RunState.RUNNING, started_at=THREE)
    told = asked(book, now=THREE + 60)
    assert told == (
        "'report', due at 2026-03-05 15:00:00+00:00, has been running on web-1 since 2026-03-05 15:00:00+00:00. "
        "It is next due at 2026-03-05 16:00:00+00:00."
    )


def test_now_it_is_over_and_comes_again(book):
    told = asked(book, now=THREE + 60)
    assert told == (
        "'report', due at 2026-03-05 15:00:00+00:00, ran on web-1 and succeeded. It is next due at 2026-03-05 16:00:00+00:00."
    )


def test_now_it_is_overdue_and_not_planned(book):
    assert "'report' has been due since 2026-03-05 16:00:00+00:00 and is not planned yet" in asked(book)


def test_a_job_without_a_trigger_runs_only_on_request(book):
    book.job = replace(book.job, spec=replace(book.job.spec, trigger=None), next_due=None)
    book.changes, book.runs = [], []
    assert asked(book) == "'report' has no trigger: it runs only on request."
    assert "no run was requested around" in asked(book, TWO)


def test_times_are_told_in_the_zone_of_the_trigger():
    book = Book(cron("0 3 * * *", tz="Asia/Seoul"), rules=Rules(grace=5.0))
    assert asked(book, now=NOON + 60) == "'report' has not run yet. It is next due at 2026-03-06 03:00:00+09:00."


def test_a_trigger_that_cannot_be_read_is_said(book):
    unreadable = '{"kind": "moon"}'
    book.job = replace(book.job, spec=replace(book.job.spec, trigger=unreadable))
    book.changes[-1] = replace(book.changes[-1], trigger=unreadable)
    assert "Nothing is planned for it: its trigger cannot be read: " in asked(book)
    assert "due at 2026-03-05 14:00:00+00:00, ran on web-1" in asked(book, TWO)
    unknown = asked(book, TWO + 900)
    assert unknown.startswith("It is unknown what 'report' had to do at 2026-03-05 14:15:00+00:00: its trigger cannot")
