"""What an open run waits for, and why one that runs should have ended. `why`, `show`, `runs`, `status` and the audit
share these words.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import tzinfo

from tenure.core.records import Instant, Rules, RunRow, RunState
from tenure.util.durations import readable
from tenure.util.instants import shown
from tenure.util.last_line import last_line
from tenure.util.plurals import counted

NAMED = 3
"""How many of the runs are named for which a run waits."""
RETURNS = 1.0
"""A body that is asked to end is given this many seconds before it counts as one that does not."""


def waits_for(run: RunRow, zone: tzinfo, rules: Rules | None = None, ahead: Iterable[RunRow] = ()) -> str:
    """What a run waits for: the runs of its job that have its places, or a place in a pool; or between two looks the
    reason of its last `NotYet`, how often it looked, and when next. '' if it does not wait.

    `rules` are those of its job, and `ahead` open runs of its job.
    """
    if run.state is RunState.WAITING:
        return f"a place in the pool {run.pool!r}" if run.pool else _for_its_job(run, rules, ahead)
    if not run.looking:
        return ""
    reason = f"{last_line(run.reason)}, " if run.reason else ""
    return f"{reason}{counted(run.looks, 'look')}, next at {shown(run.due_at, zone)}"


def in_the_way(run: RunRow, others: Iterable[RunRow]) -> list[RunRow]:
    """The runs of its job that have the places which `max_running` allows, the oldest first."""
    found = [one for one in others if one.job == run.job and one.id != run.id and _has_place(one)]
    return sorted(found, key=lambda one: (one.scheduled_for, one.id))


def should_have_ended(run: RunRow, rules: Rules, now: Instant) -> str:
    """Why a run that is running should have ended; '' if it need not have."""
    if run.state is not RunState.RUNNING:
        return ""
    asked = "it was asked to end and has not returned"
    if run.asked_to_end:
        said = last_line(run.asked_to_end)
        return f"{said if said.startswith(('cancelled', 'replaced')) else f'cancelled: {said}'}; {asked}"
    since = run.began_at
    late = 0.0 if rules.timeout is None or since is None else now - since - rules.timeout
    if rules.timeout is not None and late > RETURNS:
        return f"its timeout of {readable(rules.timeout)} passed {readable(late)} ago; {asked}"
    return ""


def _for_its_job(run: RunRow, rules: Rules | None, ahead: Iterable[RunRow]) -> str:
    has = in_the_way(run, ahead)
    names = [str(one.id) for one in has]
    if not names:
        who = "a run of its job"
    elif len(names) > NAMED:
        who = f"one of {len(names)} runs of its job"
    else:
        who = f"run {', '.join(names[:-1])}{' or ' if len(names) > 1 else ''}{names[-1]}"
    return f"{who} to end{_at_once(rules)}"


def _at_once(rules: Rules | None) -> str:
    if rules is None or rules.max_running is None:
        return ""
    times = "only one run" if rules.max_running == 1 else f"at most {rules.max_running} runs"
    return f", as its job has {times} at a time (max_running={rules.max_running})"


def _has_place(run: RunRow) -> bool:
    """As `places` in `core/run_rules.py` counts."""
    if run.state is RunState.WAITING:
        return bool(run.pool)
    return run.state is RunState.RUNNING or (run.state is RunState.PENDING and run.attempt > 0)
