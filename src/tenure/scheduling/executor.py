"""Calls the bodies of runs on threads of its own, on an event loop or in processes, and says how they ended.

Threads start as they are needed, up to the capacity, and never hold up the exit of the process. Coroutines are
handed to the event loop in one call for all. When an attempt is out of time, a coroutine is cancelled and a process
killed. A thread is asked to end, keeps its slot, and is shown as overdue.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Sequence
from queue import SimpleQueue
from types import TracebackType

from tenure.core.database_clock import DatabaseClock
from tenure.errors import ConfigurationError
from tenure.run import CURRENT
from tenure.scheduling import hangs
from tenure.scheduling.attempt import OUT_OF_TIME, Attempt, AttemptPhase
from tenure.scheduling.base_executor import BaseExecutor
from tenure.scheduling.context import EndingQueue, LoopSignals, NodeHandle
from tenure.scheduling.event_loop import CoroutineLoop
from tenure.scheduling.processes import Processes
from tenure.scheduling.timeouts import TimeoutThread
from tenure.util.clock import boottime
from tenure.util.durations import readable
from tenure.util.plurals import counted
from tenure.util.printable import printable
from tenure.util.vital_thread import dead

logger = logging.getLogger("tenure")

SHOWN = 10
"""How many runs a line of the log names."""


class Executor(BaseExecutor):
    """Starts no thread before the first attempt needs one."""

    def __init__(
        self, node: NodeHandle, clock: DatabaseClock, capacity: int, endings: EndingQueue, signals: LoopSignals
    ) -> None:
        super().__init__(node, clock, capacity, endings.put, signals.free)
        self._queue: SimpleQueue[Attempt | None] = SimpleQueue()
        self._threads = 0
        self._loop = CoroutineLoop(node.label, self, self._begin)
        self._processes = Processes(lambda: node.lock_fileno, self.refuse_result)
        self._timeouts = TimeoutThread(node.label, self._time_out)

    @property
    def dead_threads(self) -> tuple[str, ...]:
        """The names of the threads for timeouts and for coroutines, if they died."""
        return dead(self._timeouts.thread, self._loop.thread)

    def use(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Run coroutines on this loop; None: on one of our own."""
        self._loop.use(loop)
        self.end_abandoned()

    def no_loop(self) -> str:
        """Why coroutines cannot run here now; '' if they can."""
        return self._loop.problem()

    def end_abandoned(self) -> None:
        """End coroutines whose loop was closed half-way, as if a stop had interrupted them: they never go on."""
        abandoned = self._loop.abandoned()
        if not abandoned:
            return
        with self._mutex:
            ended = [attempt for attempt in abandoned if attempt.phase is AttemptPhase.RUNNING]
            for attempt in ended:
                attempt.phase = AttemptPhase.ENDED
        if ended:
            logger.error(
                "an event loop was closed while coroutines of %s went on (%s): they are interrupted",
                counted(len(ended), "run"),
                ", ".join(f"{attempt.run.job} {attempt.run.key}" for attempt in ended[:SHOWN]),
                extra={"action": "loop_closed"},
            )
        for attempt in ended:
            attempt.control.tell("its event loop was closed")
            self.end(attempt, self.judge(attempt, asyncio.CancelledError()))

    def take(self, attempts: Sequence[Attempt]) -> int:
        """Begin these as soon as there is a slot. Returns how many more there is room for."""
        threads: list[Attempt] = []
        coroutines: list[Attempt] = []
        for attempt in attempts:
            (coroutines if attempt.function.is_coroutine else threads).append(attempt)
        self.accept((*threads, *coroutines))
        with self._mutex:
            missing = min(self.capacity, self._in_threads) - self._threads
            self._threads += max(missing, 0)
            room = self._room()
        for attempt in threads:
            self._queue.put(attempt)
        self._hire(missing)
        if coroutines:
            self._loop.begin(coroutines)
        return room

    def _hire(self, missing: int) -> None:
        """Start the worker threads that were counted. If the system refuses the only one, give its runs back."""
        for started in range(missing):
            try:
                threading.Thread(target=self._work, name=f"tenure worker {self._node.label}", daemon=True).start()
            except RuntimeError as error:
                with self._mutex:
                    self._threads -= missing - started
                    alone = self._threads == 0
                    back = [a for a in self._in_hand.values() if alone and not a.function.is_coroutine]
                self.refuse(error, back)
                return

    def stop(self) -> None:
        """End the threads that wait; those in a body end with it, or with the process."""
        for _ in range(self._threads):
            self._queue.put(None)
        self._timeouts.stop()
        self._processes.stop()
        self._loop.stop()

    def cancel(self, attempt: Attempt) -> bool:
        """End what can be ended from outside: a coroutine, a process."""
        return self._loop.cancel(attempt) or self._processes.kill(attempt)

    # The bodies

    def _work(self) -> None:
        try:
            while (attempt := self._queue.get()) is not None:
                if self._begin(attempt):
                    self.end(attempt, self.judge(attempt, self._call(attempt)))
        finally:
            with self._mutex:
                self._threads -= 1

    def _begin(self, attempt: Attempt) -> bool:
        """Whether to call the body. It is not called without its process, or without its timeout."""
        at, limit = boottime(), attempt.claimed.rules.timeout
        try:
            if attempt.function.in_process:
                self._processes.prepare()
            if limit is not None:
                self._timeouts.set(at + limit, attempt)
        except RuntimeError as error:
            self.refuse(error, [attempt])
            return False
        return self.begin(attempt, at)

    def _call(self, attempt: Attempt) -> BaseException | None:
        """Call the body. Returns what it raised."""
        token = CURRENT.set(attempt.run)
        try:
            if attempt.function.in_process:
                self._processes.run(attempt, attempt.kwargs())
            else:
                attempt.called, attempt.thread = True, hangs.this_thread()
                result = attempt.function.call(attempt.run, attempt.kwargs())
                _refuse_coroutine(result)
                self.keep_result(attempt, result)
        except BaseException as error:
            return error
        finally:
            CURRENT.reset(token)
        return None

    def _time_out(self, attempt: Attempt) -> None:
        if attempt.phase is not AttemptPhase.RUNNING:
            return
        attempt.hang = trace = self._where(attempt)
        attempt.timed_out = True
        limit = attempt.claimed.rules.timeout or 0.0
        attempt.control.tell(f"{OUT_OF_TIME} after {limit:g} s")
        if not self.cancel(attempt):
            logger.warning(
                "run %d of %r (%s, attempt %d) is overdue: its thread was asked to end after %s",
                attempt.id,
                attempt.run.job,
                printable(attempt.run.key),
                attempt.run.attempt,
                readable(limit),
                exc_info=hangs.told(limit, trace)[1],
                extra=attempt.named("run_overdue", self._node.label, limit),
            )

    def _where(self, attempt: Attempt) -> TracebackType | None:
        """Where the body is. A process says that itself, once it is dead."""
        if attempt.task is not None:
            return hangs.of_task(attempt.task)
        if attempt.function.in_process or attempt.thread is None:
            return None
        return hangs.of_thread(attempt.thread)


def _refuse_coroutine(result: object) -> None:
    """Nothing awaits it, and the run would count as done."""
    if inspect.iscoroutine(result):
        result.close()
        raise ConfigurationError(
            "the function returned a coroutine that nothing awaits. Put the decorator on the async function itself."
        )
