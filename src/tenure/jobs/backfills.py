"""Backfills for people: what they may be given, which there are, and what may be done to them."""

from __future__ import annotations

from tenure.core.backfills import BackfillRow, BackfillState, NewBackfill, Steer
from tenure.core.messages import Action
from tenure.core.records import JobId, RunRow
from tenure.errors import BackfillError, ConfigurationError, UnknownBackfill
from tenure.jobs.operations import MAX_BACKFILL, ChangeNote
from tenure.stores.ledger import Ledger
from tenure.util.plurals import a_type, counted

RECENT = 20
"""Backfills of one list."""

_VERBS = {Steer.PAUSE: "pause", Steer.RESUME: "resume", Steer.CANCEL: "cancel"}


def at_once_of(given: object) -> int | None:
    """How many runs of a backfill may be open at once."""
    if given is None:
        return None
    if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= MAX_BACKFILL:
        raise ConfigurationError(
            f"at_once: {given!r:.40} is not a whole number from 1 to {MAX_BACKFILL:,}. Write how many runs of the "
            "backfill may be open at once, or None for all."
        )
    return given


def created(ledger: Ledger, wanted: NewBackfill) -> tuple[BackfillRow, list[RunRow]]:
    """Create a backfill. Returns it with its first runs; with the number 0 if there is nothing to run."""
    number, runs = (None, list[RunRow]()) if not wanted.due else ledger.create_backfill(wanted)
    if number is None:
        nothing = BackfillRow(
            0,
            wanted.application,
            JobId(0),
            wanted.name,
            wanted.since,
            wanted.until,
            wanted.include,
            wanted.at_once,
            wanted.even_forgotten,
            BackfillState.DONE,
            wanted.by,
            wanted.why,
            created_at=ledger.now(),
        )
        return nothing, []
    return backfill_of(ledger, wanted.application, number), runs


def backfill_of(ledger: Ledger, application: str, number: int) -> BackfillRow:
    """The backfill of this number."""
    if type(number) is not int:
        raise ConfigurationError(f"backfill: {number!r:.40} is {a_type(number)}. Write its number.")
    rows = ledger.backfills(application, number=number) if 0 < number < 2**63 else []
    if rows:
        return rows[0]
    newest = ledger.backfills(application, limit=3)
    if newest:
        few = ", ".join(f"backfill {row.number} ({row.name!r})" for row in newest)
        hint = f"The newest: {few}; `tenure backfills` lists them."
    else:
        hint = "It has none: `tenure backfill JOB SINCE UNTIL --yes` creates one."
    raise UnknownBackfill(f"application {application!r} has no backfill {number}. {hint}")


def steered(
    ledger: Ledger, application: str, number: int, steer: Steer, *, said: ChangeNote, action: Action | None
) -> BackfillRow:
    """Pause, resume or cancel a backfill. Raises an error that says why that cannot be done."""
    row = backfill_of(ledger, application, number)
    if not ledger.steer_backfill(application, number, steer, by=said.by, why=said.why, action=action):
        row = backfill_of(ledger, application, number)
        raise BackfillError(f"{_VERBS[steer]}: backfill {number} of {row.name!r} {_why_not(row, steer)}")
    return backfill_of(ledger, application, number)


def _why_not(row: BackfillRow, steer: Steer) -> str:
    by = f" by {row.state_by}" if row.state_by else ""
    if row.state is BackfillState.DONE:
        return "is done."
    if row.state is BackfillState.CANCELLED:
        return f"was cancelled{by}{f': {row.state_why}' if row.state_why else ''}."
    if steer is Steer.RESUME:
        return "is not paused."
    if row.state is BackfillState.PAUSED:
        return f"is paused already{by}."
    open_ = sum(count for word, count in row.counts.items() if word in {"pending", "waiting", "running"})
    return (
        f"has requested all of its runs; {counted(open_, 'run')} of it {'is' if open_ == 1 else 'are'} not over. "
        f"Cancel it, or pause {row.name!r}."
    )
