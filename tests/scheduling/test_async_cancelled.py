"""Coroutines that are cancelled while they enter, loops that stand still or are closed, and bodies that the loop
cancels: nothing is left behind."""

import asyncio
import contextlib
import gc
import logging
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import psycopg
import pytest

import work
from harness.scratch import eventually
from tenure import AsyncElection, AsyncScheduler, Election, Run, Scheduler
from tenure.errors import StoreUnavailable
from tenure.events import Lost, RunSucceeded
from tenure.scheduling import claimer

WITHIN = 10.0


@contextmanager
def held_up(url, table="node"):
    """Whoever writes to that table waits until this block ends."""
    with closing(work.connected(url)) as connection:
        connection.execute(
            "BEGIN IMMEDIATE" if url.startswith("sqlite") else f"LOCK TABLE tenure.{table} IN ACCESS EXCLUSIVE MODE"
        )
        yield
        connection.rollback()


async def cancelled_while_held_up(url, entering, times=1, table="node"):
    """Cancel a coroutine that has begun something which cannot end yet; it must not end before that can be undone."""
    with held_up(url, table):
        task = asyncio.create_task(entering)
        await asyncio.sleep(0.05)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0.05)
        ended_early = task.done()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not ended_early, "the cancellation went on before the start was undone"


def gone_on():
    """Wait for what coroutines that were cancelled have begun."""
    eventually(
        lambda: all(thread.name != "tenure for a coroutine" for thread in threading.enumerate()),
        what="the end of what was begun",
    )


async def inside(context):
    async with context:
        await asyncio.Event().wait()


def an_async_scheduler(url):
    scheduler = AsyncScheduler(url, label="me", ttl=6, heartbeat_every=0.5, drain=2)
    return scheduler, scheduler


def a_scheduler(url):
    scheduler = Scheduler(url, label="me", ttl=6, heartbeat_every=0.5, drain=2)
    return scheduler, scheduler


def a_lifespan(url):
    scheduler = AsyncScheduler(url, label="me", ttl=6, heartbeat_every=0.5, drain=2)
    return scheduler, scheduler.lifespan(object())


@pytest.mark.parametrize("kind", [an_async_scheduler, a_scheduler, a_lifespan])
@pytest.mark.parametrize("times", [1, 2])
def test_a_scheduler_that_is_cancelled_while_it_enters_takes_no_part(url, kind, times):
    with Scheduler(url):
        pass  # the tables are there
    scheduler, context = kind(url)
    asyncio.run(cancelled_while_held_up(url, inside(context), times))
    assert not scheduler.started
    assert scheduler.stop() if kind is a_scheduler else asyncio.run(scheduler.stop())


def test_an_election_that_is_cancelled_while_it_enters_takes_no_part(url):
    Election(url, "x").leader()  # the tables are there
    left = AsyncElection(url, "x", label="left", ttl=6)
    asyncio.run(cancelled_while_held_up(url, inside(left)))
    assert not left.is_leader
    with Election(url, "x", label="worker", ttl=6) as worker:
        assert worker.wait_until_leading(WITHIN)


def test_a_second_start_that_is_cancelled_stops_nothing(url):
    async def scene():
        scheduler = an_async_scheduler(url)[0]
        election = AsyncElection(url, "x", ttl=6)
        async with scheduler, election:
            for start in (scheduler.start, election.start):
                again = asyncio.create_task(start())
                await asyncio.sleep(0)
                again.cancel()
                await asyncio.wait([again])
            assert scheduler.started
            assert await election.wait_until_leading(WITHIN)

    asyncio.run(scene())


@pytest.mark.parametrize("make", [Scheduler, lambda url: Election(url, "x", ttl=6)])
def test_stop_waits_for_a_start_that_is_under_way_on_another_thread(url, make):
    with Scheduler(url):
        pass
    thing = make(url)
    with held_up(url):
        starting = threading.Thread(target=thing.start)
        starting.start()
        under_way = thing._service._mutex if isinstance(thing, Scheduler) else thing.candidacy._joining

        def begun():
            if free := under_way.acquire(blocking=False):
                under_way.release()
            return not free

        eventually(begun, what="the start has begun")
        stopping = threading.Thread(target=thing.stop)
        stopping.start()
        stopping.join(0.1)
        waited = stopping.is_alive()
    starting.join(WITHIN)
    stopping.join(WITHIN)
    assert not (thing.started if isinstance(thing, Scheduler) else thing.candidacy.taking_part)
    assert waited


@pytest.mark.parametrize("times", [1, 2])
def test_once_that_is_cancelled_while_it_enters_gives_the_key_back(url, times):
    async def scene():
        scheduler = AsyncScheduler(url)
        await scheduler.jobs()
        await cancelled_while_held_up(url, inside(scheduler.once("key")), times, "guard")
        async with scheduler.once("key") as first:
            assert first

    asyncio.run(scene())


