"""What a user writes: definitions and their errors, the verbs and the questions. On the store in memory, with a clock of the test."""

import json
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stores.ledger.scene import Worker
from tenure import Run, Scheduler, at, cron, every
from tenure.core.messages import JobChange
from tenure.core.records import RunState
from tenure.errors import Busy, ConfigurationError, JobExists, RunError, UnknownJob
from tenure.jobs.operations import NOBODY, UNSET
from tenure.stores.ledger import Ledger
from tenure.stores.memory.store import MemoryStore
from tenure.util.urls import MemoryURL
from tenure.views import RunView

NOON = datetime(2026, 11, 14, 12, 0, tzinfo=UTC)


class Clock:
    """The clock of the ledger."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now.timestamp()

    def forward(self, **by: float) -> None:
        self.now += timedelta(**by)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def scheduler(clock: Clock) -> Scheduler:
    return Scheduler(MemoryStore(MemoryURL(str(uuid.uuid4())), clock=clock), tz="Asia/Seoul")


def sync(scheduler: Scheduler) -> None:
    """What a start brings to the ledger, without taking part."""
    with scheduler._service.ledger() as ledger:
        ledger.sync(
            scheduler.application,
            scheduler._service.definitions.release,
            scheduler._service.definitions.changes(ledger.now()),
        )


# Definitions


def report() -> None: ...
def letter(customer: int, *, copies: int = 1) -> None: ...
async def beat() -> None: ...
def numbers() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("define", "said"),
    [
        (lambda s: s.cron("61 * * * *")(report), "61"),
        (lambda s: s.cron("0 3 * * *", tz="Mars/Olympus")(report), "Mars/Olympus"),
        (lambda s: s.every("20")(report), "'20s' for seconds or '20m' for minutes"),
        (lambda s: s.every("0s")(report), "0s"),
        (lambda s: s.at(datetime(2026, 12, 31))(report), "tzinfo"),
        (lambda s: s.calendar(start="2026-02-30", at="09:00", months=1)(report), "2026-02-30"),
        (lambda s: s.scheduled("0 3 * * *")(report), "cron('0 3 * * *')"),
        (lambda s: s.scheduled(None)(report), "@scheduler.job"),
        (lambda s: s.cron("0 3 * * *", misfire_grace_time=60), "grace"),
        (lambda s: s.cron("0 3 * * *", overlap="never"), "'skip', 'wait', 'replace' or 'allow'"),
        (lambda s: s.cron("0 3 * * *", retries=-1), "retries"),
        (lambda s: s.job(timeout="20"), "'20s' for seconds or '20m' for minutes"),
        (lambda s: s.job("report"), "@scheduler.job(name='report')"),
        (lambda s: s.job(lambda: None), "name"),
        (lambda s: s.job(numbers), "generator"),
        (lambda s: s.job(name="")(report), "empty"),
        (lambda s: s.every("1h")(letter), "customer"),
        (lambda s: s.every("1h", kwargs={"customer": 1, "copys": 2})(letter), "copies"),
        (lambda s: s.every("1h", kwargs={"customer": object()})(letter), "the key of a row"),
        (lambda s: s.every("1h", process=True)(beat), "coroutine"),
        (lambda s: s.every("1h", process=True, name="x")(lambda: None), "top of a module"),
        (lambda s: s.every("1h")(s.every("2h")(report)), "defined twice"),
        (lambda s: s.job(name="report")(s.job(report) and beat), "one name for two functions"),
        (lambda s: s.on(), "no event"),
        (lambda s: s.on(ValueError), "RunFailed"),
        (lambda s: s.on([RunError]), "RunFailed"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_where_it_is_written(scheduler, define: Callable[[Any], object], said: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        define(scheduler)
    assert said in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"application": ""}, "application"),
        ({"tz": "Moon"}, "Moon"),
        ({"capacity": -1}, "capacity"),
        ({"capacity": True}, "capacity"),
        ({"queues": "reports"}, "queues=['reports']"),
        ({"queues": [""]}, "queues"),
        ({"release": "v7"}, "release"),
        ({"label": ""}, "label"),
        ({"ttl": 3}, "heartbeat_every"),
        ({"drain": "-1s"}, "drain"),
        ({"keep_for": 0}, "keep_for"),
        ({"url": "jobs.db"}, "no scheme"),
        ({"url": "postgresql://app:***@host/app"}, "***"),
    ],
)
def test_wrong_options_are_refused_at_once(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        Scheduler(**{"url": "memory://wrong", **options})
    assert said in str(refusal.value)


def test_defining_needs_no_database(monkeypatch) -> None:
    monkeypatch.delenv("TENURE_URL", raising=False)
    scheduler = Scheduler()
    scheduler.every("30s")(report)
    with pytest.raises(ConfigurationError, match="TENURE_URL"):
        scheduler.jobs()
    monkeypatch.setenv("TENURE_URL", f"memory://{uuid.uuid4()}")
    assert scheduler.jobs() == [], "nothing was started"


def test_decorators_return_the_function_itself(scheduler) -> None:
    assert scheduler.cron("0 3 * * *")(report) is report
    assert scheduler.every("30s", name="often")(report) is report
    assert scheduler.at(NOON, name="noon")(report) is report
    assert scheduler.calendar(start="2026-01-31", at="09:00", months=2, name="calendar")(report) is report
    assert scheduler.job(beat) is beat
    assert scheduler.job(name="letter", queue="post")(letter) is letter
    sync(scheduler)
    assert [job.name for job in scheduler.jobs()] == ["beat", "calendar", "letter", "noon", "often", "report"]


def test_the_same_definition_twice_is_one(scheduler) -> None:
    scheduler.every("30s")(scheduler.every("30s")(report))
    sync(scheduler)
    assert len(scheduler.jobs()) == 1


def test_a_job_is_shown_in_its_own_zone(scheduler) -> None:
    scheduler.cron("0 3 * * *")(report)
    scheduler.cron("0 3 * * *", tz="Europe/Berlin", name="berlin")(report)
    sync(scheduler)
    seoul, berlin = scheduler.find_job("report"), scheduler.find_job("berlin")
    assert (seoul.tz, berlin.tz) == ("Asia/Seoul", "Europe/Berlin")
    assert seoul.next_due.isoformat() == "2026-11-15T03:00:00+09:00"
    assert berlin.next_due.isoformat() == "2026-11-15T03:00:00+01:00"
    assert json.loads(json.dumps(seoul.as_dict()))["next_due"] == "2026-11-15T03:00:00+09:00"


# Verbs


def test_jobs_are_added_at_run_time_for_registered_functions(scheduler) -> None:
    scheduler.job(letter)
    added = scheduler.add(
        letter, cron("0 8 * * *", tz="Europe/Berlin"), name="letter:7", kwargs={"customer": 7}, retries=2
    )
    assert (added.function, added.kwargs, added.rules.retries, added.in_code) == ("letter", {"customer": 7}, 2, False)
    assert added.next_due.isoformat() == "2026-11-15T08:00:00+01:00"
    with pytest.raises(JobExists, match="letter:7"):
        scheduler.add(letter, every("1h"), name="letter:7", kwargs={"customer": 7})
    with pytest.raises(ConfigurationError, match="customer"):
        scheduler.add(letter, every("1h"), name="letter:8")
    with pytest.raises(ConfigurationError, match=r"Put @scheduler\.job above"):
        scheduler.add(report, every("1h"), name="report")
    with pytest.raises(UnknownJob, match="'letter'"):
        scheduler.add("leter", every("1h"), name="letter:9")


def test_another_process_adds_jobs_for_functions_that_it_does_not_have(scheduler) -> None:
    scheduler.job(letter)
    sync(scheduler)
    other = Scheduler(scheduler.store)
    assert other.add("letter", every("1h"), name="letter:7", kwargs={"customer": 7}).function == "letter"


def test_update_changes_what_is_given_and_keeps_the_rest(scheduler, clock) -> None:
    scheduler.job(letter)
    scheduler.add(letter, every("1h"), name="x", kwargs={"customer": 1}, retries=2, timeout="20m")
    after = scheduler.update("x", trigger=every("2h"), overlap="allow")
    assert (after.kwargs, after.rules.retries, after.rules.timeout) == ({"customer": 1}, 2, 1200.0)
    assert (after.rules.overlap, after.rules.max_running) == ("allow", None)
    assert after.next_due == NOON + timedelta(hours=2)
    assert scheduler.update("x", overlap="skip").rules.max_running == 1
    assert scheduler.update("x", kwargs={"customer": 2}).kwargs == {"customer": 2}
    assert scheduler.update("x", trigger=None).next_due is None
    with pytest.raises(ConfigurationError, match="customer"):
        scheduler.update("x", kwargs={})
    with pytest.raises(ConfigurationError, match="max_running"):
        scheduler.update("x", max_instances=3)


def test_an_update_loses_no_due_time_that_nobody_has_planned(scheduler, clock) -> None:
    scheduler.job(report)
    scheduler.add(report, every("1h"), name="hourly")
    clock.forward(hours=3, minutes=30)  # no node was there to plan
    scheduler.update("hourly", trigger=every("2h"))
    due = [(run.scheduled_for.astimezone(UTC).hour, run.state) for run in scheduler.runs("hourly")]
    assert due == [(15, "pending"), (14, "pending"), (13, "pending")]


def test_two_updates_at_once_both_count(scheduler) -> None:
    scheduler.job(report)
    scheduler.add(report, every("1h"), name="x")
    slow = scheduler._service.operations.update("x", trigger=UNSET, kwargs=UNSET, policy={"timeout": "1m"}, said=NOBODY)
    faster = iter([{"retries": 2}, {"queue": "q"}])

    def outrun(ledger: Ledger) -> JobChange:
        change = slow(ledger)
        for words in faster:  # somebody else is faster, twice
            scheduler.update("x", **words)
            break
        return change

    after = scheduler._service.change(outrun).rules
    assert (after.timeout, after.retries, after.queue) == (60.0, 2, "q")


def test_an_update_that_is_always_outrun_gives_up(scheduler) -> None:
    scheduler.job(report)
    scheduler.add(report, every("1h"), name="x")
    slow = scheduler._service.operations.update("x", trigger=UNSET, kwargs=UNSET, policy={"timeout": "1m"}, said=NOBODY)

    def outrun(ledger: Ledger) -> JobChange:
        change = slow(ledger)
        scheduler.update("x", retries=2)
        return change

    with pytest.raises(Busy, match="'x'"):
        scheduler._service.change(outrun)


def test_verbs_on_unknown_jobs_name_the_near_ones(scheduler) -> None:
    scheduler.cron("0 3 * * *", name="daily_aggregate")(report)
    sync(scheduler)
    for verb in (scheduler.pause, scheduler.resume, scheduler.remove, scheduler.run_now, scheduler.update, scheduler.stats,
                 scheduler.find_job, scheduler.runs, scheduler.why, scheduler.audit):  # fmt: skip
        with pytest.raises(UnknownJob, match="Did you mean 'daily_aggregate'"):
            verb("daily_agregate")


def test_pause_and_resume(scheduler, clock) -> None:
    scheduler.every("1h")(report)
    sync(scheduler)
    paused = scheduler.pause("report", why="maintenance", until="2h", by="ops")
    assert (paused.state, paused.paused_by, paused.paused_why) == ("paused", "ops", "maintenance")
    assert paused.paused_until == NOON + timedelta(hours=2)
    assert scheduler.next(1) == [(NOON + timedelta(hours=3), "report")]
    assert "maintenance" in scheduler.why("report")
    assert scheduler.pause("report", until=NOON + timedelta(days=1)).paused_until == NOON + timedelta(days=1)
    with pytest.raises(ConfigurationError, match="in the past"):
        scheduler.pause("report", until=NOON - timedelta(days=1))
    clock.forward(minutes=90)
    assert scheduler.resume("report").next_due == NOON + timedelta(hours=2)
    assert [audit.clean for audit in scheduler.audit("report")] == [True]


def test_removed_is_gone_and_its_history_stays(scheduler) -> None:
    scheduler.every("1h")(report)
    sync(scheduler)
    run = scheduler.run_now("report")
    scheduler.remove("report", by="ops")
    assert scheduler.jobs() == []
    assert [(left.id, left.state) for left in scheduler.runs("report")] == [(run.id, "cancelled")]
    with pytest.raises(UnknownJob):
        scheduler.run_now("report")


def test_run_now_has_its_own_key_and_the_same_key_is_the_same_run(scheduler) -> None:
    scheduler.job(letter)
    sync(scheduler)
    first = scheduler.run_now("letter", kwargs={"customer": 7}, key="order-17", by="ops")
    assert (first.kind, first.state, first.by, first.kwargs) == ("manual", "pending", "ops", {"customer": 7})
    assert scheduler.run_now("letter", kwargs={"customer": 7}, key="order-17") == first
    with pytest.raises(
        ConfigurationError,
        match=r'order-17.*other arguments \(run \d+, pending\), and now with kwargs=\{"customer":8\}',
    ):
        scheduler.run_now("letter", kwargs={"customer": 8}, key="order-17")
    with pytest.raises(ConfigurationError, match="form of the keys that tenure makes"):
        scheduler.run_now("letter", kwargs={"customer": 7}, key="manual-0123456789abcdef")
    assert scheduler.run_now("letter", kwargs={"customer": 7}).key != first.key
    assert scheduler.find_run(first.id) == first
    with pytest.raises(ConfigurationError, match="due time"):
        scheduler.run_now("letter", kwargs={"customer": 7}, key="2026-11-14T12:00:00Z")
    with pytest.raises(ConfigurationError, match="customer"):
        scheduler.run_now("letter")


def test_backfill_shows_first_and_takes_what_was_not_run(scheduler) -> None:
    scheduler.every("1h")(report)
    sync(scheduler)
    span = NOON - timedelta(hours=3), NOON
    due = scheduler.backfill("report", *span)
    assert due == [NOON - timedelta(hours=3), NOON - timedelta(hours=2), NOON - timedelta(hours=1)], "half-open"
    assert scheduler.runs("report") == [], "a dry run does nothing"
    runs = scheduler.backfill("report", *span, dry_run=False, by="ops")
    assert [run.scheduled_for for run in runs] == due
    assert {(run.kind, run.by, run.state) for run in runs} == {("backfill", "ops", "pending")}
    assert runs[0].key == "2026-11-14T09:00:00Z"
    assert scheduler.backfill("report", *span, dry_run=False).total == 0, "they are there already"
    scheduler.cancel(runs[1].id)
    assert scheduler.backfill("report", *span) == [due[1]], "what was cancelled may be run after all"
    assert scheduler.backfill("report", "-30m", NOON + timedelta(days=9)) == [], "nothing of the future"


def test_a_backfill_says_what_it_leaves_out_because_it_was_forgotten(scheduler, caplog) -> None:
    scheduler.every("1h")(report)
    sync(scheduler)
    span = NOON - timedelta(hours=4), NOON
    ran = scheduler.backfill("report", NOON - timedelta(hours=4), NOON - timedelta(hours=2), dry_run=False)
    for run in ran:
        scheduler.cancel(run.id)
    with scheduler._service.ledger() as ledger:
        ledger.advance_backfills(scheduler.application, 10)
        assert ledger.prune(scheduler.application, before=ledger.now(), keep=0, limit=10).removed == 2
    caplog.clear()
    assert scheduler.backfill("report", *span) == [NOON - timedelta(hours=2), NOON - timedelta(hours=1)]
    assert "leaves out 2 due times up to 2026-11-14 18:00:00.000+09:00" in caplog.text
    assert "even_forgotten=True" in caplog.text
    assert len(scheduler.backfill("report", *span, dry_run=False)) == 2
    caplog.clear()
    offered = scheduler.backfill("report", *span, even_forgotten=True)
    assert offered == [run.scheduled_for for run in ran]
    assert "They may run a second time" in caplog.text
    runs = scheduler.backfill("report", *span, dry_run=False, even_forgotten=True)
    assert [run.scheduled_for for run in runs] == offered


def test_a_date_that_has_just_passed_runs_at_once(scheduler) -> None:
    scheduler.job(report)
    sync(scheduler)
    for late in (0, 5, 59):
        job = scheduler.add(report, at(NOON - timedelta(seconds=late)), name=f"late {late}")
        (run,) = scheduler.runs(f"late {late}")
        assert (job.state, run.state, run.kind) == ("active", "pending", "due")
        assert run.scheduled_for == NOON - timedelta(seconds=late)


def test_a_date_beyond_its_grace_is_missed_and_the_caller_is_told(scheduler, caplog) -> None:
    scheduler.job(report)
    sync(scheduler)
    job = scheduler.add(report, at(NOON - timedelta(minutes=2)), name="late")
    (run,) = scheduler.runs("late")
    assert (job.state, job.next_due, run.state, run.reason) == ("done", None, "skipped", "missed")
    assert "'late' was added, but its due time 2026-11-14 20:58:00+09:00 is more than 1 min (grace) past" in caplog.text
    assert "was missed" in scheduler.why("late")
    (audit,) = [audit for audit in scheduler.audit(since="-1d") if audit.name == "late"]
    assert audit.clean, audit.lines()
    assert scheduler.add(report, at(NOON - timedelta(minutes=2)), name="generous", grace="1h").state == "active"


def test_a_new_trigger_of_a_date_that_has_just_passed_runs_at_once(scheduler) -> None:
    scheduler.job(report)
    sync(scheduler)
    scheduler.add(report, every("1h"), name="job")
    assert scheduler.update("job", trigger=at(NOON - timedelta(seconds=5))).state == "active"
    assert [run.state for run in scheduler.runs("job")] == ["pending"]
    assert scheduler.update("job", kwargs={}).state == "active"
    assert len(scheduler.runs("job")) == 1


def test_a_trigger_that_repeats_never_replays_the_past(scheduler) -> None:
    scheduler.job(report)
    sync(scheduler)
    scheduler.add(report, every("1h"), name="hourly")
    assert scheduler.runs("hourly") == []


def test_adding_a_job_that_is_done_says_that_its_due_time_has_run(scheduler, clock, caplog) -> None:
    scheduler.job(report)
    sync(scheduler)
    when = at(NOON - timedelta(seconds=5))
    scheduler.add(report, when, name="once")
    with pytest.raises(JobExists):
        scheduler.add(report, when, name="once")
    (run,) = scheduler.runs("once")
    scheduler.cancel(run.id)
    assert scheduler.find_job("once").state == "done"
    assert scheduler.add(report, when, name="once").state == "done"
    assert f"has been cancelled already (run {run.id}), so it does not run again" in caplog.text
    assert scheduler.runs("once") == [scheduler.find_run(run.id)]
    assert scheduler.add(report, at(NOON + timedelta(seconds=5)), name="once").state == "active"
    assert len(scheduler.runs("once")) == 2


def test_a_removed_job_can_be_restored_as_it_was(scheduler, clock) -> None:
    scheduler.every("1h", retries=3)(report)
    sync(scheduler)
    before = scheduler.find_job("report")
    scheduler.remove("report", by="ops")
    with pytest.raises(UnknownJob, match=r"removed by ops at 2026-11-14 12:00:00\+00:00. `tenure restore report`"):
        scheduler.run_now("report")
    assert scheduler.jobs() == []
    assert scheduler.jobs(removed=True) == [], "no code has defined it since"
    clock.forward(minutes=90)
    sync(scheduler)
    assert [(job.name, job.state, job.removed_by) for job in scheduler.jobs(removed=True)] == [
        ("report", "removed", "ops")
    ]
    after = scheduler.restore("report", by="ops")
    assert (after.state, after.rules, after.trigger) == (before.state, before.rules, before.trigger)
    assert (after.removed_by, after.removed_at, after.generation) == ("", None, before.generation + 2)
    assert scheduler.runs("report") == [], "what fell into the removal is not made up for"
    with scheduler._service.ledger() as ledger:
        assert [(change.what, change.why) for change in ledger.changes("default")][-1] == ("added", "restored")
    with pytest.raises(JobExists, match="not removed"):
        scheduler.restore("report")
    with pytest.raises(UnknownJob, match="Did you mean"):
        scheduler.restore("reportt")


def test_a_key_answers_after_its_run_was_removed(scheduler) -> None:
    scheduler.job(letter)
    scheduler.job(beat)
    sync(scheduler)
    first = scheduler.run_now("letter", kwargs={"customer": 7, "copies": 2}, key="order-17")
    plain = scheduler.run_now("beat", key="once")
    for run in (first, plain):
        scheduler.cancel(run.id)
    with scheduler._service.ledger() as ledger:
        assert ledger.prune(scheduler.application, before=ledger.now() + 60, keep=0, limit=10).removed == 2
    again = scheduler.run_now("letter", kwargs={"copies": 2, "customer": 7}, key="order-17")
    assert (again.id, again.state, again.scheduled_for, again.forgotten) == (
        first.id,
        "cancelled",
        first.scheduled_for,
        True,
    )
    assert again.finished_at is not None
    assert scheduler.run_now("beat", key="once", kwargs={}).id == plain.id
    assert scheduler.runs() == []
    with pytest.raises(
        ConfigurationError, match=r'other arguments \(run \d+, cancelled\), and now with kwargs=\{"customer":8\}'
    ):
        scheduler.run_now("letter", kwargs={"customer": 8}, key="order-17")


def test_a_backfill_without_end_is_refused(scheduler) -> None:
    scheduler.every("1s")(report)
    scheduler.job(beat)
    sync(scheduler)
    with pytest.raises(ConfigurationError, match="10,000"):
        scheduler.backfill("report", "-1d", NOON)
    with pytest.raises(ConfigurationError, match="since, then until"):
        scheduler.backfill("report", NOON, NOON)
    with pytest.raises(ConfigurationError, match="run_now"):
        scheduler.backfill("beat", "-1d", NOON)


def fail(scheduler: Scheduler, name: str, count: int = 1) -> list[int]:
    """Runs of a job that failed, by their numbers."""
    worker = Worker(scheduler.store, scheduler.application, "a worker")
    asked = [scheduler.run_now(name).id for _ in range(count)]
    for _ in asked:
        worker.finish(worker.take().id, RunState.FAILED, error="ValueError: boom")
    worker.close()
    return asked


def test_a_retry_is_the_same_run_again(scheduler) -> None:
    scheduler.job(report)
    sync(scheduler)
    [failed] = fail(scheduler, "report")
    before = scheduler.find_run(failed)
    again = scheduler.retry(failed, by="ops", why="fixed")
    assert (again.id, again.key, again.state, again.attempt) == (before.id, before.key, "pending", 1)
    assert (again.by, again.reason, again.finished_at) == ("ops", "ValueError: boom", None)
    assert before.finished_at is not None
    (action,) = scheduler.actions()
    assert (action.what, action.target, action.run, action.why) == ("retry", "report", failed, "fixed")


def test_a_retry_says_why_not(scheduler) -> None:
    scheduler.every("1h")(report)
    sync(scheduler)
    open_run = scheduler.run_now("report")
    with pytest.raises(RunError, match=rf"retry: run {open_run.id} of 'report' .* is not over: it is pending"):
        scheduler.retry(open_run.id)
    worker = Worker(scheduler.store, scheduler.application, "a worker")
    worker.finish(worker.take().id)
    with pytest.raises(RunError, match=r"has succeeded.*run_now\('report'\)"):
        scheduler.retry(open_run.id)
    with pytest.raises(RunError, match=r"no run 999999.*retention"):
        scheduler.retry(999999)
    with pytest.raises(ConfigurationError, match="str"):
        scheduler.retry("7")  # type: ignore[arg-type]
    [failed] = fail(scheduler, "report")
    scheduler.remove("report", by="ops")
    with pytest.raises(UnknownJob, match=r"removed by ops.*scheduler\.restore\('report'\)"):
        scheduler.retry(failed)
    scheduler.restore("report")
    assert scheduler.retry(failed).state == "pending"


def test_what_failed_is_listed_and_then_retried(scheduler, clock) -> None:
    scheduler.job(report)
    sync(scheduler)
    old = fail(scheduler, "report")
    clock.forward(days=2)
    new = fail(scheduler, "report", 3)
    assert [run.id for run in scheduler.retry_failed("report")] == new, "since a day ago"
    assert {scheduler.find_run(run).state for run in new} == {"failed"}, "nothing was changed"
    assert [run.id for run in scheduler.retry_failed("report", "-3d", "-1d")] == old
    runs = scheduler.retry_failed("report", dry_run=False, by="ops", why="fixed")
    assert [(run.id, run.state, run.by) for run in runs] == [(run, "pending", "ops") for run in new]
    assert [(action.what, action.detail) for action in scheduler.actions()] == [("retry", "3 runs")]
    assert scheduler.retry_failed("report") == []
    with pytest.raises(UnknownJob, match="reprot"):
        scheduler.retry_failed("reprot")
    with pytest.raises(ConfigurationError, match="since, then until"):
        scheduler.retry_failed("report", "-1d", "-2d")


def test_the_audit_accounts_for_a_retried_due_time(scheduler, clock) -> None:
    scheduler.every("1h")(report)
    sync(scheduler)
    clock.forward(minutes=90)
    (run,) = scheduler.backfill("report", "-1h", "-0s", dry_run=False)
    worker = Worker(scheduler.store, scheduler.application, "a worker")
    worker.finish(worker.take().id, RunState.FAILED)
    scheduler.retry(run.id)
    (found,) = scheduler.audit("report", "-1h", "-0s")
    assert (found.clean, found.counts) == (True, {"open": 1})
    worker.finish(worker.take().id)
    (found,) = scheduler.audit("report", "-1h", "-0s")
    assert (found.clean, found.counts) == (True, {"succeeded": 1})


def test_cancel_says_who_and_why(scheduler) -> None:
    scheduler.job(report)
    sync(scheduler)
    run = scheduler.run_now("report")
    cancelled = scheduler.cancel(run.id, why="not needed", by="ops")
    assert (cancelled.state, cancelled.reason) == ("cancelled", "not needed (by ops)")
    with pytest.raises(RunError, match="no run 999999"):
        scheduler.cancel(999999)
    with pytest.raises(ConfigurationError, match="str"):
        scheduler.cancel("7")
    assert scheduler.log(run.id) == []


# Questions


def test_next_merges_the_due_times_of_all_jobs(scheduler) -> None:
    scheduler.every("2h", name="a")(report)
    scheduler.scheduled(at(NOON + timedelta(hours=3)), name="b")(report)
    scheduler.job(name="c")(report)
    sync(scheduler)
    hours = [(round((when - NOON) / timedelta(hours=1)), name) for when, name in scheduler.next(3)]
    assert hours == [(2, "a"), (3, "b"), (4, "a")]
    assert len(scheduler.next()) == 10
    with pytest.raises(ConfigurationError, match="n=-1"):
        scheduler.next(-1)


@pytest.mark.parametrize("unusual", [1, 3, 200])
@pytest.mark.parametrize("forward", [0, 3, 90, 100_000])
def test_next_is_the_same_as_by_all_jobs_without_reading_them(scheduler, clock, monkeypatch, unusual, forward) -> None:
    monkeypatch.setattr("tenure.jobs.queries.UNUSUAL", unusual)
    for number in range(1, 30):
        scheduler.every(f"{number * 7}s", name=f"every {number}", anchor=NOON)(report)
        scheduler.every(f"{number}h", name=f"hour {number}", anchor=NOON + timedelta(seconds=5))(report)
    scheduler.job(name="asked")(report)
    sync(scheduler)
    scheduler.pause("every 1", until="1m")
    scheduler.pause("every 2")
    scheduler.remove("every 3")
    scheduler.run_at("asked", in_="20s")
    scheduler.run_at("hour 3", in_="1m")
    scheduler.run_at("every 2", in_="1m")
    clock.forward(seconds=forward)
    lookup = scheduler._service.lookup
    with scheduler._service.ledger() as ledger:
        every, now = ledger.jobs(scheduler.application), ledger.now()
        expected = {n: lookup.next_of(ledger, every, now, n) for n in (0, 1, 2, 5, 40, 300)}
        if forward < 90 and unusual == 3:  # nothing is late, and few jobs are paused
            assert len(lookup._due_next(ledger, now, 2)) < 20
        for n, due in expected.items():
            found = lookup.next(ledger, n)
            assert [at for at, _ in found] == [at for at, _ in due], n
            assert n < 300 or sorted(found) == sorted(due)


def test_runs_are_asked_for_by_time_and_state(scheduler, clock) -> None:
    scheduler.job(report)
    sync(scheduler)
    old = scheduler.run_now("report")
    scheduler.cancel(old.id)
    clock.forward(days=2)
    new = scheduler.run_now("report")
    assert [run.id for run in scheduler.runs()] == [new.id, old.id]
    assert [run.id for run in scheduler.runs(since="-1d")] == [new.id]
    assert [run.id for run in scheduler.runs(until="2026-11-15T00:00Z")] == [old.id]
    assert [run.id for run in scheduler.runs("report", state="cancelled")] == [old.id]
    assert len(scheduler.runs(state=["cancelled", "pending"])) == 2
    for wrong, said in (({"state": "done"}, "'succeeded'"), ({"since": "yesterday"}, "'-1d'"), ({"since": "1d"}, "'-1d'"),
                        ({"since": "2026-11-14"}, "time zone"), ({"limit": 0}, "limit")):  # fmt: skip
        with pytest.raises(ConfigurationError) as refusal:
            scheduler.runs(**wrong)
        assert said in str(refusal.value)


def test_an_audit_names_what_is_still_open(scheduler, clock) -> None:
    scheduler.every("1h")(report)
    sync(scheduler)
    clock.forward(hours=2, minutes=30)
    (audit,) = scheduler.audit("report")
    assert (audit.due, audit.counts, audit.clean) == (2, {"overdue": 2}, True)
    assert audit.findings[0].text == f"it is not planned: no node of the application {scheduler.application!r} is alive"


def test_once_is_true_for_the_first_and_given_back_by_an_exception(scheduler, clock) -> None:
    with pytest.raises(RuntimeError, match="broke"), scheduler.once("2026-11-14") as first:
        assert first
        raise RuntimeError("broke")
    with scheduler.once("2026-11-14") as first:
        assert first, "the one before gave it back"
        with scheduler.once("2026-11-14") as second:
            assert not second
    with pytest.raises(RuntimeError, match="broke"), scheduler.once("2026-11-14") as first:
        raise RuntimeError("broke")
    with scheduler.once("2026-11-14") as first:
        assert not first, "who was not the first has nothing to give back"
    with scheduler.once("report", within="1h") as first:
        assert first
    clock.forward(minutes=59)
    with scheduler.once("report", within="1h") as first:
        assert not first
    clock.forward(minutes=1)
    with scheduler.once("report", within="1h") as first:
        assert first


def test_applications_do_not_see_each_other(scheduler) -> None:
    scheduler.job(report)
    sync(scheduler)
    run = scheduler.run_now("report")
    other = Scheduler(scheduler.store, application="other")
    assert other.jobs() == []
    assert other.runs() == []
    with pytest.raises(UnknownJob, match="'default'"):
        other.run_now("report")
    with pytest.raises(RunError):
        other.cancel(run.id)


def test_the_run_is_injected_and_not_asked_for_as_an_argument(scheduler) -> None:
    def body(run: Run) -> None: ...

    scheduler.every("1h")(body)
    sync(scheduler)
    assert scheduler.run_now("body").state == "pending"


def test_what_people_do_is_in_the_log_of_actions(scheduler, clock):
    scheduler.job(letter)
    sync(scheduler)
    scheduler.add(letter, every("1h"), name="hourly", kwargs={"customer": 7}, by="ada")
    scheduler.update("hourly", retries=3, by="ada", why="the printer jams")
    scheduler.update("hourly", retries=3, by="ada")
    scheduler.run_now("hourly", key="now", why="for the meeting")
    scheduler.run_now("hourly")
    clock.forward(hours=3)
    scheduler.backfill("hourly", "-2h", "-0s", by="bob")
    number = scheduler.backfill("hourly", "-2h", "-0s", dry_run=False, by="bob", why="the printer jammed").number
    told = [(action.by, action.what, action.target, action.detail, action.why) for action in scheduler.actions()]
    assert told == [
        ("bob", "backfill", "hourly", f"backfill {number}: 2 due times", "the printer jammed"),
        ("", "run-now", "hourly", "key now", "for the meeting"),
        ("ada", "update", "hourly", "", ""),
        ("ada", "update", "hourly", "retries: 0 → 3", "the printer jams"),
        ("ada", "add", "hourly", "", ""),
    ]
    newest, *_, oldest = scheduler.actions()
    assert (newest.at, newest.origin) == (clock.now, scheduler.label)
    assert str(newest.at.tzinfo) == "Asia/Seoul"
    assert oldest.as_dict()["at"] == "2026-11-14T21:00:00+09:00"
    assert [action.what for action in scheduler.actions("hourly", by="bob", since="-1h")] == ["backfill"]
    assert scheduler.actions(since="-1h", until="-1s") == []
    with pytest.raises(ConfigurationError, match="limit: 0"):
        scheduler.actions(limit=0)
    with pytest.raises(ConfigurationError, match="by: 7"):
        scheduler.actions(by=7)


# Runs for later


def test_a_run_for_later_is_shown_where_people_look(scheduler, clock) -> None:
    scheduler.every("8h")(report)
    scheduler.job(name="letter")(letter)
    sync(scheduler)
    run = scheduler.run_at("letter", in_="5m", kwargs={"customer": 7}, by="ops", why="promised")
    assert (run.scheduled_for, run.due_at, run.state, run.kind) == (
        NOON + timedelta(minutes=5),
        NOON + timedelta(minutes=5),
        "pending",
        "manual",
    )
    assert scheduler.next(2)[0] == (run.scheduled_for, "letter")
    assert scheduler.find_job("letter").next_due == run.scheduled_for
    assert {job.name: job.next_due for job in scheduler.jobs()}["letter"] == run.scheduled_for
    assert run in scheduler.runs("letter")
    (action,) = scheduler.actions()
    assert (action.what, action.target, action.run, action.why) == ("run-at", "letter", run.id, "promised")
    clock.forward(minutes=6)
    assert scheduler.find_job("letter").next_due is None


def test_a_time_may_be_written_in_many_ways(scheduler) -> None:
    scheduler.job(report)
    sync(scheduler)
    later = NOON + timedelta(hours=1)
    for when in (later, "2026-11-14T13:00Z", "2026-11-14T22:00+09:00"):
        assert scheduler.run_at("report", when).scheduled_for == later
    assert scheduler.run_at("report", in_=timedelta(hours=1)).scheduled_for == later
    assert scheduler.run_at("report", NOON - timedelta(days=1)).due_at == NOON, "what has passed is due now"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({}, "write a time or in_='5m', one of them"),
        ({"when": NOON, "in_": "5m"}, "one of them"),
        ({"when": "-5m"}, "in the past"),
        ({"when": datetime(2026, 11, 14)}, "no time zone"),
        ({"when": "tomorrow"}, "'tomorrow' is not a point in time"),
        ({"in_": "-5m"}, "-5m"),
        ({"in_": -5}, "less than zero"),
        ({"in_": "5"}, "'5s' for seconds"),
        ({"in_": "5m", "slot": "a", "key": "b"}, "Write one of them"),
        ({"in_": "5m", "slot": ""}, "slot: '' is empty"),
        ({"in_": "5m", "slot": "a", "if_waiting": "never"}, "Write 'keep', 'replace' or 'later'"),
        ({"in_": "5m", "if_waiting": "later"}, "Write slot="),
        ({"in_": "5m", "kwargs": {"customer": 7}}, "no parameter 'customer'"),
    ],
)
def test_a_run_for_later_says_what_is_wrong(scheduler, words, said) -> None:
    scheduler.job(report)
    sync(scheduler)
    with pytest.raises(ConfigurationError) as refused:
        scheduler.run_at("report", **words)
    assert said in str(refused.value)
    assert scheduler.runs() == []


def test_the_same_key_later_is_the_same_run(scheduler) -> None:
    scheduler.job(letter)
    sync(scheduler)
    first = scheduler.run_at("letter", in_="5m", key="k", kwargs={"customer": 7})
    assert scheduler.run_at("letter", in_="9m", key="k", kwargs={"customer": 7}) == first
    with pytest.raises(ConfigurationError, match="The same key is the same run"):
        scheduler.run_at("letter", in_="5m", key="k", kwargs={"customer": 8})


def test_a_slot_is_debounced(scheduler) -> None:
    scheduler.job(letter)
    sync(scheduler)

    def ask(minutes: int, customer: int, **words: Any) -> RunView:
        return scheduler.run_at("letter", in_=60 * minutes, slot="a", kwargs={"customer": customer}, **words)

    first = ask(5, 1)
    assert ask(6, 2) == first
    later = ask(4, 3, if_waiting="later")
    assert (later.id, later.scheduled_for, later.kwargs) == (first.id, first.scheduled_for, {"customer": 3})
    replaced = ask(1, 4, if_waiting="replace")
    assert (replaced.id, replaced.scheduled_for, replaced.kwargs) == (
        first.id,
        NOON + timedelta(minutes=1),
        {"customer": 4},
    )
    assert [run.slot for run in scheduler.runs()] == ["a"]


def test_a_run_is_cancelled_by_its_words(scheduler) -> None:
    scheduler.job(report)
    scheduler.job(name="other")(report)
    sync(scheduler)
    one = scheduler.run_at("report", in_="5m", slot="a")
    other = scheduler.run_at("other", in_="5m", slot="a")
    keyed = scheduler.run_at("report", in_="5m", key="k")
    with pytest.raises(RunError, match="runs of 'other' and 'report' wait in a slot 'a'"):
        scheduler.cancel(slot="a")
    assert scheduler.cancel(slot="a", job="report").id == one.id
    cancelled = scheduler.cancel(slot="a", by="ops")
    assert (cancelled.id, cancelled.state) == (other.id, "cancelled")
    with pytest.raises(RunError, match="no run waits in the slot 'a'"):
        scheduler.cancel(slot="a")
    assert scheduler.cancel(job="report", key="k").id == keyed.id
    with pytest.raises(RunError, match="no run with the key 'z'"):
        scheduler.cancel(job="report", key="z")
    with pytest.raises(UnknownJob):
        scheduler.cancel(job="reprot", key="k")
    for words in ({}, {"key": "k"}, {"run_id": 1, "slot": "a"}, {"key": "k", "slot": "a", "job": "report"}):
        with pytest.raises(ConfigurationError, match="the number of a run"):
            scheduler.cancel(**words)  # type: ignore[arg-type]
