"""Every clock change of every zone from 2005 to 2037, each walked minute by minute.

`python3 dev.py test-triggers [--processes 2]`
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from pathlib import Path
from typing import Any


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=2)
    processes = parser.parse_args().processes
    from tenure.triggers import tzdata_version
    from triggers.comparison import JOBS, all_changes

    began = time.monotonic()
    groups: dict[Any, list[Any]] = {}
    for change in all_changes():  # those at the same instant with the same readings share a walk
        groups.setdefault((change.instant, change.before, change.after), []).append(change)
    count = sum(map(len, groups.values()))
    print(f"tzdata {tzdata_version()}: {count} clock changes, {len(JOBS)} expressions each", flush=True)
    done = wrong = 0
    with multiprocessing.Pool(processes) as pool:
        for number, (size, found) in enumerate(pool.imap_unordered(compare, groups.values(), chunksize=4), 1):
            done, wrong = done + size, wrong + len(found)
            for line in found[:5]:
                print(line, flush=True)
            if number % 50 == 0 or number == len(groups):
                spent = time.monotonic() - began
                left = spent / done * (count - done)
                print(
                    f"{done} of {count} changes, {wrong} differences, {spent:.0f} s, about {left:.0f} s left",
                    flush=True,
                )
    return int(wrong > 0)


def compare(group: list[Any]) -> tuple[int, list[str]]:
    from triggers.comparison import differences, expectations, window
    from triggers.walker import walk

    found: list[str] = []
    walks: dict[Any, Any] = {}  # zones may differ in another change close by
    for change in group:
        walked = walk(change.key, *window(change))
        looks = tuple(walked.wildcard)
        if looks not in walks:
            walks[looks] = expectations(walked)
        found += differences(change, walks[looks])
    return len(group), found


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    sys.exit(main())
