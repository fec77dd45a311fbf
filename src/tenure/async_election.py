"""The same election, async: thin bridges over the threaded runtime, with the same method names.

Heartbeats do not run on the event loop, so a coroutine that blocks the loop costs no term. When trust ends, the work is
cancelled:

    async with AsyncElection("postgresql:///app", "exporter") as election:
        async for term in election.terms():
            async with term:                       # cancelled when trust ends; then the loop waits for another term
                await export(token=term.number)
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Self, TypedDict, TypeVar, Unpack

from tenure.core.cluster import Leader, TermRecord
from tenure.election import Election
from tenure.events import ElectionEvent
from tenure.term import Term
from tenure.util.async_bridge import LoopCaller, enter, on_thread
from tenure.util.durations import Duration, positive, seconds

Listener = TypeVar("Listener", bound=Callable[..., object])


class NodeOptions(TypedDict, total=False):
    """What `Election` and `Scheduler` both take by name."""

    label: str | None
    ttl: Duration
    host_evidence: bool
    session_evidence: bool
    schema: str
    migrate: bool


class ElectionOptions(NodeOptions, total=False):
    """What `Election` takes by name."""

    heartbeat_every: Duration | None
    attempt_timeout: Duration | None
    validate_every: Duration | None
    validate_timeout: Duration | None
    session_grace: Duration | None
    keepalive_every: Duration | None
    fenced: bool
    candidate: bool
    mode: Literal["lease", "advisory"]


class AsyncElection:
    """An election for coroutines. Give it what `Election` takes, or an `Election`."""

    def __init__(self, url: object = None, name: str = "", **options: Unpack[ElectionOptions]) -> None:
        self._election = url if isinstance(url, Election) else Election(url, name, **options)
        self._signal: _Signal | None = None
        self._calls = LoopCaller(lambda: self._signal.loop if self._signal else None)

    def __repr__(self) -> str:
        return repr(self._election).replace("<Election", "<AsyncElection")

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def name(self) -> str:
        """The election's name."""
        return self._election.name

    @property
    def label(self) -> str:
        """The human-readable name of this node."""
        return self._election.label

    @property
    def is_leader(self) -> bool:
        """Whether this node leads at this very moment."""
        return self._election.is_leader

    @property
    def term(self) -> AsyncTerm | None:
        """The term in which this node leads, if it does."""
        term = self._election.term
        return AsyncTerm(term, self._changes()) if term else None

    async def start(self) -> None:
        """Take part; see `Election.start`. A cancelled start is undone before the cancellation goes on."""
        self._changes()
        election, joined = self._election, False

        def join() -> None:
            nonlocal joined
            joined = election.candidacy.join()

        def undo() -> None:
            if joined:
                election.stop()

        await enter(join, undo)

    async def stop(self, drain: Duration = 30.0) -> None:
        """Resign, wait for the work to stop, and leave."""
        await on_thread(functools.partial(self._election.stop, drain))

    async def terms(self) -> AsyncIterator[AsyncTerm]:
        """Wait for terms, one turn of the loop for each. Leaving the body, however, resigns that term."""
        changes = self._changes()
        await self.start()
        while self._election.candidacy.taking_part:
            changes.clear()
            term = self._election.candidacy.enter_body()
            if term is None:
                await changes.wait()
                continue
            try:
                yield AsyncTerm(term, changes, leave=self._election.candidacy.leave_body)
            finally:
                self._election.candidacy.leave_body(term)

    async def lead(self, work: Callable[[AsyncTerm], Awaitable[object]]) -> None:
        """Run `work(term)` in every term, cancelled when trust ends, until this election is stopped."""
        async for term in self.terms():
            async with term:
                await work(term)

    async def wait_until_leading(self, timeout: Duration | None = None) -> AsyncTerm | None:  # noqa: ASYNC109 - a twin
        """The term once this node leads; None after the timeout. 0 means one try."""
        changes = self._changes()
        await self.start()
        limit = None if timeout is None else seconds(timeout, "timeout")
        if limit == 0:
            await asyncio.to_thread(self._election.wait_until_leading, 0)
            return self.term
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                while not self.is_leader and self._election.candidacy.taking_part:
                    changes.clear()
                    if not self.is_leader:
                        await changes.wait()
        return self.term

    async def resign(self) -> None:
        """Give up the present term now, if there is one."""
        self._election.resign()

    async def withdraw(self) -> None:
        """Never lead from now on."""
        self._election.withdraw()

    async def stand(self) -> None:
        """Stand for this election again."""
        self._election.stand()

    def on(self, *kinds: type[ElectionEvent]) -> Callable[[Listener], Listener]:
        """Call a function for `Elected` or `Lost`, on a thread of its own; a coroutine function, on this loop."""

        def register(listener: Listener) -> Listener:
            if inspect.iscoroutinefunction(listener):
                self._election.on(*kinds)(self._calls.bridged(listener))
            else:
                self._election.on(*kinds)(listener)
            return listener

        return register

    async def leader(self) -> Leader | None:
        """Who leads, in which term, since when, and whether it is healthy."""
        return await asyncio.to_thread(self._election.leader)

    async def history(self, limit: int = 20) -> list[TermRecord]:
        """The newest terms first."""
        return await asyncio.to_thread(self._election.history, limit)

    async def ask_to_resign(self, *, by: str = "", why: str = "") -> int | None:
        """Ask the leader to resign; returns the term it was asked to give up."""
        return await asyncio.to_thread(self._election.ask_to_resign, by=by, why=why)

    def _changes(self) -> _Signal:
        """The signal of the loop that is running now."""
        loop = asyncio.get_running_loop()
        if self._signal is None or self._signal.loop is not loop:
            self._signal = _Signal(loop)
            self._election.candidacy.observe(self._signal.set_from_anywhere)
        return self._signal


