"""How an application does, in one sentence: what `tenure status` and the page begin with.

`ok` decides the exit code of `tenure status` and the colour of the page, so that both always say the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tenure.core.causes import Cause
from tenure.core.cluster import Leader
from tenure.util.plurals import counted

ORPHANS = {Cause.NO_FUNCTION.value, Cause.NO_QUEUE.value}


class Notable(Protocol):
    """Something that needs attention."""

    @property
    def cause(self) -> str: ...
    @property
    def fails(self) -> bool: ...
    @property
    def jobs(self) -> Sequence[str]: ...
    @property
    def overdue(self) -> int: ...


@dataclass(frozen=True, slots=True)
class OverallState:
    """What it comes to."""

    ok: bool
    """False: no live node plans, or something should have run and did not."""
    text: str
    """One sentence."""


def verdict(
    application: str, planner: Leader | None, jobs: int, attention: Sequence[Notable], failing: int
) -> OverallState:
    """Put together who plans, what needs attention, and how many of the jobs fail."""
    orphaned = sum(len(one.jobs) for one in attention if one.cause in ORPHANS)
    overdue = sum(one.overdue for one in attention)
    removed = sum(len(one.jobs) for one in attention if one.cause == Cause.REMOVED.value)
    troubles = [
        (planner is None, "no node of this application is running"),
        (planner is not None and not planner.healthy, "the node that plans is silent"),
        (overdue, f"{_many(overdue, 'due time')} overdue"),
        (orphaned, f"{_many(orphaned, 'job')} orphaned"),
        (removed, f"{_many(removed, 'job')} defined in code but removed"),
        (failing, f"{counted(failing, 'job')} {'fails' if failing == 1 else 'fail'}"),
    ]
    told = [text for holds, text in troubles if holds]
    if not told and attention:
        told = [counted(len(attention), "concern")]
    ok = planner is not None and planner.healthy and not any(one.fails for one in attention)
    if told:
        return OverallState(ok, f"{application!r} needs attention: {', '.join(told)}.")
    label = "" if planner is None else planner.label
    text = f"{application!r} is fine: {label} plans {counted(jobs, 'job')}, and nothing needs attention."
    return OverallState(ok, text)


def _many(count: int, noun: str) -> str:
    """'1 job is', '2 jobs are'."""
    return f"{counted(count, noun)} {'is' if count == 1 else 'are'}"
