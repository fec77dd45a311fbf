"""Hold the model of the database to the databases: random interleavings of two transactions, on the model and on a real
server.

python sim/agreement/compare.py                                       1,000 on each of PostgreSQL and SQLite
python sim/agreement/compare.py --engine sqlite --cases 60 --seed 4000   from this seed on
python sim/agreement/compare.py --engine postgres --cases 1 --seed 17    one of them
python sim/agreement/compare.py --write                               and docs/proof/agreement.md

Each case makes a small state, opens a transaction in each of two sessions, and takes their steps in a drawn order. On
PostgreSQL, three things must be the same: every answer, which session had to wait for which, and the rows at the end.
Where both wait for each other, the first session's transaction is rolled back.

SQLite has one writer at a time, so there are no row locks to compare. An operation that changes a row while the other's
transaction is open must have waited. Answers and rows must be those of the model with the transactions one after the
other, in the order in which they came to write. The operations of its store are transactions of their own; they are
held up at their commit. SQLite has no session evidence, and checks whether an election is held before it looks at the
candidate.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests/support")]

from harness.postgres import Postgres  # noqa: E402 - the path comes first
from sim.agreement.play import Tally, many  # noqa: E402
from sim.agreement.real import RealPostgres  # noqa: E402
from sim.agreement.sqlite import RealSqlite  # noqa: E402
from tenure.stores.postgres.store import PostgresStore  # noqa: E402
from tenure.util.urls import PostgresURL, SqliteURL, parse  # noqa: E402


@contextmanager
def on_postgres(url: str) -> Iterator[RealPostgres]:
    """Two sessions in a database that is ours to empty."""
    parsed = parse(url)
    assert isinstance(parsed, PostgresURL)
    real = RealPostgres(PostgresStore(parsed))
    try:
        yield real
    finally:
        real.close()


@contextmanager
def on_sqlite(folder: Path) -> Iterator[RealSqlite]:
    """Two sessions in a new file."""
    parsed = parse(f"sqlite:///{folder / 'agreement.db'}")
    assert isinstance(parsed, SqliteURL)
    real = RealSqlite(parsed)
    try:
        yield real
    finally:
        real.close()


def lines(engine: str, tally: Tally) -> list[str]:
    """What there is to say of it."""
    said = ", ".join(f"{name} {count}" for name, count in tally.statements.most_common())
    how = f"of which {tally.waited} with a wait and {tally.deadlocks} with a deadlock"
    return [
        f"{engine}: {tally.cases} interleavings, {how}; {len(tally.failed)} disagreements",
        f"  {sum(tally.statements.values())} statements of {len(tally.statements)} kinds: {said}",
    ]


def agreement_section(seeds: range, tallies: dict[str, Tally]) -> list[str]:
    """The page docs/proof/agreement.md."""
    return [
        "# The simulator's database beside real ones",
        "",
        "`python sim/agreement/compare.py --write` wrote this page; run it to repeat the comparison.",
        "",
        "\n\n".join((__doc__ or "").strip().split("\n\n")[2:]),
        "",
        "## Figures",
        "",
        f"Seeds {seeds.start} to {seeds.stop - 1}; `--seed` and `--cases 1` repeat one of them.",
        "",
        *(f"- {'. '.join(map(str.strip, lines(engine, tally)))}" for engine, tally in tallies.items()),
        "",
        "A model with a rule left out disagrees: `tests/project/test_sim_agreement.py` has eight of the simulator's mutants, each with a case that shows it.",
        "",
        "Not compared: the order of several waiters (there are two sessions), times, the ids of rows, notices and `run.once`.",
        "Nor are claims that ask for less than is due, and runs of a due time that is written twice while its first row is in an open transaction.",
        "",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=int, default=1000, help="how many on each engine")
    parser.add_argument("--engine", choices=["postgres", "sqlite", "both"], default="both")
    parser.add_argument("--seed", type=int, default=0, help="the first seed; --cases 1 plays it alone")
    parser.add_argument("--write", action="store_true", help="write docs/proof/agreement.md")
    chosen = parser.parse_args()
    seeds = range(chosen.seed, chosen.seed + chosen.cases)
    tallies = {}
    if chosen.engine != "sqlite":
        with Postgres() as server, on_postgres(server.create_database()) as real:
            tallies["PostgreSQL"] = many(seeds, real)
    if chosen.engine != "postgres":
        with tempfile.TemporaryDirectory() as folder, on_sqlite(Path(folder)) as file:
            tallies["SQLite"] = many(seeds, file)
    print(f"seeds {seeds.start} to {seeds.stop - 1}")
    for engine, tally in tallies.items():
        print("\n".join(lines(engine, tally)))
    if chosen.write:
        text = "\n".join(agreement_section(seeds, tallies))
        (ROOT / "docs" / "proof" / "agreement.md").write_text(text, encoding="utf-8")
    return 1 if any(tally.failed for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
