"""Which jobs are one: ids that were not given, dates that have run, schedulers beside each other."""

import contextlib
import functools
import os
import queue
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from harness.processes import Worker
from harness.scratch import eventually
from tenure.errors import ConfigurationError
from tenure.ext.apscheduler import BackgroundScheduler, ConflictingIdError, lifecycle, scheduler

HERE = __name__
FAR = datetime(2099, 1, 1, tzinfo=UTC)
called: queue.SimpleQueue[object] = queue.SimpleQueue()


def tell(*args: object, **kwargs: object) -> None:
    called.put((args, kwargs))


class Garden:
    def water(self) -> None:
        called.put("watered")

    def __call__(self) -> None:
        called.put("gardened")


@pytest.fixture(autouse=True)
def nothing_called(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_URL", sqlite_url)
    while not called.empty():
        called.get()


@pytest.fixture
def sched() -> Iterator[BackgroundScheduler]:
    scheduler = BackgroundScheduler(timezone="UTC")
    yield scheduler
    if scheduler.running:
        scheduler.shutdown(wait=False)


def ids(scheduler: BackgroundScheduler) -> list[str]:
    return sorted(job.id for job in scheduler.get_jobs())


def test_the_id_of_a_function_is_its_name(sched):
    job = sched.add_job(tell, "cron", hour=3)
    assert (job.id, job.name, job.pending) == (f"{HERE}:tell", "tell", True)


def test_equal_jobs_are_told_apart_by_their_order(sched):
    for hour in (3, 4, 5):
        sched.scheduled_job("cron", hour=hour)(tell)  # as stacked decorators do
    sched.start()
    found = {job.id: job.next_run_time.hour for job in sched.get_jobs()}
    assert found == {f"{HERE}:tell": 3, f"{HERE}:tell #2": 4, f"{HERE}:tell #3": 5}


@pytest.mark.parametrize("replace", [False, True])
def test_a_loop_over_arguments_makes_as_many_jobs_whatever_its_order(replace, sched):
    other = BackgroundScheduler(timezone="UTC")
    for who in ("ann", "bob", "eve"):
        sched.add_job(tell, "cron", hour=3, args=[who], replace_existing=replace)
    for who in ("eve", "ann", "bob"):
        other.add_job(tell, "cron", hour=4, args=[who], replace_existing=replace)
    assert len(set(ids(sched))) == 3
    assert ids(sched) == ids(other)
    mine, theirs = ({job.args[0]: job.id for job in one.get_jobs()} for one in (sched, other))
    assert mine == theirs


def test_a_changed_trigger_replaces_its_job(sched):
    sched.add_job(tell, "cron", hour=3, args=["ann"])
    sched.start()
    sched.shutdown()
    deployed = BackgroundScheduler(timezone="UTC")
    deployed.add_job(tell, "interval", hours=7, args=["ann"])
    deployed.start()
    assert len(ids(deployed)) == 1
    deployed.shutdown()


def test_a_given_id_is_taken_once(sched):
    sched.add_job(tell, "cron", hour=3, id="a")
    with pytest.raises(ConflictingIdError, match="replace_existing"):
        sched.add_job(tell, "cron", hour=4, id="a")
    sched.add_job(tell, "cron", hour=4, id="a", replace_existing=True)
    assert ids(sched) == ["a"]


def test_a_given_id_that_is_the_name_of_the_function_keeps_its_arguments(sched):
    sched.add_job(tell, "interval", days=40, id=f"{HERE}:tell", args=["mine"], next_run_time=datetime.now(UTC))
    sched.add_job(tell, "cron", hour=3, id="other")
    sched.start()
    assert called.get(timeout=20) == (("mine",), {})


def test_lambdas_methods_and_inner_functions_have_the_names_of_their_places(sched):
    def wrapped(function):
        def wrapper() -> None:
            function()

        return wrapper

    here = f"{HERE}:test_lambdas_methods_and_inner_functions_have_the_names_of_their_places.<locals>"
    for given in (lambda: called.put("first"), lambda: called.put("second"), wrapped(tell), Garden().water, Garden()):
        sched.add_job(given, "interval", days=40, next_run_time=datetime.now(UTC))
    sched.add_job("sys:stdout.write", "interval", days=40, args=["a text\n"])
    assert sched.get_jobs()[-1].func_ref == "sys:stdout.write"
    assert [job.id.partition("(")[0] for job in sched.get_jobs()] == [
        f"{here}.<lambda>",
        f"{here}.<lambda> #2",
        f"{here}.wrapped.<locals>.wrapper",
        f"{HERE}:Garden.water",
        f"{HERE}:Garden",
        "sys:stdout.write",
    ]
    sched.start()
    found = {str(called.get(timeout=20)) for _ in range(5)}
    assert found == {"first", "second", "((), {})", "watered", "gardened"}


def test_partials_are_told_apart_by_what_they_give(sched):
    one, two = (sched.add_job(functools.partial(tell, n), "cron", hour=3) for n in (1, 2))
    again = BackgroundScheduler().add_job(functools.partial(tell, 2), "cron", hour=3)
    assert one.id != two.id == again.id


def test_an_argument_without_a_text_stands_for_its_kind(sched):
    first, second = (sched.add_job(tell, "cron", hour=3, args=[Garden(), 7]) for _ in range(2))
    other = sched.add_job(tell, "cron", hour=3, args=[Garden(), 8])
    assert second.id == f"{first.id} #2"
    assert other.id.partition("(")[0] == f"{HERE}:tell"
    assert other.id not in {first.id, second.id}


def test_a_job_that_only_its_worker_can_tell_apart_is_doubted_when_it_is_added_while_it_runs(sched, caplog):
    sched.start()
    for _ in range(2):
        sched.add_job(lambda: None, "cron", hour=3)
    (record,) = [record for record in caplog.records if record.action == "doubtful_id"]
    assert "id='…'" in record.message
    dates = [sched.add_job(lambda: None, "date", run_date=FAR) for _ in range(2)]
    assert len({job.id for job in dates}) == 2


def test_a_date_without_an_id_is_one_job_for_all_workers(sched):
    other = BackgroundScheduler(timezone="UTC")
    soon = datetime.now(UTC) + timedelta(seconds=1)
    for one in (sched, other):
        one.add_job(tell, "date", run_date=soon, args=["tea"])
        one.add_job(tell, "date", run_date=FAR, args=["tea"])
    assert ids(sched) == ids(other)
    assert len(set(ids(sched))) == 2
    sched.start()
    assert called.get(timeout=20) == (("tea",), {})
    sched.shutdown()
    other.start()
    assert [(run.key, run.state) for run in other.tenure.runs()] == [
        (soon.isoformat().removesuffix("+00:00") + "Z", "succeeded")
    ]
    other.shutdown()


def test_dates_that_other_workers_have_run_are_not_remembered_for_ever(monkeypatch):
    monkeypatch.setattr(lifecycle, "MANY_JOBS", 10)
    monkeypatch.setattr(scheduler, "MANY_JOBS", 10)
    sched = BackgroundScheduler(timezone="UTC")
    sched.start(paused=True)
    sched.add_job(tell, "cron", hour=3, id="kept")
    for second in range(20):
        sched.add_job(tell, "date", run_date=datetime(2020, 1, 1, 0, 0, second, tzinfo=UTC))
    assert len(sched._jobs) < 12
    assert ids(sched) == ["kept"]
    sched.shutdown()


@pytest.mark.parametrize("grace", [3600, None, 30])
def test_a_date_that_has_run_is_not_run_by_a_worker_that_starts_later(grace, sched, caplog):
    when = datetime.now(UTC) - timedelta(minutes=2)
    sched.add_job(tell, "date", run_date=when, id="pay", misfire_grace_time=3600)
    sched.start()
    assert called.get(timeout=20) == ((), {})
    sched.shutdown()
    for _ in range(2):
        later = BackgroundScheduler(timezone="UTC")
        later.add_job(tell, "date", run_date=when, id="pay", misfire_grace_time=grace)
        later.start()
        assert [run.state for run in later.tenure.runs()] == ["succeeded"]
        later.shutdown()
    assert called.empty()
    assert "its date" not in caplog.text


def test_a_date_of_long_ago_without_a_limit_has_one_run_under_its_due_time(sched):
    when = datetime(2020, 1, 2, tzinfo=UTC)
    for _ in range(2):
        worker = BackgroundScheduler(timezone="UTC")
        worker.add_job(tell, "date", run_date=when, id="pay", misfire_grace_time=None)
        worker.start()
        worker.shutdown()
    sched.add_job(tell, "date", run_date=when, id="pay", misfire_grace_time=None)
    sched.start()
    assert called.get(timeout=20) == ((), {})
    assert [run.key for run in sched.tenure.runs()] == ["2020-01-02T00:00:00Z"]
    assert called.empty()


def test_a_second_scheduler_of_a_process_has_an_application_of_its_own(sched, caplog):
    """As `create_app()` in each test of a suite, and a library that brings a scheduler."""
    sched.add_job(tell, "cron", hour=3, id="job")
    sched.start()
    others = [BackgroundScheduler(timezone="UTC") for _ in range(2)]
    for other in others:
        other.add_job(tell, "interval", days=40, id="job", args=["other"])
        other.start()
    names = [one.tenure.application for one in (sched, *others)]
    assert names == ["default", HERE, f"{HERE} 2"]
    said = [record.getMessage() for record in caplog.records if record.action == "set_apart"]
    assert len(said) == 2
    assert all("application='…'" in line for line in said)
    assert [ids(one) for one in others] == [["job"], ["job"]]
    for other in others:
        other.shutdown()
    sched.shutdown()
    again = BackgroundScheduler(timezone="UTC")
    again.start()
    assert again.tenure.application == "default", "nothing is set apart from what has ended"
    again.shutdown()


def test_an_application_that_was_given_twice_is_refused():
    first, second = (BackgroundScheduler(timezone="UTC", application="shop") for _ in range(2))
    first.start()
    with pytest.raises(ConfigurationError, match="another application="):
        second.start()
    first.shutdown()
    second.start()
    second.shutdown()


SLOW = """
import sys, threading, time
from tenure.ext.apscheduler import {name}

def slow():
    print("begun", flush=True)
    begun.set()
    time.sleep(1.5)
    print("ended", flush=True)

begun = threading.Event()
scheduler = {name}()
scheduler.add_job(slow, "interval", seconds=1, id="slow")
"""


def test_a_program_that_ends_without_shutdown_waits_for_what_runs(tmp_path, sqlite_url):
    program = tmp_path / "program.py"
    program.write_text(SLOW.format(name="BackgroundScheduler") + "scheduler.start()\nbegun.wait()\n")
    worker = Worker(program, env={"TENURE_URL": sqlite_url}).start()
    assert worker.wait(within=30) == 0, worker.story()
    assert worker.lines == ["begun", "ended"]
    runs = BackgroundScheduler().tenure.runs()
    assert [run.state for run in runs if run.attempt] == ["succeeded"]


@pytest.mark.parametrize("shutdown", ["scheduler.shutdown()", "pass"])
def test_an_interrupted_program_waits_for_what_runs(shutdown, tmp_path, sqlite_url):
    program = tmp_path / "program.py"
    end = f"try:\n    scheduler.start()\nexcept KeyboardInterrupt:\n    {shutdown}\n"
    program.write_text(SLOW.format(name="BlockingScheduler") + end)
    worker = Worker(program, env={"TENURE_URL": sqlite_url}).start()
    worker.wait_line("begun", within=30)
    os.kill(worker.pid, signal.SIGINT)
    assert worker.wait(within=30) == 0, worker.story()
    assert worker.lines == ["begun", "ended"]
    runs = BackgroundScheduler().tenure.runs()
    assert [run.state for run in runs if run.attempt] == ["succeeded"]


def test_a_further_ctrl_c_ends_a_program_that_waits_for_what_runs(tmp_path, sqlite_url):
    program = tmp_path / "program.py"
    program.write_text(
        SLOW.format(name="BlockingScheduler").replace("1.5", "600")
        + "try:\n    scheduler.start()\nexcept KeyboardInterrupt:\n    pass\n"
    )
    worker = Worker(program, env={"TENURE_URL": sqlite_url}).start()
    worker.wait_line("begun", within=30)
    os.kill(worker.pid, signal.SIGINT)
    eventually(lambda: _interrupted(worker), within=30, what="the end")
    assert worker.wait() == -signal.SIGINT, worker.story()


def _interrupted(worker: Worker) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        worker.process.wait(0.2)
        return True
    os.kill(worker.pid, signal.SIGINT)
    return False


@pytest.mark.parametrize(
    "end", ["asyncio.run(main())", "loop = asyncio.new_event_loop(); loop.run_until_complete(main())"]
)
def test_a_program_does_not_wait_for_coroutines_whose_loop_is_over(end, tmp_path, sqlite_url):
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio\nfrom tenure.ext.apscheduler import AsyncIOScheduler\n"
        "async def slow():\n    begun.set()\n    await asyncio.sleep(600)\n"
        "async def main():\n    global begun\n    begun = asyncio.Event()\n    scheduler = AsyncIOScheduler()\n"
        "    scheduler.add_job(slow, 'interval', seconds=1, id='slow')\n    scheduler.start()\n    await begun.wait()\n"
        f"{end}\n"
    )
    worker = Worker(program, env={"TENURE_URL": sqlite_url}).start()
    assert worker.wait(within=40) == 0, worker.story()
