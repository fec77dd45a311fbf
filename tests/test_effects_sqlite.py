"""Effects of a run on SQLite, for every driver of it."""

import json
import sqlite3
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import sqlalchemy
from django.db.transaction import TransactionManagementError

import fencing
from attempts import Desk
from fencing import ON_SQLITE, awaited, scene
from harness.processes import Worker
from tenure import effects
from tenure.errors import ConfigurationError, RunLost, StoreUnavailable, WrongDatabase
from tenure.ledger import Change
from tenure.stores.ledger import JobChange

WORK = "INSERT INTO work (what) VALUES ('work')"
LATER = "INSERT INTO work (what) VALUES ('later')"


@pytest.fixture
def desk(sqlite_url):
    with Desk(sqlite_url, timeout=0.1) as desk:
        with connected(desk) as connection:
            connection.execute("CREATE TABLE work (what text)")
        connection.close()
        yield desk


@pytest.fixture
def works(desk):
    """What was committed."""

    def read():
        connection = connected(desk)
        try:
            return [what for (what,) in connection.execute("SELECT what FROM work")]
        finally:
            connection.close()

    return read


@pytest.fixture
def connection(desk):
    connection = connected(desk)
    yield connection
    connection.close()


@pytest.fixture(params=ON_SQLITE, ids=lambda kind: kind.__name__)
def client(request, desk):
    return request.param(desk.url)


async def complete(client, claim):
    return await awaited(effects.complete(client.connection, claim))


async def once(client, claim, key="invoice"):
    return await awaited(effects.once(client.connection, claim, key))


def test_the_work_and_the_mark_commit_together(client, desk, works):
    async def body():
        async with client.transaction():
            await client.execute(WORK)
            assert await complete(client, desk.claim) is None
            assert desk.state == "running", "nobody else sees it before the commit"

    scene(client, body)
    assert works() == ["work"]
    run = desk.run()
    assert (run.state, run.reason) == ("succeeded", "")
    assert run.claimed_at <= run.started_at <= run.finished_at <= desk.ledger.now()


def test_the_mark_goes_with_a_rollback(client, desk, works):
    async def body():
        with pytest.raises(ZeroDivisionError):
            async with client.transaction():
                await client.execute(WORK)
                await complete(client, desk.claim)
                raise ZeroDivisionError
        async with client.transaction():
            await client.execute(WORK)
            await complete(client, desk.claim)

    scene(client, body)
    assert works() == ["work"]
    assert desk.state == "succeeded"


def test_an_effect_is_made_once_by_all_attempts_together(client, desk):
    async def body():
        with pytest.raises(ZeroDivisionError):
            async with client.transaction():
                await client.execute(WORK)
                assert await once(client, desk.claim) is True
                raise ZeroDivisionError
        async with client.transaction():  # it may come first
            assert await once(client, desk.claim) is True
            assert await once(client, desk.claim) is False
            assert await once(client, desk.claim, "another") is True
        desk.lose()
        async with client.transaction():
            assert await once(client, desk.claim) is False
            await complete(client, desk.claim)
        claim = desk.give()
        async with client.transaction():
            assert await once(client, claim) is True, "another run has effects of its own"

    scene(client, body)
    assert desk.state == "succeeded"


def test_a_lost_attempt_is_refused_and_the_connection_goes_on(client, desk, works):
    old = desk.lose()

    async def body():
        for _ in range(2):
            with pytest.raises(
                RunLost, match=f"'billing', run '{old.key}'.*another attempt has it.*nothing of it was committed"
            ):
                async with client.transaction():
                    await client.execute(WORK)
                    await complete(client, old)
            with pytest.raises(RunLost, match="another attempt has it"):
                async with client.transaction():
                    await once(client, old)
        async with client.transaction():
            await client.execute(LATER)

    scene(client, body)
    assert works() == ["later"]
    assert desk.state == "running"


@pytest.mark.parametrize("ask", [complete, once])
def test_whoever_swallows_the_refusal_commits_nothing(client, ask, desk, works):
    old = desk.lose()

    async def body():
        async with client.transaction():
            await client.execute(WORK)
            with pytest.raises(RunLost):
                await ask(client, old)
        async with client.transaction():
            await client.execute(LATER)

    scene(client, body)
    assert works() == ["later"]


def test_django_runs_nothing_more_in_a_refused_atomic_block(desk, works):
    client, old = fencing.DjangoSqlite(desk.url), desk.lose()

    async def body():
        async with client.transaction():
            await client.execute(WORK)
            with pytest.raises(RunLost):
                await complete(client, old)
            with pytest.raises(TransactionManagementError):
                await client.execute(WORK)

    scene(client, body)
    assert works() == []


def test_rolling_back_to_a_savepoint_revives_nothing(client, desk, works):
    old = desk.lose()

    async def body():
        with pytest.raises(Exception, match=r"no such savepoint|current transaction"):
            async with client.transaction():
                await client.execute(WORK)
                await client.execute("SAVEPOINT before")
                with pytest.raises(RunLost):
                    await complete(client, old)
                await client.execute("ROLLBACK TO before")

    scene(client, body)
    assert works() == []


