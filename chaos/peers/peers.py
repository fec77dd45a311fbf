"""Other schedulers and ours under the same faults, judged by the same lines.

`python3 dev.py chaos-peers --minutes-each 3` gives each of them three minutes.

Each peer runs in an environment of its own, configured as its documentation recommends for several processes. The
report goes to docs/proof/peers.md.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "tests/support"))

from blows import Blows, Server  # noqa: E402 - the tests are no package
from crew import Crew  # noqa: E402
from environments import NotInstalled, python_of, versions_of  # noqa: E402
from judge import Grid, judge  # noqa: E402
from report import Result, page, told  # noqa: E402
from roster import PEERS, Peer  # noqa: E402

from harness import processes  # noqa: E402
from harness.postgres import Postgres  # noqa: E402
from harness.valkey import Valkey  # noqa: E402

REPORT = ROOT / "docs" / "proof" / "peers.md"
EVERY = 2
JOBS = [f"job-{number}" for number in range(10)]
BLOW = 9.0
"""How long a blow takes, with the rest after it, about."""
SETTLE = 20.0
"""How long late work may still come in: longer than any lock that can be set lasts."""


@contextmanager
def opened(peer: Peer) -> Iterator[tuple[Server, str]]:
    """A new server, and the path of the database on it."""
    if peer.server == "valkey":
        with Valkey(keeps=True) as server:
            yield server, "0"
        return
    with Postgres() as server:
        yield server, server.create_database().rpartition("/")[2]


def play(peer: Peer, result: Result, calm: float, count: int, seed: int) -> None:
    """Watch it undisturbed, then under the blows."""
    python = python_of(peer)
    result.versions = versions_of(peer, python)
    with opened(peer) as (server, path):
        crew = Crew(peer, python, server.port, path=path, jobs=JOBS, every=EVERY)
        try:
            crew.start()
            begin = first_grid_point(crew)
            crew.rest(begin + calm - time.time())
            blows = Blows(crew, server, random.Random(seed))
            turn = next_point()
            crew.rest(turn - time.time())
            blows.strike(count)
            end = next_point()
            settle(crew, Grid(JOBS, EVERY, begin, end))
            result.blows, result.fell = blows.counts, crew.fell
            result.take(crew.lines(), Grid(JOBS, EVERY, begin, turn), Grid(JOBS, EVERY, turn, end), blows.deaths)
        except Exception:
            print(crew.story(), file=sys.stderr)
            raise
        finally:
            crew.close()


def first_grid_point(crew: Crew) -> float:
    """Two periods after the first body began; by then all processes have had their turn."""
    until = time.monotonic() + 60
    while not crew.lines():
        assert time.monotonic() < until, f"no body began within a minute\n{crew.story()}"
        crew.rest(0.1)
    crew.rest(2 * EVERY)
    return next_point()


def next_point() -> float:
    return (time.time() // EVERY + 1) * EVERY


def settle(crew: Crew, grid: Grid) -> None:
    """Late work may come in until nothing is missing, or for so long."""
    until = time.monotonic() + SETTLE
    crew.rest(grid.end - time.time())
    while time.monotonic() < until and judge(crew.lines(), grid).lost:
        crew.rest(0.5)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes-each", type=float, default=3.0, help="how long for each, about (3)")
    parser.add_argument("--only", choices=[peer.name for peer in PEERS], help="one of them")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="for the same order of blows again")
    parser.add_argument("--report", type=Path, default=REPORT, help=f"where to write it ({REPORT.relative_to(ROOT)})")
    options = parser.parse_args()
    seconds = options.minutes_each * 60
    calm, began, load, results = seconds / 6, time.monotonic(), os.getloadavg()[0], []
    count = max(1, round((seconds - calm - SETTLE) / BLOW))
    print(f"seed {options.seed}")
    for peer in PEERS:
        if options.only not in {None, peer.name}:
            continue
        print(f"{peer.title} …", flush=True)
        result = Result(peer)
        results.append(result)
        try:
            play(peer, result, calm, count, options.seed)
        except NotInstalled as error:
            result.trouble = f"could not be installed: {error}"
        except Exception as error:  # the others are still worth watching
            result.trouble = f"{type(error).__name__}: {error}".partition("\n")[0]
            traceback.print_exc()
        finally:
            processes.end_all()
        print("\n".join(told(result)), flush=True)
    minutes = (time.monotonic() - began) / 60
    options.report.write_text("\n".join(page(results, options.seed, minutes, load)) + "\n")
    print(f"\nThe report is in {options.report}.")
    return int(any(result.trouble for result in results))


if __name__ == "__main__":
    sys.exit(main())
