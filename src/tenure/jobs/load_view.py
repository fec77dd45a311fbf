"""The load ahead as JSON, and the pools in it: the API and `tenure load --json` have the same fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from tenure.core.clock_changes import TouchedJobs
from tenure.core.load import MINUTE, MINUTES, Load, waits
from tenure.core.load_outlook import Outlook, QueueOutlook
from tenure.core.records import PoolRow
from tenure.triggers import ClockChange
from tenure.util.durations import written
from tenure.util.instants import moment

NAMES = 1000
"""Names of a list of jobs."""


@dataclass(frozen=True, slots=True)
class PoolLine:
    """A pool, and the forecast for it."""

    pool: PoolRow
    due: int
    most: float
    """How many of its runs go on at a time, at most, if all of them begin when they may."""
    longest_wait: float


def pool_lines(load: Load, pools: Sequence[PoolRow]) -> tuple[PoolLine, ...]:
    """The pools of now beside the forecast."""
    ahead = {one.queue: one for one in load.pools}
    lines = []
    for pool in pools:
        known = ahead.get(pool.name)
        busy = (0.0,) if known is None else known.busy
        longest = max(waits(busy, 1 if pool.size is None else pool.size))
        lines.append(PoolLine(pool, 0 if known is None else known.total, max(busy), longest))
    return tuple(lines)


def load_as_dict(load: Load, outlook: Outlook, pools: Sequence[PoolLine], zone: tzinfo) -> dict[str, Any]:
    """All of it, as texts, numbers and lists."""
    return {
        "ok": outlook.ok,
        "text": outlook.text,
        "from": moment(load.start, zone).isoformat(),
        "until": moment(load.start + MINUTE * MINUTES, zone).isoformat(),
        "jobs": load.jobs,
        "unmeasured": load.unmeasured,
        "requested": load.requested,
        "unreadable": list(load.unreadable[:NAMES]),
        "nodes": outlook.whole.nodes,
        "slots": outlook.whole.slots,
        "longest_wait": round(outlook.whole.longest, 3),
        "hours": [
            {
                "at": hour.at.isoformat(),
                "due": hour.due,
                "busiest": hour.busiest.isoformat(),
                "most_due": hour.most_due,
                "most_busy": hour.most_busy,
                "longest_wait": round(hour.longest_wait, 3),
            }
            for hour in outlook.hours(zone, load.start)
        ],
        "queues": [_queue(one) for one in outlook.queues[:NAMES]],
        "pools": [
            {
                "pool": one.pool.name,
                "size": one.pool.size,
                "due": one.due,
                "most_busy": one.most,
                "longest_wait": round(one.longest_wait, 3),
            }
            for one in pools
        ],
        "held_back": [
            {"job": one.job, "due": one.due, "held": one.held, "took": one.took, "overlap": one.overlap}
            for one in load.held_back
        ],
        "herds": [
            {
                "at": one.herd.herd.at.isoformat(),
                **_named(one.herd.herd.jobs),
                "spread": written(one.herd.herd.spread),
                "with_spread": list(one.herd.minutes),
            }
            for one in load.herds
        ],
        "clock_changes": [_touched(one) for one in load.clock_changes],
    }


def change_as_dict(change: ClockChange) -> dict[str, Any]:
    """A clock change; `by` in seconds."""
    return {"at": change.at.isoformat(), "by": change.by.total_seconds(), "effect": change.effect}


def _queue(one: QueueOutlook) -> dict[str, Any]:
    return {
        "queue": one.load.queue,
        "due": one.load.total,
        "starts": list(one.load.starts),
        "busy": list(one.load.busy),
        "nodes": one.nodes,
        "slots": one.slots,
        "longest_wait": round(one.longest, 3),
    }


def _touched(one: TouchedJobs) -> dict[str, Any]:
    return {**change_as_dict(one.change), **_named(one.jobs)}


def _named(jobs: Sequence[str]) -> dict[str, Any]:
    return {"count": len(jobs), "jobs": list(jobs[:NAMES])}
