"""What a run commits with its completion, or under a key, takes effect once: on both databases, by every driver of
them."""

from contextlib import closing
from dataclasses import replace

import pytest

import work
from attempts import Desk
from callers import ON_POSTGRES, ON_SQLITE, Psycopg, Sqlite, awaited, scene
from tenure.core.messages import JobChange
from tenure.core.records import Change
from tenure.errors import AttemptLost, ConfigurationError, StoreUnavailable, WrongDatabase
from tenure.transactions import effects
from work import WORK


@pytest.fixture(params=[*ON_POSTGRES, *ON_SQLITE], ids=lambda kind: kind.__name__)
def client(request):
    return request.param(request.getfixturevalue("sqlite_url" if request.param in ON_SQLITE else "prepared_database"))


@pytest.fixture
def desk(client):
    work.lay(client.url)
    with Desk(client.url) as desk:
        yield desk


@pytest.fixture
def connection(desk):
    with closing(work.connected(desk.url)) as connection:
        yield connection


on_both = pytest.mark.parametrize("client", [Psycopg, Sqlite], indirect=True)


async def complete(client, claim):
    return await awaited(effects.complete(client.connection, claim))


async def once(client, claim, key="invoice"):
    return await awaited(effects.once(client.connection, claim, key))


def test_the_work_and_the_mark_commit_together(client, desk):
    async def body():
        async with client.transaction():
            await client.execute(WORK)
            assert await complete(client, desk.claim) is None
            assert desk.state == "running", "nobody else sees it before the commit"

    scene(client, body)
    assert desk.works() == ["work"]
    run = desk.run()
    assert (run.state, run.reason) == ("succeeded", "")
    assert run.claimed_at <= run.started_at <= run.finished_at <= desk.ledger.now()


def test_the_mark_goes_with_a_rollback(client, desk):
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
    assert desk.works() == ["work"]
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


@on_both
def test_a_run_that_is_asked_to_end_may_still_complete(desk, connection):
    desk.ledger.cancel(desk.claim.run, "ops", "enough")
    connection.execute(WORK)
    effects.complete(connection, desk.claim)
    connection.commit()
    assert desk.state == "succeeded"


@on_both
def test_a_run_that_is_complete_no_longer_bears_the_mark_of_a_stop(desk, connection):
    desk.ledger.reconcile(desk.node, desk.application, stopping=True)
    assert desk.run().stopping
    connection.execute(WORK)
    effects.complete(connection, desk.claim)
    connection.commit()
    assert (desk.state, desk.run().stopping) == ("succeeded", False)


@on_both
def test_a_run_of_a_removed_job_may_still_complete(desk, connection):
    assert desk.ledger.change(JobChange(desk.application, "billing", Change.REMOVED))
    assert effects.once(connection, desk.claim, "invoice")
    effects.complete(connection, desk.claim)
    connection.commit()
    assert desk.state == "succeeded"


@on_both
def test_a_run_that_is_over_is_not_completed_again(desk, connection):
    effects.once(connection, desk.claim, "invoice")
    effects.complete(connection, desk.claim)
    connection.commit()
    for ask in (effects.complete, lambda *given: effects.once(*given, "invoice")):
        connection.execute(WORK)
        with pytest.raises(AttemptLost, match="it is succeeded"):
            ask(connection, desk.claim)
        connection.commit()
    assert desk.works() == []


@on_both
def test_effects_go_with_their_run(desk, connection):
    assert effects.once(connection, desk.claim, "invoice")
    effects.complete(connection, desk.claim)
    connection.commit()
    assert desk.effects() == 1
    assert desk.ledger.prune(desk.application, before=desk.ledger.now() + 60, keep=0, limit=10).removed == 1
    assert desk.effects() == 0


@on_both
def test_a_run_that_this_database_does_not_have(desk, connection):
    connection.execute(WORK)
    with pytest.raises(WrongDatabase, match="this database has no run 999999999"):
        effects.complete(connection, replace(desk.claim, run=999999999))
    connection.commit()
    assert desk.works() == []


@on_both
def test_a_key_must_have_a_name(desk, connection):
    with pytest.raises(ConfigurationError, match=r"run\.once: '' cannot be a key"):
        effects.once(connection, desk.claim, "")


@on_both
@pytest.mark.parametrize("at", ["worked", "completed", "committed"])
def test_a_process_that_is_killed_leaves_one_effect(at, desk):
    runs = []
    for _ in range(3):
        runs.append(str(desk.claim.run))
        desk.killed(at)
        if at == "committed":
            desk.bury()
            assert desk.call_the_roll() == ()
            assert desk.try_take() is None
        else:
            desk.lose()
            with closing(work.connected(desk.url)) as again, again:
                assert effects.once(again, desk.claim, "invoice")
                again.execute(f"INSERT INTO work (what) VALUES ('{desk.claim.run}')")
                effects.complete(again, desk.claim)
        assert desk.state == "succeeded"
        assert desk.works() == runs
        desk.claim = desk.give()


def test_taking_the_run_back_waits_for_the_transaction_on_sqlite(sqlite_url):
    work.lay(sqlite_url)
    with Desk(sqlite_url, timeout=0.1) as desk, closing(work.connected(sqlite_url)) as connection:
        assert effects.once(connection, desk.claim, "invoice")
        connection.execute(WORK)
        with pytest.raises(StoreUnavailable):
            desk.bury()
        effects.complete(connection, desk.claim)
        connection.commit()
        assert desk.works() == ["work"]
        assert desk.state == "succeeded"
