"""What the copies of production modules are given for `threading`, `queue`, `select`, `os`, `uuid`, `logging`, the clock, chance and host evidence."""

from __future__ import annotations

import queue as real_queue
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from sim.runtime import hosts
from sim.runtime.hosts import File
from sim.runtime.kernel import K, Task
from tenure.util.fork import ForkOrder

WALL = 1_800_000_000.0
"""What the wall of a process without an error shows when a history begins: seconds since 1970."""


class Lock:
    """As `threading.Lock` and, with `again`, as `RLock`."""

    __slots__ = ("_again", "_count", "_owner", "_waiting")

    def __init__(self, *, again: bool = False) -> None:
        self._owner: Task | None = None
        self._count = 0
        self._again = again
        self._waiting: deque[tuple[Task, int]] = deque()

    def acquire(self, blocking: bool = True) -> bool:
        me = K.current
        while self._count and not (self._again and self._owner is me):
            if not blocking:
                return False
            if me is None or not me.process.alive:
                break  # the last words of a process that was killed wait for nobody
            self._waiting.append((me, me.ticket))
            K.block()
        self._owner = me
        self._count += 1
        return True

    def release(self) -> None:
        self._count -= 1
        if not self._count:
            self._owner = None
            if self._waiting:
                K.wake(*self._waiting.popleft())

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()


def rlock() -> Lock:
    return Lock(again=True)


class Event:
    """As `threading.Event`."""

    __slots__ = ("_set", "_waiting")

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[tuple[Task, int]] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        waiting, self._waiting = self._waiting, []
        for task, ticket in waiting:
            K.wake(task, ticket)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            me = K.current
            assert me is not None
            self._waiting.append((me, me.ticket))
            K.block(timeout)
        return self._set


class Condition:
    """As `threading.Condition`."""

    def __init__(self, lock: Lock | None = None) -> None:
        self._lock = rlock() if lock is None else lock
        self._waiting: deque[tuple[Task, int]] = deque()

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        me = K.current
        assert me is not None
        self._waiting.append((me, me.ticket))
        count, self._lock._count = self._lock._count, 1
        self._lock.release()
        try:
            return K.block(timeout) is not None
        finally:
            self._lock.acquire()
            self._lock._count = count

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        until = None if timeout is None else K.boottime() + timeout
        while not (result := predicate()):
            left = None if until is None else until - K.boottime()
            if left is not None and left <= 0:
                return result
            self.wait(left)
        return result

    def notify_all(self) -> None:
        while self._waiting:
            K.wake(*self._waiting.popleft())

    notify = notify_all  # a thread that wakes for nothing looks again


class Thread:
    """As `threading.Thread`."""

    def __init__(
        self,
        *,
        target: Callable[..., object] | None = None,
        name: str = "",
        args: tuple[Any, ...] = (),
        daemon: bool = False,
    ) -> None:
        del daemon
        self.name, self._target, self._args = name, target, args
        self._over = Event()

    def run(self) -> None:
        if self._target is not None:
            self._target(*self._args)

    def start(self) -> None:
        process = K.process
        assert process is not None
        K.spawn(process, self._live, self)

    def _live(self) -> None:
        try:
            self.run()
        finally:
            self._over.set()

    def join(self, timeout: float | None = None) -> None:
        self._over.wait(timeout)


def current_thread() -> object:
    return K.current.thread if K.current else None


