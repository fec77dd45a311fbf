"""Schedulers of one application as real processes, what is done to them, and the verdict over what they did."""

import json
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import psycopg

from harness import chronicle, scratch
from harness.chronicle import Blow, Fault, Line, Verdict
from harness.processes import TESTS, Worker
from tenure.ledger import OPEN, RunRow
from tenure.scheduler import Scheduler
from tenure.stores.ledger import RunQuery

SCRIPT = TESTS / "workers" / "scheduler_worker.py"
APPLICATION = "scene"
EVERYTHING = 1_000_000

Job = Mapping[str, Any]
"""`{"name": "a", "every": 2, "copies": 200, "body": "note", "for": 0.1, "policy": {"overlap": "allow"}}`; see scheduler_worker.py."""


class SchedulerWorker(Worker):
    """A worker that runs `scheduler_worker.py`."""

    def __init__(self, label: str, options: Mapping[str, Any], env: Mapping[str, str]) -> None:
        super().__init__(SCRIPT, json.dumps(options), env=env)
        self.label = label
        self._parsed: list[dict[str, Any]] = []

    @property
    def events(self) -> list[dict[str, Any]]:
        """All that it has said so far."""
        for line in self.lines[len(self._parsed) :]:
            self._parsed.append(json.loads(line))
        return self._parsed

    @property
    def plans(self) -> bool:
        """It said that it plans, and not that it has ceased to."""
        said = [event["event"] for event in self.events if event["event"] in {"plans", "rests"}]
        return bool(said) and said[-1] == "plans"

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None


