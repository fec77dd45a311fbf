"""Play drawn histories of the production runtime, hunt mutants, explore the lease machine, and write down what came of it.

python sim/simulate.py                       a minute of histories
python sim/simulate.py --histories 500       so many; --seconds 30: for so long; --seed 1000: from this seed on
python sim/simulate.py --replay 4711         one history, with everything that is said in it; a failing one is made smaller
python sim/simulate.py --mutants --explore   the mutants, the explorer; with --write: docs/proof/simulation.md
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from sim import explore, fakes, history, hunt, report  # noqa: E402 - the path comes first
from sim.mutants import MUTANTS  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--histories", type=int, help="how many")
    parser.add_argument("--seconds", type=float, help="for how long (60 unless told otherwise)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--replay", type=int, help="play one seed, and show it")
    parser.add_argument("--mutants", action="store_true", help="hunt the mutants")
    parser.add_argument("--explore", action="store_true", help="explore the lease machine")
    parser.add_argument("--write", action="store_true", help="write docs/proof/simulation.md")
    chosen = parser.parse_args()
    if chosen.replay is not None:
        return replay(chosen.replay)
    parts = report.Parts()
    parts.tally = histories(chosen.seed, chosen.histories, chosen.seconds)
    parts.directed = hunt.directed()
    broken = [*(parts.tally.failed or ()), *(v for found in parts.directed.values() for v in found)]
    if chosen.mutants:
        parts.catches = [told(hunt.catch(mutant)) for mutant in MUTANTS]
        broken += [catch for catch in parts.catches if not catch.by]
    if chosen.explore:
        parts.explored = [(bounds, explored(bounds)) for bounds in hunt.EXPLORED]
        parts.explored_mutants = [(m, hunt.explored(m)) for m in MUTANTS if m.name in hunt.EXPLORABLE]
        broken += [found for _, found in parts.explored if found.violation]
        broken += [mutant for mutant, found in parts.explored_mutants if not found.violation]
    if chosen.write:
        (ROOT / "docs" / "proof" / "simulation.md").write_text(report.text(parts), encoding="utf-8")
    print(
        f"{len(broken)} things to look at"
        if broken
        else "nothing was broken that should hold, and nothing survived that should not"
    )
    return 1 if broken else 0


def histories(first: int, count: int | None, seconds: float | None) -> hunt.Tally:
    """Play them, and show those that fail."""
    until = time.monotonic() + (seconds or 60.0)
    seeds = range(first, first + count) if count else itertools.count(first)
    tally = hunt.many(seeds, (lambda: time.monotonic() >= until) if not count or seconds else (lambda: False))
    for outcome in tally.failed or ():
        print(f"seed {outcome.plan.seed}: {outcome.violations[0]}")
    print("\n".join(report.tally_lines(tally)))
    return tally


def replay(seed: int) -> int:
    """One history, with what was said in it."""
    fakes.Silent.lines = []
    outcome = history.play(history.draw(seed))
    print("\n".join(fakes.Silent.lines))
    fakes.Silent.lines = None
    print("\n".join(outcome.violations) or "nothing was broken")
    if outcome.violations:
        smaller = hunt.shrink(outcome.plan)
        print(f"still fails with {len(smaller.faults)} of {len(outcome.plan.faults)} faults:")
        print("\n".join(f"  {fault}" for fault in smaller.faults))
    return 1 if outcome.violations else 0


def told(catch: hunt.Catch) -> hunt.Catch:
    print(f"{catch.mutant.name:58} {catch.by or 'NOT CAUGHT':32} {catch.violation[:100]}", flush=True)
    return catch


def explored(bounds: explore.Bounds) -> explore.Explored:
    found = explore.explore(bounds)
    print(
        f"{bounds}: {found.states:,} states, {'all' if found.whole else 'not all'}; {found.violation or 'nothing broken'}",
        flush=True,
    )
    return found


if __name__ == "__main__":
    sys.exit(main())
