"""Connects threads and event loops: blocking calls for coroutines, and coroutine listeners for threads."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar, cast

from tenure.util.plurals import several

T = TypeVar("T")

logger = logging.getLogger("tenure")

LOOK_EVERY = 0.1
"""How often a thread that waits for a coroutine checks whether the loop still runs."""
MAX_WAITING = 1000
"""How many calls may wait for a loop that does not run; further ones are dropped."""


async def enter(begin: Callable[[], T], undo: Callable[[], object]) -> T:
    """Call `begin` on a thread. If this coroutine is cancelled meanwhile, let `begin` end and undo it before the
    cancellation goes on."""
    beginning = on_thread(begin)
    try:
        return await asyncio.shield(beginning)
    except asyncio.CancelledError:
        await settled(beginning)
        if beginning.exception() is None:
            await undone(undo, "what a cancelled coroutine had begun could not be undone")
        raise


async def undone(undo: Callable[[], object], otherwise: str) -> None:
    """Call `undo` on a thread and wait for its end. Logs a failure: the caller has another exception to pass on."""
    undoing = on_thread(undo)
    await settled(undoing)
    if (failure := undoing.exception()) is not None:
        logger.error("%s", otherwise, exc_info=failure, extra={"action": "not_undone"})


def on_thread(function: Callable[[], T]) -> asyncio.Future[T]:
    """Call a function on a thread of its own: bodies, for which a stop waits, may occupy all threads of
    `asyncio.to_thread`.

    It is not a task: `asyncio.run` cancels all tasks at its end, and the thread would go on unseen. The exit of the
    process waits for it.
    """
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    outcome: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, failure: BaseException | None) -> None:
        if outcome.cancelled():
            _tell_unheard(failure)
        elif failure is not None:
            outcome.set_exception(failure)
        else:
            outcome.set_result(cast("T", result))

    def call() -> None:
        result, failure = None, None
        try:
            result = context.run(function)
        except BaseException as error:
            failure = error
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:  # the loop was closed meanwhile
            _tell_unheard(failure)

    try:
        threading.Thread(target=call, name="tenure for a coroutine", daemon=False).start()
    except RuntimeError as error:  # the system refuses a thread
        outcome.set_exception(error)
    return outcome


def _tell_unheard(failure: BaseException | None) -> None:
    """Log a failure whose calling coroutine was cancelled."""
    if failure is not None:
        logger.error(
            "what a cancelled coroutine had begun failed", exc_info=failure, extra={"action": "failed_unheard"}
        )


async def settled(future: asyncio.Future[Any]) -> None:
    """Wait until it is done, even if this is cancelled meanwhile: the caller has a cancellation to pass on."""
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            continue


def without_loop(problem: str, coroutines: Sequence[str]) -> str:
    """The message for coroutine jobs that cannot run."""
    return (
        f"the event loop that started this scheduler {problem}: coroutine jobs ({several(coroutines, 1)}) are left to "
        "other nodes. Keep the loop running while the scheduler is started, as in `async with scheduler:`, or await "
        "start() again on another loop."
    )


class LoopCaller:
    """Calls coroutine functions on an event loop, from a thread that a stopped loop must not block."""

    def __init__(self, loop: Callable[[], asyncio.AbstractEventLoop | None]) -> None:
        self._loop = loop
        self._waiting: set[Future[object]] = set()
        self._complained = False
        self._tasks: set[asyncio.Task[Any]] = set()

    def bridged(self, function: Callable[[Any], Coroutine[Any, Any, object]]) -> Callable[[Any], object]:
        """A plain function that calls this coroutine function on the loop and waits for it as long as the loop runs."""
        return lambda event: self._call(function, event)

    def _call(self, function: Callable[[Any], Coroutine[Any, Any, object]], event: object) -> object:
        loop = self._loop()
        if loop is None or loop.is_closed() or len(self._waiting) >= MAX_WAITING:
            self._complain(function, "is not called for some events")
            return None
        outcome: Future[object] = Future()

        def begin() -> None:
            self._waiting.discard(outcome)
            try:
                task = loop.create_task(function(event))
            except BaseException as failure:  # for example, it does not accept an event
                outcome.set_exception(failure)
                return
            self._tasks.add(task)
            task.add_done_callback(lambda task: self._ended(task, outcome))

        self._waiting.add(outcome)
        try:
            loop.call_soon_threadsafe(begin)
        except RuntimeError:  # it was closed just now
            self._waiting.discard(outcome)
            self._complain(function, "is not called for some events")
            return None
        while True:
            try:
                result = outcome.result(LOOK_EVERY)
            except TimeoutError:
                if outcome.done():
                    raise  # the listener's own
                if not loop.is_running():  # nothing happens on it, so there is nothing to wait for
                    self._complain(function, "goes on when the loop does")
                    outcome.add_done_callback(_tell_failure)
                    return None
            else:
                self._complained = False
                return result

    def _ended(self, task: asyncio.Task[Any], outcome: Future[object]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            outcome.cancel()
        elif (failure := task.exception()) is not None:
            outcome.set_exception(failure)
        else:
            outcome.set_result(task.result())

    def _complain(self, function: Callable[..., object], what: str) -> None:
        if not self._complained:
            self._complained = True
            logger.warning(
                "the event loop of the listener %s does not run: the listener %s",
                getattr(function, "__qualname__", repr(function)),
                what,
                extra={"action": "listener_without_loop"},
            )


def _tell_failure(outcome: Future[object]) -> None:
    """Log the failure of a listener that ended after its caller had gone."""
    if not outcome.cancelled() and (failure := outcome.exception()) is not None:
        logger.error("a listener failed", exc_info=failure, extra={"action": "listener_failed"})
