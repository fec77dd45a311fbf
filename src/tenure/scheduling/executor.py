"""The runner: calls the bodies of runs, on threads of its own, on an event loop or in processes, and says how they ended.

Threads are made as they are needed, up to the capacity, and never hold up the exit of the process. Coroutines are handed to the loop
in one call for all. A coroutine that is out of time is cancelled, a process killed; a thread is asked, keeps its slot, and is shown as overdue.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import threading
import traceback
from collections.abc import Callable, Iterable
from queue import SimpleQueue

from tenure.core.planning import retry_in
from tenure.core.records import STOPPED, Ending, Instant, RunId, RunState
from tenure.errors import ConfigurationError, UnreadableArguments
from tenure.run import CURRENT
from tenure.scheduling.attempt import Attempt, AttemptPhase
from tenure.scheduling.processes import Processes, ProcessFailed
from tenure.scheduling.timeouts import TimeoutThread
from tenure.util.clock import boottime
from tenure.util.plurals import counted
from tenure.util.vital_thread import VitalThread, dead

logger = logging.getLogger("tenure")

AHEAD, MAX_AHEAD = 0.02, 500
"""What will end within so many seconds, as bodies went of late, is claimed ahead of free slots, up to so many."""
SHORTAGE = 1.0
"""After the system has refused a thread, nothing is claimed for so many seconds."""
_WEIGHT, _INSTANT = 0.05, 0.000_01
MAX_ERROR = 8000
SHOWN = 10
"""How many runs a line of the log names."""


class Executor:
    """Attempts in hand. `take`, `ask_to_end`, `lose`, `withhold` and `stale` are called by the conductor, `acknowledged` by the completer."""

    def __init__(
        self,
        capacity: int,
        *,
        label: str,
        trusted: Callable[[Attempt], bool],
        ledger_time: Callable[[float], Instant],
        chance: Callable[[], float],
        ended: Callable[[Attempt, Ending], None],
        freed: Callable[[], None],
        lock_fileno: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.capacity, self._label = capacity, label
        self._trusted, self._ledger_time, self._chance = trusted, ledger_time, chance
        self._ended, self._freed = ended, freed
        self._mutex = threading.Lock()
        self._in_hand: dict[RunId, Attempt] = {}
        self._busy = 0
        self._hungry_below = 0
        self._hurried = False
        self.stopping = False
        """Its node stops: a coroutine that the event loop cancels is left to another node."""
        self._short_until = 0.0
        self._body_takes = math.inf
        self._queue: SimpleQueue[Attempt | None] = SimpleQueue()
        self._threads = 0
        self._in_threads = 0
        self._loops = Loops(label, self._begin, self._judge, self._end, self._refused)
        self._processes = Processes(lock_fileno)
        self._alarm = TimeoutThread(label, self._ring)
        self._changed = threading.Condition(self._mutex)
        """A body has ended, or something left the hand, after …"""
        self._waited_for = False
        """… a stop began to wait for that."""

    # From the conductor

    def room(self) -> int:
        """How many runs to claim now: the free slots, and what will be free in a moment."""
        with self._mutex:
            return self._room()

    def _room(self) -> int:
        if self._short_until and boottime() < self._short_until:
            return 0
        ahead = int(min(self.capacity * AHEAD / self._body_takes, MAX_AHEAD))
        enough = self.capacity + ahead // 2
        if self._busy >= enough:
            self._hungry_below = enough
            return 0
        return self.capacity + ahead - self._busy

    @property
    def in_hand(self) -> dict[RunId, Attempt]:
        """A copy: what this node has, and has not been told to be rid of."""
        with self._mutex:
            return dict(self._in_hand)

    @property
    def busy(self) -> int:
        """Attempts whose bodies have not ended."""
        return self._busy

    @property
    def running(self) -> tuple[Attempt, ...]:
        """Attempts in hand whose bodies were called and have not returned."""
        return tuple(attempt for attempt in self.in_hand.values() if attempt.phase is AttemptPhase.RUNNING)

    @property
    def dead_threads(self) -> tuple[str, ...]:
        """The names of the threads for timeouts and for coroutines, if they died."""
        return dead(self._alarm.thread, self._loops.thread)

    def use(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Run coroutines on this loop; None: on one of our own."""
        self._loops.use(loop)
        self.end_abandoned()

    def no_loop(self) -> str:
        """Why coroutines cannot run here now; '' if they can."""
        return self._loops.problem()

    def end_abandoned(self) -> None:
        """A coroutine whose loop was closed half-way never goes on: it ends as one that a stop has interrupted."""
        abandoned = self._loops.abandoned()
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
            attempt.run.tell("its event loop was closed")
            self._end(attempt, self._judge(attempt, asyncio.CancelledError()))

    def take(self, attempts: Iterable[Attempt]) -> int:
        """Begin these as soon as there is a slot. Returns how many more there is room for."""
        threads: list[Attempt] = []
        coroutines: list[Attempt] = []
        for attempt in attempts:
            (coroutines if attempt.function.is_coroutine else threads).append(attempt)
        with self._mutex:
            for attempt in (*threads, *coroutines):
                self._in_hand[attempt.id] = attempt
            self._busy += len(threads) + len(coroutines)
            self._in_threads += len(threads)
            missing = min(self.capacity, self._in_threads) - self._threads
            self._threads += max(missing, 0)
            room = self._room()
        for attempt in threads:
            self._queue.put(attempt)
        self._hire(missing)
        if coroutines:
            self._loops.begin(coroutines)
        return room

    def _hire(self, missing: int) -> None:
        """Start the worker threads that were counted. If the system refuses and there is no other, nothing waits for one."""
        for started in range(missing):
            try:
                threading.Thread(target=self._work, name=f"tenure worker {self._label}", daemon=True).start()
            except RuntimeError as error:
                with self._mutex:
                    self._threads -= missing - started
                    alone = self._threads == 0
                    back = [a for a in self._in_hand.values() if alone and not a.function.is_coroutine]
                self._refused(error, back)
                return

    def _refused(self, error: RuntimeError, back: Iterable[Attempt]) -> None:
        """There is no thread to be had, or no loop: give these back unbegun, and claim nothing for a while."""
        self._short_until = boottime() + SHORTAGE
        logger.error(
            "this node cannot begin %s and gives back what it has claimed: %s",
            counted(self._put_back(back), "run"),
            error,
            extra={"action": "cannot_begin"},
        )

    def ask_to_end(self, run: RunId, token: str, why: str) -> None:
        """Somebody wants this attempt to end."""
        with self._mutex:
            attempt = self._in_hand.get(run)
            if attempt is None or attempt.token != token or attempt.asked_to_end:
                return
            attempt.asked_to_end = why
        attempt.run.tell(why)
        self._cancel(attempt)

    def lose(self, attempts: Iterable[Attempt], why: str) -> None:
        """These do not count any more: tell them, and forget them."""
        for attempt in attempts:
            with self._mutex:
                if self._in_hand.get(attempt.id) is not attempt:
                    continue
                del self._in_hand[attempt.id]
                self._tell_who_waits()
            attempt.run.lose(why)
            self._cancel(attempt)
            logger.warning(
                "run %s of %r is lost to this node: %s",
                attempt.run.key,
                attempt.run.job,
                why,
                extra={"action": "run_lost"},
            )

    def give_back(self, older_than: float) -> None:
        """What has not begun for so long goes back to the ledger, for whoever has a free slot."""
        limit = boottime() - older_than
        with self._mutex:
            back = [attempt for attempt in self._in_hand.values() if attempt.queued_at <= limit]
        self._put_back(back)

    def _put_back(self, attempts: Iterable[Attempt]) -> int:
        """Give those back whose bodies were not called. Returns how many."""
        with self._mutex:
            back = [attempt for attempt in attempts if attempt.phase is AttemptPhase.QUEUED]
            for attempt in back:
                attempt.phase = AttemptPhase.ENDED
        for attempt in back:
            self._end(attempt, Ending(attempt.id, attempt.token, RunState.PENDING))
        return len(back)

    def withhold(self, held: Iterable[tuple[RunId, str]]) -> tuple[list[tuple[RunId, str, Instant]], bool]:
        """The jobs of these were paused or removed: give back what has not begun.

        Returns those whose bodies have been called, and whether others are about to be: ask about these again in a moment.
        """
        back: list[Attempt] = []
        begun: list[tuple[RunId, str, Instant]] = []
        about_to = False
        with self._mutex:
            for run, token in held:
                attempt = self._in_hand.get(run)
                if attempt is None or attempt.token != token or attempt.phase is AttemptPhase.ENDED:
                    continue  # how it ended is on its way to the ledger
                if attempt.phase is AttemptPhase.QUEUED:
                    attempt.phase = AttemptPhase.ENDED
                    back.append(attempt)
                elif attempt.called and attempt.started_at is not None:
                    begun.append((run, token, self._ledger_time(attempt.started_at)))
                else:
                    about_to = True
        for attempt in back:
            self._end(attempt, Ending(attempt.id, attempt.token, RunState.PENDING))
        return begun, about_to

    def drain(self, patience: float) -> bool:
        """Wait until nothing runs any more; False if that takes too long, or `hurry` was called."""
        self._wait(lambda: self._busy == 0 or self._hurried, patience)
        return self._busy == 0

    def hurry(self) -> None:
        """End `drain` now."""
        with self._changed:
            self._hurried = True
            self._changed.notify_all()

    def hear_last_words(self, patience: float) -> None:
        """Wait until nothing runs any more, hurry or not."""
        self._wait(lambda: self._busy == 0, patience)

    def told(self, patience: float) -> bool:
        """Wait until the ledger knows of everything that has ended; False if that takes too long."""
        return self._wait(lambda: all(a.phase is not AttemptPhase.ENDED for a in self._in_hand.values()), patience)

    def wait_until_idle(self) -> None:
        """Wait, however long it takes, until no body runs that is still ours."""
        self._wait(lambda: all(a.phase is not AttemptPhase.RUNNING for a in self._in_hand.values()), None)

    def _wait(self, until: Callable[[], bool], patience: float | None) -> bool:
        with self._changed:
            self._waited_for = True
            return self._changed.wait_for(until, patience)

    def _tell_who_waits(self) -> None:
        if self._waited_for:
            self._changed.notify_all()

    def tell_all(self, why: str) -> None:
        """Ask everything to end, and cancel coroutines."""
        for attempt in self.in_hand.values():
            attempt.run.tell(why)
            self._cancel(attempt)

    def overdue(self) -> tuple[Attempt, ...]:
        """Bodies that go on beyond their timeout."""
        now = boottime()
        return tuple(a for a in self.in_hand.values() if a.phase is AttemptPhase.RUNNING and a.overdue(now))

    def stop(self) -> None:
        """End the threads that wait; those in a body end with it, or with the process."""
        for _ in range(self._threads):
            self._queue.put(None)
        self._alarm.stop()
        self._processes.stop()
        self._loops.stop()

    # From the completer

    def acknowledged(self, attempt: Attempt) -> None:
        """The ledger has its ending."""
        with self._mutex:
            if self._in_hand.get(attempt.id) is attempt:
                del self._in_hand[attempt.id]
                self._tell_who_waits()

    # The bodies

    def _work(self) -> None:
        try:
            while (attempt := self._queue.get()) is not None:
                if self._begin(attempt):
                    self._end(attempt, self._judge(attempt, self._call(attempt)))
        finally:
            with self._mutex:
                self._threads -= 1

    def _call(self, attempt: Attempt) -> BaseException | None:
        """Call the body. Returns what it raised."""
        token = CURRENT.set(attempt.run)
        try:
            if attempt.function.in_process:
                self._processes.run(attempt, attempt.kwargs())
            else:
                attempt.called = True
                _refuse_coroutine(attempt.function.call(attempt.run, attempt.kwargs()))
        except BaseException as error:
            return error
        finally:
            CURRENT.reset(token)
        return None

    def _begin(self, attempt: Attempt) -> bool:
        """Decide, once, that the body is called: the lease holds, nobody took the attempt away, nobody asked it to end."""
        at, limit = boottime(), attempt.claimed.rules.timeout
        try:
            if attempt.function.in_process:
                self._processes.prepare()
            if limit is not None:
                self._alarm.set(at + limit, attempt)
        except RuntimeError as error:  # no body without its process, or the timeout that it was promised
            self._refused(error, [attempt])
            return False
        with self._mutex:
            mine = self._in_hand.get(attempt.id) is attempt and self._trusted(attempt) and not attempt.asked_to_end
            begins = mine and attempt.phase is AttemptPhase.QUEUED
            if begins:
                attempt.phase, attempt.started_at = AttemptPhase.RUNNING, at
        if not begins:
            # Without trust the answer may come too late; the ledger compares the token, and the roll call does the rest.
            self._put_back([attempt])
            return False
        attempt.run.begin(self._ledger_time(at))
        return True

    def _judge(self, attempt: Attempt, failure: BaseException | None) -> Ending:
        """What the body's return means. An attempt that was told to end has ended so, unless its own transaction completed it."""
        claimed, run = attempt.claimed, attempt.run
        began, ended = attempt.started_at or boottime(), boottime()
        state, error, again_in = RunState.SUCCEEDED, "", None
        if failure is not None:
            state, error = RunState.FAILED, _told(failure)
        if run.completed:
            if failure is None:
                state, error = RunState.FAILED, "the transaction of run.complete() was not committed"
        elif attempt.asked_to_end:
            state, error = RunState.CANCELLED, attempt.asked_to_end
        elif attempt.timed_out:
            state, error = RunState.FAILED, f"timed out after {claimed.rules.timeout:g} s"
        elif failure is not None and (run.cancelled or (self.stopping and isinstance(failure, asyncio.CancelledError))):
            # Also if the lease has lapsed, and the body raised AttemptLost for that. Whether there is another attempt is decided by `on_lost`.
            state, error = RunState.PENDING, STOPPED
        if state is RunState.FAILED:
            again_in = retry_in(claimed.rules, claimed.failures + 1, self._chance())
            state = RunState.FAILED if again_in is None else RunState.PENDING
        return Ending(
            attempt.id, attempt.token, state, error, again_in, self._ledger_time(began), self._ledger_time(ended)
        )

    def _end(self, attempt: Attempt, ending: Ending) -> None:
        with self._mutex:
            attempt.phase = AttemptPhase.ENDED
            self._busy -= 1
            self._in_threads -= not attempt.function.is_coroutine
            if attempt.started_at is not None:
                took = max(boottime() - attempt.started_at, _INSTANT)
                before = self._body_takes if math.isfinite(self._body_takes) else took
                self._body_takes = before + (took - before) * _WEIGHT
            poke = self._busy < self._hungry_below
            if poke:
                self._hungry_below = 0
            self._tell_who_waits()
            known = self._in_hand.get(attempt.id) is attempt
        if known:
            self._ended(attempt, ending)
        if poke:
            self._freed()

    def _cancel(self, attempt: Attempt) -> bool:
        """End what can be ended: a coroutine, a process. A thread can only be asked."""
        return self._loops.cancel(attempt) or self._processes.kill(attempt)

    def _ring(self, attempt: Attempt) -> None:
        """An attempt is out of time."""
        if attempt.phase is not AttemptPhase.RUNNING:
            return
        attempt.timed_out = True
        limit = attempt.claimed.rules.timeout
        attempt.run.tell(f"out of time after {limit:g} s")
        if not self._cancel(attempt):
            logger.warning(
                "run %s of %r is overdue: its thread was asked to end after %g s",
                attempt.run.key,
                attempt.run.job,
                limit,
                extra={"action": "run_overdue"},
            )


