"""Backfills as people ask for them. On the store in memory, with nodes driven by hand."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from stores.ledger.scene import Worker
from tenure import Scheduler, every
from tenure.core.records import RunState
from tenure.errors import BackfillError, ConfigurationError, UnknownBackfill, UnknownJob
from tenure.stores.memory.store import MemoryStore
from tenure.util.urls import MemoryURL
from tenure.views import RequestedBackfill

NOON = datetime(2026, 11, 14, 12, 0, tzinfo=UTC)
SPAN = NOON - timedelta(hours=5), NOON
DUE = [NOON - timedelta(hours=hours) for hours in (5, 4, 3, 2, 1)]


def report() -> None:
    """Never called: nodes are driven by hand."""


@pytest.fixture
def scheduler():
    scheduler = Scheduler(MemoryStore(MemoryURL(str(uuid.uuid4())), clock=NOON.timestamp))
    scheduler.job(report)
    scheduler.add(report, every("1h"), name="report", overlap="allow", max_running=None)
    return scheduler


@pytest.fixture
def worker(scheduler):
    worker = Worker(scheduler._service.store, scheduler.application, "a worker")
    yield worker
    worker.close()


def advance(scheduler):
    with scheduler._service.ledger() as ledger:
        ledger.advance_backfills(scheduler.application, 100)


def finish_one(scheduler, worker):
    """Begin the oldest run that may begin, and end it. Returns its due time."""
    (run,) = worker.claim(limit=1).runs
    worker.finish(run.id)
    advance(scheduler)
    return datetime.fromtimestamp(run.scheduled_for, UTC)


def test_a_backfill_has_a_number_and_its_first_runs(scheduler):
    asked = scheduler.backfill("report", *SPAN, dry_run=False, at_once=2, by="ada", why="the printer jammed")
    assert isinstance(asked, RequestedBackfill)
    assert (asked.job, asked.total, asked.left, asked.waiting, asked.state) == ("report", 5, 3, 2, "running")
    assert (asked.since, asked.until, asked.at_once, asked.include) == (*SPAN, 2, ("missing", "lost"))
    assert [run.scheduled_for for run in asked] == [run.scheduled_for for run in asked.runs] == DUE[:2]
    assert (len(asked), asked[0].kind) == (2, "backfill")
    (listed,) = scheduler.backfills()
    assert listed == scheduler.find_backfill(asked.number) == scheduler.backfills("report")[0]
    assert (listed.by, listed.why, listed.created_at) == ("ada", "the printer jammed", NOON)


def test_all_at_once_is_the_default(scheduler):
    asked = scheduler.backfill("report", *SPAN, dry_run=False)
    assert [run.scheduled_for for run in asked] == DUE
    assert (asked.at_once, asked.left) == (None, 0)


def test_where_nothing_is_left_to_run_no_backfill_is_made(scheduler):
    scheduler.backfill("report", *SPAN, dry_run=False)
    nothing = scheduler.backfill("report", *SPAN, dry_run=False)
    assert (nothing.number, nothing.total, nothing.state, list(nothing), bool(nothing)) == (0, 0, "done", [], False)
    assert len(scheduler.backfills()) == 1


def test_progress_is_told_in_words(scheduler, worker):
    number = scheduler.backfill("report", *SPAN, dry_run=False, at_once=2).number
    assert scheduler.find_backfill(number).progress == "0 of 5 finished; 2 waiting, 3 left"
    assert finish_one(scheduler, worker) == DUE[0]
    worker.claim(limit=1)
    view = scheduler.find_backfill(number)
    assert view.progress == "1 of 5 finished: 1 succeeded; 1 running, 1 waiting, 2 left"
    assert view.as_dict()["succeeded"] == 1


def test_pause_resume_and_cancel(scheduler, worker):
    number = scheduler.backfill("report", *SPAN, dry_run=False, at_once=1).number
    paused = scheduler.pause_backfill(number, by="ada", why="the disk is full")
    assert (paused.state, paused.state_by, paused.state_why) == ("paused", "ada", "the disk is full")
    finish_one(scheduler, worker)
    assert scheduler.find_backfill(number).left == 4
    resumed = scheduler.resume_backfill(number, by="ada")
    assert (resumed.state, resumed.waiting) == ("running", 1)
    cancelled = scheduler.cancel_backfill(number, by="bob", why="wrong month")
    assert (cancelled.state, cancelled.progress) == ("cancelled", "2 of 5 finished: 1 succeeded, 1 cancelled; 3 left")
    assert [(action.what, action.by, action.target, action.detail) for action in scheduler.actions()] == [
        ("cancel-backfill", "bob", "report", f"backfill {number}"),
        ("resume-backfill", "ada", "report", f"backfill {number}"),
        ("pause-backfill", "ada", "report", f"backfill {number}"),
    ]
    assert len(scheduler.backfill("report", *SPAN)) == 4, "another one can take them"


def test_include_says_which(scheduler, worker):
    scheduler.backfill("report", *SPAN, dry_run=False)
    fails, *_ = worker.claim().runs
    worker.finish(fails.id, RunState.FAILED, error="no")
    advance(scheduler)
    assert scheduler.backfill("report", *SPAN) == []
    assert scheduler.backfill("report", *SPAN, include="failed") == DUE[:1]
    assert scheduler.backfill("report", *SPAN, include=("missing", "failed")) == DUE[:1]
    again = scheduler.backfill("report", *SPAN, include={"failed"}, dry_run=False)
    assert ([run.attempt for run in again], again.include) == ([1], ("failed",))


@pytest.mark.parametrize("steer", ["pause_backfill", "resume_backfill", "cancel_backfill"])
def test_what_cannot_be_done_is_refused_with_the_reason(scheduler, worker, steer):
    act = getattr(scheduler, steer)
    with pytest.raises(UnknownBackfill, match=r"no backfill 7\. It has none"):
        act(7)
    number = scheduler.backfill("report", *SPAN, dry_run=False).number
    with pytest.raises(UnknownBackfill, match=rf"no backfill 999\. The newest: backfill {number} \('report'\);"):
        act(999)
    with pytest.raises(ConfigurationError, match="'17' is a str"):
        act("17")
    while scheduler.find_backfill(number).state != "done":
        finish_one(scheduler, worker)
    with pytest.raises(BackfillError, match=rf"backfill {number} of 'report' is done"):
        act(number)


def test_a_refusal_says_in_which_state_the_backfill_is(scheduler):
    number = scheduler.backfill("report", *SPAN, dry_run=False, at_once=1).number
    with pytest.raises(BackfillError, match="is not paused"):
        scheduler.resume_backfill(number)
    scheduler.pause_backfill(number, by="ada")
    with pytest.raises(BackfillError, match="is paused already by ada"):
        scheduler.pause_backfill(number)
    scheduler.cancel_backfill(number, by="bob", why="wrong month")
    with pytest.raises(BackfillError, match="was cancelled by bob: wrong month"):
        scheduler.resume_backfill(number)


def test_a_backfill_that_has_requested_all_of_its_runs_cannot_be_paused(scheduler):
    number = scheduler.backfill("report", *SPAN, dry_run=False).number
    with pytest.raises(BackfillError, match=r"5 runs of it are not over. Cancel it, or pause 'report'"):
        scheduler.pause_backfill(number)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"include": "everything"}, "include: 'everything' is not known. Write one or more of 'missing', 'lost'"),
        ({"include": ()}, "include: it is empty"),
        ({"include": 7}, "include: 7 is not a list"),
        ({"at_once": 0}, "at_once: 0 is not a whole number from 1"),
        ({"at_once": True}, "at_once: True is not"),
        ({"at_once": "2"}, "at_once: '2' is not"),
    ],
)
def test_what_makes_no_sense_is_refused(scheduler, given, said):
    with pytest.raises(ConfigurationError, match=said):
        scheduler.backfill("report", *SPAN, **given)
    assert scheduler.backfills() == []


def test_backfills_of_a_job_that_does_not_exist(scheduler):
    with pytest.raises(UnknownJob, match="Did you mean 'report'"):
        scheduler.backfills("raport")
    with pytest.raises(ConfigurationError, match="limit: 0"):
        scheduler.backfills(limit=0)


def test_the_backfills_of_a_removed_job_can_still_be_seen(scheduler):
    scheduler.backfill("report", *SPAN, dry_run=False, at_once=1)
    scheduler.remove("report", by="ada")
    (view,) = scheduler.backfills("report")
    assert (view.state, view.state_by, view.state_why) == ("cancelled", "ada", "the job was removed")
