"""Taking part: start and stop, signals, forks, events, and the same on every store."""

import asyncio
import contextlib
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta

import pytest

from harness.processes import SUPPORT, Worker
from harness.scratch import eventually
from tenure import AsyncScheduler, Run, Scheduler, every
from tenure.errors import AttemptLost, ConfigurationError, StoreUnavailable
from tenure.events import RunEvent, RunFailed, RunRetried, RunSucceeded
from tenure.util.signals import SAME

WITHIN = 10.0
SCRIPT = SUPPORT / "workers" / "scheduling.py"


@pytest.fixture
def url(any_url: str) -> str:
    return any_url


@pytest.fixture
def scheduler(url: str) -> Iterator[Scheduler]:
    made = Scheduler(url, ttl=6, heartbeat_every=0.5, attempt_timeout=1)
    yield made
    made.stop(2)


class Heard:
    """What a listener heard."""

    def __init__(self) -> None:
        self.events: list[RunEvent] = []
        self._news = threading.Condition()

    def __call__(self, event: RunEvent) -> None:
        with self._news:
            self.events.append(event)
            self._news.notify_all()

    def wait(self, count: int) -> list[RunEvent]:
        with self._news:
            assert self._news.wait_for(lambda: len(self.events) >= count, WITHIN), self.events
            return self.events


def test_jobs_run_and_are_told_of(scheduler) -> None:
    heard = Heard()
    scheduler.on(RunEvent)(heard)

    @scheduler.job
    def greet(run: Run, who: str = "world") -> None:
        run.log(f"hello {who}")

    @scheduler.job(retries=1, backoff="10ms")
    def fail() -> None:
        raise ValueError("no")

    with scheduler:
        asked = scheduler.run_now("greet", kwargs={"who": "you"}, by="test")
        (told,) = heard.wait(1)
        assert isinstance(told, RunSucceeded)
        assert (told.job, told.key, told.run_id, told.attempt) == ("greet", asked.key, asked.id, 1)
        assert told.label == scheduler.label
        assert told.scheduled_for.tzinfo is not None
        done = scheduler.find_run(asked.id)
        assert (done.state, done.node, done.by) == ("succeeded", scheduler.label, "test")
        assert done.duration is not None
        eventually(lambda: scheduler.log(asked.id) == ["hello you"], what="the log, which comes after the ending")
        scheduler.run_now("fail")
        _, retried, failed = heard.wait(3)
        assert (type(retried), type(failed)) == (RunRetried, RunFailed)
        assert "ValueError: no" in failed.error
        assert (scheduler.stats("fail").runs, scheduler.stats("fail").failed) == (1, 1)
        assert scheduler.health().ok
    assert not scheduler.started
    assert not scheduler.health().ok


def test_due_times_run(scheduler) -> None:
    ran = threading.Event()

    @scheduler.every("1s")
    def tick(run: Run) -> None:
        ran.set()

    with scheduler:
        assert ran.wait(WITHIN)
        eventually(lambda: scheduler.runs("tick", state="succeeded"), within=WITHIN)
        run = scheduler.runs("tick", state="succeeded")[-1]
        assert run.kind == "due"
        assert run.scheduled_for.microsecond == 0
        assert scheduler.audit("tick")[0].clean


def test_a_job_added_to_a_started_scheduler_runs_at_once(scheduler) -> None:
    ran = threading.Event()
    scheduler.job(name="body")(ran.set)
    with scheduler:
        scheduler.add("body", every("1s"), name="added")
        assert ran.wait(WITHIN)
        scheduler.pause("added")
        assert scheduler.find_job("added").next_due is None


def test_a_broken_listener_harms_nothing(scheduler, caplog) -> None:
    heard = Heard()

    @scheduler.on(RunSucceeded)
    def broken(event: RunEvent) -> None:
        raise RuntimeError("listener")

    scheduler.on(RunSucceeded)(heard)
    scheduler.job(name="body")(lambda: None)
    with scheduler:
        scheduler.run_now("body")
        scheduler.run_now("body")
        assert len(heard.wait(2)) == 2
    assert "a listener for RunSucceeded failed" in caplog.text


def test_the_planner_can_be_asked_to_resign(scheduler) -> None:
    scheduler.job(name="body")(lambda: None)
    assert scheduler.ask_planner_to_resign() is None
    with scheduler:
        eventually(lambda: scheduler.health().plans, within=WITHIN)
        assert scheduler.ask_planner_to_resign() is not None


def test_started_twice_is_started_once_and_can_start_again(scheduler) -> None:
    ran = threading.Semaphore(0)
    scheduler.job(name="body")(ran.release)
    for _ in range(2):
        scheduler.start()
        scheduler.start()
        scheduler.run_now("body")
        assert ran.acquire(timeout=WITHIN)
        assert scheduler.stop()
        assert scheduler.stop(), "nothing to stop"


def test_stop_waits_for_what_runs_but_not_for_ever(scheduler) -> None:
    begun, end = threading.Event(), threading.Event()

    @scheduler.job
    def body() -> None:
        begun.set()
        end.wait(WITHIN)

    scheduler.start()
    scheduler.run_now("body")
    assert begun.wait(WITHIN)
    with contextlib.ExitStack() as stack:
        stack.callback(end.set)
        assert not scheduler.stop("50ms")
        assert not scheduler.stop(), "asked again, it does not wait, and does not claim that it has ended"
        assert len(scheduler.health().waits_for) == 1
    assert scheduler.stop(WITHIN), "the body has returned, and its node has left"
    assert not scheduler.health().waits_for
    assert [run.state for run in scheduler.runs()] == ["succeeded"], "its ending was told as any other"


