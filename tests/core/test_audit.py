"""The audit: what is in the ledger is accounted for, what is missing is named, whatever was done to the job in between."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgers import DAY, HOUR, NOON, Book, run
from tenure import Scheduler
from tenure.core.audit import OPEN, OVERDUE, UNACCOUNTED, UNEXPECTED, UNREADABLE, audit
from tenure.core.coverage import Coverage
from tenure.core.job_history import stretches
from tenure.core.planning import last_due
from tenure.core.records import Change, JobState, Rules, RunKind, RunState
from tenure.testing import virtual
from tenure.triggers import at, cron, every
from tenure.util.instants import moment

HOURLY = cron("0 * * * *")
MINUTELY = cron("* * * * *")
ONCE = at(moment(NOON + 3 * HOUR))


def audited(book, *, now, since=NOON, until=None):
    return audit(book.job, book.changes, book.runs, since=since, until=now if until is None else until, now=now)


def test_a_day_of_runs_is_clean():
    book = Book(HOURLY)
    book.plan(NOON + 5 * HOUR)
    book.runs[2] = replace(book.runs[2], state=RunState.FAILED)
    found = audited(book, now=NOON + 5 * HOUR + 1)
    assert found.clean
    assert found.due == 5
    assert found.counts == {"succeeded": 4, "failed": 1}
    assert found.findings == ()
    assert found.lines()[0].startswith("report: clean. ")


def test_a_due_time_without_a_run_is_named():
    book = Book(HOURLY)
    book.plan(NOON + 5 * HOUR)
    gone = book.runs.pop(2)
    found = audited(book, now=NOON + 5 * HOUR + 1)
    assert not found.clean
    assert [(f.kind, f.first, f.count) for f in found.findings] == [(UNACCOUNTED, gone.scheduled_for, 1)]
    assert "NOT CLEAN" in found.lines()[0]
    assert "2026-03-05 15:00:00+00:00" in found.lines()[1]


def test_a_due_time_of_this_minute_is_still_open_and_two_minutes_later_it_is_not():
    book = Book(HOURLY)
    book.plan(NOON + HOUR)
    book.runs.clear()
    assert audited(book, now=NOON + HOUR + 119).counts == {OPEN: 1}
    assert audited(book, now=NOON + HOUR + 121).counts == {UNACCOUNTED: 1}


def test_what_is_not_planned_is_open_during_its_grace_and_then_overdue():
    book = Book(HOURLY)
    book.plan(NOON + HOUR)
    found = audited(book, now=NOON + 5 * HOUR + 1)
    assert found.counts == {"succeeded": 1, OVERDUE: 3, OPEN: 1}
    assert (found.clean, found.overdue) == (True, 3)
    assert [finding.text for finding in found.findings] == ["it is not planned", "it is not planned yet"]
    assert found.lines()[0].startswith("report: OVERDUE. ")
    assert found.lines()[1].startswith("  overdue: 3 from ")


def test_an_audit_says_why_what_is_overdue_does_not_run():
    book = Book(HOURLY)
    book.plan(NOON + HOUR)
    nobody = Coverage("app", ())
    (finding, *_) = audit(
        book.job, book.changes, book.runs, since=NOON, until=NOON + 9000, now=NOON + 9000, coverage=nobody
    ).findings
    assert (finding.kind, finding.text) == (OVERDUE, "it is not planned: no node of the application 'app' is alive")


GRACE_IS_OVER = NOON + HOUR + 60 + 15


@pytest.mark.parametrize("seconds", [-1, 1])
@pytest.mark.parametrize(
    ("state", "more", "explained"),
    [
        (RunState.PENDING, {}, False),
        (RunState.PENDING, {"kind": RunKind.BACKFILL}, False),
        (RunState.PENDING, {"kind": RunKind.BACKFILL, "by": "ada"}, True),
        (RunState.PENDING, {"attempt": 1}, True),
        (RunState.WAITING, {}, True),
        (RunState.RUNNING, {"attempt": 1}, True),
        ("paused", {}, True),
    ],
)
def test_what_has_not_begun_is_overdue_unless_something_explains_it(seconds, state, more, explained):
    book = Book(HOURLY)
    book.plan(NOON + HOUR, RunState.PENDING if state == "paused" else state)
    book.runs = [replace(book.runs[0], **{"attempt": 0, **more})]
    if state == "paused":
        book.job = replace(book.job, state=JobState.PAUSED)
    found = audited(book, now=GRACE_IS_OVER + seconds, until=NOON + HOUR + 1)
    assert found.counts == {OPEN if explained or seconds < 0 else OVERDUE: 1}


def test_what_is_still_to_come_is_open():
    found = audited(Book(HOURLY), now=NOON + 1, until=NOON + 3 * HOUR + 1)
    assert found.counts == {OPEN: 3}
    assert found.findings[0].text == "it is not due yet"


@pytest.mark.parametrize("state", [RunState.PENDING, RunState.WAITING, RunState.RUNNING])
def test_a_run_that_has_begun_and_is_not_over_is_open(state):
    book = Book(HOURLY)
    book.plan(NOON + HOUR, state)
    found = audited(book, now=NOON + 9 * HOUR, until=NOON + HOUR + 1)
    assert found.counts == {OPEN: 1}
    assert state.value in found.findings[0].text


def test_a_planned_run_that_no_trigger_explains_is_unexpected():
    book = Book(HOURLY)
    book.plan(NOON + 2 * HOUR)
    book.runs.append(run(NOON + 90))
    book.runs.append(run(NOON + HOUR, key="again"))
    found = audited(book, now=NOON + 2 * HOUR + 1)
    assert found.counts == {"succeeded": 2, UNEXPECTED: 2}
    assert not found.clean
    assert {f.first for f in found.findings} == {NOON + 90, NOON + HOUR}


def test_what_somebody_asked_for_is_listed_apart():
    book = Book(HOURLY)
    book.plan(NOON + HOUR)
    asked = run(NOON + 90, kind=RunKind.MANUAL)
    book.runs.append(asked)
    found = audited(book, now=NOON + HOUR + 1)
    assert found.extra == (asked,)
    assert found.counts == {"succeeded": 1}
    assert "1 requested" in found.lines()[0]


def test_a_backfill_accounts_for_its_due_time():
    book = Book(HOURLY)
    book.plan(NOON + HOUR)
    book.runs = [replace(book.runs[0], kind=RunKind.BACKFILL)]
    found = audited(book, now=NOON + HOUR + 1)
    assert found.counts == {"succeeded": 1}
    assert len(found.extra) == 1


def test_a_pause_explains_what_was_due_in_it_and_nothing_else():
    book = Book(HOURLY)
    book.plan(NOON + 2 * HOUR)
    book.change(Change.PAUSED, NOON + 2.5 * HOUR, why="maintenance")
    book.change(Change.UPDATED, NOON + 3.5 * HOUR)
    book.change(Change.RESUMED, NOON + 5.5 * HOUR)
    book.plan(NOON + 7 * HOUR)
    found = audited(book, now=NOON + 7 * HOUR + 1)
    assert found.counts == {"succeeded": 4, "paused": 3}
    assert [(f.kind, f.count, f.text) for f in found.findings] == [("paused", 3, "paused by ops (maintenance)")]
    assert found.clean


def test_after_a_change_the_other_trigger_counts():
    book = Book(HOURLY)
    book.plan(NOON + 2 * HOUR)
    book.change(Change.UPDATED, NOON + 2.25 * HOUR, cron("30 * * * *"))
    book.plan(NOON + 4 * HOUR)
    found = audited(book, now=NOON + 4 * HOUR + 1)
    assert found.counts == {"succeeded": 4}
    assert found.clean


def test_a_due_time_at_the_very_instant_of_a_change_belongs_to_the_time_before():
    book = Book(HOURLY)
    book.plan(NOON + 2 * HOUR)
    book.change(Change.UPDATED, NOON + 2 * HOUR, cron("30 * * * *"))
    book.plan(NOON + 3 * HOUR)
    assert audited(book, now=NOON + 3 * HOUR + 1).counts == {"succeeded": 3}


@pytest.mark.parametrize(
    ("what", "kind"), [(Change.UPDATED, "changed"), (Change.REMOVED, "removed"), (Change.PAUSED, "paused")]
)
def test_what_nobody_had_planned_when_the_job_was_changed_is_explained_by_the_change(what, kind):
    book = Book(HOURLY)
    book.plan(NOON + 2 * HOUR)
    book.change(what, NOON + 4.5 * HOUR)
    found = audited(book, now=NOON + 4.5 * HOUR + 1)
    assert found.counts == {"succeeded": 2, kind: 2}
    assert "before this was planned" in found.findings[0].text


def test_but_not_what_lies_before_a_due_time_that_was_planned():
    book = Book(HOURLY)
    book.plan(NOON + 4 * HOUR)
    del book.runs[1]
    book.change(Change.UPDATED, NOON + 4.5 * HOUR)
    assert audited(book, now=NOON + 4.5 * HOUR + 1).counts == {"succeeded": 3, UNACCOUNTED: 1}


def test_nor_what_is_asked_for_without_the_time_up_to_the_change():
    """Whether a later one was planned cannot be seen then; rather an alarm too many."""
    book = Book(HOURLY)
    book.plan(NOON + 2 * HOUR)
    book.change(Change.UPDATED, NOON + 4.5 * HOUR)
    found = audited(book, until=NOON + 3.5 * HOUR, now=NOON + 4.5 * HOUR + 1)
    assert found.counts == {"succeeded": 2, UNACCOUNTED: 1}


@pytest.mark.parametrize(("late", "clean"), [(0.03, True), (9, True), (11, False)])
def test_a_due_time_that_passed_while_the_job_was_being_added_is_its_own(late, clean):
    book = Book(MINUTELY, at=NOON + late)
    book.plan(NOON + 120)
    book.runs.append(replace(book.runs[0], id=99, scheduled_for=NOON, due_at=NOON, key="2026-03-05T12:00:00Z"))
    found = audited(book, now=NOON + 121)
    assert found.clean is clean
    assert found.due == 2 + clean
    assert found.counts["succeeded"] == 2 + clean


def test_before_it_was_added_and_after_it_was_removed_nothing_is_due():
    book = Book(HOURLY)
    book.plan(NOON + 2 * HOUR)
    book.change(Change.REMOVED, NOON + 2.5 * HOUR)
    found = audited(book, since=NOON - DAY, now=NOON + DAY)
    assert (found.due, found.counts) == (2, {"succeeded": 2})


def test_a_job_that_was_removed_and_added_again():
    book = Book(HOURLY)
    book.plan(NOON + 2 * HOUR)
    book.change(Change.REMOVED, NOON + 2.5 * HOUR)
    book.change(Change.ADDED, NOON + 5.5 * HOUR)
    book.plan(NOON + 6 * HOUR)
    assert audited(book, now=NOON + 6 * HOUR + 1).counts == {"succeeded": 3}


def test_what_retention_removed_is_forgotten():
    book = Book(HOURLY)
    book.plan(NOON + 5 * HOUR)
    del book.runs[:3]
    book.job = replace(book.job, kept_since=NOON + 3.5 * HOUR)
    found = audited(book, now=NOON + 5 * HOUR + 1)
    assert found.counts == {"succeeded": 2, "forgotten": 3}
    assert "retention" in found.findings[0].text


def test_nine_days_under_the_default_retention_are_clean_and_one_missing_row_is_not():
    """The scheduler's own planner, runs and retention, in a world whose clock is told to go on."""
    scheduler = Scheduler("memory://")

    @scheduler.every("1h")
    def pay() -> None:
        """Nothing to do."""

    with virtual(scheduler, now="2026-11-07T14:52Z") as world, scheduler._service.ledger() as ledger:
        world.advance(to="2026-11-16T14:52Z")
        options = scheduler._service.options
        removed = ledger.prune(
            "default", before=ledger.now() - options.keep_for, keep=options.keep, limit=10_000
        ).removed
        (found,) = scheduler.audit("pay", since="-9d")
        assert found.clean, found.lines()
        assert found.counts == {"forgotten": removed, "succeeded": 9 * 24 - removed}
        tables, newest = ledger._tables, world.runs("pay")[-1]
        tables.delete(tables.runs[newest.id])
        (found,) = scheduler.audit("pay", since="-9d")
        assert found.counts[UNACCOUNTED] == 1


