"""`raise NotYet(…)`: a run looks again later, in threads, coroutines and processes, until `wait_up_to` is over."""

import asyncio
import json
import logging
import sqlite3
from datetime import timedelta

import pytest

import bodies
from scheduling.test_engine import ended, eventually, scheduler
from tenure import Run, Scheduler
from tenure.cli import main
from tenure.errors import NotYet
from tenure.events import RunEvent, RunFailed, RunNotYet, RunSucceeded
from tenure.testing import virtual


def test_a_body_looks_until_what_it_needs_is_there():
    one, heard = scheduler(), []
    one.on(RunEvent)(heard.append)

    @one.job(retries=0, max_lost=1)
    def load(run: Run) -> None:
        run.log(f"look {run.attempt}")
        if run.attempt < 4:
            raise NotYet("20ms", "file not there")

    with one:
        run = ended(one, one.run_now("load"))
        eventually(lambda: len(heard) == 4)
        eventually(lambda: len(one.log(run.id)) == 4)
        run = one.find_run(run.id)
    assert (run.attempt, run.looks, run.failures, run.losses, run.interruptions) == (4, 3, 0, 0, 0)
    assert one.log(run.id) == [f"look {number}" for number in (1, 2, 3, 4)]
    assert [type(event) for event in heard] == [RunNotYet, RunNotYet, RunNotYet, RunSucceeded]
    assert {(event.error, event.run_id) for event in heard[:3]} == {("file not there", run.id)}
    assert [event.attempt for event in heard] == [1, 2, 3, 4]


@pytest.mark.parametrize("pause", [0.01, timedelta(milliseconds=10), "10ms"])
def test_a_coroutine_looks_as_well(pause):
    one = scheduler()

    @one.job
    async def load(run: Run) -> None:
        await asyncio.sleep(0)
        if run.attempt == 1:
            raise NotYet(pause, "file not there")

    with one:
        assert ended(one, one.run_now("load")).looks == 1


def test_a_body_in_a_process_looks_as_well(sqlite_url, tmp_path):
    one = scheduler(sqlite_url)
    one.job(process=True)(bodies.not_yet)
    with one:
        run = one.run_now("not_yet", kwargs={"file": str(tmp_path / "data")})
        looking = eventually(lambda: (found := one.find_run(run.id)).waiting and found)
        assert "data is not there" in looking.waiting
        (tmp_path / "data").write_text("here")
        done = ended(one, run)
    assert done.looks == done.attempt - 1 >= 1
    assert done.failures == 0


def test_a_process_that_does_not_say_when_has_failed(sqlite_url):
    one = scheduler(sqlite_url)
    one.job(process=True)(bodies.not_yet_wrong)
    with one:
        run = ended(one, one.run_now("not_yet_wrong"), "failed")
    assert "'5 minutes'" in run.reason
    assert run.looks == 0


@pytest.mark.parametrize(
    ("pause", "told"), [(0, "leaves no time"), ("5 minutes", "'5 minutes'"), (True, "not a duration")]
)
def test_a_body_that_does_not_say_when_has_failed(pause, told):
    one = scheduler()

    @one.job
    def load() -> None:
        raise NotYet(pause, "file not there")

    with one:
        run = ended(one, one.run_now("load"), "failed")
    assert told in run.reason
    assert "file not there" in run.reason, "the body's own words and place are kept"
    assert (run.looks, run.failures) == (0, 1)


def test_after_the_wait_is_over_the_run_fails_with_the_reason(caplog):
    one, heard = scheduler(), []
    one.on(RunFailed)(heard.append)

    @one.job(wait_up_to="200ms", retries=5)
    def load() -> None:
        raise NotYet("60ms", "file not there")

    with one:
        run = ended(one, one.run_now("load"), "failed")
        eventually(lambda: heard)
    assert run.reason == "gave up waiting: file not there"
    assert run.failures == 0, "retries are for failures"
    assert (run.finished_at - run.looking_since).total_seconds() >= 0.2
    assert run.looks == run.attempt >= 3
    assert heard[0].error == run.reason
    assert any(record.levelno >= logging.WARNING and run.reason in record.getMessage() for record in caplog.records)


