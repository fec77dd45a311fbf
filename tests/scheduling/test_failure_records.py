"""What the log of the application says of failures: one record per event, with the exception, and fields to search by."""

import asyncio
import gc
import logging
import re
import sqlite3
import threading
import weakref
from contextlib import closing

import pytest

import bodies
from harness.processes import SUPPORT, Worker
from scheduling.test_engine import ended, eventually, scheduler
from tenure import Run, Scheduler
from tenure.events import RunFailed
from tenure.scheduling.console import line
from tenure.testing import virtual

FIELDS = ("job", "run_id", "key", "attempt", "node")
SCRIPT = SUPPORT / "workers" / "dies_at_work.py"


@pytest.fixture
def records(caplog):
    """The records about attempts."""
    caplog.set_level(logging.INFO, "tenure")
    return lambda: [record for record in caplog.records if hasattr(record, "run_id")]


def shown(record):
    """What a formatter prints of a record's exception."""
    return logging.Formatter().formatException(record.exc_info)


def bodies_of(one, kind, **options):
    """Register a body of this kind that raises."""
    if kind == "process":
        one.job(name="boom", process=True, **options)(bodies.fails)
    elif kind == "coroutine":

        @one.job(name="boom", **options)
        async def boom() -> None:
            await asyncio.sleep(0)
            raise ValueError("in the child")
    else:

        @one.job(name="boom", **options)
        def boom() -> None:
            raise ValueError("in the child")


@pytest.mark.parametrize("kind", ["thread", "coroutine", "process"])
def test_a_run_that_failed_for_good_is_one_error_with_its_exception(records, kind):
    one = scheduler(label="web-1")
    bodies_of(one, kind)
    with one:
        run = ended(one, one.run_now("boom"), "failed")
    (record,) = records()
    assert (record.levelname, record.action) == ("ERROR", "run_failed")
    assert [getattr(record, field) for field in FIELDS] == ["boom", run.id, run.key, 1, "web-1"]
    assert record.duration == pytest.approx(run.duration, abs=0.001)
    assert record.lateness == pytest.approx(run.lateness, abs=0.001)
    said = record.getMessage()
    assert said.startswith(f"run {run.id} of 'boom' ({run.key}, attempt 1) failed after ")
    assert said.endswith("s: ValueError: in the child")
    kinds = [kind.__name__ for kind in type(record.exc_info[1]).__mro__]
    assert kinds[0] == "ValueError", "an error tracker groups by this name"
    assert 'raise ValueError("in the child")' in shown(record), "the line that raised"
    assert "executor.py" not in shown(record) + run.reason, "none of our own frames"
    assert shown(record).splitlines()[-1].endswith("ValueError: in the child")


def test_what_raised_in_a_process_names_no_frame_of_the_process_that_waited(records):
    one = scheduler()
    bodies_of(one, "process")
    with one:
        ended(one, one.run_now("boom"), "failed")
    (record,) = records()
    _, error, trace = record.exc_info
    assert trace is None
    assert "bodies.py" in str(error.__cause__)
    assert str(error) == "in the child"


def test_a_process_that_died_is_an_error_that_says_how(records):
    one = scheduler()
    one.job(process=True)(bodies.dies)
    with one:
        ended(one, one.run_now("dies"), "failed")
    (record,) = records()
    assert record.getMessage().endswith(": its process ended with exit code 3")
    assert shown(record).endswith("ProcessFailed: its process ended with exit code 3")
    assert "EOFError" not in shown(record)


def test_a_run_that_is_tried_again_is_a_warning_with_the_pause(records):
    one = scheduler()
    bodies_of(one, "thread", retries=2, backoff=(0.02, 0.02))
    with one:
        ended(one, one.run_now("boom"), "failed")
    first, second, last = records()
    assert [record.levelname for record in (first, second, last)] == ["WARNING", "WARNING", "ERROR"]
    assert [record.action for record in (first, second, last)] == ["run_retried", "run_retried", "run_failed"]
    assert [record.attempt for record in (first, second, last)] == [1, 2, 3]
    assert re.search(
        r" failed after \d+ ms and is tried again in \d+ ms: ValueError: in the child$", first.getMessage()
    )
    assert "tried again" not in last.getMessage()


def test_a_timeout_is_one_error_too(records):
    one = scheduler()

    @one.job(timeout=0.05)
    async def hangs() -> None:
        await asyncio.sleep(60)

    with one:
        run = ended(one, one.run_now("hangs"), "failed")
    (record,) = records()
    assert (record.levelname, record.action, record.run_id) == ("ERROR", "run_failed", run.id)
    assert record.getMessage().endswith(": timed out after 0.05 s")
    assert record.duration >= 0.05
    assert shown(record).endswith("TimeoutError: timed out after 0.05 s")


@pytest.mark.parametrize(("on_lost", "level"), [("retry", "WARNING"), ("fail", "ERROR")])
def test_an_attempt_that_a_stop_interrupts_is_an_error_only_if_it_was_the_last(records, on_lost, level):
    one, begun = scheduler(), threading.Event()

    @one.job(on_lost=on_lost)
    def waits(run: Run) -> None:
        begun.set()
        run.wait(60)
        run.check()

    one.start()
    run = one.run_now("waits")
    assert begun.wait(10)
    assert not one.stop(drain=0)
    (record,) = records()
    assert (record.levelname, record.run_id, record.exc_info) == (level, run.id, None)
    assert record.action == ("run_interrupted" if on_lost == "retry" else "run_lost")
    assert "was interrupted after " in record.getMessage()
    assert record.getMessage().endswith(": its node was stopped")


