"""Rows of the ledger on SQLite, in both directions: whole microseconds for instants, JSON for rules.

`execute` works on any connection, including a user's own with its settings. It neither begins nor ends a transaction.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from functools import cache
from typing import Any

from tenure.core import unfit
from tenure.core.job_options import rules_of, written_rules
from tenure.core.messages import LogLine, Progress
from tenure.core.records import (
    ActionRecord,
    AttemptRow,
    Change,
    ChangeRecord,
    Instant,
    JobId,
    JobRow,
    JobSpec,
    JobState,
    NodeFacts,
    Override,
    RunId,
    RunKind,
    RunRow,
    RunState,
)
from tenure.stores import overrides, statements
from tenure.stores.row_checks import EARLIEST, LATEST, MOST, attempt_outcome, clamped

Micros = int
ALWAYS: Micros = -(2**62)
NEVER: Micros = 2**62

_KINDS = {str(kind): kind for kind in RunKind}
_STATES, _CHANGES = frozenset(RunState), frozenset(Change)
"""The columns have no type that would refuse other words."""


_JOB = (
    "id, application, name, function, trigger, rules, kwargs, in_code, release, tzdata, {state}, generation, next_due, "
    "paused_until, paused_by, paused_why, since, kept_since, defined_at, removed_at, removed_by, next_reading, override"
)
_DONE = (
    "CASE WHEN state = 'active' AND next_due IS NULL AND trigger IS NOT NULL AND NOT EXISTS (SELECT 1 FROM "
    "tenure_run r INDEXED BY tenure_run_open WHERE r.job = tenure_job.id AND (r.state = 'pending' OR r.state = "
    "'waiting' OR r.state = 'running')) THEN 'done' ELSE state END"
)
_RUN = (
    "r.id, r.job, j.name, r.key, r.kind, r.state, r.scheduled_for, r.due_at, r.attempt, r.failures, r.losses, r.label, "
    "r.claimed_at, r.started_at, r.finished_at, r.reason, r.count, r.until, r.by, r.kwargs, r.generation, "
    "r.interruptions, r.stopping, coalesce(r.looks, 0), r.looking_since, coalesce(r.last_look, 0), "
    "coalesce(r.slot, ''), coalesce(r.pool, ''), r.asked_to_end"
)
_ALERT = (
    "a.id, a.application, a.kind, a.target, a.text, a.since, a.first_seen, a.last_seen, a.seen, a.missing, "
    "a.opened_at, a.closed_at, a.version"
)
_BACKFILL = (
    "b.number, b.application, b.job, b.name, b.since, b.until, b.include, b.at_once, b.even_forgotten, b.state, b.by, "
    "b.why, b.created_at, b.state_by, b.state_why, b.finished_at, b.traceparent"
)
_LISTED = """application = :application
   AND (CASE :state WHEN 'removed' THEN state = 'removed' AND (in_code OR override IS NOT NULL)
                    WHEN 'paused' THEN state = 'paused'
                    WHEN 'active' THEN {state_or_done} = 'active'
                    WHEN 'done' THEN {state_or_done} = 'done'
                    ELSE state <> 'removed' END)
   AND instr(lower(name), lower(:contains)) > 0
   AND (:queue IS NULL OR queue = :queue)
   AND (:tag IS NULL
        OR EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(rules) THEN rules ELSE '{}' END, '$.tags') t
                    WHERE t.value = :tag))
   AND (:names IS NULL OR name IN (SELECT value FROM json_each(:names)))"""
_MESSAGE = "m.number, m.key, m.event, m.sink, m.made_at, m.tries, m.error, m.claimed_by, m.sent_at, m.given_up"


@cache
def sql(order: str = "DESC") -> dict[str, str]:
    """The statements, with lists in this order."""
    return statements.load(
        statements.SQLITE,
        "jobs",
        "runs",
        "guards",
        "actions",
        "figures",
        "alerts",
        "backfills",
        alert=_ALERT,
        backfill=_BACKFILL,
        message=_MESSAGE,
        job=_JOB.replace("{state}", "state"),
        job_or_done=_JOB.replace("{state}", _DONE),
        listed=_LISTED,
        state_or_done=_DONE,
        run=_RUN,
        order=order,
    )


def execute(connection: sqlite3.Connection, name: str, /, **values: object) -> sqlite3.Cursor:
    """Execute one statement."""
    return _cursor(connection).execute(sql()[name], values)


def execute_many(connection: sqlite3.Connection, name: str, rows: Iterable[tuple[object, ...]]) -> int:
    """Execute one statement for each row. Returns how many rows it changed."""
    return max(0, _cursor(connection).executemany(sql()[name], rows).rowcount)


def _cursor(connection: sqlite3.Connection) -> sqlite3.Cursor:
    cursor = connection.cursor()
    cursor.row_factory = None  # the user's own factory may return anything
    return cursor


def micros(instant: Instant) -> Micros:
    return round(instant * 1_000_000)


def micros_or_none(instant: Instant | None) -> Micros | None:
    return None if instant is None else round(instant * 1_000_000)


def instant(value: object) -> Instant:
    """The nearest instant that can be shown: the file accepts any value for a number."""
    return clamped(value / 1_000_000) if isinstance(value, int | float) else EARLIEST


def instant_or_none(value: Micros | None) -> Instant | None:
    return None if value is None else instant(value)


def is_micros(value: object) -> bool:
    return type(value) is int and EARLIEST * 1_000_000 <= value <= LATEST * 1_000_000


def count_of(value: object) -> int:
    """A count that can still go up by one."""
    return min(value, MOST - 1) if isinstance(value, int) and value >= 0 else 0


def definition(spec: JobSpec, override: Override | None) -> dict[str, object]:
    """The columns that define a job."""
    return {
        "function": spec.function,
        "trigger": spec.trigger,
        "rules": json.dumps(written_rules(spec.rules), separators=(",", ":")),
        "queue": spec.rules.queue,
        "max_running": spec.rules.max_running,
        "pool": spec.rules.pool,
        "after": spec.rules.after,
        "kwargs": spec.kwargs,
        "in_code": spec.in_code,
        "release": spec.release,
        "tzdata": spec.tzdata,
        "override": None if override is None else json.dumps(overrides.written(override), ensure_ascii=False),
    }


def job_row(row: tuple[Any, ...]) -> JobRow:
    (job, application, name, function, trigger, rules, kwargs, in_code, release, tzdata, *rest) = row
    (state, generation, next_due, paused_until, paused_by, paused_why, since, kept_since, *rest) = rest
    (defined_at, removed_at, removed_by, reading, override) = rest
    spec = JobSpec(
        application, name, function, trigger, rules_of(rules), kwargs, bool(in_code), release=release, tzdata=tzdata
    )
    return JobRow(
        id=JobId(job),
        spec=spec,
        state=JobState(state),
        generation=generation,
        next_due=instant_or_none(next_due),
        paused_until=instant_or_none(paused_until),
        paused_by=paused_by,
        paused_why=paused_why,
        since=instant(since),
        kept_since=instant(kept_since),
        defined_at=instant(defined_at),
        removed_at=instant_or_none(removed_at),
        removed_by=removed_by,
        next_reading=text_or_none(reading),
        override=overrides.read(override, spec),
    )


def text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


def node_facts(application: str, row: tuple[Any, ...]) -> NodeFacts:
    node, names, queues, capacity, release, library, tzdata, host, signatures, offset, *rest = row
    found, label, plans, joined_at = rest
    return NodeFacts(
        node,
        application,
        frozenset(_words(names)),
        None if queues is None else tuple(_words(queues)),
        count_of(capacity),
        release if isinstance(release, int) else 0,
        str(library),
        str(tzdata),
        str(host),
        str(signatures),
        offset if isinstance(offset, float) else None,
        unfit.read(found),
        str(label),
        bool(plans),
        clamped(joined_at) if isinstance(joined_at, int | float) else 0.0,
    )


def _words(text: object) -> list[str]:
    """The strings in a JSON array; an empty list if it cannot be read."""
    try:
        words = json.loads(text) if isinstance(text, str) else []
    except (ValueError, RecursionError):
        return []
    return [word for word in words if isinstance(word, str)] if isinstance(words, list) else []


def kind_of(text: str) -> RunKind:
    return _KINDS.get(text, RunKind.DUE)


def _change_of(text: str) -> Change:
    return Change(text) if text in _CHANGES else Change.UPDATED


def run_state(word: object) -> RunState:
    """The state of a run. The file accepts any word; an unknown one counts as failed."""
    return RunState(word) if isinstance(word, str) and word in _STATES else RunState.FAILED


def run_row(row: tuple[Any, ...]) -> RunRow:
    (found, job, name, key, kind, state, scheduled_for, due_at, attempt, failures, losses, label, *rest) = row
    (claimed_at, started_at, finished_at, reason, count, until, by, kwargs, *rest) = rest
    (generation, interruptions, stopping, looks, looking_since, last_look, slot, pool, asked_to_end, *kept) = rest
    return RunRow(
        id=RunId(found),
        job=JobId(job),
        name=name,
        key=key,
        kind=kind_of(kind),
        state=run_state(state),
        scheduled_for=instant(scheduled_for),
        due_at=instant(due_at),
        attempt=count_of(attempt),
        failures=count_of(failures),
        losses=count_of(losses),
        node=label,
        claimed_at=instant_or_none(claimed_at),
        started_at=instant_or_none(started_at),
        finished_at=instant_or_none(finished_at),
        reason=reason if state in _STATES else f"cannot be read: its state is {state!r:.60}",
        count=count_of(count),
        until=instant_or_none(until),
        by=by,
        kwargs=kwargs,
        generation=generation,
        interruptions=count_of(interruptions),
        stopping=bool(stopping),
        looks=count_of(looks),
        looking_since=instant_or_none(looking_since),
        last_look=count_of(last_look),
        slot=slot,
        pool=str(pool),
        asked_to_end=asked_to_end,
        digest=kept[0] if kept else None,
    )


def attempt_row(row: tuple[Any, ...]) -> AttemptRow:
    number, label, claimed_at, started_at, finished_at, outcome, error, count = row
    times = instant_or_none(claimed_at), instant_or_none(started_at), instant_or_none(finished_at)
    return AttemptRow(count_of(number), label, *times, attempt_outcome(outcome), error, count_of(count))


def log_line(row: tuple[Any, ...]) -> LogLine:
    run, attempt, place, at, text = row
    return LogLine(RunId(run), count_of(attempt), count_of(place), instant(at), str(text))


def progress_of(row: tuple[Any, ...]) -> Progress:
    run, attempt, done, total, text, at = row
    return Progress(RunId(run), count_of(attempt), _number(done) or 0.0, _number(total), str(text), instant(at))


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def change_record(row: tuple[Any, ...]) -> ChangeRecord:
    job, generation, at, what, trigger, by, why, until, after = row
    return ChangeRecord(
        JobId(job), generation, instant(at), _change_of(what), trigger, by, why, instant_or_none(until), after
    )


def action_record(row: tuple[Any, ...]) -> ActionRecord:
    number, at, application, by, what, target, run, *rest = row
    return ActionRecord(number, instant(at), application, by, what, target, None if run is None else RunId(run), *rest)
