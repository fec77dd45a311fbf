"""Applications under the servers that people use, and what their job of each second wrote down."""

import json
import os
import shutil
import signal
import socket
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from harness.processes import SUPPORT, TESTS, Worker
from harness.scratch import eventually, free_port

PROJECTS = Path(__file__).parent / "projects"


class Served:
    """A project, copied into a folder of its own and started there. Each part of `command` may say {port}."""

    def __init__(self, folder: Path, url: str, project: str, program: str, *command: str, **env: str) -> None:
        self.folder = folder / "project"
        source = PROJECTS / project
        if source.is_dir():
            shutil.copytree(source, self.folder)
        else:
            self.folder.mkdir()
            shutil.copy(source, self.folder)
        self.touched = self.folder / ("shop/jobs.py" if source.is_dir() else project)
        self.port = free_port()
        self._lines = folder / "lines"
        self._lines.touch()
        self.env = {
            "PYTHONPATH": os.pathsep.join([str(self.folder), str(SUPPORT), str(TESTS)]),
            "LINES": str(self._lines),
            "TENURE_URL": url,
            "DATABASE": url,
            "PORT": str(self.port),
            **env,
        }
        what = self.folder / program if program.endswith(".py") else program
        self.worker = Worker(what, *(part.format(port=self.port) for part in command), env=self.env)

    def __enter__(self) -> Self:
        self.worker.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is not None:
            print(self.worker.story())
        self.worker.terminate(within=20)
        for pid in self.pids():  # a reloader that is told to end does not tell its child
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def run(self, program: str, *command: str) -> str:
        """Another command of the same project, to its end; what it said."""
        what = self.folder / program if program.endswith(".py") else program
        worker = Worker(what, *command, env=self.env).start()
        assert worker.wait(within=30) == 0, worker.story()
        return "\n".join(worker.lines)

    def lines(self, *, all_: bool = False) -> list[dict[str, Any]]:
        """What was written down, by the job of each second or by all."""
        lines = [json.loads(line) for line in self._lines.read_text().splitlines()]
        return [line for line in lines if all_ or line["job"] == "tick"]

    def pids(self) -> set[int]:
        return {line["pid"] for line in self.lines()}

    def wait_for(self, more: int) -> None:
        """Until the job has run so many more times."""
        before = len(self.lines())
        eventually(lambda: len(self.lines()) >= before + more, within=30, what=f"{more} more runs")

    def touch(self) -> None:
        """Change the program, so that a reloader loads it anew, and wait until another process runs jobs."""
        before = self.pids()
        time.sleep(1.1)  # reloaders look at whole seconds
        self.touched.write_text(self.touched.read_text() + "\n")
        eventually(lambda: self.pids() - before, within=30, what="jobs in the new process")


def accepts(port: int) -> bool:
    """Whether somebody serves there."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def once_each(served: Served) -> int:
    """Every second from the first to the last was run once; how many."""
    counts = Counter(line["due"] for line in served.lines())
    twice = {due: count for due, count in counts.items() if count > 1}
    first = min(counts)
    missing = [first + i for i in range(round(max(counts) - first)) if first + i not in counts]
    assert not twice, f"run twice: {twice}"
    assert not missing, f"not run: {missing}"
    return len(counts)
