"""Once a later term is granted, nothing fenced with an earlier one commits: on both databases, by every driver of them.

What becomes of those who are refused is in test_refusals.py.
"""

import uuid
from contextlib import closing

import pytest

import work
from callers import ON_POSTGRES, ON_SQLITE, Psycopg, Sqlite, awaited, scene
from fencing import Court
from tenure.errors import ConfigurationError, StaleTerm, WrongDatabase
from tenure.transactions import fence
from work import LATER, WORK


@pytest.fixture(params=[*ON_POSTGRES, *ON_SQLITE], ids=lambda kind: kind.__name__)
def client(request):
    return request.param(request.getfixturevalue("sqlite_url" if request.param in ON_SQLITE else "prepared_database"))


@pytest.fixture
def court(client):
    work.lay(client.url)
    with Court(client.url, name=f"billing {uuid.uuid4()}") as court:
        yield court


on_both = pytest.mark.parametrize("client", [Psycopg, Sqlite], indirect=True)


def test_the_leader_commits(client, court):
    async def body():
        for _ in range(2):  # the connection is as good as before
            async with client.transaction():
                await client.execute(WORK)
                await client.fence(court.term)

    scene(client, body)
    assert court.works() == ["work", "work"]


def test_a_fenced_block_commits(client, court):
    async def body():
        for _ in range(2):
            async with client.transaction(), client.fenced(court.term):
                await client.execute(WORK)
        async with client.transaction(), client.fenced(court.term):
            pass  # nothing to do today

    scene(client, body)
    assert court.works() == ["work", "work"]


def test_a_block_that_raises_is_not_fenced(client, court):
    old = court.depose()

    async def body():
        with pytest.raises(ZeroDivisionError):
            async with client.transaction(), client.fenced(old):
                await client.execute(WORK)
                raise ZeroDivisionError

    scene(client, body)
    assert court.works() == []


def test_a_block_of_a_stale_term_is_refused(client, court):
    old = court.depose()

    async def body():
        with pytest.raises(StaleTerm):
            async with client.transaction(), client.fenced(old):
                await client.execute(WORK)
        async with client.transaction():
            await client.execute(LATER)

    scene(client, body)
    assert court.works() == ["later"]


def test_without_a_transaction_no_block_begins(client, court):
    async def body():
        await awaited(client.autocommit())
        with pytest.raises(ConfigurationError, match=r"term\.fence: .*transaction"):
            async with client.fenced(court.term):
                raise AssertionError("the block must not begin: its work would be committed at once")
        court.depose()  # no lock was left

    scene(client, body)


@on_both
def test_a_database_that_never_saw_the_election(court):
    court.term.election = "another"
    with closing(work.connected(court.url)) as connection, connection:
        connection.execute(WORK)
        with pytest.raises(WrongDatabase, match=r"'another'.*never seen that election"):
            fence.fence(connection, court.term)
    assert court.works() == []
