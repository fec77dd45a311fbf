"""The command of `tenure lead`, as a process group that can be signalled as a whole."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

CANNOT_EXECUTE = 126

NOT_FOUND = 127

BY_SIGNAL = 128


def find(command: Sequence[str]) -> tuple[int, str] | None:
    """Why a command cannot be run: a shell's exit code and the reason; None if it can."""
    if shutil.which(command[0]) is not None:
        return None
    if os.path.exists(command[0]) and os.sep in command[0]:  # noqa: PTH110 - a name, not yet a path
        return CANNOT_EXECUTE, f"{command[0]!r} cannot be executed"
    return NOT_FOUND, f"{command[0]!r} was not found"


_PDEATHSIG = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(ignored, signal.SIG_DFL)
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    print(f"tenure: cannot run {sys.argv[2]!r}: {error.strerror}", file=sys.stderr)
    os._exit(127 if isinstance(error, FileNotFoundError) else 126)
"""
"""A fresh interpreter runs this and becomes the command: between fork and exec, a process with threads can hang."""


class Group:
    """A command in its own session and process group, with all processes that it starts and that stay in the group."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], kept: Sequence[int]) -> None:
        if sys.platform == "linux" and sys.executable:
            command = [sys.executable, "-I", "-S", "-c", _PDEATHSIG, str(os.getpid()), *command]
        self._process = subprocess.Popen(command, env=env, pass_fds=kept, start_new_session=True)  # noqa: S603
        self.pid = self._process.pid

    @property
    def code(self) -> int:
        """Its exit code, as a shell reports it."""
        code = self._process.returncode
        return BY_SIGNAL - code if code < 0 else code

    def ended(self) -> bool:
        """True if the command itself has ended."""
        return self._process.poll() is not None

    def exists(self) -> bool:
        """True if any process of the group is left, once the command itself has ended."""
        with suppress(ChildProcessError):  # we inherit orphans if we are the first process of a container
            while os.waitpid(-self.pid, os.WNOHANG)[0]:
                pass
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # a process of the group runs as another user now
            return True
        return True

    def send(self, number: signal.Signals) -> bool:
        """Signal the whole group; False if that is not allowed."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return True
