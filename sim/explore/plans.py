"""What is drawn for a seed: how many nodes, on which hosts, with which clocks and jobs, in what weather, and what goes wrong when."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from sim.runtime import application
from sim.runtime.network import Placed, Weather
from tenure.core.cluster import Cadence

CADENCE = Cadence.of(5.0, heartbeat_every=1.0, attempt_timeout=1.0, session_grace=2.0)
BEGINNING, TROUBLE, CALM, LONG_CALM = 3.0, 20.0, 18.0, 45.0
"""Seconds until the first fault, from there to the last, and from there to the end."""
FAULTS, TERMS = 20, 5
"""How many a drawn history has at least: until there were so many, leaders are ended, one after the other."""
KINDS = {
    "crash": 5, "freeze": 6, "cut": 3, "partition": 1, "kill session": 4, "stop": 2, "reload": 1, "server crash": 1, "resign": 5,
    "fork": 2, "wall": 1, "drift": 1, "slow clock": 1, "storm": 1,
    "pause": 1, "resume": 1, "update": 1, "ask": 2, "cancel": 1,
}  # fmt: skip
LEAP = 3600.0
"""How far the server's clock leaps, forward or back, where it does; nobody believes that at once."""
ENDINGS = ("crash", "stop", "freeze", "resign")
"""What ends a term for certain, if it hits whoever leads."""


UNTOLD = ("update", "pause", "resume")
"""Not where the server's clock steps: the audit takes changes in the order of their times."""
DEAF = 0.1
"""How many bodies of drawn histories outlive whatever they are told."""
LINGERS = 0.3
"""How many leaders write once more when their term is over."""
COMPLETES, LEAKS = 0.2, 0.03
"""How many complete their run in a transaction of their own, and how many of all leave that open."""
LEAPS = 0.06
"""How many of the drawn histories have a leap."""


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
    pidfds: bool = True
    """Whether the kernel tells of the end of a process; else its lock is looked at again and again."""
    leaves: float = 0.35
    """How likely a leader steps down of its own will at each turn."""
    lingers: float = LINGERS
    """How likely it writes once more when its term is over."""
    least: tuple[int, int] = (0, 0)
    """So many faults and so many terms: before that the calm does not come."""
    keep_for: float = 12.0
    """How long the ledger remembers what has ended."""
    deaf: float = 0.0
    """How likely a body does not look up before it has ended, whoever asks it to."""
    completes: float = COMPLETES
    """How likely a body that does not fail completes its run in a transaction of its own …"""
    leaks: float = LEAKS
    """… and leaves it open."""
    alone: str = ""
    """A job whose function only the last node has."""
    newer_rules: str = ""
    """The release of the zone rules that people have who change jobs, and no node."""
    same_wall: bool = False
    """Whether the wall of a process that begins shows what the server's clock does, as on the server's own host; else anything."""


