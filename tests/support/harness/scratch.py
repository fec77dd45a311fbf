"""One scratch folder per run that servers of another user can enter, and that user.

PostgreSQL and pgbouncer refuse to run as root; under root they run as `nobody`, who cannot enter pytest's own folders.
"""

import atexit
import functools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


@functools.cache
def root() -> Path:
    """The folder of this run; removed when the run ends."""
    folder = Path(tempfile.mkdtemp(prefix="tenure-test-"))
    folder.chmod(0o755)
    give(folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def new_folder(prefix: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix=f"{prefix}-", dir=root()))
    give(folder)
    return folder


def server_user() -> dict[str, Any]:
    """Arguments for subprocess that drop root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def give(path: Path) -> None:
    """Hand a file or folder to the user that servers run as."""
    if user := server_user():
        os.chown(path, user["user"], user["group"])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def dies_with_us() -> list[str]:
    """A command prefix that ends the child when the test run itself is killed.

    The kernel ties this to the thread that starts the child, so it is left out anywhere but on the main thread.
    """
    if threading.current_thread() is threading.main_thread() and shutil.which("setpriv"):
        return ["setpriv", "--pdeathsig", "KILL"]
    return []


def spawn_server(command: Sequence[str | Path], *, log: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a server as a direct child, so that it can be killed and reaped without anybody in between."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [*dies_with_us(), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=root(),
            env={**os.environ, **env},
            **server_user(),
        )


def tail(log: Path, lines: int = 30) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else "(no log)"


def eventually(true: Callable[[], object], *, within: float = 10.0, what: str = "condition") -> None:
    """Wait until `true()` is; for states that no event announces. Asking takes a quarter of a processor at most: what is
    waited for needs it."""
    deadline = time.monotonic() + within
    while True:
        asked = time.monotonic()
        if true():
            return
        now = time.monotonic()
        if now > deadline:
            raise TimeoutError(f"{what}: not so after {within} s")
        time.sleep(min(max(0.01, 3 * (now - asked)), 0.3))


def children(pid: int) -> list[int]:
    """Direct children of a process, zombies left out."""
    processes = {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    return [child for child in processes if (stat := state_and_parent(child)) and stat[1] == pid and stat[0] != "Z"]


def running(pid: int) -> bool:
    """Whether the process exists and is no zombie: a zombie holds no memory, no lock and no socket."""
    stat = state_and_parent(pid)
    return stat is not None and stat[0] != "Z"


def state_and_parent(pid: int) -> tuple[str, int] | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[1])


def send(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
