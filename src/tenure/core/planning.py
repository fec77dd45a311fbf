"""Planning (G4, G6): which due times become runs, which are missed, and when a failed run is retried.

Pure: every node computes the same result. The ledger stores one `next_due` per job. A planner walks from there along
the trigger to a horizon a few seconds ahead. It writes the runs and the new `next_due` only if no other node has done
so before. Therefore:

  nothing is lost     Every due time between the old and the new `next_due` is among the runs, as a row of its own or in
                      a row that stands for several.
  nothing is endless  After a long absence only the newest due times get rows of their own. The others are counted, if
                      the trigger can say how many there are. Otherwise they are walked through in slices, one per
                      visit, so that no other job waits for long.

        older than a day, or than the newest hundred         missed            in time      ahead
    ├──────────────────────────────────────────────────┼─────────────────┼───────────────┼────────┤
    next_due         one SKIPPED row               PENDING, expired       PENDING      now      horizon

`plan` does not decide whether to make up for a missed due time. `settle` does, whether or not the due time was planned
before it was missed.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from hashlib import blake2b

from tenure.core.messages import MissedJob, NewRun, Planned, Unplanned
from tenure.core.records import MISSED_LIMIT, MISSED_WINDOW, Instant, Rules, RunId, RunState
from tenure.errors import ConfigurationError, NotYet
from tenure.triggers import At, Trigger, tzdata_version
from tenure.triggers.base import Steps
from tenure.util.durations import seconds
from tenure.util.instants import instant

LOOK_AHEAD = 10.4
"""How many seconds ahead due times are written: by a change to a job, and by the planner.

