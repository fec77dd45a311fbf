"""The processes of a peer, each behind a network of its own, and a supervisor that starts again whatever ended."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from judge import Line, read
from roster import Peer, Post

from harness import scratch
from harness.processes import Worker
from harness.proxy import Proxy

APPS = Path(__file__).resolve().parent / "apps"
OFFSET = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(slots=True)
class Place:
    """One process of a crew, whoever fills it at the moment."""

    post: Post
    label: str
    proxy: Proxy
    worker: Worker
    down: bool = field(default=False)
    """Ended by a blow; the supervisor leaves it alone."""

    @property
    def pid(self) -> int:
        return self.worker.pid

    def leads(self) -> bool:
        """By what it said last about it."""
        if not self.post.takes or self.down:
            return False
        for line in reversed([*self.worker.lines, *self.worker.errors]):
            if self.post.takes in line:
                return True
            if self.post.gives and self.post.gives in line:
                return False
        return False


class Crew:
    """All processes of a peer on one server."""

    def __init__(self, peer: Peer, python: str, port: int, *, path: str, jobs: Sequence[str], every: int) -> None:
        self.peer, self.jobs, self.every = peer, jobs, every
        self.fell: Counter[str] = Counter()
        self.places: list[Place] = []
        self._python, self._port, self._path = python, port, path
        self._folder = scratch.new_folder("peer")
        self._file = self._folder / "lines"
        self._stack = ExitStack()

    def start(self) -> None:
        with self._worker(self._port, "setup") as setup:
            assert setup.wait(within=60) == 0, setup.story("could not set up")
        self._file.write_text("")
        for post in self.peer.posts:
            for number in range(post.count):
                label, proxy = f"{post.role}-{number}", self._stack.enter_context(Proxy(self._port))
                self.places.append(Place(post, label, proxy, self._start(post, label, proxy)))

    def close(self) -> None:
        for place in self.places:
            place.worker.kill()
        self._stack.close()

    def lines(self) -> list[Line]:
        return read(self._file.read_text(), self.every, OFFSET)

    def rest(self, seconds: float) -> None:
        """Let them work, and start again who fell over."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            for place in self.places:
                process = place.worker.process
                if not place.down and process and process.poll() is not None:
                    self.fell[place.post.role] += 1
                    place.worker.wait()
                    self.fill(place)
            time.sleep(min(left, 0.05))

    def fill(self, place: Place) -> None:
        """A new process in the place of the old one."""
        place.worker = self._start(place.post, place.label, place.proxy)
        place.down = False

    def leader(self) -> Place:
        """Who leads, or sends; where there is no such thing, who works."""
        leading = [place for place in self.places if place.leads()]
        beats = [place for place in self.places if place.post.role != "worker"]
        return (leading or beats or [self.runner()])[-1]

    def runner(self, within: float = 5.0) -> Place:
        """Who has just begun a body; if nobody does, anybody."""
        begun, until = self._file.stat().st_size, time.monotonic() + within
        while time.monotonic() < until:
            with self._file.open() as file:
                file.seek(begun)
                news = file.read()
            for line in read(news, self.every, OFFSET):
                for place in self.places:
                    if line.what == "began" and place.pid == line.pid and not place.down:
                        return place
            begun += len(news)
            time.sleep(0.002)
        return next(place for place in reversed(self.places) if not place.down)

    def story(self) -> str:
        return "\n".join(place.worker.story() for place in self.places)

    def _start(self, post: Post, label: str, proxy: Proxy) -> Worker:
        return self._worker(proxy.port, post.role, label).start()

    def _worker(self, port: int, role: str, label: str = "") -> Worker:
        scheme = "redis" if self.peer.server == "valkey" else "postgresql"
        user = "" if self.peer.server == "valkey" else "postgres@"
        env = {
            "PEER_URL": f"{scheme}://{user}127.0.0.1:{port}/{self._path}",
            "PEER_LINES": str(self._file),
            "PEER_JOBS": str(len(self.jobs)),
            "PEER_EVERY": str(self.every),
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        }
        return Worker(APPS / f"{self.peer.app}.py", role, self._folder / label, env=env, python=self._python)
