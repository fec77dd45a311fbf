"""Plays with runs of all kinds: of jobs that follow others, share pools and look for something, requested runs for
later, slots, and runs that are retried."""

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from harness.scenes import APPLICATION, Job, Scene
from tenure.core.records import OPEN, IfWaiting, RunRow, RunState
from tenure.errors import StoreUnavailable

COPIES, CRANES = 6, 2
_ALLOW = {"overlap": "allow", "max_lost": 100, "grace": "1h"}
CHAIN: list[Job] = [
    {"name": "load", "every": 1, "copies": COPIES, "body": "wavers", "policy": {"overlap": "allow", "max_lost": 100}},
    {"name": "report", "after": "load", "copies": COPIES, "policy": {"pool": "crane", **_ALLOW}},
    {"name": "alarm", "after": "load", "copies": COPIES, "policy": {"on": "failure", **_ALLOW}},
    {"name": "tidy", "after": "report", "copies": COPIES, "policy": {"on": "end", **_ALLOW}},
]
"""Every job of a copy follows one of the same copy."""
KINDS: list[Job] = [
    *CHAIN,
    {"name": "file", "every": 2, "copies": 3, "body": "awaits", "for": 1.5, "again": 0.4, "policy": _ALLOW},
    {"name": "asked", "body": "note", "for": 0.05, "policy": {"overlap": "allow", "max_lost": 100, "pool": "crane"}},
]
"""Beside that, jobs that look for something, and one that is requested; some of all these share a pool."""
WANTED = {
    "success": {RunState.SUCCEEDED},
    "failure": {RunState.FAILED, RunState.LOST},
    "end": {RunState.SUCCEEDED, RunState.FAILED, RunState.LOST},
}
"""How the run of a parent ends that a follower wants."""