def draw(seed: object, *, faults: int | None = None) -> Plan:
    """The history of a seed."""
    rng = random.Random(f"plan {seed}")
    nodes = rng.choice((3, 3, 4, 5))
    hosts = tuple(rng.randrange(rng.choice((1, 2, nodes))) for _ in range(nodes))
    jobs = tuple(rng.sample(sorted(application.JOBS), 3))
    more = random.Random(f"more {seed}")
    beside = more.choice(application.BESIDE) if more.random() < 0.4 else ()
    bad = rng.choice((0.0, 0.0, 0.005, 0.02))
    ops = ("beat", "claim", "reconcile", "finish", "acquire", "release", "put_back", "declare", "plan", "check")
    weather = Weather(
        latency=rng.choice((0.0005, 0.002, 0.01)),
        lost=bad * rng.random(),
        slow=bad * rng.random() * 2,
        late=bad * rng.random(),
        held_up=rng.choice((0.0, 0.01, 0.05)),
        worst=rng.choice(ops),
        worse=rng.choice((1.0, 10.0, 25.0)),
        narrow=random.Random(f"link {seed}").choice((0,) * 9 + (1,)),
    )
    steps = rng.random() < 0.1
    kinds = {kind: weight for kind, weight in KINDS.items() if not steps or kind not in UNTOLD}
    drawn = [
        Fault(
            round(rng.uniform(BEGINNING, BEGINNING + TROUBLE), 3),
            kind,
            rng.randrange(nodes),
            round(rng.choice((0.3, 1.0, 3.0, 6.0, 9.0)) * rng.uniform(0.7, 1.3), 2),
            rng.choice(jobs),
        )
        for kind in rng.choices(list(kinds), list(kinds.values()), k=faults or rng.randrange(26, 36))
    ]
    if rng.random() < 0.12:
        drawn.append(Fault(round(rng.uniform(8, TROUBLE), 3), "failover", 0, round(rng.uniform(0.1, 2.0), 2)))
    if steps:
        drawn.append(Fault(round(rng.uniform(8, TROUBLE), 3), "step", 0, rng.choice((-30.0, -3.0, 5.0, 40.0))))
    people = random.Random(f"people {seed}")
    if people.random() < 0.2:
        drawn.append(Fault(round(people.uniform(15, TROUBLE), 3), "backfill", 0, 0.0, people.choice(jobs)))
    again = random.Random(f"again {seed}")
    if again.random() < 0.3:
        drawn.append(Fault(round(again.uniform(15, BEGINNING + TROUBLE), 3), "retry", 0, 0.0, again.choice(jobs)))
    drawn += _of_new_kinds(seed, (*jobs, *beside), beside, steps=steps)
    plan = Plan(
        seed,
        nodes,
        hosts,
        tuple(round(rng.uniform(0.9, 1.1), 3) for _ in range(nodes)),
        (*jobs, *beside),
        weather,
        tuple(sorted(drawn, key=lambda fault: fault.at)),
        host_evidence=rng.random() < 0.5,
        session_evidence=rng.random() < 0.4,
        hesitation=rng.choice((0.0, 0.002, 0.01)),
        pidfds=rng.random() < 0.7,
        rate=round(rng.uniform(0.98, 1.02), 3),
        least=(FAULTS, TERMS),
        deaf=DEAF,
    )
    return leaping(plan, rng) if rng.random() < LEAPS else plan


def _of_new_kinds(seed: object, jobs: tuple[str, ...], beside: tuple[str, ...], *, steps: bool) -> list[Fault]:
    """People request runs for later and in slots, retry runs, and do what they do to jobs that follow others."""
    rng = random.Random(f"kinds {seed}")
    drawn = [
        Fault(round(rng.uniform(BEGINNING, BEGINNING + TROUBLE), 3), kind, 0, 0.0, rng.choice(jobs))
        for kind in ("later", "slot")
        for _ in range(rng.choice((0, 0, 3, 6)))
    ]
    told = ("ask", "cancel", "retry") if steps else ("ask", "cancel", "retry", "pause", "resume", "retouch")
    drawn += [
        Fault(round(rng.uniform(BEGINNING, BEGINNING + TROUBLE), 3), rng.choice(told), 0, 0.0, rng.choice(beside))
        for _ in range(rng.randrange(7) if beside else 0)
    ]
    return drawn


def leaping(plan: Plan, rng: random.Random) -> Plan:
    """The same with a server whose clock leaps, for some seconds or for good. The calm is long enough for everybody to believe it."""
    leap, at = rng.choice((-LEAP, LEAP)), round(rng.uniform(8, TROUBLE - 2), 3)
    leaps = [Fault(at, "leap", 0, leap)]
    if rng.random() < 0.6:
        leaps.append(Fault(round(at + rng.uniform(1, 15), 3), "leap", 0, -leap))
    kept = [fault for fault in plan.faults if fault.kind not in UNTOLD]
    return replace(
        plan,
        faults=tuple(sorted((*kept, *leaps), key=lambda fault: fault.at)),
        calm=LONG_CALM,
        # Where the clock goes back by more than the ledger remembers, nobody can know what was run.
        keep_for=plan.keep_for if leap > 0 and all(fault.kind != "step" for fault in kept) else 3 * LEAP,
        same_wall=rng.random() < 0.5,
    )