def test_a_row_that_stands_for_several_accounts_for_all_of_them():
    book = Book(MINUTELY)
    book.plan(NOON + 5 * HOUR)
    assert book.runs[0].count > 1
    found = audited(book, now=NOON + 5 * HOUR + 1)
    assert found.clean
    assert found.due == 300
    assert found.counts["skipped(missed)"] == book.runs[0].count
    partly = audited(book, since=NOON + HOUR, now=NOON + 5 * HOUR + 1)
    assert partly.clean


@pytest.mark.parametrize("short", [1, 3])
def test_but_not_for_more_than_it_says(short):
    book = Book(MINUTELY)
    book.plan(NOON + 5 * HOUR)
    book.runs[0] = replace(book.runs[0], count=book.runs[0].count - short)
    found = audited(book, now=NOON + 5 * HOUR + 1)
    assert found.counts[UNACCOUNTED] == short
    assert sum(found.counts.values()) == found.due


def test_long_lists_are_cut_for_people_and_the_worst_comes_first():
    book = Book(MINUTELY)
    for minute in range(100):
        book.plan(NOON + 60 * minute)
    book.runs = book.runs[::2]
    lines = audited(book, now=NOON + 2 * HOUR, until=NOON + 6000).lines()
    assert len(lines) == 22
    assert lines[1].strip().startswith(UNACCOUNTED)
    assert lines[-1].strip() == "and 29 more like these"


