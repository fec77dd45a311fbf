"""A world of its own for jobs: production plans and decides, time goes when it is told to."""

import asyncio
import socket
import threading
from collections import Counter
from datetime import UTC, datetime
from unittest.mock import AsyncMock
from zoneinfo import ZoneInfo

import pytest

import tenure.testing
from tenure.core.messages import RunQuery
from tenure.errors import AttemptCancelled, AttemptLost, ConfigurationError, UnknownJob
from tenure.events import RunFailed, RunRetried, RunSkipped, RunSucceeded
from tenure.run import Run, current_run
from tenure.scheduler import Scheduler
from tenure.testing import virtual
from tenure.triggers import cron, every


@pytest.fixture
def scheduler():
    """Its URL leads nowhere: nothing may touch it."""
    return Scheduler("postgresql://nobody@127.0.0.1:1/nowhere", tz="Asia/Seoul")


def test_two_days_pass(scheduler):
    days = []

    @scheduler.cron("0 3 * * *", timeout="20m", retries=2)
    def daily_aggregate(run: Run) -> None:
        days.append(run.scheduled_for)

    with virtual(scheduler, now="2026-11-14T12:00Z") as world:
        assert world.now == datetime(2026, 11, 14, 21, tzinfo=ZoneInfo("Asia/Seoul"))
        world.advance(to="2026-11-16T12:00Z")
        runs = world.runs("daily_aggregate")
        assert [run.state for run in runs] == ["succeeded", "succeeded"]
        assert [run.scheduled_for for run in runs] == days
        assert [run.lateness for run in runs] == [0.0, 0.0]
    seoul = ZoneInfo("Asia/Seoul")
    assert days == [datetime(2026, 11, 15, 3, tzinfo=seoul), datetime(2026, 11, 16, 3, tzinfo=seoul)]
    assert days[0].utcoffset() == seoul.utcoffset(days[0])


def test_every_due_time_runs_once_at_its_own_instant_in_order(scheduler):
    seen = []

    @scheduler.every("7s")
    def quick():
        seen.append(("quick", world.now.timestamp()))

    @scheduler.every("200ms", name="quicker")
    def quicker():
        seen.append(("quicker", world.now.timestamp()))

    with virtual(scheduler, now="2026-11-14T12:00Z") as world:
        start = world.now.timestamp()
        world.advance(by="60s")
        audits = {audit.name: audit for audit in scheduler.audit(since="2026-11-14T12:00Z")}
        assert all(audit.clean for audit in audits.values())
    assert [at for _, at in seen] == sorted(at for _, at in seen)
    assert [round(at - start, 3) for name, at in seen if name == "quicker"] == [
        round(n * 0.2, 3) for n in range(1, 301)
    ]
    assert len([name for name, _ in seen if name == "quick"]) == len([n for n in range(1, 61) if (start + n) % 7 == 0])


