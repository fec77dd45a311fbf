"""Rows of a ledger for the tests of what only reads them: a job, its history, and the runs that planners would have
written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count

from tenure.core.messages import NewRun, Unplanned
from tenure.core.planning import STEPS, ahead, plan
from tenure.core.records import (
    Change,
    ChangeRecord,
    JobId,
    JobRow,
    JobSpec,
    JobState,
    Rules,
    RunId,
    RunKind,
    RunRow,
    RunState,
)
from tenure.triggers import Trigger

HOUR, DAY = 3600.0, 86400.0
NOON = datetime(2026, 3, 5, 12, tzinfo=UTC).timestamp()
_ids: Iterator[int] = count(1)


class Book:
    """A ledger of one job, kept as the real ones are: changed at an instant, planned up to an instant."""

    def __init__(self, trigger: Trigger, *, at: float = NOON, rules: Rules | None = None) -> None:
        spec = JobSpec("app", "report", "send_report", trigger.to_json(), rules or Rules())
        self.trigger = trigger
        self.job = JobRow(JobId(1), spec, JobState.ACTIVE, 0, None, since=at)
        self.changes: list[ChangeRecord] = []
        self.runs: list[RunRow] = []
        self.change(Change.ADDED, at)

    def change(
        self,
        what: Change,
        at: float,
        trigger: Trigger | None = None,
        *,
        by: str = "ops",
        why: str = "",
        until: float | None = None,
    ) -> None:
        """As the ledger does it: what is scheduled after the change goes, and the job counts from there."""
        self.trigger = trigger or self.trigger
        state, next_due = self.job.state, self.job.next_due
        match what:
            case Change.PAUSED:
                state = JobState.PAUSED
            case Change.REMOVED:
                state, next_due = JobState.REMOVED, None
            case _:
                state = JobState.PAUSED if what is Change.UPDATED and state is JobState.PAUSED else JobState.ACTIVE
                next_due, _ = ahead(
                    self.trigger, self.job.spec.rules, application="app", name="report", now=at, horizon=at
                )
        text = self.trigger.to_json()
        self.job = replace(
            self.job,
            spec=replace(self.job.spec, trigger=text),
            state=state,
            next_due=next_due,
            generation=self.job.generation + 1,
            paused_by=by,
            paused_why=why,
            paused_until=until,
        )
        self.changes.append(ChangeRecord(self.job.id, self.job.generation, at, what, text, by, why, until))

    def plan(self, now: float, state: RunState = RunState.SUCCEEDED, *, steps: int = STEPS) -> None:
        """All that is due up to now gets its run, as a planner that comes by now would write it; pending ones end as
        `state`."""
        while self.job.next_due is not None and self.job.next_due <= now:
            job = Unplanned(self.job.id, "report", self.job.generation, self.job.next_due, "", self.job.spec.rules)
            planned = plan(job, self.trigger, application="app", now=now, horizon=now, steps=steps)
            assert planned is not None
            self.runs += [row(new, state) for new in planned.runs]
            self.job = replace(self.job, next_due=planned.then_due)


def row(new: NewRun, state: RunState) -> RunRow:
    """A planned run, ended as the planner or the test says."""
    skipped = new.state is RunState.SKIPPED
    return run(
        new.scheduled_for,
        new.state if skipped else state,
        due_at=new.due_at,
        reason=new.reason,
        count=new.count,
        until=new.until,
    )


def run(scheduled_for: float, state: RunState = RunState.SUCCEEDED, **more: object) -> RunRow:
    """A run of the job."""
    number = next(_ids)
    fields: dict[str, object] = {
        "due_at": scheduled_for,
        "kind": RunKind.DUE,
        "attempt": 1,
        "failures": 0,
        "losses": 0,
        "node": "web-1",
        "key": f"report@{scheduled_for:.0f}",
        **more,
    }
    return RunRow(id=RunId(number), job=JobId(1), name="report", state=state, scheduled_for=scheduled_for, **fields)  # type: ignore[arg-type]
