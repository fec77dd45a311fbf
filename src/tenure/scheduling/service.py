"""The service behind a scheduler: its engine, its listeners and its terminal. Not public.

`AsyncScheduler`, `tenure.testing`, the command line and the integrations get it from `tenure.scheduler.service_of`.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import multiprocessing
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from tenure.alerts.options import AlertOptions
from tenure.errors import ConfigurationError, TenureError
from tenure.events import RunEvent
from tenure.jobs.client import JobClient
from tenure.jobs.decorators import Definitions
from tenure.jobs.importing import is_only_looked_at
from tenure.jobs.listeners import Listeners
from tenure.scheduling import console
from tenure.scheduling.engine import Engine
from tenure.scheduling.engine_options import EngineOptions
from tenure.scheduling.health import Health
from tenure.stores import Store
from tenure.util import async_bridge, log_fallback
from tenure.util.clock import boottime, walltime
from tenure.util.durations import Duration, seconds
from tenure.util.fork import ForkOrder, in_child
from tenure.util.fork_checks import refuse_before_fork
from tenure.util.instants import moment

logger = logging.getLogger("tenure")

SHOWN = 50
"""How many jobs `run` lists when it starts."""
LAST_EVENTS = 2.0
"""How long listeners may take, at a stop, for the events so far."""


class SchedulerService(JobClient):
    """The jobs of one application on one store, and the part that this process takes in them."""

    def __init__(
        self, url: object, definitions: Definitions, options: EngineOptions, *, drain: Duration, migrate: bool
    ) -> None:
        super().__init__(url, definitions, label=options.label, schema=options.schema, migrate=migrate)
        self.options = options
        self.listeners = Listeners()
        self.ran = False
        """`run()` was called and has returned."""
        self._drain = _not_negative(drain, "drain")
        self._stages: list[console.SignalWaiter] = []
        self._mutex = threading.RLock()
        self._engine: Engine | None = None
        self._left_later: list[Engine] = []
        """Engines that were stopped while bodies went on."""
        self._inherited: list[Engine] = []
        _ALL.add(self)

    @property
    def started(self) -> bool:
        """True if this process takes part."""
        engine = self._engine
        return engine is not None and engine.started

    def start(self, loop: asyncio.AbstractEventLoop | None) -> bool:
        """Write the jobs to the ledger and take part. True if this call started it.

        `loop` runs coroutine jobs; None means a loop that tenure starts.
        """
        if _turned_off():
            logger.warning(
                "scheduler %r is not started: TENURE_OFF is set", self.application, extra={"action": "turned_off"}
            )
            return False
        if _only_imported() or is_only_looked_at():
            return False
        refuse_before_fork("the scheduler")
        log_fallback.install()
        with self._mutex:
            if self._engine is not None and self.started:
                if loop is not None:
                    self._engine.use(loop)
                return False
            with self.ledger() as ledger:
                changes = self.definitions.changes(ledger.now())
            self.close()  # the node has connections of its own
            engine = Engine(self.store, self.definitions.registry, self.options, self.listeners)
            engine.start(changes, loop)
            self._engine = engine
            return True

    async def start_here(self) -> None:
        """`start`, with coroutine jobs on this loop. A cancelled start is undone before the cancellation goes on."""
        loop, started = asyncio.get_running_loop(), False

        def begin() -> None:
            nonlocal started
            started = self.start(loop)

        def undo() -> None:
            if started:
                self.stop()

        await async_bridge.enter(begin, undo)

    async def stop_here(self, drain: Duration | None = None) -> bool:
        """`stop`. If this is cancelled, the stop goes on by itself, but no longer waits for running bodies."""
        try:
            return await async_bridge.on_thread(functools.partial(self.stop, drain))
        except asyncio.CancelledError:
            self.stop_now()
            raise

    def stop(self, drain: Duration | None = None) -> bool:
        """See `Scheduler.stop`."""
        asked = None if drain is None else _not_negative(drain, "drain")
        ends_at = boottime() + (asked or 0.0)
        with self._mutex:
            engine, earlier = self._engine, list(self._left_later)
        drained = True
        if engine is not None:
            drained = engine.stop(self._drain if asked is None else asked)
            self.listeners.stop(LAST_EVENTS)
            engine.last_check_ins()
            with self._mutex:  # two threads may stop it
                self._left_later = [*dict.fromkeys((*self._left_later, engine))]
                if self._engine is engine:
                    self._engine = None
        left = [one.has_left(max(ends_at - boottime(), 0.0)) for one in earlier]
        with self._mutex:
            self._left_later = [one for one in self._left_later if not one.has_left(0.0)]
        if engine is not None:
            logger.info("scheduler %r stopped", self.application, extra={"action": "scheduler_stopped"})
            for stage in list(self._stages):
                stage.wake()
        self.close()
        return drained and all(left)

    def stop_now(self) -> None:
        """Called from another thread while `stop` waits: wait no longer for running bodies."""
        engine = self._engine
        if engine is not None:
            engine.stop_now()

    def health(self) -> Health:
        """The state of this node, without asking the database."""
        engine = self._engine or Engine(self.store, self.definitions.registry, self.options, self.listeners)
        health = replace(engine.health(), waits_for=self._waits_for())
        return replace(health, takes_part=False) if _turned_off() else health

    @contextmanager
    def staged(
        self, lines: bool | None, nudge: Callable[[], object] | None = None
    ) -> Iterator[tuple[console.SignalWaiter, Callable[[str], None]]]:
        """In the foreground: signals wake the stage, and what happens is printed to a terminal, or written to the log.

        `lines`: print it without a terminal, too; False: say nothing.
        """
        prints = console.terminal() if lines is None else lines
        logs = not prints and lines is None
        say = console.say if prints else console.to_log if logs else _nothing

        def tell(event: RunEvent) -> None:
            if logs:
                console.event_to_log(event)
            else:
                console.say(console.line(event, walltime()))

        stage = console.SignalWaiter(nudge)
        self._stages.append(stage)
        if prints or logs:
            self.listeners.on(RunEvent)(tell)
        try:
            with stage.catching(), log_fallback.verbose() if logs else nullcontext():
                yield stage, say
        finally:
            self.ran = True
            self._stages.remove(stage)
            self.listeners.off(tell)
            stage.close()

    def greet(self, say: Callable[[str], None]) -> None:
        """Print the store, the node and the jobs."""
        if not self.started or say is _nothing:
            return
        try:
            lines = self._headline(in_log=say is console.to_log)
        except (TenureError, OSError) as error:  # the runs go on, or will
            lines = [f"tenure: the jobs of {self.application!r} cannot be listed now: {error}"]
        for text in lines:
            say(text)

    def alert_to(self, told: AlertOptions) -> None:
        """See `Scheduler.alert_to`."""
        if self.started:
            raise ConfigurationError("alert_to(): the scheduler is started. Call it before start() or run().")
        if self.options.alerts != AlertOptions():
            raise ConfigurationError("alert_to() was called already. Give all sinks in one call.")
        self.options = replace(self.options, alerts=told)

    def use(self, store: Store | None, answer: Callable[[], None] | None = None) -> None:
        """Use another store from now on; None means that of the URL again."""
        if self.started:
            raise ConfigurationError("use(): the scheduler is started. Stop it first.")
        super().use(store, answer)

    def poke(self) -> None:
        """A run was requested, or a job has changed: look at once, if this node takes part."""
        engine = self._engine
        if engine is not None:
            engine.poke()

    def forked(self) -> None:
        """In a forked child: not started. Keep the parent's engines: closing them would end its sessions."""
        self._mutex = threading.RLock()
        self._inherited += [*self._left_later, *([self._engine] if self._engine is not None else [])]
        self._engine, self._left_later = None, []
        for engine in self._inherited:
            engine.forked()
        self._stages = []

    def _headline(self, *, in_log: bool) -> list[str]:
        with self.ledger() as ledger:
            names = sorted(job.name for job in self.definitions.jobs)
            jobs, now = self.lookup.those(ledger, names[:SHOWN]), moment(ledger.now())
        if in_log:  # where the start has its own line
            lines = console.outlooks(jobs, now)
        else:
            lines = console.headline(self.store.shown, self.application, self.label, jobs, now)
        return lines if len(names) <= SHOWN else [*lines, f"  and {len(names) - SHOWN} more: `tenure jobs` lists all"]

    def _waits_for(self) -> tuple[str, ...]:
        """The runs that keep nodes of this scheduler alive after a stop."""
        return tuple(run for engine in self._left_later for run in engine.waits_for)


def _turned_off() -> bool:
    return os.environ.get("TENURE_OFF", "").strip().lower() not in {"", "0", "false", "no", "off"}


def _only_imported() -> bool:
    """True in the child of a job with `process=True`, which imports the main module and so meets `scheduler.run()`."""
    return bool(getattr(multiprocessing.current_process(), "_inheriting", False))


def _nothing(_text: str) -> None:
    pass


def _not_negative(value: Duration, what: str) -> float:
    result = seconds(value, what)
    if result < 0:
        raise ConfigurationError(f"{what}: {value!r} is less than zero. Write how long to wait, or 0.")
    return result


_ALL: weakref.WeakSet[SchedulerService] = weakref.WeakSet()


@in_child(ForkOrder.SCHEDULERS)
def _after_fork_in_child() -> None:
    for service in list(_ALL):
        service.forked()
