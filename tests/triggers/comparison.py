"""tenure's cron beside the walk of `walker.py`, around clock changes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

from tenure.triggers import cron
from triggers.walker import Change, Job, Walk, changes, zones

AROUND = timedelta(hours=26)

EXPRESSIONS = """
* * * * *       */5 * * * *      */20 * * * *     */40 * * * *     7 * * * *         30 * * * *       0 * * * *
0,30 * * * *    0 */2 * * *      0 */3 * * *      30 */12 * * *    0 */12 * * *      */15 2 * * *     */30 0-3 * * *
*,5 1 * * *     15 *,3 * * *     0 0 * * *        1 0 * * *        15 0 * * *        30 0 * * *       0 1 * * *
30 1 * * *      59 1 * * *       0 2 * * *        30 2 * * *       59 2 * * *        0 3 * * *        30 3 * * *
0 4 * * *       0 23 * * *       30 23 * * *      59 23 * * *      0,30 2,3 * * *    0-59/10 2 * * *  0 0-23/2 * * *
0 0-23 * * *    5,35 0-23 * * *  0-59 0-23 * * *  15 1-3 * * *     30 0,12 * * *     0 2 1 * 0        30 2 * * 7
0 2 */2 * SUN   30 1 L * *       0 2 LW * *       30 2 * * 0L      30 2 * * SUN#2    30 1 * * SUN#1   30 2 8-14 3 *
0 0 30 12 *     0 12 30 12 *     0 9-17/4 * * 1-5 30 1 * 10,11 0   0 0 1 1,4,10 *    */7 */5 * * *    10 2 29-31 * *
"""
JOBS = [Job(" ".join(fields[i : i + 5])) for fields in [EXPRESSIONS.split()] for i in range(0, len(fields), 5)]


def all_changes() -> list[Change]:
    """Of all zones, those with the same rules once, from 2005 to 2037."""
    return [change for key in zones() for change in changes(key)]


def one_of_each_kind(found: Iterable[Change]) -> list[Change]:
    """The one in the middle of its kind, always the same one."""
    kinds: dict[tuple[object, ...], list[Change]] = {}
    for change in found:
        kinds.setdefault(change.kind, []).append(change)
    return [same[len(same) // 2] for same in kinds.values()]


def window(change: Change) -> tuple[datetime, datetime]:
    begin = (change.instant - AROUND).replace(minute=0)
    return begin, change.instant + AROUND


def expectations(walked: Walk) -> dict[str, list[datetime]]:
    return {job.expr: job.runs(walked) for job in JOBS}


def differences(change: Change, expected: dict[str, list[datetime]]) -> Iterator[str]:
    """Where tenure and the walk disagree, if at all: run after run, and from a few starts in and around the change."""
    begin, end = window(change)
    step = timedelta(minutes=17, seconds=30)
    for expr, wanted in expected.items():
        trigger = cron(expr, change.key)
        found, due = [], trigger.next_after(begin - timedelta(microseconds=1))
        while due is not None and due.astimezone(UTC) < end:
            found.append(due.astimezone(UTC))
            due = trigger.next_after(due)
        if found != wanted:
            odd = sorted(set(found) ^ set(wanted))[:4]
            yield f"{expr} in {change.key} around {change.instant}: {[str(one.astimezone(UTC)) for one in odd]}"
        starts = [change.instant + n * step for n in range(-12, 13)]
        for start in (*starts, change.instant - timedelta(seconds=1), change.instant - timedelta(microseconds=1)):
            place = bisect_right(wanted, start)
            due = trigger.next_after(start)
            if place < len(wanted) and (due is None or due.astimezone(UTC) != wanted[place]):
                yield f"{expr} in {change.key} from {start}: {due}, not {wanted[place]}"
