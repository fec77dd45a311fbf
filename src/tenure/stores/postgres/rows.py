"""Converts rows of jobs and runs in PostgreSQL to the ledger's values, and back."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tenure.core.job_options import rules_of, written_rules
from tenure.core.keys import due_key
from tenure.core.messages import Action, JobChange, NewRun, RunRequest, Synced
from tenure.core.records import AttemptRow, JobId, JobRow, JobSpec, JobState, RunId, RunKind, RunRow, RunState
from tenure.stores import overrides
from tenure.stores.row_checks import attempt_outcome, clamped, clamped_or_none, storable

JOB = (
    "j.id, j.name, j.function, j.trigger, j.rules::pg_catalog.text, j.kwargs, j.in_code, j.release, j.tzdata, "
    "CASE WHEN j.state OPERATOR(pg_catalog.=) 'active' AND j.next_due IS NULL AND j.trigger IS NOT NULL "
    "THEN {schema}.state_of_planned(j.id) ELSE j.state END, j.generation, "
    "pg_catalog.date_part('epoch', j.next_due), pg_catalog.date_part('epoch', j.paused_until), "
    "j.paused_by, j.paused_why, "
    "pg_catalog.date_part('epoch', j.since), pg_catalog.date_part('epoch', j.kept_since), "
    "pg_catalog.date_part('epoch', j.defined_at), pg_catalog.date_part('epoch', j.removed_at), "
    "j.removed_by, j.next_reading, j.override::pg_catalog.text"
)
WAS = JOB.replace("j.", "b.")
"""The same job before a change."""
RUN = (
    "r.id, r.job, j.name, r.key, r.kind::pg_catalog.text, r.state::pg_catalog.text, "
    "pg_catalog.date_part('epoch', r.scheduled_for), pg_catalog.date_part('epoch', r.due_at), "
    "r.attempt, r.failures, r.losses, r.label, pg_catalog.date_part('epoch', r.claimed_at), "
    "pg_catalog.date_part('epoch', r.started_at), pg_catalog.date_part('epoch', r.finished_at), r.reason, r.count, "
    "pg_catalog.date_part('epoch', r.until), r.by, r.kwargs, r.generation, r.interruptions, r.stopping, "
    "COALESCE(r.looks, 0), pg_catalog.date_part('epoch', r.looking_since), COALESCE(r.last_look, 0), "
    "COALESCE(r.slot, ''), COALESCE(r.pool, ''), r.asked_to_end"
)
SPAN = (
    "(f.scheduled_for, f.id) > (coalesce(to_timestamp(%(since)s::float8), '-infinity'), %(above)s::bigint) "
    "AND (f.scheduled_for, f.id) < (coalesce(to_timestamp(%(before)s::float8), 'infinity'), %(below)s::bigint)"
)
"""Runs scheduled in a period, as `f`."""
REACHING = (
    "%(above)s::bigint < 0 "
    "AND f.until >= to_timestamp(%(since)s::float8) AND f.scheduled_for < to_timestamp(%(since)s::float8) "
    "AND (f.scheduled_for, f.id) < (coalesce(to_timestamp(%(before)s::float8), 'infinity'), %(below)s::bigint)"
)
"""Rows that stand for several due times, began before the period and reach into it; none without a beginning."""
ACTION = (
    "(%(by)s::text IS NULL OR x.by = %(by)s::text) AND (%(what)s::text IS NULL OR x.what = %(what)s::text) "
    "AND x.at >= coalesce(to_timestamp(%(since)s::float8), '-infinity') "
    "AND x.at < coalesce(to_timestamp(%(before)s::float8), 'infinity')"
)
"""Actions that a person asks for, as `x`."""
FIGURES_SINCE = (
    "SELECT sum(h.succeeded)::bigint, sum(h.failed)::bigint, sum(h.lost)::bigint, sum(h.cancelled)::bigint, "
    "sum(h.skipped)::bigint, sum(h.missed)::bigint, sum(h.open)::bigint, "
    "sum(h.late_total)::bigint, max(h.late_most), string_agg(h.late, ','), "
    "sum(h.took_total)::bigint, max(h.took_most), string_agg(h.took, ',') "
    "FROM {schema}.job_hour h WHERE h.job = j.id AND h.hour >= to_timestamp(%(since)s) HAVING count(*) > 0"
)
"""The figures of the job `j` over its hours since an instant; no row if it has none."""


def written_change(change: JobChange) -> dict[str, Any]:
    """The change as JSON for `change_job`."""
    return {
        "application": change.application,
        "name": change.name,
        "what": change.what,
        "spec": _written_spec(change.spec) if change.spec else None,
        "next_due": change.next_due,
        "next_reading": change.next_reading,
        "runs": [_written_run(run) for run in change.runs],
        "by": storable(change.by),
        "why": storable(change.why),
        "until": change.until,
        "generation": change.generation,
        "override": overrides.written(change.override),
        "action": written_action(change.action),
    }


def written_request(request: RunRequest) -> dict[str, Any]:
    """The request as JSON for `request_runs`."""
    written = {**asdict(request), "by": storable(request.by), "action": written_action(request.action)}
    return written if request.slot is None else {**written, "slot": storable(request.slot)}


def written_action(action: Action | None) -> dict[str, str] | None:
    """The action as JSON for `note_action`."""
    return None if action is None else {word: storable(text) for word, text in asdict(action).items()}


def _written_spec(spec: JobSpec) -> dict[str, Any]:
    rules = spec.rules
    return {
        "function": spec.function,
        "trigger": spec.trigger,
        "kwargs": spec.kwargs,
        "rules": written_rules(rules),
        "queue": rules.queue,
        "overlap": rules.overlap,
        "max_running": rules.max_running,
        "pool": rules.pool,
        "after": rules.after,
        "after_on": rules.on,
        "on_time": rules.on_time,
        "on_lost": rules.on_lost,
        "max_lost": rules.max_lost,
        "in_code": spec.in_code,
        "release": spec.release,
        "tzdata": spec.tzdata,
    }


def _written_run(run: NewRun) -> dict[str, Any]:
    return {"key": due_key(run.scheduled_for), **asdict(run)}


def job_row(application: str, row: tuple[Any, ...]) -> JobRow:
    """A row of JOB."""
    job, name, function, trigger, rules, kwargs, in_code, release, tzdata, state, generation, *times = row
    next_due, paused_until, paused_by, paused_why, since, kept_since, defined_at, *rest = times
    removed_at, removed_by, reading, override = rest
    spec = JobSpec(application, name, function, trigger, rules_of(rules), kwargs, in_code, release, tzdata)
    return JobRow(
        JobId(job),
        spec,
        JobState(state),
        generation,
        clamped_or_none(next_due),
        clamped_or_none(paused_until),
        paused_by,
        paused_why,
        clamped(since),
        clamped(kept_since),
        clamped(defined_at),
        clamped_or_none(removed_at),
        removed_by,
        next_reading=reading,
        override=overrides.read(override, spec),
    )


def synced_row(application: str, row: tuple[Any, ...]) -> Synced:
    """A row of JOB and WAS."""
    half = len(row) // 2
    was = None if row[half] is None else job_row(application, row[half:])
    return Synced(job_row(application, row[:half]), was)


def run_row(row: tuple[Any, ...]) -> RunRow:
    """A row of RUN."""
    run, job, name, key, kind, state, scheduled_for, due_at, attempt, failures, losses, label, *rest = row
    claimed_at, started_at, finished_at, reason, count, until, *rest = rest
    by, kwargs, generation, interruptions, stopping, looks, looking_since, *rest = rest
    return RunRow(
        RunId(run),
        JobId(job),
        name,
        key,
        RunKind(kind),
        RunState(state),
        clamped(scheduled_for),
        clamped(due_at),
        attempt,
        failures,
        losses,
        label,
        clamped_or_none(claimed_at),
        clamped_or_none(started_at),
        clamped_or_none(finished_at),
        reason,
        count,
        clamped_or_none(until),
        by,
        kwargs,
        generation,
        interruptions,
        stopping,
        looks,
        clamped_or_none(looking_since),
        *rest,
    )


def attempt_row(row: tuple[Any, ...]) -> AttemptRow:
    """A row of `attempts`."""
    number, label, claimed_at, started_at, finished_at, outcome, error, count, _ = row
    times = clamped_or_none(claimed_at), clamped_or_none(started_at), clamped_or_none(finished_at)
    return AttemptRow(number, label, *times, attempt_outcome(outcome), error, count)
