"""Real child Python processes that can be killed, frozen and waited for by what they say.

Whatever a test starts is ended by its pid when the test ends, also when it fails: see `end_all` in conftest.py.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Self, TypeVar

from harness import scratch

T = TypeVar("T")
SUPPORT = Path(__file__).resolve().parents[1]
TESTS = SUPPORT.parent
_started: "set[Worker]" = set()


class Worker:
    """A Python process: `Worker(Path("script.py"), "arg")` runs a file, `Worker("tenure", "status")` a module.

    Each wait looks at the lines after the one that the last wait returned.
    """

    def __init__(
        self, what: str | Path, *args: object, env: Mapping[str, str] | None = None, python: str = sys.executable
    ) -> None:
        self.name = Path(what).name if isinstance(what, Path) else what
        target = [str(what)] if isinstance(what, Path) else ["-m", what]
        self.command = [python, *target, *map(str, args)]
        path = os.pathsep.join(filter(None, [str(SUPPORT), str(TESTS), os.environ.get("PYTHONPATH")]))
        self.env = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": path, **(env or {})}
        self.process: subprocess.Popen[str] | None = None
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._seen = 0
        self._news = threading.Condition()
        self._open = 0
        self._readers: list[threading.Thread] = []

    def start(self) -> Self:
        assert self.process is None, "already started"
        self.process = subprocess.Popen(
            [*scratch.dies_with_us(), *self.command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.env,
        )
        _started.add(self)
        for stream, lines in ((self.process.stdout, self.lines), (self.process.stderr, self.errors)):
            assert stream
            self._open += 1
            reader = threading.Thread(target=self._read, args=(stream, lines), daemon=True)
            reader.start()
            self._readers.append(reader)
        return self

    @property
    def pid(self) -> int:
        assert self.process, "not started"
        return self.process.pid

    def say(self, **order: object) -> None:
        """Write one JSON object to its stdin, past all buffers."""
        assert self.process
        assert self.process.stdin
        with suppress(BrokenPipeError):  # it has ended; whoever waits for an answer will hear
            os.write(self.process.stdin.fileno(), json.dumps(order).encode() + b"\n")

    def wait_line(self, text: str, *, within: float = 10.0) -> str:
        """The next line of stdout that contains `text`."""
        return self._wait(lambda line: line if text in line else None, f"a line with {text!r}", within)

    def wait_event(self, *, within: float = 10.0, **fields: object) -> dict[str, Any]:
        """The next JSON object on stdout that has these fields: `worker.wait_event(event="elected")`."""

        def matches(line: str) -> dict[str, Any] | None:
            try:
                event = json.loads(line)
            except ValueError:
                return None
            return event if isinstance(event, dict) and fields.items() <= event.items() else None

        return self._wait(matches, f"an event {fields}", within)

    def wait(self, *, within: float = 10.0) -> int:
        """Its exit status, once it ended by itself."""
        assert self.process
        try:
            status = self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.story(f"did not end within {within} s")) from None
        self._reap()
        return status

    def freeze(self) -> None:
        """SIGSTOP: no code runs, all sockets stay open. Returns when every thread has stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        scratch.eventually(lambda: self._state() in {"T", "t", "Z", None}, what=f"{self.name} frozen")

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def terminate(self, *, within: float = 10.0) -> int:
        """SIGTERM, as a supervisor does; its exit status."""
        assert self.process
        self.process.terminate()
        return self.wait(within=within)

    def kill(self) -> None:
        """SIGKILL, reaped at once. Also ends a frozen process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self._reap()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _state(self) -> str | None:
        stat = scratch.state_and_parent(self.pid)
        return stat[0] if stat else None

    def _read(self, stream: IO[str], lines: list[str]) -> None:
        for line in stream:
            with self._news:
                lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._open -= 1
            self._news.notify_all()

    def _wait(self, match: Callable[[str], T | None], what: str, within: float) -> T:
        deadline = time.monotonic() + within
        with self._news:
            while True:
                while self._seen < len(self.lines):
                    self._seen += 1
                    if (found := match(self.lines[self._seen - 1])) is not None:
                        return found
                left = deadline - time.monotonic()
                if self._open == 0 or left <= 0:
                    raise AssertionError(
                        self.story(f"said no {what} within {within} s" if self._open else f"ended without {what}")
                    )
                self._news.wait(left)

    def _reap(self) -> None:
        """After its end: the rest of its output, then close the pipes (a grandchild may still hold them open)."""
        _started.discard(self)
        for reader in self._readers:
            reader.join(1)
        assert self.process
        if not any(reader.is_alive() for reader in self._readers):
            for stream in filter(None, (self.process.stdout, self.process.stderr)):
                stream.close()
        if self.process.stdin:
            self.process.stdin.close()

    def story(self, what: str = "said") -> str:
        assert self.process
        if self._open == 0:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(1)  # it has closed its output, so it is about to end
        said = "\n".join(self.lines[-30:]) or "(nothing)"
        errors = "\n".join(self.errors[-30:]) or "(nothing)"
        status = self.process.poll()
        state = "still running" if status is None else f"exit status {status}"
        return f"worker {self.name} (pid {self.pid}, {state}) {what}\n--- stdout\n{said}\n--- stderr\n{errors}"


def end_all() -> None:
    """Kill and reap every worker that is still there."""
    for worker in list(_started):
        worker.kill()
