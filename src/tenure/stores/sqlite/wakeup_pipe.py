"""A named pipe per node, through which nodes on one file wake each other. A lost notice costs a wait for
the next beat."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from tenure.core.cluster import NodeId
from tenure.stores.host_lock import file_of

_ENOUGH = 65536


class WakeupPipe:
    """This node's own pipe."""

    def __init__(self, directory: Path, node: NodeId) -> None:
        self._path = directory / f"{node}.bell"
        self._fd: int | None = None
        with suppress(OSError, AttributeError):  # without pipes on this platform, the beat looks often enough
            os.mkfifo(self._path, directory.stat().st_mode & 0o666)
            self._fd = os.open(
                self._path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
            )  # open for writing too: never at end-of-file

    def fileno(self) -> int | None:
        """Readable when a notice has arrived."""
        return self._fd

    def heard(self) -> list[str]:
        """The notices that arrived since the last call."""
        if self._fd is None:
            return []
        try:
            return os.read(self._fd, _ENOUGH).decode(errors="replace").split("\n")[:-1]
        except BlockingIOError:
            return []

    def let_go(self) -> None:
        """In a forked child: close the parent's pipe."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def remove(self) -> None:
        """Delete the pipe after the node has left."""
        self.let_go()
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    @staticmethod
    def ring(directory: Path, node: NodeId, words: str) -> None:
        """Send a notice to a node. Does nothing if it does not listen."""
        path = file_of(directory, node, ".bell")
        if path is None:
            return
        with suppress(OSError, AttributeError):
            fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                if stat.S_ISFIFO(os.fstat(fd).st_mode):
                    os.write(fd, f"{words}\n".encode())
            finally:
                os.close(fd)
