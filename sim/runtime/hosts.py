"""Files and host evidence: what `poll` waits for, and locks that live as long as their process."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from sim.runtime.kernel import K, Process, Task
from tenure.core.cluster import HostCard


class File:
    """Something that `poll` can wait for: readable, or not."""

    __slots__ = ("number", "readable", "waiting")
    all: dict[int, File] = {}  # noqa: RUF012 - one world at a time
    _last = 2

    def __init__(self) -> None:
        File._last += 1
        self.number = File._last
        self.readable = False
        self.waiting: list[tuple[Task, int]] = []
        File.all[self.number] = self

    def __deepcopy__(self, memo: object) -> File:
        del memo
        return self

    def ring(self) -> None:
        """It is readable now."""
        self.readable = True
        waiting, self.waiting = self.waiting, []
        for task, ticket in waiting:
            K.wake(task, ticket)


class Proof(Enum):
    DEAD = "dead"
    ALIVE = "alive"
    NOTHING = "nothing"


class LockFile:
    """The lock of a node. `held_until`: a child that does its work has inherited it."""

    all: dict[str, LockFile] = {}  # noqa: RUF012 - one world at a time

    def __init__(self, directory: Path, node: str) -> None:
        del directory
        assert K.process is not None
        self.node, self.process = node, K.process
        self.holders = {K.process: None}
        """All who share the descriptor."""
        self.held_until = 0.0
        LockFile.all[node] = self

    def __deepcopy__(self, memo: object) -> LockFile:
        del memo
        return self

    @property
    def free(self) -> bool:
        return not any(process.alive for process in self.holders) and K.now >= self.held_until

    def forked(self, parent: Process, child: Process) -> None:
        if parent in self.holders:
            self.holders[child] = None

    def let_go(self) -> None:
        """Close one's own copy of the descriptor."""
        assert K.process is not None
        self.holders.pop(K.process, None)

    def unlock(self) -> None:
        """LOCK_UN, whoever else shares the descriptor."""
        self.holders.clear()

    def card(self) -> HostCard:
        return HostCard(self.process.host, self.process.pid, 1, 1, 1, 1, self.node)

    def pulse(self, number: int) -> None:
        """Nobody reads it here."""

    def still_open(self) -> bool:
        return True

    def fileno(self) -> int:
        return -1

    def remove(self) -> None:
        LockFile.all.pop(self.node, None)


def boot_id() -> str:
    return K.process.host if K.process else ""


def probe(directory: Path, node: str, card: HostCard) -> Proof:
    del directory
    lock = LockFile.all.get(node)
    if lock is None or card.boot_id != boot_id():
        return Proof.NOTHING
    return Proof.DEAD if lock.free else Proof.ALIVE


class Kernel:
    """Of all hosts."""

    pidfds = True


PIDFDS: dict[Process, list[File]] = {}


def watch_process(card: HostCard) -> int | None:
    lock = LockFile.all.get(card.nonce)
    if lock is None or not lock.process.alive or not Kernel.pidfds:
        return None
    file = File()
    PIDFDS.setdefault(lock.process, []).append(file)
    return file.number


def process_ended(process: Process) -> None:
    """Those who watch this process see its end."""
    for file in PIDFDS.pop(process, ()):
        file.ring()


def reset() -> None:
    """A new world."""
    File.all.clear()
    File._last = 2
    LockFile.all.clear()
    PIDFDS.clear()
