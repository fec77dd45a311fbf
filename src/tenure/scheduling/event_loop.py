"""The event loop for coroutines: the application's, or one of our own, whose thread starts with the first coroutine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tenure.run import CURRENT
from tenure.scheduling.attempt import Attempt, AttemptPhase
from tenure.scheduling.base_executor import BaseExecutor
from tenure.util.vital_thread import VitalThread


class CoroutineLoop:
    """Runs the bodies of attempts as tasks."""

    def __init__(self, label: str, executor: BaseExecutor, begin: Callable[[Attempt], bool]) -> None:
        self._label, self._executor, self._begin = label, executor, begin
        self._given: asyncio.AbstractEventLoop | None = None
        self._own: asyncio.AbstractEventLoop | None = None
        self.thread: VitalThread | None = None
        """The thread of our own loop."""
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
        """Attempts whose coroutines have begun on a loop that is closed now."""
        tasks = list(self._tasks.items())
        return [attempt for task, attempt in tasks if task.get_loop().is_closed() and not task.done()]

    def begin(self, attempts: list[Attempt]) -> None:
        """Start these, in one call to the loop."""
        try:
            self._loop().call_soon_threadsafe(self._start, attempts)
        except RuntimeError as error:  # no thread for a loop of our own, or the application's loop was closed
            self._executor.refuse(error, attempts)

    def cancel(self, attempt: Attempt) -> bool:
        """Cancel a coroutine; False if this is not one, or it has not begun."""
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
                self._own = None  # the next coroutine makes another one
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
            self._executor.keep_result(attempt, await attempt.function.call(attempt.run, attempt.kwargs()))
        except BaseException as error:
            failure = error
        if attempt.phase is not AttemptPhase.RUNNING:
            return  # it was abandoned, and is being thrown away
        self._executor.end(attempt, self._executor.judge(attempt, failure))
        if self._given is not None and isinstance(failure, (KeyboardInterrupt, SystemExit)):
            raise failure  # asyncio's rule, for a loop of the application; ours goes on
