"""Jobs and due times for a scheduler to work on, written through the ledger's own operations; and processes that work
on them."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from harness import scratch
from tenure.core.messages import JobChange, RunQuery
from tenure.core.planning import plan
from tenure.core.records import Change, Instant, JobSpec, Rules
from tenure.stores import store_for
from tenure.stores.ledger import Ledger
from tenure.triggers import Trigger, cron, every, from_json, tzdata_version

HERE = Path(__file__).resolve().parent
APPLICATION, FUNCTION = "bench", "body"
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
PATIENCE = 60.0
BATCH, ENTERED = 200, 5000


@contextmanager
def ledger_of(url: str) -> Iterator[Ledger]:
    """A ledger with all the time that it wants."""
    store = store_for(url)
    store.prepare()
    session = store.session("bench", PATIENCE)
    try:
        yield session.ledger
    finally:
        session.close()


def spec(name: str, trigger: Trigger, rules: Rules, application: str = APPLICATION) -> JobSpec:
    return JobSpec(application, name, FUNCTION, trigger.to_json(), rules, in_code=False, tzdata=tzdata_version())


def enter(ledger: Ledger, changes: Sequence[JobChange]) -> None:
    """Many jobs at once."""
    for begin in range(0, len(changes), ENTERED):
        chunk = changes[begin : begin + ENTERED]
        ledger.sync(chunk[0].application, 0, chunk)


def spread(count: int, period: int = 1) -> list[Trigger]:
    """Jobs of one period, their phases spread evenly over it."""
    return [
        every(seconds=period, anchor=EPOCH + timedelta(microseconds=index * period * 1_000_000 // count))
        for index in range(count)
    ]


def together(count: int, period: int = 2) -> list[Trigger]:
    """Jobs that are all due at the same instants."""
    return [every(seconds=period, anchor=EPOCH)] * count


def enter_from_soon(url: str, triggers: Sequence[Trigger], planned: float = 0.0) -> Instant:
    """Enter these jobs, due from an instant on that lies just ahead, and plan so many seconds of them; returns that
    instant."""
    rules = Rules()
    with ledger_of(url) as ledger:
        begin = ledger.now() // 1 + 2 + len(triggers) // 500
        changes = []
        for index, trigger in enumerate(triggers):
            job = spec(f"job-{index}", trigger, rules)
            due = trigger.following(begin)
            changes.append(JobChange(APPLICATION, job.name, Change.ADDED, spec=job, next_due=due))
        enter(ledger, changes)
        if planned:
            plan_up_to(ledger, begin + planned)
    return begin


def backlog(url: str, jobs: int, each: int) -> int:
    """Enter jobs that were due every minute while nobody was there; all of it is wanted, however late. Returns how many
    runs wait."""
    rules = Rules(overlap="allow", max_running=None, grace=86400.0)
    minutely = cron("* * * * *", "UTC")
    with ledger_of(url) as ledger:
        now = ledger.now()
        first = now // 60 * 60 - (each - 1) * 60
        enter(
            ledger,
            [
                JobChange(
                    APPLICATION,
                    f"job-{index}",
                    Change.ADDED,
                    spec=spec(f"job-{index}", minutely, rules),
                    next_due=first,
                )
                for index in range(jobs)
            ],
        )
        return plan_up_to(ledger, now)


def crowd(url: str, jobs: int) -> int:
    """Enter jobs with the default policies, each of which was due once, a moment ago."""
    with ledger_of(url) as ledger:
        now, rules = ledger.now(), Rules(grace=86400.0)
        once = every(days=1, anchor=datetime.fromtimestamp(now // 1 - 5, UTC))
        enter(
            ledger,
            [
                JobChange(
                    APPLICATION,
                    f"job-{index}",
                    Change.ADDED,
                    spec=spec(f"job-{index}", once, rules),
                    next_due=now // 1 - 5,
                )
                for index in range(jobs)
            ],
        )
        return plan_up_to(ledger, now)


def plan_up_to(ledger: Ledger, horizon: Instant) -> int:
    """As a planner does it, job after job, and nothing is due afterwards; returns how many due times were written."""
    written = 0
    while jobs := ledger.unplanned(APPLICATION, before=horizon, limit=BATCH):
        found = [
            plan(job, from_json(job.trigger), application=APPLICATION, now=horizon, horizon=horizon) for job in jobs
        ]
        written += ledger.plan([replace(planned, then_due=None) for planned in found if planned is not None])
    return written


def endings(url: str, since: Instant, before: Instant) -> Counter[str]:
    """How the runs of a stretch of time stand in the ledger."""
    with ledger_of(url) as ledger:
        query = RunQuery(APPLICATION, since=since, before=before, limit=1_000_000)
        return Counter(str(run.state) for run in ledger.runs(query))


@dataclass(frozen=True, slots=True)
class Start:
    """A body began."""

    at: float
    due: Instant


class Player:
    """A process that works until it is told to end: `ready` once it takes part, then a report of what it did."""

    def __init__(self, script: str, *args: object) -> None:
        self._log = scratch.new_folder("bench") / "stderr"
        paths = [str(HERE), str(HERE.parent / "tests/support"), os.environ.get("PYTHONPATH")]
        with self._log.open("wb") as errors:
            self._process = subprocess.Popen(
                [*scratch.dies_with_us(), sys.executable, HERE / script, *map(str, args)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def ready(self) -> Self:
        self.hear()
        return self

    def hear(self) -> dict[str, Any]:
        """Its next line."""
        assert self._process.stdout
        limit = threading.Timer(PATIENCE, self._process.kill)
        limit.start()
        line = self._process.stdout.readline()
        limit.cancel()
        if not line:
            raise RuntimeError(f"{self._process.args} ended early:\n{scratch.tail(self._log)}")
        heard: dict[str, Any] = json.loads(line)
        return heard

    def ask(self) -> dict[str, Any]:
        """Ask it how it is doing; its report."""
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self.hear()

    def end(self) -> dict[str, Any]:
        """Tell it to end; its report."""
        assert self._process.stdin
        self._process.stdin.close()
        return self.hear()


def starts(report: dict[str, Any]) -> list[Start]:
    """When bodies began, of a report."""
    return [Start(at, due if isinstance(due, float) else instant(due)) for at, due in report["starts"]]


def instant(key: str) -> Instant:
    return datetime.fromisoformat(key).timestamp()


def watch(
    players: Sequence[Player],
    *,
    warm: float,
    rounds: int,
    seconds: float,
    since: Instant = 0.0,
    over: Callable[[Instant, Instant], bool] = lambda _begin, _end: True,
) -> tuple[list[Start], list[Instant]]:
    """Let players work; what began, and where the rounds begin and end. The first begins at a whole second after the
    warm-up.

    They go on until all that was due in the rounds is `over`, but not for ever: what is then still open is told as
    such.
    """
    for player in players:
        player.ready()
    begin = float(int(max(time.time(), since) + warm) + 1)
    bounds = [begin + index * seconds for index in range(rounds + 1)]
    time.sleep(max(bounds[-1] + 0.3 - time.time(), 0.0))
    with suppress(TimeoutError):
        scratch.eventually(lambda: over(begin, bounds[-1]), within=PATIENCE, what="the last ending of the rounds")
    return [start for player in players for start in starts(player.end())], bounds


def windows(begun: Sequence[Start], bounds: Sequence[Instant]) -> list[list[float]]:
    """Lateness, round by round."""
    return [
        [start.at - start.due for start in begun if begin <= start.due < end]
        for begin, end in itertools.pairwise(bounds)
    ]
