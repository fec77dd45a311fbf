"""Alerts: what a person must be told, when an alert opens, and when it closes.

An alert is identified by its application, kind and target: at most one of them is open, whichever node saw it first.
`core/alert_rules.py` finds what is wrong now (`Symptom`), `steps` compares that with the alerts of the ledger, and the
ledger applies a step only to the version of the alert that the node has read.

    seen ──`open_after` looks in a row, and `hold` is over──▶ open ──`close_after` looks without it──▶ closed
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypedDict, Unpack

from tenure.core.records import Instant, JobRow
from tenure.errors import ConfigurationError
from tenure.util.durations import Duration, positive
from tenure.util.instants import shown
from tenure.util.plurals import counted, several

NAMESPACE = uuid.UUID("6f5d3a0e-2f0b-5c8e-9a53-7a1f6f0f7b11")
"""Of the ids of alerts, messages and check-ins."""
MANY = 20
"""More new alerts of one kind than this become one alert for all of them."""
EVERYTHING = "*"
"""The target of an alert that stands for many."""
IN_TEXT = 10
"""How many targets its sentence names."""


class AlertKind(StrEnum):
    """What an alert is about. Programs compare these words, so they stay as they are."""

    ORPHANED = "orphaned"
    """No live node can run the job."""
    NOT_STARTED = "not_started"
    """A due time is past its grace although a live node plans, and nothing explains it."""
    NEVER_RAN = "never_ran"
    """The job has not run since it was added, changed or resumed."""
    OVERDUE = "overdue"
    """The job has not succeeded within `expect_within` of a due time."""
    MISSED = "missed"
    """A due time was given up as missed, and no later run has ended since."""
    FAILING = "failing"
    """Several runs in a row have failed or were lost."""
    TOO_LONG = "too_long"
    """A run takes much longer than the job's runs usually do."""
    PAUSED = "paused"
    """The job has been paused for long."""
    NO_PLANNER = "no_planner"
    """Nodes are alive, and none of them plans."""
    NODE_SILENT = "node_silent"
    """A node died, and has not come back."""
    CLOCK_DOUBTED = "clock_doubted"
    """The clock of the database has jumped."""
    NO_ANSWER = "no_answer"
    """A node cannot read the store. The node says so itself; the ledger cannot know."""


OF_JOBS = (
    AlertKind.ORPHANED,
    AlertKind.NOT_STARTED,
    AlertKind.NEVER_RAN,
    AlertKind.OVERDUE,
    AlertKind.MISSED,
    AlertKind.FAILING,
    AlertKind.TOO_LONG,
    AlertKind.PAUSED,
)
"""Kinds whose target is a job."""


class AlertThresholds(TypedDict, total=False):
    """The thresholds of `alert_to`, as users write them. One that is not given has the default of `AlertLimits`."""

    failing: int
    paused: Duration
    no_planner: Duration
    orphaned: Duration
    open_after: int
    close_after: int


@dataclass(frozen=True, slots=True)
class AlertLimits:
    """When alerts open and close, in seconds and counts, with the defaults. `AlertLimits.of` reads what users write."""

    failing: int = 3
    paused: float = 7 * 86400.0
    no_planner: float = 30.0
    orphaned: float = 60.0
    open_after: int = 1
    close_after: int = 1

    @classmethod
    def of(cls, **given: Unpack[AlertThresholds]) -> AlertLimits:
        """The limits that were given, and the defaults of the others. Refuses what makes no sense."""
        if unknown := given.keys() - _READ.keys():
            word = min(unknown)
            raise ConfigurationError(f"alert_to(): {word}= is not an option. The options are {', '.join(_READ)}.")
        return cls(**{word: _READ[word](value, word) for word, value in given.items()})

    def hold(self, kind: AlertKind) -> float:
        """For how many seconds it must have been seen before it opens."""
        held = {AlertKind.NO_PLANNER: self.no_planner, AlertKind.ORPHANED: self.orphaned}
        return held.get(kind, 0.0)


@dataclass(frozen=True, slots=True)
class Symptom:
    """Something that is wrong now."""

    kind: AlertKind
    target: str
    """The job or the label of the node; '' if it is about the application."""
    text: str
    """One sentence, the same on all nodes that look at the same rows."""
    since: Instant


@dataclass(frozen=True, slots=True)
class AlertRow:
    """An alert as the ledger stores it."""

    id: str
    """A UUID."""
    application: str
    kind: str
    target: str
    text: str
    since: Instant
    first_seen: Instant
    last_seen: Instant
    """Before it opens: when it was seen last."""
    seen: int = 1
    """Before it opens: in how many looks in a row it was seen."""
    missing: int = 0
    """While it is open: in how many looks in a row it was not seen."""
    opened_at: Instant | None = None
    closed_at: Instant | None = None
    version: int = 1

    @property
    def open(self) -> bool:
        """True if it was told and is not over."""
        return self.opened_at is not None and self.closed_at is None


OPENED, CLOSED = "opened", "closed"
"""What messages tell of an alert."""


@dataclass(frozen=True, slots=True)
class AlertStep:
    """What one look changes about one alert."""

    row: AlertRow
    """The alert after it."""
    was: int = 0
    """The version before it; 0: there was none."""
    event: str = ""
    """OPENED or CLOSED: it has to be told."""
    gone: bool = False
    """It was seen too briefly to open: forget it."""

    @property
    def key(self) -> str:
        """The id of its message, the same whichever node sends it, however often."""
        return str(uuid.uuid5(NAMESPACE, f"{self.row.id}\n{self.event}"))


