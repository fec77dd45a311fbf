"""Celery beats with an entry per second, the one that sent last killed now and then, and every message that arrives at
the broker read."""

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from harness.processes import SUPPORT, TESTS, Worker
from harness.scratch import eventually
from harness.valkey import Valkey
from tenure.ext.celery import task_id

PROJECTS = Path(__file__).parent / "projects"
APPLICATION, ENTRY = "celery:plays", "tick"
SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Kind:
    """A way to run beats."""

    name: str
    count: int
    scheduler: str
    settings: Mapping[str, Any] = field(default_factory=dict)


OURS = Kind(
    "tenure, three beats",
    3,
    "tenure.ext.celery:Scheduler",
    {"tenure_options": {"ttl": 6, "heartbeat_every": 0.5, "attempt_timeout": 1}},
)


@dataclass(frozen=True, slots=True)
class Message:
    id: str
    scheduled_for: datetime | None
    """Only ours say it."""
    pid: int
    arrived: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the messages say."""

    seconds: int
    messages: int
    missing: list[str]
    too_many: int
    strangers: list[str]
    silence: float
    senders: int
    kills: int

    def __str__(self) -> str:
        return (
            f"{self.seconds} due times, {len(self.missing)} missing, {self.too_many} sent again under the same id, "
            f"{len(self.strangers)} under an unknown id, from {self.senders} beats, {self.kills} kills"
        )


class Beats:
    """A few beats of one kind, on a broker's database of their own; whoever is killed is replaced at once."""

    def __init__(self, kind: Kind, folder: Path, url: str, server: Valkey, database: int = 0) -> None:
        self.kind, self.kills = kind, 0
        self._messages: list[Message] = []
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self._env = {
            "PYTHONPATH": os.pathsep.join([str(PROJECTS), str(SUPPORT), str(TESTS)]),
            "BROKER": server.url(database),
            "SETTINGS": json.dumps(dict(kind.settings)),
            "TENURE_URL": url,
        }
        self._ended = threading.Event()
        self._ear = threading.Thread(target=self._listen, args=[server.port, database], daemon=True)
        self._ear.start()
        self.workers = [self._start(place) for place in range(kind.count)]

    def _start(self, place: int) -> Worker:
        """Whoever comes after one that was killed finds the file that it left."""
        kept = self._folder / f"schedule-{place}"
        command = ["-A", "celery_app", "beat", "-S", self.kind.scheduler, "-s", kept, "-l", "INFO"]
        return Worker("celery", *command, env=self._env).start()

    def _listen(self, port: int, database: int) -> None:
        import redis  # the rest of the file is also read where no broker is

        with redis.Redis(port=port, db=database) as broker:
            while not self._ended.is_set():
                if found := broker.brpop(["celery"], timeout=1):
                    self._messages.append(_message(found[1], time.monotonic()))

    def read(self) -> list[Message]:
        """All messages, in the order in which they came."""
        return list(self._messages)

    def wait_for(self, count: int) -> None:
        """Until so many messages are there."""
        eventually(lambda: len(self.read()) >= count, within=60, what=f"{count} messages of {self.kind.name}")

    def kill_the_sender(self) -> bool:
        """The one that sent last, in the middle of whatever it does; False if it is dead and nobody has sent since."""
        pid = self.read()[-1].pid
        place = next((place for place, worker in enumerate(self.workers) if worker.pid == pid), None)
        if place is None:
            return False
        self.workers[place].kill()
        self.kills += 1
        self.workers[place] = self._start(place)
        return True

    def settle(self) -> Verdict:
        """Of ours: let every second from the first to now be sent, then end all."""
        last = self._newest() + 2 * SECOND
        eventually(
            lambda: judge(self.read(), self.kills).missing == [] and self._newest() >= last,
            within=20,
            what="every second sent",
        )
        for worker in self.workers:
            eventually(lambda: any("started on" in line for line in worker.errors), within=20, what="a beat started")  # noqa: B023 - called here
            assert worker.terminate() == 0, worker.story()
        self.stop()
        return judge(self.read(), self.kills)

    def stop(self) -> None:
        """End all that are left, and hear no more."""
        for worker in self.workers:
            worker.kill()
        self._ended.set()
        self._ear.join()

    def _newest(self) -> datetime:
        return max(message.scheduled_for for message in self.read() if message.scheduled_for)


def judge(messages: list[Message], kills: int) -> Verdict:
    """By ids: every second between the first and the last has its own; whatever comes twice comes under the same
    one."""
    counts = Counter(message.id for message in messages)
    due = {message.scheduled_for for message in messages if message.scheduled_for}
    wanted, when = {}, min(due)
    while when <= max(due):
        wanted[task_id(APPLICATION, ENTRY, when)] = when.isoformat()
        when += SECOND
    return Verdict(
        seconds=len(wanted),
        messages=len(messages),
        missing=[text for id_, text in wanted.items() if id_ not in counts],
        too_many=sum(count - 1 for count in counts.values()),
        strangers=[id_ for id_ in counts if id_ not in wanted],
        silence=max(_gaps([message.arrived for message in messages]), default=0.0),
        senders=len({message.pid for message in messages}),
        kills=kills,
    )


def judge_by_arrival(messages: list[Message], kills: int, until: float) -> Verdict:
    """Of beats whose messages say no due time: a second is missing when it lies in a silence, and what is more than the
    others is too many."""
    times = [message.arrived for message in messages if message.arrived <= until]
    seconds = round(until - times[0])
    missing = [f"+{since - times[0]:.0f} s" for since, gap in _silences([*times, until]) for _ in range(round(gap) - 1)]
    return Verdict(
        seconds=seconds,
        messages=len(times),
        missing=missing,
        too_many=max(len(times) - (seconds - len(missing)), 0),
        strangers=[],
        silence=max(_gaps([*times, until])),
        senders=len({message.pid for message in messages}),
        kills=kills,
    )


def _gaps(times: list[float]) -> list[float]:
    return [after - before for before, after in pairwise(times)]


def _silences(times: list[float]) -> list[tuple[float, float]]:
    return [(before, after - before) for before, after in pairwise(times) if after - before >= 1.5]


def _message(text: bytes, arrived: float) -> Message:
    headers = json.loads(text)["headers"]
    pid = int(headers["origin"].removeprefix("gen").partition("@")[0])
    due = headers.get("scheduled_for")
    return Message(headers["id"], datetime.fromisoformat(due) if due else None, pid, arrived)


def play(folder: Path, url: str, *, kills: int, apart: float) -> Verdict:
    """Three of ours, the sender killed so many times."""
    with Valkey() as server:
        beats = Beats(OURS, folder / "beats", url, server)
        beats.wait_for(2)
        for _ in range(kills):
            before = len(beats.read())
            time.sleep(apart)
            beats.wait_for(before + 1)
            eventually(beats.kill_the_sender, within=20, what="somebody who sends")
        return beats.settle()
