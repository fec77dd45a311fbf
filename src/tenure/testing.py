"""Test jobs in virtual time: a clock that moves when it is told to, a ledger in memory, and nothing that sleeps.

with virtual(scheduler, now="2026-11-14T12:00Z") as world:
    world.advance(to="2026-11-16T12:00Z")
    assert len(world.runs("daily_aggregate")) == 2

The loop that plans, claims, resolves missed due times and retries is that of production. Only time and the calling
of bodies differ: `advance` calls bodies on its own thread, one after the other, and they take no virtual time. A body
that raises makes a failed run.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import math
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from typing import Any, overload

from tenure.core.arguments import encode_result
from tenure.core.cluster import NodeCard, NodeId
from tenure.core.database_clock import DatabaseClock
from tenure.core.keys import due_key
from tenure.core.messages import ClaimedRun, Ending, FollowedRun, RunQuery
from tenure.core.records import Instant, JobId, JobState, Rules, RunId, RunKind, RunState, States
from tenure.core.trigger_text import zone_of
from tenure.errors import ConfigurationError
from tenure.jobs import operations
from tenure.jobs.calls import Call, P, WithRun
from tenure.jobs.queries import Lookup
from tenure.jobs.run_log import Piece
from tenure.run import CURRENT, Run, RunControl
from tenure.scheduler import Scheduler, service_of
from tenure.scheduling.attempt import Attempt
from tenure.scheduling.base_executor import BaseExecutor
from tenure.scheduling.context import LoopContext, LoopSignals, NodeHandle
from tenure.scheduling.engine import sync
from tenure.scheduling.loop import SchedulerLoop
from tenure.scheduling.reporting import Reporter
from tenure.scheduling.service import SchedulerService
from tenure.stores.memory.store import MemoryStore
from tenure.stores.notices import JobsChanged
from tenure.transactions.connections import target_of
from tenure.triggers import zone
from tenure.util.clock import boottime
from tenure.util.durations import Duration, seconds
from tenure.util.instants import instant, moment
from tenure.util.urls import MemoryURL
from tenure.views import ParentRun, RunView

BEGINNING = "2026-01-01T00:00Z"
"""When a world begins by default."""
LABEL = "virtual"
PLANNED_AHEAD = 2.0
"""The clock stops this many seconds before a due time, for the loop to plan it."""
SLOTS = 500
RESTLESS = 1000
"""After this many turns at one instant, a job seems to request itself again and again."""
LISTEN = 10.0
"""Seconds that listeners may take for their events."""
_FOREVER = 1e9


@contextmanager
def virtual(scheduler: Scheduler, now: datetime | str = BEGINNING) -> Iterator[World]:
    """The scheduler's jobs in a world that begins at `now`. Its operations go to the world; its URL is not touched."""
    world = World(scheduler, operations.point(now, 0.0, "now"))
    try:
        yield world
    finally:
        world.close()


def run(
    job: str = "job",
    *,
    scheduled_for: datetime | str = BEGINNING,
    attempt: int = 1,
    key: str | None = None,
    kind: str = "due",
    done: Iterable[str] = (),
    parent: ParentRun | None = None,
) -> RecordedRun:
    """A run to call a body with: `daily_aggregate(tenure.testing.run(scheduled_for="2026-11-15T03:00+09:00"))`.

    `done`: the keys of `run.once` that an earlier attempt has committed. `parent`: what `run.parent` says, such as
    `ParentRun("load", "2026-11-14T18:00:00Z", "failed")`.
    """
    when = datetime.fromisoformat(scheduled_for) if isinstance(scheduled_for, str) else scheduled_for
    at = instant(when)
    claimed = ClaimedRun(
        id=RunId(1),
        job=JobId(1),
        name=job,
        function=job,
        kwargs="{}",
        key=due_key(at) if key is None else key,
        kind=RunKind(kind),
        scheduled_for=at,
        due_at=at,
        attempt=attempt,
        failures=attempt - 1,
        generation=1,
        rules=Rules(),
        parent=None if parent is None else _followed(parent),
    )
    return RecordedRun(claimed, str(uuid.uuid4()), tz=when.tzinfo or UTC, done=set(done))


def _followed(parent: ParentRun) -> FollowedRun:
    result = None if parent.result is None else encode_result(parent.result)
    return FollowedRun(parent.job, parent.key, RunState(parent.state), result)


