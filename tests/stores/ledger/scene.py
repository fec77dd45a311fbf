"""A ledger, nodes and jobs driven by hand. Time is told as seconds ago, so that the same scene plays on a real server's clock."""

import math
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tenure.core.cluster import Beat, BeatVerdict, NodeCard
from tenure.core.messages import (
    Claimed,
    ClaimedRun,
    ClaimRequest,
    Ended,
    Ending,
    JobChange,
    LogLine,
    NewRun,
    Planned,
    Reconciled,
    RunQuery,
    RunRequest,
)
from tenure.core.records import Change, Instant, JobRow, JobSpec, Rules, RunId, RunRow, RunState
from tenure.stores import Session, Store
from tenure.stores.host_lock import LockFile
from tenure.stores.ledger import Ledger
from tenure.triggers import every
from tenure.util.clock import boottime, sleep

HOURLY = every("1h").to_json()
DAILY = every("1d").to_json()
SOON = 3600.0


class Worker:
    """A node with a session of its own. It remembers the token of what it claimed."""

    def __init__(self, store: Store, application: str, label: str, ttl: float = 30.0) -> None:
        self.id = str(uuid.uuid4())
        self.application = application
        self.label = label
        self.session: Session = store.session("test", timeout=5.0)
        self.ledger: Ledger = self.session.ledger
        self.tokens: dict[RunId, str] = {}
        self.lock: LockFile | None = None
        if store.pulse_in_file:
            assert store.evidence_directory is not None
            self.lock = LockFile(store.evidence_directory, self.id)
            self.session.use_lock_file(self.lock)
        self.session.join(NodeCard(self.id, label, ttl, self.lock.card() if self.lock else None))
        assert self.session.beat(Beat(self.id, 1, boottime(), boottime() + 8, None, ())).verdict is BeatVerdict.RENEWED

    def claim(
        self,
        limit: int = 10,
        *,
        functions: tuple[str, ...] | None = None,
        queues: tuple[str, ...] | None = None,
        as_of: Instant | None = None,
    ) -> Claimed:
        token = str(uuid.uuid4())
        request = ClaimRequest(self.id, self.application, token, limit, functions, queues, as_of)
        claimed = self.ledger.claim(request)
        self.tokens |= {run.id: token for run in claimed.runs}
        return claimed

    def take(self) -> ClaimedRun:
        """Claim what must be the only due run."""
        (run,) = self.claim().runs
        return run

    def ending(self, run: RunId, state: RunState = RunState.SUCCEEDED, **more: Any) -> Ending:
        return Ending(run, self.tokens[run], state, **more)

    def finish(self, run: RunId, state: RunState = RunState.SUCCEEDED, **more: Any) -> Ended:
        (ended,) = self.ledger.finish([self.ending(run, state, **more)])
        return ended

    def keep_log(self, run: RunId, *lines: str, attempt: int = 1, first: int = 0) -> None:
        at = self.ledger.now()
        self.ledger.keep_log([LogLine(run, attempt, place, at, line) for place, line in enumerate(lines, first)])

    def reconcile(self, *, stopping: bool = False) -> Reconciled:
        return self.ledger.reconcile(self.id, self.application, stopping=stopping)

    def interrupt(self, run: RunId, at: Instant) -> Ended:
        """The stop of this node has interrupted a body that was called at this instant."""
        return self.finish(run, RunState.PENDING, started_at=at)

    def close(self) -> None:
        self.session.close()
        if self.lock:
            self.lock.remove()


