"""`run_now(…).wait()`: the outcome of a run, or what came instead, on every store."""

import asyncio
import sqlite3
import threading

import pytest

from tenure import AsyncScheduler, Scheduler, call
from tenure.errors import ConfigurationError, RunError, RunUnsuccessful, WaitTimeout
from tenure.testing import virtual
from tenure.views import RunView


class Body:
    """The function of a job, which ends when it is told to."""

    def __init__(self):
        self.may_end, self.began = threading.Event(), threading.Event()

    def held(self) -> None:
        self.began.set()
        assert self.may_end.wait(20)


@pytest.fixture
def body():
    body = Body()
    yield body
    body.may_end.set()


@pytest.fixture
def scheduler(any_url, body):
    scheduler = Scheduler(any_url, ttl=6, heartbeat_every=0.5, attempt_timeout=1, drain=5)

    @scheduler.job
    def add(one: int, other: int = 0) -> dict[str, int]:
        return {"sum": one + other}

    @scheduler.job(retries=1, backoff="10ms")
    def fails(why: str) -> None:
        raise ValueError(why)

    scheduler.job(body.held, name="held")
    scheduler.add_up, scheduler.fails = add, fails
    with scheduler:
        yield scheduler


def test_a_run_that_succeeds_is_returned_with_its_result(scheduler):
    asked = scheduler.run_now(scheduler.add_up, 1, other=2)
    run = asked.wait(timeout=20)
    assert type(run) is RunView
    assert (run.id, run.state, run.result, len(run.attempts)) == (asked.id, "succeeded", {"sum": 3}, 1)
    assert scheduler.run_now(call(scheduler.add_up, 1), key="once").wait(20) == (
        scheduler.run_now(call(scheduler.add_up, 1), key="once").wait(20)
    )
    runs = scheduler.run_now_many([call(scheduler.add_up, n) for n in range(5)])
    assert [run.wait(20).result["sum"] for run in runs] == [0, 1, 2, 3, 4]
    assert scheduler.run_at(call(scheduler.add_up, 4), in_="50ms").wait(20).result == {"sum": 4}


def test_a_run_that_fails_is_raised_with_its_reason(scheduler):
    run = scheduler.run_now(scheduler.fails, "no paper")
    with pytest.raises(RunUnsuccessful) as caught:
        run.wait(timeout=20)
    assert str(caught.value) == (
        f"run {run.id} of 'fails' failed on attempt 2: ValueError: no paper. The whole story: tenure show {run.id}"
    )
    assert (caught.value.run.state, len(caught.value.run.attempts)) == ("failed", 2)
    with pytest.raises(RunUnsuccessful, match="failed on attempt 4"):
        scheduler.retry(run.id).wait(timeout=20)


def test_a_run_that_is_cancelled_is_raised(scheduler, body):
    running = scheduler.run_now("held")
    assert body.began.wait(20)
    waiting = scheduler.run_now("held")
    scheduler.cancel(waiting.id, why="not needed")
    with pytest.raises(RunUnsuccessful, match=f"run {waiting.id} of 'held' was cancelled"):
        waiting.wait(timeout=20)
    body.may_end.set()
    assert running.wait(timeout=20).state == "succeeded"


def test_a_run_that_does_not_end_in_time_goes_on(scheduler, body):
    run = scheduler.run_now("held")
    assert body.began.wait(20)
    with pytest.raises(TimeoutError) as caught:
        run.wait(timeout="50ms")
    assert isinstance(caught.value, WaitTimeout)
    assert f"run {run.id} of 'held' has not ended within 50 ms: it is running on {scheduler.label}. It goes on" in str(
        caught.value
    )
    body.may_end.set()
    assert run.wait(timeout=20).state == "succeeded"


def test_the_same_with_asyncio(scheduler, body):
    async def scene() -> None:
        other = AsyncScheduler(scheduler)
        assert (await (await other.run_now(scheduler.add_up, one=1)).wait(timeout=20)).result == {"sum": 1}
        failed = await other.run_now(call(scheduler.fails, "no paper"), key="printing")
        with pytest.raises(RunUnsuccessful, match="no paper"):
            await failed.wait(timeout=20)
        with pytest.raises(RunUnsuccessful, match="no paper"):
            await (await other.retry(failed.id)).wait(timeout=20)
        runs = await other.run_now_many([call(scheduler.add_up, n) for n in range(3)])
        ended = await asyncio.gather(*(run.wait(timeout=20) for run in runs))
        assert [run.result["sum"] for run in ended] == [0, 1, 2]
        held = await other.run_now("held")
        with pytest.raises(WaitTimeout):
            await held.wait(timeout=0.05)
        waiting = asyncio.create_task(held.wait())
        await asyncio.sleep(0)
        body.may_end.set()
        assert (await asyncio.wait_for(waiting, 20)).state == "succeeded"

    asyncio.run(scene())


def test_a_run_whose_transaction_is_open_is_not_waited_for(tmp_path):
    scheduler = Scheduler(f"sqlite:///{tmp_path / 'jobs.db'}")

    @scheduler.job
    def remind() -> None: ...

    with scheduler:
        connection = sqlite3.connect(tmp_path / "jobs.db")
        run = scheduler.run_now(call(remind), conn=connection)
        with pytest.raises(RunError, match=r"If it was requested with conn=, commit that transaction first"):
            run.wait()
        connection.commit()
        connection.close()
        assert run.wait(timeout=20).state == "succeeded"


def test_in_virtual_time_a_wait_says_what_to_write_instead():
    scheduler = Scheduler("memory://virtual-wait")

    @scheduler.job
    def add(one: int) -> int:
        return one + 1

    with virtual(scheduler) as world:
        run = scheduler.run_now(add, one=1)
        with pytest.raises(ConfigurationError, match=r"Write world\.run_now\('add'\)"):
            run.wait()
        world.advance(by=0)
        assert run.wait().result == 2
        assert world.run_now(add, one=2).result == 3
        assert world.run_now(call(add, 3), key="x").result == 4
