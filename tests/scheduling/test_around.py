"""What the application puts around bodies: where it is entered, when it is left, and what its own failures mean."""

import asyncio
import contextlib
import sqlite3
import threading
from contextlib import asynccontextmanager, contextmanager

import pytest

import bodies
from scheduling.test_engine import ended, eventually, scheduler
from tenure import AsyncScheduler, Run, current_run
from tenure.errors import ConfigurationError
from tenure.testing import virtual


def traced(notes, name):
    @contextmanager
    def around(run):
        notes.append(f"{name} enters {run.job}")
        try:
            yield
        except BaseException as error:
            notes.append(f"{name} sees {type(error).__name__}")
            raise
        finally:
            notes.append(f"{name} leaves")

    return around


@pytest.mark.parametrize("kind", ["thread", "coroutine"])
def test_several_nest_in_the_order_in_which_they_were_put(kind):
    one, notes = scheduler(), []
    one.around(traced(notes, "outer"))
    if kind == "thread":

        @one.job
        def body() -> None:
            notes.append("body")
    else:

        @one.job
        async def body() -> None:
            await asyncio.sleep(0)
            notes.append("body")

    one.around(traced(notes, "inner"))
    with one:
        ended(one, one.run_now("body"))
    assert notes == ["outer enters body", "inner enters body", "body", "inner leaves", "outer leaves"]


def test_it_is_entered_where_the_body_runs_and_there_the_run_is_the_current_one():
    one, where = scheduler(), {}

    @one.around
    def noted(run: Run):
        assert run is current_run()
        where[f"around {run.job}"] = threading.get_ident()
        yield

    @one.job
    def plain() -> None:
        where["plain"] = threading.get_ident()

    @one.job
    async def coroutine() -> None:
        where["coroutine"] = threading.get_ident()

    with one:
        ended(one, one.run_now("plain"))
        ended(one, one.run_now("coroutine"))
    assert where["around plain"] == where["plain"] != threading.get_ident()
    assert where["around coroutine"] == where["coroutine"] != where["plain"]


def test_a_body_in_a_process_has_it_around_it_there():
    one = scheduler()
    one.around(bodies.noted)
    one.job(process=True)(bodies.pid_of)
    with one:
        run = ended(one, one.run_now("pid_of"))
        said = eventually(lambda: one.log(run.id))
    entered, _, pid, left = said
    assert (entered, left) == (f"enter in {pid}", f"leave in {pid}")


def test_an_async_one_is_entered_on_the_loop_of_the_coroutine():
    one, notes = scheduler(), []

    @one.around
    async def session(run: Run):
        await asyncio.sleep(0)
        notes.append("enter")
        yield
        await asyncio.sleep(0)
        notes.append("leave")

    @one.job
    async def body() -> None:
        notes.append("body")

    with one:
        ended(one, one.run_now("body"))
    assert notes == ["enter", "body", "leave"]


def test_an_async_scheduler_has_it_too():
    notes = []

    async def main() -> None:
        one = AsyncScheduler(scheduler())
        one.around(traced(notes, "it"))

        @one.job
        async def body() -> None:
            notes.append("body")

        async with one:
            run = await one.run_now("body")
            while (await one.find_run(run.id)).state != "succeeded":  # noqa: ASYNC110 - it is the ledger's
                await asyncio.sleep(0.01)

    asyncio.run(main())
    assert notes == ["it enters body", "body", "it leaves"]


def test_in_virtual_time_it_is_around_bodies_too():
    one, notes = scheduler(), []
    one.around(traced(notes, "it"))
    one.job(name="plain")(lambda: notes.append("body"))

    @one.job
    async def coroutine() -> None:
        notes.append("body")

    with virtual(one) as world:
        assert world.run_now("plain").state == "succeeded"
        assert world.run_now("coroutine").state == "succeeded"
    assert notes == [word for job in ("plain", "coroutine") for word in (f"it enters {job}", "body", "it leaves")]


# What fails


def test_what_it_raises_before_the_body_fails_the_attempt_and_the_outer_ones_are_left():
    one, notes = scheduler(), []
    one.around(traced(notes, "outer"))

    @one.around
    def broken(run: Run):
        raise RuntimeError("no session")
        yield

    @one.job
    def body() -> None:
        notes.append("body")

    with one:
        run = ended(one, one.run_now("body"), "failed")
    assert run.reason.endswith("RuntimeError: no session")
    assert notes == ["outer enters body", "outer sees RuntimeError", "outer leaves"]


def test_what_it_raises_after_the_body_fails_the_attempt_and_it_is_tried_again():
    one, attempts = scheduler(), []

    @one.around
    def commits(run: Run):
        yield
        if run.attempt == 1:
            raise RuntimeError("cannot commit")

    one.job(name="body", retries=1, backoff=(0.01, 0.01))(lambda: attempts.append(1))
    with one:
        run = ended(one, one.run_now("body"))
    assert (len(attempts), run.attempt, run.failures) == (2, 2, 1)