class Scene:
    """One application of its own in a store that others may use too. `start` is a whole second, about now, by the ledger's clock."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.application = f"app {uuid.uuid4()}"
        self.session = store.session("test", timeout=5.0)
        self.ledger: Ledger = self.session.ledger
        self.start = float(math.floor(self.ledger.now()))
        self.workers: list[Worker] = []

    def worker(self, label: str = "a worker") -> Worker:
        self.workers.append(Worker(self.store, self.application, label))
        return self.workers[-1]

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        self.session.close()

    def spec(
        self,
        name: str = "job",
        *,
        function: str = "f",
        trigger: str | None = HOURLY,
        kwargs: str = "{}",
        in_code: bool = True,
        release: int = 0,
        tzdata: str = "",
        **rules: Any,
    ) -> JobSpec:
        return JobSpec(self.application, name, function, trigger, Rules(**rules), kwargs, in_code, release, tzdata)

    def change(self, what: Change, name: str = "job", **more: Any) -> JobRow | None:
        return self.ledger.change(JobChange(self.application, name, what, **more))

    def add(self, name: str = "job", *ago: float, next_due: float | None = None, **spec: Any) -> JobRow:
        """A job, with due times so many seconds ago that do not expire."""
        added = self.change(
            Change.ADDED,
            name,
            spec=self.spec(name, **spec),
            next_due=self.start + SOON if next_due is None else next_due,
            runs=tuple(self.new(seconds) for seconds in ago),
        )
        assert added is not None
        return added

    def new(self, ago: float, *, due_ago: float | None = None, expired_ago: float | None = None, **more: Any) -> NewRun:
        expires_at = None if expired_ago is None else self.at(expired_ago)
        return NewRun(self.at(ago), self.at(ago if due_ago is None else due_ago), expires_at, **more)

    def expiring(self, ago: float) -> NewRun:
        """A due time that counts as missed in half a second, see `wait_for_expiry`."""
        self.expires = round(self.ledger.now() + 0.5, 6)
        return replace(self.new(ago), expires_at=self.expires)

    def wait_for_expiry(self) -> None:
        while (left := self.expires - self.ledger.now()) >= 0:
            sleep(left + 0.01)

    def at(self, ago: float) -> Instant:
        return round(self.start - ago, 6)

    def plan(self, name: str, *runs: NewRun | float) -> int:
        """Write these due times as a planner would, and move `next_due` on by a second."""
        job = self.job(name)
        assert job.next_due is not None
        new = tuple(run if isinstance(run, NewRun) else self.new(run) for run in runs)
        return self.ledger.plan([Planned(job.id, job.generation, job.next_due, job.next_due + 1, new)])

    def pause(self, name: str = "job", **more: Any) -> JobRow | None:
        return self.change(Change.PAUSED, name, **more)

    def resume(self, name: str = "job", next_due: float | None = None) -> JobRow | None:
        return self.change(Change.RESUMED, name, next_due=self.start + SOON if next_due is None else next_due)

    def remove(self, name: str = "job", **more: Any) -> JobRow | None:
        return self.change(Change.REMOVED, name, **more)

    def request(self, name: str = "job", key: str | None = None, **more: Any) -> RunRequest:
        return RunRequest(self.application, name, key or str(uuid.uuid4()), more.pop("scheduled_for", None), **more)

    def ask(self, name: str = "job", key: str | None = None, **more: Any) -> RunRow | None:
        (answer,) = self.ledger.request_runs([self.request(name, key, **more)])
        return answer

    def job(self, name: str = "job") -> JobRow:
        (row,) = self.ledger.jobs(self.application, name, removed=True)
        return row

    def runs(self, name: str | None = "job", states: Sequence[RunState] = (), limit: int = 10_000) -> list[RunRow]:
        """Oldest first."""
        return self.ledger.runs(RunQuery(self.application, name, states=tuple(states), limit=limit, oldest_first=True))

    def run(self, run: RunId) -> RunRow:
        (row,) = self.ledger.runs(RunQuery(self.application, id=run))
        return row

    def logged(self, run: RunId) -> list[str]:
        return [line.text for line in self.ledger.log(run)]

    def told(self, name: str = "job") -> list[str]:
        """What the ledger says of the runs of a job, oldest first: 'running', 'skipped(overlap)' …"""
        return [f"{run.state}({run.reason})" if run.reason else str(run.state) for run in self.runs(name)]
