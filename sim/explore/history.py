"""One history, played: the plan's faults, and what becomes of the promises."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from sim.database.server import Server
from sim.database.store import SimStore
from sim.explore.plans import BEGINNING, ENDINGS, Fault, Plan, draw
from sim.promises import checks
from sim.promises.checks import Checker
from sim.runtime import application, copies, fakes, forks, hosts
from sim.runtime.application import Setting
from sim.runtime.kernel import K, Process
from sim.runtime.network import NEVER, Network, Weather
from tenure.stores.notices import Notice

__all__ = ["AttemptOutcome", "Fault", "Plan", "Weather", "draw", "play"]

PEOPLE = frozenset(
    {"pause", "resume", "update", "retouch", "ask", "later", "slot", "cancel", "backfill", "retry", "resign"}
)
"""What people do."""
FOR_EVER = 120.0
"""Seconds within which five leaders can be ended, one after the other, whatever went wrong before."""


@dataclass(slots=True)
class AttemptOutcome:
    """What became of it."""

    plan: Plan
    violations: list[str]
    seconds: float
    events: int
    kinds: Counter[str]
    """The faults that hit something."""
    accidents: Counter[str]
    """What was drawn for single statements on their way."""
    terms: int
    attempts: int

    @property
    def faults(self) -> int:
        """How many."""
        return self.kinds.total()


class Play:
    """A history on its way."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        K.reset(plan.seed, hesitation=plan.hesitation)
        fakes.reset()
        hosts.Kernel.pidfds = plan.pidfds
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
            session_evidence=plan.session_evidence, leaves=plan.leaves, lingers=plan.lingers, keep_for=plan.keep_for, deaf=plan.deaf,
            completes=plan.completes, leaks=plan.leaks,
            alone=(plan.alone, f"n{plan.nodes - 1}"),
        )  # fmt: skip
        self.weather = plan.weather
        """When no storm is on."""
        self.processes: list[Process | None] = [None] * plan.nodes
        self.incarnations = [0] * plan.nodes
        self.applied: Counter[str] = Counter()
        self.replica: Any = None
        self.clocks = {host: (plan.rates[host], 1000.0 * (host + 1)) for host in range(plan.nodes)}
        """Of each host: its rate, and what it showed at the beginning."""
        self.children: list[Process] = []
        self.people = Process("people", 0, "elsewhere", rate=1.0, offset=0.0, wall=0.0)
        if plan.newer_rules:
            self.people.things["tzdata"] = plan.newer_rules

    def play(self) -> AttemptOutcome:
        plan = self.plan
        over = max(BEGINNING + plan.trouble, *(fault.at for fault in plan.faults), 0.0)
        for place in range(plan.nodes):
            K.at(0.05 * place, self.begin, place)
        for fault in plan.faults:
            if fault.kind == "failover":
                K.at(max(fault.at - fault.long, 0.0), self._copy)
            K.at(fault.at, self._apply, fault)
        try:
            self._run(over)
            self._urge()
            self._calm()
            self._run(K.now + plan.calm)
            if not self.checker.violations:
                self.checker.finally_()
        finally:
            self.unwatch()
            for process in (*self.processes, *self.children, self.people):
                if process is not None and process.alive:
                    K.kill(process)
        checker = self.checker
        return AttemptOutcome(
            plan,
            checker.violations,
            K.now,
            K.events,
            self.applied,
            self.network.accidents,
            sum(checker.terms.values()),
            checker.attempts,
        )

    def _run(self, until: float) -> None:
        if not self.checker.violations:
            K.run(until, lambda: bool(self.checker.violations))

    def _urge(self) -> None:
        """Too few faults or terms so far: whoever leads is ended, in a drawn way, until there were enough."""
        faults, terms = self.plan.least
        until = K.now + FOR_EVER
        self.weather = replace(self.plan.weather, worse=1.0)  # or nobody leads at all
        self._clear()
        while (
            self.applied.total() < faults or sum(self.checker.terms.values()) < terms
        ) and not self.checker.violations:
            leads = [place for place, process in enumerate(self.processes) if _leads(process)]
            if leads:
                self._apply(Fault(K.now, K.rng.choice(ENDINGS), leads[0], K.rng.uniform(6.0, 9.0)))
            self._run(K.now + K.rng.uniform(1.0, 3.0))
            if until < K.now:
                self.checker.broken("G6", f"nobody leads after {FOR_EVER:g} s in which only leaders were ended")

    def _clear(self) -> None:
        self.network.weather = self.weather

    # Processes

    def begin(self, place: int) -> None:
        """A process starts, with clocks of its host."""
        before = self.processes[place]
        if before is not None and before.alive:
            return
        self.incarnations[place] += 1
        host = self.plan.hosts[place]
        name = f"n{place}.{self.incarnations[place]}"
        wall = self.server.clock.ahead if self.plan.same_wall else K.rng.uniform(-5e6, 5e6)
        process = Process(
            name, 100 + place + 10 * self.incarnations[place], f"host{host}",
            rate=self.clocks[host][0], offset=self.clocks[host][1], wall=wall,
        )  # fmt: skip
        self.processes[place] = process
        self.checker.processes = [p for p in self.checker.processes if p.alive] + [process]
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

    def fork(self, parent: Process) -> bool:
        """A child of a process that takes part; it lives for a while. False if it does not take part at the moment."""
        if "election" not in parent.things or "engine" not in parent.things:
            return False
        child = forks.fork(parent, f"{parent.name}+{len(self.children)}", 1000 + len(self.children), self.setting)
        self.children.append(child)
        K.after(K.rng.uniform(0.0, 8.0), self._end_child, child)
        return True

    def _end_child(self, child: Process) -> None:
        if child.alive:
            self.crash(child)

    def drift(self, host: int, rate: float) -> None:
        """The clock of a host goes at another rate from now on, for all its processes."""
        old, began = self.clocks[host]
        self.clocks[host] = rate, began + (old - rate) * K.now
        for process in (*self.processes, *self.children):
            if process is not None and process.host == f"host{host}":
                process.drift(rate)

    def _calm(self) -> None:
        self.network.calm = True
        for child in self.children:
            self._end_child(child)
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
        self.applied[fault.kind] += 1
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
            case "partition":
                for other in self.processes[:: 2 if fault.whom % 2 else -2]:
                    if other is not None and other.alive:
                        self.network.cut[other.name] = K.now + fault.long
            case "fork" if alive and process is not None and self.fork(process):
                pass
            case "kill session" if alive:
                mine = [s for s in self.server.sessions if s.client is process]
                self.server.kill_sessions(mine if fault.long > 5 else mine[: 1 + len(mine) // 2])
            case "stop" if alive and process is not None:
                K.spawn(process, lambda: self._leave(process, place))
            case "reload" if alive and process is not None:
                K.spawn(process, lambda: application.reload(self.setting))
            case "server crash":
                self.server.stop()
                K.after(min(fault.long, 4.0), self.server.start)
            case "failover":
                self.checker.promoted(self.server.rows, self.replica)
                self.server.promote(self.replica)
            case "step" | "leap":
                self.server.clock.ahead += fault.long
            case "wall" if process is not None:
                process.wall += 1e4 * (fault.long - 3)
            case "drift":
                self.drift(self.plan.hosts[place], round(K.rng.uniform(0.9, 1.1), 3))
            case "slow clock":
                self.server.clock.rate *= 1.01 if fault.long > 2 else 0.99
            case "storm":
                self.network.weather = replace(self.network.weather, lost=0.2, slow=0.3, late=0.1)
                K.after(min(fault.long, 3.0), self._clear)
            case kind if kind in PEOPLE:
                K.spawn(self.people, lambda: application.people(self.setting, fault.kind, fault.job))
            case _:
                self.applied[fault.kind] -= 1

    def _leave(self, process: Process, place: int) -> None:
        application.leave(self.setting)
        K.after(0.0, self.crash, process)
        K.after(K.rng.uniform(0.1, 3.0), self.begin, place)

    def _heard(self, session: Any, notice: Notice) -> None:
        delay = self.network.leg("notice")
        if delay < NEVER:
            K.after(delay, self._deliver, session, notice)

    def _deliver(self, session: Any, notice: Notice) -> None:
        if session.hear is not None and self.network.cut.get(session.client.name, 0.0) <= K.now:
            session.hear(notice)


def _leads(process: Process | None) -> bool:
    """Whether it leads the election of the application at this moment."""
    if process is None or not process.alive:
        return False
    election = process.things.get("election")
    return election is not None and bool(checks.seen_by(process, lambda: election.is_leader))


def play(plan: Plan) -> AttemptOutcome:
    """Play a history."""
    return Play(plan).play()