def test_without_a_history_the_trigger_of_the_row_counts_from_since():
    book = Book(HOURLY)
    book.plan(NOON + 2 * HOUR)
    found = audit(book.job, [], book.runs, since=NOON - DAY, until=NOON + 2 * HOUR + 1, now=NOON + 2 * HOUR + 1)
    assert found.counts == {"succeeded": 2}


steps = st.lists(
    st.tuples(
        st.sampled_from([*Change, None, None, None]),
        st.sampled_from([HOURLY, MINUTELY, every("7m"), cron("*/20 * * * *", tz="Asia/Kathmandu"), ONCE]),
        st.integers(1, 20_000),
        st.sampled_from([50, 20_000]),
    ),
    max_size=12,
)


@settings(deadline=None)
@given(steps, st.randoms(use_true_random=False))
def test_whatever_is_done_to_a_job_everything_is_accounted_for_and_one_missing_row_is_noticed(history, chance):
    book, now = Book(MINUTELY, rules=Rules(spread=7.0)), NOON
    for what, trigger, later, limit in history:
        now += later
        state = book.job.state
        possible = {
            JobState.ACTIVE: {Change.UPDATED, Change.PAUSED, Change.REMOVED},
            JobState.PAUSED: {Change.UPDATED, Change.RESUMED, Change.REMOVED},
            JobState.REMOVED: {Change.ADDED},
        }[state]
        if what in possible:
            book.change(what, now, trigger if what in {Change.ADDED, Change.UPDATED} else None)
        elif what is None and state is JobState.ACTIVE:
            book.plan(now, steps=limit)
    found = audited(book, now=now + 1)
    assert found.clean, found.lines()
    assert sum(found.counts.values()) == found.due
    if book.job.state is JobState.ACTIVE:
        book.plan(now)
    settled = [each for each in book.runs if each.scheduled_for < now - 200]
    last = max((each.scheduled_for for each in settled), default=0)
    inner = [each for each in settled if each.scheduled_for < last and _followed(book, each)]
    if inner:
        gone = chance.choice(inner)
        book.runs.remove(gone)
        assert audited(book, now=now + 1).counts[UNACCOUNTED] == gone.count


