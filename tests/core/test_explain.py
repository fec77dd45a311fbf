"""Why did it not run: the sentence names who, what and when, and does not say more than the ledger knows."""

from dataclasses import replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from ledgers import DAY, HOUR, NOON, Book, run
from tenure.core.coverage import Coverage
from tenure.core.explain import explain, explain_run
from tenure.core.records import Change, NodeFacts, Rules, RunKind, RunState
from tenure.triggers import cron, every
from tenure.util.last_line import last_line

HOURLY = cron("0 * * * *")
ONE, TWO, THREE = NOON + HOUR, NOON + 2 * HOUR, NOON + 3 * HOUR
NOW = NOON + 5 * HOUR + 600


def node(label="web-9", *functions, queues=None, capacity=1):
    return NodeFacts(label, "app", frozenset(functions or ("send_report",)), queues, capacity, 0, "1", "", label=label)


NODES = (node(),)


def explained(book, at=None, *, now=NOON + 5 * HOUR + 600, nodes=NODES, running=None):
    coverage = Coverage("app", nodes, running)
    return explain(book.job, book.changes, book.runs, at=at, now=now, coverage=coverage)


def asked(book, at=None, *, now=NOON + 5 * HOUR + 600, live=True):
    return explained(book, at, now=now, nodes=(node(),) if live else (node("web-9", "another"),)).text


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


def test_an_exception_whose_message_has_several_lines_is_named_by_its_first(book):
    frames = "Traceback (most recent call last):\n  File …\n"
    chained = f"{frames}KeyError: 'x'\n\nDuring handling …\n\n{frames}app.Refused: 2 errors\n  first\nsecond\n"
    assert last_line(chained) == "app.Refused: 2 errors"
    assert last_line(f"{frames}KeyboardInterrupt") == "KeyboardInterrupt"
    assert last_line("the child died\nby signal 9") == "by signal 9"
    told = ended(book, RunState.FAILED, reason=chained)
    assert "failed on web-1: app.Refused: 2 errors." in told
    assert "\n" not in told
    assert "\n" not in ended(book, RunState.CANCELLED, reason=chained) + ended(book, RunState.SKIPPED, reason=chained)


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
    first = book.runs[0]
    assert f"is waiting for run {first.id} to end, as its job has only one run at a time (max_running=1)." in told
    assert told.endswith(f" Run {first.id} ({first.key}) has been running on web-1 since 2026-03-05 13:00:00+00:00.")


def test_a_run_is_explained_by_itself(book):
    book.runs[0] = replace(book.runs[0], state=RunState.RUNNING, started_at=ONE, finished_at=None)
    ended(book, RunState.WAITING)
    waiting = next(run for run in book.runs if run.scheduled_for == TWO)
    told = explain_run(
        book.job,
        book.changes,
        book.runs,
        waiting,
        now=NOW,
        coverage=Coverage("app", NODES),
        zone=ZoneInfo("Asia/Seoul"),
    )
    assert told.text.startswith(
        f"Run {waiting.id} of 'report', due at 2026-03-05 23:00:00+09:00, is waiting for run {book.runs[0].id} to end"
    )
    assert (told.cause, told.facts["run"]) == ("overlap", waiting.id)


def test_a_run_that_was_asked_to_end_and_goes_on_says_so(book):
    told = ended(book, RunState.RUNNING, started_at=TWO, asked_to_end="cancelled by ops")
    assert "since 2026-03-05 14:00:00+00:00: cancelled by ops; it was asked to end and has not returned." in told
    book.job = replace(book.job, spec=replace(book.job.spec, rules=Rules(timeout=60.0)))
    told = ended(book, RunState.RUNNING, started_at=TWO, asked_to_end="")
    assert "its timeout of 1 min passed 3 h 9 min ago; it was asked to end and has not returned." in told


def test_the_last_run_is_the_one_that_ended_last(book):
    """A run that was requested for a time to come, and cancelled."""
    book.job = replace(book.job, next_due=NOW + 2 * DAY)
    coming = run(NOW + HOUR, RunState.CANCELLED, kind=RunKind.MANUAL, by="root", finished_at=NOW - 7200, reason="no")
    book.runs = [replace(one, finished_at=one.scheduled_for + 9) for one in book.runs]
    last = max(one.scheduled_for for one in book.runs)
    book.runs.append(replace(coming, finished_at=last))
    assert asked(book).startswith("'report', due at 2026-03-05 15:00:00+00:00, ran")
    book.runs[-1] = replace(coming, finished_at=last + 10)
    assert asked(book).startswith("'report', requested by root for 2026-03-05 18:10:00+00:00, was cancelled: no.")
    assert asked(book, now=NOW + DAY).startswith("'report', requested by root for 2026-03-05 18:10:00+00:00, was")


