"""Plays a healthy cluster for a long time, in which `tenure status` and `tenure audit` must find nothing wrong.

`python3 dev.py soak --healthy [--minutes 60] [--every 10]`

Two nodes on SQLite and two on PostgreSQL, with jobs that are slow, wait for their own runs or for a pool, follow
others, are paused, or look for something that is not there yet (`NotYet`). Every few seconds both commands are run in
processes of their own, as a monitor does: an exit code other than 0 ends the run with what the command said. A whole
run writes docs/proof/healthy.md; `--quick` looks until it has seen every kind of run, and writes nothing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

# The servers and the plays of the tests: real ones, ended with the run.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))

from report import machine

from harness import plays_kinds
from harness.postgres import Postgres
from harness.scenes import Scene, stage

ROOT = Path(__file__).resolve().parents[1]
NODES, CAPACITY, TTL = 2, 16, 10
TOLD_EVERY = 60.0


@dataclass(frozen=True)
class Played:
    """What was seen in one store."""

    seconds: float
    looks: int
    kinds: Mapping[str, int]
    """In how many looks there was a run of each kind."""
    states: Mapping[str, int]
    """How the runs ended, or are."""


def play(name: str, scene: Scene, seconds: float, every: float, failed: threading.Event) -> Played:
    """Play in one store, with a line of progress from time to time. Raises what a command found, or if `failed` is set
    by the other store."""
    began, progress = time.monotonic(), _progress(name, time.monotonic(), seconds)

    def tell(seen: Counter[str]) -> None:
        if failed.is_set():
            raise RuntimeError(f"{name} is not played further")
        progress(seen)

    try:
        seen = plays_kinds.healthy(scene, seconds, every, tell)
    except BaseException as error:
        if not failed.is_set():
            print(f"{name}: {error}", flush=True)
        failed.set()
        raise
    states = Counter(row.state.value for row in scene.rows())
    kinds = {kind: seen[kind] for kind in sorted(plays_kinds.LASTING)}
    return Played(time.monotonic() - began, seen["looks"], kinds, dict(sorted(states.items())))


def _progress(name: str, began: float, seconds: float) -> Callable[[Counter[str]], None]:
    said_at = began

    def tell(seen: Counter[str]) -> None:
        nonlocal said_at
        if (now := time.monotonic()) - said_at >= TOLD_EVERY:
            said_at = now
            there = ", ".join(f"{kind} {seen[kind]}" for kind in sorted(plays_kinds.LASTING))
            print(f"{now - began:6,.0f} of {seconds:,.0f} s  {name}: {seen['looks']} looks, all 0  {there}", flush=True)

    return tell


def report(played: Mapping[str, Played], minutes: float, every: float) -> str:
    """The page."""
    looks = sum(one.looks for one in played.values())
    jobs = len(plays_kinds.LONG_FOR_NOW)
    about = (
        f"`python3 dev.py soak --healthy --minutes {minutes:g}`: {NODES} nodes in each store, {jobs} jobs that are "
        "slow, wait, follow others, are paused, or raise `NotYet`.\n"
        f"Every {every:g} s, `tenure status` and `tenure audit` were run in processes of their own: {2 * looks:,} "
        f"times in {minutes:g} minutes, and each time the exit code was 0."
    )
    lines = [
        "# A healthy cluster",
        "",
        about,
        "",
        *(f"- {name}: {value}" for name, value in machine().items()),
        "",
        "| | " + " | ".join(played) + " |",
        "|---|" + "---|" * len(played),
        _row("seconds", [one.seconds for one in played.values()]),
        _row("looks", [one.looks for one in played.values()]),
        *(
            _row(f"looks that saw runs of the kind: {kind}", [one.kinds[kind] for one in played.values()])
            for kind in sorted(plays_kinds.LASTING)
        ),
        *(
            _row(f"runs at the end: {state}", [one.states.get(state, 0) for one in played.values()])
            for state in sorted({state for one in played.values() for state in one.states})
        ),
    ]
    return "\n".join(lines) + "\n"


def _row(what: str, values: list[float]) -> str:
    return f"| {what} | " + " | ".join(f"{value:,.0f}" for value in values) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description="Play a healthy cluster, and ask whether it needs attention.")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two looks (default 10)")
    parser.add_argument("--quick", action="store_true", help="until every kind of run was seen; writes nothing")
    parser.add_argument("--out", type=Path, help="where to write the report (default: docs/proof)")
    options = parser.parse_args()
    if options.quick:
        options.minutes, options.every = 0.0, 2.0
    with tempfile.TemporaryDirectory() as folder, Postgres(fsync=True) as server, stage(Path(folder)) as make:
        urls = {"SQLite": f"sqlite:///{folder}/healthy.db", "PostgreSQL": server.create_database()}
        scenes = {
            name: make(url, jobs=plays_kinds.LONG_FOR_NOW, ttl=TTL, capacity=CAPACITY).start(NODES)
            for name, url in urls.items()
        }
        failed = threading.Event()
        with ThreadPoolExecutor(len(scenes)) as threads:
            playing = {
                name: threads.submit(play, name, scene, options.minutes * 60, options.every, failed)
                for name, scene in scenes.items()
            }
            played = {name: one.result() for name, one in playing.items()}
    told = report(played, options.minutes, options.every)
    print("\n" + told)
    if folder_of := options.out or (None if options.quick else ROOT / "docs" / "proof"):
        (folder_of / "healthy.md").write_text(told)
    return 0


if __name__ == "__main__":
    sys.exit(main())
