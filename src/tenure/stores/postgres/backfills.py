"""Backfills on PostgreSQL."""

from __future__ import annotations

import json
from abc import abstractmethod
from dataclasses import asdict
from typing import Any

from tenure.core.backfills import Advanced, BackfillRow, BackfillState, NewBackfill, Steer, reopened
from tenure.core.keys import due_key
from tenure.core.messages import Action
from tenure.core.records import Instant, JobId, RunRow
from tenure.stores.backfill_ledger import BackfillLedger
from tenure.stores.postgres.rows import run_row, written_action
from tenure.stores.row_checks import clamped, clamped_or_none, storable


class PostgresBackfills(BackfillLedger):
    """The part of the ledger that keeps backfills."""

    @abstractmethod
    def _run(self, name: str, /, **values: object) -> list[tuple[Any, ...]]: ...

    def create_backfill(self, wanted: NewBackfill) -> tuple[int | None, list[RunRow]]:
        rows = self._run("create_backfill", wanted=json.dumps(_written(wanted)))
        runs = [run_row(row[1:]) for row in rows if row[1] is not None]
        return (rows[0][0] if rows else None), runs

    def advance_backfills(self, application: str, limit: int, *, as_of: Instant | None = None) -> Advanced:
        return Advanced(*self._run("advance_backfills", application=application, limit=limit, as_of=as_of)[0])

    def steer_backfill(
        self, application: str, number: int, steer: Steer, *, by: str, why: str, action: Action | None = None
    ) -> bool:
        noted = None if action is None else json.dumps(written_action(action))
        said = {"by": storable(by), "why": storable(why), "action": noted}
        ((done,),) = self._run("steer_backfill", application=application, number=number, steer=steer, **said)
        return bool(done)

    def backfills(
        self, application: str, *, number: int | None = None, job: str | None = None, limit: int = 100
    ) -> list[BackfillRow]:
        rows = self._run("backfills", application=application, number=number, job=job, limit=limit)
        return [_backfill_row(application, row) for row in rows]

    def forget_backfills(self, application: str, before: Instant, limit: int) -> int:
        return len(self._run("forget_backfills", application=application, before=before, limit=limit))


def _written(wanted: NewBackfill) -> dict[str, Any]:
    """The backfill as JSON for `create_backfill`."""
    return {
        **asdict(wanted),
        "due": [[at, due_key(at)] for at in wanted.due],
        "reopens": sorted(reopened(wanted.include)),
        "by": storable(wanted.by),
        "why": storable(wanted.why),
        "action": written_action(wanted.action),
    }


def _backfill_row(application: str, row: tuple[Any, ...]) -> BackfillRow:
    number, job, name, since, until, include, at_once, even_forgotten, state, *rest = row
    by, why, created_at, state_by, state_why, finished_at, words, counts, traceparent = rest
    return BackfillRow(
        number,
        application,
        JobId(job),
        name,
        clamped(since),
        clamped(until),
        tuple(include),
        at_once,
        even_forgotten,
        BackfillState(state),
        by,
        why,
        clamped(created_at),
        state_by,
        state_why,
        clamped_or_none(finished_at),
        dict(zip(words or (), counts or (), strict=True)),
        traceparent,
    )
