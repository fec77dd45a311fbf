"""SQLite and fork(2): when a process forks, no statement of ours runs and no connection of ours is open.

SQLite remembers per process and file which locks it has taken. A forked child inherits that memory but not the locks,
so even a new connection in the child takes none. Then the last real connection elsewhere deletes the write-ahead log
that the child goes on writing to, and a child that was forked in the middle of a write finds the file locked for ever.
Therefore the forking thread waits for our statements, which takes milliseconds, and our connections are closed. The
parent opens them again with its next statement.

The application's connections are not ours to close. The child remembers which files they had open at the fork, and
refuses those files.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from tenure.util.fork import ForkOrder, in_child


class Closing(Protocol):
    """An object with a connection."""

    def suspend(self) -> None:
        """Close the connection; the next statement opens another."""


class Gate:
    """Admits many statements at a time, or one fork."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._inside = 0
        self._forks = threading.Lock()
        self.shut = False
        """A thread wants to fork: statements that only wait for a lock give up."""
        self.members: weakref.WeakSet[Closing] = weakref.WeakSet()

    @contextmanager
    def statement(self) -> Iterator[None]:
        """Hold back forks."""
        with self._changed:
            self._changed.wait_for(lambda: not self.shut)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def close(self) -> None:
        """Called before a fork."""
        self._forks.acquire()
        with self._changed:
            self.shut = True
            self._changed.wait_for(lambda: self._inside == 0)
        for member in list(self.members):
            member.suspend()

    def open(self) -> None:
        """Called in the parent after a fork."""
        with self._changed:
            self.shut = False
            self._changed.notify_all()
        self._forks.release()


gate = Gate()
_inherited: set[tuple[int, int]] = set()


def inherited(path: Path) -> bool:
    """True if this process was forked from one that had the file open."""
    status = path.stat()
    return (status.st_dev, status.st_ino) in _inherited


@in_child(ForkOrder.FILES)
def _after_fork_in_child() -> None:
    gate.__init__()  # type: ignore[misc] # its threads do not exist here
    _inherited.clear()
    with suppress(OSError):
        for fd in Path("/dev/fd").iterdir():
            with suppress(OSError):
                status = os.fstat(int(fd.name))
                _inherited.add((status.st_dev, status.st_ino))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=gate.close, after_in_parent=gate.open)
