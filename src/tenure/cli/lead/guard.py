"""The guard of `tenure lead`: a process that kills the command if `tenure lead` itself dies or is frozen."""

from __future__ import annotations

import os
import signal
import struct
from contextlib import suppress
from types import TracebackType
from typing import NoReturn, Self

from tenure.util.clock import boottime
from tenure.util.signals import readable_within

TICK = 0.25
"""Seconds between two looks at the deadline, which is then passed on to the guard."""


class Guard:
    """A process that kills the command's group when this one dies or is frozen. Forked before there are threads."""

    _MESSAGE = struct.Struct("=qd")

    def __init__(self) -> None:
        self.gone = False
        """True if the guard was killed. The command still ends with this process, but not if this process freezes."""

    def __enter__(self) -> Self:
        reader, self._writer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._writer)
            self._live(reader)
        os.close(reader)
        os.set_blocking(self._writer, False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._writer)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)

    def tell(self, group: int, deadline: float) -> None:
        """Kill this process group at that time, unless told otherwise before. 0: nothing to kill."""
        try:
            os.write(self._writer, self._MESSAGE.pack(group, deadline))
        except BlockingIOError:
            return  # the guard is frozen; it acts on the last message that it has read
        except BrokenPipeError:
            self.gone = True

    def _live(self, reader: int) -> NoReturn:
        try:
            for ignored in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGTSTP):
                signal.signal(ignored, signal.SIG_IGN)
            os.setsid()
            _name_process(b"tenure guard")
            nowhere = os.open(os.devnull, os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(nowhere, standard)
            os.closerange(3, reader)
            os.closerange(reader + 1, reader + 1024)
            self._guard(reader)
        finally:
            os._exit(0)

    def _guard(self, reader: int) -> None:
        group, deadline = 0, 0.0
        while True:
            left = deadline - boottime()
            if group and left <= 0:
                with suppress(OSError):
                    os.killpg(group, signal.SIGKILL)
                left = TICK  # repeat until we are told that the group is gone
            if not readable_within(reader, max(left, 0.0) if group else None):
                continue
            message = os.read(reader, self._MESSAGE.size)
            if len(message) < self._MESSAGE.size:
                if group:
                    os.killpg(group, signal.SIGKILL)
                return
            group, deadline = self._MESSAGE.unpack(message)


def _name_process(name: bytes) -> None:
    """Set the name that `ps` and `top` show, if the system can."""
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(15, name)
