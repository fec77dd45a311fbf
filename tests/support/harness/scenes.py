"""Schedulers of one application as real processes, what is done to them, and the verdict over what they did."""

import itertools
import json
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import psycopg

from harness import chronicle, scratch
from harness.chronicle import Blow, Grid, Line, Row, Verdict
from harness.processes import SUPPORT, Worker
from harness.tallies import Fault, Term
from tenure.core.audit import JobAudit
from tenure.core.messages import RunQuery
from tenure.core.planning import spread_of
from tenure.core.records import OPEN, RunRow
from tenure.scheduler import Scheduler

SCRIPT = SUPPORT / "workers" / "scheduler_worker.py"
APPLICATION = "scene"
EVERYTHING = 1_000_000

Job = Mapping[str, Any]
"""`{"name": "a", "every": 2, "copies": 200, "body": "note", "for": 0.1, "policy": {"overlap": "allow"}}`; see
scheduler_worker.py.

Without a `body`, one that is due again and again writes into the table."""
on_stage: "list[Scene]" = []
"""Whatever is played at this moment."""


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


class Broken(AssertionError):
    """A promise was broken; what was seen all the same."""

    def __init__(self, story: str, scene: "Scene", verdict: Verdict) -> None:
        super().__init__(story)
        self.scene, self.verdict = scene, verdict


