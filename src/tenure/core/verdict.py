"""How an application does, in one sentence: what `tenure status` and the page begin with.

`ok` decides the exit code of `tenure status` and the colour of the page, so that both always say the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tenure.core.alerts import EVERYTHING, AlertKind
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


class Alerted(Protocol):
    """An alert."""

    @property
    def kind(self) -> str: ...
    @property
    def target(self) -> str: ...


AlertT = TypeVar("AlertT", bound=Alerted)


@dataclass(frozen=True, slots=True)
class OverallState:
    """What it comes to."""

    ok: bool
    """False: no live node plans, or something should have run and did not."""
    text: str
    """One sentence."""


def unsaid(
    alerts: Sequence[AlertT], planner: Leader | None, attention: Sequence[Notable], failing: Collection[str]
) -> list[AlertT]:
    """The open alerts that say what nothing else says. `failing`: the names of jobs that fail."""
    no_planner = planner is None or any(one.cause == Cause.NO_PLANNER for one in attention)
    elsewhere: dict[str, Collection[str]] = {
        AlertKind.ORPHANED: {name for one in attention if one.cause in _NOT_ABLE for name in one.jobs},
        AlertKind.NOT_STARTED: {name for one in attention if one.overdue for name in one.jobs},
        AlertKind.FAILING: failing,
        AlertKind.NO_PLANNER: {""} if no_planner else (),
    }

    def said(alert: Alerted) -> bool:
        targets = elsewhere.get(alert.kind, ())
        return bool(targets) if alert.target == EVERYTHING else alert.target in targets

    return [alert for alert in alerts if not said(alert)]


_NOT_ABLE = {*ORPHANS, Cause.NO_NODE.value}


def verdict(
    application: str, planner: Leader | None, jobs: int, attention: Sequence[Notable], *, failing: int, alerts: int
) -> OverallState:
    """Put together who plans, what needs attention, how many of the jobs fail, and how many alerts are `unsaid`."""
    orphaned = sum(len(one.jobs) for one in attention if one.cause in ORPHANS)
    overdue = sum(one.overdue for one in attention)
    removed = sum(len(one.jobs) for one in attention if one.cause == Cause.REMOVED.value)
    troubles = [
        (planner is None, "no node of this application is running"),
        (planner is not None and not planner.healthy, "the node that plans is silent"),
        (overdue, f"{_many(overdue, 'due time')} overdue"),
        (orphaned, f"{_many(orphaned, 'job')} orphaned"),
        (removed, f"{_many(removed, 'job')} defined in code but removed"),
        (any(one.cause == Cause.ARGUMENTS.value for one in attention), "stored arguments do not fit"),
        (failing, f"{counted(failing, 'job')} {'fails' if failing == 1 else 'fail'}"),
        (alerts, f"{_many(alerts, 'alert')} open"),
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