# In memory alone: nothing of these depends on the store


@pytest.fixture
def local() -> Iterator[Scheduler]:
    made = Scheduler(f"memory://{uuid.uuid4()}")
    yield made
    made.stop(2)


def test_an_error_is_not_an_event(local) -> None:
    with pytest.raises(ConfigurationError, match="not an event of a run"):
        local.on(AttemptLost)


def test_a_coroutine_cannot_listen_without_a_loop(local) -> None:
    async def page(event: RunEvent) -> None: ...

    with pytest.raises(ConfigurationError, match=r"AsyncScheduler\.on"):
        local.on(RunFailed)(page)


def test_tenure_off_turns_start_into_nothing(local, monkeypatch, caplog) -> None:
    monkeypatch.setenv("TENURE_OFF", "1")
    local.start()
    assert not local.started
    local.run()  # returns at once
    assert "TENURE_OFF" in caplog.text
    monkeypatch.setenv("TENURE_OFF", "0")
    local.start()
    assert local.started


def test_another_store_takes_the_place_of_the_url(local) -> None:
    other = Scheduler(f"memory://{uuid.uuid4()}").store
    local.job(name="body")(lambda: None)
    local._service.use(other)
    local.start()
    with pytest.raises(ConfigurationError, match="Stop it first"):
        local._service.use(None)
    local.stop()
    assert [job.name for job in local.jobs()] == ["body"]
    local._service.use(None)
    assert local.jobs() == []


def test_run_ends_when_somebody_stops_it(local) -> None:
    ran = threading.Event()
    local.every("1s", name="body")(ran.set)
    thread = threading.Thread(target=local.run)
    thread.start()
    assert ran.wait(WITHIN)
    local.stop()
    thread.join(WITHIN)
    assert not thread.is_alive()


# In processes of their own


def test_run_goes_on_although_its_jobs_cannot_be_listed(local, monkeypatch, capsys) -> None:
    """The database goes away between the start and the headline, or the terminal cannot show it."""

    def those(*_: object) -> None:
        threading.Timer(0.0, local.stop).start()
        raise StoreUnavailable("the database is away")

    monkeypatch.setattr(local._service.lookup, "those", those)
    local.run(lines=True)
    assert "the database is away" in capsys.readouterr().out


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_run_leaves_nothing_started_when_it_raises(local, monkeypatch, colour) -> None:
    def broken(_: object) -> None:
        raise KeyError("colour")

    monkeypatch.setattr(local._service, "greet", broken)
    with pytest.raises(KeyError):
        asyncio.run(AsyncScheduler(local).run()) if colour == "async" else local.run()
    assert not local.started


def test_a_signal_drains(sqlite_url) -> None:
    with Worker(SCRIPT, sqlite_url, "works-2") as worker:
        worker.wait_line("application 'default'")
        worker.wait_line("work  next")
        worker.wait_line("works")
        worker.process.send_signal(signal.SIGTERM)
        worker.wait_line("stopping: waiting for runs")
        worker.wait_line("done")
        worker.wait_line("returned")
        assert worker.wait() == 0
    assert not any("was told" in line for line in worker.lines)


def test_a_second_signal_does_not_wait(sqlite_url) -> None:
    with Worker(SCRIPT, sqlite_url, "works-60") as worker:
        worker.wait_line("works")
        worker.process.send_signal(signal.SIGINT)
        worker.wait_line("stopping: waiting for runs")
        time.sleep(SAME)
        worker.process.send_signal(signal.SIGINT)
        worker.wait_line("stopping now")
        worker.wait_line("returned")
        assert worker.wait() == 0


def test_a_terminal_sees_one_line_per_run(sqlite_url) -> None:
    path = sqlite_url.removeprefix("sqlite:///")
    with Worker(SCRIPT, sqlite_url, "quick") as worker:
        assert path in worker.wait_line("application 'default'")
        worker.wait_line("work succeeded after")
        worker.process.send_signal(signal.SIGTERM)
        assert worker.wait() == 0


@pytest.mark.parametrize("store", ["sqlite_url", "database"])
def test_a_forked_child_has_not_started(store, request) -> None:
    with Worker(SCRIPT, request.getfixturevalue(store), "fork") as worker:
        worker.wait_line("parent started True")
        worker.wait_line("child started False")
        worker.wait_line("child has started True")
        worker.wait_line("child left")
        worker.wait_line("child ended with 0")
        worker.wait_line("parent still started True True")
        assert worker.wait() == 0


def test_lateness_and_duration_are_seconds(local) -> None:
    local.job(name="body")(lambda: None)
    with local:
        asked = local.run_now("body")
        eventually(lambda: local.find_run(asked.id).state == "succeeded", within=WITHIN)
    done = local.find_run(asked.id)
    assert done.finished_at - done.started_at == pytest.approx(
        timedelta(seconds=done.duration), abs=timedelta(microseconds=2)
    )
    assert 0 <= done.lateness < WITHIN
