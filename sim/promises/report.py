"""The report: what was played, which mutants were caught by what, what was explored.

Written by `simulate.py --write`, never by hand.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sim.explore import schedules
from sim.explore.hunt import SEEDS, SMALL, Catch, Tally
from sim.explore.plans import CALM, LONG_CALM, TROUBLE
from sim.mutants.catalogue import MUTANTS
from sim.promises.holes import HOLES
from sim.runtime.copies import DOUBT

if TYPE_CHECKING:
    from pathlib import Path

    from sim.explore.search import Bounds, Explored
    from sim.mutants.catalogue import Mutant

_HEAD = f"""# Simulated histories

`python sim/simulate.py --write` with `--faults 100000`, `--mutants` and `--explore` wrote this page; run it to repeat the simulation.

## What is simulated

The threads of production (heartbeat, control loop, callbacks, executor, completer) run as greenlets on virtual time.
They are the same source, loaded with other `threading`, `select`, `queue` and clock modules; the lease, the failure detector and the planner are those of production.

Below them is a model of the database:

- statements that travel, get lost, arrive after their sender gave up, or are held up between snapshot and effect
- row locks that are waited for or skipped
- sessions that are killed, and servers that crash
- failover to a replica that lacks the last seconds
- a server clock that steps and has a rate of its own

Every process has clocks of its own (rates within ±10 % that change, wall clocks anywhere).
Processes are crashed, frozen, cut off alone or with others, stopped, started again and forked.

The tables of the model are decided by the memory store's ledger, which the conformance suite holds equal to the other two.
Not simulated: the SQL of PostgreSQL and the heartbeat file of SQLite (other tests run them on real databases), process pools, and event loops.

**Forks.**
A forked child gets a copy of all objects of its parent, as they are between two events.
Locks that the parent's threads hold stay locked in it; connections and the host's lock are shared.
Production's fork hook runs in the child, and then everything it inherited is examined.
No term, lease, run or scheduler of the parent may be its own, and it may neither use nor close the parent's connections.
Half of the children then take part as nodes.
The stack of the thread that forks is not copied: a child begins from the top.

**Checks.**
After every event: G1 (terms grow, fenced commits), G2 (one leader believes), G3 (attempts that can complete, bodies on trusted nodes, `max_running`), G5 (effects).
After a calm at the end: G4 (the audit, nothing left with dead nodes) and G6 (leases, leaders, nothing due left waiting, nothing postponed).
`sim/promises/checks.py` states each in one place.
After a failover that lost commits, runs whose rows were lost are exempt from G3 and G5, and the fence is checked against the grants that the replica has: no node can know of the others.
Changes of a trigger and steps of the server's clock are not drawn together, because the audit cannot tell them apart; and no run is cancelled before it is due.