def test_the_times_of_a_job_without_a_zone_are_those_of_its_reader(book):
    coverage, zone = Coverage("app", NODES), ZoneInfo("Asia/Seoul")
    told = explain(book.job, book.changes, book.runs, at=TWO, now=NOW, coverage=coverage, zone=zone)
    assert "due at 2026-03-05 23:00:00+09:00" in told.text


def test_it_is_running(book):
    assert "has been running on web-1 since 2026-03-05 14:00:01+00:00." in ended(
        book, RunState.RUNNING, started_at=TWO + 1
    )


@pytest.mark.parametrize(
    ("nodes", "running", "cause", "said"),
    [
        ((), {}, "no_node", "no node of the application 'app' is alive"),
        ((node("a", capacity=0),), {}, "no_node", "no node of the application 'app' is alive"),
        ((node("a", "another"),), {}, "no_function", "no live node has its function 'send_report'"),
        (
            (node("a", queues=("slow",)), node("b", "another", queues=("default",))),
            {},
            "no_queue",
            "a, the only live node that has its function 'send_report', does not serve its queue 'default'",
        ),
        (
            (node("a", queues=("slow",)), node("b", queues=())),
            {},
            "no_queue",
            "a, b have its function 'send_report', but none of them serves its queue 'default'",
        ),
        ((node("a"),), {"a": 1}, "no_free_slot", "the only slot of a is busy"),
        (
            (node("a", capacity=2), node("b", "another"), node("c")),
            {"a": 2, "c": 1},
            "no_free_slot",
            "all 3 slots of the 2 nodes that can run it are busy",
        ),
        ((node("a"), node("c")), {"a": 1}, "not_claimed", "c has a free slot for it and has not begun it yet"),
    ],
)
def test_what_has_not_begun_has_one_cause(book, nodes, running, cause, said):
    book.runs[-1] = replace(book.runs[-1], state=RunState.PENDING, attempt=0)
    found = explained(book, nodes=nodes, running=running)
    assert found.cause == cause
    assert f"has been pending since 2026-03-05 15:00:00+00:00: {said}. It is next due" in found.text
    assert (found.facts["run"], found.facts["state"]) == (book.runs[-1].id, "pending")
    assert (found.facts["function"], found.facts["queue"]) == ("send_report", "default")
    assert str(found.facts["next_due"]) == "2026-03-05 18:00:00+00:00"


def test_it_is_between_attempts(book):
    told = ended(book, RunState.PENDING, attempt=1, due_at=NOON + 6 * HOUR, reason="ValueError")
    assert "attempt 2 begins at 2026-03-05 18:00:00+00:00. The last one ended with ValueError." in told


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
    assert "is not planned yet: no live node has its function 'send_report'." in asked(
        book, NOON + 4 * HOUR, live=False
    )
    assert explained(book, NOON + 4 * HOUR).cause == "not_planned"


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
    assert told == (
        "'report' is orphaned: no live node has its function 'send_report'. It does not run until a node does. "
        "It has been due since 2026-03-05 16:00:00+00:00. It is next due at 2026-03-05 18:00:00+00:00."
    )


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


# Causes


@pytest.mark.parametrize(
    ("state", "more", "cause"),
    [
        (RunState.SUCCEEDED, {}, "succeeded"),
        (RunState.FAILED, {"reason": "ValueError: no such customer"}, "failed"),
        (RunState.LOST, {"losses": 3}, "lost"),
        (RunState.CANCELLED, {}, "cancelled"),
        (RunState.SKIPPED, {"reason": "overlap"}, "overlap"),
        (RunState.SKIPPED, {"reason": "superseded"}, "superseded"),
        (RunState.SKIPPED, {"reason": "missed"}, "missed"),
        (RunState.SKIPPED, {"reason": "paused"}, "paused"),
        (RunState.SKIPPED, {"reason": "load failed"}, "skipped"),
        (RunState.RUNNING, {}, "running"),
        (RunState.WAITING, {}, "overlap"),
        (RunState.PENDING, {"due_at": NOON + 6 * HOUR}, "retry"),
    ],
)
def test_what_became_of_a_run_is_a_word_and_facts(book, state, more, cause):
    book.runs = [replace(each, state=state, **more) if each.scheduled_for == TWO else each for each in book.runs]
    found = explained(book, TWO)
    assert found.cause == cause
    assert str(found) == found.text
    assert found.facts["state"] == state.value
    assert str(found.facts["scheduled_for"]) == "2026-03-05 14:00:00+00:00"
    assert found.facts.get("error", "") == more.get("reason", "")


def test_who_paused_or_removed_a_job_is_among_the_facts(book):
    book.change(Change.PAUSED, THREE + 60, by="ada", why="maintenance")
    found = explained(book)
    assert (found.cause, found.facts["by"], found.facts["why"]) == ("paused", "ada", "maintenance")
    assert str(found.facts["since"]) == "2026-03-05 15:01:00+00:00"
    book.change(Change.REMOVED, THREE + 120, by="kim")
    assert (explained(book).cause, explained(book).facts["by"]) == ("removed", "kim")