@pytest.mark.parametrize(("on_lost", "level"), [("retry", "WARNING"), ("fail", "ERROR")])
def test_a_run_that_was_lost_names_the_node_that_died(records, sqlite_url, on_lost, level):
    with scheduler(sqlite_url, queues=["none"]):
        with Worker(SCRIPT, sqlite_url, on_lost) as worker:
            worker.wait_line("running")
            worker.kill()
        (record,) = eventually(records)
    assert (record.levelname, record.action, record.node) == (level, "run_lost", "the one that dies")
    tail = "is tried again" if on_lost == "retry" else "is not tried again"
    assert f"on the one that dies was lost and {tail}: its node died" in record.getMessage()


def test_an_exception_whose_text_cannot_be_made_still_leaves_its_record(records):
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise SystemExit

        @property
        def __cause__(self):
            raise RuntimeError

    one = scheduler()

    @one.job
    def odd() -> None:
        raise Unprintable

    with one:
        ended(one, one.run_now("odd"), "failed")
    (record,) = records()
    assert record.levelname == "ERROR"
    assert "Unprintable" in record.getMessage()
    assert "Unprintable" in logging.Formatter().format(record)


def test_an_exception_with_half_a_character_costs_no_handler_its_record(records, tmp_path):
    one, file = scheduler(), logging.FileHandler(tmp_path / "log", encoding="utf-8")

    @one.job
    def odd() -> None:
        raise ValueError("half a character: \ud800")

    logging.getLogger("tenure").addHandler(file)
    try:
        with one:
            ended(one, one.run_now("odd"), "failed")
    finally:
        logging.getLogger("tenure").removeHandler(file)
        file.close()
    assert len(records()) == 1
    assert "half a character: \\ud800" in (tmp_path / "log").read_text()


def test_a_success_a_cancellation_and_what_never_began_are_no_failures(records):
    one = scheduler()
    one.job(name="fine")(lambda: None)

    @one.job
    def asked(run: Run) -> None:
        run.wait(60)
        run.check()

    with one:
        ended(one, one.run_now("fine"))
        run = one.run_now("asked")
        eventually(lambda: one.find_run(run.id).state == "running")
        one.cancel(run.id)
        ended(one, run, "cancelled")
    assert records() == []


def test_what_a_body_held_when_it_raised_is_let_go_once_that_was_told(monkeypatch):
    monkeypatch.setattr(logging.getLogger("tenure"), "propagate", False)  # pytest keeps what it hears
    one, held = scheduler(), []

    class Large: ...

    @one.job
    def boom() -> None:
        large = Large()
        held.append(weakref.ref(large))
        raise ValueError("held")

    def let_go() -> bool:
        gc.collect()
        return held[0]() is None

    with one:
        ended(one, one.run_now("boom"), "failed")
        eventually(let_go)


def test_in_virtual_time_failures_are_told_in_the_same_way(records):
    one = scheduler()
    bodies_of(one, "thread", retries=1, backoff=("1m", "1m"))
    with virtual(one, now="2026-11-14T12:00Z") as world:
        world.run_now("boom")
        world.advance(by="10m")
    first, last = records()
    assert (first.levelname, last.levelname) == ("WARNING", "ERROR")
    assert first.getMessage().endswith(" and is tried again in 1 min: ValueError: in the child")
    assert "raise ValueError" in shown(last)


# Exceptions whose message has several lines


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_the_error_line_says_the_type_and_the_first_line_of_the_message(records, kind):
    one, told = scheduler(), []
    one.on(RunFailed)(told.append)
    if kind == "process":
        one.job(name="boom", process=True)(bodies.fails_at_length)
    else:
        one.job(name="boom")(bodies.fails_at_length)
    with one:
        ended(one, one.run_now("boom"), "failed")
    (record,) = records()
    assert record.getMessage().endswith(": ValueError: bad thing")
    (event,) = told
    assert line(event, event.scheduled_for).endswith(": ValueError: bad thing")


def test_a_group_of_exceptions_is_named_by_its_own_message(records):
    one = scheduler()

    @one.job
    def boom() -> None:
        raise ExceptionGroup("two of them", [ValueError("one"), ExceptionGroup("more", [ValueError("two\nlines")])])

    with one:
        ended(one, one.run_now("boom"), "failed")
    (record,) = records()
    assert record.getMessage().endswith(": ExceptionGroup: two of them (2 sub-exceptions)")


def test_what_a_body_raises_after_it_completed_is_named_by_its_first_line_too(records, tmp_path):
    url = f"sqlite:///{tmp_path}/jobs.db"
    one = Scheduler(url)

    @one.job
    def boom(run: Run) -> None:
        with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level="IMMEDIATE")) as conn:
            conn.execute("BEGIN IMMEDIATE")
            run.complete(conn)
            conn.commit()
        bodies.fails_at_length()

    with one:
        ended(one, one.run_now("boom"), "succeeded")
        eventually(records)
    (record,) = records()
    assert record.getMessage().endswith(": ValueError: bad thing")