@dataclass(frozen=True, slots=True)
class AlertMessage:
    """One event of an alert on its way to one sink."""

    number: int
    key: str
    """Its id for the receiver."""
    event: str
    sink: str
    made_at: Instant
    alert: AlertRow
    tries: int = 0
    """How many tries have failed."""
    error: str = ""
    """How the last one failed."""
    claimed_by: str = ""
    """The label of the node that sends it, or did."""
    sent_at: Instant | None = None
    given_up: bool = False


@dataclass(frozen=True, slots=True)
class JobMarks:
    """A job that has a trigger, or is paused; and how its newest final runs ended.

    Only so many of these are read. If none of them tells `settled` or `ran`, the oldest of them does: it was then or
    earlier.
    """

    row: JobRow
    settled: Instant | None = None
    """The due time or request of the newest run that succeeded, or of a due time that a user cancelled."""
    settled_at: Instant | None = None
    """When that run ended."""
    ran: Instant | None = None
    """The due time or request of the newest run that succeeded, failed or was lost."""
    missed: Instant | None = None
    """The newest due time after that which was skipped as missed."""
    busy: bool = False
    """An attempt of a run has begun and the run is not over, or a run waits for its turn."""
    held: bool = False
    """A run that is not over has looked and found that it must wait (`NotYet`), or waits for a place in a pool, or has
    one."""


@dataclass(frozen=True, slots=True)
class DeadNode:
    """A node that was declared dead."""

    label: str
    at: Instant
    why: str


def steps(
    application: str,
    rows: Iterable[AlertRow],
    findings: Iterable[Symptom],
    *,
    judged: Collection[AlertKind],
    now: Instant,
    limits: AlertLimits,
    away: float = math.inf,
) -> list[AlertStep]:
    """What a look changes.

    `rows` are the alerts that are seen or open, `findings` what is wrong now. Alerts of kinds that this look did not
    judge stay as they are. What is not open yet and was not seen for `away` seconds begins anew: no node looked.
    """
    known = {(row.kind, row.target): _unless_away(row, now, away) for row in rows}
    there = {(one.kind.value, one.target): one for one in gathered(findings, known)}
    made = [_seen(application, known.get(key), found, now, limits) for key, found in there.items()]
    kinds = {kind.value for kind in judged}
    made += [_missing(row, now, limits) for key, row in known.items() if row.kind in kinds and key not in there]
    return [step for step in made if step is not None]


def gathered(findings: Iterable[Symptom], known: Mapping[tuple[str, str], AlertRow]) -> list[Symptom]:
    """Put many new findings of one kind together, so that one cause does not send a thousand messages."""
    by_kind: dict[AlertKind, list[Symptom]] = {}
    for one in findings:
        by_kind.setdefault(one.kind, []).append(one)
    result: list[Symptom] = []
    for kind, ones in by_kind.items():
        new = [one for one in ones if (kind.value, one.target) not in known]
        if len(new) > MANY or (new and (kind.value, EVERYTHING) in known):
            result += [one for one in ones if (kind.value, one.target) in known]
            result.append(_together(kind, new))
        else:
            result += ones
    return result


def _together(kind: AlertKind, ones: Sequence[Symptom]) -> Symptom:
    first = min(ones, key=lambda one: one.since)
    names = several(sorted(one.target for one in ones), IN_TEXT)
    noun = "job" if kind in OF_JOBS else "node"
    text = f"{counted(len(ones), noun)}: {names}. The first since {shown(first.since)}: {first.text}"
    return Symptom(kind, EVERYTHING, text, first.since)


def _unless_away(row: AlertRow, now: Instant, away: float) -> AlertRow:
    """The alert; if it is not open and no node has looked for so long, as if it was never seen."""
    if row.open or abs(now - row.last_seen) <= away:
        return row
    return replace(row, since=now, first_seen=now, seen=0)


def _seen(
    application: str, row: AlertRow | None, found: Symptom, now: Instant, limits: AlertLimits
) -> AlertStep | None:
    if row is not None and row.open:
        if row.missing == 0 and row.text == found.text:
            return None
        return AlertStep(replace(row, text=found.text, missing=0, version=row.version + 1), row.version)
    if row is None:
        after = AlertRow(
            id=str(uuid.uuid5(NAMESPACE, f"{application}\n{found.kind}\n{found.target}\n{found.since:.6f}\n{now:.6f}")),
            application=application,
            kind=found.kind.value,
            target=found.target,
            text=found.text,
            since=found.since,
            first_seen=now,
            last_seen=now,
        )
    else:
        since = min(row.since, found.since)
        after = replace(row, text=found.text, since=since, last_seen=now, seen=row.seen + 1, version=row.version + 1)
    opens = after.seen >= limits.open_after and now - after.first_seen >= limits.hold(found.kind)
    if opens:
        after = replace(after, opened_at=now)
    return AlertStep(after, 0 if row is None else row.version, OPENED if opens else "")


def _missing(row: AlertRow, now: Instant, limits: AlertLimits) -> AlertStep:
    if not row.open:
        return AlertStep(row, row.version, gone=True)
    after = replace(row, missing=row.missing + 1, version=row.version + 1)
    if after.missing < limits.close_after:
        return AlertStep(after, row.version)
    return AlertStep(replace(after, closed_at=now), row.version, CLOSED)


def _count(value: object, what: str) -> int:
    if type(value) is not int or value < 1:
        raise ConfigurationError(f"{what}: {value!r} must be a whole number, 1 or more.")
    return value


_READ: Mapping[str, Callable[[Any, str], Any]] = {
    "failing": _count,
    "paused": positive,
    "no_planner": positive,
    "orphaned": positive,
    "open_after": _count,
    "close_after": _count,
}