class AsyncTerm:
    """A term for coroutines. `async with term:` cancels the block when trust ends, and swallows that cancellation.

    If the term is over before the block begins, the block is cancelled at its first `await`. Leaving the block resigns
    a term that came from `terms()`. Leaving the loop resigns it too, but an event loop may take its time to close a
    generator that was left in the middle.
    """

    def __init__(self, term: Term, changes: _Signal, *, leave: Callable[[Term], None] | None = None) -> None:
        self._term = term
        self._leave = leave
        self._changes = changes
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.Handle | None = None
        self._cancelled = False
        self._cancelling = 0

    def __repr__(self) -> str:
        return repr(self._term)

    @property
    def election(self) -> str:
        """The election's name."""
        return self._term.election

    @property
    def number(self) -> int:
        """The fencing token. It only ever grows."""
        return self._term.number

    @property
    def trusted(self) -> bool:
        """Whether this node leads at this very moment."""
        return self._term.trusted

    @property
    def remaining(self) -> float:
        """For how many seconds this term is trusted if no further heartbeat is acknowledged."""
        return self._term.remaining

    @property
    def reason(self) -> str:
        """Why it ended; '' while it lasts."""
        return self._term.reason

    def check(self) -> None:
        """Raise `TermLost` unless this node leads."""
        self._term.check()

    def fence(self, connection: Any) -> Any:
        """See `Term.fence`: awaitable for async connections."""
        return self._term.fence(connection)

    def fenced(self, connection: Any) -> Any:
        """See `Term.fenced`: `async with` for async connections."""
        return self._term.fenced(connection)

    async def wait(self, seconds: Duration | None = None) -> bool:
        """Wait; True after that time, False at once when trust ends."""
        loop = asyncio.get_running_loop()
        deadline = None if seconds is None else loop.time() + positive(seconds, "seconds")
        while (left := self.remaining) > 0:
            if deadline is not None:
                if loop.time() >= deadline:
                    return True
                left = min(left, deadline - loop.time())
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changes.next()
        return False

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        self._cancelling = self._task.cancelling() if self._task else 0
        self._changes.listeners.append(self._look)
        # Not now: a running task is cancelled at its next await, which may come after the block.
        self._timer = self._changes.loop.call_soon(self._look)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._changes.listeners.remove(self._look)
        if self._timer is not None:
            self._timer.cancel()
        if self._leave is not None:
            self._leave(self._term)
        task, self._task = self._task, None
        ours = self._cancelled and task is not None and task.uncancel() <= self._cancelling
        return ours and kind is not None and issubclass(kind, asyncio.CancelledError)

    def _look(self) -> None:
        """Cancel the block if trust is over; otherwise look again when it may be."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is None or self._cancelled:
            return
        if self.trusted:
            self._timer = self._changes.loop.call_later(self.remaining, self._look)
        else:
            self._cancelled = True
            self._task.cancel(f"term {self.number} of election {self.election!r} is over")


class _Signal:
    """Wakes the coroutines of one loop from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.listeners: list[Callable[[], None]] = []
        self._event = asyncio.Event()

    def set_from_anywhere(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: nothing waits any more
            self.loop.call_soon_threadsafe(self._set)

    def clear(self) -> None:
        self._event.clear()

    async def wait(self) -> None:
        await self._event.wait()

    async def next(self) -> None:
        """The next change, whatever happened before."""
        self.clear()
        await self.wait()

    def _set(self) -> None:
        self._event.set()
        for listener in list(self.listeners):
            listener()
