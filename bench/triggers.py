"""How many due times per second, beside cronsim: `python bench/triggers.py`.

Successive ones from 5 March 2026, across clock changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim

from tenure.triggers import cron
from tenure.triggers.grammar import parse

EXPRESSIONS = {
    "* * * * *": 2000,
    "*/5 9-17 * * 1-5": 2000,
    "0 * * * *": 2000,
    "30 2 * * *": 2000,
    "0 0 1 * *": 300,
    "0 0 29 2 1": 30,
    "0 0 29 2 */1": 5,
}
ZONES = ("Asia/Seoul", "America/New_York")
ROUNDS = 15


def ours(expr: str, start: datetime, count: int) -> datetime | None:
    trigger, due = cron(expr, start.tzinfo), start
    for _ in range(count):
        due = trigger.next_after(due)
    return due


def theirs(expr: str, start: datetime, count: int) -> datetime:
    simulator, due = CronSim(expr, start), start
    for _ in range(count):
        due = next(simulator)
    return due


def first(expr: str, start: datetime, _count: int) -> datetime | None:
    parse.cache_clear()
    return cron(expr, start.tzinfo).next_after(start)


Walker = Callable[[str, datetime, int], datetime | None]


def best(walkers: list[Walker], expr: str, start: datetime, count: int) -> list[float]:
    """Seconds per due time, the best of a few rounds in which they take turns."""
    times: list[list[float]] = [[] for _ in walkers]
    for _ in range(ROUNDS):
        for walker, mine in zip(walkers, times, strict=True):
            began = time.perf_counter()
            walker(expr, start, count)
            mine.append((time.perf_counter() - began) / count)
    return [min(mine) for mine in times]


def main() -> None:
    print("| expression | zone | tenure /s | cronsim /s | ratio | parse + first, tenure µs | cronsim µs |")
    print("|---|---|---|---|---|---|---|")
    for expr, count in EXPRESSIONS.items():
        for key in ZONES:
            start = datetime(2026, 3, 5, 12, 7, tzinfo=ZoneInfo(key))
            mine, other = best([ours, theirs], expr, start, count)
            parse_mine, parse_other = best([first, theirs], expr, start, 1)
            rates = f"{1 / mine:,.0f} | {1 / other:,.0f} | {other / mine:.1f}"
            print(f"| `{expr}` | {key} | {rates} | {parse_mine * 1e6:.0f} | {parse_other * 1e6:.0f} |")


if __name__ == "__main__":
    main()
