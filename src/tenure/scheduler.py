"""The scheduler as a program sees it: define jobs, take part, do something to them, look.

scheduler = Scheduler("sqlite:///jobs.db", tz="Asia/Seoul")

@scheduler.cron("0 3 * * *", timeout="20m", retries=2)
def daily_aggregate(run: Run) -> None:
    aggregate(day=run.scheduled_for.date())

scheduler.run()
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import multiprocessing
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Self

from tenure.core.cluster import Cadence
from tenure.core.policy import named
from tenure.errors import ConfigurationError, TenureError
from tenure.events import RunEvent
from tenure.jobs.client import Client
from tenure.jobs.decorators import Definitions
from tenure.jobs.listeners import Listener, Listeners
from tenure.scheduling import console
from tenure.scheduling.engine import Engine
from tenure.scheduling.health import Health
from tenure.scheduling.options import EngineOptions
from tenure.stores import Store
from tenure.triggers.zones import Zone
from tenure.util import async_bridge
from tenure.util.clock import boottime, walltime
from tenure.util.durations import Duration, positive, seconds
from tenure.util.fork_checks import refuse_before_fork
from tenure.util.instants import moment

logger = logging.getLogger("tenure")

SHOWN = 50
"""How many jobs `run` lists when it starts."""
LAST_EVENTS = 2.0
"""How long listeners may take for what was told before a stop."""


class Scheduler(Client):
    """Jobs of one application on one store. Constructing one opens nothing; `with`, `start()`, `run()` or the first use does."""

    def __init__(
        self,
        url: object = None,
        *,
        application: str = "default",
        tz: Zone = "UTC",
        capacity: int = 32,
        queues: Sequence[str] | None = None,
        release: int = 0,
        label: str | None = None,
        ttl: Duration = 30.0,
        heartbeat_every: Duration = 2.0,
        attempt_timeout: Duration = 2.0,
        drain: Duration = 30.0,
        keep_for: Duration = "7d",
        keep: int = 100,
        keep_keys: Duration = "90d",
        host_evidence: bool = True,
        session_evidence: bool = True,
        schema: str = "tenure",
        migrate: bool = True,
    ) -> None:
        definitions = Definitions(application, tz, _whole(release, "release"))
        super().__init__(url, definitions, label=label, schema=schema, migrate=migrate)
        self._options = EngineOptions(
            application=definitions.application,
            tz=definitions.tz,
            cadence=Cadence.of(ttl, heartbeat_every=heartbeat_every, attempt_timeout=attempt_timeout),
            capacity=_whole(capacity, "capacity"),
            queues=_queues(queues),
            release=definitions.release,
            label=label,
            keep_for=positive(keep_for, "keep_for"),
            keep=_whole(keep, "keep"),
            keep_keys=positive(keep_keys, "keep_keys"),
            host_evidence=host_evidence,
            session_evidence=session_evidence,
            schema=schema,
        )
        self._drain = _not_negative(drain, "drain")
        self._listeners = Listeners()
        self._stages: list[console.SignalWaiter] = []
        self._ran = False
        self._mutex = threading.RLock()
        self._engine: Engine | None = None
        self._left_later: list[Engine] = []
        """Stopped while bodies went on."""
        self._inherited: list[Engine] = []
        _ALL.add(self)

    def __repr__(self) -> str:
        where = "no store yet" if self._store is None else self._store.shown
        return f"<Scheduler {self.application!r} on {where}, {'started' if self.started else 'not started'}>"

    @property
    def started(self) -> bool:
        """Taking part, in this very process."""
        engine = self._engine
        return engine is not None and engine.started

    # Taking part

    def start(self) -> None:
        """Bring the jobs to the ledger and take part. Raises what is wrong; from then on failures heal by themselves."""
        self.start_on(None)

    async def start_here(self) -> None:
        """`start`, with coroutine jobs on this loop. If it is cancelled, the start is undone before the cancellation goes on."""
        loop, started = asyncio.get_running_loop(), False

        def begin() -> None:
            nonlocal started
            started = self.start_on(loop)

        def undo() -> None:
            if started:
                self.stop()

        await async_bridge.enter(begin, undo)

    async def stop_here(self, drain: Duration | None = None) -> bool:
        """`stop`. If it is cancelled, it goes on by itself, but waits no longer for what runs: the exit of the process waits for it."""
        try:
            return await async_bridge.on_thread(functools.partial(self.stop, drain))
        except asyncio.CancelledError:
            self.stop_now()
            raise

    def start_on(self, loop: asyncio.AbstractEventLoop | None) -> bool:
        """`start`, with the loop that runs coroutine jobs; None: one of our own. True if this very call started it."""
        if _turned_off():
            logger.warning(
                "scheduler %r is not started: TENURE_OFF is set", self.application, extra={"action": "turned_off"}
            )
            return False
        if _only_imported():
            return False
        refuse_before_fork("the scheduler")
        with self._mutex:
            if self._engine is not None and self.started:
                if loop is not None:
                    self._engine.use(loop)
                return False
            with self.ledger() as ledger:
                changes = self._definitions.changes(ledger.now())
            self.close()  # the node has connections of its own
            engine = Engine(self.store, self._definitions.registry, self._options, self._listeners)
            engine.start(changes, loop)
            self._engine = engine
            return True

    def stop(self, drain: Duration | None = None) -> bool:
        """Claim no more, wait for what runs, and leave. True if everything had ended in time.

        Waits for a `start()` that is under way on another thread, and undoes it. A thread that does not return keeps this node beating
        until it does, or until the process ends: no other attempt of its run begins meanwhile. `health().waits_for` names it,
        `stop(drain=…)` waits for it again, `start()` takes another node.
        """
        asked = None if drain is None else _not_negative(drain, "drain")
        ends_at = boottime() + (asked or 0.0)
        with self._mutex:
            engine, earlier = self._engine, list(self._left_later)
        drained = True
        if engine is not None:
            drained = engine.stop(self._drain if asked is None else asked)
            self._listeners.stop(LAST_EVENTS)
            with self._mutex:  # two threads may stop it
                self._left_later = [*dict.fromkeys((*self._left_later, engine))]
                if self._engine is engine:
                    self._engine = None
        left = [one.has_left(max(ends_at - boottime(), 0.0)) for one in earlier]
        with self._mutex:
            self._left_later = [one for one in self._left_later if not one.has_left(0.0)]
        if engine is not None:
            for stage in list(self._stages):
                stage.wake()
        self.close()
        return drained and all(left)

    def stop_now(self) -> None:
        """While `stop` waits, from another thread: wait no longer for what runs."""
        engine = self._engine
        if engine is not None:
            engine.stop_now()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        """Start, and run coroutine jobs on this loop."""
        await self.start_here()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop_here()

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncIterator[None]:
        """For ASGI: `FastAPI(lifespan=scheduler.lifespan)`, or `async with scheduler.lifespan(app):` inside one's own."""
        del app
        async with self:
            yield

    def run(self, *, lines: bool | None = None) -> None:
        """Start, and block until SIGTERM, SIGINT, SIGHUP or `stop()`. A second signal tells what runs to end. On a terminal it says what it does."""
        with self.staged(lines) as (stage, say):
            self.start()
            try:
                self.greet(say)
                console.serve(self, stage, say)
            except BaseException:
                self.stop()
                raise

    @contextmanager
    def staged(
        self, lines: bool | None, nudge: Callable[[], object] | None = None
    ) -> Iterator[tuple[console.SignalWaiter, Callable[[str], None]]]:
        """In the foreground: signals wake the stage, and what happens is said if there is a terminal, or `lines` says so."""
        talks = console.terminal() if lines is None else lines

        def tell(event: RunEvent) -> None:
            console.say(console.line(event, walltime()))

        stage = console.SignalWaiter(nudge)
        self._stages.append(stage)
        if talks:
            self._listeners.on(RunEvent)(tell)
        try:
            with stage.catching():
                yield stage, console.say if talks else _nothing
        finally:
            self._ran = True
            self._stages.remove(stage)
            self._listeners.off(tell)
            stage.close()

    def greet(self, say: Callable[[str], None]) -> None:
        """Say which store, which node, which jobs."""
        if not self.started or say is _nothing:
            return
        try:
            lines = self._headline()
        except (TenureError, OSError) as error:  # the runs go on, or will
            lines = [f"tenure: the jobs of {self.application!r} cannot be listed now: {error}"]
        for text in lines:
            say(text)

    @property
    def ran(self) -> bool:
        """Whether `run()` was called and has returned."""
        return self._ran

    def on(self, *kinds: type[RunEvent]) -> Callable[[Listener], Listener]:
        """Call a function for `RunFailed`, `RunLost` …, on a thread of its own; `RunEvent` means all. An exception there harms nothing."""
        register = self._listeners.on(*kinds)

        def take(listener: Listener) -> Listener:
            if inspect.iscoroutinefunction(listener):
                raise ConfigurationError(
                    f"on(): {listener.__qualname__} is a coroutine function, which has no loop here. Write a function, or use AsyncScheduler.on."
                )
            return register(listener)

        return take

    def health(self) -> Health:
        """How this node is; asks nobody."""
        engine = self._engine or Engine(self.store, self._definitions.registry, self._options, self._listeners)
        return replace(engine.health(), waits_for=self._waits_for())

    def _waits_for(self) -> tuple[str, ...]:
        """The runs that keep nodes of this scheduler after a stop."""
        return tuple(run for engine in self._left_later for run in engine.waits_for)

    # For tests and for tools

    @property
    def options(self) -> EngineOptions:
        """What was decided when this was made."""
        return self._options

    @property
    def listeners(self) -> Listeners:
        """Who hears of runs."""
        return self._listeners

    def use(self, store: Store | None, answer: Callable[[], None] | None = None) -> None:
        """Another store from now on; None: that of the URL again."""
        if self.started:
            raise ConfigurationError("use(): the scheduler is started. Stop it first.")
        super().use(store, answer)

    def poke(self) -> None:
        """Something was asked for or changed: look at once, if this node takes part."""
        engine = self._engine
        if engine is not None:
            engine.poke()

    def forked(self) -> None:
        """In a forked child: not started. What the parent has in hand is kept, so that nothing says goodbye to its server."""
        self._mutex = threading.RLock()
        self._inherited += [*self._left_later, *([self._engine] if self._engine is not None else [])]
        self._engine, self._left_later = None, []
        self._stages = []

    def _headline(self) -> list[str]:
        with self.ledger() as ledger:
            names = sorted(job.name for job in self.definitions.jobs)
            jobs, now = self._lookup.those(ledger, names[:SHOWN]), moment(ledger.now())
        lines = console.headline(self.store.shown, self.application, self.label, jobs, now)
        return lines if len(names) <= SHOWN else [*lines, f"  and {len(names) - SHOWN} more: `tenure jobs` lists all"]


def _turned_off() -> bool:
    return os.environ.get("TENURE_OFF", "").strip().lower() not in {"", "0", "false", "no", "off"}


def _only_imported() -> bool:
    """A child of a job with `process=True` imports the main module for its functions, and comes by `scheduler.run()`."""
    return bool(getattr(multiprocessing.current_process(), "_inheriting", False))


def _nothing(_text: str) -> None:
    pass


def _whole(value: object, what: str) -> int:
    if type(value) is not int or value < 0:
        raise ConfigurationError(f"{what}: {value!r} must be a whole number, 0 or more.")
    return value


def _not_negative(value: Duration, what: str) -> float:
    result = seconds(value, what)
    if result < 0:
        raise ConfigurationError(f"{what}: {value!r} is less than zero. Write how long to wait, or 0.")
    return result


def _queues(given: object) -> tuple[str, ...] | None:
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigurationError(f"queues: {given!r} is no list of names. Write queues=['reports'], or None for all.")
    return tuple(named(queue, "queues") for queue in given)


_ALL: weakref.WeakSet[Scheduler] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for scheduler in list(_ALL):
        scheduler.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