def test_after_run_complete_only_that_transaction_decides(caplog, sqlite_url):
    one, path = scheduler(sqlite_url), sqlite_url.removeprefix("sqlite:///")

    @one.job
    def commits(run: Run) -> None:
        with sqlite3.connect(path) as connection:
            connection.execute("BEGIN IMMEDIATE")
            run.complete(connection)
        raise NotYet("10ms", "too late")

    @one.job
    def rolls_back(run: Run) -> None:
        with sqlite3.connect(path) as connection:
            connection.execute("BEGIN IMMEDIATE")
            run.complete(connection)
            raise NotYet("10ms", "too late")

    with one:
        done = ended(one, one.run_now("commits"))
        failed = ended(one, one.run_now("rolls_back"), "failed")
    assert (done.looks, done.attempt) == (0, 1)
    assert (failed.looks, failed.reason) == (0, "the transaction of run.complete() was not committed")
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len([text for text in errors if "raised NotYet after run.complete()" in text]) == 2


def test_a_body_out_of_time_is_no_look():
    one = scheduler()

    @one.job(timeout="30ms")
    def load(run: Run) -> None:
        run.wait(5)
        raise NotYet("10ms", "file not there")

    with one:
        run = ended(one, one.run_now("load"), "failed")
    assert (run.reason.splitlines()[-1], run.looks) == ("timed out after 0.03 s", 0)


def test_a_reason_that_cannot_be_printed_is_said_so():
    class Worse:
        def __str__(self) -> str:
            raise ValueError("no")

    one = scheduler()

    @one.job(wait_up_to="10ms")
    def load() -> None:
        raise NotYet("20ms", Worse())

    with one:
        assert "cannot be shown" in ended(one, one.run_now("load"), "failed").reason


def test_between_looks_nothing_else_of_the_job_begins_and_why_says_so():
    one = scheduler()

    @one.job(overlap="wait")
    def load(run: Run) -> None:
        raise NotYet("1h", "file not there")

    with one:
        first = one.run_now("load")
        eventually(lambda: one.find_run(first.id).looks)
        second = one.run_now("load")
        eventually(lambda: one.find_run(second.id).state == "waiting")
        said = one.why("load")
        view = one.find_run(first.id)
        assert "is waiting: file not there, 1 look, next at" in said
        assert "It fails if that lasts until" in said
        assert view.waiting.startswith("file not there, 1 look, next at ")
        assert json.dumps(view.as_dict())


def test_virtual_time_plays_looks():
    one = Scheduler("memory://")

    @one.cron("0 3 * * *", wait_up_to="6h")
    def load(run: Run) -> None:
        if run.scheduled_for.day == 15 or run.attempt < 13:
            raise NotYet("5m", "file not there")

    with virtual(one, now="2026-11-14T00:00Z") as world:
        world.advance(to="2026-11-14T03:31Z")
        (run,) = world.runs("load")
        assert (run.state, run.looks, run.due_at.minute) == ("pending", 7, 35)
        world.advance(to="2026-11-15T08:59Z")
        (done, looking) = world.runs("load")
        assert (done.state, done.looks, done.finished_at.hour) == ("succeeded", 12, 4)
        assert looking.waiting
        world.advance(to="2026-11-15T09:00Z")
        run = world.runs("load")[-1]
        assert (run.state, run.reason) == ("failed", "gave up waiting: file not there")
        assert (run.looks, run.finished_at.hour, run.finished_at.minute) == (73, 9, 0)


def test_the_commands_say_what_a_run_waits_for(sqlite_url, capsys):
    one = scheduler(sqlite_url, application="shop")

    @one.job
    def load() -> None:
        raise NotYet("1h", "file not there")

    with one:
        run = one.run_now("load")
        eventually(lambda: one.find_run(run.id).looks)
        (audited,) = one.audit("load")
        assert audited.clean
        for words in (["runs", "load"], ["status"], ["why", "load"]):
            main([*words, "--url", sqlite_url])
            said = " ".join(capsys.readouterr().out.split())
            assert "file not there, 1 look, next at" in said


def test_the_audit_counts_a_looking_run_as_open_and_says_what_it_waits_for():
    one = Scheduler("memory://")

    @one.every("1h")
    def load() -> None:
        raise NotYet("10m", "file not there")

    with virtual(one, now="2026-11-14T00:30Z") as world:
        world.advance(by="2h")
        (found,) = one.audit("load", since="2026-11-14T00:30Z")
        assert found.clean
        assert any("waiting: file not there" in line for line in found.lines())
