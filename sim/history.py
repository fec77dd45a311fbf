"""One history: what is drawn for a seed, and how it is played."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

from sim import application, checks, copies, fakes, hosts
from sim.application import Setting
from sim.checks import Checker
from sim.kernel import K, Process
from sim.network import NEVER, Network, Placed, Weather
from sim.server import Server
from sim.store import SimStore
from tenure.model import Cadence

CADENCE = Cadence.of(5.0, heartbeat_every=1.0, attempt_timeout=1.0, session_grace=2.0)
BEGINNING, TROUBLE, CALM = 3.0, 30.0, 22.0
"""Seconds until the first fault, from there to the last, and from there to the end."""
KINDS = {
    "crash": 5, "freeze": 6, "cut": 4, "kill session": 4, "stop": 2, "server crash": 1, "resign": 5, "wall": 1,
    "pause": 1, "resume": 1, "update": 1, "ask": 2, "cancel": 1, "storm": 1, "slow clock": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong, or that somebody does, at a moment."""

    at: float
    kind: str
    whom: int = 0
    long: float = 0.0
    job: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """A history before it is played. `faults` can be taken out one by one."""

    seed: object
    nodes: int
    hosts: tuple[int, ...]
    rates: tuple[float, ...]
    jobs: tuple[str, ...]
    weather: Weather
    faults: tuple[Fault, ...]
    placed: tuple[Placed, ...] = ()
    host_evidence: bool = True
    session_evidence: bool = True
    hesitation: float = 0.0
    trouble: float = TROUBLE
    calm: float = CALM
    rate: float = 1.0
    """Of the server's clock."""
    cadence: Cadence = CADENCE
    leaves: float = 0.35
    """How likely a leader steps down of its own will at each turn."""


@dataclass(slots=True)
class Outcome:
    """What became of it."""

    plan: Plan
    violations: list[str]
    seconds: float
    events: int
    faults: int
    terms: int
    attempts: int
    lines: list[str] = field(default_factory=list)


def draw(seed: object, *, faults: int | None = None) -> Plan:
    """The history of a seed."""
    rng = random.Random(f"plan {seed}")
    nodes = rng.choice((3, 3, 4, 5))
    hosts = tuple(rng.randrange(rng.choice((1, 2, nodes))) for _ in range(nodes))
    jobs = tuple(rng.sample(sorted(application.JOBS), 3))
    bad = rng.choice((0.0, 0.0, 0.005, 0.02))
    ops = ("beat", "claim", "roll_call", "finish", "acquire", "release", "put_back", "declare", "plan", "check")
    weather = Weather(
        latency=rng.choice((0.0005, 0.002, 0.01)),
        lost=bad * rng.random(),
        slow=bad * rng.random() * 2,
        late=bad * rng.random(),
        held_up=rng.choice((0.0, 0.01, 0.05)),
        worst=rng.choice(ops),
        worse=rng.choice((1.0, 10.0, 25.0)),
    )
    kinds, weights = zip(*KINDS.items(), strict=True)
    count = faults or rng.randrange(24, 34)
    drawn = [
        Fault(
            round(rng.uniform(BEGINNING, BEGINNING + TROUBLE), 3),
            kind,
            rng.randrange(nodes),
            round(rng.choice((0.3, 1.0, 3.0, 6.0, 9.0)) * rng.uniform(0.7, 1.3), 2),
            rng.choice(jobs),
        )
        for kind in rng.choices(kinds, weights, k=count)
    ]
    if rng.random() < 0.12:
        drawn.append(Fault(round(rng.uniform(8, TROUBLE), 3), "failover", 0, round(rng.uniform(0.1, 2.0), 2)))
    if rng.random() < 0.1:
        drawn.append(Fault(round(rng.uniform(8, TROUBLE), 3), "step", 0, rng.choice((-30.0, -3.0, 5.0, 40.0))))
        # The audit takes changes in the order of their times, which go backwards here.
        drawn = [fault for fault in drawn if fault.kind not in {"update", "pause", "resume"}]
    return Plan(
        seed,
        nodes,
        hosts,
        tuple(round(rng.uniform(0.9, 1.1), 3) for _ in range(nodes)),
        jobs,
        weather,
        tuple(sorted(drawn, key=lambda fault: fault.at)),
        host_evidence=rng.random() < 0.5,
        session_evidence=rng.random() < 0.4,
        hesitation=rng.choice((0.0, 0.002, 0.01)),
        rate=round(rng.uniform(0.98, 1.02), 3),
    )


