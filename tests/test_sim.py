"""The production runtime on virtual time: drawn histories hold, broken protocols are caught. Seeds are fixed, so that nothing here varies."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

pytest.importorskip("greenlet")

from sim import explore, history, hunt  # noqa: E402 - the path comes first
from sim.mutants import MUTANTS  # noqa: E402

HISTORIES = 60


@pytest.mark.parametrize("first", [0, 1000, 2000, 3000])
def test_drawn_histories_break_no_promise(first):
    tally = hunt.many(range(first, first + HISTORIES))
    told = [f"seed {outcome.plan.seed}: {outcome.violations[0]}" for outcome in tally.failed or ()]
    assert not told, "\n".join([*told, "python sim/simulate.py --replay SEED shows it"])
    assert tally.faults / HISTORIES >= 20
    assert tally.terms / HISTORIES >= 5
    assert tally.attempts / HISTORIES >= 20


def test_directed_schedules_break_no_promise():
    assert {name: found for name, found in hunt.directed().items() if found} == {}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_protocol_is_caught(mutant):
    caught = hunt.catch(mutant)
    assert caught.by, f"{mutant.name!r} survived {hunt.SEEDS} seeds and the schedule {mutant.schedule!r}"


def test_a_seed_is_a_history_in_every_process():
    play = (
        "import sys; sys.path.insert(0, sys.argv[1]); from sim import history\n"
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
    smaller = hunt.shrink(replace(caught.plan, faults=tuple(kept)), mutant)
    assert len(smaller.faults) <= len(kept)
    assert any(fault.kind == "failover" for fault in smaller.faults)


def test_every_order_within_small_bounds_keeps_one_believer():
    found = explore.explore(explore.Bounds(2, 5, (1, 1), (0, 1), 0))
    assert found.whole
    assert not found.violation
    assert found.states > 50_000


@pytest.mark.parametrize("name", hunt.EXPLORABLE)
def test_the_explorer_catches_a_broken_protocol(name):
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    assert hunt.explored(mutant).violation


def test_a_history_without_faults_is_quiet():
    outcome = history.play(replace(history.draw(1), faults=(), hesitation=0.0, weather=history.Weather()))
    assert not outcome.violations
    assert outcome.terms >= 2
