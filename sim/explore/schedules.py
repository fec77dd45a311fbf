"""Directed histories: calm weather, and a few accidents placed where a rare hole would open.

No protocol that is whole breaks in them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sim.explore.plans import LEAP, LONG_CALM, Fault, Plan
from sim.runtime.network import NEVER, Placed, Weather
from tenure.core.cluster import Cadence

FAST, SLOW = 1.1, 0.9


def _plan(
    name: str,
    nodes: int,
    *faults: Fault,
    placed: tuple[Placed, ...] = (),
    sessions: bool = False,
    jobs: tuple[str, ...] = ("tick", "free", "wait"),
    leaves: float = 0.1,
    **more: Any,
) -> Plan:
    plan = Plan(
        name,
        nodes,
        tuple(range(nodes)),
        (SLOW, *(FAST for _ in range(nodes - 1))),
        jobs,
        Weather(latency=0.001),
        faults,
        placed,
        host_evidence=False,
        session_evidence=sessions,
        trouble=18.0,
        leaves=leaves,
    )
    return replace(plan, **more)


def _every(process: str, op: str, first: int, last: int, **what: Any) -> tuple[Placed, ...]:
    return tuple(Placed(process, op, nth, **what) for nth in range(first, last))


def _silent_after(process: str, nth: int) -> tuple[Placed, ...]:
    """Its beats are lost from this one on."""
    return _every(process, "beat", nth, nth + 12, request=NEVER)


def _all(op: str, first: int, last: int, **what: float) -> tuple[Placed, ...]:
    return tuple(p for name in ("n0", "n1", "n2") for p in _every(name, op, first, last, **what))


LEISURELY = Cadence.of(20.0, heartbeat_every=5.0, attempt_timeout=2.0, session_grace=2.0)
"""Beats so far apart that a session can be seen free for longer than the wait in between."""

PATIENT = Cadence.of(5.0, heartbeat_every=0.5, attempt_timeout=1.7, session_grace=2.0)
"""Answers may take so long that their receiver is declared dead meanwhile, and comes back."""

CHAIN: dict[str, Any] = {"jobs": ("load", "report", "alarm", "sweep"), "keep_for": 100.0}
"""A job, those that follow it, and a ledger that remembers all of their runs."""


def _told(kind: str, job: str, *, first: float = 4.0, last: float = 20.0, apart: float = 1.0) -> tuple[Fault, ...]:
    """People do it again and again."""
    return tuple(Fault(round(first + apart * i, 3), kind, 0, 0.0, job) for i in range(int((last - first) / apart)))


SCHEDULES: dict[str, tuple[Plan, ...]] = {
    # A slow clock; the answer to the last beat takes nearly the whole time-out; then silence.
    "slow beat": tuple(
        _plan("slow beat", 3, placed=(*_every("n0", "beat", nth, nth + 1, answer=0.95), *_silent_after("n0", nth + 1)))
        for nth in range(4, 14)
    ),
    # A fast watcher, one beat of which takes long to arrive and just sees the last beat of the watched node.
    "watch from sending": tuple(
        _plan("watch from sending", 2, placed=(*_every("n1", "beat", slow, slow + 1, request=0.85), *_silent_after("n0", nth)))
        for nth in range(5, 9)
        for slow in range(nth - 1, nth + 3)
    ),
    # Four beats are lost, and the declaration that follows is on its way for so long that the next beat comes first.
    "late declaration": tuple(
        _plan(
            "late declaration", 2,
            placed=(*_every("n0", "beat", nth, nth + 4, request=NEVER), *_every("n1", "declare", 1, 9, request=late)),
        )
        for nth in range(5, 8)
        for late in (1.2, 1.8)
    ),
    # An old beat, which names a session that is no more, arrives after the one that names the new session.
    "late advert": tuple(
        _plan(
            f"late advert {turn}", 3, placed=_every("n0", "beat", 2, 3, request=3.0), sessions=True, cadence=LEISURELY
        )
        for turn in range(24)
    ),
    # The session of the leader dies, and no beat says so. It does not resign meanwhile.
    "unsaid session": tuple(
        _plan(
            f"unsaid session {turn}", 3, Fault(at, "kill session", 0, 9.0), sessions=True, cadence=LEISURELY, leaves=0.0,
            placed=_silent_after("n0", 3),
        )
        for turn in range(2)
        for at in (5.6, 6.2, 8.0, 8.4, 9.2, 9.6, 10.4)
    ),
    # A candidate that saw the lock free is frozen until the holder leads again, in another term.
    "old suspicion": tuple(
        _plan(
            f"old suspicion {turn}", 2, Fault(6.0, "kill session", 0, 9.0), Fault(6.0, "cut", 0, cut),
            Fault(at, "freeze", 1, 1.3), sessions=True,
        )
        for cut in (2.1, 2.4)
        for at in (8.1, 8.4)
        for turn in range(3)
    ),
    # The answer to an attempt of one node is on its way while its beat shows what it won.
    "late grant": tuple(
        _plan(f"late grant {turn}", 3, placed=_every("n0", "acquire", 1, 40, answer=0.9), leaves=0.35) for turn in range(6)
    ),
    # Trust runs out while an attempt is answered, and comes back by a beat that shows what it won.
    "answer after a lapse": tuple(
        _plan(
            f"answer after a lapse {turn}", 3, *(Fault(4.0 + 0.4 * i, "resign", 0) for i in range(20)), leaves=0.0,
            placed=(
                *_every("n1", "beat", nth, nth + 3, request=NEVER), *_every("n1", "beat", nth + 3, nth + 6, request=0.5),
                *_every("n1", "acquire", 1, 40, answer=0.75),
            ),
        )
        for turn in range(10)
        for nth in range(7, 13)
    ),
    # A node claims, is declared dead and comes back as another, all while the answer to the claim is on its way.
    "answer to the old identity": tuple(
        _plan(
            f"old identity {turn}", 2, *(Fault(8.0 + 0.3 * i, "ask", 0, 0.0, "free") for i in range(24)), leaves=0.0,
            cadence=PATIENT, jobs=("pair", "free", "tick"),
            placed=(
                *_every("n1", "claim", 1, 200, request=0.6), *_every("n0", "beat", 12, 14, request=NEVER),
                *_every("n0", "beat", 14, 15, request=late), *_every("n0", "claim", nth, nth + 2, answer=1.6),
            ),
        )
        for turn in range(3)
        for nth in range(20, 29)
        for late in (0.5, 0.9)
    ),
    # The server's clock is an hour ahead for a few seconds.
    "clock ahead": tuple(
        _plan(f"clock ahead {turn}", 3, Fault(15.0, "leap", 0, LEAP), Fault(19.0 + turn, "leap", 0, -LEAP))
        for turn in range(3)
    ),
    # It is put back by an hour for good. The planner is young and believes it soon; the others go on by the old time.
    "clock put back": tuple(
        _plan(
            f"clock put back {turn}", 3, Fault(12.0, "crash", 2), *(Fault(18.5, "freeze", place, 7.5) for place in (0, 1)),
            Fault(27.0 + 0.5 * turn, "leap", 0, -LEAP), calm=LONG_CALM, keep_for=3 * LEAP,
        )
        for turn in range(6)
    ),
    # It is an hour ahead for some seconds, and somebody begins then.
    "begun in a leap": tuple(
        _plan(
            f"begun in a leap {turn}", 3, Fault(14.0, "leap", 0, LEAP), *(Fault(14.5 + i, "crash", i) for i in range(1 + turn % 2)),
            Fault(20.0 + turn, "leap", 0, -LEAP), calm=LONG_CALM, same_wall=True,
        )
        for turn in range(8)
    ),
    # Children are forked by everybody, and their parents go on.
    "many children": tuple(
        _plan(
            f"many children {turn}", 3, *(Fault(4.0 + 0.6 * i, "fork", i % 3) for i in range(28)), hesitation=0.04,
            rates=(1.0, 1.0, 1.0), hosts=(0, 0, 0), host_evidence=turn % 2 == 1, pidfds=False,
        )
        for turn in range(8)
    ),
    # A transaction is fenced, and its commit comes after the next grant.
    "slow fence": tuple(
        _plan(
            f"slow fence {turn}", 3, Fault(6.5, "kill session", 0, 1.0), sessions=True, cadence=LEISURELY,
            placed=(*_every("n0", "commit", 1, 30, request=1.8), *_silent_after("n0", 3)),
        )
        for turn in range(6)
    ),
    # Leaders are frozen, one after the other, and write once more when another one leads.
    "stale fence": tuple(
        _plan(
            f"stale fence {turn}", 3, *(Fault(6.0 + 8.0 * i, "freeze", (turn + i) % 3, 7.0) for i in range(3)),
            leaves=0.0, lingers=1.0,
        )
        for turn in range(3)
    ),
    # The answer of a claim is lost; the put-back that it causes arrives when the node has claimed again.
    "late put-back": tuple(
        _plan(
            "late put-back", 1, jobs=("swap", "pair", "free"),
            placed=(*_every("n0", "claim", nth, nth + 1, answer=NEVER), *_every("n0", "put_back", 1, 2, request=late)),
        )
        for nth in range(4, 34)
        for late in (1.4, 1.8, 2.5)
    ),
    # Jobs are changed between what a planner reads and what it writes.
    "edit beside a plan": tuple(
        _plan(
            f"edit beside a plan {turn}", 3, *(Fault(4.0 + (5.3 + 0.5 * turn) * i, "update", 0, 0.0, "tick") for i in range(4)),
            placed=_all("plan", 1, 90, request=0.9),
        )
        for turn in range(6)
    ),
    # Retention has removed runs, and people look for due times that did not run.
    "backfill after retention": tuple(
        _plan(
            f"backfill after retention {turn}", 3,
            *(Fault(26.0 + turn + 2 * i, "backfill", 0, 0.0, name) for i, name in enumerate(("tick", "free", "wait"))),
            trouble=30.0, keep_for=5.0,
        )
        for turn in range(4)
    ),
    # Only one node has the function of a job, and is away for a while.
    "function of one node": tuple(
        _plan(f"function of one node {turn}", 3, Fault(5.0 + 0.7 * turn, "freeze", 2, 9.0), alone="free") for turn in range(4)
    ),
    # A job is changed by somebody whose zone rules are newer than those of all nodes.
    "newer zone rules": tuple(
        _plan(
            f"newer zone rules {turn}", 3, Fault(5.0 + 0.7 * turn, "retouch", 0, 0.0, "zone"),
            jobs=("tick", "zone"), newer_rules="2099z",
        )
        for turn in range(3)
    ),
    # A node is frozen amid bodies that complete their runs, and goes on when others have these.
    "late completion": tuple(
        _plan(
            f"late completion {turn}", 3,
            *(Fault(at - 0.3 - 0.01 * i, "ask", 0, 0.0, "free") for at in (6.0, 17.0) for i in range(9)),
            Fault(6.0, "freeze", turn % 3, 8.0), Fault(17.0, "freeze", (turn + 1) % 3, 8.0),
            jobs=("free", "wait", "tick"), deaf=1.0, completes=0.8, leaks=0.0,
        )
        for turn in range(3)
    ),
    # Bodies leave transactions open in which their runs are locked; others end meanwhile.
    "locked runs": tuple(
        _plan(f"locked runs {turn}", 2, jobs=("wait", "pair", "free"), completes=0.5, leaks=0.3) for turn in range(3)
    ),
    # A server that is away for a while, and a link on which only one ending, or one run, arrives at a time.
    "narrow link": tuple(
        _plan(
            f"narrow link {turn}", 2, *(Fault(5.0 + 4.0 * i, "server crash", 0, 2.0) for i in range(4)),
            *(Fault(4.6 + 4.0 * i + 0.1 * j, "ask", 0, 0.0, "free") for i in range(4) for j in range(4)),
            jobs=("free", "pair", "tick"), weather=Weather(latency=0.001, narrow=1),
        )
        for turn in range(3)
    ),
    # Schedulers are stopped, and started again, while their bodies look up at nothing.
    "bodies that outlive a stop": tuple(
        _plan(
            f"bodies that outlive a stop {turn}", 3,
            *(Fault(5.1 + 0.1 * turn + 5.0 * i, ("reload", "stop")[i % 2], node) for i in range(4) for node in range(3)),
            jobs=("swap", "once", "free"), deaf=1.0,
        )
        for turn in range(5)
    ),
    # Claims that take long, and people who pause jobs meanwhile.
    "pause beside a claim": tuple(
        _plan(
            f"pause beside a claim {turn}", 3,
            *(Fault(5.0 + 2.5 * i, "ask", 0, 0.0, "free") for i in range(5)),
            *(Fault(5.2 + 2.5 * i, "pause", 0, 0.0, "free") for i in range(5)),
            placed=_all("claim", 3, 90, gap=0.35),
        )
        for turn in range(6)
    ),
    # Jobs follow others, and some of their runs are requested; half of the bodies complete them in transactions of their own.
    "followed": tuple(
        _plan(f"followed {turn}", 2, *_told("ask", "load", apart=2.3), completes=0.4, leaks=0.0, **CHAIN) for turn in range(3)
    ),
    # Nodes die amid runs that are followed, and between the ending of one and what follows it.
    "followed by the dead": tuple(
        _plan(
            f"followed by the dead {turn}", 2, *(Fault(5.0 + 2.1 * i + 0.3 * turn, "crash", i % 2) for i in range(7)),
            placed=_all("follow_up", 1, 90, answer=0.6), **CHAIN,
        )
        for turn in range(4)
    ),
    # The server's clock is an hour ahead, or behind, for a few seconds.
    "followed in a leap": tuple(
        _plan(
            f"followed in a leap {turn}", 2,
            *(Fault(7.0 + 4.5 * i + 0.4 * turn + back, "leap", 0, (-1) ** i * (-LEAP if back else LEAP)) for i in range(4) for back in (0.0, 2.0)),
            calm=LONG_CALM, **CHAIN,
        )
        for turn in range(3)
    ),
    # People cancel runs that are followed, whether they have begun or not.
    "cancelled and followed": tuple(
        _plan(f"cancelled and followed {turn}", 2, *_told("cancel", "load", apart=0.7), **CHAIN) for turn in range(2)
    ),
    # Bodies that take longer than their period, so that due times are skipped.
    "skipped and followed": tuple(_plan(f"skipped and followed {turn}", 2, deaf=1.0, **CHAIN) for turn in range(3)),
    # A job is paused while all nodes are frozen, so that its runs are due and have not begun.
    "paused and followed": tuple(
        _plan(
            f"paused and followed {turn}", 2, *(Fault(5.5 + 0.3 * turn + 6.0 * i, "freeze", n, 3.0) for i in range(3) for n in range(2)),
            *(Fault(8.2 + 0.3 * turn + 6.0 * i, "pause", 0, 0.0, "load") for i in range(3)), **CHAIN,
        )
        for turn in range(4)
    ),
    # The server is away for longer than the grace.
    "missed and followed": tuple(
        _plan(f"missed and followed {turn}", 2, *(Fault(5.0 + 6.0 * i + 0.5 * turn, "server crash", 0, 4.0) for i in range(3)), **CHAIN)
        for turn in range(3)
    ),
    # People retry what has failed, and what has not.
    "retried and followed": tuple(
        _plan(f"retried and followed {turn}", 2, *_told("retry", "load", first=7.0, last=26.0, apart=0.6), **CHAIN) for turn in range(3)
    ),
    # People hold a follower locked, while runs end that it follows.
    "locked follower": tuple(
        _plan(
            f"locked follower {turn}", 2, *_told("retouch", "report", apart=0.8 + 0.1 * turn), keep_for=0.5,
            placed=_every("people", "change", 1, 40, gap=0.7), jobs=CHAIN["jobs"],
        )
        for turn in range(3)
    ),
    # They hold it locked for so long that retention comes by.
    "long locked follower": tuple(
        _plan(
            f"long locked follower {turn}", 2, Fault(4.5 + turn, "retouch", 0, 0.0, "report"), *_told("ask", "load", apart=0.9),
            keep_for=0.5, placed=_every("people", "change", 1, 2, gap=22.0), jobs=CHAIN["jobs"],
        )
        for turn in range(3)
    ),
    # The node dies that has one requested run, and nothing else ever ends.
    "followed by nobody else": tuple(
        _plan(
            f"followed by nobody else {turn}", 2, Fault(5.0, "ask", 0, 0.0, "order"), *(Fault(5.05 + 0.3 * turn + 0.1 * i, "crash", i) for i in range(2)),
            jobs=("tick", "order", "ship"), deaf=1.0,
        )
        for turn in range(4)
    ),
    # The answers to many claims are lost, while people ask for the slots again that were claimed.
    "returned to a slot": tuple(
        _plan(
            f"returned to a slot {turn}", 2, *_told("slot", "free", apart=0.25), *_told("slot", "tick", apart=0.3),
            placed=tuple(p for n in ("n0", "n1") for at in range(4, 90, 3) for p in _every(n, "claim", at, at + 1, answer=NEVER)),
        )
        for turn in range(3)
    ),
    # Claims that take long, of jobs that share a pool.
    "full pool": tuple(
        _plan(
            f"full pool {turn}", 3, *_told("ask", "dock", apart=1.1), *_told("ask", "quay", apart=1.3), jobs=("tick", "dock", "quay"),
            placed=_all("claim", 2, 90, gap=0.2),
        )
        for turn in range(3)
    ),
    # Nodes die amid bodies that look for something which is not there.
    "looks": tuple(
        _plan(f"looks {turn}", 2, *(Fault(6.0 + 3.0 * i, ("crash", "freeze")[i % 2], i % 2, 7.0) for i in range(4)), jobs=("look", "sweep", "report", "load"))
        for turn in range(3)
    ),
}  # fmt: skip
