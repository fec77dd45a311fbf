"""The other colour: the same words for coroutines, and bodies that are cancelled when trust ends."""

import asyncio
import inspect
import time
import uuid
from typing import get_type_hints

import pytest

from tenure import AsyncElection, AsyncTerm, Election
from tenure.async_election import ElectionOptions
from tenure.events import Elected, Lost
from tenure.term import Term

WITHIN = 10


@pytest.fixture
def url() -> str:
    return f"memory://{uuid.uuid4()}"


def test_both_colours_have_the_same_words() -> None:
    def words(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert words(AsyncElection) - {"lead", "name"} == words(Election) - {"lock_fileno", "node"}
    assert words(AsyncTerm) - {"election", "number"} == words(Term) - {"end", "forked", "schema"}
    by_name = {name for name, p in inspect.signature(Election).parameters.items() if p.kind is p.KEYWORD_ONLY}
    assert set(get_type_hints(ElectionOptions)) == by_name


def test_a_body_is_cancelled_when_its_term_ends_and_the_loop_goes_on(url: str) -> None:
    async def main() -> list[str]:
        story: list[str] = []
        async with AsyncElection(url, "x", label="a", ttl=6) as election:
            async for term in election.terms():
                async with term:
                    story.append(f"term {term.number}")
                    if term.number == 2:
                        break
                    asyncio.get_running_loop().call_later(0.1, lambda: asyncio.ensure_future(election.resign()))
                    try:
                        await asyncio.sleep(60)
                    except asyncio.CancelledError:
                        story.append("cancelled")
                        raise
                story.append("after the block")
        return story

    assert asyncio.run(asyncio.wait_for(main(), WITHIN)) == ["term 1", "cancelled", "after the block", "term 2"]


def test_a_cancellation_from_outside_is_not_swallowed(url: str) -> None:
    async def main() -> bool:
        async with AsyncElection(url, "x", label="a", ttl=6) as election:
            inside = asyncio.Event()

            async def work() -> None:
                async for term in election.terms():
                    async with term:
                        inside.set()
                        await asyncio.sleep(60)

            task = asyncio.create_task(work())
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return election.is_leader

    assert asyncio.run(asyncio.wait_for(main(), WITHIN)) is False


def test_lead_runs_work_in_every_term(url: str) -> None:
    async def main() -> list[int]:
        numbers: list[int] = []
        twice = asyncio.Event()
        election = AsyncElection(url, "x", label="a", ttl=6)

        async def work(term: AsyncTerm) -> None:
            numbers.append(term.number)
            if len(numbers) < 2:
                await election.resign()
                await asyncio.sleep(60)
            twice.set()

        leading = asyncio.create_task(election.lead(work))
        await twice.wait()
        await election.stop()
        await leading
        return numbers

    assert asyncio.run(asyncio.wait_for(main(), WITHIN)) == [1, 2]


def test_waiting_resigning_and_asking(url: str) -> None:
    async def main() -> None:
        async with (
            AsyncElection(url, "x", label="a", ttl=6) as a,
            AsyncElection(url, "x", label="b", ttl=6, candidate=False) as b,
        ):
            first = await a.wait_until_leading(WITHIN)
            assert first is not None
            await b.stand()
            assert await b.wait_until_leading(0) is None
            assert await b.wait_until_leading(0.05) is None
            assert await first.wait("10ms") is True
            leader = await b.leader()
            assert leader is not None
            assert leader.label == a.label
            waiting = asyncio.create_task(first.wait())
            await b.ask_to_resign()
            assert await waiting is False
            assert await b.wait_until_leading(WITHIN)
            assert [record.number for record in await b.history()] == [2, 1]

    asyncio.run(asyncio.wait_for(main(), WITHIN))


def test_coroutine_listeners_run_on_the_loop(url: str) -> None:
    async def main() -> list[object]:
        seen: list[object] = []
        election = AsyncElection(url, "x", label="a", ttl=6)

        @election.on(Elected, Lost)
        async def remember(event: Elected | Lost) -> None:
            await asyncio.sleep(0)
            seen.append((event, asyncio.get_running_loop()))

        async with election:
            await election.wait_until_leading(WITHIN)
        assert {loop for _, loop in seen} == {asyncio.get_running_loop()}  # type: ignore[misc]
        return [type(event) for event, _ in seen]  # type: ignore[misc]

    assert asyncio.run(asyncio.wait_for(main(), WITHIN)) == [Elected, Lost]


def test_a_blocked_event_loop_costs_no_term(database: str) -> None:
    """The heartbeat has a thread and a connection of its own."""

    async def main() -> None:
        async with AsyncElection(database, "x", label="a", ttl=2) as election:
            term = await election.wait_until_leading(WITHIN)
            assert term is not None
            time.sleep(3)  # noqa: ASYNC251 - the very mistake
            assert term.trusted
            assert election.is_leader

    asyncio.run(asyncio.wait_for(main(), WITHIN))