class Play:
    """A history on its way."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        K.reset(plan.seed, hesitation=plan.hesitation)
        fakes.reset()
        copies.reset()
        self.server = Server(plan.cadence.ttl)
        self.server.clock.rate = plan.rate
        self.network = Network(plan.weather, [replace(placed, begun=False) for placed in plan.placed])
        self.checker = Checker(self.server)
        self.server.checker = self.checker
        self.server.gap = self.network.gap
        self.server.heard = self._heard
        self.unwatch = checks.watch(self.checker)
        store = SimStore(
            self.server, self.network, host_evidence=plan.host_evidence, session_evidence=plan.session_evidence
        )
        store.freeze = self.freeze
        self.setting = Setting(
            store, self.checker, plan.cadence, plan.jobs, host_evidence=plan.host_evidence,
            session_evidence=plan.session_evidence, leaves=plan.leaves,
        )  # fmt: skip
        self.processes: list[Process | None] = [None] * plan.nodes
        self.incarnations = [0] * plan.nodes
        self.applied = 0
        self.replica: Any = None
        self.people = Process("people", 0, "elsewhere", rate=1.0, offset=0.0, wall=0.0)

    def play(self) -> Outcome:
        plan = self.plan
        over = max(BEGINNING + plan.trouble, *(fault.at for fault in plan.faults), 0.0)
        for place in range(plan.nodes):
            K.at(0.05 * place, self.begin, place)
        for fault in plan.faults:
            if fault.kind == "failover":
                K.at(max(fault.at - fault.long, 0.0), self._copy)
            K.at(fault.at, self._apply, fault)
        K.at(over, self._calm)
        end = over + plan.calm
        try:
            K.run(end, lambda: bool(self.checker.violations))
            if not self.checker.violations:
                self.checker.finally_()
        finally:
            self.unwatch()
            for process in (*self.processes, self.people):
                if process is not None and process.alive:
                    K.kill(process)
        checker = self.checker
        return Outcome(
            plan, checker.violations, K.now, K.events, self.applied, sum(checker.terms.values()), checker.attempts
        )

    # Processes

    def begin(self, place: int) -> None:
        """A process starts, with clocks of its host."""
        before = self.processes[place]
        if before is not None and before.alive:
            return
        self.incarnations[place] += 1
        host = self.plan.hosts[place]
        name = f"n{place}.{self.incarnations[place]}"
        process = Process(
            name, 100 + place + 10 * self.incarnations[place], f"host{host}",
            rate=self.plan.rates[host], offset=1000.0 * (host + 1), wall=K.rng.uniform(-5e6, 5e6),
        )  # fmt: skip
        self.processes[place] = process
        self.checker.processes = [p for p in self.processes if p is not None and p.alive]
        K.spawn(process, lambda: application.live(self.setting))

    def crash(self, process: Process) -> None:
        """SIGKILL, and the kernel closes its sockets."""
        for session in [s for s in self.server.sessions if s.client is process]:
            K.after(K.rng.choice((0.001, 0.001, 4.0)), session.end)
        K.kill(process)
        hosts.process_ended(process)

    def freeze(self, process: Process, seconds: float) -> None:
        """Stop and go on."""
        if not process.frozen:
            K.freeze(process)
            K.after(seconds, K.thaw, process)

    def _calm(self) -> None:
        self.network.calm = True
        self.network.cut.clear()
        self.server.up = True
        for place, process in enumerate(self.processes):
            if process is None or not process.alive:
                self.begin(place)
            elif process.frozen:
                K.thaw(process)

    # Faults

    def _copy(self) -> None:
        self.replica = self.server.rows.copy()

    def _apply(self, fault: Fault) -> None:
        places = [(fault.whom + turn) % self.plan.nodes for turn in range(self.plan.nodes)]
        place = next((p for p in places if (one := self.processes[p]) is not None and one.alive), places[0])
        process = self.processes[place]
        alive = process is not None and process.alive
        self.applied += 1
        match fault.kind:
            case "crash" if alive and process is not None:
                if K.rng.random() < 0.2:
                    for lock in hosts.LockFile.all.values():
                        if lock.process is process:
                            lock.held_until = K.now + fault.long
                self.crash(process)
                K.after(K.rng.uniform(0.1, 6.0), self.begin, place)
            case "freeze" if alive and process is not None:
                self.freeze(process, fault.long)
            case "cut" if alive and process is not None:
                self.network.cut[process.name] = K.now + fault.long
            case "kill session" if alive:
                mine = [s for s in self.server.sessions if s.client is process]
                self.server.kill_sessions(mine if fault.long > 5 else mine[: 1 + len(mine) // 2])
            case "stop" if alive and process is not None:
                K.spawn(process, lambda: self._leave(process, place))
            case "server crash":
                self.server.stop()
                K.after(min(fault.long, 4.0), self.server.start)
            case "failover":
                self.checker.promoted(self.server.rows, self.replica)
                self.server.promote(self.replica)
            case "step":
                self.server.clock.ahead += fault.long
            case "wall" if process is not None:
                process.wall += 1e4 * (fault.long - 3)
            case "slow clock":
                self.server.clock.rate *= 1.01 if fault.long > 2 else 0.99
            case "storm":
                calm, self.network.weather = (
                    self.network.weather,
                    replace(self.network.weather, lost=0.2, slow=0.3, late=0.1),
                )
                K.after(min(fault.long, 3.0), setattr, self.network, "weather", calm)
            case "pause" | "resume" | "update" | "ask" | "cancel" | "resign":
                K.spawn(self.people, lambda: application.people(self.setting, fault.kind, fault.job))
            case _:
                self.applied -= 1

    def _leave(self, process: Process, place: int) -> None:
        application.leave(self.setting)
        K.after(0.0, self.crash, process)
        K.after(K.rng.uniform(0.1, 3.0), self.begin, place)

    def _heard(self, session: Any, words: str) -> None:
        delay = self.network.leg("notice")
        if delay < NEVER:
            K.after(delay, self._deliver, session, words)

    def _deliver(self, session: Any, words: str) -> None:
        if session.hear is not None and self.network.cut.get(session.client.name, 0.0) <= K.now:
            session.hear(words)


def play(plan: Plan) -> Outcome:
    """Play a history."""
    return Play(plan).play()