class Scene:
    """Several workers. Options of the scheduler are keywords: `Scene(tmp_path, url, jobs=[…], ttl=2, capacity=8)`."""

    def __init__(
        self,
        folder: Path,
        url: str,
        *,
        jobs: Sequence[Job],
        ttl: float = 2.0,
        constants: Mapping[str, object] | None = None,
        alerts: Mapping[str, Any] | None = None,
        **scheduler: object,
    ) -> None:
        self.alerts = alerts
        self.url, self.jobs, self.constants = url, _with_bodies(jobs), constants or {}
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
        self.began = time.monotonic()
        self.wall = time.time() - self.began
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
        if not self.workers:
            self.make_table()
        label = f"w{len(self.workers)}"
        options = {
            "url": url or self.url,
            "label": label,
            "log": str(self.log),
            "jobs": self.jobs if jobs is None else _with_bodies(jobs),
            "scheduler": {**self.options, **scheduler},
            "constants": self.constants,
            "alerts": self.alerts,
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

    def struck(self, kind: str, target: str = "", lasts: float = 0.0, at: float | None = None) -> None:
        """Count a blow, and write it down.

        `target` is the label of a worker, or what else was hit; `at` is when, if not now.
        """
        hit = [worker for worker in self.workers if worker.label == target]
        self.blows[kind] += 1
        self.faults.append(
            Fault(
                kind,
                target,
                time.monotonic() if at is None else at,
                lasts,
                on_worker=bool(hit),
                on_planner=any(worker.plans for worker in hit),
                alone=not [worker for worker in self.present if worker not in hit],
            )
        )

    def doubt(self, worker: SchedulerWorker) -> None:
        """What it has in hand from now on may be done again by another, until `mend`; until ever, if it is dead."""
        self.doubts.append(Blow(worker.pid, time.monotonic(), kind=self.faults[-1].kind if self.faults else ""))

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
        said = [event["at"] for event in worker.events if event["event"] == "dies"]
        self.struck("failpoint", worker.label, at=said[-1])
        self.doubt(worker)

    def retire(self, worker: SchedulerWorker, within: float = 40.0) -> None:
        """SIGTERM, as a supervisor does."""
        self.struck("SIGTERM", worker.label)
        assert worker.terminate(within=within) == 0, worker.story("did not stop well")

    def _ends(self, worker: SchedulerWorker, at: float) -> None:
        last = next(blow for blow in reversed(self.doubts) if blow.pid == worker.pid)
        self.doubts[self.doubts.index(last)] = replace(last, until=at)
        for number, fault in enumerate(self.faults):
            if fault.target == worker.label and fault.at <= last.since and not fault.lasts:
                self.faults[number] = replace(fault, lasts=time.monotonic() - fault.at)

    # Looking

    @property
    def lines(self) -> list[Line]:
        return chronicle.read(self.log)

    @property
    def table(self) -> list[Row]:
        return [Row(*row) for row in self.query("SELECT job, due, key, attempt FROM effects ORDER BY id")]

    def make_table(self) -> None:
        """The application's own; nothing is unique in it."""
        number = "INTEGER PRIMARY KEY AUTOINCREMENT" if self.url.startswith("sqlite") else "bigserial PRIMARY KEY"
        columns = "job text NOT NULL, due double precision NOT NULL, key text NOT NULL, attempt int NOT NULL"
        self.query(f"CREATE TABLE IF NOT EXISTS effects (id {number}, {columns})")

    @property
    def terms(self) -> list[Term]:
        """Who planned, and from when to when: until it said otherwise, or died."""
        deaths = {fault.target: fault.at for fault in self.faults if fault.kind in {"kill -9", "failpoint"}}
        found: list[Term] = []
        for worker in self.workers:
            said = [event for event in worker.events if event["event"] in {"plans", "rests", "stopped"}]
            for event, following in itertools.zip_longest(said, said[1:]):
                if event["event"] == "plans":
                    until = deaths.get(worker.label, time.monotonic()) if following is None else following["at"]
                    found.append(Term(worker.label, event["at"], until))
        return sorted(found, key=lambda term: term.since)

    def now(self) -> float:
        """The real wall clock."""
        return time.monotonic() + self.wall

    def rows(self, since: float | None = None, until: float | None = None, job: str | None = None) -> list[RunRow]:
        """The runs in the ledger."""
        query = RunQuery(APPLICATION, job, since=since, before=until, limit=EVERYTHING, oldest_first=True)
        with self.scheduler._service.ledger() as ledger:
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

        still_open = RunQuery(APPLICATION, states=tuple(OPEN), before=until, limit=1)

        def all_ended() -> bool:
            time.sleep(0.1)
            with self.scheduler._service.ledger() as ledger:
                return not ledger.runs(still_open)

        self.eventually(all_ended, within)

    def stories(self) -> str:
        return "\n".join(worker.story() for worker in self.workers)

    # The verdict

    @property
    def grids(self) -> dict[str, Grid]:
        """What is asked of every job that the workers define."""
        found: dict[str, Grid] = {}
        for job in self.jobs:
            if "every" in job:
                copies, policy = job.get("copies"), job.get("policy", {})
                for name in [job["name"]] if copies is None else [f"{job['name']}-{n}" for n in range(copies)]:
                    found[name] = Grid(
                        job["every"],
                        spread_of(APPLICATION, name, policy.get("spread", 0.0)),
                        in_table=job["body"] == "writes",
                        may_skip=policy.get("overlap", "skip") == "skip",
                    )
        return found

    def judge(self, since: float, until: float) -> Verdict:
        """What became of all due times in [since, until), seen from outside."""
        return chronicle.judge(
            self.lines, self.table, grids=self.grids, since=since, until=until, blows=self.doubts, wall=self.wall
        )

    def verify(self, since: float, until: float) -> Verdict:
        """As `judge`, once everything has ended; then the ledger and its audit must agree. Raises what was broken."""
        self.settled(until)
        verdict = self.judge(since, until)
        try:
            verdict.verify()
            self.agrees(verdict, since, until)
        except AssertionError as error:
            raise Broken(f"{error}\n{self.stories()}", self, verdict) from None
        return verdict

    def agrees(self, verdict: Verdict, since: float, until: float) -> None:
        """The ledger and its audit say what was seen outside, and nothing else."""
        found = list(chronicle.disagreements(verdict, self.rows(since, until)))
        counted: Counter[str] = Counter()
        for job in self.audited(datetime.fromtimestamp(since, UTC), datetime.fromtimestamp(until, UTC)):
            counted.update({kind.partition("(")[0]: count for kind, count in job.counts.items()})
        seen = Counter({{"ran": "succeeded"}.get(state, state): count for state, count in verdict.states.items()})
        if counted != seen:
            found.append(f"the audit counts {dict(counted)}, and outside there are {dict(seen)}")
        assert not found, f"{len(found)} disagreements with the ledger\n" + "\n".join(found[:40])

    def audited(self, since: datetime | str = "-1d", until: datetime | None = None) -> list[JobAudit]:
        """`scheduler.audit`, which must be clean."""
        audits = self.scheduler.audit(since=since, until=until)
        found = [line for job in audits if not job.clean for line in job.lines()]
        assert not found, "\n".join(found)
        return audits

    def close(self) -> None:
        """End all workers, also frozen ones and those that others forked."""
        for worker in self.workers:
            worker.kill()


@contextmanager
def stage(folder: Path) -> Iterator[Callable[..., Scene]]:
    """A maker of scenes, each in a folder of its own; all their workers end with it."""
    scenes: list[Scene] = []

    def make(url: str, *, jobs: Sequence[Job], **options: Any) -> Scene:
        place = folder / f"scene{len(scenes)}"
        place.mkdir()
        scenes.append(Scene(place, url, jobs=jobs, **options))
        on_stage.append(scenes[-1])
        return scenes[-1]

    try:
        yield make
    finally:
        for scene in scenes:
            scene.close()
            on_stage.remove(scene)


def _with_bodies(jobs: Sequence[Job]) -> list[Job]:
    return [{"body": "writes" if "every" in job else "note", **job} for job in jobs]