@pytest.mark.parametrize("failure", [asyncio.CancelledError("mine"), ValueError("mine")])
def test_a_key_that_cannot_be_given_back_hides_no_exception(url, failure, monkeypatch, caplog):
    async def scene():
        scheduler = AsyncScheduler(url)
        async with scheduler.once("key") as first:
            assert first
            monkeypatch.setattr(scheduler._service, "ledger", unreachable)
            raise failure

    def unreachable():
        raise StoreUnavailable("gone")

    with pytest.raises(type(failure), match="mine"):
        asyncio.run(scene())
    assert "'key' could not be given back" in caplog.text


# Terms


@pytest.mark.parametrize("awaits", [False, True])
def test_a_term_that_is_over_before_its_block_cancels_nothing_behind_it(url, awaits):
    async def scene():
        story = []
        async with AsyncElection(url, "x", ttl=6) as election:
            async for term in election.terms():
                if term.number == 1:
                    await election.resign()
                    assert await term.wait() is False
                async with term:
                    story.append(f"in {term.number}")
                    if term.number == 2:
                        break
                    if awaits:
                        await asyncio.Event().wait()
                await asyncio.sleep(0)
                story.append("behind")
        assert not asyncio.current_task().cancelling()
        return story

    assert asyncio.run(asyncio.wait_for(scene(), WITHIN)) == ["in 1", "behind", "in 2"]


# Starts and stops


@contextmanager
def all_threads_taken():
    """The loop has one thread for `asyncio.to_thread`, and it is taken."""
    free, taken = threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    loop.run_in_executor(None, lambda: (taken.set(), free.wait(WITHIN)))
    assert taken.wait(WITHIN)
    try:
        yield
    finally:
        free.set()


@pytest.mark.parametrize("make", [Scheduler, AsyncScheduler, lambda url: AsyncElection(url, "x", ttl=6)])
def test_starts_and_stops_wait_for_no_thread_of_the_loop(url, make):
    async def scene():
        with all_threads_taken():
            async with asyncio.timeout(WITHIN / 2), make(url):
                pass

    asyncio.run(scene())


@pytest.mark.parametrize("make", [AsyncScheduler, lambda url: AsyncElection(url, "x", ttl=6)])
def test_a_stop_that_is_cancelled_has_begun_and_goes_on(url, make):
    thing = make(url)

    def takes_part():
        return thing.started if isinstance(thing, AsyncScheduler) else thing._election.candidacy.taking_part

    async def scene():
        await thing.start()
        with all_threads_taken():
            stopping = asyncio.create_task(thing.stop())
            await asyncio.sleep(0)
            stopping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await stopping

    asyncio.run(scene())
    gone_on()
    assert not takes_part()


@pytest.mark.parametrize("make", [an_async_scheduler, a_scheduler])
def test_a_stop_that_is_cancelled_waits_no_longer_for_what_runs(sqlite_url, make):
    """Else the exit of the process, which waits for the stop, would wait for `drain`."""
    scheduler, context = make(sqlite_url)
    threaded = getattr(scheduler, "_scheduler", scheduler)
    threaded._drain, begun = 600.0, threading.Event()

    @scheduler.job
    def body(run: Run):
        begun.set()
        while run.wait(60):
            """Go on."""
        run.check()

    async def scene():
        serving = asyncio.create_task(inside(context))
        await asyncio.to_thread(eventually, lambda: threaded.started)
        await asyncio.to_thread(threaded.run_now, "body")
        assert await asyncio.to_thread(begun.wait, WITHIN)
        serving.cancel()  # leaves the block: stop() waits for the body
        await asyncio.to_thread(eventually, lambda: threaded._service._engine._parts.executor.stopping)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving

    asyncio.run(scene())
    gone_on()
    assert not threaded.started
    (run,) = threaded.runs("body")
    assert (run.state, run.interruptions) == ("pending", 1)


# Listeners


def led_on_a_loop_that_stands_still(url):
    """An election that leads, started on a loop that runs no more, with a coroutine that listens."""
    loop, heard = asyncio.new_event_loop(), []
    election = AsyncElection(url, "x", label="first", ttl=6)

    @election.on(Lost)
    async def lost(event):
        await asyncio.sleep(0)
        heard.append(event.reason)

    async def lead():
        await election.start()
        assert await election.wait_until_leading(WITHIN)

    loop.run_until_complete(lead())
    return loop, election, heard