@dataclass
class People:
    """What people do meanwhile, and what they see in the ledger when they look."""

    scene: Scene
    dice: random.Random
    keys: set[str] = field(default_factory=set)
    """Of the runs that they requested."""
    retried: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Job and key of the runs that they retried."""
    seen: Counter[str] = field(default_factory=Counter)

    def busy(self, seconds: float) -> None:
        """Do something, look, and again."""
        until = time.monotonic() + seconds
        while True:
            try:
                self.dice.choice((self._ask, self._ask_for_slot, self._retry))()
            except StoreUnavailable:  # a frozen worker may have the file's lock
                self.seen["requests with an unknown outcome"] += 1
            self.look()
            if time.monotonic() >= until:
                return
            time.sleep(0.05)

    def _ask(self) -> None:
        """The same key twice is the same run."""
        key = f"key {self.dice.randrange(10**6)}"
        for _ in range(2):
            self.scene.scheduler.run_at("asked", in_=self.dice.choice((0.1, 1.0)), key=key)
        self.keys.add(key)

    def _ask_for_slot(self) -> None:
        words: IfWaiting = self.dice.choice(("keep", "replace", "later"))
        asked = self.scene.scheduler.run_at("asked", in_=0.2, slot=self.dice.choice("ab"), if_waiting=words)
        self.keys.add(asked.key)

    def _retry(self) -> None:
        failed = [row for row in self.scene.rows() if row.state is RunState.FAILED and row.id not in self.retried]
        if failed:
            row = self.dice.choice(failed)
            self.retried[row.id] = row.name, row.key
            self.scene.scheduler.retry(row.id)

    def look(self) -> None:
        """The pool has no more runs than places, and no slot has two that have not begun."""
        p = self.scene.prefix
        running = f"SELECT count(*) FROM {p}run WHERE state = 'running' AND pool = 'crane'"
        slots = f"SELECT slot, count(*) FROM {p}run WHERE slot IS NOT NULL AND attempt = 0 AND state IN ('pending', 'waiting') GROUP BY slot"
        ((cranes,),) = self.scene.query(running)
        most = max((int(count) for _, count in self.scene.query(slots)), default=0)
        self.seen["most in the pool"] = max(self.seen["most in the pool"], int(cranes))
        self.seen["most in a slot"] = max(self.seen["most in a slot"], most)
        assert int(cranes) <= CRANES, f"{cranes} runs are in the pool, {CRANES} may\n{self.scene.stories()}"
        assert most <= 1, f"{most} runs of a slot have not begun\n{self.scene.stories()}"


def kinds(scene: Scene, seconds: float, dice: random.Random) -> Counter[str]:
    """Kill, freeze and replace workers, while people request and retry runs. Everything is accounted for."""
    scene.planner()
    scene.scheduler.pool("crane", CRANES)
    people = People(scene, dice)
    until = time.monotonic() + seconds
    blows = dice.sample(BLOWS, len(BLOWS))
    while blows or time.monotonic() < until or not _enough(scene, people):
        (blows.pop() if blows else dice.choice(BLOWS))(people)
        people.busy(0.5 * dice.random())
    told = accounted(scene, people.retried.values()) + people.seen
    _requested(scene, people)
    told["retried"] = len(people.retried)
    told["requested"] = len(people.keys)
    return told


def _kill(people: People) -> None:
    people.scene.kill(people.dice.choice(people.scene.alive))
    people.scene.add()


def _freeze(people: People) -> None:
    worker = people.dice.choice(people.scene.alive)
    people.scene.freeze(worker)
    people.busy(1.5 * people.scene.options["ttl"])
    people.scene.thaw(worker)


def _roll(people: People) -> None:
    people.scene.add()
    people.scene.retire(people.scene.alive[0])


BLOWS: list[Callable[[People], None]] = [_kill, _freeze, _roll]


def _enough(scene: Scene, people: People) -> bool:
    """Each kind has been there, so that this proves something."""
    seen = Counter((row.name.partition("-")[0], row.state) for row in scene.rows())
    return (
        min(seen["report", RunState.SUCCEEDED], seen["alarm", RunState.SUCCEEDED], len(people.keys)) >= 10
        and min(seen["report", RunState.SKIPPED], seen["file", RunState.SUCCEEDED], len(people.retried)) >= 3
    )


def _requested(scene: Scene, people: People) -> None:
    """Every request has its run, and a retried run is the same run."""
    rows = scene.rows()
    asked = Counter(row.key for row in rows if row.name == "asked")
    unknown = people.seen["requests with an unknown outcome"]
    assert people.keys <= set(asked), f"{people.keys - set(asked)}\n{scene.stories()}"
    assert len(asked) <= len(people.keys) + unknown, f"{set(asked) - people.keys}\n{scene.stories()}"
    assert {(row.name, row.key) for row in rows if row.id in people.retried} == set(people.retried.values())
    for row in rows:
        if row.name == "asked" or (row.name.startswith("file-") and row.state not in OPEN):
            assert row.state is RunState.SUCCEEDED, row
            assert row.failures == 0, row
    looks = sum(row.looks for row in rows)
    assert looks > 0, "nothing was looked for"


def accounted(scene: Scene, retried: object = ()) -> Counter[str]:
    """Everything has ended and is paid for. Returns what became of the followers' runs."""

    def paid() -> bool:
        with scene.scheduler._service.ledger() as ledger:
            return not ledger.owed(scene.scheduler.application, 1)

    until = scene.now() + 1.0  # what is requested for later begins within it
    scene.eventually(lambda: scene.now() > until)
    for _ in range(3):  # along the chain
        scene.settled(until)
        scene.eventually(paid)
    rows = {(row.name, row.key): row for row in scene.rows()}
    told: Counter[str] = Counter()
    for (name, key), row in rows.items():
        kind, _, number = name.partition("-")
        if row.state in OPEN or row.scheduled_for >= until:
            continue
        for job in (job for job in CHAIN if job.get("after") == kind):
            mine = rows.get((f"{job['name']}-{number}", key))
            assert mine is not None, f"{job['name']} has nothing for {name} {key}\n{scene.stories()}"
            assert mine.scheduled_for == row.scheduled_for, (mine, row)
            if row.state in WANTED[str(job["policy"].get("on", "success"))]:
                assert mine.state is RunState.SUCCEEDED, (mine, row)
            elif (name, key) not in set(retried):  # type: ignore[call-overload]
                assert mine.state is RunState.SKIPPED, (mine, row)
                assert mine.reason.startswith("after: load"), mine
            told[f"{job['name']} {mine.state}"] += 1
    starts = Counter((line.job, line.key, line.attempt) for line in scene.lines if line.what == "start")
    assert max(starts.values()) == 1, "no attempt twice"
    effects = Counter((row.job, row.key) for row in scene.table)
    assert max(effects.values()) == 1, "nothing that has succeeded runs again"
    overdue = [line for job in scene.audited() for line in job.lines() if "OVERDUE" in line]
    assert overdue == []
    return told