@pytest.mark.parametrize("kind", ["thread", "coroutine"])
def test_what_a_body_raised_counts_even_if_it_is_swallowed_around_it(kind):
    one = scheduler()
    one.around(lambda _: contextlib.suppress(ValueError))
    if kind == "thread":

        @one.job
        def body() -> None:
            raise ValueError("it counts")
    else:

        @one.job
        async def body() -> None:
            raise ValueError("it counts")

    with one:
        run = ended(one, one.run_now("body"), "failed")
    assert run.reason.endswith("ValueError: it counts")


@pytest.mark.parametrize("kind", ["thread", "coroutine"])
def test_a_body_that_was_never_called_has_not_succeeded_whatever_swallows_that(kind):
    one, called = scheduler(), []
    one.around(lambda _: contextlib.suppress(RuntimeError))

    @one.around
    def broken(run: Run):
        raise RuntimeError("no session")
        yield

    if kind == "thread":
        one.job(name="body")(lambda: called.append(1))
    else:

        @one.job
        async def body() -> None:
            called.append(1)

    with one:
        run = ended(one, one.run_now("body"), "failed")
    assert run.reason.endswith("RuntimeError: no session")
    assert called == []


def test_what_is_raised_after_the_transaction_that_completed_the_run_is_told(sqlite_url, caplog):
    one = scheduler(sqlite_url)

    @one.around
    def broken(run: Run):
        yield
        raise RuntimeError("too late")

    @one.job
    def body(run: Run) -> None:
        with contextlib.closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            run.complete(connection)

    with one:
        run = ended(one, one.run_now("body"))
    (record,) = [record for record in caplog.records if hasattr(record, "run_id")]
    assert (record.levelname, record.action, record.run_id) == ("WARNING", "run_raised_late", run.id)
    assert record.getMessage().endswith("what its body raised later is ignored: RuntimeError: too late")


# When the time is out, or the process is gone


def test_a_coroutine_out_of_time_leaves_it_as_it_is_cancelled():
    one, notes = scheduler(), []
    one.around(traced(notes, "it"))

    @one.job(timeout=0.05)
    async def slow() -> None:
        await asyncio.sleep(60)

    with one:
        ended(one, one.run_now("slow"), "failed")
    assert notes == ["it enters slow", "it sees CancelledError", "it leaves"]


def test_a_thread_out_of_time_leaves_it_when_its_body_returns():
    one, notes, begun, go = scheduler(), [], [], threading.Event()
    one.around(traced(notes, "it"))

    @one.job(timeout=0.05)
    def slow(run: Run) -> None:
        begun.append(run)
        go.wait(20)

    with one:
        run = one.run_now("slow")
        eventually(lambda: begun and begun[0].cancelled)
        assert notes == ["it enters slow"]
        go.set()
        ended(one, run, "failed")
    assert notes == ["it enters slow", "it leaves"]


def test_a_process_that_is_killed_leaves_nothing_and_the_next_one_enters_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("NOTES_FOLDER", str(tmp_path))
    one = scheduler(capacity=1)
    one.around(bodies.Notes)
    one.job(process=True)(bodies.writes_its_own)
    one.job(process=True)(bodies.pid_of)
    with one:
        run = one.run_now("writes_its_own", kwargs={"path": str(tmp_path)})
        eventually((tmp_path / "body").exists)
        one.cancel(run.id)
        ended(one, run, "cancelled")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["body", "entered 1"]
        (tmp_path / "entered 1").unlink()
        ended(one, one.run_now("pid_of"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["body", "entered 1", "left 1"]


# What is refused where it is written


def test_an_async_one_and_a_plain_function_are_refused_in_either_order():
    @asynccontextmanager
    async def session(run: Run):
        yield

    one = scheduler()
    one.around(session)
    with pytest.raises(ConfigurationError, match="is async, and job 'plain'"):
        one.job(name="plain")(lambda: None)
    other = scheduler()
    other.job(name="plain")(lambda: None)
    with pytest.raises(ConfigurationError, match="is async, and job 'plain'"):
        other.around(session)


def test_one_that_a_process_cannot_find_is_refused_in_either_order():
    def local(run: Run):
        yield

    one = scheduler()
    one.around(local)
    with pytest.raises(ConfigurationError, match="Put it at the top of a module"):
        one.job(process=True)(bodies.pid_of)
    other = scheduler()
    other.job(process=True)(bodies.pid_of)
    with pytest.raises(ConfigurationError, match="Put it at the top of a module"):
        other.around(local)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [(lambda: None, "must take one argument, the run"), (asyncio.sleep, "is a coroutine"), (7, "cannot be called")],
)
def test_what_is_no_context_manager_is_refused(wrong, said):
    with pytest.raises(ConfigurationError, match=said):
        scheduler().around(wrong)


def test_what_turns_out_to_be_no_context_manager_fails_the_attempt():
    one = scheduler()
    one.around(lambda _: 7)
    one.job(name="body")(lambda: None)
    with one:
        run = ended(one, one.run_now("body"), "failed")
    assert "returned 7, which is not a context manager" in run.reason


def test_the_same_one_twice_is_entered_once():
    one, notes = scheduler(), []
    it = traced(notes, "it")
    one.around(it)
    one.around(it)
    one.job(name="body")(lambda: None)
    with one:
        ended(one, one.run_now("body"))
    assert notes == ["it enters body", "it leaves"]