def test_a_month_is_quick_and_needs_no_thread_and_no_network(scheduler, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("nothing here connects or starts a thread")

    @scheduler.cron("*/15 * * * *")
    async def often() -> None: ...

    with virtual(scheduler, now="2026-11-01T00:00Z") as world:
        monkeypatch.setattr(threading.Thread, "start", refuse)
        monkeypatch.setattr(socket.socket, "connect", refuse)
        world.advance(to="2026-12-01T00:00Z")
        assert len(world.runs("often", state="succeeded")) == 30 * 24 * 4


def test_failures_are_tried_again_in_virtual_time(scheduler):
    attempts = []

    @scheduler.every("1h", retries=2, backoff=("10s", "1m"))
    def flaky(run: Run) -> None:
        attempts.append((run.attempt, world.now.timestamp() - run.scheduled_for.timestamp()))
        raise ValueError(f"no luck at {run.attempt}")

    with virtual(scheduler, now="2026-11-14T12:00Z") as world:
        world.advance(to="2026-11-14T13:00:05Z")
        assert [run.state for run in world.runs("flaky")] == ["pending"]
        world.advance(by="1m")
        [run] = world.runs("flaky")
        assert (run.state, run.attempt, run.failures) == ("failed", 3, 3)
        assert run.reason.endswith("ValueError: no luck at 3")
    assert attempts == [(1, 0.0), (2, 10.0), (3, 30.0)]


def test_a_run_that_is_asked_for(scheduler):
    @scheduler.job
    def greet(name: str, run: Run) -> None:
        run.log(f"hello {name}")

    with virtual(scheduler, now="2026-11-14T12:00Z") as world:
        run = world.run_now("greet", kwargs={"name": "Ada"}, by="ops")
        assert (run.state, run.kind, run.by) == ("succeeded", "manual", "ops")
        assert scheduler.log(run.id) == ["hello Ada"]
        with pytest.raises(UnknownJob, match="Did you mean 'greet'"):
            world.run_now("great")
        with pytest.raises(UnknownJob):
            world.runs("great")


def test_a_run_for_later_runs_at_its_time(scheduler):
    seen = []

    @scheduler.job
    def remind(order: int) -> None:
        seen.append((order, world.now))

    with virtual(scheduler, now="2026-11-14T12:00Z") as world:
        begin = world.now
        scheduler.run_at("remind", in_="2h", kwargs={"order": 1})
        scheduler.run_at("remind", in_="1h", kwargs={"order": 2}, slot="a")
        scheduler.run_at("remind", in_="3h", kwargs={"order": 3}, slot="a", if_waiting="later")
        world.advance(by="1d")
        assert [(order, (at - begin).total_seconds() / 3600) for order, at in seen] == [(1, 2.0), (3, 3.0)]
        scheduler.run_at("remind", in_="1h", kwargs={"order": 4})
        world.down(by="1d")
        world.advance(by=0)
    assert seen[-1][0] == 4, "it is never missed"


def test_the_verbs_of_the_scheduler_act_on_the_world(scheduler):
    @scheduler.every("1h")
    def hourly() -> None: ...

    @scheduler.job
    def report(customer: int) -> None: ...

    with virtual(scheduler, now="2026-11-14T12:00Z") as world:
        scheduler.pause("hourly", until="90m", why="maintenance")
        scheduler.add(report, every("30m"), name="report:7", kwargs={"customer": 7})
        world.advance(to="2026-11-14T15:00Z")
        assert [run.scheduled_for.astimezone(UTC).hour for run in world.runs("hourly")] == [14, 15]
        assert len(world.runs("report:7")) == 6
        scheduler.update("report:7", trigger=cron("0 16 * * *", tz="UTC"))
        scheduler.remove("hourly")
        world.advance(by="2h")
        assert len(world.runs("report:7")) == 7


@pytest.mark.parametrize(
    ("missed", "ran", "skipped"), [("latest", [15], [13, 14]), ("skip", [], [13, 14, 15]), ("all", [13, 14, 15], [])]
)
def test_downtime_is_settled_by_the_policy(scheduler, missed, ran, skipped):
    @scheduler.every("1h", missed=missed)
    def hourly() -> None: ...

    with virtual(scheduler, now="2026-11-14T12:30Z") as world:
        world.down(to="2026-11-14T15:30Z")
        world.advance(by=0)
        hours = {run.scheduled_for.astimezone(UTC).hour: run.state for run in world.runs("hourly")}
        assert [hour for hour, state in hours.items() if state == "succeeded"] == ran
        assert [hour for hour, state in hours.items() if state == "skipped"] == skipped


def test_effects_count_once_per_run_and_only_if_the_body_returned(scheduler):
    done = []

    @scheduler.every("1h", retries=2)
    def bill(run: Run) -> None:
        if run.once(None, "invoices"):
            done.append(("invoices", run.attempt))
        if run.attempt == 1:
            raise OSError("rolled back")
        run.complete(None)

    with virtual(scheduler, now="2026-11-14T12:30Z") as world:
        world.advance(to="2026-11-14T13:30Z")
        assert [run.state for run in world.runs("bill")] == ["succeeded"]
    assert done == [("invoices", 1), ("invoices", 2)]


def test_listeners_have_heard_when_advance_returns(scheduler):
    heard = []

    @scheduler.every("1h", retries=1, missed="skip")
    def flaky(run: Run) -> None:
        if run.scheduled_for.astimezone(UTC).hour == 14:
            raise ValueError("no")

    scheduler.on(RunFailed, RunRetried, RunSkipped, RunSucceeded)(heard.append)
    with virtual(scheduler, now="2026-11-14T12:30Z") as world:
        world.advance(to="2026-11-14T14:30Z")
        assert [type(event) for event in heard] == [RunSucceeded, RunRetried, RunFailed]
        world.down(by="2h")
        world.advance(by=0)
        assert [type(event) for event in heard[3:]] == [RunSkipped, RunSkipped]


def test_bodies_know_their_run_and_do_not_sleep(scheduler):
    @scheduler.every("1h")
    async def waits(run: Run) -> None:
        assert current_run() is run
        assert run.wait("1h")
        await asyncio.sleep(0)

    with virtual(scheduler, now="2026-11-14T12:30Z") as world:
        world.advance(by="1h")
        assert [run.state for run in world.runs("waits")] == ["succeeded"]
    with pytest.raises(ConfigurationError, match="not called from the body"):
        current_run()


def test_an_interrupt_is_not_a_failed_run(scheduler):
    @scheduler.every("1h")
    def interrupted() -> None:
        raise KeyboardInterrupt

    with virtual(scheduler) as world, pytest.raises(KeyboardInterrupt):
        world.advance(by="1h")


def test_two_worlds_have_nothing_in_common(scheduler):
    @scheduler.every("1h")
    def hourly() -> None: ...

    for _ in range(2):
        with virtual(scheduler, now="2026-11-14T12:30Z") as world:
            world.advance(by="1h")
            assert len(world.runs()) == 1
    assert "nowhere" in scheduler.store.shown


def test_what_is_wrong_is_said(scheduler):
    @scheduler.every("1h")
    def mover() -> None:
        with pytest.raises(ConfigurationError, match="a body cannot move the clock"):
            world.advance(by="1h")

    @scheduler.job
    def again() -> None:
        scheduler.run_now("again")

    with virtual(scheduler) as world:
        with pytest.raises(ConfigurationError, match="one of them"):
            world.advance()
        with pytest.raises(ConfigurationError, match="goes forward"):
            world.advance(to="2025-11-14T12:30Z")
        with pytest.raises(ConfigurationError, match="no time zone"):
            world.advance(to="2026-11-14T12:30")
        world.advance(by="1h")
        assert [run.state for run in world.runs("mover")] == ["succeeded"]
        with pytest.raises(ConfigurationError, match=r"nothing comes to rest.*run_now"):
            world.run_now("again")


def test_inside_a_running_loop_a_coroutine_is_refused(scheduler):
    @scheduler.every("1h")
    async def beat() -> None: ...

    async def test():
        with virtual(scheduler) as world, pytest.raises(ConfigurationError, match="Write the test as a plain function"):
            world.advance(by="1h")

    asyncio.run(test())
    with virtual(scheduler) as world:
        asyncio.run(asyncio.to_thread(world.advance, by="1h"))
        assert [run.state for run in world.runs("beat")] == ["succeeded"]


def test_a_run_for_the_test_of_a_body():
    def body(run: Run) -> None:
        for page in range(10):
            run.check()
            run.log(f"page {page}")
            if page == 1:
                run.cancel("enough")

    run = tenure.testing.run("export", scheduled_for="2026-11-15T03:00+09:00", attempt=2)
    assert (run.job, run.key, run.attempt, run.kind) == ("export", "2026-11-14T18:00:00Z", 2, "due")
    assert run.scheduled_for.isoformat() == "2026-11-15T03:00:00+09:00"
    with pytest.raises(AttemptCancelled, match="enough"):
        body(run)
    assert run.lines == ("page 0", "page 1")
    assert run.wait("1h") is False
    run.lose("frozen too long")
    with pytest.raises(AttemptLost, match="frozen too long"):
        run.check()


def test_a_run_notes_its_effects():
    run = tenure.testing.run(done={"mails"})
    assert (run.once(object(), "invoices"), run.once(object(), "invoices"), run.once(object(), "mails")) == (
        True,
        False,
        False,
    )
    assert (run.effects, run.completed) == (["invoices"], False)
    run.complete(object())
    assert run.completed
    with pytest.raises(ConfigurationError, match="must be text"):
        run.once(object(), "")


def test_a_run_notes_its_effects_in_the_other_colour():
    async def body(run):
        assert await run.once(AsyncMock(), "invoices")
        await run.complete(AsyncMock())

    run = tenure.testing.run()
    asyncio.run(body(run))
    assert (run.effects, run.completed) == (["invoices"], True)


@pytest.mark.parametrize("verb", ["pause", "remove"])
def test_due_times_of_a_downtime_before_a_pause_or_a_removal_are_in_the_ledger(verb):
    scheduler = Scheduler("memory://downtime")

    @scheduler.every("10s", missed="all")
    def tick() -> None:
        pass

    with virtual(scheduler, now="2026-03-28T12:00:03Z") as world:
        world.advance(by=60)
        world.down(by=600)
        getattr(scheduler, verb)("tick")
        state, reason = ("skipped", "paused") if verb == "pause" else ("cancelled", "removed")
        [audit] = scheduler.audit("tick", since="-1h")
        assert audit.clean
        with scheduler._service.ledger() as ledger:
            runs = ledger.runs(RunQuery(scheduler.application, "tick", limit=1000))
        assert Counter((run.state, run.reason) for run in runs) == {("succeeded", ""): 6, (state, reason): 60}
        if verb == "pause":
            world.advance(by=30)
            scheduler.resume("tick")
            world.advance(by=30)
            scheduler.backfill("tick", "-3m", "-61s", dry_run=False)  # the newest of them alone
            world.advance(by=600)
            [audit] = scheduler.audit("tick", since="-1h")
            assert audit.clean, audit.lines()
            assert audit.counts["skipped(paused)"] == 48