class Scene:
    """Several workers. Options of the scheduler are keywords: `Scene(tmp_path, url, jobs=[…], ttl=2, capacity=8)`."""

    def __init__(self, folder: Path, url: str, *, jobs: Sequence[Job], ttl: float = 2.0, **scheduler: object) -> None:
        self.url, self.jobs = url, list(jobs)
        self.options: dict[str, Any] = {"application": APPLICATION, "ttl": ttl, **scheduler}
        if ttl < 10:  # as few beats as the arithmetic allows would do, but a busy machine must be given its time
            self.options = {"heartbeat_every": ttl * 0.1, "attempt_timeout": ttl * 0.3, **self.options}
        self.folder = folder
        self.log = folder / "bodies.jsonl"
        self.runtime = folder / "runtime"
        self.workers: list[SchedulerWorker] = []
        self.doubts: list[Blow] = []
        """Which processes were hit, and when: what they had in hand may be done again."""
        self.blows: Counter[str] = Counter()
        self.faults: list[Fault] = []
        self.failovers: list[float] = []
        """From the death of a planner to the next one."""
        self.wall = time.time() - time.monotonic()
        self.scheduler = Scheduler(url, application=APPLICATION, capacity=0)
        """To look and to ask with; it takes no part."""

    # Who takes part

    def add(
        self,
        *,
        wait: bool = True,
        env: Mapping[str, str] | None = None,
        jobs: Sequence[Job] | None = None,
        url: str | None = None,
        **scheduler: object,
    ) -> SchedulerWorker:
        """Start a worker; with `wait`, return when it takes part."""
        label = f"w{len(self.workers)}"
        options = {
            "url": url or self.url,
            "label": label,
            "log": str(self.log),
            "jobs": self.jobs if jobs is None else list(jobs),
            "scheduler": {**self.options, **scheduler},
        }
        worker = SchedulerWorker(label, options, {"TENURE_RUNTIME_DIR": str(self.runtime), **(env or {})})
        self.workers.append(worker.start())
        if wait:
            self.joined(worker)
        return worker

    def start(self, count: int, **more: Any) -> Self:
        """Start so many at once. The first makes the tables."""
        self.add(**more)
        added = [self.add(wait=False, **more) for _ in range(count - 1)]
        for worker in added:
            self.joined(worker)
        return self

    def joined(self, worker: SchedulerWorker) -> None:
        worker.wait_event(event="started", within=30)

    @property
    def alive(self) -> list[SchedulerWorker]:
        return [worker for worker in self.workers if worker.alive]

    @property
    def present(self) -> list[SchedulerWorker]:
        """Those that take part."""
        return [worker for worker in self.alive if any(event["event"] == "started" for event in worker.events)]

    def planner(self, *, within: float = 30.0) -> SchedulerWorker:
        """Wait until somebody plans: who."""
        found: list[SchedulerWorker] = []

        def somebody() -> bool:
            found[:] = [worker for worker in self.alive if worker.plans]
            return bool(found)

        self.eventually(somebody, within=within)
        return found[0]

    # Blows

    def struck(self, kind: str, target: str = "", lasts: float = 0.0) -> None:
        """Count a blow, and write it down. `target` is the label of a worker, or what else was hit."""
        planned = any(worker.label == target and worker.plans for worker in self.workers)
        self.blows[kind] += 1
        self.faults.append(Fault(kind, target, time.monotonic(), lasts, planned))

    def doubt(self, worker: SchedulerWorker) -> None:
        """What it has in hand from now on may be done again by another, until `mend`; until ever, if it is dead."""
        self.doubts.append(Blow(worker.pid, time.monotonic()))

    def kill(self, worker: SchedulerWorker) -> None:
        """kill -9."""
        self.struck("kill -9", worker.label)
        self.doubt(worker)
        worker.kill()

    def freeze(self, worker: SchedulerWorker) -> None:
        """SIGSTOP. What it has in hand may be done again by another."""
        self.struck("freeze", worker.label)
        self.doubt(worker)
        worker.freeze()

    def thaw(self, worker: SchedulerWorker) -> None:
        """SIGCONT."""
        self._ends(worker, time.monotonic())
        worker.thaw()

    def cut_off(self, worker: SchedulerWorker, how: str) -> None:
        """Its network is about to break."""
        self.struck(how, worker.label)
        self.doubt(worker)

    def mend(self, worker: SchedulerWorker) -> None:
        """Its network works again; until it has been told what it lost, it may go on with that."""
        self._ends(worker, time.monotonic() + self.options["ttl"])

    def fell(self, worker: SchedulerWorker, within: float = 30.0) -> None:
        """Wait until it has died of itself, as it was told to."""
        assert worker.wait(within=within) == -signal.SIGKILL, worker.story("ended otherwise than meant")
        self.struck("failpoint", worker.label)
        self.doubt(worker)

    def retire(self, worker: SchedulerWorker, within: float = 40.0) -> None:
        """SIGTERM, as a supervisor does."""
        self.struck("SIGTERM", worker.label)
        assert worker.terminate(within=within) == 0, worker.story("did not stop well")

    def _ends(self, worker: SchedulerWorker, at: float) -> None:
        last = next(blow for blow in reversed(self.doubts) if blow.pid == worker.pid)
        self.doubts[self.doubts.index(last)] = Blow(worker.pid, last.since, at)

    # Looking

    @property
    def lines(self) -> list[Line]:
        return chronicle.read(self.log)

    def now(self) -> float:
        """The real wall clock."""
        return time.monotonic() + self.wall

    def rows(self, since: float | None = None, until: float | None = None, job: str | None = None) -> list[RunRow]:
        """The runs in the ledger."""
        query = RunQuery(APPLICATION, job, since=since, before=until, limit=EVERYTHING, oldest_first=True)
        with self.scheduler.ledger() as ledger:
            return ledger.runs(query)

    def query(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """On the database itself; `?` for values."""
        if self.url.startswith("sqlite"):
            lite = sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=10, isolation_level=None)
            try:
                return lite.execute(sql, values).fetchall()
            finally:
                lite.close()
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(sql.replace("?", "%s").encode(), values)
            return cursor.fetchall() if cursor.description else []

    @property
    def prefix(self) -> str:
        """Before the names of our tables."""
        return "tenure_" if self.url.startswith("sqlite") else "tenure."

    def eventually(self, true: Callable[[], object], within: float = 30.0) -> None:
        """Wait for what no event announces, and tell what everybody said if it does not come."""
        try:
            scratch.eventually(true, within=within)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.stories()}") from None

    def settled(self, until: float, within: float = 60.0) -> None:
        """Wait until everything that was due before this instant has ended."""

        def all_ended() -> bool:
            time.sleep(0.1)
            return not any(row.state in OPEN for row in self.rows(until=until))

        self.eventually(all_ended, within)

    def stories(self) -> str:
        return "\n".join(worker.story() for worker in self.workers)

    # The verdict

    @property
    def grid(self) -> dict[str, float]:
        """Name and period of every job that the workers define."""
        found: dict[str, float] = {}
        for job in self.jobs:
            if "every" in job:
                copies = job.get("copies")
                names = [job["name"]] if copies is None else [f"{job['name']}-{n}" for n in range(copies)]
                found.update(dict.fromkeys(names, job["every"]))
        return found

    def judge(self, since: float, until: float) -> Verdict:
        """What became of all due times in [since, until)."""
        skips = frozenset(name for name in self.grid if name.startswith("skip"))
        return chronicle.judge(
            self.lines,
            self.rows(since, until),
            grid=self.grid,
            since=since,
            until=until,
            blows=self.doubts,
            may_skip=skips,
            wall=self.wall,
        )

    def verify(self, since: float, until: float) -> Verdict:
        """As `judge`, once everything has ended, with the ledger's own audit; raises what was broken."""
        self.settled(until)
        verdict = self.judge(since, until)
        try:
            verdict.verify()
            self.audited()
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.stories()}") from None
        return verdict

    def audited(self) -> None:
        """`scheduler.audit` is clean."""
        found = [line for job in self.scheduler.audit() if not job.clean for line in job.lines()]
        assert not found, "\n".join(found)

    def close(self) -> None:
        """End all workers, also frozen ones and those that others forked."""
        for worker in self.workers:
            worker.kill()


@contextmanager
def stage(folder: Path) -> Iterator[Callable[..., Scene]]:
    """A maker of scenes, each in a folder of its own; all their workers end with it."""
    scenes: list[Scene] = []

    def make(url: str, *, jobs: Sequence[Job], ttl: float = 2.0, **scheduler: object) -> Scene:
        place = folder / f"scene{len(scenes)}"
        place.mkdir()
        scenes.append(Scene(place, url, jobs=jobs, ttl=ttl, **scheduler))
        return scenes[-1]

    try:
        yield make
    finally:
        for scene in scenes:
            scene.close()