class SimpleQueue:
    """As `queue.SimpleQueue`."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._waiting: deque[tuple[Task, int]] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)
        while self._waiting:  # all: some may have given up
            K.wake(*self._waiting.popleft())

    def get(self, timeout: float | None = None) -> Any:
        until = None if timeout is None else K.boottime() + timeout
        while not self._items:
            left = None if until is None else until - K.boottime()
            if left is not None and left <= 0:
                raise real_queue.Empty
            me = K.current
            assert me is not None
            self._waiting.append((me, me.ticket))
            K.block(left)
        return self._items.popleft()


class Poll:
    """As `select.poll()`."""

    def __init__(self) -> None:
        self._files: list[File] = []

    def register(self, number: int, _: int) -> None:
        self._files.append(File.all[number])

    def poll(self, milliseconds: int) -> list[tuple[int, int]]:
        if not any(file.readable for file in self._files) and milliseconds > 0:
            me = K.current
            assert me is not None
            for file in self._files:
                file.waiting.append((me, me.ticket))
            K.block(milliseconds / 1000)
            for file in self._files:
                file.waiting = [waiter for waiter in file.waiting if waiter[0] is not me]
        return [(file.number, 1) for file in self._files if file.readable]


def pipe() -> tuple[int, int]:
    """Both ends are one number here: what is written makes it readable."""
    file = File()
    return file.number, file.number


def write(number: int, _: bytes) -> int:
    if number in File.all:
        File.all[number].ring()
    return 1


def read(number: int, _: int) -> bytes:
    File.all[number].readable = False
    return b"."


def close(number: int) -> None:
    if K.process is None or number not in K.process.inherited:  # else the parent has it too
        File.all.pop(number, None)


def getpid() -> int:
    return K.process.pid if K.process else 0


class Silent:
    """A logger. With `lines` set, it keeps what is said, with the moment and the process."""

    lines: list[str] | None = None

    def _say(self, text: str, *args: object, extra: dict[str, str] | None = None, **_: object) -> None:
        if extra == {"action": "thread_died"} and K.process is not None and K.process.alive:
            K.failures.append(RuntimeError(text % args))  # a thread of production that ends so is a failure
        if Silent.lines is not None:
            said = text % args if args else text
            Silent.lines.append(f"{K.now:9.4f} {K.process}: {said}")

    debug = info = warning = error = exception = _say

    def log(self, level: int, text: str, *args: object, **more: Any) -> None:
        del level
        self._say(text, *args, **more)


class Id(str):
    """An id whose place in a set is the same in every run of the simulator."""

    __slots__ = ()

    def __hash__(self) -> int:
        return int(self, 16)

    def __deepcopy__(self, memo: object) -> Id:
        del memo
        return self


def uuid4() -> str:
    return Id(f"{K.rng.getrandbits(48):012x}")


class Processes:
    """No process pools here."""

    def __init__(self, lock_fileno: object, refuse_result: object) -> None:
        del lock_fileno, refuse_result

    def kill(self, attempt: object) -> bool:
        del attempt
        return False

    def stop(self) -> None:
        """Nothing to do."""


def reset() -> None:
    """A new world."""
    hosts.reset()


def sleep(seconds: float) -> None:
    if seconds > 0:
        K.block(seconds)


def walltime() -> datetime:
    process = K.process
    wall = process.wall + process.boottime() - process.offset if process else 0.0
    return datetime.fromtimestamp(WALL + wall, UTC)


def fraction() -> float:
    return K.rng.random()


def between(low: float, high: float) -> float:
    return K.rng.uniform(low, high)


MODULES: dict[str, Any] = {
    "threading": SimpleNamespace(
        Lock=Lock, RLock=rlock, Event=Event, Condition=Condition, Thread=Thread, current_thread=current_thread
    ),
    "queue": SimpleNamespace(SimpleQueue=SimpleQueue, Empty=real_queue.Empty),
    "select": SimpleNamespace(poll=Poll, POLLIN=1),
    "os": SimpleNamespace(
        pipe=pipe, write=write, read=read, close=close, getpid=getpid, set_blocking=lambda *_: None, environ={}
    ),
    "uuid": SimpleNamespace(uuid4=uuid4),
    "logging": SimpleNamespace(getLogger=lambda _: Silent(), Logger=Silent, DEBUG=10, INFO=20, WARNING=30, ERROR=40),
    "tenure.util.randomness": SimpleNamespace(fraction=fraction, between=between),
    "tenure.util.fork": SimpleNamespace(ForkOrder=ForkOrder, in_child=lambda _order: lambda hook: hook),
    "tenure.util.clock": SimpleNamespace(boottime=K.boottime, walltime=walltime, sleep=sleep),
    "tenure.stores.host_lock": SimpleNamespace(
        LockFile=hosts.LockFile,
        Proof=hosts.Proof,
        probe=hosts.probe,
        boot_id=hosts.boot_id,
        watch_process=hosts.watch_process,
        forget_process=close,
        clear=lambda *_: None,
        sweep=lambda *_, **__: None,
    ),
    "tenure.scheduling.hangs": SimpleNamespace(
        this_thread=lambda: 0,
        of_thread=lambda _: None,
        of_task=lambda _: None,
        told=lambda limit, _: (f"timed out after {limit:g} s", TimeoutError()),
        Hang=object,
    ),
    "tenure.scheduling.processes": SimpleNamespace(Processes=Processes),
}
