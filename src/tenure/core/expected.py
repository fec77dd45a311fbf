"""By when a job is expected to have succeeded: the rule behind the alert "overdue", `expect_within` and the metric.

A job is expected to succeed for every due time, within an allowance. What counts is the first due time after the last
one that is settled: that succeeded, or that a user cancelled. A later due time that is settled makes up for earlier
ones, and so does a run that was requested later and succeeded.

Without `expect_within` tenure only guesses how long a run may take. So it expects nothing while a run looks again and
again (`NotYet`) or has a pool, in which it may have waited for any time; and nothing of due times before the end of the
run that settled the last one.
"""

from __future__ import annotations

from tenure.core.planning import retry_in
from tenure.core.records import Instant, Rules
from tenure.triggers import Trigger

KNOWN = 20
"""How many runs must have ended before their durations say how long a run may take."""
FACTOR = 3.0
"""How many times as long as the slowest of a hundred a run may take before it is unusual."""
_MIDDLE = 0.5


def allowance(rules: Rules, runs: int = 0, p99: float | None = None) -> float | None:
    """How many seconds after a due time its run is expected to have succeeded.

    That is `expect_within`. Without it: as late as a run may begin, and as long as its attempts and the pauses between
    them may take. An attempt may take `timeout`, or `FACTOR` times the 99th percentile of at least `KNOWN` runs. None
    if neither is known: nothing is expected then.
    """
    if rules.expect_within is not None:
        return rules.expect_within
    longest = rules.timeout
    if longest is None:
        longest = usual_limit(runs, p99)
    if longest is None:
        return None
    pauses = sum(retry_in(rules, failures, _MIDDLE) or 0.0 for failures in range(1, min(rules.retries, KNOWN) + 1))
    return least_allowance(rules) + longest * (rules.retries + 1) + pauses


def least_allowance(rules: Rules) -> float:
    """`allowance` is at least this, whatever the durations are: to ask for them only when it matters."""
    return rules.spread + rules.jitter + rules.on_time if rules.expect_within is None else rules.expect_within


def usual_limit(runs: int, p99: float | None) -> float | None:
    """How many seconds an attempt may take before it is unusually long; None if too few runs are known."""
    return None if p99 is None or runs < KNOWN else FACTOR * p99


def settled_until(rules: Rules, settled: Instant | None, settled_at: Instant | None) -> Instant | None:
    """Due times up to here are not awaited: `settled` is the newest one that is settled, `settled_at` the end of its
    run."""
    if settled is None or settled_at is None or rules.expect_within is not None:
        return settled
    return max(settled, settled_at)


def awaited_due(trigger: Trigger | None, *, since: Instant, settled: Instant | None) -> Instant | None:
    """The first due time after `settled`; it may be to come. None if there is none.

    `since` is when the trigger began to apply (`JobRow.since`).
    """
    return None if trigger is None else trigger.following(since if settled is None else max(since, settled))


def expected_by(
    trigger: Trigger | None,
    rules: Rules,
    *,
    since: Instant,
    settled: Instant | None,
    settled_at: Instant | None = None,
    held: bool = False,
    runs: int = 0,
    p99: float | None = None,
) -> Instant | None:
    """By when the job must have succeeded again; None if that is not expected. In the past: it is overdue.

    `settled`, `settled_at` and `held` are those of `JobMarks`.
    """
    if held and rules.expect_within is None:
        return None
    allowed = allowance(rules, runs, p99)
    until = settled_until(rules, settled, settled_at)
    due = None if allowed is None else awaited_due(trigger, since=since, settled=until)
    return None if due is None or allowed is None else due + allowed
