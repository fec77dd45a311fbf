"""What a node needs of the operating system. Where it is missing, a node says so when it starts, instead of failing in a thread of its own."""

from __future__ import annotations

import os
import select

from tenure.errors import ConfigurationError


def need_posix() -> None:
    """Refuse Windows, and whatever else has no file locks that end with their process, no poll and no process groups."""
    if not all(hasattr(module, name) for module, name in ((select, "poll"), (os, "killpg"), (os, "set_blocking"))):
        raise ConfigurationError(
            "tenure runs nodes on Linux and macOS, not on Windows: use WSL or a container. "
            "Asking works here, with Scheduler(url, capacity=0), and so do tests in virtual time, with tenure.testing."
        )
