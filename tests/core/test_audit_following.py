"""The audit and `why` of a job that follows another: each run of the parent is accounted for, or named."""

from dataclasses import replace

import pytest

from ledgers import NOON, run
from tenure.core.audit_following import ParentPast, audit_follower, followed_jobs
from tenure.core.coverage import Coverage
from tenure.core.explain import explain
from tenure.core.keys import due_key
from tenure.core.messages import OwedRun, Past
from tenure.core.records import Change, ChangeRecord, JobId, JobRow, JobSpec, JobState, Rules, RunKind, RunState
from tenure.triggers import every

HOURLY = every("1h").to_json()
H = 3600.0
LOAD = JobRow(JobId(2), JobSpec("app", "load", "load", HOURLY), JobState.ACTIVE, 1, None, since=NOON - 99 * H)
REPORT = JobRow(
    JobId(1), JobSpec("app", "report", "report", None, Rules(after="load")), JobState.ACTIVE, 1, None, since=NOON
)
ADDED = ChangeRecord(JobId(1), 1, NOON, Change.ADDED, None, after="load")
NOW = NOON + 10 * H


def of(hour, state=RunState.SUCCEEDED, **more):
    """A run at this hour after noon."""
    at = NOON + hour * H
    return run(at, state, key=more.pop("key", due_key(at)), finished_at=at + 1, **more)


def past(*runs):
    return Past({}, runs)


def audited(theirs, mine, *, owed=(), changes=(ADDED,), job=REPORT, parent=LOAD, now=NOW, since=NOON - 5 * H):
    parents = {"load": ParentPast(parent, theirs, owed)}
    found, left = audit_follower(job, changes, mine, parents, since=since, until=now, now=now)
    return found, left


def kinds(found):
    return [(one.kind, round((one.first - NOON) / H), one.count) for one in found.findings]


def test_every_run_of_the_parent_has_one_of_the_follower():
    theirs = [of(1), of(2, RunState.FAILED), of(3, RunState.SKIPPED, count=4, until=NOON + 6 * H)]
    mine = [of(1), of(2, RunState.SKIPPED, reason="after: load failed"), replace(theirs[2], reason="after: load")]
    found, left = audited(past(*theirs), past(*mine))
    assert (found.clean, found.due) == (True, 6)
    assert found.counts == {"succeeded": 1, "skipped(after: load failed)": 1, "skipped(after: load)": 4}
    assert left == past()


def test_plain_runs_are_compared_by_their_due_times():
    theirs = Past({RunState.SUCCEEDED: [round((NOON + hour * H) * 1e6) for hour in (1, 2, 3)]}, ())
    mine = Past({RunState.FAILED: [round((NOON + hour * H) * 1e6) for hour in (1, 3)]}, (of(2, RunState.SKIPPED),))
    found, _ = audited(theirs, mine)
    assert (found.clean, found.counts) == (True, {"failed": 2, "skipped": 1})


def test_a_run_that_is_missing_breaks_the_promise():
    found, _ = audited(past(of(1), of(2), of(3)), past(of(1), of(3)))
    assert not found.clean
    assert kinds(found) == [("unaccounted", 2, 1)]
    assert "NOT CLEAN" in found.lines()[0]


def test_a_row_that_stands_for_several_must_be_there_too():
    found, _ = audited(past(of(1, RunState.SKIPPED, count=7, until=NOON + 8 * H)), past())
    assert (found.clean, kinds(found)) == (False, [("unaccounted", 1, 7)])


def test_what_is_owed_is_named_and_is_overdue_after_the_grace():
    owed = [OwedRun("load", due_key(NOON + hour * H), NOON + hour * H, NOON + hour * H + 1) for hour in (1, 2)]
    soon, _ = audited(past(of(1), of(2)), past(), owed=owed, now=NOON + 2 * H + 5)
    assert (soon.clean, kinds(soon)) == (True, [("overdue", 1, 1), ("open", 2, 1)])
    assert "owed: 'load' has ended for it" in soon.findings[0].text
    assert soon.overdue == 1


def test_an_open_run_of_the_parent_is_waited_for():
    found, _ = audited(past(of(9, RunState.RUNNING)), past())
    assert (found.clean, kinds(found)) == (True, [("open", 9, 1)])
    assert found.findings[0].text == "its run follows that of 'load', which is running"