**Clock jumps.**
In some histories the server's clock also jumps by an hour, forward or back, for some seconds or for good, together with everything else that goes wrong.
Each node then doubts it for as long as it had trusted it ({DOUBT[0]:g} to {DOUBT[1]:g} s here, up to 5 minutes in production); nodes that start meanwhile trust it at once.
After {LONG_CALM:g} calm seconds no job may be postponed, whichever node planned it by whichever time.
Where the clock goes back, the ledger remembers for longer than elsewhere: what it has forgotten may run again ([guarantees](../guarantees.md)).
"""
NONE = "none"
_HISTORIES, _MUTANTS, _HOLES, _EXPLORED = (
    "Drawn histories", "Mutants", "How each known hole is closed", "The lease machine, explored",
)  # fmt: skip


@dataclass(slots=True)
class Parts:
    """What there is to report."""

    tally: Tally | None = None
    directed: dict[str, list[str]] = field(default_factory=dict)
    catches: list[Catch] = field(default_factory=list)
    explored: list[tuple[Bounds, Explored]] = field(default_factory=list)
    explored_mutants: list[tuple[Mutant, Bounds, Explored]] = field(default_factory=list)


def write(path: Path, parts: Parts) -> None:
    """Put what was done now in the place of what was done before."""
    before = re.split(r"^## ", path.read_text(encoding="utf-8") if path.exists() else "", flags=re.MULTILINE)[1:]
    sections = {title: body.strip("\n").split("\n") for title, _, body in (old.partition("\n") for old in before)}
    if parts.tally is not None:
        sections[_HISTORIES] = _of_histories(parts.tally, parts.directed)
    if parts.catches:
        sections[_MUTANTS], sections[_HOLES] = _of_mutants(parts.catches), _of_holes(parts.catches)
    if parts.explored:
        sections[_EXPLORED] = _of_states(parts)
    lines = [_HEAD]
    for title in (_HISTORIES, _MUTANTS, _HOLES, _EXPLORED):
        if title in sections:
            lines += [f"## {title}", "", "\n".join(sections[title]).strip("\n"), ""]
    path.write_text("\n".join(lines), encoding="utf-8")


def tally_lines(tally: Tally) -> list[str]:
    """The histories in figures."""
    n = max(tally.histories, 1)
    rate = tally.histories / max(tally.processor, 1e-9) * 60
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in tally.kinds.most_common())
    accidents = ", ".join(f"{count:,} {kind}" for kind, count in tally.accidents.most_common())
    return [
        f"- {tally.faults:,} faults in {tally.histories:,} histories, {tally.simulated / 3600:,.1f} simulated hours, {tally.events:,} events",
        f"- {rate:.0f} histories a minute of one core's time, on {tally.cores} core{'s' if tally.cores > 1 else ''}",
        f"- faults drawn: {tally.faults / n:.1f} a history (fewest {tally.fewest_faults}); terms granted: {tally.terms / n:.1f} (fewest {tally.fewest_terms}); bodies begun: {tally.attempts / n:.1f}",
        f"- usually {TROUBLE:g} s of trouble and {CALM:g} s of calm",
        f"- of each kind: {kinds}",
        f"- in addition, drawn for single statements and answers: {accidents}; in all {tally.faults + tally.accidents.total():,} faults",
        f"- violations: {len(tally.failed)}"
        + "".join(f"; seed {o.plan.seed}: {o.violations[0]}" for o in tally.failed),
    ]


def _of_histories(tally: Tally, directed: dict[str, list[str]]) -> list[str]:
    played, broken = sum(len(p) for p in schedules.SCHEDULES.values()), sum(map(len, directed.values()))
    return [
        *tally_lines(tally),
        f"- directed schedules under the whole protocol: {played} histories of {len(directed)} kinds, violations: {broken}",
    ]


def _of_mutants(catches: list[Catch]) -> list[str]:
    alone = [catch for catch in catches if not catch.mutant.covered]
    covered = [catch for catch in catches if catch.mutant.covered]
    return [
        f"Rules of the protocol left out, one at a time: {sum(bool(c.by) for c in alone)} of {len(alone)} caught, by a directed schedule or by one of the first {SEEDS} seeds. *Hole* is a number of the table after next, or the promise itself.",
        "",
        "| rule left out | hole | caught by | what was seen |",
        "| --- | --- | --- | --- |",
        *(
            f"| {c.mutant.name} | {c.mutant.hole} | {c.by or '**not caught**'} | {c.violation[:110].replace('|', '/')} |"
            for c in alone
        ),
        "",
        "Rules that another rule backs up. Left out alone, they must survive everything above; left out together with the other one, they are in the table above.",
        "",
        "| rule left out | hole | survived | what covers it |",
        "| --- | --- | --- | --- |",
        *(
            f"| {c.mutant.name} | {c.mutant.hole} | {f'**no**: {c.by}' if c.by else 'yes'} | {c.mutant.covered} |"
            for c in covered
        ),
        "",
        "Directed schedules were written for mutants that seeds did not find, and adjusted until they found them. Some checks were added because a mutant had survived without them.",
    ]


def _of_holes(catches: list[Catch]) -> list[str]:
    caught = {catch.mutant.name for catch in catches if catch.by}
    lines = [
        "Two reviews of the design, before there was code, found these ways to break a promise. The mutants named were caught.",
        "",
        "| hole | what | mutants | elsewhere |",
        "| --- | --- | --- | --- |",
    ]
    for hole in HOLES:
        here = [m.name for m in MUTANTS if hole.number in m.hole.split(", ") and m.name in caught]
        lines.append(f"| {hole.number} | {hole.what} | {'; '.join(here) or NONE} | {hole.elsewhere or NONE} |")
    return lines


def _of_states(parts: Parts) -> list[str]:
    return [
        "Every order of steps with at most the given number of accidents, for as long as anything new can happen. An accident is a process that freezes and continues at any later moment or never, a leader that resigns, or a message that is executed and heard of at any later moment or never. States that differ only in names, in absolute times, or in numbers whose order is the same, count as one; `sim/explore/search.py` and `sim/explore/worlds.py` say what else does. Three nodes with three accidents are not included: they have too many states for this explorer.",
        "",
        "| nodes | accidents | ttl in ticks | states | steps | all of them | violation |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(
            f"| {b.nodes} | {b.accidents} | {b.ttl:g} | {e.states:,} | {e.steps:,} | {'yes' if e.whole else 'no: the first so many'} | {e.violation or 'none'} |"
            for b, e in parts.explored
        ),
        "",
        f"Mutants, with a ttl of {SMALL[0].ttl:g} ticks and more nodes and accidents until they are caught. The first history found is a shortest one; processes are renamed in each state:",
        "",
        "| rule left out | nodes | accidents | violation | history |",
        "| --- | --- | --- | --- | --- |",
        *(
            f"| {m.name} | {b.nodes} | {b.accidents} | {e.violation or '**not caught**'} | {', '.join(_folded(e.trace))} |"
            for m, b, e in parts.explored_mutants
        ),
    ]


def _folded(trace: tuple[str, ...]) -> list[str]:
    """Ticks in a row as one."""
    folded: list[str] = []
    ticks = 0
    for said in (*trace, ""):
        if said == "tick":
            ticks += 1
            continue
        if ticks:
            folded.append(f"{ticks} ticks" if ticks > 1 else "a tick")
            ticks = 0
        if said:
            folded.append(said)
    return folded
