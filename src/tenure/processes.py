"""Bodies in processes of their own: for work that holds the interpreter, leaks, or must be killable.

A worker thread hands a body to a child and waits for it. Children are kept for the next body, hold the descriptor of the node's lock
file, so that the node's death is not proved while they work, and die with it. A body that should end is killed with its process.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import replace
from inspect import Signature
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any

from tenure.attempt import Attempt
from tenure.ledger import RunId
from tenure.run import CURRENT, Run
from tenure.triggers import zone

_SPAWN = multiprocessing.get_context("spawn")
PR_SET_PDEATHSIG = 1


class ProcessFailed(Exception):
    """The body raised in its process, or its process ended without a word. The text says which, with the traceback from there."""


class Child:
    """One process, doing one body at a time."""

    def __init__(self, lock_fileno: int | None) -> None:
        self._ours, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_serve, args=(theirs, _Inherited(lock_fileno)), daemon=True)
        self._process.start()
        theirs.close()

    def run(self, attempt: Attempt, kwargs: dict[str, object]) -> None:
        """Do a body; raises what became of it."""
        run = attempt.run
        try:
            function = replace(attempt.function, signature=Signature())  # annotations need not travel
            self._ours.send((function, kwargs, attempt.claimed, attempt.token, run.zone, run.claim.schema))
            while True:
                what, said = self._ours.recv()
                if what == "log":
                    run.log(said)
                elif what == "completed":
                    run.note_completed()
                elif what == "failed":
                    raise ProcessFailed(said)
                else:
                    return
        except (EOFError, OSError) as error:
            self._process.join(1.0)
            raise ProcessFailed(f"its process ended with {_exit(self._process.exitcode)}") from error

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def close(self) -> None:
        """End it when it is idle."""
        self._ours.close()

    @property
    def alive(self) -> bool:
        """Good for another body."""
        return self._process.is_alive()


class Processes:
    """The children of one runner, made as they are needed."""

    def __init__(self, lock_fileno: Callable[[], int | None]) -> None:
        self._lock_fileno = lock_fileno
        self._mutex = threading.Lock()
        self._idle: list[Child] = []
        self._busy: dict[RunId, Child] = {}

    def run(self, attempt: Attempt, kwargs: dict[str, object]) -> None:
        """Do a body in a child; raises what became of it."""
        with self._mutex:
            child = self._idle.pop() if self._idle else None
        if child is None or not child.alive:
            child = _start(lambda: Child(self._lock_fileno()))
        with self._mutex:
            self._busy[attempt.id] = child
        try:
            if attempt.run.cancelled:
                child.kill()
            child.run(attempt, kwargs)
        finally:
            with self._mutex:
                del self._busy[attempt.id]
                if child.alive:
                    self._idle.append(child)

    def kill(self, attempt: Attempt) -> bool:
        """End the process of an attempt; False if it has none."""
        with self._mutex:
            child = self._busy.get(attempt.id)
        if child is None:
            return False
        child.kill()
        return True

    def stop(self) -> None:
        """End the idle ones, and kill the others: their node leaves."""
        with self._mutex:
            idle, self._idle, busy = self._idle, [], list(self._busy.values())
        for child in idle:
            child.close()
        for child in busy:
            child.kill()


# One thread starts all children and lives as long as the process: a child is told of the death of the thread that started it.

_WANTED: queue.SimpleQueue[tuple[Callable[[], Child], queue.SimpleQueue[Child | BaseException]]] = queue.SimpleQueue()
_STARTER: list[threading.Thread] = []
_MUTEX = threading.Lock()


def _start(make: Callable[[], Child]) -> Child:
    with _MUTEX:
        if not _STARTER:
            _STARTER.append(threading.Thread(target=_serve_starts, name="tenure starter", daemon=True))
            _STARTER[0].start()
    made: queue.SimpleQueue[Child | BaseException] = queue.SimpleQueue()
    _WANTED.put((make, made))
    answer = made.get()
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _serve_starts() -> None:
    while True:
        make, made = _WANTED.get()
        try:
            made.put(make())
        except BaseException as error:
            made.put(error)


def _after_fork_in_child() -> None:
    global _WANTED, _MUTEX  # other threads of the parent may have been at them
    _WANTED, _MUTEX = queue.SimpleQueue(), threading.Lock()
    _STARTER.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


# In the child


class _Inherited:
    """A descriptor that a spawned child keeps."""

    def __init__(self, fileno: int | None) -> None:
        self.fileno = fileno

    def __reduce__(self) -> tuple[Callable[..., _Inherited], tuple[Any]]:
        return _inherit, (None if self.fileno is None else reduction.DupFd(self.fileno),)


def _inherit(duplicate: Any) -> _Inherited:
    return _Inherited(None if duplicate is None else duplicate.detach())


def _serve(pipe: Connection, _lock: _Inherited) -> None:
    """Do bodies until the parent closes the pipe, or dies."""
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent drains, then kills
    while True:
        try:
            function, kwargs, claimed, token, tz, schema = pipe.recv()
        except (EOFError, OSError):
            return
        run = _ToldRun(claimed, token, tz=zone(tz), schema=schema, trusted=lambda: True)
        run.pipe = pipe
        current = CURRENT.set(run)
        try:
            function.call(run, kwargs)
            answer = ("done", "")
        except BaseException as error:
            answer = ("failed", "".join(traceback.format_exception(error)).rstrip())
        finally:
            CURRENT.reset(current)
        sys.stdout.flush()
        pipe.send(answer)


class _ToldRun(Run):
    """A run whose words go to the parent."""

    __slots__ = ("pipe",)
    pipe: Connection

    def log(self, text: object) -> None:
        self.pipe.send(("log", str(text)))

    def note_completed(self) -> None:
        super().note_completed()
        self.pipe.send(("completed", ""))


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent.pid:
        os._exit(1)


def _exit(code: int | None) -> str:
    if code is not None and code < 0:
        return f"signal {-code}"
    return f"exit code {code}"