class RecordedRun(Run):
    """A run without a database, which records what its body does with it.

    `run.cancel("…")` asks the body to end. `run.lose("…")` takes the run from this attempt. `run.lines` is its log.
    """

    __slots__ = ("_done", "effects")

    def __init__(self, claimed: ClaimedRun, token: str, *, tz: tzinfo, done: set[str]) -> None:
        super().__init__(RunControl(claimed, token, tz=tz, schema="tenure", until=lambda: math.inf))
        self._done = done
        self.effects: list[str] = []
        """The keys for which `once` was True, in order."""

    def once(self, conn: Any, key: str) -> Any:
        """True the first time, as far as this run and `done` know. The connection is not used."""
        if not key or not isinstance(key, str):
            raise ConfigurationError(f"once: the key {key!r} must be text, such as 'invoices'.")
        return self._control.awaited("run.once", _awaited(self._first, key)) if _is_async(conn) else self._first(key)

    def _first(self, key: str) -> bool:
        first = key not in self._done and key not in self.effects
        if first:
            self.effects.append(key)
        return first

    def complete(self, conn: Any) -> Any:
        """Note that the body completed its run; the connection is not used."""
        if _is_async(conn):
            return self._control.awaited("run.complete", _awaited(self._complete))
        return self._complete()

    def _complete(self) -> None:
        self._control.note_completed()

    def cancel(self, why: str) -> None:
        """Ask the body to end."""
        self._control.tell(why)

    def lose(self, why: str) -> None:
        """Make this an attempt that no longer counts."""
        self._control.lose(why)

    @property
    def completed(self) -> bool:
        """The body completed its run."""
        return self._control.completed

    @property
    def lines(self) -> tuple[str, ...]:
        """What the body logged."""
        return self._control.lines

    def wait(self, seconds_: Duration) -> bool:
        """Return at once: True, unless the attempt should end."""
        seconds(seconds_, "seconds")
        return not self.cancelled and not self.lost


class World:
    """One node that has all jobs of a scheduler, and its clock."""

    def __init__(self, scheduler: Scheduler, begins: Instant) -> None:
        self._scheduler, self._service, self._now = scheduler, service_of(scheduler), begins
        self._store = MemoryStore(MemoryURL(f"virtual-{uuid.uuid4()}"), clock=lambda: self._now)
        self._service.use(self._store)
        self._lookup = Lookup(scheduler.application, self._service.options.tz)
        self._node = _VirtualNode(self, self._service)
        self._service.use(self._store, self._node.answer)
        self._turning = False

    @property
    def now(self) -> datetime:
        """What the world's clock shows, in the zone of the scheduler."""
        return moment(self._now, zone(self._service.options.tz))

    def advance(self, *, to: datetime | str | None = None, by: Duration | None = None) -> None:
        """Move the clock on, and do everything on the way at its own instant. `by=0` does what is due now."""
        target = self._target("advance", to, by)
        self._settle()
        while (stop := self._next_stop()) is not None and stop <= target:
            self._now = stop
            self._settle()
        self._now = target
        self._settle()
        self._service.listeners.flush(LISTEN)

    def down(self, *, to: datetime | str | None = None, by: Duration | None = None) -> None:
        """Move the clock on while no node is up. The next `advance` resolves the due times that were missed."""
        self._now = self._target("down", to, by)

    @overload
    def run_now(
        self, job: Call | str, /, *, kwargs: Mapping[str, Any] | None = None, key: str | None = None
    ) -> RunView: ...
    @overload
    def run_now(self, job: WithRun[P], /, *args: P.args, **kwargs: P.kwargs) -> RunView: ...
    @overload
    def run_now(self, job: Callable[P, object], /, *args: P.args, **kwargs: P.kwargs) -> RunView: ...
    def run_now(self, job: Any, /, *args: Any, **given: Any) -> RunView:
        """`scheduler.run_now`, and the run as it ended."""
        asked = self._scheduler.run_now(job, *args, **given)
        self.advance(by=0)
        with self._service.ledger() as ledger:
            return self._lookup.run(ledger, asked.id)

    def runs(self, job: str | None = None, state: States | None = None) -> list[RunView]:
        """Runs up to now, the oldest first."""
        with self._service.ledger() as ledger:
            if job is not None:
                operations.known(ledger, self._scheduler.application, job)
            query = RunQuery(
                self._scheduler.application,
                job,
                operations.states(state),
                before=self._now + 1e-6,
                limit=1_000_000_000,
                oldest_first=True,
            )
            return self._lookup.shown_runs(ledger, ledger.runs(query))

    def close(self) -> None:
        """Give the scheduler its own store back."""
        self._node.close()
        self._service.listeners.stop(LISTEN)
        self._service.use(None)
        self._store.forget()

    def instant(self) -> Instant:
        """The virtual time, for the ledger."""
        return self._now

    def _target(self, call: str, to: datetime | str | None, by: Duration | None) -> Instant:
        if self._turning:
            raise ConfigurationError(f"{call}: a body cannot move the clock of the world that calls it.")
        if (to is None) == (by is None):
            raise ConfigurationError(f"{call}: write to='2026-11-16T12:00Z' or by='2h', one of them.")
        target = self._now + seconds(by, "by") if by is not None else operations.point(to or "", self._now, "to")
        if target < self._now:
            raise ConfigurationError(
                f"{call}: {moment(target)} is before {moment(self._now)}. This clock goes forward."
            )
        return target

    def _settle(self) -> None:
        """Do everything that is due at this instant."""
        self._turning = True
        try:
            self._node.settle()
        finally:
            self._turning = False

    def _next_stop(self) -> Instant | None:
        """The next instant with something to do: a run begins, a due time is to be planned, or a pause ends."""
        stops = [self._node.clock.next_at]
        with self._service.ledger() as ledger:
            for row in ledger.jobs(self._scheduler.application):
                if row.state is JobState.PAUSED:
                    stops.append(row.paused_until)
                elif row.next_due is not None:
                    stops.append(row.next_due - PLANNED_AHEAD)
        return min((stop for stop in stops if stop is not None and stop > self._now), default=None)


