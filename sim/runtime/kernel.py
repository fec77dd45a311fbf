"""Virtual time: the threads of many simulated processes, run as greenlets, one at a time, in the order of their
instants.

A process has clocks of its own (a steady one with its own rate, a wall that may be anywhere), can be frozen (its clocks
go on, its threads do not) and can be killed. Wherever a thread waits, and now and then where it reads the time, others
go on: what it read is then old. Everything drawn is drawn from one seeded generator, so that a seed is a history.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]

MOST = 200_000
"""Events after which a history is taken for one that never ends."""

LOOK = 1e-7
"""Seconds that pass at a look at the clock, so that whoever does nothing else gets somewhere."""


class Killed(BaseException):
    """The process of this thread is no more."""


class Process:
    """One simulated process, with its clocks."""

    __slots__ = (
        "alive", "frozen", "held", "host", "inherited", "name", "offset", "pid", "rate", "tasks", "things", "wall",
    )  # fmt: skip

    def __init__(self, name: str, pid: int, host: str, *, rate: float, offset: float, wall: float) -> None:
        self.name, self.pid, self.host = name, pid, host
        self.rate, self.offset, self.wall = rate, offset, wall
        self.alive, self.frozen = True, False
        self.held: list[tuple[Task, int, Any]] = []
        """What would have woken its threads while it was frozen."""
        self.tasks: dict[Task, None] = {}
        self.things: dict[str, Any] = {}
        self.inherited: frozenset[int] = frozenset()
        """Descriptors that it has from the process that forked it."""

    def __repr__(self) -> str:
        return self.name

    def boottime(self) -> float:
        """Its steady clock."""
        return self.offset + self.rate * K.now

    def drift(self, rate: float) -> None:
        """From now on its steady clock goes at this rate."""
        self.offset += (self.rate - rate) * K.now
        self.rate = rate


class Task:
    """One thread. `ticket` counts its waits, so that what comes too late for one does not end the next.
    A `steady` one does not hesitate."""

    __slots__ = ("greenlet", "process", "steady", "thread", "ticket")

    def __init__(self, process: Process, body: Callable[[], object], thread: object) -> None:
        self.process, self.thread, self.ticket = process, thread, 0
        self.steady = False

        def run(_: object) -> None:
            try:
                body()
            except Killed:
                pass
            except Exception as error:  # a thread of production that ends so is a failure
                if process.alive:
                    K.failures.append(error)
            finally:
                process.tasks.pop(self, None)

        self.greenlet = greenlet(run, K.hub)
        process.tasks[self] = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Task:
        """In a forked child this thread is not there: nothing wakes it."""
        gone = object.__new__(Task)
        gone.process, gone.thread, gone.ticket, gone.steady = memo[id(self.process)], None, -1, False
        memo[id(self)] = gone
        return gone


class Kernel:
    """One world at a time."""

    def __init__(self) -> None:
        self.reset(0)

    def reset(self, seed: object, *, hesitation: float = 0.0) -> None:
        """A new world."""
        self.rng = random.Random(f"{seed}")
        self.now = 0.0
        self.hub = getcurrent()
        self.current: Task | None = None
        self.process: Process | None = None
        self.observing = False
        self.events = self.looks = 0
        self.failures: list[Exception] = []
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self._hesitation = hesitation
        self._looks_left = self._stride()

    # Events

    def at(self, when: float, what: Callable[..., None], *args: Any) -> None:
        """Do something at an instant."""
        self._count += 1
        heapq.heappush(self._heap, (max(self.now, when), self._count, what, args))

    def after(self, seconds: float, what: Callable[..., None], *args: Any) -> None:
        """Do something so many seconds from now."""
        self._count += 1
        heapq.heappush(self._heap, (self.now + seconds, self._count, what, args))

    def run(self, until: float, stop: Callable[[], bool]) -> None:
        """Let time pass."""
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= until:
            at, _, what, args = pop(heap)
            self.now = max(self.now, at)
            self.events += 1
            what(*args)
            if stop():
                return
            if self.events > MOST:
                self.failures.append(RuntimeError("there is no end to it"))
                return
        self.now = max(self.now, until)

    # Threads

    def spawn(self, process: Process, body: Callable[[], object], thread: object = None) -> Task:
        """A new thread of a process."""
        task = Task(process, body, thread)
        self.after(0.0, self.resume, task, 0, None)
        return task

    def block(self, seconds: float | None = None) -> Any:
        """Wait until somebody wakes this thread, or for so long by its own clock; None then."""
        task = self.current
        assert task is not None
        if not task.process.alive:
            raise Killed
        if seconds is not None:
            self.after(max(seconds, LOOK) / task.process.rate, self.resume, task, task.ticket, None)
        return self.hub.switch()

    def wake(self, task: Task, ticket: int, value: Any = True) -> None:
        """End a wait."""
        self.after(0.0, self.resume, task, ticket, value)

    def resume(self, task: Task, ticket: int, value: Any) -> None:
        if task.ticket != ticket:
            return
        process = task.process
        if not process.alive:
            return
        if process.frozen:
            process.held.append((task, ticket, value))
            return
        task.ticket += 1
        self.current, self.process = task, process
        task.greenlet.switch(value)
        self.current = self.process = None

    # Faults of processes

    def freeze(self, process: Process) -> None:
        """Stop its threads."""
        process.frozen = True

    def thaw(self, process: Process) -> None:
        """Let them go on, with everything that happened meanwhile."""
        process.frozen = False
        held, process.held = process.held, []
        for task, ticket, value in held:
            self.after(0.0, self.resume, task, ticket, value)

    def kill(self, process: Process) -> None:
        """End a process at once: nothing it does from here on is seen by anybody."""
        process.alive = False
        for task in list(process.tasks):
            task.ticket += 1
            if task.greenlet:
                self.current, self.process = task, process
                task.greenlet.throw(Killed)
                self.current = self.process = None
        process.tasks.clear()

    # Clocks

    def boottime(self) -> float:
        """The steady clock of the present process.

        Now and then its thread loses the processor just after it has looked.
        """
        process = self.process
        assert process is not None
        at = process.offset + process.rate * self.now
        if self.observing:
            return at
        self.now += LOOK
        self.looks += 1
        if self.looks > MOST * 10:
            raise RuntimeError("a thread looks at the time for ever")
        if self._hesitation and self.current is not None and process.alive:
            self._looks_left -= 1
            if self._looks_left <= 0 and not self.current.steady:
                self._looks_left = self._stride()
                self.block(self.rng.choice((0.0, 0.001, 0.02, 0.3)))
        return at

    def _stride(self) -> int:
        return int(self.rng.expovariate(self._hesitation)) + 1 if self._hesitation else 1 << 60


K = Kernel()