def _followed(book, this):
    """A later run of the same stretch is there, so that no change can explain its absence."""
    (stretch,) = [s for s in stretches(book.job, book.changes) if s.start < this.scheduled_for <= s.end]
    return any(this.scheduled_for < other.scheduled_for <= stretch.end for other in book.runs)


def test_a_run_that_was_cancelled_before_its_trigger_changed_is_expected():
    book = Book(HOURLY)
    book.plan(NOON + HOUR)
    cancelled = run(NOON + 2 * HOUR, RunState.CANCELLED, attempt=0, finished_at=NOON + 2 * HOUR - 8)
    book.runs.append(cancelled)
    book.change(Change.UPDATED, NOON + 2 * HOUR - 4, cron("30 * * * *"))
    book.plan(NOON + 3 * HOUR)
    found = audited(book, now=NOON + 3 * HOUR + 1)
    assert found.clean, found.lines()
    assert found.counts == {"succeeded": 2, "cancelled": 1}
    book.runs.append(replace(cancelled, scheduled_for=NOON + 2 * HOUR + 60))
    assert audited(book, now=NOON + 3 * HOUR + 1).counts[UNEXPECTED] == 1, "that no trigger had"


def test_a_run_that_began_while_the_change_of_its_trigger_was_on_its_way_is_expected():
    """A change says when its statement began; a claim may come before its effect. Found by the simulator."""
    book = Book(HOURLY)
    book.plan(NOON + HOUR)
    book.change(Change.UPDATED, NOON + 2 * HOUR - 0.05, cron("30 * * * *"))
    began = run(NOON + 2 * HOUR, RunState.CANCELLED, attempt=1, finished_at=NOON + 2 * HOUR + 15)
    book.runs.append(began)
    book.plan(NOON + 3 * HOUR)
    found = audited(book, now=NOON + 3 * HOUR + 1)
    assert found.clean, found.lines()
    assert found.counts == {"succeeded": 2, "cancelled": 1}
    for stranger in (
        replace(began, attempt=0),  # the change takes away what has not begun
        replace(began, scheduled_for=NOON + 2 * HOUR + 5),  # no trigger had that
        replace(began, scheduled_for=NOON + 3 * HOUR),  # no change is on its way for so long
    ):
        book.runs[book.runs.index(began)] = stranger
        assert audited(book, now=NOON + 3 * HOUR + 1).counts[UNEXPECTED] == 1, stranger
        book.runs[book.runs.index(stranger)] = began


