"""The report: what was played, which mutants were caught by what, what was explored. Written by `simulate.py --write`, never by hand."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sim import schedules
from sim.copies import DOUBT
from sim.holes import HOLES
from sim.hunt import SEEDS, SMALL, Catch, Tally
from sim.mutants import MUTANTS
from sim.plans import CALM, LONG_CALM, TROUBLE

if TYPE_CHECKING:
    from pathlib import Path

    from sim.explore import Bounds, Explored
    from sim.mutants import Mutant

_HEAD = f"""# Simulated histories

Written by `python sim/simulate.py --write` with `--faults 100000`, `--mutants` and `--explore`, which anybody can run; nothing here is
edited by hand.

The threads of production (pacemaker, campaign, herald, conductor, runner, completer, with the lease, the watch and the planner they
share with the tests) run as greenlets on virtual time: the same text, loaded with other `threading`, `select`, `queue` and clock. Below
them is a model of the database: statements that travel, are lost, arrive after their sender gave up, are held up between snapshot and
effect; row locks that are waited for or skipped; sessions that are killed; crashes; failover to a replica that lacks the last seconds;
a clock that steps and has a rate of its own. Every process has clocks of its own (rates within ±10 % that change, walls anywhere), and
is crashed, frozen, cut off alone or with others, stopped, started again and forked. What the model's tables decide is the ledger in
memory, which the conformance suite holds equal to the other two; the SQL of PostgreSQL and the pulse file of SQLite are not simulated
(real servers, in other tests), nor are process pools and event loops.

A forked child gets a copy of all objects of its parent, as they are between two events: locks that the parent's threads hold are held
in it for ever, connections and the host's lock are shared. Production's hook for children runs in it, and then what it has inherited is
asked: no term, lease, run or scheduler of the parent may be its own, it may neither speak nor hang up on the parent's connections, and
half of the children then take part in their own right. What is not copied is the stack of the thread that forks: a child begins anew.

Checked after every event: G1 (terms grow, fenced commits), G2 (believers), G3 (attempts that can complete, bodies on trusted nodes,
`max_running`), G5 (effects); after a calm at the end: G4 (the audit, nothing left with the dead) and G6 (leases, leaders,
nothing due that waits, nothing put off). `sim/checks.py` says each in one place. After a failover that lost commits, runs whose rows were
lost are exempt from G3 and G5, and the fence is held to the grants that the replica has: nobody can know of the others. Not drawn together, because the audit cannot tell them apart: changes of a
trigger and steps of the server's clock; and nobody cancels a run before it is due.

The server's clock also leaps by an hour, forward or back, for some seconds or for good, in some of the histories, with everything else
that goes wrong. Production then doubts it, each node for as long as it was there ({DOUBT[0]:g} to {DOUBT[1]:g} s here, in production to 5 minutes), and nodes that
begin meanwhile believe it at once. After {LONG_CALM:g} calm seconds no job may be put off, whoever planned by which time. Where the clock goes back, the
ledger remembers for longer than it does elsewhere: what it has forgotten may be run again ([guarantees](../guarantees.md)).
"""
NONE = "none"
_HISTORIES, _MUTANTS, _HOLES, _EXPLORED = (
    "Drawn histories", "Mutants", "Where each hole is held shut", "The lease machine, explored",
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
        f"- as a rule {TROUBLE:g} s of trouble and {CALM:g} s of calm",
        f"- of each kind: {kinds}",
        f"- beside them, drawn for single statements and answers: {accidents}; in all {tally.faults + tally.accidents.total():,} faults",
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
        f"Rules of the protocol left out, one at a time: {sum(bool(c.by) for c in alone)} of {len(alone)} caught, by a directed schedule or by one of the first {SEEDS} seeds. The hole is that of the next table, or the promise.",
        "",
        "| rule left out | hole | caught by | what was seen |",
        "| --- | --- | --- | --- |",
        *(
            f"| {c.mutant.name} | {c.mutant.hole} | {c.by or '**not caught**'} | {c.violation[:110].replace('|', '/')} |"
            for c in alone
        ),
        "",
        "Rules for which another one stands in. Left out alone they must survive everything above; left out together with the other they are in the table above.",
        "",
        "| rule left out | hole | survived | what covers it |",
        "| --- | --- | --- | --- |",
        *(
            f"| {c.mutant.name} | {c.mutant.hole} | {f'**no**: {c.by}' if c.by else 'yes'} | {c.mutant.covered} |"
            for c in covered
        ),
        "",
        "Directed schedules were made for mutants that seeds did not find, and turned until they found them; some checks were added because a mutant had survived without them.",
    ]


def _of_holes(catches: list[Catch]) -> list[str]:
    caught = {catch.mutant.name for catch in catches if catch.by}
    lines = [
        "What two attacks on the design found to break a promise, before there was code. A mutant is named where it was caught.",
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
        "Every order of steps with at most so many accidents (a process that freezes and goes on at any later moment or never, a leader that resigns, a message that is executed and heard of at any later moment or never), for as long as anything new can happen. States that differ only in names, in absolute times or in numbers whose order is the same are one; `sim/explore.py` and `sim/worlds.py` say what else is. Three nodes with three accidents are not among them: there are too many states for this explorer.",
        "",
        "| nodes | accidents | ttl in ticks | states | steps | all of them | violation |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(
            f"| {b.nodes} | {b.accidents} | {b.ttl:g} | {e.states:,} | {e.steps:,} | {'yes' if e.whole else 'no: the first so many'} | {e.violation or 'none'} |"
            for b, e in parts.explored
        ),
        "",
        f"Mutants, with a ttl of {SMALL[0].ttl:g} ticks and more nodes and accidents until they are caught; the first history found is a shortest one, in which processes are named anew in each state:",
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
