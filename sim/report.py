"""The report: what was played, which mutants were caught by what, what was explored. Written by `simulate.py --write`, never by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sim import schedules
from sim.hunt import SEEDS, SMALL, Catch, Tally
from sim.mutants import NOT_CAUGHT

if TYPE_CHECKING:
    from sim.explore import Bounds, Explored
    from sim.mutants import Mutant

_HEAD = """# Simulated histories

Written by `python sim/simulate.py --mutants --explore --write`, which anybody can run; nothing here is edited by hand.

The threads of production (pacemaker, campaign, herald, conductor, runner, completer, with the lease, the watch and the planner they
share with the tests) run as greenlets on virtual time: the same text, loaded with other `threading`, `select`, `queue` and clock. Below
them is a model of the database: statements that travel, are lost, arrive after their sender gave up, are held up between snapshot and
effect; row locks that are waited for or skipped; sessions that are killed; crashes; failover to a replica that lacks the last seconds.
Every process has clocks of its own (rates within ±10 %, walls anywhere), and is crashed, frozen, cut off, stopped and started again.
What the model's tables decide is the ledger in memory, which the conformance suite holds equal to the other two; the SQL of PostgreSQL
and the pulse file of SQLite are not simulated (real servers, in other tests), nor are forks, process pools and event loops.

Checked after every event: G1 (terms grow, fenced commits), G2 (believers), G3 (attempts that can complete, bodies on trusted nodes,
`max_running`), G5 (effects); after {calm:g} calm seconds at the end: G4 (the audit, nothing left with the dead) and G6 (leases, leaders,
nothing due that waits). `sim/checks.py` says each in one place. After a failover that lost commits, runs whose rows were lost are exempt
from G3 and G5: nobody can know of them. Not drawn together, because the audit cannot tell them apart: changes of a trigger and steps of
the server's clock; and nobody cancels a run before it is due.
"""


@dataclass(slots=True)
class Parts:
    """What there is to report."""

    tally: Tally | None = None
    directed: dict[str, list[str]] = field(default_factory=dict)
    catches: list[Catch] = field(default_factory=list)
    explored: list[tuple[Bounds, Explored]] = field(default_factory=list)
    explored_mutants: list[tuple[Mutant, Explored]] = field(default_factory=list)


def tally_lines(tally: Tally) -> list[str]:
    """The histories in figures."""
    n = max(tally.histories, 1)
    rate = tally.histories / max(tally.processor, 1e-9) * 60
    return [
        f"- {tally.histories:,} histories, {tally.simulated / 3600:.1f} simulated hours, {tally.events:,} events, {rate:.0f} histories a minute of one core's time",
        f"- faults drawn: {tally.faults / n:.1f} a history (fewest {tally.fewest_faults}); terms granted: {tally.terms / n:.1f} (fewest {tally.fewest_terms}); bodies begun: {tally.attempts / n:.1f}",
        f"- violations: {len(tally.failed or ())}"
        + "".join(f"; seed {o.plan.seed}: {o.violations[0]}" for o in tally.failed or ()),
    ]


def text(parts: Parts) -> str:
    """The whole page."""
    from sim.history import CALM

    lines = [_HEAD.format(calm=CALM)]
    if parts.tally is not None:
        lines += ["## Drawn histories", "", *tally_lines(parts.tally)]
        lines += [
            f"- directed schedules under the whole protocol: {sum(len(p) for p in schedules.SCHEDULES.values())} histories of {len(parts.directed)} kinds, violations: {sum(map(len, parts.directed.values()))}",
            "",
        ]
    if parts.catches:
        caught = sum(bool(catch.by) for catch in parts.catches)
        lines += [
            "## Mutants",
            "",
            f"Rules of the protocol left out, one at a time: {caught} of {len(parts.catches)} caught, by a directed schedule or by one of the first {SEEDS} seeds. `P n` is the hole in the attacks on the design.",
            "",
        ]
        lines += ["| rule left out | hole | caught by | what was seen |", "| --- | --- | --- | --- |"]
        lines += [
            f"| {c.mutant.name} | {c.mutant.hole} | {c.by or '**not caught**'} | {c.violation[:110].replace('|', '/')} |"
            for c in parts.catches
        ]
        lines.append("")
        lines += [
            "Tried and **not caught**, so not in the list above:",
            "",
            "| rule left out | hole | how it was hunted |",
            "| --- | --- | --- |",
        ]
        lines += [f"| {name} | {hole} | {how} |" for name, hole, how in NOT_CAUGHT]
        lines += [
            "",
            "Directed schedules were made for mutants that seeds did not find, and turned until they found them; some checks were added because a mutant had survived without them.",
            "",
        ]
    if parts.explored:
        lines += [
            "## The lease machine, explored",
            "",
            "Every order of sending, executing, answering, giving up and waiting, within bounds; ttl five ticks, trust four.",
            "",
        ]
        lines += [
            "| nodes | ticks | beats of each | attempts of each | given up | states | all of them | violation |",
            "| --- | --- | --- | --- | --- | --- | --- | --- |",
        ]
        lines += [
            f"| {b.nodes} | {b.ticks} | {b.beats} | {b.acquires} | {b.faults} | {e.states:,} | {'yes' if e.whole else 'no: the first so many'} | {e.violation or 'none'} |"
            for b, e in parts.explored
        ]
        lines += [
            "",
            f"Mutants within {SMALL.nodes} nodes, {SMALL.ticks} ticks and at most {SMALL.states:,} states; the first history found is a shortest one:",
            "",
        ]
        lines += ["| rule left out | violation | history |", "| --- | --- | --- |"]
        lines += [
            f"| {m.name} | {e.violation or '**not caught**'} | {', '.join(_folded(e.trace))} |"
            for m, e in parts.explored_mutants
        ]
        lines.append("")
    return "\n".join(lines)


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