def test_a_trigger_that_cannot_be_read_is_said_for_its_time_alone():
    book = Book(HOURLY)
    book.plan(NOON + 2 * HOUR)
    book.change(Change.UPDATED, NOON + 2.5 * HOUR)
    book.changes[-1] = replace(book.changes[-1], trigger='{"kind": "moon"}')
    book.plan(NOON + 3 * HOUR)
    book.change(Change.UPDATED, NOON + 3.5 * HOUR)
    book.plan(NOON + 5 * HOUR)
    found = audited(book, now=NOON + 5 * HOUR + 1)
    assert not found.clean
    assert found.counts == {"succeeded": 5, UNREADABLE: 1}
    assert [(f.first, f.text[:28]) for f in found.findings] == [(NOON + 2.5 * HOUR, "its trigger cannot be read: ")]
    assert audited(book, now=NOON + 5 * HOUR + 1, since=NOON + 4 * HOUR).clean
    assert audited(book, now=NOON + 5 * HOUR + 1, until=NOON + 2 * HOUR).clean


@settings(deadline=None)
@given(st.sampled_from([HOURLY, every("7s"), cron("0 0 29 2 *"), cron("*/10 9-17 * * 1-5")]), st.integers(0, 10**8))
def test_the_last_due_time_is_the_one_before_the_next(trigger, later):
    upto = NOON + later
    found = last_due(trigger, upto)
    assert found <= upto
    assert trigger.following(found) > upto


def test_what_was_never_due_has_no_last_due_time():
    assert last_due(ONCE, NOON) is None
    assert last_due(ONCE, NOON + DAY) == NOON + 3 * HOUR
