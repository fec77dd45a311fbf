"""Backfills: due times of the past that are run on request, all at once or a few at a time (G4).

running ──the last run is over──▶ done
  │ ▲
pause resume      cancel, or the removal of the job ──▶ cancelled
  ▼ │
paused
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal, get_args

from tenure.core.messages import Action
from tenure.core.records import Instant, JobId, RunState
from tenure.core.run_rules import cancelled_by
from tenure.errors import ConfigurationError

Include = Literal["missing", "lost", "failed"]
"""Which due times a backfill takes: `missing`, those without a run, or with one that was skipped or cancelled; `lost`,
those whose run was lost; `failed`, those whose run failed or was lost."""
BackfillStateName = Literal["running", "paused", "cancelled", "done"]
DEFAULT_INCLUDE: tuple[Include, ...] = ("missing", "lost")
LEFT = "left"
"""Of a due time: nothing has requested its run. After the end of the backfill, nothing will."""
OVERTAKEN = "overtaken"
"""Of a due time: when its turn came, its run had been requested or had ended by other means."""

JOB_REMOVED = "the job was removed"
"""Why a backfill was cancelled."""

_REOPENED: Mapping[str, frozenset[RunState]] = {
    "missing": frozenset({RunState.SKIPPED, RunState.CANCELLED}),
    "lost": frozenset({RunState.LOST}),
    "failed": frozenset({RunState.FAILED, RunState.LOST}),
}


class BackfillState(StrEnum):
    """What becomes of the due times of a backfill that are left."""

    RUNNING = "running"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    DONE = "done"


class Steer(StrEnum):
    """What a person may do to a backfill. The log of actions has these words."""

    PAUSE = "pause-backfill"
    RESUME = "resume-backfill"
    CANCEL = "cancel-backfill"


def included(given: object) -> tuple[Include, ...]:
    """The words of `include`, each once."""
    words = [given] if isinstance(given, str) else given
    known = get_args(Include)
    if not isinstance(words, tuple | list | set | frozenset):
        raise ConfigurationError(f"include: {given!r:.80} is not a list of words. {_WRITE}")
    for word in words:
        if word not in known:
            raise ConfigurationError(f"include: {word!r:.80} is not known. {_WRITE}")
    if not words:
        raise ConfigurationError(f"include: it is empty, so there is nothing to run. {_WRITE}")
    return tuple(word for word in known if word in words)


_WRITE = "Write one or more of 'missing', 'lost', 'failed'."


def reopened(include: Collection[str]) -> frozenset[RunState]:
    """The states of the runs that a backfill opens again, if they stand for one due time."""
    return frozenset().union(*(_REOPENED[word] for word in include))


def takes(include: Collection[str], state: RunState | None, count: int = 1, *, remembered: bool = True) -> bool:
    """True if a backfill takes a due time whose run is in this state, or which has no run. `remembered`: the ledger
    can say of a due time without a run that it did not run."""
    if state is None:
        return "missing" in include and remembered
    return state in reopened(include) and count == 1


@dataclass(frozen=True, slots=True)
class NewBackfill:
    """A backfill on its way into the ledger."""

    application: str
    name: str
    since: Instant
    until: Instant
    due: tuple[Instant, ...]
    """The due times of the job in [since, until), oldest first. The ledger leaves out those that it must not run."""
    include: tuple[Include, ...] = DEFAULT_INCLUDE
    at_once: int | None = None
    """How many of its runs may be open at once; None: all."""
    even_forgotten: bool = False
    """Allow due times without a run from before `kept_since`. They may have run before retention removed their runs."""
    by: str = ""
    why: str = ""
    action: Action | None = None
    """Set if a person does this."""
    traceparent: str = ""
    """The span that requests it."""


@dataclass(frozen=True, slots=True)
class BackfillRow:
    """A backfill as the ledger stores it."""

    number: int
    application: str
    job: JobId
    name: str
    since: Instant
    until: Instant
    include: tuple[str, ...]
    at_once: int | None
    even_forgotten: bool
    state: BackfillState
    by: str
    why: str
    created_at: Instant
    state_by: str = ""
    """Who paused, resumed or cancelled it the last time …"""
    state_why: str = ""
    """… and why."""
    finished_at: Instant | None = None
    """When the last of its runs was over, and none was left to request."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many of its due times are LEFT or OVERTAKEN, or have a run in a state. A run that is over counts as it ended
    first, even if it is retried later."""
    traceparent: str = ""
    """The span that requested it, and so each of its runs."""

    @property
    def requester(self) -> str:
        """Who requests its runs: without a name, the backfill itself."""
        return requester(self.by, self.number)


def requester(by: str, number: int) -> str:
    """Who requests the runs of a backfill."""
    return by or f"backfill {number}"


def numbered(action: Action | None, number: int) -> Action | None:
    """What the log of actions says of a new backfill."""
    return None if action is None else replace(action, detail=f"backfill {number}: {action.detail}")


def cancelled_because(by: str, why: str, number: int) -> str:
    """The reason of a run that the end of its backfill has cancelled."""
    return cancelled_by(by, why or f"backfill {number} was cancelled")


@dataclass(frozen=True, slots=True)
class Advanced:
    """The result of one `advance_backfills`."""

    begins: bool = False
    """A run can be claimed that could not before."""
    more: bool = False
    """There is more to do soon: the limit was reached."""
    held: bool = False
    """Another transaction had locked something."""
