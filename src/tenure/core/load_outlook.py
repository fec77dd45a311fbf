"""What the load ahead comes to: in one sentence, and hour by hour. The page and `tenure load` say the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, tzinfo

from tenure.core.load import MINUTE, MINUTES, Load, QueueLoad, waits
from tenure.core.records import NodeFacts
from tenure.util.durations import readable
from tenure.util.instants import moment
from tenure.util.plurals import counted, several

LATE = 30.0
"""Seconds of waiting for a slot from which on the load does not fit."""
NAMED = 3
"""How many queues a sentence names."""


@dataclass(frozen=True, slots=True)
class QueueOutlook:
    """The load of a queue beside the slots of the nodes that serve it."""

    load: QueueLoad
    nodes: int
    """How many live nodes serve it."""
    slots: int
    """How many runs these nodes take at a time; other queues share them."""
    waits: tuple[float, ...]
    """How many seconds a run that may begin in each minute waits for a slot, by the forecast."""

    @property
    def most(self) -> float:
        """How many runs go on in the busiest minute."""
        return max(self.load.busy)

    @property
    def longest(self) -> float:
        """The longest wait."""
        return max(self.waits)

    @property
    def unserved(self) -> bool:
        """Something is due, and no live node serves it."""
        return self.load.total > 0 and self.slots == 0


@dataclass(frozen=True, slots=True)
class HourOfLoad:
    """An hour of the clock, as far as it lies in the period."""

    at: datetime
    due: int
    busiest: datetime
    most_due: int
    """How many runs may begin in the busiest minute."""
    most_busy: float
    longest_wait: float


@dataclass(frozen=True, slots=True)
class Outlook:
    """The load of the next 24 h, and whether the live nodes can take it."""

    ok: bool
    text: str
    whole: QueueOutlook
    queues: tuple[QueueOutlook, ...]

    def hours(self, zone: tzinfo, start: float) -> list[HourOfLoad]:
        """The hours of the period, as clocks in a zone show them."""
        found = []
        for first, end in _hours(start, zone):
            load = self.whole.load
            busiest = max(range(first, end), key=lambda minute: (load.starts[minute], -minute))
            found.append(
                HourOfLoad(
                    at=moment(start + first * MINUTE, zone),
                    due=sum(load.starts[first:end]),
                    busiest=moment(start + busiest * MINUTE, zone),
                    most_due=load.starts[busiest],
                    most_busy=max(load.busy[first:end]),
                    longest_wait=max(self.whole.waits[first:end]),
                )
            )
        return found


def outlook(load: Load, nodes: Iterable[NodeFacts], zone: tzinfo) -> Outlook:
    """What the load comes to for these live nodes."""
    live = list(nodes)
    slots = sum(node.capacity for node in live)
    whole = QueueOutlook(load.whole, len(live), slots, waits(load.whole.busy, slots))
    queues = tuple(_of_queue(queue, live) for queue in load.queues)
    ok, text = _told(load, whole, queues, zone)
    return Outlook(ok, text, whole, queues)


def _of_queue(queue: QueueLoad, live: list[NodeFacts]) -> QueueOutlook:
    serving = [node for node in live if node.queues is None or queue.queue in node.queues]
    slots = sum(node.capacity for node in serving)
    return QueueOutlook(queue, len(serving), slots, waits(queue.busy, slots))


def _told(load: Load, whole: QueueOutlook, queues: tuple[QueueOutlook, ...], zone: tzinfo) -> tuple[bool, str]:
    total = whole.load.total
    if not total:
        return True, "Nothing is due in the next 24 h."
    busiest = whole.load.busiest
    at, most = moment(load.start + busiest * MINUTE, zone), whole.load.starts[busiest]
    said = f"{_many(total, 'run')} may begin in the next 24 h, the most in one minute at {at:%a %H:%M %Z}: {most:,}."
    if not whole.nodes:
        return False, f"{said} No node is alive, so none of them would run."
    if unserved := [one.load.queue for one in queues if one.unserved]:
        which = several(map(repr, unserved), NAMED)
        if len(unserved) == 1:
            return False, f"{said} No live node serves the queue {which}, so nothing on it would run."
        return False, f"{said} No live node serves the queues {which}, so nothing on them would run."
    worst = max((whole, *queues), key=lambda one: one.longest)
    if worst.longest >= LATE:
        first = next(minute for minute, wait in enumerate(worst.waits) if wait > 0)
        last = next((minute for minute in range(first, MINUTES) if not worst.waits[minute]), None)
        since = f"{moment(load.start + first * MINUTE, zone):%a %H:%M}"
        until = "beyond these 24 h" if last is None else f"until {moment(load.start + last * MINUTE, zone):%a %H:%M %Z}"
        which = f" on the queue {worst.load.queue!r}" if worst is not whole else ""
        return False, (
            f"{said} From {since} {until}, more runs are due{which} than {_many(worst.slots, 'slot')} can take. "
            f"Forecast wait: up to {readable(worst.longest)}."
        )
    if not whole.most:
        return True, f"{said} No run has been timed yet, so it is not known whether the load fits."
    share = f"{whole.most:.1f}".removesuffix(".0")
    return True, f"{said} It fits: the forecast peaks at {share} of {_many(whole.slots, 'slot')}."


def _many(number: int, noun: str) -> str:
    return counted(number, noun).replace(str(number), f"{number:,}", 1)


def _hours(start: float, zone: tzinfo) -> Iterator[tuple[int, int]]:
    """The minutes of each hour of the clock."""
    first = 0
    for minute in range(1, MINUTES + 1):
        if minute == MINUTES or moment(start + minute * MINUTE, zone).minute == 0:
            yield first, minute
            first = minute
