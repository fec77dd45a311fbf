"""Several Celery beats on one ledger, the one that sent last killed now and then, and every message that was ever sent read afterwards."""

import json
import os
import time
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from harness.processes import TESTS, Worker
from harness.scratch import eventually
from tenure.ext.celery import task_id

PROJECTS = Path(__file__).parent / "projects"
APPLICATION, ENTRY = "celery:plays", "tick"
SECOND = timedelta(seconds=1)


@dataclass(frozen=True)
class Message:
    id: str
    scheduled_for: datetime
    pid: int


@dataclass(frozen=True)
class Verdict:
    """What the folder of messages says."""

    seconds: int
    missing: list[str]
    strangers: list[str]
    repeats: int
    senders: int

    def __str__(self) -> str:
        return (
            f"{self.seconds} due times, {len(self.missing)} missing, {self.repeats} repeated under the same id, "
            f"{len(self.strangers)} under an unknown id, from {self.senders} beats"
        )


class Beats:
    """A few beats; whoever is killed is replaced."""

    def __init__(self, folder: Path, url: str, count: int = 3) -> None:
        self.messages = folder / "messages"
        self.messages.mkdir()
        self._env = {
            "PYTHONPATH": os.pathsep.join([str(PROJECTS), str(TESTS)]),
            "MESSAGES": str(self.messages),
            "TENURE_URL": url,
        }
        self.workers = [self._start() for _ in range(count)]

    def _start(self) -> Worker:
        arguments = ["-A", "celery_app", "beat", "-S", "tenure.ext.celery:Scheduler", "-l", "INFO"]
        return Worker("celery", *arguments, env=self._env).start()

    def read(self) -> list[Message]:
        """All messages, in the order in which they came."""
        found = []
        for file in sorted(self.messages.glob("*.msg"), key=lambda file: file.stat().st_mtime_ns):
            try:
                headers = json.loads(file.read_text())["headers"]
            except ValueError:  # being written, or torn by a kill
                continue
            pid = int(headers["origin"].removeprefix("gen").partition("@")[0])
            found.append(Message(headers["id"], datetime.fromisoformat(headers["scheduled_for"]), pid))
        return found

    def wait_for(self, count: int) -> None:
        """Until so many messages are there."""
        eventually(lambda: len(self.read()) >= count, within=30, what=f"{count} messages")

    def kill_the_sender(self) -> None:
        """The one that sent last, in the middle of whatever it does."""
        pid = self.read()[-1].pid
        victim = next(worker for worker in self.workers if worker.pid == pid)
        victim.kill()
        self.workers[self.workers.index(victim)] = self._start()

    def settle(self) -> Verdict:
        """Let every second from the first to now be sent, then end all."""
        last = self.read()[-1].scheduled_for + 2 * SECOND
        eventually(
            lambda: (verdict := judge(self.read())).missing == [] and verdict.seconds and self._reached(last),
            within=20,
            what="every second sent",
        )
        for worker in self.workers:
            eventually(lambda: any("started on" in line for line in worker.errors), within=20, what="a beat started")  # noqa: B023 - called here
            assert worker.terminate() == 0, worker.story()
        return judge(self.read())

    def _reached(self, when: datetime) -> bool:
        return max(message.scheduled_for for message in self.read()) >= when


def judge(messages: list[Message]) -> Verdict:
    """Every second between the first and the last has its id; whatever comes twice comes under the same one."""
    counts = Counter(message.id for message in messages)
    due = {message.scheduled_for for message in messages}
    wanted, when = {}, min(due)
    while when <= max(due):
        wanted[task_id(APPLICATION, ENTRY, when)] = when.isoformat()
        when += SECOND
    return Verdict(
        seconds=len(wanted),
        missing=[text for id_, text in wanted.items() if id_ not in counts],
        strangers=[id_ for id_ in counts if id_ not in wanted],
        repeats=sum(count - 1 for count in counts.values()),
        senders=len({message.pid for message in messages}),
    )


def play(folder: Path, url: str, *, kills: int, apart: float) -> Verdict:
    """Kill the sender so many times."""
    beats = Beats(folder, url)
    beats.wait_for(2)
    for _ in range(kills):
        before = len(beats.read())
        time.sleep(apart)
        beats.wait_for(before + 1)
        beats.kill_the_sender()
    return beats.settle()