def test_without_a_transaction_it_refuses(client, desk):
    async def body():
        await awaited(client.autocommit())
        with pytest.raises(ConfigurationError, match=r"run\.complete: .*(transaction|autocommit)"):
            await complete(client, desk.claim)
        with pytest.raises(ConfigurationError, match=r"run\.once: .*(transaction|autocommit)"):
            await once(client, desk.claim)

    scene(client, body)
    assert desk.state == "running"
    desk.lose()  # no write lock was left


def test_taking_the_run_back_waits_for_the_transaction(connection, desk, works):
    assert effects.once(connection, desk.claim, "invoice")
    connection.execute(WORK)
    with pytest.raises(StoreUnavailable):
        desk.bury()
    effects.complete(connection, desk.claim)
    connection.commit()
    assert works() == ["work"]
    assert desk.state == "succeeded"


def test_a_reader_whose_run_was_lost_is_told(connection, desk):
    connection.execute("BEGIN")
    connection.execute("SELECT * FROM work").fetchall()
    old = desk.lose()
    with pytest.raises(RunLost):
        effects.complete(connection, old)
    assert not connection.in_transaction


def test_a_reader_that_another_write_overtook_may_try_again(connection, desk):
    connection.execute("BEGIN")
    connection.execute("SELECT * FROM work").fetchall()
    with connected(desk) as other:
        other.execute(WORK)
    other.close()
    with pytest.raises(sqlite3.OperationalError) as caught:
        effects.complete(connection, desk.claim)
    assert caught.value.sqlite_errorname == "SQLITE_BUSY_SNAPSHOT"
    with connection:
        assert effects.once(connection, desk.claim, "invoice")
        effects.complete(connection, desk.claim)
    assert desk.state == "succeeded"


def test_a_run_that_is_asked_to_end_or_whose_job_is_removed_may_still_complete(connection, desk):
    desk.ledger.cancel(desk.claim.run, "ops", "enough")
    assert desk.ledger.change(JobChange(desk.application, "billing", Change.REMOVED))
    with connection:
        assert effects.once(connection, desk.claim, "invoice")
        effects.complete(connection, desk.claim)
    assert desk.state == "succeeded"


def test_a_run_that_is_over_is_not_completed_again(connection, desk, works):
    with connection:
        effects.once(connection, desk.claim, "invoice")
        effects.complete(connection, desk.claim)
    for ask in (effects.complete, lambda *given: effects.once(*given, "invoice")):
        with pytest.raises(RunLost, match="it is succeeded"), connection:
            connection.execute(WORK)
            ask(connection, desk.claim)
    assert works() == []


def test_effects_go_with_their_run(connection, desk):
    with connection:
        assert effects.once(connection, desk.claim, "invoice")
        effects.complete(connection, desk.claim)
    assert connection.execute("SELECT count(*) FROM tenure_effect").fetchone() == (1,)
    assert desk.ledger.prune(desk.application, before=desk.ledger.now() + 60, keep=0, limit=10).removed == 1
    assert connection.execute("SELECT count(*) FROM tenure_effect").fetchone() == (0,)


def test_another_file(tmp_path, desk):
    connection = sqlite3.connect(tmp_path / "another.db")
    connection.execute("CREATE TABLE work (what text)")
    connection.execute("ATTACH ? AS beside", [path(desk)])  # two files do not commit together
    for ask in (effects.complete, lambda *given: effects.once(*given, "invoice")):
        with connection:
            connection.execute(WORK)
            with pytest.raises(WrongDatabase, match="no tables of tenure"):
                ask(connection, desk.claim)
    assert connection.execute("SELECT * FROM main.work").fetchall() == []
    connection.close()


def test_a_run_that_this_file_does_not_have(connection, desk, works):
    with pytest.raises(WrongDatabase, match="this database has no run 999"), connection:
        connection.execute(WORK)
        effects.complete(connection, replace(desk.claim, run=999))
    assert works() == []


@pytest.mark.parametrize("at", ["worked", "completed", "committed"])
def test_a_process_that_is_killed_leaves_one_effect(at, desk, connection, works):
    runs = []
    for _ in range(7):
        runs.append(str(desk.claim.run))
        killed(desk, at)
        if at == "committed":
            desk.bury()
            assert desk.call_the_roll() == ()
            assert desk.try_take() is None
        else:
            desk.lose()
            with connection:
                assert effects.once(connection, desk.claim, "invoice")
                connection.execute("INSERT INTO work (what) VALUES (?)", [str(desk.claim.run)])
                effects.complete(connection, desk.claim)
        assert desk.state == "succeeded"
        assert works() == runs
        desk.claim = desk.give()


def killed(desk, at):
    """The attempt in a process of its own, killed when it has come so far."""
    with Worker(Path(__file__).parent / "workers" / "attempt.py", desk.url, json.dumps(asdict(desk.claim))) as worker:
        for step in ("begins", "worked", "completed", "committed"):
            worker.wait_event(at=step)
            if step == at:
                return
            worker.say()


def path(desk):
    return sqlalchemy.make_url(desk.url).database


def connected(desk):
    return sqlite3.connect(path(desk), timeout=0.05)
