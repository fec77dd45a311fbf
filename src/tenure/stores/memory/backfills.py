"""Backfills in memory: the readable reference."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from tenure.core.backfills import (
    JOB_REMOVED,
    LEFT,
    OVERTAKEN,
    Advanced,
    BackfillRow,
    BackfillState,
    NewBackfill,
    Steer,
    cancelled_because,
    numbered,
    takes,
)
from tenure.core.keys import due_key
from tenure.core.messages import Action
from tenure.core.records import UNBEGUN, Instant, JobId, JobRow, RunId, RunKind, RunRow, RunState
from tenure.stores.backfill_ledger import BackfillLedger
from tenure.stores.memory.tables import BackfilledTime, MemoryBackfill, MemoryRun, Tables

if TYPE_CHECKING:
    from tenure.stores.memory.ledger import MemoryWorld


class MemoryBackfills(BackfillLedger):
    """The part of the ledger that keeps backfills. Every operation holds the world's mutex."""

    _world: MemoryWorld
    _tables: Tables

    @abstractmethod
    def _reopen(self, row: JobRow, run: MemoryRun, by: str, traceparent: str, now: Instant) -> RunRow: ...
    @abstractmethod
    def _wake(self, application: str) -> None: ...

    def create_backfill(self, wanted: NewBackfill) -> tuple[int | None, list[RunRow]]:
        with self._world.mutex:
            row = self._tables.there(wanted.application, wanted.name)
            due = [] if row is None else [at for at in wanted.due if self._takes(row, wanted, at)]
            if row is None or not due:
                return None, []
            new = MemoryBackfill(
                BackfillRow(
                    self._tables.number(),
                    wanted.application,
                    row.id,
                    wanted.name,
                    wanted.since,
                    wanted.until,
                    wanted.include,
                    wanted.at_once,
                    wanted.even_forgotten,
                    BackfillState.RUNNING,
                    wanted.by,
                    wanted.why,
                    self._world.now(),
                    traceparent=wanted.traceparent,
                ),
                {at: BackfilledTime() for at in due},
            )
            self._tables.backfills[new.row.number] = new
            self._tables.note_action(
                wanted.application, wanted.name, numbered(wanted.action, new.row.number), self._world.now()
            )
            runs = self._request(row, new, len(due), self._world.now())
            self._wake(wanted.application)
            return new.row.number, runs

    def _takes(self, row: JobRow, wanted: NewBackfill, at: Instant) -> bool:
        run = self._tables.keys[row.id].get(due_key(at))
        if run is None:
            return takes(wanted.include, None, remembered=wanted.even_forgotten or at >= row.kept_since)
        return takes(wanted.include, run.state, run.count)

    def advance_backfills(self, application: str, limit: int, *, as_of: Instant | None = None) -> Advanced:
        with self._world.mutex:
            now = self._world.now()
            now = now if as_of is None else min(now, as_of)
            requested, more = 0, False
            for backfill in self._of(application):
                if backfill.row.finished_at is not None:
                    continue
                settled = self._settle(backfill, limit)
                job = self._tables.jobs.get(backfill.row.job)
                runs = [] if job is None else self._request(job, backfill, limit, now)
                requested += len(runs)
                more |= max(settled, len(runs)) >= limit
                self._close_if_over(backfill)
            if requested:
                self._wake(application)
            return Advanced(requested > 0, more)

    def _settle(self, backfill: MemoryBackfill, limit: int) -> int:
        """Note how runs ended. Returns how many."""
        settled = 0
        for time in (time for time in backfill.due.values() if time.open):
            if settled >= limit:
                break
            run = self._tables.runs.get(RunId(time.run or 0))
            if run is None or run.state.final:
                time.outcome = OVERTAKEN if run is None else run.state.value
                settled += 1
        return settled

    def _request(self, job: JobRow, backfill: MemoryBackfill, limit: int, now: Instant) -> list[RunRow]:
        """Request the next runs, as many as may be open at once, to begin now."""
        row, requested = backfill.row, list[RunRow]()
        if row.state is not BackfillState.RUNNING:
            return []
        room = limit
        if row.at_once is not None:
            room = min(limit, row.at_once - sum(time.open for time in backfill.due.values()))
        for at, time in backfill.due.items():
            if len(requested) >= room:
                break
            if not time.left:
                continue
            run = self._requested(job, row, at, now)
            if run is None:
                time.outcome = OVERTAKEN
            else:
                time.run = run.id
                requested.append(run)
        return requested

    def _requested(self, job: JobRow, backfill: BackfillRow, at: Instant, now: Instant) -> RunRow | None:
        """The run of a due time whose turn has come; None if it was taken by other means."""
        run = self._tables.keys[job.id].get(due_key(at))
        if run is not None:
            if not takes(backfill.include, run.state, run.count):
                return None
            return self._reopen(job, run, backfill.requester, backfill.traceparent, now)
        if not takes(backfill.include, None, remembered=backfill.even_forgotten or at >= job.kept_since):
            return None
        new = MemoryRun(
            id=RunId(self._tables.number()),
            job=job.id,
            key=due_key(at),
            kind=RunKind.BACKFILL,
            state=RunState.PENDING,
            generation=job.generation,
            scheduled_for=at,
            due_at=max(now, at),
            expires_at=None,
            by=backfill.requester,
            traceparent=backfill.traceparent,
            owes=job.id in self._tables.followed,
        )
        return self._tables.add(new).row(job.spec.name)

    def _close_if_over(self, backfill: MemoryBackfill) -> None:
        """A backfill of which every due time is settled is over."""
        if backfill.row.finished_at is None and all(time.outcome for time in backfill.due.values()):
            over = backfill.row.state if backfill.row.state is BackfillState.CANCELLED else BackfillState.DONE
            backfill.row = replace(backfill.row, state=over, finished_at=self._world.now())

    def steer_backfill(
        self, application: str, number: int, steer: Steer, *, by: str, why: str, action: Action | None = None
    ) -> bool:
        with self._world.mutex:
            backfill = self._tables.backfills.get(number)
            if backfill is None or backfill.row.application != application:
                return False
            row, left = backfill.row, any(time.left for time in backfill.due.values())
            job = self._tables.jobs.get(row.job)
            match steer, row.state:
                case Steer.PAUSE, BackfillState.RUNNING if left:
                    self._move(backfill, BackfillState.PAUSED, by, why)
                case Steer.RESUME, BackfillState.PAUSED:
                    self._move(backfill, BackfillState.RUNNING, by, why)
                    if job is not None:
                        self._request(job, backfill, len(backfill.due), self._world.now())
                case Steer.CANCEL, BackfillState.RUNNING | BackfillState.PAUSED:
                    self._cancel_backfill(backfill, by, why)
                case _:
                    return False
            self._tables.note_action(application, row.name, action, self._world.now())
            self._wake(application)
            return True

    def _move(self, backfill: MemoryBackfill, state: BackfillState, by: str, why: str) -> None:
        backfill.row = replace(backfill.row, state=state, state_by=by, state_why=why)

    def _cancel_backfill(self, backfill: MemoryBackfill, by: str, why: str) -> None:
        self._move(backfill, BackfillState.CANCELLED, by, why)
        said = cancelled_because(by, why, backfill.row.number)
        for time in backfill.due.values():
            if time.left:
                time.outcome = LEFT
            elif time.open and (run := self._tables.runs.get(RunId(time.run or 0))) and run.state in UNBEGUN:
                run.keep_attempt()
                self._tables.end(run, RunState.CANCELLED, said, self._world.now())
        self._settle(backfill, len(backfill.due))
        self._close_if_over(backfill)

    def _cancel_backfills(self, job: JobId, by: str) -> None:
        """A job was removed, and its runs that have not begun are cancelled."""
        for backfill in self._tables.backfills.values():
            if backfill.row.job == job and backfill.row.state in {BackfillState.RUNNING, BackfillState.PAUSED}:
                self._cancel_backfill(backfill, by, JOB_REMOVED)

    def backfills(
        self, application: str, *, number: int | None = None, job: str | None = None, limit: int = 100
    ) -> list[BackfillRow]:
        with self._world.mutex:
            found = [
                self._counted(one)
                for one in reversed(self._of(application))
                if number in {None, one.row.number} and job in {None, one.row.name}
            ]
            return found[:limit]

    def _of(self, application: str) -> list[MemoryBackfill]:
        """The backfills of an application, oldest first."""
        return [one for _, one in sorted(self._tables.backfills.items()) if one.row.application == application]

    def _counted(self, backfill: MemoryBackfill) -> BackfillRow:
        counts = Counter(time.outcome or self._run_state(time) for time in backfill.due.values())
        return replace(backfill.row, counts=dict(counts))

    def _run_state(self, time: BackfilledTime) -> str:
        if time.run is None:
            return LEFT
        run = self._tables.runs.get(time.run)
        return OVERTAKEN if run is None else run.state.value

    def forget_backfills(self, application: str, before: Instant, limit: int) -> int:
        with self._world.mutex:
            old = [
                one.row.number
                for one in self._of(application)
                if one.row.finished_at is not None and one.row.finished_at < before
            ][:limit]
            for number in old:
                del self._tables.backfills[number]
            return len(old)

    def _unsettled(self, job: JobId) -> Instant | None:
        """The oldest due time that a backfill of a job still has to run, or has not settled."""
        return min(
            (
                at
                for backfill in self._tables.backfills.values()
                if backfill.row.job == job
                for at, time in backfill.due.items()
                if not time.outcome
            ),
            default=None,
        )