class _VirtualNode:
    """A node without threads: the scheduler's loop turned by hand, and bodies called on the spot."""

    label, lease_until, lock_fileno, is_leader = LABEL, math.inf, None, True

    def __init__(self, world: World, service: SchedulerService) -> None:
        options = service.options
        sync(service.store, options, service.definitions.changes(world.instant()), service.definitions.registry.names)
        self.id = str(uuid.uuid4())
        self._session = service.store.session(LABEL, _FOREVER)
        self._session.join(NodeCard(self.id, LABEL, options.cadence.ttl, None))
        self._options = replace(
            options,
            queues=None,
            cadence=replace(options.cadence, heartbeat_every=_FOREVER),
            keep_for=_FOREVER,
            keep=0,
            keep_keys=_FOREVER,
        )
        self.clock, self._signals = _Clock(world.instant), LoopSignals(self)
        self._executor = _InlineExecutor(self, self.clock, self._ended)
        self._reporter = Reporter(service.listeners, LABEL, options.tz)
        self._effects: dict[RunId, set[str]] = {}
        registry = service.definitions.registry
        context = LoopContext(self, self, self._executor, registry, self.clock, self._options, self._signals)
        self._loop = SchedulerLoop(context, self._reporter, self._make_run)

    def wake(self) -> None:
        """It is turned by hand."""

    def settle(self) -> None:
        """Turn the loop until it has nothing to do at this instant."""
        self.clock.next_at = None
        self._loop.heard(JobsChanged(self._options.application))
        for turn in itertools.count():
            if self._loop.next_at() > boottime():
                return
            if turn == RESTLESS:
                raise ConfigurationError(
                    f"advance: nothing comes to rest at {moment(self.clock.now(0.0))}. "
                    "Does a job request itself with run_now()?"
                )
            self._loop.turn(self._session)
            if self._executor.trouble is not None:
                raise self._executor.trouble

    def answer(self) -> None:
        """For a body, or a test, that paused or removed a job: nothing else turns the loop while it waits."""
        ledger = self._session.ledger
        self._loop.reconciler.answer(ledger, ledger.reconcile(self.id, self._options.application))

    def close(self) -> None:
        self._executor.close()
        self._session.close()

    def _make_run(self, claimed: ClaimedRun, token: str, node: NodeId) -> Run:
        del node
        where = zone_of(claimed.trigger, claimed.scheduled_for, default=self._options.tz)
        return _WorldsRun(claimed, token, tz=where, done=self._effects.setdefault(claimed.id, set()))

    def _ended(self, attempt: Attempt, ending: Ending) -> None:
        ledger = self._session.ledger
        [answer] = ledger.finish([ending])
        kept = attempt.control.kept
        if kept is not None:
            piece = Piece(sys.maxsize)
            kept.fill(piece, math.inf, self.clock.now)
            ledger.keep_log(piece.lines)
            ledger.keep_progress(piece.progress)
        self._executor.acknowledged(attempt)
        self._reporter.ended(attempt, ending, answer)
        self._signals.poke()
        if attempt.claimed.kind is RunKind.BACKFILL and answer.state.final:
            self._signals.backfill()
        if attempt.claimed.owes and answer.state.final:
            self._signals.owe()


