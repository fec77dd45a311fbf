"""A long run: drawn histories on all cores, seeds dealt out in hands, until there were enough faults or one history
broke a promise."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait

from sim.explore import hunt
from sim.explore.hunt import Tally
from sim.mutants import catalogue

HAND = 20
"""Histories that a process plays at a time."""
SPEAKS_EVERY = 5.0


def run(first: int, faults: int | None, seconds: float | None, mutant: str = "") -> Tally:
    """Play from this seed on; whichever bound is given ends it, and so does the first violation."""
    cores, began = os.cpu_count() or 1, time.monotonic()
    hands: Iterator[range] = (range(seed, seed + HAND) for seed in range(first, 1 << 62, HAND))
    tally, spoke = Tally(), began
    with ProcessPoolExecutor(cores, multiprocessing.get_context("spawn")) as pool:
        playing: set[Future[Tally]] = {pool.submit(_play, next(hands), mutant) for _ in range(cores + 1)}
        while playing:
            done, playing = wait(playing, timeout=SPEAKS_EVERY, return_when=FIRST_COMPLETED)
            for hand in done:
                tally.join(hand.result())
            passed = time.monotonic() - began
            enough = (faults is not None and tally.faults >= faults) or (seconds is not None and passed >= seconds)
            if not enough and not tally.failed:
                playing |= {pool.submit(_play, next(hands), mutant) for _ in done}
            if time.monotonic() - spoke >= SPEAKS_EVERY or not playing:
                spoke = time.monotonic()
                print(
                    f"{passed:6.0f} s  {tally.faults:>9,} faults  {tally.histories:>7,} histories  "
                    f"{tally.simulated / 3600:7.1f} simulated hours  {len(tally.failed)} violations",
                    flush=True,
                )
    tally.cores = cores
    return tally


def _play(seeds: range, mutant: str) -> Tally:
    with catalogue.applied(catalogue.named(mutant) if mutant else None):
        return hunt.many(seeds, stop=True)
