"""The connection that is kept for the next verb: one, never stale, never the parent's, and never a thread for it."""

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Callable

import psycopg
import pytest

from harness.scratch import eventually
from tenure import AsyncScheduler, Scheduler, every
from tenure.errors import StoreUnavailable, UnknownJob
from tenure.jobs import kept_connection
from tenure.stores.postgres import deadline


@pytest.fixture
def kept(database: str) -> Callable[[], list[int]]:
    """The server's processes of connections that verbs have open."""

    def look() -> list[int]:
        with psycopg.connect(database, autocommit=True) as server:
            rows = server.execute(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'tenure:%:query'"
            )
            return [pid for (pid,) in rows.fetchall()]

    return look


def _scheduler(url: str) -> Scheduler:
    scheduler = Scheduler(url)

    @scheduler.job
    def work() -> None:
        """Nothing to do."""

    scheduler.add(work, every("1h"), name="work")
    return scheduler


def _in_child(what: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        try:
            what()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_node_that_has_started_keeps_none_until_it_is_called(database, kept):
    with _scheduler(database) as scheduler:
        eventually(lambda: not kept(), within=10, what="the end of the connection")
        scheduler.jobs()
        assert len(kept()) == 1


def test_one_connection_serves_one_call_after_the_other_without_a_thread(database, kept):
    threads = threading.active_count()
    scheduler = _scheduler(database)
    (first,) = kept()
    for _ in range(3):
        scheduler.run_now("work")
        assert kept() == [first]
    assert threading.active_count() == threads


def test_threads_share_no_connection_and_one_is_kept(database, kept, run_together):
    scheduler = _scheduler(database)
    inside = threading.Barrier(4)

    def use(_: int) -> None:
        with scheduler._service.ledger() as ledger:
            ledger.now()
            inside.wait(5)
            if inside.wait(5) == 0:
                assert len(kept()) == 4
            inside.wait(5)

    run_together(4, use)
    eventually(lambda: len(kept()) == 1)


def test_coroutines_use_it_too(database, kept):
    _scheduler(database).close()

    async def play() -> None:
        scheduler = AsyncScheduler(database)
        await scheduler.find_job("work")
        (first,) = kept()
        await scheduler.run_now("work")
        assert kept() == [first]
        await scheduler.close()

    asyncio.run(play())
    eventually(lambda: not kept())


def test_a_connection_that_the_server_ended_is_replaced_before_anything_is_sent(database, kept, postgres):
    scheduler = _scheduler(database)
    (first,) = kept()
    postgres.execute(f"SELECT pg_terminate_backend({first}, 5000)")
    scheduler.run_now("work", key="once")
    assert kept() != [first]


def test_a_restart_of_the_server_between_two_calls_is_not_noticed(own_postgres):
    scheduler = _scheduler(own_postgres.create_database())
    own_postgres.crash()
    own_postgres.start()
    assert scheduler.run_now("work").state == "pending"


def test_a_connection_that_does_not_answer_any_more_is_replaced(database, kept, monkeypatch):
    """As when the network has lost it without a word."""
    monkeypatch.setattr(deadline, "ASKED_AFTER", -1.0)
    monkeypatch.setattr(deadline, "ANSWER_WITHIN", 0.2)
    scheduler = _scheduler(database)
    (first,) = kept()
    os.kill(first, signal.SIGSTOP)
    try:
        scheduler.run_now("work")
    finally:
        os.kill(first, signal.SIGCONT)
    assert len(scheduler.runs("work", state="pending")) == 1


def test_what_failed_half_way_is_told_and_not_sent_again(database, postgres):
    scheduler = _scheduler(database)
    with pytest.raises(StoreUnavailable), scheduler._service.ledger() as ledger:
        ledger.now()
        postgres.terminate_backends("tenure:%:query")
        ledger.now()
    assert scheduler.find_job("work").name == "work"


def test_a_call_that_raised_keeps_no_connection(database, kept):
    scheduler = _scheduler(database)
    with pytest.raises(UnknownJob):
        scheduler.find_job("other")
    eventually(lambda: not kept())


def test_the_server_ends_it_after_a_while_and_the_next_call_opens_another(database, kept, monkeypatch):
    monkeypatch.setattr(kept_connection, "KEPT", 0.05)
    monkeypatch.setattr(deadline, "LATER", 0.05)
    scheduler = _scheduler(database)
    eventually(lambda: not kept())
    assert scheduler.find_job("work").name == "work"


def test_an_administrators_own_time_counts(database, kept):
    with psycopg.connect(database, autocommit=True) as server:
        server.execute(f"ALTER DATABASE {database.rpartition('/')[2]} SET idle_session_timeout = '100ms'")
    scheduler = _scheduler(database)
    eventually(lambda: not kept())
    assert scheduler.find_job("work").name == "work"


@pytest.mark.parametrize("how", ["close", "stop", "garbage"])
def test_nothing_is_left_open(database, kept, how):
    scheduler = _scheduler(database)
    assert len(kept()) == 1
    if how == "garbage":
        del scheduler
        gc.collect()
    else:
        getattr(scheduler, how)()
        eventually(lambda: not kept())
        assert scheduler.find_job("work").name == "work"
        scheduler.close()
    eventually(lambda: not kept())


def test_a_forked_child_opens_its_own_and_leaves_the_parents_alone(url):
    scheduler = _scheduler(url)
    scheduler.find_job("work")

    def in_child() -> None:
        scheduler.run_now("work", key="child")
        scheduler.close()
        gc.collect()

    assert _in_child(in_child) == 0
    scheduler.run_now("work", key="parent")
    assert {run.key for run in scheduler.runs("work", state="pending")} == {"child", "parent"}


def test_a_started_node_keeps_one_beside_its_own(database, kept):
    scheduler = _scheduler(database)
    with scheduler:
        scheduler.run_now("work")
        (first,) = kept()
        scheduler.run_now("work")
        assert kept() == [first]
    eventually(lambda: not kept())


def test_behind_a_pooler_none_is_kept(database, pgbouncer, postgres):
    scheduler = _scheduler(pgbouncer.url(database.rpartition("/")[2]))
    scheduler.run_now("work")
    assert not scheduler._service._spare._idle


def test_a_file_that_was_replaced_is_opened_anew(sqlite_url, tmp_path):
    scheduler = _scheduler(sqlite_url)
    other = _scheduler(f"sqlite:///{tmp_path / 'other.db'}")
    other.add("work", every("2h"), name="other")
    other.close()
    for end in ("", "-wal", "-shm"):
        (tmp_path / f"tenure.db{end}").unlink(missing_ok=True)
    (tmp_path / "other.db").rename(tmp_path / "tenure.db")
    assert scheduler.find_job("other").name == "other"