def test_what_was_due_before_it_followed_is_only_counted_if_it_was_followed():
    found, left = audited(past(of(-2), of(-1), of(1)), past(of(-1), of(1)))
    assert (found.clean, found.due, left) == (True, 2, past())


def test_runs_from_when_it_followed_none_are_left_to_the_other_audit():
    before = replace(ADDED, at=NOON - 4 * H, trigger=HOURLY, after=None)
    old = of(-3)
    found, left = audited(past(of(1)), past(old, of(1)), changes=(before, replace(ADDED, what=Change.UPDATED)))
    assert (found.counts, left) == ({"succeeded": 1}, past(old))


def test_a_removal_explains_what_was_not_inserted_before_it():
    removed = replace(ADDED, at=NOON + 2.5 * H, what=Change.REMOVED, by="ops")
    found, _ = audited(past(of(1), of(2), of(3)), past(of(1)), changes=(ADDED, removed))
    assert (found.clean, kinds(found)) == (True, [("removed", 2, 1)])
    assert "the job was removed by ops" in found.findings[0].text


def test_what_retention_has_removed_is_no_loss():
    found, _ = audited(past(of(1), of(2)), past(of(2)), job=replace(REPORT, kept_since=NOON + 1.5 * H))
    assert (found.clean, kinds(found)) == (True, [("forgotten", 1, 1)])
    found, _ = audited(past(of(2)), past(of(1), of(2)), parent=replace(LOAD, kept_since=NOON + 1.5 * H))
    assert (found.clean, found.counts) == (True, {"succeeded": 2})


def test_a_run_that_follows_none_is_unexpected():
    found, _ = audited(past(of(2)), past(of(1), of(2)))
    assert (found.clean, kinds(found)) == (False, [("unexpected", 1, 1)])


def test_requested_runs_are_followed_by_their_keys():
    asked = [of(1, kind=RunKind.MANUAL, key="a"), of(2, kind=RunKind.MANUAL, key="b")]
    found, _ = audited(past(*asked), past(asked[0], of(3, kind=RunKind.MANUAL, key="alone")))
    assert (found.due, kinds(found)) == (2, [("unaccounted", 2, 1)])
    assert [run.key for run in found.extra] == ["alone"]


def test_whom_a_job_has_followed_is_read_from_its_history():
    other = replace(ADDED, at=NOON - H, after="other")
    assert followed_jobs(REPORT, (other, ADDED)) == {"other", "load"}
    assert followed_jobs(REPORT, ()) == {"load"}
    assert followed_jobs(LOAD, ()) == set()


# Why


def why(*mine, at=None, theirs=(), parent=LOAD):
    coverage = Coverage("app", [], None)
    return explain(REPORT, [ADDED], mine, at=at, now=NOW, coverage=coverage, parent=parent, followed=theirs)


@pytest.mark.parametrize(
    ("parent", "words"),
    [
        (LOAD, "It follows 'load' (on success)."),
        (None, "It follows 'load' (on success), but there is no job 'load'"),
        (replace(LOAD, state=JobState.REMOVED, removed_by="ops"), "'load' was removed by ops"),
        (replace(LOAD, state=JobState.PAUSED), "'load' is paused"),
        (replace(LOAD, state=JobState.DONE), "'load' is done"),
    ],
)
def test_why_says_whom_it_follows_and_whether_that_can_run(parent, words):
    assert words in why(parent=parent).text


def test_why_says_what_became_of_the_run_that_it_follows():
    at = NOON + 2 * H
    skipped = why(of(2, RunState.SKIPPED, reason="after: load failed", attempt=0), at=at)
    assert skipped.cause == "parent"
    assert skipped.text.endswith("was skipped: load failed, and it follows 'load' on success.")
    running = why(at=at, theirs=[of(2, RunState.RUNNING)])
    assert (running.cause, "is running" in running.text) == ("follows", True)
    owed = why(at=at, theirs=[of(2)])
    assert (owed.cause, "no node has inserted the run" in owed.text) == ("owed", True)
    assert why(at=at).cause == "follows"