class _WorldsRun(RecordedRun):
    """No transaction can fail to commit here, so the body's return decides."""

    __slots__ = ()

    def _complete(self) -> None: ...

    def commit(self) -> None:
        """The body returned: later attempts find its effects done."""
        self._done.update(self.effects)


class _InlineExecutor(BaseExecutor):
    """Calls bodies on the spot, by production's rules for beginning and ending. None times out."""

    def __init__(self, node: NodeHandle, clock: DatabaseClock, ended: Callable[[Attempt, Ending], None]) -> None:
        super().__init__(node, clock, SLOTS, ended=ended, freed=lambda: None, chance=lambda: 0.5)
        self._loop: asyncio.Runner | None = None
        self.trouble: ConfigurationError | None = None
        """Why nothing can run here, for the code that turns the loop. The loop itself goes on whatever happens."""

    def take(self, attempts: Sequence[Attempt]) -> int:
        for attempt in attempts:
            if attempt.function.is_coroutine and _in_a_loop():
                self.trouble = ConfigurationError(
                    f"virtual: {attempt.run.job!r} is a coroutine and needs a loop of its own, which cannot run inside "
                    "the loop of this test. Write the test as a plain function, or call the world by asyncio.to_thread."
                )
                return 0
        self.accept(attempts)
        for attempt in attempts:
            if self.begin(attempt, boottime()):
                attempt.called = True
                failure = self._call(attempt)
                if failure is None and isinstance(attempt.run, _WorldsRun):
                    attempt.run.commit()
                self.end(attempt, self.judge(attempt, failure))
        return self.room()

    def cancel(self, attempt: Attempt) -> bool:
        del attempt
        return False

    def no_loop(self) -> str:
        return ""

    def end_abandoned(self) -> None:
        """Nothing is abandoned here."""

    def close(self) -> None:
        if self._loop is not None:
            self._loop.close()

    def _call(self, attempt: Attempt) -> BaseException | None:
        token = CURRENT.set(attempt.run)
        try:
            if attempt.function.is_coroutine:
                result = self._await(attempt)
            else:
                result = attempt.function.call(attempt.run, attempt.kwargs())
            self.keep_result(attempt, result)
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            return error
        finally:
            CURRENT.reset(token)
        return None

    def _await(self, attempt: Attempt) -> object:
        async def body() -> object:
            token = CURRENT.set(attempt.run)
            try:
                return await attempt.function.call(attempt.run, attempt.kwargs())
            finally:
                CURRENT.reset(token)

        if self._loop is None:
            self._loop = asyncio.Runner()
        return self._loop.run(body())


class _Clock(DatabaseClock):
    """The world's clock as the loop reads it. It notes the next instant that the loop would wake for."""

    def __init__(self, read: Callable[[], Instant]) -> None:
        super().__init__(0.0)
        self._read = read
        self.next_at: Instant | None = None

    def observe(self, now: Instant, sent_at: float, received_at: float, wall: Instant | None = None) -> float:
        del now, sent_at, received_at, wall
        return 0.0

    def now(self, boottime: float) -> Instant:
        del boottime
        return self._read()

    def at(self, instant: Instant) -> float:
        """At once if the instant has come, else not before the clock moves."""
        if instant <= self._read():
            return 0.0
        self.next_at = instant if self.next_at is None else min(self.next_at, instant)
        return math.inf


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _is_async(conn: Any) -> bool:
    """Whether operations on this connection are awaited. Any object may stand in for a connection."""
    try:
        return target_of(conn, "run").is_async
    except ConfigurationError:
        return inspect.iscoroutinefunction(getattr(conn, "execute", None))


async def _awaited(function: Callable[..., object], *values: object) -> Any:
    return function(*values)
