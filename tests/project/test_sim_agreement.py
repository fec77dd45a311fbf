"""What the simulator takes the database's statements to do is what PostgreSQL and SQLite do, in drawn interleavings of
two transactions."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

pytest.importorskip("greenlet")

from sim.agreement import compare  # noqa: E402 - the path comes first
from sim.agreement.play import many  # noqa: E402
from sim.mutants.catalogue import MUTANTS, applied  # noqa: E402

CASES = 60
BESIDES = (249,)
"""Cases that the model once took for something else: what is due has expired, and a claim has locked its node all the
same."""
SEEDS = {
    "release without comparing the term": 112,
    "grant without comparing term and holder": 10,
    "evidence without comparing the count": 6,
    "claim without a check of the node": 59,
    "count without the job's lock": 59,
    "completion without its token": 93,
    "put-back without its token": 168,
    "loss not counted": 82,
}
"""Rules left out of the model, and a case in which a real database shows it."""


def _silent(_told: str) -> None:
    """Nobody needs to hear it."""


@pytest.fixture
def on_postgres(database):
    with compare.on_postgres(database) as real:
        yield real


def test_postgres_does_what_the_model_does(on_postgres):
    tally = many([*range(CASES), *BESIDES], on_postgres)
    assert tally.failed == [], "python sim/agreement/compare.py --engine postgres --cases 1 --seed SEED shows it"
    assert tally.waited >= CASES / 10


def test_sqlite_does_what_the_model_does_one_at_a_time(tmp_path):
    with compare.on_sqlite(tmp_path) as real:
        tally = many(range(CASES), real)
    assert tally.failed == [], "python sim/agreement/compare.py --engine sqlite --cases 1 --seed SEED shows it"
    assert tally.waited >= CASES / 4


def test_a_broken_model_does_not_agree(on_postgres):
    mutants = {mutant.name: mutant for mutant in MUTANTS}
    agreeing = []
    for name, seed in SEEDS.items():
        with applied(mutants[name]):
            if not many([seed], on_postgres, _silent).failed:
                agreeing.append(name)
        assert many([seed], on_postgres).failed == []
    assert agreeing == []
