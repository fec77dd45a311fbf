"""Importing this takes away what Python on Windows lacks, as far as tenure could use it.

For processes of their own; it stands for no real machine.
"""

from __future__ import annotations

import asyncio  # noqa: F401 - the standard library looks for these names when it is imported
import getpass  # noqa: F401
import multiprocessing.connection  # noqa: F401
import os
import select
import shutil  # noqa: F401
import signal
import sqlite3  # noqa: F401
import subprocess  # noqa: F401
import sys
import tempfile  # noqa: F401
import time
from typing import Any

import psycopg  # noqa: F401 - which chooses between poll and select itself

MISSING: dict[Any, str] = {
    select: "poll POLLIN POLLOUT POLLERR POLLHUP POLLNVAL POLLPRI",
    os: "pwrite pread fork register_at_fork pidfd_open mkfifo O_NONBLOCK O_CLOEXEC O_NOFOLLOW O_DIRECTORY getuid geteuid getgid getegid "
    "getpgid setpgid setsid killpg fchmod fchown chown set_blocking get_blocking statvfs sched_getaffinity uname",
    signal: "SIGHUP SIGUSR1 SIGUSR2 SIGKILL SIGCHLD SIGALRM SIGSTOP SIGCONT SIGTSTP SIGQUIT pthread_sigmask pthread_kill sigwait setitimer",
    time: "clock_gettime clock_getres CLOCK_BOOTTIME CLOCK_MONOTONIC CLOCK_REALTIME tzset",
}

for absent in ("fcntl", "resource", "pwd", "grp", "termios", "syslog"):
    sys.modules[absent] = None  # type: ignore[assignment]
for module, names in MISSING.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