LONG_FOR_NOW: list[Job] = [
    {"name": "tick", "every": 2, "body": "wavers", "policy": {"overlap": "allow"}},
    {"name": "report", "after": "tick", "policy": {"pool": "crane", "overlap": "allow"}},
    {"name": "alarm", "after": "tick", "policy": {"on": "failure"}},
    {"name": "quiet", "after": "tick", "policy": {"overlap": "allow"}},
    {"name": "long", "every": 20, "body": "note", "for": 45},
    {"name": "longer", "every": 30, "body": "note", "for": 200, "policy": {"overlap": "wait"}},
    {"name": "replaced", "every": 15, "body": "obliging", "for": 60, "policy": {"overlap": "replace"}},
    {"name": "tidy", "after": "long", "policy": {"on": "end"}},
    *({"name": f"load-{n}", "every": 10, "body": "note", "for": 8, "policy": {"pool": "dock"}} for n in range(2)),
    {"name": "unload", "every": 10, "body": "note", "for": 8, "policy": {"pool": "dock", "overlap": "wait"}},
    {"name": "repair", "every": 60, "body": "note", "for": 300, "policy": {"pool": "yard", "overlap": "wait"}},
    {"name": "paint", "every": 60, "body": "note", "for": 5, "policy": {"pool": "yard", "overlap": "allow"}},
    {"name": "late file", "every": 30, "body": "awaits", "for": 20, "again": 3, "policy": {"overlap": "allow"}},
    {"name": "no file", "every": 60, "body": "awaits", "for": 1e9, "again": 5, "policy": {"overlap": "wait"}},
    {"name": "seldom", "every": 60, "body": "awaits", "for": 1e9, "again": 600, "policy": {"overlap": "allow"}},
    {"name": "given up", "every": 20, "body": "awaits", "for": 1e9, "again": 2, "policy": {"wait_up_to": 12}},
    {"name": "paused", "every": 5, "body": "note"},
    {"name": "paused for a minute", "every": 5, "body": "note"},
    {"name": "asked", "body": "note", "for": 1},
]
"""Jobs that are slow, wait or are paused, and nothing is wrong with them."""
LASTING = frozenset({"long", "waiting for its job", "waiting for its pool", "paused", "NotYet", "later", "followed"})
"""What a ledger of these jobs has in it nearly always."""
LATELY = 1800.0
"""Seconds in which all of these runs were due."""


def healthy(
    scene: Scene, seconds: float, every: float, tell: Callable[[Counter[str]], None] = lambda _: None
) -> Counter[str]:
    """Nothing is broken, so `tenure status` and `tenure audit` exit with 0 at every look. How often each kind of run
    was there when they looked; `tell` hears that after each look."""
    scene.planner()
    scene.scheduler.pause("paused", why="until the move is over")
    scene.scheduler.pause("quiet")
    seen: Counter[str] = Counter()
    until = time.monotonic() + seconds
    while time.monotonic() < until or not seen.keys() >= LASTING:
        if seen["looks"] % 9 == 0:
            scene.scheduler.pause("paused for a minute", until="60s")
            scene.scheduler.run_at("asked", in_=every)
        scene.scheduler.run_at("asked", in_="2h", slot="far", if_waiting="later")
        for command in ("status", "audit"):
            _well(scene, command)
        seen["looks"] += 1
        seen.update(_kinds(scene))
        tell(seen)
        time.sleep(every)
    return seen


def _well(scene: Scene, command: str) -> None:
    """A command of the operator, in a process of its own."""
    words = [sys.executable, "-m", "tenure", command, "--url", scene.url, "--app", APPLICATION]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 0, (
        f"{command} exits with {done.returncode}\n{done.stdout}{done.stderr}\n{scene.stories()}"
    )


def _kinds(scene: Scene) -> set[str]:
    """Which kinds of runs the ledger has at this moment."""
    now = scene.now()
    found = {kind for row in scene.rows(since=now - LATELY) for kind in _kind(row, now)}
    if any(job.state == "paused" for job in scene.scheduler.jobs()):
        found.add("paused")
    return found


def _kind(row: RunRow, now: float) -> set[str]:
    match row.state:
        case RunState.RUNNING if row.started_at is None and row.claimed_at is not None and row.claimed_at < now - 5:
            return {"long"}
        case RunState.WAITING:
            return {"waiting for its pool" if row.pool else "waiting for its job"}
        case RunState.PENDING if row.last_look and row.last_look == row.attempt:
            return {"NotYet"}
        case RunState.PENDING if row.scheduled_for > now + 60:
            return {"later"}
        case RunState.SUCCEEDED if row.name == "report":
            return {"followed"}
        case _:
            return set()
