"""What a node needs from the operating system. If it is missing, a node says so at its start, not in a thread."""

from __future__ import annotations

import os
import select

from tenure.errors import ConfigurationError


def need_posix() -> None:
    """Refuse Windows and other systems without poll, process groups and file locks that end with their process."""
    if not all(hasattr(module, name) for module, name in ((select, "poll"), (os, "killpg"), (os, "set_blocking"))):
        raise ConfigurationError(
            "tenure runs nodes on Linux and macOS, not on Windows: use WSL or a container. "
            "Requests work here, with Scheduler(url, capacity=0), and so do tests in virtual time, with tenure.testing."
        )