def test_a_listener_on_a_loop_that_stands_still_holds_up_no_term(url, caplog):
    loop, election, heard = led_on_a_loop_that_stands_still(url)
    try:
        with Election(url, "x", label="second", ttl=6) as second:
            election._election.stop(drain=WITHIN)
            assert second.wait_until_leading(WITHIN)
            assert heard == []
            assert "does not run" in caplog.text
            loop.run_until_complete(asyncio.sleep(0.01))
            assert heard == ["stopped"], "it is told when the loop goes on"
    finally:
        loop.close()


def test_a_listener_on_a_closed_loop_holds_up_no_term(url, caplog):
    loop, election, heard = led_on_a_loop_that_stands_still(url)
    loop.close()
    with warnings.catch_warnings(), Election(url, "x", label="second", ttl=6) as second:
        warnings.simplefilter("error")  # no coroutine that was never awaited
        election._election.stop(drain=WITHIN)
        assert second.wait_until_leading(WITHIN)
        gc.collect()
    assert heard == []
    assert "does not run" in caplog.text


def test_a_listener_that_cannot_be_called_holds_up_no_term(url, caplog):
    async def scene():
        async with AsyncElection(url, "x", label="first", ttl=6) as election:

            @election.on(Lost)
            async def takes_no_event(): ...

            assert await election.wait_until_leading(WITHIN)
            await election.stop(drain=WITHIN)
            assert await election.leader() is None, "its term was given back"

    asyncio.run(asyncio.wait_for(scene(), WITHIN))
    assert "a listener failed" in caplog.text


def test_a_stopped_scheduler_leaves_no_thread_behind(url):
    before = set(threading.enumerate())
    heard = []
    scheduler = Scheduler(url, ttl=6, heartbeat_every=0.5)
    scheduler.job(name="body")(lambda: None)
    scheduler.on(RunSucceeded)(heard.append)
    for count in (1, 2):
        with scheduler:
            scheduler.run_now("body")
            eventually(lambda count=count: len(heard) == count, what="an event")
        eventually(lambda: set(threading.enumerate()) <= before, what="no thread left")


# Bodies


def test_a_body_that_the_loop_cancels_during_a_stop_is_given_back(url):
    scheduler = AsyncScheduler(url, ttl=6, heartbeat_every=0.5, drain=WITHIN)
    begun = threading.Event()

    @scheduler.job
    async def body():
        begun.set()
        await asyncio.Event().wait()

    async def serve():
        async with scheduler:
            await scheduler.run_now("body")
            await asyncio.Event().wait()

    async def until(true):
        await asyncio.to_thread(eventually, true)

    async def scene():
        serving = asyncio.create_task(serve())
        await until(begun.is_set)
        await until(lambda: scheduler._scheduler.health().plans)
        serving.cancel()  # leaves the block: stop() waits for the body
        await until(lambda: not scheduler._scheduler.health().plans)
        serving.cancel()  # an impatient supervisor; then asyncio.run cancels what is left
        with contextlib.suppress(asyncio.CancelledError):
            await serving

    asyncio.run(scene())
    gone_on()
    assert not scheduler.started
    (run,) = scheduler._scheduler.runs("body")
    assert run.state == "pending", run.reason


def test_a_body_that_is_cancelled_by_its_own_code_has_failed(url):
    async def scene():
        scheduler, ended = an_async_scheduler(url)[0], asyncio.Event()

        @scheduler.job
        async def body():
            try:
                raise asyncio.CancelledError
            finally:
                ended.set()

        async with scheduler, asyncio.timeout(WITHIN):
            run = await scheduler.run_now("body")
            await ended.wait()
            threaded = scheduler._scheduler
            await asyncio.to_thread(eventually, lambda: threaded.find_run(run.id).state == "failed")

    asyncio.run(scene())


# A loop that is closed under a started scheduler


def with_a_coroutine_and_a_plain_job(url):
    """A scheduler, and what has run there."""
    scheduler, ran = AsyncScheduler(url, label="closed", ttl=6, heartbeat_every=0.2), []

    @scheduler.job
    async def coroutine():
        ran.append("coroutine")

    @scheduler.job
    def plain():
        ran.append("plain")

    return scheduler, ran


def closed_under_it(url):
    """As above, on a loop that has ended."""
    scheduler, ran = with_a_coroutine_and_a_plain_job(url)
    asyncio.run(scheduler.start())
    return scheduler, ran


def errors(caplog):
    """The messages of level ERROR."""
    return [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]


