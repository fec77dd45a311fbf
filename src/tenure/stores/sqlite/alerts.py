"""Alerts on SQLite. Each operation that may find nothing to do looks first, without the write lock."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tenure.core.alerts import AlertMessage, AlertRow, AlertStep, DeadNode, JobMarks
from tenure.core.records import Instant, JobId
from tenure.stores.alert_ledger import STALE, TOO_FAR, AlertLedger
from tenure.stores.row_checks import clamped, storable
from tenure.stores.sqlite.part import SqlitePart
from tenure.stores.sqlite.rows import (
    Micros,
    count_of,
    execute,
    execute_many,
    instant,
    instant_or_none,
    job_row,
    micros,
    micros_or_none,
)

_COLUMNS = 10
"""Of a message; those of its alert follow."""
_MARKS = 6
"""Columns after those of the job."""


class SqliteAlerts(SqlitePart, AlertLedger):
    """The part of the ledger that keeps alerts."""

    def job_marks(
        self, application: str, beyond: JobId, limit: int, depth: int, among: Sequence[JobId] | None = None
    ) -> list[JobMarks]:
        page: dict[str, object] = {"application": application, "beyond": beyond, "limit": limit}
        with self._read():
            if among is None:
                jobs = execute(self._connection, "marked_jobs", **page).fetchall()
            else:
                jobs = execute(self._connection, "marked_among", among=json.dumps(list(among)), **page).fetchall()
            ids = json.dumps([job for (job,) in jobs])
            rows = execute(self._connection, "job_marks", jobs=ids, depth=depth).fetchall()
        return [_marks(row) for row in rows]

    def dead_nodes(self, application: str, since: Instant) -> list[DeadNode]:
        with self._read():
            rows = execute(self._connection, "dead_nodes", application=application, since=since).fetchall()
        return [DeadNode(str(label), clamped(float(at)), str(why)) for label, at, why in rows]

    def open_alerts(self, application: str) -> list[AlertRow]:
        with self._read():
            rows = execute(self._connection, "open_alerts", application=application).fetchall()
        return [alert_row(row) for row in rows]

    def alert_history(self, application: str, limit: int) -> list[AlertRow]:
        with self._read():
            rows = execute(self._connection, "alert_history", application=application, limit=limit).fetchall()
        return [alert_row(row) for row in rows]

    def note_alerts(
        self, application: str, seen_at: Instant, steps: Sequence[AlertStep], sinks: Sequence[str]
    ) -> list[bool]:
        if not steps:
            return []
        with self._write():
            now = self._now()
            if now > micros(seen_at + STALE):
                return [False] * len(steps)
            return [self._apply(application, micros(seen_at), step, sinks, now) for step in steps]

    def _apply(self, application: str, seen_at: Micros, step: AlertStep, sinks: Sequence[str], now: Micros) -> bool:
        row = step.row
        values: dict[str, object] = {"id": row.id, "was": step.was}
        if step.gone:
            return execute(self._connection, "drop_alert", **values).rowcount > 0
        values |= {
            "text": storable(row.text),
            "since": micros(row.since),
            "first_seen": micros(row.first_seen),
            "last_seen": micros(row.last_seen),
            "seen": row.seen,
            "missing": row.missing,
            "opened_at": micros_or_none(row.opened_at),
            "closed_at": micros_or_none(row.closed_at),
        }
        if step.was:
            applied = execute(self._connection, "change_alert", **values).rowcount > 0
        else:
            values |= {"application": application, "kind": row.kind, "target": storable(row.target)}
            values |= {"seen_at": seen_at, "now": now}
            applied = execute(self._connection, "add_alert", **values).rowcount > 0
        if applied and step.event:
            told = {"application": application, "id": row.id, "event": step.event, "key": step.key, "now": now}
            for sink in sinks:
                execute(self._connection, "add_message", sink=sink, **told)
        return applied

    def alert_messages(self, application: str, alerts: Sequence[str]) -> list[AlertMessage]:
        with self._read():
            rows = execute(
                self._connection, "alert_messages", application=application, alerts=json.dumps(list(alerts))
            ).fetchall()
        return [_message(row) for row in rows]

    def claim_messages(
        self, application: str, by: str, sinks: Sequence[str], lapse: float, limit: int
    ) -> list[AlertMessage]:
        with self._read():
            if not self._unsent(application, sinks, limit):
                return []
        with self._write():
            rows, until = self._unsent(application, sinks, limit), self._now() + micros(lapse)
            for row in rows:
                execute(self._connection, "claim_message", number=row[0], by=storable(by), until=until)
        return [replace(_message(row), claimed_by=storable(by)) for row in rows]

    def _unsent(self, application: str, sinks: Sequence[str], limit: int) -> list[tuple[Any, ...]]:
        now = self._now()
        return execute(
            self._connection,
            "unsent_messages",
            application=application,
            sinks=json.dumps(list(sinks)),
            now=now,
            too_far=now + micros(TOO_FAR),
            limit=limit,
        ).fetchall()

    def end_message(self, number: int, by: str, *, error: str = "", again_in: float | None = None) -> bool:
        with self._write():
            now = self._now()
            until = None if again_in is None else now + micros(again_in)
            values: dict[str, object] = {"by": storable(by), "error": storable(error), "now": now, "until": until}
            return execute(self._connection, "end_message", number=number, **values).rowcount > 0

    def forget_alerts(self, application: str, before: Instant, limit: int) -> int:
        values: dict[str, object] = {"application": application, "before": micros(before), "limit": limit}
        with self._read():
            if execute(self._connection, "old_alerts", **values).fetchone() is None:
                return 0
        with self._write():
            old = execute(self._connection, "old_alerts", **values).fetchall()
            execute_many(self._connection, "forget_messages", old)
            return execute_many(self._connection, "forget_alert", old)


def _marks(row: tuple[Any, ...]) -> JobMarks:
    *times, busy, held = row[-_MARKS:]
    settled, settled_at, ran, missed = map(instant_or_none, times)
    return JobMarks(job_row(row[:-_MARKS]), settled, settled_at, ran, missed, bool(busy), bool(held))


def alert_row(row: Sequence[Any]) -> AlertRow:
    number, application, kind, target, text, since, first_seen, last_seen, *counts = row
    seen, missing, opened_at, closed_at, version = counts
    return AlertRow(
        str(number),
        application,
        str(kind),
        str(target),
        str(text),
        instant(since),
        instant(first_seen),
        instant(last_seen),
        count_of(seen),
        count_of(missing),
        instant_or_none(opened_at),
        instant_or_none(closed_at),
        count_of(version),
    )


def _message(row: Sequence[Any]) -> AlertMessage:
    number, key, event, sink, made_at, tries, error, claimed_by, sent_at, given_up = row[:_COLUMNS]
    return AlertMessage(
        number,
        str(key),
        str(event),
        str(sink),
        instant(made_at),
        alert_row(row[_COLUMNS:]),
        count_of(tries),
        str(error),
        str(claimed_by),
        instant_or_none(sent_at),
        bool(given_up),
    )
