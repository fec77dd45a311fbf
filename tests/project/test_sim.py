"""The production runtime on virtual time: drawn histories hold, broken protocols are caught.

Seeds are fixed, so that nothing here varies.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

pytest.importorskip("greenlet")

from sim.explore import history, hunt, long, schedules, search  # noqa: E402 - the path comes first
from sim.mutants import catalogue  # noqa: E402 - the path comes first
from sim.mutants.catalogue import MUTANTS  # noqa: E402
from sim.promises import checks  # noqa: E402 - the path comes first
from sim.promises.holes import HOLES  # noqa: E402

# They wait for nothing and only compute: how long that takes is up to what runs beside them.
pytestmark = pytest.mark.timeout(300)

HISTORIES, DIRECTED = 40, 6
"""Drawn ones of each start, and at most so many of each schedule; `make sim` plays more of the first and all of the
second."""


@pytest.mark.parametrize("first", [0, 1000, 2000, 3000])
def test_drawn_histories_break_no_promise(first):
    tally = hunt.many(range(first, first + HISTORIES))
    told = [f"seed {outcome.plan.seed}: {outcome.violations[0]}" for outcome in tally.failed]
    assert not told, "\n".join([*told, "python sim/simulate.py --seed SEED shows it"])
    assert tally.fewest_faults >= 20
    assert tally.fewest_terms >= 5
    assert tally.attempts / HISTORIES >= 20


@pytest.mark.parametrize("name", schedules.SCHEDULES)
def test_directed_schedules_break_no_promise(name):
    plans = schedules.SCHEDULES[name]
    assert hunt.broken_in(plans[:: -(-len(plans) // DIRECTED)]) == []


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if not m.covered], ids=lambda mutant: mutant.name)
def test_a_broken_protocol_is_caught(mutant):
    caught = hunt.catch(mutant)
    assert caught.by, f"{mutant.name!r} survived {hunt.SEEDS} seeds and the schedule {mutant.schedule!r}"


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if m.covered], ids=lambda mutant: mutant.name)
def test_a_rule_that_another_one_covers_can_be_left_out(mutant):
    assert hunt.catch(mutant, seeds=10).violation == ""


def test_every_hole_has_a_mutant_or_a_test():
    named = {hole for mutant in MUTANTS if not mutant.covered for hole in mutant.hole.split(", ")}
    assert [hole.number for hole in HOLES if hole.number not in named and not hole.elsewhere] == []
    tests = {name for hole in HOLES for name in re.findall(r"tests/[\w/]+\.py", hole.elsewhere)}
    assert [name for name in tests if not (ROOT / name).exists()] == []


def test_a_long_run_stops_at_the_first_violation_and_its_seed_shows_it_again():
    tally = long.run(0, 100_000, None, "grant over a live holder")
    assert tally.failed
    assert tally.faults < 100_000
    broken = tally.failed[0]
    with catalogue.applied(catalogue.named("grant over a live holder")):
        again = history.play(history.draw(broken.plan.seed))
    assert again.violations == broken.violations


def test_a_forked_child_is_asked_what_it_has_inherited():
    asked = []
    ask = checks.Checker.inherited

    def inherited(self, child, nodes, terms, runs):
        asked.append((len(terms), len(runs)))
        ask(self, child, nodes, terms, runs)

    with catalogue.applied(catalogue.Mutant("", "", lambda: [(checks.Checker, "inherited", inherited)])):
        outcomes = [history.play(plan) for plan in schedules.SCHEDULES["many children"][:2]]
    assert not any(outcome.violations for outcome in outcomes)
    assert any(terms for terms, _ in asked)
    assert any(runs for _, runs in asked)


def test_a_seed_is_a_history_in_every_process():
    play = (
        "import sys; sys.path.insert(0, sys.argv[1]); from sim.explore import history\n"
        "for seed in range(8):\n"
        "    o = history.play(history.draw(seed)); print(seed, o.events, o.seconds, o.terms, o.attempts, o.violations)"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", play, str(ROOT)],
            check=True,
            capture_output=True,
            text=True,
            env={"PYTHONHASHSEED": chosen},
        ).stdout
        for chosen in ("1", "2")
    }
    assert len(told) == 1


def test_a_failing_history_is_made_smaller():
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "epoch not raised after failover")
    caught = hunt.catch(mutant)
    assert caught.plan is not None
    kept = [fault for fault in caught.plan.faults if fault.kind in {"failover", "resign", "crash", "freeze", "cut"}]
    smaller = hunt.shrink(replace(caught.plan, faults=tuple(kept), least=(0, 0)), mutant)
    assert len(smaller.faults) <= len(kept)
    assert any(fault.kind == "failover" for fault in smaller.faults)


@pytest.mark.parametrize("nodes", [2, 3])
def test_every_order_with_one_accident_keeps_one_believer(nodes):
    found = search.explore(search.Bounds(nodes, 1))
    assert found.whole
    assert not found.violation
    assert found.states > 500


@pytest.mark.parametrize("name", [name for name in hunt.EXPLORABLE if name not in hunt.SLOW])
def test_the_explorer_catches_a_broken_protocol(name):
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    _, found = hunt.explored(mutant)
    assert found.violation


def test_a_history_without_faults_is_quiet():
    outcome = history.play(replace(history.draw(1), faults=(), least=(0, 0), hesitation=0.0, weather=history.Weather()))
    assert not outcome.violations
    assert outcome.terms >= 2