def test_a_closed_loop_is_said_in_the_log_and_in_health_and_other_nodes_run_its_coroutines(url, caplog, monkeypatch):
    monkeypatch.setattr(claimer, "LOOP_GAP", 0)
    scheduler, ran = closed_under_it(url)
    threaded = scheduler._scheduler
    try:
        asked = threaded.run_now("coroutine")
        threaded.run_now("plain")
        eventually(lambda: ran == ["plain"], what="the plain one runs here")
        # Before a loop is closed it stands still, and that may be logged, too.
        (logged,) = [message for message in errors(caplog) if "is closed" in message]
        health = threaded.health()
        assert not health.ok
        assert health.problem == logged
        assert threaded.find_run(asked.id).state == "pending"
        other, there = Scheduler(url, label="other", ttl=6, heartbeat_every=0.2), []

        @other.job
        async def coroutine():
            there.append("coroutine")

        with other:
            eventually(lambda: there, what="the other node runs it")
            eventually(lambda: threaded.find_run(asked.id).state == "succeeded")
        assert ran == ["plain"]
    finally:
        threaded.stop()


def test_a_loop_that_stands_still_between_two_calls_is_not_an_error(url, caplog, monkeypatch):
    monkeypatch.setattr(claimer, "LOOP_GAP", 600)
    loop = asyncio.new_event_loop()
    scheduler, ran = with_a_coroutine_and_a_plain_job(url)
    loop.run_until_complete(scheduler.start())
    asked = scheduler._scheduler.run_now("coroutine")
    scheduler._scheduler.run_now("plain")
    eventually(lambda: ran == ["plain"], what="a claim while the loop stands still")
    assert scheduler._scheduler.find_run(asked.id).state == "pending"

    async def go_on():
        await asyncio.to_thread(eventually, lambda: ran == ["plain", "coroutine"])
        await scheduler.stop()

    loop.run_until_complete(go_on())
    loop.close()
    assert errors(caplog) == []


def test_runs_of_coroutines_are_not_claimed_again_and_again_on_a_closed_loop(database):
    scheduler, ran = closed_under_it(database)
    threaded = scheduler._scheduler
    try:
        asked = threaded.run_now("coroutine")

        def versions():
            with psycopg.connect(database) as connection:
                return connection.execute("SELECT xmin::text FROM tenure.run WHERE id = %s", [asked.id]).fetchone()

        before = versions()
        for count in (1, 2, 3):
            threaded.run_now("plain")
            eventually(lambda count=count: len(ran) == count)
        assert versions() == before, "nobody has written to its row"
    finally:
        threaded.stop()


def test_a_start_on_another_loop_lets_coroutines_run_again(url):
    scheduler, ran = closed_under_it(url)

    async def scene():
        await scheduler.start()
        await asyncio.to_thread(eventually, lambda: "coroutine" in ran)
        assert (await scheduler.health()).ok
        await scheduler.stop()

    scheduler._scheduler.run_now("coroutine")
    asyncio.run(scene())


def closed_half_way(url, **policy):
    """A scheduler whose loop was closed while a coroutine was in its first attempt, and the run."""
    scheduler, attempts, begun = AsyncScheduler(url, label="closed", ttl=6, heartbeat_every=0.2), [], threading.Event()

    @scheduler.job(**policy)
    async def coroutine(run):
        attempts.append(run.attempt)
        begun.set()
        if run.attempt == 1:
            await asyncio.Event().wait()

    async def scene():
        await scheduler.start()
        run = await scheduler.run_now("coroutine")
        await asyncio.to_thread(begun.wait, WITHIN)
        return run

    loop = asyncio.new_event_loop()
    run = loop.run_until_complete(scene())
    loop.close()
    return scheduler, run, attempts


def test_a_coroutine_whose_loop_was_closed_half_way_is_tried_again_on_another_loop(url, caplog):
    scheduler, run, attempts = closed_half_way(url)
    threaded = scheduler._scheduler

    async def scene():
        await scheduler.start()
        await asyncio.to_thread(eventually, lambda: threaded.find_run(run.id).state == "succeeded")
        assert (await scheduler.health()).ok
        assert (await scheduler.health()).running == 0
        assert await scheduler.stop()

    asyncio.run(scene())
    assert attempts == [1, 2]
    assert [getattr(record, "action", "") for record in caplog.records].count("loop_closed") == 1


@pytest.mark.parametrize(("on_lost", "state"), [("retry", "pending"), ("fail", "lost")])
def test_a_coroutine_whose_loop_was_closed_half_way_is_interrupted_without_another_start(url, on_lost, state):
    scheduler, run, attempts = closed_half_way(url, on_lost=on_lost)
    threaded = scheduler._scheduler
    try:
        eventually(lambda: threaded.find_run(run.id).state == state, what=state)
        eventually(lambda: threaded.health().running == 0, what="its slot is free")
    finally:
        assert threaded.stop(), "nothing keeps its node"
    assert attempts == [1]
