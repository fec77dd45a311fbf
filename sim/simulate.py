"""Play drawn histories of the production runtime, hunt mutants, explore the lease machine, and write down what came of it.

python sim/simulate.py                       a minute of histories; --histories 500: so many; --first 1000: from this seed on
python sim/simulate.py --faults 500000       a long run on all cores, until there were so many faults; --minutes 10: for so long
python sim/simulate.py --seed 4711           one history, with everything that is said in it; a failing one is made smaller
python sim/simulate.py --mutants --explore   the mutants, the explorer
--mutant "late beats count"                  with this rule left out: what a violation looks like
--write                                      what was done goes into docs/proof/simulation.md; the other parts of it stay
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from sim.explore import history, hunt, long, search  # noqa: E402 - the path comes first
from sim.mutants import catalogue  # noqa: E402 - the path comes first
from sim.mutants.catalogue import MUTANTS  # noqa: E402
from sim.promises import report  # noqa: E402 - the path comes first
from sim.runtime import fakes  # noqa: E402 - the path comes first


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage="simulate.py [options]"
    )
    parser.add_argument("--histories", type=int, help="how many")
    parser.add_argument("--faults", type=int, help="until so many faults were drawn, on all cores")
    parser.add_argument("--minutes", type=float, help="for so long, on all cores")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="play one seed, and show it")
    parser.add_argument("--mutant", default="", help="leave out a rule")
    parser.add_argument("--mutants", action="store_true", help="hunt the mutants")
    parser.add_argument("--explore", action="store_true", help="explore the lease machine")
    parser.add_argument("--write", action="store_true", help="write docs/proof/simulation.md")
    chosen = parser.parse_args()
    if chosen.seed is not None:
        return replay(chosen.seed, chosen.mutant)
    broken: list[object] = []
    parts = report.Parts()
    if chosen.faults or chosen.minutes or not (chosen.mutants or chosen.explore):
        parts.tally = histories(chosen)
        parts.directed = hunt.directed()
        broken = [*parts.tally.failed, *(v for found in parts.directed.values() for v in found)]
    if chosen.mutants:
        parts.catches = [told(hunt.catch(mutant)) for mutant in MUTANTS]
        broken += [catch for catch in parts.catches if bool(catch.by) == bool(catch.mutant.covered)]
    if chosen.explore:
        parts.explored = [(bounds, explored(bounds)) for bounds in hunt.EXPLORED]
        parts.explored_mutants = [(m, *hunt.explored(m)) for m in MUTANTS if m.name in hunt.EXPLORABLE]
        broken += [found for _, found in parts.explored if found.violation]
        broken += [mutant for mutant, _, found in parts.explored_mutants if not found.violation]
    if chosen.write:
        report.write(ROOT / "docs" / "proof" / "simulation.md", parts)
    print(
        f"{len(broken)} things to look at"
        if broken
        else "nothing was broken that should hold, and nothing survived that should not"
    )
    return 1 if broken else 0


def histories(chosen: argparse.Namespace) -> hunt.Tally:
    """Play them, and show those that fail."""
    if chosen.faults or chosen.minutes:
        tally = long.run(chosen.first, chosen.faults, 60 * chosen.minutes if chosen.minutes else None, chosen.mutant)
    else:
        until = time.monotonic() + 60.0
        seeds = (
            range(chosen.first, chosen.first + chosen.histories) if chosen.histories else itertools.count(chosen.first)
        )
        with catalogue.applied(catalogue.named(chosen.mutant) if chosen.mutant else None):
            tally = hunt.many(seeds, lambda: not chosen.histories and time.monotonic() >= until)
    print("\n".join(report.tally_lines(tally)))
    for outcome in tally.failed[:1]:
        show(outcome, chosen.mutant)
    return tally


def replay(seed: int, mutant: str) -> int:
    """One history, with what was said in it."""
    fakes.Silent.lines = []
    with catalogue.applied(catalogue.named(mutant) if mutant else None):
        outcome = history.play(history.draw(seed))
    print("\n".join(fakes.Silent.lines))
    fakes.Silent.lines = None
    if not outcome.violations:
        print("nothing was broken")
        return 0
    show(outcome, mutant)
    return 1


def show(outcome: history.AttemptOutcome, mutant: str) -> None:
    """A history that broke a promise, made smaller."""
    print(f"seed {outcome.plan.seed}: {outcome.violations[0]}")
    smaller = hunt.shrink(outcome.plan, catalogue.named(mutant) if mutant else None)
    print(f"it still fails with {len(smaller.faults)} of {len(outcome.plan.faults)} faults:")
    print("\n".join(f"  {fault}" for fault in smaller.faults))
    print(f"python sim/simulate.py --seed {outcome.plan.seed}" + (f' --mutant "{mutant}"' if mutant else ""))


def told(catch: hunt.Catch) -> hunt.Catch:
    print(f"{catch.mutant.name:58} {catch.by or 'NOT CAUGHT':32} {catch.violation[:100]}", flush=True)
    return catch


def explored(bounds: search.Bounds) -> search.Explored:
    found = search.explore(bounds)
    print(
        f"{bounds}: {found.states:,} states, {'all' if found.whole else 'not all'}; {found.violation or 'nothing broken'}",
        flush=True,
    )
    return found


if __name__ == "__main__":
    sys.exit(main())
