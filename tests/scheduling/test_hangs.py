"""A body that is out of time: where it hung is kept with the run, and told to the log."""

import asyncio
import logging
import threading
import time

import pytest

import bodies
from scheduling.test_engine import ended, eventually, scheduler
from tenure import Run
from tenure.scheduling import hangs
from tenure.scheduling.base_executor import MAX_ERROR


@pytest.fixture
def records(caplog):
    """The records about attempts."""
    return lambda: [record for record in caplog.records if hasattr(record, "run_id")]


def shown(record):
    return logging.Formatter().formatException(record.exc_info)


def names_in(text):
    """The functions that a traceback names, from the outermost on."""
    return [line.rpartition(", in ")[2] for line in text.splitlines() if line.startswith("  File ")]


def with_a_process(*functions, **options):
    """A scheduler that has started a process already: under load that takes seconds."""
    one = scheduler(capacity=1)
    one.job(process=True, timeout=60)(bodies.says)
    for function in functions:
        one.job(process=True, name="body", **options)(function)
    one.start()
    ended(one, one.run_now("says", kwargs={"line": "fine"}))
    return one


def deep_inside(go: threading.Event) -> None:
    go.wait(20)


def test_of_a_thread_its_stack_is_shown_when_its_time_is_out_and_kept_with_the_run(records):
    one, go = scheduler(), threading.Event()

    @one.job(timeout=0.1)
    def slow() -> None:
        deep_inside(go)

    with one:
        run = one.run_now("slow")
        (overdue,) = eventually(records)
        assert (overdue.levelname, overdue.action, overdue.run_id) == ("WARNING", "run_overdue", run.id)
        assert names_in(shown(overdue))[:2] == ["slow", "deep_inside"]
        go.set()
        failed = ended(one, run, "failed")
    assert failed.reason.splitlines()[0] == "Traceback (most recent call last):"
    assert names_in(failed.reason)[:2] == ["slow", "deep_inside"], "where it was then, not where it ended"
    assert failed.reason.splitlines()[-1] == "timed out after 0.1 s"
    error = records()[-1]
    assert (error.levelname, error.action) == ("ERROR", "run_failed")
    assert names_in(shown(error))[:2] == ["slow", "deep_inside"]


def test_of_a_coroutine_its_await_chain_is_shown(records):
    one = scheduler()

    async def innermost() -> None:
        await asyncio.Event().wait()

    async def between() -> None:
        await asyncio.create_task(innermost())

    @one.job(timeout=0.1)
    async def slow() -> None:
        try:
            await between()
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # where it is when it ends is not where it hung
            raise

    with one:
        failed = ended(one, one.run_now("slow"), "failed")
    assert names_in(failed.reason) == ["slow", "between", "innermost", "wait"]
    assert failed.reason.splitlines()[-1] == "timed out after 0.1 s"
    (error,) = records()
    assert names_in(shown(error)) == ["slow", "between", "innermost", "wait"]


def test_of_a_coroutine_that_blocks_its_loop_the_stack_is_shown(records):
    one, begun, go = scheduler(), [], threading.Event()

    @one.job(timeout=0.1)
    async def slow(run: Run) -> None:
        begun.append(run)
        deep_inside(go)

    with one:
        run = one.run_now("slow")
        eventually(lambda: begun and begun[0].cancelled)
        go.set()
        failed = ended(one, run, "failed")
    assert names_in(failed.reason)[:2] == ["slow", "deep_inside"]


@pytest.mark.parametrize("body", [bodies.hangs_deep_inside, bodies.holds_the_interpreter])
def test_of_a_process_what_it_wrote_down_before_it_was_killed_is_shown(records, body):
    with with_a_process(body, timeout=3) as one:
        failed = ended(one, one.run_now("body"), "failed")
    expected = ["hangs_deep_inside", "_hangs"] if body is bodies.hangs_deep_inside else ["holds_the_interpreter"]
    assert names_in(failed.reason) == expected
    assert failed.reason.splitlines()[-1] == "timed out after 3 s"
    assert "time.sleep(60)" in failed.reason or "sleep(60)" in failed.reason, "with the line of the source"
    (error,) = records()
    assert names_in(shown(error)) == expected
    assert shown(error).splitlines()[-1] == "TimeoutError: timed out after 3 s"


def test_a_process_that_cannot_write_its_stack_down_is_out_of_time_all_the_same():
    """Frozen as a whole: not even its watchdog runs."""
    with with_a_process(bodies.freezes_itself, timeout=0.5) as one:
        assert ended(one, one.run_now("body"), "failed").reason == "timed out after 0.5 s"


def test_a_stack_is_bounded():
    one = scheduler()

    def deeper(left: int, run: Run) -> None:
        if left:
            deeper(left - 1, run)
        else:
            run.wait(20)

    @one.job(timeout=0.1)
    def slow(run: Run) -> None:
        deeper(800, run)

    with one:
        failed = ended(one, one.run_now("slow"), "failed")
    assert len(failed.reason) <= MAX_ERROR + 1
    assert "deeper(left - 1, run)" in failed.reason
    assert failed.reason.splitlines()[-1] == "timed out after 0.1 s"


def test_what_is_read_while_threads_run_never_breaks():
    """Stacks are read while their owners go on."""
    go, idents = threading.Event(), []

    def busy() -> None:
        idents.append(threading.get_ident())
        while not go.is_set():
            sorted(range(50), key=lambda n: -n)

    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(idents) == 3)
    until = time.monotonic() + 1
    while time.monotonic() < until:
        for ident in idents:
            text, error = hangs.told(1.0, hangs.of_thread(ident))
            assert text.endswith("timed out after 1 s")
            assert "busy" in names_in(text)
            assert isinstance(error, TimeoutError)
    go.set()
    for thread in threads:
        thread.join()
    assert hangs.of_thread(idents[0]) is None
