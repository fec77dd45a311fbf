"""Alerts on PostgreSQL: one statement per operation."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from tenure.core.alerts import AlertMessage, AlertRow, AlertStep, DeadNode, JobMarks
from tenure.core.records import Instant, JobId
from tenure.stores.alert_ledger import STALE, TOO_FAR, AlertLedger
from tenure.stores.postgres.arrays import longs, texts
from tenure.stores.postgres.rows import job_row
from tenure.stores.row_checks import clamped, clamped_or_none, storable

ALERT = (
    "a.id::text, a.application, a.kind, a.target, a.text, date_part('epoch', a.since), "
    "date_part('epoch', a.first_seen), date_part('epoch', a.last_seen), a.seen, a.missing, "
    "date_part('epoch', a.opened_at), date_part('epoch', a.closed_at), a.version"
)
MESSAGE = (
    "m.number, m.key::text, m.event, m.sink, date_part('epoch', m.made_at), m.tries, m.error, m.claimed_by, "
    "date_part('epoch', m.sent_at), m.given_up"
)
_COLUMNS = 10
"""Of a message; those of its alert follow."""


class PostgresAlerts(AlertLedger):
    """The part of the ledger that keeps alerts."""

    @abstractmethod
    def _run(self, name: str, /, **values: object) -> list[tuple[Any, ...]]: ...

    def job_marks(
        self, application: str, beyond: JobId, limit: int, depth: int, among: Sequence[JobId] | None = None
    ) -> list[JobMarks]:
        jobs = None if among is None else longs(among)
        rows = self._run("job_marks", application=application, beyond=beyond, limit=limit, depth=depth, among=jobs)
        return [
            JobMarks(
                job_row(application, tuple(job)),
                clamped_or_none(settled),
                clamped_or_none(settled_at),
                clamped_or_none(ran),
                clamped_or_none(missed),
                bool(busy),
                bool(held),
            )
            for *job, settled, settled_at, ran, missed, busy, held in rows
        ]

    def dead_nodes(self, application: str, since: Instant) -> list[DeadNode]:
        rows = self._run("dead_nodes", application=application, since=since)
        return [DeadNode(label, clamped(at), why) for label, at, why in rows]

    def open_alerts(self, application: str) -> list[AlertRow]:
        return [alert_row(row) for row in self._run("open_alerts", application=application)]

    def alert_history(self, application: str, limit: int) -> list[AlertRow]:
        return [alert_row(row) for row in self._run("alert_history", application=application, limit=limit)]

    def note_alerts(
        self, application: str, seen_at: Instant, steps: Sequence[AlertStep], sinks: Sequence[str]
    ) -> list[bool]:
        if not steps:
            return []
        written = json.dumps([_written(step) for step in steps])
        ((applied,),) = self._run(
            "note_alerts", application=application, seen_at=seen_at, stale=STALE, steps=written, sinks=texts(sinks)
        )
        return list(applied)

    def alert_messages(self, application: str, alerts: Sequence[str]) -> list[AlertMessage]:
        rows = self._run("alert_messages", application=application, alerts=texts(alerts)) if alerts else []
        return [_message(row) for row in rows]

    def claim_messages(
        self, application: str, by: str, sinks: Sequence[str], lapse: float, limit: int
    ) -> list[AlertMessage]:
        rows = self._run(
            "claim_messages",
            application=application,
            by=storable(by),
            sinks=texts(sinks),
            lapse=lapse,
            too_far=TOO_FAR,
            limit=limit,
        )
        return [_message(row) for row in rows]

    def end_message(self, number: int, by: str, *, error: str = "", again_in: float | None = None) -> bool:
        return bool(self._run("end_message", number=number, by=storable(by), error=storable(error), again_in=again_in))

    def forget_alerts(self, application: str, before: Instant, limit: int) -> int:
        return len(self._run("forget_alerts", application=application, before=before, limit=limit))


def alert_row(row: Sequence[Any]) -> AlertRow:
    number, application, kind, target, text, since, first_seen, last_seen, *counts = row
    seen, missing, opened_at, closed_at, version = counts
    return AlertRow(
        number,
        application,
        kind,
        target,
        text,
        clamped(since),
        clamped(first_seen),
        clamped(last_seen),
        seen,
        missing,
        clamped_or_none(opened_at),
        clamped_or_none(closed_at),
        version,
    )


def _message(row: Sequence[Any]) -> AlertMessage:
    number, key, event, sink, made_at, tries, error, claimed_by, sent_at, given_up = row[:_COLUMNS]
    return AlertMessage(
        number,
        key,
        event,
        sink,
        clamped(made_at),
        alert_row(row[_COLUMNS:]),
        tries,
        error,
        claimed_by,
        clamped_or_none(sent_at),
        given_up,
    )


def _written(step: AlertStep) -> dict[str, object]:
    """The step as JSON for `note_alerts`."""
    row = step.row
    return {
        "id": row.id,
        "kind": row.kind,
        "target": storable(row.target),
        "text": storable(row.text),
        "since": row.since,
        "first_seen": row.first_seen,
        "last_seen": row.last_seen,
        "seen": row.seen,
        "missing": row.missing,
        "opened_at": row.opened_at,
        "closed_at": row.closed_at,
        "was": step.was,
        "event": step.event,
        "gone": step.gone,
        "key": step.key,
    }