class Loops:
    """The event loop for coroutines: the application's, or one of our own on a thread that is made when the first comes."""

    def __init__(
        self,
        label: str,
        begin: Callable[[Attempt], bool],
        judge: Callable[[Attempt, BaseException | None], Ending],
        end: Callable[[Attempt, Ending], None],
        refused: Callable[[RuntimeError, Iterable[Attempt]], None],
    ) -> None:
        self._label, self._begin, self._judge, self._end, self._refused = label, begin, judge, end, refused
        self._given: asyncio.AbstractEventLoop | None = None
        self._own: asyncio.AbstractEventLoop | None = None
        self.thread: VitalThread | None = None
        """That of our own loop."""
        self._tasks: dict[asyncio.Task[None], Attempt] = {}

    def use(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Run on this loop."""
        self._given = loop

    def problem(self) -> str:
        """Why nothing can run on the application's loop; '' if it can."""
        if self._given is None or self._given.is_running():
            return ""
        return "is closed" if self._given.is_closed() else "does not run"

    def abandoned(self) -> list[Attempt]:
        """Coroutines that have begun on a loop that is closed now."""
        tasks = list(self._tasks.items())
        return [attempt for task, attempt in tasks if task.get_loop().is_closed() and not task.done()]

    def begin(self, attempts: list[Attempt]) -> None:
        """Start these, in one call to the loop."""
        try:
            self._loop().call_soon_threadsafe(self._start, attempts)
        except RuntimeError as error:  # no thread for a loop of our own; or that of the application was closed
            self._refused(error, attempts)

    def cancel(self, attempt: Attempt) -> bool:
        """Cancel a coroutine; False if it is none, or has not begun."""
        task = attempt.task
        if task is None or task.done():
            return False
        try:
            task.get_loop().call_soon_threadsafe(task.cancel)
        except RuntimeError:
            return False
        return True

    def stop(self) -> None:
        """End our own loop."""
        if self._own is not None:
            own, self._own = self._own, None
            own.call_soon_threadsafe(own.stop)

    def _loop(self) -> asyncio.AbstractEventLoop:
        if self._given is not None:
            return self._given
        if self._own is None:
            loop = asyncio.new_event_loop()
            thread = VitalThread(f"tenure loop {self._label}", lambda: self._serve(loop))
            try:
                thread.start()
            except RuntimeError:
                loop.close()
                raise
            self._own, self.thread = loop, thread
        return self._own

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            if self._own is loop:
                self._own = None  # the next coroutine has another one made
            loop.close()

    def _start(self, attempts: list[Attempt]) -> None:
        loop = asyncio.get_running_loop()
        for attempt in attempts:
            if self._begin(attempt):
                attempt.task = task = loop.create_task(self._run(attempt), name=f"tenure {attempt.run.job}")
                self._tasks[task] = attempt
                task.add_done_callback(self._tasks.pop)

    async def _run(self, attempt: Attempt) -> None:
        CURRENT.set(attempt.run)  # of this task alone
        failure: BaseException | None = None
        try:
            attempt.called = True
            await attempt.function.call(attempt.run, attempt.kwargs())
        except BaseException as error:
            failure = error
        if attempt.phase is not AttemptPhase.RUNNING:
            return  # it was abandoned, and is thrown away now
        self._end(attempt, self._judge(attempt, failure))
        if self._given is not None and isinstance(failure, (KeyboardInterrupt, SystemExit)):
            raise failure  # asyncio's rule, for a loop of the application; ours goes on


def _refuse_coroutine(result: object) -> None:
    """Nobody would await it, and the run would count as done."""
    if inspect.iscoroutine(result):
        result.close()
        raise ConfigurationError(
            "the function returned a coroutine that nobody awaits. Put the decorator on the async function itself."
        )


def _told(failure: BaseException) -> str:
    """What the ledger keeps of an exception: its end, where the message is. Printing it runs code of the application's, which may raise."""
    if isinstance(failure, UnreadableArguments):
        return f"cannot be read: {failure}"
    in_process = isinstance(failure, ProcessFailed)
    try:
        text = str(failure) if in_process else "".join(traceback.format_exception(failure)).rstrip()
    except BaseException as error:
        text = f"{type(failure).__name__} (its text cannot be shown: {type(error).__name__} while it was printed)"
    text = text.encode("utf-8", "backslashreplace").decode()  # half a character can be neither stored nor printed
    return text if len(text) <= MAX_ERROR else "…" + text[-MAX_ERROR:]
