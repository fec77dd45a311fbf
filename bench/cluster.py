"""Clusters of real candidate processes: kill, freeze or ask the leader, and wait for the successor's word.

Every candidate, ours or a peer's, writes JSON lines to the one pipe of its cluster, each with its pid and
CLOCK_BOOTTIME: `joined` when it is a candidate, `leading` after it has seen that it leads, `resigned` just before it
gives up.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from harness import scratch

HERE = Path(__file__).resolve().parent
PATIENCE = 30.0


def boottime() -> float:
    """The clock that all processes of a host share."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def say(event: str, at: float | None = None, **facts: object) -> None:
    """What a candidate tells its cluster; one write, so that lines of several processes never mix."""
    line = json.dumps({"event": event, "pid": os.getpid(), "at": boottime() if at is None else at, **facts})
    os.write(1, line.encode() + b"\n")


class Cluster:
    """Candidates of one election. `with Cluster("name", command) as cluster:` starts them, and ends them by pid."""

    def __init__(self, name: str, command: Sequence[object], size: int) -> None:
        self.name = name
        self.command = [sys.executable, *map(str, command)]
        self.size = size
        self._leader = 0
        self._members: dict[int, subprocess.Popen[bytes]] = {}
        self._joined: set[int] = set()
        self._read, self._write = os.pipe()
        self._rest = b""
        self._log = scratch.new_folder("bench") / "stderr"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> Self:
        """Start all of them; `settle`, or whatever needs them first, waits until they are there."""
        while len(self._members) < self.size:
            self._spawn()
        return self

    def settle(self) -> Self:
        """Return when there are as many candidates as there should be, and one of them leads."""
        self.start()
        while not self._members.keys() <= self._joined or self._leader not in self._members:
            self._expect(lambda e: e["event"] in {"joined", "leading"}, "its candidates and a leader")
        return self

    @property
    def leader(self) -> int:
        """The pid of whoever said last that it leads."""
        self.settle()
        self._catch_up()
        return self._leader

    def strike(self, number: signal.Signals) -> Strike:
        """Send the leader a signal; the clock starts just before."""
        old, at = self.leader, boottime()
        os.kill(old, number)
        return Strike(self, old, at, number)

    def successor(self, old: int, within: float) -> dict[str, Any] | None:
        """The word of whoever leads after `old`."""
        try:
            event = self._expect(lambda e: e["event"] == "leading" and e["pid"] != old, "a successor", within)
        except TimeoutError:
            return None
        return event

    def deaths(self, pause: float) -> list[float]:
        """End all candidates, one after the other: seconds from kill -9 until the kernel says that the process has
        ended."""
        seconds = []
        for pid in sorted(self._members, key=lambda pid: pid == self._leader):
            time.sleep(pause)
            watched = os.pidfd_open(pid)
            began = boottime()
            os.kill(pid, signal.SIGKILL)
            select.select([watched], [], [])
            seconds.append(boottime() - began)
            os.close(watched)
            self.reap(pid)
        return seconds

    def event(self, name: str, pid: int, within: float = PATIENCE) -> dict[str, Any]:
        return self._expect(lambda e: e["event"] == name and e["pid"] == pid, name, within)

    def reap(self, pid: int) -> None:
        """End one of ours by its pid, and forget it."""
        process = self._members.pop(pid)
        process.kill()
        process.wait()

    def close(self) -> None:
        for pid in list(self._members):
            self.reap(pid)
        for fd in (self._read, self._write):
            with suppress(OSError):
                os.close(fd)

    def _spawn(self) -> int:
        paths = [str(HERE), str(HERE.parent / "tests/support"), os.environ.get("PYTHONPATH")]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        with self._log.open("ab") as errors:
            process = subprocess.Popen(
                [*scratch.dies_with_us(), *self.command],
                stdin=subprocess.DEVNULL,
                stdout=self._write,
                stderr=errors,
                env=env,
            )
        self._members[process.pid] = process
        return process.pid

    def _catch_up(self) -> None:
        with suppress(TimeoutError):
            self._expect(lambda _: False, "anything", within=0.0)

    def _expect(self, wanted: Callable[[dict[str, Any]], bool], what: str, within: float = PATIENCE) -> dict[str, Any]:
        deadline = boottime() + within
        while True:
            while b"\n" in self._rest:
                line, _, self._rest = self._rest.partition(b"\n")
                event: dict[str, Any] = json.loads(line)
                if event["event"] == "leading":
                    self._leader = event["pid"]
                elif event["event"] == "joined":
                    self._joined.add(event["pid"])
                if wanted(event):
                    return event
            if not select.select([self._read], [], [], max(deadline - boottime(), 0.0))[0]:
                raise TimeoutError(f"{self.name}: no word of {what} in {within:g} s\n{scratch.tail(self._log)}")
            self._rest += os.read(self._read, 65536)


class Strike:
    """A leader was struck; `result` waits for its successor.

    Several clusters can be struck before any is waited for.
    """

    def __init__(self, cluster: Cluster, old: int, at: float, number: signal.Signals) -> None:
        self._cluster, self.old, self._at, self._number = cluster, old, at, number

    def result(self, within: float) -> float | None:
        """Seconds until somebody else led, None if nobody did. Afterwards the cluster is whole again."""
        left = self._at + within - boottime()
        word = self._cluster.successor(self.old, max(left, 0.0))
        if self._number is signal.SIGSTOP and word is not None:
            os.kill(self.old, signal.SIGCONT)  # it finds out by itself, and goes on as a standby
        elif word is None or self._number is signal.SIGKILL:
            self._cluster.reap(self.old)
        self._cluster.settle()
        return None if word is None else word["at"] - self._at


def resignation(cluster: Cluster, within: float = PATIENCE) -> float | None:
    """Seconds from the leader's call of resign() to the successor's first true is_leader."""
    old = cluster.strike(signal.SIGUSR1).old
    began = cluster.event("resigned", old)
    word = cluster.successor(old, within)
    return None if word is None else word["at"] - began["at"]
