"""Alerts in memory: the readable reference."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tenure.core.alerts import AlertMessage, AlertRow, AlertStep, DeadNode, JobMarks
from tenure.core.records import Instant, JobId, JobRow, JobState, RunKind, RunState
from tenure.core.run_rules import REPLACED
from tenure.stores.alert_ledger import STALE, TOO_FAR, AlertLedger
from tenure.stores.memory.tables import MemoryMessage, MemoryRun, Tables

if TYPE_CHECKING:
    from tenure.stores.memory.ledger import MemoryWorld

_ENDED = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.LOST})


def _settles(run: MemoryRun) -> bool:
    """After this run, earlier due times are not awaited any more."""
    cancelled = run.state is RunState.CANCELLED and run.kind is not RunKind.MANUAL and run.reason != REPLACED
    return run.state is RunState.SUCCEEDED or cancelled


class MemoryAlerts(AlertLedger):
    """The part of the ledger that keeps alerts. Every operation holds the world's mutex."""

    _world: MemoryWorld
    _tables: Tables

    @abstractmethod
    def _shown(self, row: JobRow) -> JobRow: ...

    def job_marks(
        self, application: str, beyond: JobId, limit: int, depth: int, among: Sequence[JobId] | None = None
    ) -> list[JobMarks]:
        with self._world.mutex:
            rows = [
                row
                for row in sorted(self._tables.of(application), key=lambda row: row.id)
                if row.id > beyond
                and (among is None or row.id in among)
                and (row.state is JobState.PAUSED or (row.state is JobState.ACTIVE and row.spec.trigger is not None))
            ]
            return [self._marks(row, depth) for row in rows[:limit]]

    def _marks(self, row: JobRow, depth: int) -> JobMarks:
        runs = [run for run in self._tables.keys[row.id].values() if run.state.final]
        runs = sorted(runs, key=lambda run: run.scheduled_for, reverse=True)[:depth]
        oldest = runs[-1].scheduled_for if len(runs) == depth else None
        settled = next((run for run in runs if _settles(run)), None)
        ended = next((run for run in runs if run.state in _ENDED), None)
        newer = itertools.takewhile(lambda run: run is not ended, runs)
        unfinished = self._tables.open[row.id].values()
        return JobMarks(
            self._shown(row),
            settled.scheduled_for if settled else oldest,
            settled.finished_at if settled else None,
            ended.scheduled_for if ended else oldest,
            next((run.last for run in newer if run.missed), None),
            busy=any(run.attempt > 0 or run.state is RunState.WAITING for run in unfinished),
            held=any(run.looks or run.pool for run in unfinished),
        )

    def dead_nodes(self, application: str, since: Instant) -> list[DeadNode]:
        with self._world.mutex:
            took_part = {node for node, of in self._tables.facts if of == application}
            found = [dead for node, dead in self._world.dead() if node in took_part and dead.at >= since]
            return sorted(found, key=lambda dead: dead.at)

    def open_alerts(self, application: str) -> list[AlertRow]:
        with self._world.mutex:
            rows = [row for row in self._alerts_of(application) if row.closed_at is None]
            return sorted(rows, key=lambda row: (row.first_seen, row.id))

    def alert_history(self, application: str, limit: int) -> list[AlertRow]:
        with self._world.mutex:
            rows = [row for row in self._alerts_of(application) if row.opened_at is not None]
            return sorted(rows, key=lambda row: (-(row.opened_at or 0.0), row.id))[:limit]

    def _alerts_of(self, application: str) -> list[AlertRow]:
        return [row for row in self._tables.alerts.values() if row.application == application]

    def note_alerts(
        self, application: str, seen_at: Instant, steps: Sequence[AlertStep], sinks: Sequence[str]
    ) -> list[bool]:
        with self._world.mutex:
            if self._world.now() > seen_at + STALE:
                return [False] * len(steps)
            return [self._apply(application, seen_at, step, sinks) for step in steps]

    def _apply(self, application: str, seen_at: Instant, step: AlertStep, sinks: Sequence[str]) -> bool:
        tables, row = self._tables, step.row
        known = tables.alerts.get(row.id)
        if step.was:
            if known is None or known.version != step.was:
                return False
        elif known is not None or any(
            (other.kind, other.target) == (row.kind, row.target)
            and (other.closed_at is None or seen_at <= other.closed_at <= self._world.now())
            for other in self._alerts_of(application)
        ):
            return False
        if step.gone:
            del tables.alerts[row.id]
            return True
        tables.alerts[row.id] = row
        for sink in sinks if step.event else ():
            number = tables.number()
            made = AlertMessage(number, step.key, step.event, sink, self._world.now(), row)
            tables.messages[number] = MemoryMessage(made)
        return True

    def alert_messages(self, application: str, alerts: Sequence[str]) -> list[AlertMessage]:
        with self._world.mutex:
            return [
                self._with_alert(kept)
                for kept in self._tables.messages.values()
                if kept.message.alert.id in alerts and kept.message.alert.application == application
            ]

    def _with_alert(self, kept: MemoryMessage) -> AlertMessage:
        """The message with its alert as it is now."""
        return replace(kept.message, alert=self._tables.alerts[kept.message.alert.id])

    def claim_messages(
        self, application: str, by: str, sinks: Sequence[str], lapse: float, limit: int
    ) -> list[AlertMessage]:
        with self._world.mutex:
            due = list(itertools.islice(self._due(application, sinks), limit))
            for kept in due:
                kept.message = replace(kept.message, claimed_by=by)
                kept.claimed_until = self._world.now() + lapse
            return [self._with_alert(kept) for kept in due]

    def _due(self, application: str, sinks: Sequence[str]) -> list[MemoryMessage]:
        now, waits, due = self._world.now(), set[tuple[str, str]](), []
        for _, kept in sorted(self._tables.messages.items()):
            message = kept.message
            if message.alert.application != application or message.sent_at is not None or message.given_up:
                continue
            line = message.alert.id, message.sink
            until = kept.claimed_until
            free = until is None or until <= now or until > now + TOO_FAR
            if line not in waits and free and message.sink in sinks:
                due.append(kept)
            waits.add(line)
        return due

    def end_message(self, number: int, by: str, *, error: str = "", again_in: float | None = None) -> bool:
        with self._world.mutex:
            kept = self._tables.messages.get(number)
            if kept is None or kept.message.sent_at is not None or (error and kept.message.claimed_by != by):
                return False
            now = self._world.now()
            kept.claimed_until = None if again_in is None else now + again_in
            kept.message = replace(
                kept.message,
                error=error,
                tries=kept.message.tries + bool(error),
                sent_at=None if error else now,
                given_up=bool(error) and again_in is None,
            )
            return True

    def forget_alerts(self, application: str, before: Instant, limit: int) -> int:
        with self._world.mutex:
            closed = [
                row for row in self._alerts_of(application) if row.closed_at is not None and row.closed_at < before
            ]
            old = {row.id for row in sorted(closed, key=lambda row: row.closed_at or 0.0)[:limit]}
            for one in old:
                del self._tables.alerts[one]
            self._tables.messages = {
                number: kept for number, kept in self._tables.messages.items() if kept.message.alert.id not in old
            }
            return len(old)