It is not a whole number, so that planning does not fall on the instants at which most runs are due.
"""
MISSED = "missed"
"""The reason of a due time that no node began in time."""

STEPS = 20_000
SLICE = 2000
"""How many missed due times one visit walks through if they cannot be counted."""
WORK = 20_000
"""A visit also ends after this many evaluation steps, because due times may be few and hard to find."""
FEW = 300
"""Up to this many are walked through rather than counted."""
MOST = 2_000_000_000
"""How many due times one row may stand for."""
_FARTHEST = 100 * 366 * 86400.0
"""Seconds. No trigger that is due at all leaves a longer gap."""
_VARIES = 0.1
_ENOUGH = 64
_TICK = 0.000_001


@dataclass(frozen=True, slots=True)
class MissedVerdict:
    """The decision about the missed due times of a job."""

    make_up: tuple[RunId, ...]
    skip: tuple[RunId, ...]
    reason: str = MISSED


def plan(
    job: Unplanned, trigger: Trigger, *, application: str, now: Instant, horizon: Instant, steps: int = STEPS
) -> Planned | None:
    """The due times of a job from its `next_due` up to the horizon, both included. None if there is nothing to plan: it
    is due later, or paused.

    If the zone rules have changed and `next_due` is no longer a due time of this trigger, planning starts at the first
    due time after it.
    """
    if job.next_due is None or job.resumes or job.next_due > horizon:
        return None
    walk = _Walk(application, job.name, job.rules, now)
    due = trigger.following(job.next_due - _TICK)
    if due is not None:
        due = _leap(walk, trigger, due, job.rules, now)
    leapt_over = walk.skipped
    while due is not None and due <= horizon and walk.goes_on(steps) and walk.skipped - leapt_over < SLICE:
        due = walk.take(due, trigger)
    if due is not None and due <= horizon and not walk.pending and walk.skipped:
        # The newest of all missed due times are still to come: walk again through those that got rows of their own so
        # far.
        then = walk.late[0] if walk.late else due
        return Planned(job.id, job.generation, job.next_due, then, walk.older(), reading_of(trigger, then))
    return Planned(job.id, job.generation, job.next_due, due, walk.runs(), reading_of(trigger, due))


def ahead(
    trigger: Trigger, rules: Rules, *, application: str, name: str, now: Instant, horizon: Instant, steps: int = STEPS
) -> tuple[Instant | None, tuple[NewRun, ...]]:
    """The `next_due` and the runs of a job that was just added, changed or resumed. Past due times are not included."""
    walk = _Walk(application, name, rules, now)
    due = trigger.following(now)
    while due is not None and due <= horizon and walk.goes_on(steps):
        due = walk.take(due, trigger)
    return due, walk.runs()


def late(trigger: Trigger, rules: Rules, *, application: str, name: str, now: Instant) -> tuple[NewRun, ...]:
    """The run of a new job, or of one with a new trigger, whose only due time (`at`) has already passed.

    It runs at once within `grace`; otherwise it is SKIPPED as missed. This is the only past due time of such a job.
    Without it, `at` would be lost silently if the writer's clock is a little behind.
    """
    if not isinstance(trigger, At) or (due := instant(trigger.when)) > now:
        return ()
    walk = _Walk(application, name, rules, now)
    walk.sort_in(due)
    return tuple(walk.pending) or (replace(walk.runs()[0], expires_at=None, state=RunState.SKIPPED, reason=MISSED),)


def _leap(walk: _Walk, trigger: Trigger, due: Instant, rules: Rules, now: Instant) -> Instant | None:
    """Count the due times that get no rows of their own, if the trigger can count. Returns the next one."""
    late = now - rules.on_time - rules.spread - rules.jitter  # everything before this counts as missed
    count = trigger.count(due, late)
    if count is None or count <= FEW:
        return due
    # Where to go on: the newest hundred of the last day get rows, and walking through a few more does no harm.
    low = high = max(due, min(now - MISSED_WINDOW, late))
    if (trigger.count(low, late) or 0) > FEW:
        high = late
        while high - low > _TICK and not MISSED_LIMIT <= (trigger.count(low, late) or 0) <= FEW:
            middle = (low + high) / 2
            if (trigger.count(middle, late) or 0) >= MISSED_LIMIT:
                low = middle
            else:
                high = middle
    low = round(low, 6)
    while (count := trigger.count(due, low) or 0) > MOST:
        low = round(due + (low - due) / 2, 6)
    last = last_due(trigger, low - _TICK) if count else None
    if last is None or last < due:
        return due
    walk.leap(due, last, count)
    return trigger.following(last)


def last_due(trigger: Trigger, upto: Instant) -> Instant | None:
    """The newest due time that is not after an instant."""
    back = 60.0
    while (low := trigger.following(upto - back)) is None or low > upto:
        if back > _FARTHEST:
            return None
        back *= 4
    high = upto
    while (later := trigger.following(low)) is not None and later <= upto:
        middle = (later + high) / 2
        beyond = trigger.following(middle)
        if beyond is not None and beyond <= upto:
            low = beyond
        else:
            low, high = later, middle
    return low


def reading_of(trigger: Trigger | None, due: Instant | None) -> str | None:
    """The wall-clock reading of a due time, as the ledger stores it; None if zone rules do not matter."""
    if trigger is None or due is None or not trigger.zoned:
        return None
    reading = trigger.reading(due)
    return f"{tzdata_version()}@{'' if reading is None else reading}"


def resumed_at(trigger: Trigger, next_due: Instant, reading: str, now: Instant) -> Instant | None:
    """Where to resume planning a job whose `next_due` was computed by other zone rules: the first due time not yet in
    the ledger.

    If a due time stands for a reading of the wall clock, that is the instant of this reading by our rules: earlier
    readings have run and do not run again, and later ones are not left out, even if they are past by our rules. Other
    triggers go by instants.
    """
    text = reading.partition("@")[2]
    at = trigger.reached(int(text)) if text.lstrip("-").isdigit() else None
    return trigger.following((min(now, next_due) if at is None else at) - _TICK)


def leapt(trigger: Trigger, next_due: Instant, *, horizon: Instant) -> bool:
    """True if due times after the horizon count as planned, although no node plans that far: the ledger's clock was
    ahead for a while."""
    due = trigger.following(horizon)
    return due is not None and due < next_due


def settle(job: MissedJob, *, now: Instant) -> MissedVerdict:
    """Decide which missed due times to make up for: none older than a day; under 'latest' none if a later one is in
    time."""
    recent = [run.id for run in job.runs if run.scheduled_for >= now - MISSED_WINDOW]
    chosen: list[RunId] = []
    if job.rules.missed == "all":
        chosen = recent[-MISSED_LIMIT:]
    elif job.rules.missed == "latest" and not job.in_time:
        chosen = recent[-1:]
    kept = frozenset(chosen)
    return MissedVerdict(tuple(chosen), tuple(run.id for run in job.runs if run.id not in kept))


def retry_in(rules: Rules, failures: int, chance: float) -> float | None:
    """In how many seconds to retry after this many failures, this one included; None if no retry is left. `chance`, in
    [0, 1), varies it by 10 %."""
    if failures > rules.retries:
        return None
    first, longest = rules.backoff
    pause = min(first * 2.0 ** min(failures - 1, _ENOUGH), longest)
    return pause * (1 - _VARIES + 2 * _VARIES * chance)


def look_in(failure: NotYet) -> float:
    """In how many seconds to look again. Raises if the body did not say that."""
    pause = seconds(failure.again_in, "NotYet")
    if pause <= 0:
        raise ConfigurationError(
            f"NotYet: {failure.again_in!r} leaves no time between two looks. Write when to look again, such as '5m'."
        )
    return pause


class _Walk:
    """Sorts due times, oldest first, into the runs they become."""

    def __init__(self, application: str, name: str, rules: Rules, now: Instant) -> None:
        self._application, self._name = application, name
        self._now, self._on_time, self._jitter = now, rules.on_time, rules.jitter
        self._spread = spread_of(application, name, rules.spread)
        self._shifted = bool(rules.spread or rules.jitter)
        self.steps = self.work = 0
        self.pending: list[NewRun] = []
        self.late: deque[Instant] = deque()
        self.skipped = 0
        self._first = self._last = 0.0

    def goes_on(self, steps: int) -> bool:
        """True if this visit has time for more."""
        return self.steps < steps and self.work < WORK

    def take(self, due: Instant, trigger: Trigger) -> Instant | None:
        """Take a due time. Returns the next one."""
        self.sort_in(due)
        taken = Steps()
        later = trigger.following(due, taken)
        self.steps += 1
        self.work += taken.taken
        return later

    def sort_in(self, due: Instant) -> None:
        start = self._start(due)
        if start + self._on_time > self._now:
            self.pending.append(NewRun(due, start, round(start + self._on_time, 6)))
        elif due < self._now - MISSED_WINDOW:
            self._skip(due)
        else:
            self.late.append(due)
            if len(self.late) > MISSED_LIMIT:
                self._skip(self.late.popleft())

    def leap(self, first: Instant, last: Instant, count: int) -> None:
        """Count this many due times without rows of their own, from one to another."""
        self._first, self._last, self.skipped = first, last, count

    def runs(self) -> tuple[NewRun, ...]:
        missed = [NewRun(due, start := self._start(due), round(start + self._on_time, 6)) for due in self.late]
        return (*self.older(), *missed, *self.pending)

    def older(self) -> tuple[NewRun, ...]:
        """The due times that no longer get rows of their own."""
        if not self.skipped:
            return ()
        start = self._start(self._first)
        return (NewRun(self._first, start, None, RunState.SKIPPED, MISSED, self.skipped, self._last),)

    def _skip(self, due: Instant) -> None:
        if not self.skipped:
            self._first = due
        self.skipped += 1
        self._last = due

    def _start(self, due: Instant) -> Instant:
        if not self._shifted:
            return due
        return round(due + self._spread + jitter_of(self._application, self._name, due, self._jitter), 6)


def spread_of(application: str, name: str, spread: float) -> float:
    """By how much the starts of a job are shifted: the same for all its due times, in [0, spread)."""
    return _share(f"{application}\0{name}", spread) if spread > 0 else 0.0


def jitter_of(application: str, name: str, scheduled_for: float, jitter: float) -> float:
    """By how much one start is shifted in addition: pseudo-random, but the same on every node, in [0, jitter)."""
    return _share(f"{application}\0{name}\0{round(scheduled_for * 1e6)}", jitter) if jitter > 0 else 0.0


def _share(text: str, of: float) -> float:
    drawn = int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) >> 11
    return math.floor(drawn / (1 << 53) * of * 1e6) / 1e6
